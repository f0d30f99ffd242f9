/* test_halves.c - a put in two halves: places that an item keeps, and what becomes of them. */
#include "world.h"

/* An item that has `replicas` places. */
static void reserve(struct world *world, struct client_item *item, uint32_t replicas) {
    struct client_put_options options = {.replicas = replicas};

    world_run(world, CLIENT_RESERVE, item, 1, &options);
    assert_int_equal(item->status, MC_OK);
    assert_int_equal(item->place_count, replicas);
    for (uint32_t i = 0; i < replicas; i++)
        item->places[i].status = MC_ERR_PENDING;
}

static void the_first_half_writes_and_publishes_nothing(void **state) {
    struct world *world = *state;
    struct client_item item = item_of("key", "value");

    reserve(world, &item, 2);
    assert_int_equal(world->writes, 0);
    assert_int_equal(world->letters[MESSAGE_PUBLISH], 0);
    world_pass(world, 10 * CLOCK_SECOND);
    assert_int_equal(world->released + client_count(world->client).stock, world->granted - 2); /* they are kept */
    client_item_give_back(world->client, world->now, &item);
    world_pass(world, CLOCK_SECOND);
    assert_int_equal(world->released, world->granted);
}

static void the_second_half_publishes_the_places_of_an_item_that_was_moved(void **state) {
    struct world *world = *state;
    struct client_item item = item_of("key", "value"), moved;
    struct message_place place;

    reserve(world, &item, 1);
    place = item.places[0].place;
    client_item_move(&moved, &item);
    memset(&item, 0xa5, sizeof(item));
    world_run(world, CLIENT_COMMIT, &moved, 1, NULL);
    assert_int_equal(moved.status, MC_OK);
    assert_int_equal(world->writes, 1);
    assert_int_equal(world->objects[0].count, 1);
    assert_int_equal(world->objects[0].places[0].generation, place.generation);
}

static void a_place_where_writing_failed_is_released_and_the_rest_published(void **state) {
    struct world *world = *state;
    struct client_item item = item_of("key", "value");
    uint64_t good;

    reserve(world, &item, 2);
    item.places[0].status = MC_ERR_UNREACHABLE;
    good = item.places[1].place.generation;
    world_run(world, CLIENT_COMMIT, &item, 1, NULL);
    assert_int_equal(item.status, MC_OK);
    assert_int_equal(item.replicas, 1);
    assert_int_equal(world->objects[0].count, 1);
    assert_int_equal(world->objects[0].places[0].generation, good);
    world->settled = 100;
    client_retire(world->client, world->now);
    world_pass(world, CLOCK_SECOND);
    assert_int_equal(world->released, world->granted - 1);
}

static void without_a_good_place_the_second_half_fails_as_writing_did(void **state) {
    struct world *world = *state;
    struct client_item item = item_of("key", "value");

    reserve(world, &item, 1);
    item.places[0].status = MC_ERR_CONNECTION_LOST;
    world_run(world, CLIENT_COMMIT, &item, 1, NULL);
    assert_int_equal(item.status, MC_ERR_CONNECTION_LOST);
    assert_int_equal(world->writes, 0);
    assert_int_equal(world->letters[MESSAGE_PUBLISH], 0);
}

/* What was written can't be written again: the second half never looks for other places. */
static void a_second_half_is_not_tried_elsewhere(void **state) {
    struct world *world = *state;
    struct client_item item = item_of("key", "value");
    uint64_t granted;

    reserve(world, &item, 1);
    granted = world->granted;
    world->write_status = MC_ERR_UNREACHABLE;
    world_run(world, CLIENT_COMMIT, &item, 1, NULL);
    assert_int_equal(item.status, MC_ERR_UNREACHABLE);
    world->write_status = MC_OK;
    item = item_of("key", "value");
    reserve(world, &item, 1);
    world->verdict = MC_ERR_GONE;
    world_run(world, CLIENT_COMMIT, &item, 1, NULL);
    assert_int_equal(item.status, MC_ERR_GONE);
    assert_true(world->granted <= granted + 2); /* the second item's own, and perhaps one in advance */
}

/* Rule 3: a slot that was written to goes back to its owner, not into stock. */
static void a_second_half_that_ends_before_it_wrote_releases_its_slots(void **state) {
    struct world *world = *state;
    struct client_item item = item_of("key", "value");
    uint64_t stock, released;

    reserve(world, &item, 1);
    stock = client_count(world->client).stock;
    released = world->released;
    world_begin(world, &world->op, CLIENT_COMMIT, &item, 1, NULL);
    client_end(world->client, world->now, &world->op);
    assert_int_equal(item.status, MC_ERR_TIMEOUT);
    assert_int_equal(client_count(world->client).stock, stock);
    world_pass(world, 100 * MS);
    assert_int_equal(world->released, released + 1);
}

static void a_first_half_that_fails_keeps_nothing(void **state) {
    struct world *world = *state;
    struct client_item items[2] = {item_of("good", "value"), item_of("", "value")};

    items[1].key_length = 0;
    world_run(world, CLIENT_RESERVE, items, 2, NULL);
    assert_int_equal(items[0].status, MC_OK);
    assert_int_equal(items[0].place_count, 1);
    assert_int_equal(items[1].status, MC_ERR_INVALID_KEY);
    assert_int_equal(items[1].place_count, 0);
    client_item_give_back(world->client, world->now, &items[0]);
    world->full[0] = world->full[1] = true;
    world_pass(world, 5 * CLOCK_SECOND);
    world_run(world, CLIENT_RESERVE, items, 1, &(struct client_put_options){.space_deadline = world->now});
    assert_int_equal(items[0].status, MC_ERR_NO_SPACE);
    assert_int_equal(items[0].place_count, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        WORLD_TEST(the_first_half_writes_and_publishes_nothing),
        WORLD_TEST(the_second_half_publishes_the_places_of_an_item_that_was_moved),
        WORLD_TEST(a_place_where_writing_failed_is_released_and_the_rest_published),
        WORLD_TEST(without_a_good_place_the_second_half_fails_as_writing_did),
        WORLD_TEST(a_second_half_is_not_tried_elsewhere),
        WORLD_TEST(a_second_half_that_ends_before_it_wrote_releases_its_slots),
        WORLD_TEST(a_first_half_that_fails_keeps_nothing),
    };

    return cmocka_run_group_tests_name("store-client-halves", tests, NULL, NULL);
}

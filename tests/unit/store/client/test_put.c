/* test_put.c - puts of the client core: slots, writes, publishing, and what each costs. */
#include "world.h"

static void the_first_put_learns_reserves_writes_and_publishes(void **state) {
    struct world *world = *state;

    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_OK);
    assert_int_equal(world->letters[MESSAGE_BEAT], 1);
    assert_int_equal(world->letters[MESSAGE_RESERVE], 1);
    assert_int_equal(world->letters[MESSAGE_PUBLISH], 1);
    assert_int_equal(world->attaches, 1);
    assert_int_equal(world->writes, 1);
    assert_int_equal(world->published.length, 5);
}

static void a_put_with_stock_is_one_stage_of_letters(void **state) {
    struct world *world = *state;

    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_OK);
    assert_int_equal(client_count(world->client).stock, 1);
    assert_int_equal(world_one(world, CLIENT_PUT, "other", "value", 0), MC_OK);
    assert_int_equal(world->stages, 1);
    assert_int_equal(world->letters[MESSAGE_PUBLISH], 1);
    assert_int_equal(client_count(world->client).stock, 0);
}

static void a_batch_takes_as_many_stages_as_one(void **state) {
    struct world *world = *state;
    struct client_item *items = calloc(1000, sizeof(*items));
    char(*keys)[16] = calloc(1000, sizeof(*keys));

    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_OK);
    world_pass(world, 3 * CLOCK_SECOND); /* no stock is left */
    for (uint32_t i = 0; i < 1000; i++) {
        snprintf(keys[i], sizeof(keys[i]), "key%u", i);
        items[i] = item_of(keys[i], "value");
    }
    world_run(world, CLIENT_PUT, items, 1000, NULL);
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(items[i].status, MC_OK);
    assert_int_equal(world->stages, 2);
    assert_int_equal(world->write_stages, 1);
    assert_int_equal(world->writes, 1000);
    assert_true(world->letters[MESSAGE_RESERVE] <= 2);
    assert_int_equal(world->letters[MESSAGE_PUBLISH], 1);
    free(keys);
    free(items);
}

static void replicas_lie_with_different_owners(void **state) {
    struct world *world = *state;
    struct client_put_options options = {.replicas = 3};
    struct client_item item = item_of("key", "value");

    world_run(world, CLIENT_PUT, &item, 1, &options);
    assert_int_equal(item.status, MC_OK);
    assert_int_equal(item.replicas, 2); /* as many as there are owners */
    assert_int_equal(world->stages, 3);
    assert_int_equal(world->objects[0].count, 2);
    assert_false(message_id_equal(&world->objects[0].places[0].segment, &world->objects[0].places[1].segment));
}

static void replicas_lie_in_different_processes_where_they_can(void **state) {
    struct world *world = *state;
    struct client_put_options options = {.replicas = 2};

    world->owners = 3;
    world->together = true;
    for (uint32_t i = 0; i < 16; i++) {
        char key[8];
        struct client_item item;

        snprintf(key, sizeof(key), "k%u", i);
        item = item_of(key, "value");
        world_run(world, CLIENT_PUT, &item, 1, &options);
        assert_int_equal(item.replicas, 2);
        assert_true(owner_of(&world->objects[i].places[0].segment) == 2 ||
                    owner_of(&world->objects[i].places[1].segment) == 2);
    }
}

static void nothing_is_placed_in_a_segment_that_drains_and_its_stock_goes_back(void **state) {
    struct world *world = *state;
    const char *names[] = {"owner0"};
    struct client_put_options options = {.replicas = 1, .preferred = names, .preferred_count = 1};
    struct client_item item = item_of("one", "value");

    world_run(world, CLIENT_PUT, &item, 1, &options);
    assert_int_equal(owner_of(&world->objects[0].places[0].segment), 0);
    assert_true(client_count(world->client).stock > 0);
    world->drains[0] = true;
    world->owners_version++;
    world_pass(world, 2 * CLOCK_SECOND);
    assert_int_equal(client_count(world->client).stock, 0);
    assert_int_equal(world->released, world->granted - 1);
    for (uint32_t i = 0; i < 8; i++) {
        char key[8];

        snprintf(key, sizeof(key), "k%u", i);
        item = item_of(key, "value");
        world_run(world, CLIENT_PUT, &item, 1, &options);
        assert_int_equal(item.status, MC_OK);
        assert_int_equal(owner_of(&world->objects[1 + i].places[0].segment), 1);
    }
    assert_int_equal(world_one(world, CLIENT_GET, "one", NULL, 0), MC_OK);
}

static void where_all_segments_drain_a_put_finds_no_space(void **state) {
    struct world *world = *state;
    struct client_put_options options = {.replicas = 1, .space_deadline = world->now + CLOCK_SECOND};
    struct client_item item = item_of("key", "value");

    world->drains[0] = world->drains[1] = true;
    world_run(world, CLIENT_PUT, &item, 1, &options);
    assert_int_equal(item.status, MC_ERR_NO_SPACE);
    assert_int_equal(world->granted, 0);
}

static void an_own_segment_that_has_gone_is_let_go_at_once(void **state) {
    struct world *world = *state;
    const char *names[] = {"owner0"};
    struct client_put_options options = {.replicas = 1, .preferred = names, .preferred_count = 1};
    struct client_item item = item_of("one", "value");
    struct message_id id = id_of(0);

    world_run(world, CLIENT_PUT, &item, 1, &options);
    world->settled = 100;
    world_pass(world, CLOCK_SECOND);
    assert_true(client_count(world->client).stock > 0);
    client_lose(world->client, world->now, &id);
    assert_null(client_segment_of(world->client, &id));
    assert_int_equal(world->detached, 1);
    assert_int_equal(client_count(world->client).stock, 0);
    assert_true(client_quiet(world->client));
}

static void the_preferred_segment_is_taken(void **state) {
    struct world *world = *state;
    const char *names[] = {"no such", "owner1"};
    struct client_put_options options = {.replicas = 1, .preferred = names, .preferred_count = 2};

    for (uint32_t i = 0; i < 8; i++) {
        char key[8];
        struct client_item item;

        snprintf(key, sizeof(key), "k%u", i);
        item = item_of(key, "value");
        world_run(world, CLIENT_PUT, &item, 1, &options);
        assert_int_equal(item.status, MC_OK);
        assert_int_equal(owner_of(&world->objects[i].places[0].segment), 1);
    }
}

static void refills_double_and_are_halved_when_they_come_back_unused(void **state) {
    struct world *world = *state;
    const char *names[] = {"owner0"};
    struct client_put_options options = {.replicas = 1, .preferred = names, .preferred_count = 1};
    uint64_t asked[3] = {0};
    uint32_t reserves = 0;

    for (uint32_t i = 0; i < 10; i++) {
        char key[8];
        struct client_item item;

        snprintf(key, sizeof(key), "k%u", i);
        item = item_of(key, "value");
        world_run(world, CLIENT_PUT, &item, 1, &options);
        if (world->letters[MESSAGE_RESERVE] > 0)
            asked[reserves++] = world->asked;
    }
    assert_int_equal(reserves, 3); /* 1 + 1, 1 + 2, 1 + 4 */
    assert_int_equal(asked[0], 2);
    assert_int_equal(asked[1], 3);
    assert_int_equal(asked[2], 5);
    assert_int_equal(world_one(world, CLIENT_PUT, "more", "value", 0), MC_OK);
    world_pass(world, 3 * CLOCK_SECOND);
    assert_true(world->released > 0);
    assert_int_equal(client_count(world->client).stock, 0);
}

static void a_slot_whose_write_failed_is_released_and_never_published(void **state) {
    struct world *world = *state;

    world->write_status = MC_ERR_TIMEOUT;
    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_ERR_TIMEOUT);
    assert_int_equal(world->letters[MESSAGE_PUBLISH], 0);
    assert_int_equal(client_count(world->client).returns, 1); /* rule 3 */
    assert_int_equal(client_count(world->client).stock, 1);
    world_pass(world, MS);
    assert_int_equal(world->released, 1);
    assert_int_equal(client_count(world->client).returns, 0);
}

static void a_put_tries_other_owners_when_one_cannot_be_reached(void **state) {
    struct world *world = *state;

    world->write_status = MC_ERR_CONNECTION_LOST;
    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_ERR_CONNECTION_LOST);
    assert_int_equal(world->writes, 3);
    assert_int_equal(world->letters[MESSAGE_PUBLISH], 0);
}

static void an_item_with_one_good_replica_is_published_with_it_alone(void **state) {
    struct world *world = *state;
    struct client_put_options options = {.replicas = 2};
    struct client_item item = item_of("key", "value");
    enum client_need need;

    world_begin(world, &world->op, CLIENT_PUT, &item, 1, &options);
    while ((need = world_next(world, &world->op)) != CLIENT_DONE)
        if (need == CLIENT_WRITE)
            world->op.writes[0].status = MC_ERR_TIMEOUT;
    client_end(world->client, world->now, &world->op);
    assert_int_equal(item.status, MC_OK);
    assert_int_equal(item.replicas, 1);
    assert_int_equal(world->objects[0].count, 1);
    assert_int_equal(client_count(world->client).returns, 1);
}

static void a_full_owner_gets_its_stock_back_and_another_is_asked(void **state) {
    struct world *world = *state;

    world->full[0] = true;
    for (uint32_t i = 0; i < 20; i++) {
        char key[8];

        snprintf(key, sizeof(key), "k%u", i);
        assert_int_equal(world_one(world, CLIENT_PUT, key, "value", 0), MC_OK);
        assert_int_equal(owner_of(&world->objects[i].places[0].segment), 1);
        assert_int_equal(world->waits, 0);
    }
    world->full[1] = true;
    assert_int_equal(world_one(world, CLIENT_PUT, "other",
                               "a value that is longer than what there is stock of, by far, so that it needs a RESERVE",
                               0),
                     MC_ERR_NO_SPACE);
    assert_int_equal(client_count(world->client).stock, 0);
}

static bool space_comes(struct world *world, struct client_op *op, const struct letter *letter) {
    (void)op;
    if (letter->type == MESSAGE_RESERVE && world->letters[MESSAGE_RESERVE] == 4)
        world->full[0] = world->full[1] = false;
    return false;
}

static void a_put_waits_for_space(void **state) {
    struct world *world = *state;

    world->full[0] = world->full[1] = true;
    world->watch = space_comes;
    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_OK);
    assert_int_equal(world->waits, 1);
}

static void without_space_a_put_ends_at_its_deadline(void **state) {
    struct world *world = *state;
    uint64_t begin_at = world->now;

    world->full[0] = world->full[1] = true;
    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_ERR_NO_SPACE);
    assert_int_equal(world->now, begin_at + 10 * CLOCK_SECOND);
}

static void what_no_segment_can_hold_fails_at_once(void **state) {
    struct world *world = *state;
    struct client_item item = item_of("key", "value");
    struct client_item huge = item_of("key", "value");

    item.length = SEGMENT_SIZE;
    world_run(world, CLIENT_PUT, &item, 1, NULL);
    assert_int_equal(item.status, MC_ERR_NO_SPACE);
    assert_int_equal(world->waits, 0);
    huge.length = UINT64_MAX;
    world_run(world, CLIENT_PUT, &huge, 1, NULL);
    assert_int_equal(huge.status, MC_ERR_NO_SPACE);
}

static void large_values_have_no_stock(void **state) {
    struct world *world = *state;
    struct client_item item = item_of("key", "value");

    item.length = 3u << 20;
    world_run(world, CLIENT_PUT, &item, 1, NULL);
    assert_int_equal(item.status, MC_OK);
    assert_int_equal(world->asked, 1);
    assert_int_equal(client_count(world->client).stock, 0);
}

static void a_reservation_without_an_answer_is_cancelled(void **state) {
    struct world *world = *state;

    world->refuse[MESSAGE_RESERVE] = MC_ERR_TIMEOUT;
    world->refusals[MESSAGE_RESERVE] = 1;
    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_OK);
    assert_int_equal(client_count(world->client).returns, 1); /* rule 2 */
    world->refuse[MESSAGE_RELEASE] = MC_ERR_TIMEOUT;
    world->refusals[MESSAGE_RELEASE] = 2;
    world_pass(world, MS);
    assert_int_equal(world->cancelled, 0);
    world_pass(world, 3 * CLOCK_SECOND);
    assert_int_equal(world->cancelled, 1);
    assert_int_equal(client_count(world->client).returns, 0);
}

static void a_reservation_from_a_segment_with_another_id_by_now_is_cancelled(void **state) {
    struct world *world = *state;

    world->refuse[MESSAGE_RESERVE] = MC_ERR_SEGMENT_NOT_FOUND;
    world->refusals[MESSAGE_RESERVE] = 1;
    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_OK);
    world_pass(world, 3 * CLOCK_SECOND);
    assert_int_equal(world->cancelled, 1); /* a copy of the letter may have been granted before */
}

static void keys_have_1_to_4096_bytes(void **state) {
    struct world *world = *state;
    char *key = calloc(1, KEY_MAX + 1);
    struct client_item items[3] = {item_of("", "v"), item_of("k", "v"), item_of("k2", "v")};

    items[1].key = items[2].key = key;
    items[1].key_length = KEY_MAX + 1;
    items[2].key_length = KEY_MAX;
    world_run(world, CLIENT_PUT, items, 3, NULL);
    assert_int_equal(items[0].status, MC_ERR_INVALID_KEY);
    assert_int_equal(items[1].status, MC_ERR_INVALID_KEY);
    assert_int_equal(items[2].status, MC_OK);
    free(key);
}

static void an_operation_that_ends_early_gives_back_what_it_holds(void **state) {
    struct world *world = *state;
    struct client_item item = item_of("key", "value");

    world_begin(world, &world->op, CLIENT_PUT, &item, 1, NULL);
    while (world_next(world, &world->op) != CLIENT_WRITE)
        ;
    world->op.writes[0].status = MC_ERR_PENDING;
    client_end(world->client, world->now, &world->op);
    assert_int_equal(client_count(world->client).returns, 1); /* it may still be written: not into stock */
    world_begin(world, &world->op, CLIENT_PUT, &item, 1, NULL);
    assert_int_equal(client_next(world->client, world->now, &world->op, &world->out), CLIENT_WRITE);
    client_end(world->client, world->now, &world->op);
    world_pass(world, 5 * CLOCK_SECOND);
    assert_int_equal(world->released, world->granted);
    assert_true(client_quiet(world->client));
}

static bool end_before_it_answers(struct world *world, struct client_op *op, const struct letter *letter) {
    if (letter->type != MESSAGE_RESERVE)
        return false;
    client_end(world->client, world->now, op);
    world_reserve(world, NULL, letter); /* comes too late */
    return true;
}

static void a_reservation_that_is_on_its_way_at_the_end_is_cancelled(void **state) {
    struct world *world = *state;
    struct client_item item = item_of("key", "value");

    world->watch = end_before_it_answers;
    world_begin(world, &world->op, CLIENT_PUT, &item, 1, NULL);
    while (world->letters[MESSAGE_RESERVE] == 0)
        world_next(world, &world->op);
    assert_int_equal(client_count(world->client).stock, 0);
    world_pass(world, MS);
    assert_int_equal(world->cancelled, 1);
}

static void a_client_that_retires_gives_everything_back(void **state) {
    struct world *world = *state;

    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_OK);
    world->settled = 100;
    client_retire(world->client, world->now);
    assert_false(client_quiet(world->client));
    world_pass(world, CLOCK_SECOND);
    assert_true(client_quiet(world->client));
    assert_int_equal(world->released, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        WORLD_TEST(the_first_put_learns_reserves_writes_and_publishes),
        WORLD_TEST(a_put_with_stock_is_one_stage_of_letters),
        WORLD_TEST(a_batch_takes_as_many_stages_as_one),
        WORLD_TEST(replicas_lie_with_different_owners),
        WORLD_TEST(replicas_lie_in_different_processes_where_they_can),
        WORLD_TEST(nothing_is_placed_in_a_segment_that_drains_and_its_stock_goes_back),
        WORLD_TEST(where_all_segments_drain_a_put_finds_no_space),
        WORLD_TEST(an_own_segment_that_has_gone_is_let_go_at_once),
        WORLD_TEST(the_preferred_segment_is_taken),
        WORLD_TEST(refills_double_and_are_halved_when_they_come_back_unused),
        WORLD_TEST(a_slot_whose_write_failed_is_released_and_never_published),
        WORLD_TEST(a_put_tries_other_owners_when_one_cannot_be_reached),
        WORLD_TEST(an_item_with_one_good_replica_is_published_with_it_alone),
        WORLD_TEST(a_full_owner_gets_its_stock_back_and_another_is_asked),
        WORLD_TEST(a_put_waits_for_space),
        WORLD_TEST(without_space_a_put_ends_at_its_deadline),
        WORLD_TEST(what_no_segment_can_hold_fails_at_once),
        WORLD_TEST(large_values_have_no_stock),
        WORLD_TEST(a_reservation_without_an_answer_is_cancelled),
        WORLD_TEST(a_reservation_from_a_segment_with_another_id_by_now_is_cancelled),
        WORLD_TEST(keys_have_1_to_4096_bytes),
        WORLD_TEST(an_operation_that_ends_early_gives_back_what_it_holds),
        WORLD_TEST(a_reservation_that_is_on_its_way_at_the_end_is_cancelled),
        WORLD_TEST(a_client_that_retires_gives_everything_back),
    };

    return cmocka_run_group_tests_name("store-client-put", tests, NULL, NULL);
}

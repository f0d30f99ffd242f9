/* test_ask.c - removes and listings of the client core. */
#include "world.h"

static void a_batch_of_removes_is_one_letter(void **state) {
    struct world *world = *state;
    struct client_item items[3] = {item_of("a", NULL), item_of("b", NULL), item_of("c", NULL)};

    assert_int_equal(world_one(world, CLIENT_PUT, "a", "value", 0), MC_OK);
    assert_int_equal(world_one(world, CLIENT_PUT, "c", "value", 0), MC_OK);
    world_run(world, CLIENT_REMOVE, items, 3, NULL);
    assert_int_equal(items[0].status, MC_OK);
    assert_int_equal(items[1].status, MC_ERR_NOT_FOUND);
    assert_int_equal(items[2].status, MC_OK);
    assert_int_equal(world->letters[MESSAGE_REMOVE], 1);
    assert_int_equal(world->stages, 1);
}

static uint64_t sequences[2];

static bool note_sequence(struct world *world, struct client_op *op, const struct letter *letter) {
    struct message_removal removal;
    struct message_remove remove;

    (void)op;
    if (letter->type != MESSAGE_REMOVE)
        return false;
    assert_int_equal(message_unpack_remove(letter->body, letter->length, &remove), MC_OK);
    assert_int_equal(items_next_removal(&remove.items, &removal), 1);
    assert_true(remove.floor <= removal.sequence);
    sequences[world->letters[MESSAGE_REMOVE] - 1] = removal.sequence;
    return false;
}

static void a_remove_is_repeated_under_its_number(void **state) {
    struct world *world = *state;

    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_OK);
    world->watch = note_sequence;
    world->refuse[MESSAGE_REMOVE] = MC_ERR_CONNECTION_LOST;
    world->refusals[MESSAGE_REMOVE] = 1;
    assert_int_equal(world_one(world, CLIENT_REMOVE, "key", NULL, 0), MC_OK);
    assert_int_equal(world->letters[MESSAGE_REMOVE], 2);
    assert_int_equal(sequences[0], sequences[1]);
}

static void a_remove_without_an_answer_is_indeterminate(void **state) {
    struct world *world = *state;

    world->refuse[MESSAGE_REMOVE] = MC_ERR_TIMEOUT;
    world->refusals[MESSAGE_REMOVE] = UINT32_MAX;
    assert_int_equal(world_one(world, CLIENT_REMOVE, "key", NULL, 0), MC_ERR_INDETERMINATE);
    world->settled = 100;
    world_pass(world, CLOCK_SECOND);
    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_OK);
    assert_int_equal(world->publish_floor, world->published.sequence); /* its number is closed */
}

static void a_master_that_never_answers_makes_it_unavailable(void **state) {
    struct world *world = *state;

    world->refuse[MESSAGE_BEAT] = MC_ERR_UNREACHABLE;
    world->refusals[MESSAGE_BEAT] = UINT32_MAX;
    assert_int_equal(world_one(world, CLIENT_REMOVE, "key", NULL, 0), MC_ERR_UNAVAILABLE);
    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_ERR_UNAVAILABLE);
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_ERR_UNAVAILABLE);
    assert_true(world->letters[MESSAGE_BEAT] < 200); /* it isn't asked all the time */
}

static void a_removed_location_is_not_cached_any_more(void **state) {
    struct world *world = *state;

    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_OK);
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
    assert_int_equal(world_one(world, CLIENT_REMOVE, "key", NULL, 0), MC_OK);
    assert_int_equal(client_count(world->client).cached, 0);
    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_OK);
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
    assert_int_equal(world_one(world, CLIENT_PUT, "key", "new", PUBLISH_UPSERT), MC_OK);
    assert_int_equal(client_count(world->client).cached, 0);
}

static void a_listing_is_a_page_a_call(void **state) {
    struct world *world = *state;
    struct message_bytes list, key;

    world->op.cursor = 3;
    world->op.limit = 100;
    world_run(world, CLIENT_LIST, NULL, 0, NULL);
    assert_int_equal(world->op.status, MC_OK);
    assert_int_equal(world->op.cursor, 7);
    list = items_bytes(&world->op.listed);
    assert_int_equal(items_count(list), 2);
    assert_int_equal(items_next(&list, &key), 1);
    assert_memory_equal(key.data, "one", 3);
    items_clear(&world->op.listed);
}

#define PROBES 20000u /* more than a letter holds */

static void probes_tell_each_key_apart_in_as_few_letters_as_it_takes(void **state) {
    struct world *world = *state;
    struct client_item *items = calloc(PROBES, sizeof(*items));
    char(*keys)[8] = calloc(PROBES, sizeof(*keys));

    assert_non_null(items);
    assert_non_null(keys);
    assert_int_equal(world_one(world, CLIENT_PUT, "k7", "value", 0), MC_OK);
    assert_int_equal(world_one(world, CLIENT_PUT, "k19999", "value", 0), MC_OK);
    for (uint32_t i = 0; i < PROBES; i++) {
        snprintf(keys[i], sizeof(keys[i]), "k%u", i);
        items[i] = item_of(keys[i], NULL);
    }
    items[3].key_length = 0;
    world_run(world, CLIENT_EXISTS, items, PROBES, NULL);
    for (uint32_t i = 0; i < PROBES; i++)
        assert_int_equal(items[i].status, i == 3                 ? MC_ERR_INVALID_KEY
                                          : i == 7 || i == 19999 ? MC_OK
                                                                 : MC_ERR_NOT_FOUND);
    assert_int_equal(world->letters[MESSAGE_PROBE], 2);
    assert_int_equal(world->stages, 1);
    free(items);
    free(keys);
}

static void an_answer_to_a_probe_that_lacks_a_byte_is_none(void **state) {
    struct world *world = *state;

    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_OK);
    world->probe_short = 1;
    assert_int_equal(world_one(world, CLIENT_EXISTS, "key", NULL, 0), MC_ERR_UNAVAILABLE);
    assert_true(world->letters[MESSAGE_PROBE] > 1);
    world->probe_short = 0;
    world->refusals[MESSAGE_PROBE] = 1;
    world->refuse[MESSAGE_PROBE] = MC_ERR_UNAVAILABLE;
    assert_int_equal(world_one(world, CLIENT_EXISTS, "key", NULL, 0), MC_OK);
    assert_int_equal(world->letters[MESSAGE_PROBE], 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        WORLD_TEST(probes_tell_each_key_apart_in_as_few_letters_as_it_takes),
        WORLD_TEST(an_answer_to_a_probe_that_lacks_a_byte_is_none),
        WORLD_TEST(a_batch_of_removes_is_one_letter),
        WORLD_TEST(a_remove_is_repeated_under_its_number),
        WORLD_TEST(a_remove_without_an_answer_is_indeterminate),
        WORLD_TEST(a_master_that_never_answers_makes_it_unavailable),
        WORLD_TEST(a_removed_location_is_not_cached_any_more),
        WORLD_TEST(a_listing_is_a_page_a_call),
    };

    return cmocka_run_group_tests_name("store-client-ask", tests, NULL, NULL);
}

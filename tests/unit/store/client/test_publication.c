/* test_publication.c - publications of the client core, from the first PUBLISH until they are settled. */
#include "world.h"

static void a_lost_answer_has_the_same_publication_sent_again(void **state) {
    struct world *world = *state;
    uint64_t sequence;

    world->refuse[MESSAGE_PUBLISH] = MC_ERR_TIMEOUT;
    world->refusals[MESSAGE_PUBLISH] = 1;
    assert_int_equal(world_one(world, CLIENT_PUT, "one", "value", 0), MC_OK);
    assert_int_equal(world->letters[MESSAGE_PUBLISH], 2);
    assert_int_equal(world->writes, 1);
    sequence = world->published.sequence;
    assert_int_equal(sequence, 1);
    assert_int_equal(world->published.flags, 0); /* it is the same epoch */
    assert_int_equal(world_one(world, CLIENT_PUT, "two", "value", 0), MC_OK);
    assert_int_equal(world->published.sequence, sequence + 1);
    assert_int_equal(world->publish_floor, sequence); /* the first isn't settled */
}

static void a_key_that_exists_gives_its_slot_back(void **state) {
    struct world *world = *state;

    world->verdict = MC_ERR_ALREADY_EXISTS;
    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_ERR_ALREADY_EXISTS);
    assert_int_equal(client_count(world->client).returns, 1); /* rule 4 */
    assert_int_equal(client_count(world->client).unsettled, 0);
    world_pass(world, MS);
    assert_int_equal(world->released, 1);
}

static bool gone_once(struct world *world, struct client_op *op, const struct letter *letter) {
    (void)op;
    if (letter->type == MESSAGE_PUBLISH)
        world->verdict = world->letters[MESSAGE_PUBLISH] == 1 ? MC_ERR_GONE : MC_OK;
    return false;
}

static void a_put_whose_slot_is_gone_begins_again_twice_at_most(void **state) {
    struct world *world = *state;

    world->watch = gone_once;
    assert_int_equal(world_one(world, CLIENT_PUT, "one", "value", 0), MC_OK);
    assert_int_equal(world->writes, 2);
    assert_int_equal(world->published.sequence, 2);
    assert_int_equal(client_count(world->client).returns, 1);
    world->watch = NULL;
    world->verdict = MC_ERR_GONE;
    assert_int_equal(world_one(world, CLIENT_PUT, "two", "value", 0), MC_ERR_GONE);
    assert_int_equal(world->writes, 3);
}

static void one_that_was_sent_twice_and_is_gone_has_an_unknown_fate(void **state) {
    struct world *world = *state;

    world->refuse[MESSAGE_PUBLISH] = MC_ERR_TIMEOUT;
    world->refusals[MESSAGE_PUBLISH] = 1;
    world->verdict = MC_ERR_GONE;
    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_ERR_INDETERMINATE);
    assert_int_equal(world->writes, 1);
}

static void at_its_deadline_a_put_is_indeterminate_and_goes_on_behind_the_scenes(void **state) {
    struct world *world = *state;

    world->refuse[MESSAGE_PUBLISH] = MC_ERR_TIMEOUT;
    world->refusals[MESSAGE_PUBLISH] = UINT32_MAX;
    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_ERR_INDETERMINATE);
    assert_int_equal(client_count(world->client).unsettled, 1);
    assert_null(world_object(world, (struct message_bytes){(const uint8_t *)"key", 3}, false));
    world->refusals[MESSAGE_PUBLISH] = 2;
    world_pass(world, 5 * CLOCK_SECOND);
    assert_true(world_object(world, (struct message_bytes){(const uint8_t *)"key", 3}, false)->there); /* rule 4 */
    assert_int_equal(client_count(world->client).unsettled, 1);
    world->settled = 1;
    world_pass(world, CLOCK_SECOND);
    assert_int_equal(client_count(world->client).unsettled, 0);
}

static void an_answer_that_comes_after_the_operation_counts(void **state) {
    struct world *world = *state;
    struct client_item item = item_of("key", "value");
    struct letter *letter = NULL;

    assert_int_equal(world_one(world, CLIENT_PUT, "first", "value", 0), MC_OK);
    world_begin(world, &world->op, CLIENT_PUT, &item, 1, NULL);
    assert_int_equal(world_next(world, &world->op), CLIENT_WRITE);
    assert_int_equal(client_next(world->client, world->now, &world->op, &world->out), CLIENT_SEND);
    letter = outbox_take(&world->out);
    assert_int_equal(letter->type, MESSAGE_PUBLISH);
    client_end(world->client, world->now, &world->op);
    assert_int_equal(item.status, MC_ERR_INDETERMINATE);
    world_forget(world);
    world_serve(world, NULL, letter);
    world_pass(world, 10 * MS);
    assert_int_equal(world->letters[MESSAGE_PUBLISH], 1);
    free(letter);
}

static void a_publication_is_forgotten_when_it_is_settled(void **state) {
    struct world *world = *state;

    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_OK);
    assert_int_equal(client_count(world->client).unsettled, 1);
    world_forget(world);
    world_pass(world, CLOCK_SECOND); /* with something unsettled it asks often (rule 13) */
    assert_in_range(world->letters[MESSAGE_BEAT], 8, 11);
    assert_int_equal(client_count(world->client).unsettled, 1);
    world->settled = 1;
    world_pass(world, 200 * MS);
    assert_int_equal(client_count(world->client).unsettled, 0);
    world_forget(world);
    world_pass(world, 10 * CLOCK_SECOND);
    assert_in_range(world->letters[MESSAGE_BEAT], 9, 11);
    assert_int_equal(world->letters[MESSAGE_PUBLISH], 0);
}

static void an_answer_that_is_older_than_the_ok_settles_nothing(void **state) {
    struct world *world = *state;

    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_OK);
    world->sequence -= 1; /* less than at the OK (rule 13) */
    world->settled = 100;
    world_pass(world, CLOCK_SECOND);
    assert_int_equal(client_count(world->client).unsettled, 1);
    world->sequence += 2;
    world_pass(world, CLOCK_SECOND);
    assert_int_equal(client_count(world->client).unsettled, 0);
}

static void a_replica_whose_owner_was_given_up_is_released_when_the_put_is_settled(void **state) {
    struct world *world = *state;
    struct client_put_options options = {.replicas = 2};
    struct client_item item = item_of("key", "value");

    world_run(world, CLIENT_PUT, &item, 1, &options);
    assert_int_equal(item.replicas, 2);
    world->owners = 1;
    world->owners_version++;
    world->settled = 1;
    world_pass(world, 5 * CLOCK_SECOND); /* the stock is released as well */
    assert_int_equal(client_count(world->client).unsettled, 0);
    assert_int_equal(world->released, world->granted - 1);
}

static void a_new_epoch_has_the_unsettled_published_again_with_their_version(void **state) {
    struct world *world = *state;

    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", PUBLISH_UPSERT), MC_OK);
    world->epoch = 6;
    world->owners_version++;
    world->sequence = 1;
    world_forget(world);
    world_pass(world, CLOCK_SECOND);
    assert_int_equal(world->letters[MESSAGE_PUBLISH], 1); /* rule 16 */
    assert_int_equal(world->published.version_epoch, 5);
    assert_int_equal(world->published.version_counter, 1);
    assert_int_equal(world->published.flags, PUBLISH_UPSERT | PUBLISH_AGAIN);
    assert_int_equal(client_count(world->client).unsettled, 1);
    world->settled = 1;
    world_pass(world, CLOCK_SECOND);
    assert_int_equal(client_count(world->client).unsettled, 0);
}

static void one_that_loses_under_a_new_epoch_gives_its_slot_back(void **state) {
    struct world *world = *state;

    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_OK);
    world->epoch = 6;
    world->owners_version++;
    world->verdict = MC_ERR_GONE;
    world_pass(world, CLOCK_SECOND);
    assert_int_equal(client_count(world->client).unsettled, 0);
    assert_true(world->released >= 1);
}

static void its_slot_is_given_back_though_the_new_master_does_not_list_the_owner_yet(void **state) {
    struct world *world = *state;

    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_OK);
    world->epoch = 6;
    world->owners = 0;
    world->owners_version++;
    world->refuse[MESSAGE_PUBLISH] = MC_ERR_UNAVAILABLE;
    world->refusals[MESSAGE_PUBLISH] = 2000;
    world_pass(world, 15 * CLOCK_SECOND);
    world->owners = 2;
    world->owners_version++;
    world->refusals[MESSAGE_PUBLISH] = 0;
    world->verdict = MC_ERR_GONE;
    world_pass(world, 5 * CLOCK_SECOND);
    assert_int_equal(world->released, world->granted);
}

static bool epoch_changes(struct world *world, struct client_op *op, const struct letter *letter) {
    if (letter->type != MESSAGE_PUBLISH || world->letters[MESSAGE_PUBLISH] > 1)
        return false;
    world->epoch = 6;
    world->owners_version++;
    world_refuse(world, op, letter, MC_ERR_EPOCH);
    return true;
}

static void a_put_under_an_old_epoch_learns_the_new_one_and_says_so(void **state) {
    struct world *world = *state;

    world->watch = epoch_changes;
    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_OK);
    assert_int_equal(world->letters[MESSAGE_PUBLISH], 2);
    assert_int_equal(world->letters[MESSAGE_BEAT], 2);
    assert_int_equal(world->published.flags, PUBLISH_AGAIN); /* rule 5 */
    assert_int_equal(world->published.version_epoch, 0);
    assert_int_equal(client_epoch(world->client), 6);
}

static void one_that_has_no_answer_does_not_hold_up_the_others_for_good(void **state) {
    struct world *world = *state;

    for (uint32_t i = 0; i < 8; i++) {
        char key[8];

        snprintf(key, sizeof(key), "k%u", i);
        assert_int_equal(world_one(world, CLIENT_PUT, key, "value", 0), MC_OK);
    }
    world->epoch = 6;
    world->owners_version++;
    world->refuse[MESSAGE_PUBLISH] = MC_ERR_TIMEOUT;
    world->refusals[MESSAGE_PUBLISH] = 13; /* from 4096 down to 1 */
    world_pass(world, 20 * CLOCK_SECOND);
    world->settled = 8;
    world_pass(world, CLOCK_SECOND);
    assert_int_equal(client_count(world->client).unsettled, 0);
}

static bool answer_late(struct world *world, struct client_op *op, const struct letter *letter) {
    if (letter->type != MESSAGE_PUBLISH)
        return false;
    world->watch = NULL;
    world_refuse(world, op, letter, MC_ERR_TIMEOUT);
    world_publish(world, op, letter); /* nobody waits for it any more */
    world_publish(world, NULL, letter);
    return true;
}

static void late_and_repeated_answers_are_ignored(void **state) {
    struct world *world = *state;

    world->watch = answer_late;
    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_OK);
    assert_int_equal(world->letters[MESSAGE_PUBLISH], 2);
}

static void a_batch_larger_than_a_letter_takes_several_at_once(void **state) {
    struct world *world = *state;
    struct client_item *items = calloc(5000, sizeof(*items));
    char(*keys)[200] = calloc(5000, sizeof(*keys));

    for (uint32_t i = 0; i < 5000; i++) {
        memset(keys[i], 'k', sizeof(keys[i]));
        snprintf(keys[i], sizeof(keys[i]), "key%04u%0150u", i, 0u);
        items[i] = item_of(keys[i], "value");
    }
    world_run(world, CLIENT_PUT, items, 5000, NULL);
    for (uint32_t i = 0; i < 5000; i++)
        assert_int_equal(items[i].status, MC_OK);
    assert_true(world->letters[MESSAGE_PUBLISH] >= 3);
    assert_true(world->stages <= 4);
    free(keys);
    free(items);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        WORLD_TEST(a_lost_answer_has_the_same_publication_sent_again),
        WORLD_TEST(a_key_that_exists_gives_its_slot_back),
        WORLD_TEST(a_put_whose_slot_is_gone_begins_again_twice_at_most),
        WORLD_TEST(one_that_was_sent_twice_and_is_gone_has_an_unknown_fate),
        WORLD_TEST(at_its_deadline_a_put_is_indeterminate_and_goes_on_behind_the_scenes),
        WORLD_TEST(an_answer_that_comes_after_the_operation_counts),
        WORLD_TEST(a_publication_is_forgotten_when_it_is_settled),
        WORLD_TEST(an_answer_that_is_older_than_the_ok_settles_nothing),
        WORLD_TEST(a_replica_whose_owner_was_given_up_is_released_when_the_put_is_settled),
        WORLD_TEST(a_new_epoch_has_the_unsettled_published_again_with_their_version),
        WORLD_TEST(one_that_loses_under_a_new_epoch_gives_its_slot_back),
        WORLD_TEST(its_slot_is_given_back_though_the_new_master_does_not_list_the_owner_yet),
        WORLD_TEST(a_put_under_an_old_epoch_learns_the_new_one_and_says_so),
        WORLD_TEST(one_that_has_no_answer_does_not_hold_up_the_others_for_good),
        WORLD_TEST(late_and_repeated_answers_are_ignored),
        WORLD_TEST(a_batch_larger_than_a_letter_takes_several_at_once),
    };

    return cmocka_run_group_tests_name("store-client-publication", tests, NULL, NULL);
}

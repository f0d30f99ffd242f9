/* test_drain.c - a segment that drains grants nothing more, keeps what it has, and says so; and one that goes. */
#include "world.h"

static uint32_t polled_state(struct world *world) {
    struct letter *letter = step_for(world, MESSAGE_POLL);
    struct message_poll message;

    assert_non_null(letter);
    assert_int_equal(message_unpack_poll(letter->body, letter->length, &message), MC_OK);
    assert_int_equal(message.wanted, 0);
    answer_poll(world, letter->tag, 9, NULL, 0);
    free(letter);
    return message.state;
}

static void what_drains_grants_nothing_more_and_asks_for_no_room(void **state) {
    struct world world;
    struct message_grant grants[4], again[4];

    (void)state;
    world_init(&world);
    mount(&world, 9, NULL);
    assert_int_equal(reserve_one(&world, 1, 1, 100, &grants[0]), MC_OK);
    assert_int_equal(reserve_one(&world, 1, 2, WORLD_SIZE / 2, &grants[1]), MC_OK);
    assert_int_equal(reserve_one(&world, 1, 3, WORLD_SIZE / 2, &grants[2]), MC_ERR_NO_SPACE);
    owner_drain(world.owner);
    assert_true(owner_drains(world.owner));
    assert_int_equal(polled_state(&world), SEGMENT_DRAINS);
    assert_int_equal(reserve_one(&world, 1, 4, 100, &grants[3]), MC_ERR_NO_SPACE);
    assert_int_equal(reserve_one(&world, 1, 1, 100, &again[0]), MC_OK); /* as before */
    assert_true(again[0].slot == grants[0].slot && again[0].generation == grants[0].generation);
    world_clear(&world);
}

static void what_was_granted_before_is_promoted_while_the_segment_drains(void **state) {
    struct world world;
    struct message_grant grant;
    struct message_command command = {.kind = COMMAND_PROMOTE, .version_epoch = 9, .version_counter = 1};
    struct letter *letter;

    (void)state;
    world_init(&world);
    mount(&world, 9, NULL);
    assert_int_equal(reserve_one(&world, 1, 1, 100, &grant), MC_OK);
    owner_drain(world.owner);
    write_object(&world, &grant, "key", 10);
    letter = step_for(&world, MESSAGE_POLL);
    assert_non_null(letter);
    command.slot = grant.slot;
    command.generation = grant.generation;
    answer_poll(&world, letter->tag, 9, &command, 1);
    free(letter);
    assert_word(&world, &grant, SLOT_LIVE);
    world_clear(&world);
}

static void a_new_master_hears_in_the_announcement_that_the_segment_drains(void **state) {
    struct world world;
    struct message_mount message;
    struct letter *letter;

    (void)state;
    world_init(&world);
    mount(&world, 9, NULL);
    owner_drain(world.owner);
    letter = step_for(&world, MESSAGE_POLL);
    assert_non_null(letter);
    fail_request(&world, letter->tag, MC_ERR_EPOCH);
    free(letter);
    while ((letter = step_for(&world, MESSAGE_MOUNT)) == NULL)
        world.now = owner_wake(world.owner);
    assert_int_equal(message_unpack_mount(letter->body, letter->length, &message), MC_OK);
    assert_int_equal(message.state, SEGMENT_DRAINS);
    free(letter);
    world_clear(&world);
}

static void what_has_gone_is_dead_and_stays_so(void **state) {
    struct world world;
    struct message_grant grant;

    (void)state;
    world_init(&world);
    mount(&world, 9, NULL);
    assert_int_equal(reserve_one(&world, 1, 1, 100, &grant), MC_OK);
    owner_retire(world.owner);
    owner_step(world.owner, world.now, &world.out);
    assert_word(&world, &grant, SLOT_DEAD); /* its holder may still write there */
    assert_int_equal(owner_wake(world.owner), CLOCK_NEVER);
    assert_int_equal(reserve_one(&world, 1, 2, 100, &grant), MC_ERR_SEGMENT_NOT_FOUND);
    world_clear(&world);
}

static void a_client_names_the_segment_it_attaches(void **state) {
    struct world world;
    struct message_attach message = {.client = id_of(1)};
    struct letter *answer;

    (void)state;
    world_init(&world);
    message.segment = id_of(0x78);
    answer = WORLD_ASK(&world, ATTACH, attach, &message);
    assert_int_equal(answer->status, MC_ERR_SEGMENT_NOT_FOUND);
    free(answer);
    message.segment = id_of(0x77);
    answer = WORLD_ASK(&world, ATTACH, attach, &message);
    assert_int_equal(answer->status, MC_OK);
    free(answer);
    world_clear(&world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_drains_grants_nothing_more_and_asks_for_no_room),
        cmocka_unit_test(what_was_granted_before_is_promoted_while_the_segment_drains),
        cmocka_unit_test(a_new_master_hears_in_the_announcement_that_the_segment_drains),
        cmocka_unit_test(what_has_gone_is_dead_and_stays_so),
        cmocka_unit_test(a_client_names_the_segment_it_attaches),
    };

    return cmocka_run_group_tests_name("store-owner-drain", tests, NULL, NULL);
}

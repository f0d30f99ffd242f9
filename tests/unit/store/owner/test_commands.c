/* test_commands.c - what the master's commands do, which of them are refused, and what the owner tells the master. */
#include "world.h"

#define EPOCH 3u

/* A mounted owner, and a slot of client 1 with an object. */
static void begin(struct world *world, struct message_grant *grant) {
    world_init(world);
    mount(world, EPOCH, NULL);
    assert_int_equal(reserve_one(world, 1, 1, 1000, grant), MC_OK);
    write_object(world, grant, "key", 900);
}

static void promote_makes_a_reserved_slot_live_once(void **state) {
    struct world world;
    struct message_grant grant;

    (void)state;
    begin(&world, &grant);
    assert_int_equal(command(&world, EPOCH, COMMAND_PROMOTE, &grant, 5), EVENT_PROMOTED);
    assert_word(&world, &grant, SLOT_LIVE);
    assert_int_equal(slot_of(&world, &grant)->version_epoch, EPOCH);
    assert_int_equal(slot_of(&world, &grant)->version_counter, 5);
    assert_int_equal(command(&world, EPOCH, COMMAND_PROMOTE, &grant, 6), EVENT_PROMOTED);
    assert_int_equal(slot_of(&world, &grant)->version_counter, 5);
    assert_int_equal(release_one(&world, 1, &grant), MC_OK); /* too late */
    assert_int_equal(cancel_one(&world, 1, 1), MC_OK);
    assert_word(&world, &grant, SLOT_LIVE);
    world_clear(&world);
}

static void promote_fails_where_the_slot_was_given_back(void **state) {
    struct world world;
    struct message_grant grant, stranger = {.slot = 12345, .generation = 1};

    (void)state;
    begin(&world, &grant);
    assert_int_equal(release_one(&world, 1, &grant), MC_OK);
    assert_int_equal(command(&world, EPOCH, COMMAND_PROMOTE, &grant, 5), EVENT_NOT_PROMOTED);
    assert_int_equal(command(&world, EPOCH, COMMAND_PROMOTE, &stranger, 5), EVENT_NOT_PROMOTED);
    world_clear(&world);
}

static void kill_makes_reserved_and_live_slots_dead_and_is_always_answered(void **state) {
    struct world world;
    struct message_grant grant, live, stranger = {.slot = 12345, .generation = 1};

    (void)state;
    begin(&world, &grant);
    assert_int_equal(reserve_one(&world, 1, 2, 1000, &live), MC_OK);
    assert_int_equal(command(&world, EPOCH, COMMAND_PROMOTE, &live, 5), EVENT_PROMOTED);
    assert_int_equal(command(&world, EPOCH, COMMAND_KILL, &live, 0), EVENT_KILLED);
    assert_int_equal(command(&world, EPOCH, COMMAND_KILL, &grant, 0), EVENT_KILLED);
    assert_false(slot_word_readable(slot_of(&world, &live)->word, live.generation));
    assert_false(slot_word_readable(slot_of(&world, &grant)->word, grant.generation));
    assert_int_equal(command(&world, EPOCH, COMMAND_KILL, &grant, 0), EVENT_KILLED);
    assert_int_equal(command(&world, EPOCH, COMMAND_KILL, &stranger, 0), EVENT_KILLED);
    assert_int_equal(owner_usage(world.owner).live + owner_usage(world.owner).reserved, 0);
    world_clear(&world);
}

static void a_command_doesnt_touch_the_next_generation(void **state) {
    struct world world;
    struct message_grant grant, again;
    uint64_t sequence = 1;

    (void)state;
    begin(&world, &grant);
    assert_int_equal(release_one(&world, 1, &grant), MC_OK);
    owner_step(world.owner, world.now, &world.out);
    outbox_clear(&world.out);
    /* The slot comes back when the others of its page were used. */
    do
        assert_int_equal(reserve_one(&world, 1, ++sequence, 64, &again), MC_OK);
    while (again.slot != grant.slot);
    assert_int_not_equal(again.generation, grant.generation);
    world.now += 5 * CLOCK_SECOND; /* the POLL of the step above is given up */
    assert_int_equal(command(&world, EPOCH, COMMAND_KILL, &grant, 0), EVENT_KILLED);
    assert_int_equal(command(&world, EPOCH, COMMAND_PROMOTE, &grant, 1), EVENT_NOT_PROMOTED);
    assert_word(&world, &again, SLOT_RESERVED);
    world_clear(&world);
}

static void ask_is_answered_when_the_slot_is_no_longer_reserved(void **state) {
    struct world world;
    struct message_grant grant;

    (void)state;
    begin(&world, &grant);
    assert_int_equal(command(&world, EPOCH, COMMAND_ASK, &grant, 0), 0);
    assert_int_equal(release_one(&world, 1, &grant), MC_OK);
    assert_int_equal(command(&world, EPOCH, COMMAND_ASK, &grant, 0), EVENT_NOT_RESERVED);
    world_clear(&world);
}

static void a_lower_epochs_commands_are_ignored(void **state) {
    struct world world;
    struct message_grant grant;

    (void)state;
    begin(&world, &grant);
    assert_int_equal(command(&world, EPOCH - 1, COMMAND_KILL, &grant, 0), 0);
    assert_word(&world, &grant, SLOT_RESERVED);
    assert_true(owner_mounted(world.owner));
    world_clear(&world);
}

static void a_higher_epoch_is_announced_to(void **state) {
    struct world world;
    struct message_grant grant;
    struct message_poll poll;
    struct message_holding holdings[4];
    struct letter *letter;

    (void)state;
    begin(&world, &grant);
    letter = poll_now(&world, &poll);
    answer_poll(&world, letter->tag, EPOCH + 1, NULL, 0);
    free(letter);
    assert_false(owner_mounted(world.owner));
    assert_int_equal(mount(&world, EPOCH + 1, holdings), 1);
    free((void *)holdings[0].key.data);
    letter = poll_now(&world, &poll);
    assert_int_equal(poll.epoch, EPOCH + 1);
    free(letter);
    world_clear(&world);
}

/* By then the slot may be free, which the next master would take for a place of the object. */
static void what_one_master_commanded_is_not_told_to_the_next(void **state) {
    struct world world;
    struct message_grant grant, more;
    struct message_command order = {.kind = COMMAND_PROMOTE, .version_epoch = EPOCH, .version_counter = 5};
    struct message_poll poll;
    struct message_event event;
    struct letter *first, *second, *letter;

    (void)state;
    begin(&world, &grant);
    order.slot = grant.slot;
    order.generation = grant.generation;
    first = poll_now(&world, &poll);
    assert_int_equal(reserve_one(&world, 1, 2, WORLD_SIZE / 4, &more), MC_OK);
    second = poll_now(&world, &poll); /* it has news */
    answer_poll(&world, first->tag, EPOCH, &order, 1);
    assert_word(&world, &grant, SLOT_LIVE);
    answer_poll(&world, second->tag, EPOCH + 1, NULL, 0);
    mount(&world, EPOCH + 1, NULL);
    letter = poll_now(&world, &poll);
    assert_int_equal(poll.epoch, EPOCH + 1);
    assert_int_equal(items_next_event(&poll.events, &event), 0);
    free(letter);
    free(second);
    free(first);
    world_clear(&world);
}

static void an_orphan_is_told_until_it_is_dropped(void **state) {
    struct world world;
    struct message_grant grant;
    struct message_id client = id_of(1);
    struct message_event event;
    struct message_poll poll;
    struct letter *letter;

    (void)state;
    begin(&world, &grant);
    assert_int_equal(command(&world, EPOCH, COMMAND_DROP, &grant, 0), 0); /* its holder isn't gone */
    assert_word(&world, &grant, SLOT_RESERVED);
    owner_client_gone(world.owner, world.now, &client);
    assert_word(&world, &grant, SLOT_RESERVED);
    for (int turn = 0; turn < 3; turn++) {
        letter = poll_now(&world, &poll);
        assert_int_equal(items_next_event(&poll.events, &event), 1);
        assert_int_equal(event.kind, EVENT_ORPHAN);
        assert_int_equal(event.slot, grant.slot);
        assert_int_equal(event.generation, grant.generation);
        answer_poll(&world, letter->tag, EPOCH, NULL, 0);
        free(letter);
        world.now += CLOCK_SECOND;
    }
    letter = poll_now(&world, &poll);
    answer_poll(&world, letter->tag, EPOCH,
                &(struct message_command){.kind = COMMAND_DROP, .slot = grant.slot, .generation = grant.generation}, 1);
    free(letter);
    assert_word(&world, &grant, SLOT_DEAD);
    world.now += CLOCK_SECOND;
    letter = poll_now(&world, &poll);
    assert_int_equal(items_next_event(&poll.events, &event), 0);
    free(letter);
    world_clear(&world);
}

static void an_orphan_may_be_promoted(void **state) {
    struct world world;
    struct message_grant grant;
    struct message_id client = id_of(1);
    struct message_poll poll;
    struct letter *letter;

    (void)state;
    begin(&world, &grant);
    owner_client_gone(world.owner, world.now, &client);
    letter = poll_now(&world, &poll);
    answer_poll(&world, letter->tag, EPOCH,
                &(struct message_command){.kind = COMMAND_PROMOTE,
                                          .slot = grant.slot,
                                          .generation = grant.generation,
                                          .version_epoch = EPOCH,
                                          .version_counter = 1},
                1);
    free(letter);
    assert_word(&world, &grant, SLOT_LIVE);
    world_clear(&world);
}

static void what_could_not_be_reserved_is_told_at_once_and_while_there_is_no_room(void **state) {
    struct world world;
    struct message_grant grant, large;
    struct message_poll poll;
    struct letter *idle, *letter;

    (void)state;
    begin(&world, &grant);
    idle = poll_now(&world, &poll);
    assert_int_equal(poll.wanted, 0);
    assert_int_equal(poll.free, WORLD_SIZE - owner_usage(world.owner).used);
    assert_null(step_for(&world, MESSAGE_POLL)); /* one is with the master, and there is no news */
    assert_int_equal(reserve_one(&world, 1, 2, WORLD_SIZE, &large), MC_ERR_NO_SPACE);
    assert_null(step_for(&world, MESSAGE_POLL)); /* there is no making room for that */
    assert_int_equal(reserve_one(&world, 1, 3, WORLD_SIZE - 4096, &large), MC_ERR_NO_SPACE);
    letter = poll_now(&world, &poll);
    assert_int_equal(poll.wanted, WORLD_SIZE - 4096);
    assert_null(step_for(&world, MESSAGE_POLL)); /* two at most */
    answer_poll(&world, letter->tag, EPOCH, NULL, 0);
    answer_poll(&world, idle->tag, EPOCH, NULL, 0);
    free(letter);
    free(idle);
    assert_int_equal(release_one(&world, 1, &grant), MC_OK);
    world.now += 10 * MS;
    letter = poll_now(&world, &poll);
    assert_int_equal(poll.wanted, 0); /* there is room now: who asked in vain will ask again */
    answer_poll(&world, letter->tag, EPOCH, NULL, 0);
    free(letter);
    assert_int_equal(reserve_one(&world, 1, 4, WORLD_SIZE - 4096, &large), MC_OK);
    letter = poll_now(&world, &poll); /* as much less is free */
    assert_int_equal(poll.wanted, 0);
    assert_int_equal(poll.free, 0);
    free(letter);
    world_clear(&world);
}

static void an_unanswered_poll_is_given_up_at_last(void **state) {
    struct world world;
    struct message_grant grant;
    struct message_poll poll;
    struct message_command order = {.kind = COMMAND_KILL};
    struct letter *letter, *late;

    (void)state;
    begin(&world, &grant);
    late = poll_now(&world, &poll);
    assert_true(owner_wake(world.owner) > world.now);
    world.now = owner_wake(world.owner);
    letter = poll_now(&world, &poll);
    assert_int_not_equal(late->tag, letter->tag);
    /* What it brings when it comes after all is as good. */
    order.slot = grant.slot;
    order.generation = grant.generation;
    answer_poll(&world, late->tag, EPOCH, &order, 1);
    assert_word(&world, &grant, SLOT_DEAD);
    free(letter);
    free(late);
    world_clear(&world);
}

static void a_lost_poll_is_followed_by_rarer_ones(void **state) {
    struct world world;
    struct message_grant grant;
    struct message_poll poll;
    uint64_t pause = 0;

    (void)state;
    begin(&world, &grant);
    for (int turn = 0; turn < 20; turn++) {
        struct letter *letter = poll_now(&world, &poll);

        fail_request(&world, letter->tag, MC_ERR_CONNECTION_LOST);
        free(letter);
        assert_true(owner_wake(world.owner) >= world.now + pause);
        pause = owner_wake(world.owner) - world.now;
        assert_in_range(pause, 1, CLOCK_SECOND);
        world.now = owner_wake(world.owner);
        assert_true(owner_mounted(world.owner));
    }
    assert_int_equal(pause, CLOCK_SECOND);
    world_clear(&world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(promote_makes_a_reserved_slot_live_once),
        cmocka_unit_test(promote_fails_where_the_slot_was_given_back),
        cmocka_unit_test(kill_makes_reserved_and_live_slots_dead_and_is_always_answered),
        cmocka_unit_test(a_command_doesnt_touch_the_next_generation),
        cmocka_unit_test(ask_is_answered_when_the_slot_is_no_longer_reserved),
        cmocka_unit_test(a_lower_epochs_commands_are_ignored),
        cmocka_unit_test(a_higher_epoch_is_announced_to),
        cmocka_unit_test(what_one_master_commanded_is_not_told_to_the_next),
        cmocka_unit_test(an_orphan_is_told_until_it_is_dropped),
        cmocka_unit_test(an_orphan_may_be_promoted),
        cmocka_unit_test(what_could_not_be_reserved_is_told_at_once_and_while_there_is_no_room),
        cmocka_unit_test(an_unanswered_poll_is_given_up_at_last),
        cmocka_unit_test(a_lost_poll_is_followed_by_rarer_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_mount.c - an owner announces what it holds, whole, under the master's epoch, and again when it must. */
#include "world.h"

#include <stdio.h>

static void free_keys(struct message_holding *holdings, size_t count) {
    for (size_t i = 0; i < count; i++)
        free((void *)holdings[i].key.data);
}

static void a_new_owner_asks_for_the_epoch_and_is_mounted_under_it(void **state) {
    struct world world;
    struct message_mount message;
    struct letter *letter;

    (void)state;
    world_init(&world);
    letter = step_for(&world, MESSAGE_MOUNT);
    assert_non_null(letter);
    assert_int_equal(message_unpack_mount(letter->body, letter->length, &message), MC_OK);
    assert_true(message.epoch == 0 && message.part == 0 && message.last == 0 && message.holdings.length == 0);
    assert_true(message.size == WORLD_SIZE && message.free == WORLD_SIZE - 4096);
    assert_true(message.address.length == 6 && memcmp(message.address.data, "host:1", 6) == 0);
    assert_true(message.name.length == 7 && memcmp(message.name.data, "segment", 7) == 0);
    answer_mount(&world, letter->tag, 9);
    free(letter);
    assert_false(owner_mounted(world.owner));
    letter = step_for(&world, MESSAGE_MOUNT);
    assert_non_null(letter);
    assert_int_equal(message_unpack_mount(letter->body, letter->length, &message), MC_OK);
    assert_true(message.epoch == 9 && message.part == 0 && message.last == 1);
    answer_mount(&world, letter->tag, 9);
    free(letter);
    assert_true(owner_mounted(world.owner));
    world_clear(&world);
}

static void a_lost_mount_is_sent_again_and_any_of_its_answers_counts(void **state) {
    struct world world;
    struct letter *first, *second;

    (void)state;
    world_init(&world);
    first = step_for(&world, MESSAGE_MOUNT);
    assert_null(step_for(&world, MESSAGE_MOUNT));
    world.now = owner_wake(world.owner);
    second = step_for(&world, MESSAGE_MOUNT);
    assert_non_null(second);
    assert_int_not_equal(first->tag, second->tag);
    answer_mount(&world, first->tag, 9);
    answer_mount(&world, second->tag, 9); /* of a part that is done: no effect */
    free(first);
    free(second);
    first = step_for(&world, MESSAGE_MOUNT);
    fail_request(&world, first->tag, MC_ERR_TIMEOUT);
    assert_in_range(owner_wake(world.owner), world.now + 1, world.now + CLOCK_SECOND);
    world.now = owner_wake(world.owner);
    second = step_for(&world, MESSAGE_MOUNT);
    assert_non_null(second);
    answer_mount(&world, second->tag, 9);
    assert_true(owner_mounted(world.owner));
    free(first);
    free(second);
    world_clear(&world);
}

static void a_lower_epoch_mounts_nothing(void **state) {
    struct world world;
    struct message_mount message;
    struct letter *letter;

    (void)state;
    world_init(&world);
    letter = step_for(&world, MESSAGE_MOUNT);
    answer_mount(&world, letter->tag, 9);
    free(letter);
    letter = step_for(&world, MESSAGE_MOUNT);
    answer_mount(&world, letter->tag, 8);
    free(letter);
    assert_false(owner_mounted(world.owner));
    world.now = owner_wake(world.owner);
    letter = step_for(&world, MESSAGE_MOUNT);
    assert_int_equal(message_unpack_mount(letter->body, letter->length, &message), MC_OK);
    assert_int_equal(message.epoch, 9);
    free(letter);
    world_clear(&world);
}

static void live_slots_and_doubts_are_announced_and_nothing_else(void **state) {
    struct world world;
    struct message_grant live, doubt, empty, dead;
    struct message_holding holdings[4];

    (void)state;
    world_init(&world);
    mount(&world, 3, NULL);
    assert_int_equal(reserve_one(&world, 1, 1, 1000, &live), MC_OK);
    assert_int_equal(reserve_one(&world, 1, 2, 1000, &doubt), MC_OK);
    assert_int_equal(reserve_one(&world, 1, 3, 1000, &empty), MC_OK);
    assert_int_equal(reserve_one(&world, 1, 4, 1000, &dead), MC_OK);
    write_object(&world, &live, "live", 900);
    write_object(&world, &doubt, "in doubt", 0);
    write_object(&world, &dead, "dead", 10);
    assert_int_equal(release_one(&world, 1, &dead), MC_OK);
    assert_int_equal(command(&world, 3, COMMAND_PROMOTE, &live, 77), EVENT_PROMOTED);
    answer_poll(&world, 1, 4, NULL, 0);
    assert_int_equal(mount(&world, 4, holdings), 2);
    assert_true(holdings[0].state == SLOT_LIVE && holdings[0].slot == live.slot);
    assert_true(holdings[0].generation == live.generation && holdings[0].offset == live.offset);
    assert_true(holdings[0].length == 900 && holdings[0].key.length == 4);
    assert_true(holdings[0].version_epoch == 3 && holdings[0].version_counter == 77);
    assert_memory_equal(holdings[0].key.data, "live", 4);
    assert_true(holdings[1].state == SLOT_RESERVED && holdings[1].generation == doubt.generation);
    assert_memory_equal(holdings[1].key.data, "in doubt", 8);
    free_keys(holdings, 2);
    world_clear(&world);
}

static void a_large_announcement_comes_in_parts_with_each_slot_once(void **state) {
    enum { OBJECTS = 2500 };
    static struct message_grant grants[OBJECTS];
    static struct message_holding holdings[OBJECTS];
    static bool seen[OBJECTS];
    struct world world;
    char key[32];
    size_t count;

    (void)state;
    memset(seen, 0, sizeof(seen));
    world_init_sized(&world, 16u << 20);
    for (uint32_t i = 0; i < OBJECTS; i++) {
        assert_int_equal(reserve_one(&world, 1, i + 1, 100, &grants[i]), MC_OK);
        snprintf(key, sizeof(key), "%u", i);
        write_object(&world, &grants[i], key, 50);
    }
    count = mount(&world, 3, holdings);
    assert_int_equal(count, OBJECTS);
    for (size_t i = 0; i < count; i++) {
        unsigned long number;

        memcpy(key, holdings[i].key.data, holdings[i].key.length);
        key[holdings[i].key.length] = '\0';
        number = strtoul(key, NULL, 10);
        assert_true(number < OBJECTS && !seen[number]);
        assert_int_equal(holdings[i].generation, grants[number].generation);
        seen[number] = true;
    }
    free_keys(holdings, count);
    world_clear(&world);
}

static void parts_with_long_keys_stay_within_a_message(void **state) {
    enum { OBJECTS = 600 };
    static struct message_holding holdings[OBJECTS];
    static char key[KEY_MAX + 1];
    struct world world;
    struct message_grant grant;

    (void)state;
    memset(key, 'k', KEY_MAX);
    world_init_sized(&world, 16u << 20);
    for (uint32_t i = 0; i < OBJECTS; i++) {
        assert_int_equal(reserve_one(&world, 1, i + 1, KEY_MAX, &grant), MC_OK);
        write_object(&world, &grant, key, 0);
    }
    assert_int_equal(mount(&world, 3, holdings), OBJECTS);
    free_keys(holdings, OBJECTS);
    world_clear(&world);
}

/* What a client writes there must not make the owner read elsewhere. */
static void broken_descriptions_are_not_announced(void **state) {
    static const struct slot_description broken[] = {
        {.length = 0, .key_length = KEY_MAX + 1}, {.length = 0, .key_length = UINT32_MAX},
        {.length = UINT64_MAX, .key_length = 1},  {.length = UINT64_MAX - 10, .key_length = 20},
        {.length = 1024, .key_length = 1},        {.length = 1000, .key_length = 25},
        {.length = 1ull << 63, .key_length = 1},
    };
    struct world world;
    struct message_grant grants[7], live;

    (void)state;
    world_init(&world);
    mount(&world, 3, NULL);
    for (uint32_t i = 0; i < 7; i++) {
        assert_int_equal(reserve_one(&world, 1, i + 1, 1024, &grants[i]), MC_OK);
        slot_of(&world, &grants[i])->described = broken[i];
    }
    assert_int_equal(reserve_one(&world, 1, 100, 1024, &live), MC_OK);
    assert_int_equal(command(&world, 3, COMMAND_PROMOTE, &live, 1), EVENT_PROMOTED);
    slot_of(&world, &live)->described = broken[1];
    answer_poll(&world, 1, 4, NULL, 0);
    assert_int_equal(mount(&world, 4, NULL), 0);
    assert_int_equal(owner_usage(world.owner).reserved, 7);
    assert_int_equal(owner_usage(world.owner).live, 0); /* nobody could read it, nor ever take it back */
    world_clear(&world);
}

static void statuses_of_a_poll_mount_it_again(void **state) {
    static const int32_t statuses[] = {MC_ERR_EPOCH, MC_ERR_SEGMENT_NOT_FOUND, MC_ERR_UNAVAILABLE};
    struct world world;
    struct message_poll poll;
    struct message_grant grant;

    (void)state;
    world_init(&world);
    assert_int_equal(reserve_one(&world, 1, 1, 1000, &grant), MC_OK);
    write_object(&world, &grant, "key", 900);
    assert_int_equal(mount(&world, 3, NULL), 1);
    for (size_t i = 0; i < 3; i++) {
        struct letter *letter = poll_now(&world, &poll);

        fail_request(&world, letter->tag, statuses[i]);
        free(letter);
        assert_false(owner_mounted(world.owner));
        assert_true(owner_wake(world.owner) > world.now);
        assert_int_equal(mount(&world, 3, NULL), 1);
        world.now += CLOCK_SECOND;
    }
    world_clear(&world);
}

static void a_master_that_forgot_the_first_parts_gets_all_of_them(void **state) {
    struct world world;
    struct letter *letter;
    struct message_mount message;

    (void)state;
    world_init(&world);
    letter = step_for(&world, MESSAGE_MOUNT);
    answer_mount(&world, letter->tag, 3);
    free(letter);
    letter = step_for(&world, MESSAGE_MOUNT);
    fail_request(&world, letter->tag, MC_ERR_PROTOCOL);
    free(letter);
    world.now = owner_wake(world.owner);
    letter = step_for(&world, MESSAGE_MOUNT);
    assert_non_null(letter);
    assert_int_equal(message_unpack_mount(letter->body, letter->length, &message), MC_OK);
    assert_true(message.part == 0 && message.last == 0 && message.epoch == 3);
    answer_mount(&world, letter->tag, 3); /* the same epoch: it goes on with the next part */
    free(letter);
    letter = step_for(&world, MESSAGE_MOUNT);
    assert_int_equal(message_unpack_mount(letter->body, letter->length, &message), MC_OK);
    assert_true(message.part == 1 && message.last == 1);
    answer_mount(&world, letter->tag, 3);
    free(letter);
    assert_true(owner_mounted(world.owner));
    world_clear(&world);
}

/* ---- Expelled ---- */

static void an_expelled_owner_kills_all_and_begins_under_another_id(void **state) {
    struct world world;
    struct message_grant live, reserved, orphan, fresh;
    struct message_id old, client = id_of(2);
    struct message_poll poll;
    struct letter *letter, *late;
    struct message_command order = {.kind = COMMAND_KILL};

    (void)state;
    world_init(&world);
    mount(&world, 3, NULL);
    assert_int_equal(reserve_one(&world, 1, 1, 1000, &live), MC_OK);
    assert_int_equal(reserve_one(&world, 1, 2, 1000, &reserved), MC_OK);
    assert_int_equal(reserve_one(&world, 2, 1, 1000, &orphan), MC_OK);
    write_object(&world, &live, "live", 10);
    write_object(&world, &reserved, "reserved", 10);
    assert_int_equal(command(&world, 3, COMMAND_PROMOTE, &live, 1), EVENT_PROMOTED);
    owner_client_gone(world.owner, world.now, &client);
    late = poll_now(&world, &poll);
    world.now += 5 * CLOCK_SECOND;
    letter = poll_now(&world, &poll);
    old = *owner_segment(world.owner);
    fail_request(&world, letter->tag, MC_ERR_EXPELLED);
    free(letter);
    assert_word(&world, &live, SLOT_DEAD);
    assert_word(&world, &orphan, SLOT_DEAD);
    assert_word(&world, &reserved, SLOT_RESERVED);
    assert_memory_not_equal(&old, owner_segment(world.owner), sizeof(old));
    assert_false(owner_mounted(world.owner));
    assert_int_equal(mount(&world, 3, NULL), 0);      /* that reservation isn't this segment's */
    fail_request(&world, late->tag, MC_ERR_EXPELLED); /* the old id is no more: no second time */
    assert_true(owner_mounted(world.owner));
    order.slot = reserved.slot;
    order.generation = reserved.generation;
    answer_poll(&world, late->tag, 3, &order, 1);
    assert_word(&world, &reserved, SLOT_RESERVED);
    free(late);
    assert_int_equal(reserve_from(&world, 1, &old, 3, 0, 100, 1, &fresh, NULL), MC_ERR_SEGMENT_NOT_FOUND);
    assert_int_equal(reserve_one(&world, 1, 2, 100, &fresh), MC_OK); /* numbers are counted anew */
    assert_true(fresh.generation != reserved.generation && fresh.slot != reserved.slot);
    assert_int_equal(cancel_one(&world, 1, 2), MC_OK);
    assert_word(&world, &fresh, SLOT_DEAD);
    assert_word(&world, &reserved, SLOT_RESERVED);
    assert_int_equal(release_from(&world, 1, &old, &reserved, NULL), MC_OK);
    assert_word(&world, &reserved, SLOT_DEAD);
    world_clear(&world);
}

static void an_expulsion_by_a_lower_epochs_master_comes_too_late(void **state) {
    struct world world;
    struct message_id id;
    struct message_poll poll;
    struct letter *late, *letter;

    (void)state;
    world_init(&world);
    mount(&world, 3, NULL);
    late = poll_now(&world, &poll);
    world.now += 5 * CLOCK_SECOND;
    letter = poll_now(&world, &poll);
    answer_poll(&world, letter->tag, 4, NULL, 0);
    free(letter);
    mount(&world, 4, NULL);
    id = *owner_segment(world.owner);
    fail_request(&world, late->tag, MC_ERR_EXPELLED);
    free(late);
    assert_memory_equal(&id, owner_segment(world.owner), sizeof(id));
    assert_true(owner_mounted(world.owner));
    letter = poll_now(&world, &poll);
    fail_request(&world, letter->tag, MC_ERR_EXPELLED);
    free(letter);
    assert_memory_not_equal(&id, owner_segment(world.owner), sizeof(id));
    world_clear(&world);
}

static void reservations_of_an_earlier_id_cannot_be_promoted_and_end_with_their_holder(void **state) {
    struct world world;
    struct message_grant first, second;
    struct message_id old, client = id_of(1);
    struct letter *letter;
    uint64_t sequence = 2;

    (void)state;
    world_init(&world);
    assert_int_equal(reserve_one(&world, 1, 1, 1000, &first), MC_OK);
    assert_int_equal(reserve_one(&world, 1, 2, 1000, &second), MC_OK);
    old = *owner_segment(world.owner);
    letter = step_for(&world, MESSAGE_MOUNT);
    fail_request(&world, letter->tag, MC_ERR_EXPELLED);
    free(letter);
    mount(&world, 3, NULL);
    assert_int_equal(command(&world, 3, COMMAND_PROMOTE, &first, 1), EVENT_NOT_PROMOTED);
    assert_int_equal(release_from(&world, 1, &old, NULL, &sequence), MC_OK);
    assert_word(&world, &second, SLOT_DEAD);
    assert_word(&world, &first, SLOT_RESERVED);
    owner_client_gone(world.owner, world.now, &client);
    assert_word(&world, &first, SLOT_DEAD);
    world_clear(&world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_owner_asks_for_the_epoch_and_is_mounted_under_it),
        cmocka_unit_test(a_lost_mount_is_sent_again_and_any_of_its_answers_counts),
        cmocka_unit_test(a_lower_epoch_mounts_nothing),
        cmocka_unit_test(live_slots_and_doubts_are_announced_and_nothing_else),
        cmocka_unit_test(a_large_announcement_comes_in_parts_with_each_slot_once),
        cmocka_unit_test(parts_with_long_keys_stay_within_a_message),
        cmocka_unit_test(broken_descriptions_are_not_announced),
        cmocka_unit_test(statuses_of_a_poll_mount_it_again),
        cmocka_unit_test(a_master_that_forgot_the_first_parts_gets_all_of_them),
        cmocka_unit_test(an_expelled_owner_kills_all_and_begins_under_another_id),
        cmocka_unit_test(an_expulsion_by_a_lower_epochs_master_comes_too_late),
        cmocka_unit_test(reservations_of_an_earlier_id_cannot_be_promoted_and_end_with_their_holder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

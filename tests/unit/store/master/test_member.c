/* Owners' segments: how they come, talk, and go. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void the_list_of_members_is_kept_before_the_answer(void **state) {
    struct bench *bench = bench_serving(0);
    struct message_id members[4], id = bench_owner(1);

    (void)state;
    assert_int_equal(bench_mount(bench, 1, NULL, 0), MC_OK);
    assert_int_equal(bench->changes, 1);
    assert_int_equal(bench_mount(bench, 1, NULL, 0), MC_OK);
    assert_int_equal(bench->changes, 1);
    assert_int_equal(master_members(bench->master, members, 4), 1);
    assert_memory_equal(&members[0], &id, sizeof(id));
    master_expel(bench->master, bench->now, &id);
    assert_int_equal(bench->changes, 2);
    assert_int_equal(master_members(bench->master, members, 4), 0);
    bench_close(bench);
}

static int32_t mount_part(struct bench *bench, uint64_t epoch, uint32_t part, uint32_t last) {
    struct message_mount mount = {.segment = bench_owner(1),
                                  .epoch = epoch,
                                  .part = part,
                                  .last = last,
                                  .size = SEGMENT_SIZE,
                                  .free = SEGMENT_SIZE};

    return bench_status(bench, bench_send_mount(bench, &mount));
}

static void an_announcement_comes_in_parts_that_may_come_twice(void **state) {
    struct bench *bench = bench_serving(0);

    (void)state;
    assert_int_equal(mount_part(bench, EPOCH, 1, 0), MC_ERR_PROTOCOL);
    assert_int_equal(mount_part(bench, EPOCH - 1, 0, 1), MC_OK); /* only hears the epoch */
    assert_int_equal(master_count(bench->master).members, 0);
    assert_int_equal(mount_part(bench, EPOCH, 0, 0), MC_OK);
    assert_int_equal(mount_part(bench, EPOCH, 2, 0), MC_ERR_PROTOCOL);
    assert_int_equal(mount_part(bench, EPOCH, 1, 0), MC_OK);
    assert_int_equal(mount_part(bench, EPOCH, 0, 0), MC_OK);
    assert_int_equal(mount_part(bench, EPOCH, 1, 0), MC_OK);
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 1, "k", 0, 1, 5), NULL), MC_ERR_UNAVAILABLE);
    assert_int_equal(mount_part(bench, EPOCH, 2, 1), MC_OK);
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 1, "k", 0, 1, 5), NULL), MC_OK);
    bench_close(bench);
}

static void who_isnt_known_has_to_mount(void **state) {
    struct bench *bench = bench_serving(1);

    (void)state;
    assert_int_equal(bench_status(bench, bench_poll(bench, 2, 0, 0)), MC_ERR_SEGMENT_NOT_FOUND);
    bench->epoch = EPOCH - 1;
    assert_int_equal(bench_commands(bench, bench_poll(bench, 1, 0, 0), NULL, 0), 0);
    bench_close(bench);
}

static void a_poll_waits_for_a_command_or_a_while(void **state) {
    struct bench *bench = bench_serving(1);
    uint64_t first = bench_poll(bench, 1, 0, 0), second;

    (void)state;
    assert_int_equal(bench_commands(bench, first, NULL, 0), -1);
    second = bench_poll(bench, 1, 0, 0);
    assert_int_equal(bench_commands(bench, first, NULL, 0), 0);
    bench_put(bench, 1, 1, "k", 0, 1, 5);
    assert_int_equal(bench_commands(bench, second, NULL, 0), 1);
    first = bench_poll(bench, 1, EVENT_PROMOTED, 5);
    bench_advance(bench, 999 * MS);
    assert_int_equal(bench_commands(bench, first, NULL, 0), -1);
    bench_advance(bench, 1 * MS);
    assert_int_equal(bench_commands(bench, first, NULL, 0), 0);
    bench_close(bench);
}

/* A master with the times of real clusters. */
static struct bench *unhurried(void) {
    const struct bench_options options = {.timing = STORE_TIMING_DEFAULT, .high_watermark = 950, .eviction = 50};
    struct bench *bench = bench_open(&options);

    master_lead(bench->master, bench->now, EPOCH, UINT64_MAX, NULL, 0, false);
    assert_int_equal(bench_mount(bench, 1, NULL, 0), MC_OK);
    return bench;
}

static void promotions_that_nobody_waits_for_are_collected_for_a_moment(void **state) {
    struct bench *bench = unhurried();
    struct message_command commands[4];
    uint64_t tag = bench_poll(bench, 1, 0, 0);

    (void)state;
    bench_put(bench, 1, 1, "k1", 0, 1, 1);
    assert_int_equal(bench_commands(bench, tag, NULL, 0), 1); /* the first at once */
    tag = bench_poll(bench, 1, EVENT_PROMOTED, 1);
    bench_put(bench, 1, 2, "k2", 0, 1, 2);
    bench_advance(bench, MS / 2);
    bench_put(bench, 1, 3, "k3", 0, 1, 3);
    assert_int_equal(bench_commands(bench, tag, NULL, 0), -1);
    bench_advance(bench, MS / 2);
    assert_int_equal(bench_commands(bench, tag, commands, 4), 2);
    assert_int_equal(commands[0].generation + commands[1].generation, 5);
    bench_close(bench);
}

static void what_somebody_waits_for_is_told_at_once(void **state) {
    struct bench *bench = unhurried();
    uint64_t tag, upsert;

    (void)state;
    bench_put(bench, 1, 1, "k1", 0, 1, 1);
    assert_int_equal(bench_commands(bench, bench_poll(bench, 1, 0, 0), NULL, 0), 1);
    tag = bench_poll(bench, 1, EVENT_PROMOTED, 1);
    bench_remove(bench, 1, 2, "k1");
    assert_int_equal(bench_commands(bench, tag, NULL, 0), 1); /* a kill */
    tag = bench_poll(bench, 1, EVENT_KILLED, 1);
    bench_put(bench, 1, 3, "k2", 0, 1, 3);
    assert_int_equal(bench_commands(bench, tag, NULL, 0), -1);
    upsert = bench_put(bench, 1, 4, "k2", PUBLISH_UPSERT, 1, 4); /* waits until the first is promoted */
    assert_null(bench_take(bench, upsert));
    assert_int_equal(bench_commands(bench, tag, NULL, 0), 1);
    tag = bench_poll(bench, 1, EVENT_PROMOTED, 3);
    assert_int_equal(bench_commands(bench, tag, NULL, 0), 1); /* the upsert itself */
    bench_close(bench);
}

static void a_silent_owner_is_expelled_for_good(void **state) {
    struct bench *bench = bench_serving(2);
    uint64_t poll;

    (void)state;
    bench_put(bench, 1, 1, "k", 0, 1, 5);
    bench_obey(bench, 1);
    bench_advance(bench, 9000 * MS);
    poll = bench_poll(bench, 2, 0, 0);
    bench_advance(bench, 1000 * MS);
    assert_int_equal(master_count(bench->master).members, 1);
    assert_int_equal(bench_commands(bench, poll, NULL, 0), 0);
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), MC_ERR_NOT_FOUND);
    assert_int_equal(bench_status(bench, bench_poll(bench, 1, 0, 0)), MC_ERR_EXPELLED);
    assert_int_equal(bench_mount(bench, 1, NULL, 0), MC_ERR_EXPELLED);
    bench_close(bench);
}

static void a_segment_that_goes_takes_its_objects_along(void **state) {
    struct bench *bench = bench_serving(1);
    struct message_unmount unmount = {.segment = bench_owner(1), .epoch = EPOCH};
    uint64_t poll;

    (void)state;
    bench_put(bench, 1, 1, "k", 0, 1, 5);
    bench_obey(bench, 1);
    poll = bench_poll(bench, 1, 0, 0);
    assert_int_equal(bench_status(bench, bench_send_unmount(bench, &unmount)), MC_OK);
    assert_int_equal(bench_status(bench, poll), MC_ERR_EXPELLED);
    assert_int_equal(bench_status(bench, bench_send_unmount(bench, &unmount)), MC_OK);
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), MC_ERR_NOT_FOUND);
    bench_close(bench);
}

static void fill(struct bench *bench, uint32_t owner, uint32_t count) {
    for (uint32_t n = 0; n < count; n++) {
        char key[16];

        snprintf(key, sizeof(key), "%u-%u", owner, n);
        bench->floors[1]++;
        assert_int_equal(bench_verdict(bench, bench_put(bench, 1, bench->floors[1], key, 0, owner, n + 1), NULL),
                         MC_OK);
    }
    while (bench_obey(bench, owner) > 0)
        ;
}

/* Each step does a bounded part: it is seen in the number of kills that it makes. */
static void ten_thousand_keys_of_a_dead_owner_are_cleaned_up_piece_by_piece(void **state) {
    struct bench *bench = bench_serving(2);
    struct message_id id = bench_owner(1);
    uint64_t before = 0, steps = 0;

    (void)state;
    fill(bench, 1, 10000);
    fill(bench, 2, 10);
    assert_int_equal(master_count(bench->master).keys, 10010);
    master_expel(bench->master, bench->now, &id);
    assert_int_equal(master_count(bench->master).keys, 10010);
    assert_int_equal(bench_lookup(bench, "1-17", 0, NULL), MC_ERR_NOT_FOUND);
    assert_int_equal(master_count(bench->master).keys, 10009);
    while (master_count(bench->master).keys > 10) {
        bench_step(bench);
        assert_true(master_count(bench->master).kills - before <= 1024);
        before = master_count(bench->master).kills;
        steps++;
    }
    assert_true(steps >= 10);
    assert_int_equal(before, 10000);
    bench_advance(bench, 5000 * MS);
    assert_int_equal(master_count(bench->master).kills, 0);
    assert_int_equal(bench_lookup(bench, "2-3", 0, NULL), 1);
    bench_close(bench);
}

static void a_put_with_a_replica_on_a_dying_owner_lives_on_with_the_other(void **state) {
    struct bench *bench = bench_serving(2);
    struct message_place places[2] = {bench_place(1, 5), bench_place(2, 6)};
    struct message_id id = bench_owner(1);

    (void)state;
    bench_publish(bench, 1, 1, "k", 0, 0, 0, places, 2);
    bench_obey(bench, 2);
    master_expel(bench->master, bench->now, &id);
    bench_step(bench);
    assert_int_equal(bench_lookup(bench, "k", 0, places), 1);
    assert_int_equal(places[0].generation, 6);
    bench_advance(bench, 5000 * MS);
    assert_int_equal(bench_beat(bench, 1).settled, 1);
    bench_close(bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list_of_members_is_kept_before_the_answer),
        cmocka_unit_test(an_announcement_comes_in_parts_that_may_come_twice),
        cmocka_unit_test(who_isnt_known_has_to_mount),
        cmocka_unit_test(a_poll_waits_for_a_command_or_a_while),
        cmocka_unit_test(promotions_that_nobody_waits_for_are_collected_for_a_moment),
        cmocka_unit_test(what_somebody_waits_for_is_told_at_once),
        cmocka_unit_test(a_silent_owner_is_expelled_for_good),
        cmocka_unit_test(a_segment_that_goes_takes_its_objects_along),
        cmocka_unit_test(ten_thousand_keys_of_a_dead_owner_are_cleaned_up_piece_by_piece),
        cmocka_unit_test(a_put_with_a_replica_on_a_dying_owner_lives_on_with_the_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

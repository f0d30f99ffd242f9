/* Removals: answered when nobody can read the object any more. */
#include "bench.h"

#include <stdlib.h>

static void what_isnt_there_cant_be_removed(void **state) {
    struct bench *bench = bench_serving(1);

    (void)state;
    assert_int_equal(bench_verdict(bench, bench_remove(bench, 1, 1, "k"), NULL), MC_ERR_NOT_FOUND);
    assert_int_equal(master_count(bench->master).keys, 0);
    bench_close(bench);
}

static void a_removal_is_answered_when_the_copy_is_dead(void **state) {
    struct bench *bench = bench_serving(1);
    uint64_t tag;

    (void)state;
    bench_put(bench, 1, 1, "k", 0, 1, 5);
    bench_obey(bench, 1);
    tag = bench_remove(bench, 2, 1, "k");
    assert_int_equal(bench_verdict(bench, tag, NULL), SILENT);
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), MC_ERR_NOT_FOUND);
    assert_int_equal(bench_obey(bench, 1), 1);
    assert_int_equal(bench_verdict(bench, tag, NULL), MC_OK);
    bench_close(bench);
}

static void a_second_removal_waits_for_the_firsts_kill_too(void **state) {
    struct bench *bench = bench_serving(1);
    uint64_t first, second;

    (void)state;
    bench_put(bench, 1, 1, "k", 0, 1, 5);
    bench_obey(bench, 1);
    first = bench_remove(bench, 2, 1, "k");
    second = bench_remove(bench, 3, 1, "k");
    assert_int_equal(bench_verdict(bench, second, NULL), SILENT);
    bench_obey(bench, 1);
    assert_int_equal(bench_verdict(bench, first, NULL), MC_OK);
    assert_int_equal(bench_verdict(bench, second, NULL), MC_ERR_NOT_FOUND);
    bench_close(bench);
}

static void a_repeated_removal_removes_nothing_new(void **state) {
    struct bench *bench = bench_serving(1);

    (void)state;
    bench_put(bench, 1, 1, "k", 0, 1, 5);
    bench_remove(bench, 2, 1, "k");
    bench_obey(bench, 1);
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 2, "k", 0, 1, 6), NULL), MC_OK);
    assert_int_equal(bench_verdict(bench, bench_remove(bench, 2, 1, "k"), NULL), MC_OK);
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), 1);
    bench_close(bench);
}

static void a_silent_owner_is_waited_out_and_told_until_it_answers(void **state) {
    struct bench *bench = bench_serving(1);
    struct message_command command;
    uint64_t tag, poll;

    (void)state;
    bench_put(bench, 1, 1, "k", 0, 1, 5);
    bench_obey(bench, 1);
    tag = bench_remove(bench, 2, 1, "k");
    bench_advance(bench, 5200 * MS);
    assert_int_equal(bench_verdict(bench, tag, NULL), MC_OK);
    assert_int_equal(master_count(bench->master).kills, 1);
    assert_int_equal(bench_commands(bench, bench_poll(bench, 1, 0, 0), &command, 1), 1);
    assert_int_equal(command.kind, COMMAND_KILL);
    poll = bench_poll(bench, 1, 0, 0);
    bench_advance(bench, 999 * MS);
    assert_int_equal(bench_commands(bench, poll, &command, 1), -1);
    bench_advance(bench, 1 * MS);
    assert_int_equal(bench_commands(bench, poll, &command, 1), 1);
    assert_int_equal(command.kind, COMMAND_KILL);
    bench_poll(bench, 1, EVENT_KILLED, 5);
    assert_int_equal(master_count(bench->master).kills, 0);
    bench_close(bench);
}

static void copies_on_an_owner_that_is_gone_are_waited_out_too(void **state) {
    struct bench *bench = bench_serving(1);
    struct message_id id = bench_owner(1);
    uint64_t tag;

    (void)state;
    bench_put(bench, 1, 1, "k", 0, 1, 5);
    bench_obey(bench, 1);
    master_expel(bench->master, bench->now, &id);
    tag = bench_remove(bench, 2, 1, "k");
    bench_advance(bench, 4999 * MS);
    assert_int_equal(bench_verdict(bench, tag, NULL), SILENT);
    bench_advance(bench, 1 * MS);
    assert_true(bench_verdict(bench, tag, NULL) != SILENT);
    assert_int_equal(master_count(bench->master).kills, 0);
    bench_close(bench);
}

static void an_object_that_isnt_promoted_yet_is_removed_as_well(void **state) {
    struct bench *bench = bench_serving(1);
    struct message_command command;
    uint64_t tag;

    (void)state;
    bench_put(bench, 1, 1, "k", 0, 1, 5);
    tag = bench_remove(bench, 2, 1, "k");
    assert_int_equal(bench_commands(bench, bench_poll(bench, 1, 0, 0), &command, 1), 1);
    assert_int_equal(command.kind, COMMAND_KILL);
    bench_poll(bench, 1, EVENT_KILLED, 5);
    assert_int_equal(bench_verdict(bench, tag, NULL), MC_OK);
    bench_close(bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_isnt_there_cant_be_removed),
        cmocka_unit_test(a_removal_is_answered_when_the_copy_is_dead),
        cmocka_unit_test(a_second_removal_waits_for_the_firsts_kill_too),
        cmocka_unit_test(a_repeated_removal_removes_nothing_new),
        cmocka_unit_test(a_silent_owner_is_waited_out_and_told_until_it_answers),
        cmocka_unit_test(copies_on_an_owner_that_is_gone_are_waited_out_too),
        cmocka_unit_test(an_object_that_isnt_promoted_yet_is_removed_as_well),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

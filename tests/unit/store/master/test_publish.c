/* Puts, upserts and removals as a master decides them. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

static void a_put_is_answered_at_once_and_found(void **state) {
    struct bench *bench = bench_serving(1);
    struct message_verdict verdict;
    struct message_place place;

    (void)state;
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), MC_ERR_NOT_FOUND);
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 1, "k", 0, 1, 5), &verdict), MC_OK);
    assert_int_equal(verdict.version_epoch, EPOCH);
    assert_int_equal(verdict.sequence, 1);
    assert_int_equal(bench_lookup(bench, "k", 0, &place), 1);
    assert_int_equal(place.generation, 5);
    assert_int_equal(bench_obey(bench, 1), 1);
    assert_int_equal(bench_lookup(bench, "k", 0, &place), 1);
    bench_close(bench);
}

static void a_put_of_a_present_key_exists(void **state) {
    struct bench *bench = bench_serving(1);

    (void)state;
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 1, "k", 0, 1, 5), NULL), MC_OK);
    assert_int_equal(bench_verdict(bench, bench_put(bench, 2, 1, "k", 0, 1, 6), NULL), MC_ERR_ALREADY_EXISTS);
    bench_obey(bench, 1);
    assert_int_equal(bench_verdict(bench, bench_put(bench, 2, 2, "k", 0, 1, 7), NULL), MC_ERR_ALREADY_EXISTS);
    bench_close(bench);
}

static void of_32_writers_of_one_key_one_wins(void **state) {
    struct bench *bench = bench_serving(2);
    int won = 0;

    (void)state;
    for (uint32_t client = 1; client <= 32; client++) {
        int32_t status = bench_verdict(bench, bench_put(bench, client, 1, "k", 0, 1 + client % 2, 10 + client), NULL);

        assert_true(status == MC_OK || status == MC_ERR_ALREADY_EXISTS);
        won += status == MC_OK;
    }
    assert_int_equal(won, 1);
    assert_int_equal(bench_obey(bench, 1) + bench_obey(bench, 2), 1);
    assert_int_equal(master_count(bench->master).keys, 1);
    bench_close(bench);
}

static void an_upsert_is_answered_when_the_new_is_promoted_and_the_old_dead(void **state) {
    struct bench *bench = bench_serving(1);
    struct message_place places[4];
    struct message_command command;
    uint64_t upsert, poll;

    (void)state;
    bench_put(bench, 1, 1, "k", 0, 1, 5);
    bench_obey(bench, 1);
    upsert = bench_put(bench, 2, 1, "k", PUBLISH_UPSERT, 1, 6);
    assert_int_equal(bench_verdict(bench, upsert, NULL), SILENT);
    assert_int_equal(bench_lookup(bench, "k", 0, places), 2);
    assert_int_equal(places[0].generation, 6);
    assert_int_equal(places[1].generation, 5);
    assert_int_equal(bench_commands(bench, bench_poll(bench, 1, 0, 0), &command, 1), 1);
    assert_int_equal(command.kind, COMMAND_PROMOTE);
    assert_int_equal(command.generation, 6);
    poll = bench_poll(bench, 1, EVENT_PROMOTED, 6);
    assert_int_equal(bench_verdict(bench, upsert, NULL), SILENT);
    assert_int_equal(bench_commands(bench, poll, &command, 1), 1);
    assert_int_equal(command.kind, COMMAND_KILL);
    assert_int_equal(command.generation, 5);
    bench_poll(bench, 1, EVENT_KILLED, 5);
    assert_int_equal(bench_verdict(bench, upsert, NULL), MC_OK);
    assert_int_equal(bench_lookup(bench, "k", 0, places), 1);
    bench_close(bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_put_is_answered_at_once_and_found),
        cmocka_unit_test(a_put_of_a_present_key_exists),
        cmocka_unit_test(of_32_writers_of_one_key_one_wins),
        cmocka_unit_test(an_upsert_is_answered_when_the_new_is_promoted_and_the_old_dead),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

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

static void a_repeated_request_is_answered_as_before(void **state) {
    struct bench *bench = bench_serving(1);
    struct message_verdict first, second;

    (void)state;
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 1, "k", 0, 1, 5), &first), MC_OK);
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 1, "k", 0, 1, 5), &second), MC_OK);
    assert_int_equal(second.version_counter, first.version_counter);
    bench_obey(bench, 1);
    bench_remove(bench, 2, 1, "k");
    bench_obey(bench, 1);
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 1, "k", 0, 1, 5), &second), MC_OK);
    assert_int_equal(second.version_counter, first.version_counter);
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), MC_ERR_NOT_FOUND);
    bench_close(bench);
}

static void below_its_floor_a_client_publishes_nothing(void **state) {
    struct bench *bench = bench_serving(1);

    (void)state;
    bench->floors[1] = 10;
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 10, "k", 0, 1, 5), NULL), MC_OK);
    bench->floors[1] = 0;
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 9, "late", 0, 1, 6), NULL), MC_ERR_GONE);
    assert_int_equal(bench_lookup(bench, "late", 0, NULL), MC_ERR_NOT_FOUND);
    bench_close(bench);
}

static void a_put_waits_while_a_kill_of_its_key_is_outstanding(void **state) {
    struct bench *bench = bench_serving(1);
    uint64_t put;

    (void)state;
    bench_put(bench, 1, 1, "k", 0, 1, 5);
    bench_obey(bench, 1);
    bench_remove(bench, 1, 2, "k");
    put = bench_put(bench, 2, 1, "k", 0, 1, 6);
    assert_int_equal(bench_verdict(bench, put, NULL), SILENT);
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), MC_ERR_NOT_FOUND);
    bench_obey(bench, 1);
    assert_int_equal(bench_verdict(bench, put, NULL), MC_OK);
    bench_close(bench);
}

static void a_put_goes_on_when_the_kill_is_waited_out(void **state) {
    struct bench *bench = bench_serving(1);
    struct message_stamp stamp;
    uint64_t put;

    (void)state;
    bench_put(bench, 1, 1, "k", 0, 1, 5);
    bench_obey(bench, 1);
    bench_remove(bench, 1, 2, "k");
    put = bench_put(bench, 2, 1, "k", 0, 1, 6);
    bench_advance(bench, 199 * MS);
    stamp = bench_beat(bench, 1);
    assert_int_equal(bench_floor(&stamp, 1), 0);
    bench_advance(bench, 1 * MS);
    stamp = bench_beat(bench, 1);
    assert_true(bench_floor(&stamp, 1) > 0);
    bench_advance(bench, 4999 * MS);
    assert_int_equal(bench_verdict(bench, put, NULL), SILENT);
    bench_advance(bench, 1 * MS);
    assert_int_equal(bench_verdict(bench, put, NULL), MC_OK);
    assert_int_equal(master_count(bench->master).kills, 1);
    bench_close(bench);
}

static void a_promote_that_fails_removes_the_entry_and_refuses_the_slot(void **state) {
    struct bench *bench = bench_serving(1);

    (void)state;
    bench_put(bench, 1, 1, "k", 0, 1, 5);
    bench_poll(bench, 1, EVENT_NOT_PROMOTED, 5);
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), MC_ERR_NOT_FOUND);
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 2, "k", 0, 1, 5), NULL), MC_ERR_GONE);
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 3, "k", 0, 1, 6), NULL), MC_OK);
    bench_close(bench);
}

static void an_upsert_whose_promote_fails_is_gone_and_the_old_stays(void **state) {
    struct bench *bench = bench_serving(1);
    struct message_place place;
    uint64_t upsert;

    (void)state;
    bench_put(bench, 1, 1, "k", 0, 1, 5);
    bench_obey(bench, 1);
    upsert = bench_put(bench, 1, 2, "k", PUBLISH_UPSERT, 1, 6);
    bench_poll(bench, 1, EVENT_NOT_PROMOTED, 6);
    assert_int_equal(bench_verdict(bench, upsert, NULL), MC_ERR_GONE);
    assert_int_equal(bench_lookup(bench, "k", 0, &place), 1);
    assert_int_equal(place.generation, 5);
    bench_close(bench);
}

static void upserts_of_one_key_take_turns_and_all_are_answered(void **state) {
    struct bench *bench = bench_serving(1);
    struct message_place places[2];
    uint64_t tags[8];

    (void)state;
    for (uint32_t n = 0; n < 8; n++)
        tags[n] = bench_put(bench, 1 + n % 3, 1 + n, "k", PUBLISH_UPSERT, 1, 10 + n);
    bench_obey(bench, 1);
    for (uint32_t n = 0; n < 8; n++)
        assert_int_equal(bench_verdict(bench, tags[n], NULL), MC_OK);
    assert_int_equal(bench_lookup(bench, "k", 0, places), 1);
    assert_int_equal(places[0].generation, 17);
    assert_int_equal(master_count(bench->master).waiting, 0);
    bench_close(bench);
}

static void a_request_sent_twice_while_it_waits_is_answered_twice(void **state) {
    struct bench *bench = bench_serving(1);
    struct message_verdict one, other;
    uint64_t first, second;

    (void)state;
    first = bench_put(bench, 1, 1, "k", PUBLISH_UPSERT, 1, 5);
    second = bench_put(bench, 1, 1, "k", PUBLISH_UPSERT, 1, 5);
    assert_int_equal(bench_obey(bench, 1), 1);
    assert_int_equal(bench_verdict(bench, first, &one), MC_OK);
    assert_int_equal(bench_verdict(bench, second, &other), MC_OK);
    assert_int_equal(one.version_counter, other.version_counter);
    bench_close(bench);
}

static void nobody_is_answered_who_has_gone(void **state) {
    struct bench *bench = bench_serving(1);
    uint64_t tag;

    (void)state;
    tag = bench_put(bench, 1, 1, "k", PUBLISH_UPSERT, 1, 5);
    master_forget(bench->master, tag);
    assert_int_equal(master_count(bench->master).waiting, 0);
    bench_obey(bench, 1);
    assert_int_equal(bench_verdict(bench, tag, NULL), SILENT);
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), 1);
    bench_close(bench);
}

static void replicas_are_promoted_each_and_killed_each(void **state) {
    struct bench *bench = bench_serving(2);
    struct message_place places[2] = {bench_place(1, 5), bench_place(2, 6)}, found[2];
    uint64_t tag;

    (void)state;
    tag = bench_publish(bench, 1, 1, "k", PUBLISH_UPSERT, 0, 0, places, 2);
    assert_int_equal(bench_obey(bench, 1), 1);
    assert_int_equal(bench_verdict(bench, tag, NULL), SILENT);
    assert_int_equal(bench_obey(bench, 2), 1);
    assert_int_equal(bench_verdict(bench, tag, NULL), MC_OK);
    assert_int_equal(bench_lookup(bench, "k", 0, found), 2);
    tag = bench_remove(bench, 1, 2, "k");
    assert_int_equal(bench_obey(bench, 2), 1);
    assert_int_equal(bench_verdict(bench, tag, NULL), SILENT);
    assert_int_equal(bench_obey(bench, 1), 1);
    assert_int_equal(bench_verdict(bench, tag, NULL), MC_OK);
    bench_close(bench);
}

static void a_replica_whose_promote_fails_is_dropped(void **state) {
    struct bench *bench = bench_serving(2);
    struct message_place places[2] = {bench_place(1, 5), bench_place(2, 6)}, found[2];
    uint64_t tag;

    (void)state;
    tag = bench_publish(bench, 1, 1, "k", PUBLISH_UPSERT, 0, 0, places, 2);
    bench_obey(bench, 1);
    bench_poll(bench, 2, EVENT_NOT_PROMOTED, 6);
    assert_int_equal(bench_verdict(bench, tag, NULL), MC_OK);
    assert_int_equal(bench_lookup(bench, "k", 0, found), 1);
    assert_int_equal(found[0].generation, 5);
    bench_close(bench);
}

/* Owners count generations for themselves. */
static void replicas_of_equal_generation_lie_each_at_its_own_offset(void **state) {
    struct bench *bench = bench_serving(2);
    struct message_place places[2] = {bench_place(1, 5), bench_place(2, 5)}, found[2];

    (void)state;
    places[1].offset = 9 * 4096;
    assert_int_equal(bench_verdict(bench, bench_publish(bench, 1, 1, "k", 0, 0, 0, places, 2), NULL), MC_OK);
    assert_int_equal(bench_lookup(bench, "k", 0, found), 2);
    for (int i = 0; i < 2; i++)
        for (int n = 0; n < 2; n++)
            if (message_id_equal(&found[i].segment, &places[n].segment))
                assert_int_equal(found[i].offset, places[n].offset);
    assert_false(message_id_equal(&found[0].segment, &found[1].segment));
    bench_close(bench);
}

static void a_replica_on_an_unknown_segment_is_left_out(void **state) {
    struct bench *bench = bench_serving(1);
    struct message_place places[2] = {bench_place(9, 5), bench_place(1, 6)};

    (void)state;
    assert_int_equal(bench_verdict(bench, bench_publish(bench, 1, 1, "k", 0, 0, 0, places, 1), NULL), MC_ERR_GONE);
    assert_int_equal(bench_verdict(bench, bench_publish(bench, 1, 2, "k", 0, 0, 0, places, 2), NULL), MC_OK);
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), 1);
    bench_close(bench);
}

static void settled_is_what_is_promoted_or_dead(void **state) {
    struct bench *bench = bench_serving(1);
    struct message_stamp before;

    (void)state;
    bench_put(bench, 1, 1, "a", 0, 1, 5);
    bench_put(bench, 1, 2, "b", 0, 1, 6);
    bench_put(bench, 1, 3, "c", 0, 1, 7);
    before = bench_beat(bench, 1);
    assert_int_equal(before.settled, 0);
    bench_poll(bench, 1, EVENT_PROMOTED, 6);
    assert_int_equal(bench_beat(bench, 1).settled, 0);
    bench_poll(bench, 1, EVENT_PROMOTED, 5);
    assert_int_equal(bench_beat(bench, 1).settled, 2);
    assert_true(bench_beat(bench, 1).sequence > before.sequence);
    bench_remove(bench, 2, 1, "c");
    assert_int_equal(bench_beat(bench, 1).settled, 2);
    bench_poll(bench, 1, EVENT_KILLED, 7);
    assert_int_equal(bench_beat(bench, 1).settled, 3);
    assert_int_equal(bench_beat(bench, 2).settled, 0);
    bench_close(bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_put_is_answered_at_once_and_found),
        cmocka_unit_test(a_put_of_a_present_key_exists),
        cmocka_unit_test(of_32_writers_of_one_key_one_wins),
        cmocka_unit_test(an_upsert_is_answered_when_the_new_is_promoted_and_the_old_dead),
        cmocka_unit_test(a_repeated_request_is_answered_as_before),
        cmocka_unit_test(below_its_floor_a_client_publishes_nothing),
        cmocka_unit_test(a_put_waits_while_a_kill_of_its_key_is_outstanding),
        cmocka_unit_test(a_put_goes_on_when_the_kill_is_waited_out),
        cmocka_unit_test(a_promote_that_fails_removes_the_entry_and_refuses_the_slot),
        cmocka_unit_test(an_upsert_whose_promote_fails_is_gone_and_the_old_stays),
        cmocka_unit_test(upserts_of_one_key_take_turns_and_all_are_answered),
        cmocka_unit_test(a_request_sent_twice_while_it_waits_is_answered_twice),
        cmocka_unit_test(nobody_is_answered_who_has_gone),
        cmocka_unit_test(replicas_are_promoted_each_and_killed_each),
        cmocka_unit_test(a_replica_whose_promote_fails_is_dropped),
        cmocka_unit_test(replicas_of_equal_generation_lie_each_at_its_own_offset),
        cmocka_unit_test(a_replica_on_an_unknown_segment_is_left_out),
        cmocka_unit_test(settled_is_what_is_promoted_or_dead),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

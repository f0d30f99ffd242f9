/* What people are told of segments and objects, and what the master counts. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#include "store/master/describe.h"

static void segments_are_described_as_their_owners_announced_them(void **state) {
    struct bench *bench = bench_serving(2);
    struct segment_description segments[4];
    struct message_id id;

    (void)state;
    assert_int_equal(master_describe_segments(bench->master, NULL, 0), 2);
    assert_int_equal(master_describe_segments(bench->master, segments, 4), 2);
    for (uint32_t n = 0; n < 2; n++) {
        id = bench_owner(n + 1);
        assert_memory_equal(&segments[n].id, &id, sizeof(id));
        assert_string_equal(segments[n].name, "host");
        assert_int_equal(segments[n].size, SEGMENT_SIZE);
        assert_int_equal(segments[n].used, 0);
    }
    bench_poll_full(bench, 2, 0, 0, SEGMENT_SIZE / 4, 0);
    assert_int_equal(master_describe_segments(bench->master, segments, 1), 2);
    assert_int_equal(master_describe_segments(bench->master, segments, 2), 2);
    assert_int_equal(segments[1].used, SEGMENT_SIZE / 4 * 3);
    bench_close(bench);
}

static void a_segment_that_drains_is_told_of_and_is_not_evicted_from(void **state) {
    struct bench *bench = bench_serving(2);
    struct segment_description segments[2];
    struct message_poll poll = {.segment = bench_owner(1), .epoch = bench->epoch, .wanted = SEGMENT_SIZE / 2};
    struct message_beat beat = {.client = bench_client(1)};
    struct message_beaten beaten;
    struct message_owner owner;
    struct letter *letter;

    (void)state;
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 1, "key", 0, 1, 5), NULL), MC_OK);
    bench_obey(bench, 1);
    poll.state = SEGMENT_DRAINS;
    bench_send_poll(bench, &poll);
    bench_advance(bench, MS);
    bench_poll_full(bench, 1, 0, 0, 0, 0); /* one that is late changes nothing */
    assert_int_equal(master_describe_segments(bench->master, segments, 2), 2);
    assert_true(segments[0].drains && !segments[1].drains);
    assert_int_equal(master_count(bench->master).evicted, 0);
    assert_int_equal(bench_lookup(bench, "key", 0, NULL), 1);
    letter = bench_take(bench, bench_send_beat(bench, &beat));
    assert_non_null(letter);
    assert_int_equal(message_unpack_beaten(letter->body, letter->length, &beaten), MC_OK);
    assert_int_equal(items_next_owner(&beaten.owners, &owner), 1);
    assert_int_equal(owner.state, SEGMENT_DRAINS);
    assert_int_equal(items_next_owner(&beaten.owners, &owner), 1);
    assert_int_equal(owner.state, SEGMENT_SERVES);
    free(letter);
    bench_close(bench);
}

static void an_object_is_described_by_its_replicas_on_owners_that_are_there(void **state) {
    struct bench *bench = bench_serving(2);
    struct message_place places[2] = {bench_place(1, 5), bench_place(2, 6)};
    struct message_id id = bench_owner(2);
    struct object_description object;

    (void)state;
    assert_false(master_describe_object(bench->master, "key", 3, &object));
    assert_int_equal(bench_verdict(bench, bench_publish(bench, 1, 1, "key", 0, 0, 0, places, 2), NULL), MC_OK);
    assert_true(master_describe_object(bench->master, "key", 3, &object));
    assert_int_equal(object.count, 2);
    assert_int_equal(object.replicas[0].offset, places[0].offset);
    assert_int_equal(object.replicas[1].offset, places[1].offset);
    assert_string_equal(object.replicas[0].segment, "host");
    assert_false(master_describe_object(bench->master, "ke", 2, &object));
    master_expel(bench->master, bench->now, &id);
    assert_true(master_describe_object(bench->master, "key", 3, &object));
    assert_int_equal(object.count, 1);
    id = bench_owner(1);
    master_expel(bench->master, bench->now, &id);
    assert_false(master_describe_object(bench->master, "key", 3, &object));
    bench_close(bench);
}

static void a_description_is_no_use_of_the_object(void **state) {
    struct bench *bench = bench_serving(1);
    struct master_total before, after;
    struct object_description object;
    struct items keys = {0};

    (void)state;
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 1, "key", 0, 1, 1), NULL), MC_OK);
    before = master_count(bench->master).total;
    assert_true(master_describe_object(bench->master, "key", 3, &object));
    assert_int_equal(master_list_page(bench->master, 0, 10, &keys), 0);
    assert_int_equal(keys.count, 1);
    after = master_count(bench->master).total;
    assert_memory_equal(&before, &after, sizeof(before));
    items_clear(&keys);
    bench_close(bench);
}

static void what_was_done_is_counted_in_keys_and_outlasts_the_epoch(void **state) {
    struct bench *bench = bench_serving(1);
    struct master_total total;

    (void)state;
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 1, "key", 0, 1, 1), NULL), MC_OK);
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 2, "key", 0, 1, 2), NULL), MC_ERR_ALREADY_EXISTS);
    bench_obey(bench, 1);
    assert_int_equal(bench_lookup(bench, "key", 0, NULL), 1);
    assert_int_equal(bench_lookup(bench, "other", 0, NULL), MC_ERR_NOT_FOUND);
    bench_remove(bench, 1, 3, "key");
    bench_obey(bench, 1);
    total = master_count(bench->master).total;
    assert_int_equal(total.put, 1);
    assert_int_equal(total.looked_up, 2);
    assert_int_equal(total.found, 1);
    assert_int_equal(total.probed, 2); /* bench_lookup probes too */
    assert_int_equal(total.present, 1);
    assert_int_equal(total.removed, 1);
    master_step_down(bench->master);
    assert_int_equal(master_count(bench->master).total.put, 1);
    bench_close(bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_are_described_as_their_owners_announced_them),
        cmocka_unit_test(a_segment_that_drains_is_told_of_and_is_not_evicted_from),
        cmocka_unit_test(an_object_is_described_by_its_replicas_on_owners_that_are_there),
        cmocka_unit_test(a_description_is_no_use_of_the_object),
        cmocka_unit_test(what_was_done_is_counted_in_keys_and_outlasts_the_epoch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What is given up first when a segment is full, and how much. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/endian.h"

#define CHARGE 1024u /* of an object of the bench: 1000 bytes and a key, rounded up */

/* Full below half, and emptied by four objects more. */
static struct bench *serving(bool keep_soft_pinned, uint64_t soft_pin_ttl) {
    struct bench_options options = {.timing = STORE_TIMING_DEFAULT,
                                    .high_watermark = 500,
                                    .eviction = 0,
                                    .keep_soft_pinned = keep_soft_pinned,
                                    .soft_pin_ttl = soft_pin_ttl};
    struct bench *bench;

    options.timing.promote = 0;
    bench = bench_open(&options);

    master_lead(bench->master, bench->now, EPOCH, UINT64_MAX, NULL, 0, false);
    assert_int_equal(bench_mount(bench, 1, NULL, 0), MC_OK);
    return bench;
}

static void put(struct bench *bench, uint32_t n, uint32_t flags) {
    char key[16];

    snprintf(key, sizeof(key), "k%u", n);
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, n, key, flags, 1, n), NULL), MC_OK);
    bench_obey(bench, 1);
}

/* Says that `objects` too few bytes are free, and lets the master do what it does. */
static void lack(struct bench *bench, uint32_t objects) {
    master_forget(bench->master, bench_poll_full(bench, 1, 0, 0, SEGMENT_SIZE / 2 - objects * CHARGE, 0));
    bench_step(bench);
}

static bool there(struct bench *bench, uint32_t n) {
    char key[16];

    snprintf(key, sizeof(key), "k%u", n);
    return bench_lookup(bench, key, LOOKUP_PROBE, NULL) == 1;
}

static void the_least_recently_used_goes_first(void **state) {
    struct bench *bench = serving(false, 0);

    (void)state;
    for (uint32_t n = 1; n <= 4; n++)
        put(bench, n, 0);
    bench_lookup(bench, "k1", 0, NULL);
    lack(bench, 2);
    assert_true(there(bench, 1) && !there(bench, 2) && !there(bench, 3) && there(bench, 4));
    assert_int_equal(master_count(bench->master).evicted, 2);
    bench_close(bench);
}

static void a_probe_is_no_use(void **state) {
    struct bench *bench = serving(false, 0);

    (void)state;
    put(bench, 1, 0);
    put(bench, 2, 0);
    bench_lookup(bench, "k1", LOOKUP_PROBE, NULL);
    lack(bench, 1);
    assert_true(!there(bench, 1) && there(bench, 2));
    bench_close(bench);
}

static void a_read_by_a_cached_location_is_a_use(void **state) {
    struct bench *bench = serving(false, 0);
    struct key_hash hash = key_hash("k1", 2);
    struct message_beat beat = {.client = bench_client(1), .epoch = EPOCH};
    uint8_t reads[16];

    (void)state;
    put(bench, 1, 0);
    put(bench, 2, 0);
    endian_put64(reads, hash.high);
    endian_put64(reads + 8, hash.low);
    beat.reads = (struct message_bytes){.data = reads, .length = sizeof(reads)};
    assert_int_equal(bench_status(bench, bench_send_beat(bench, &beat)), MC_OK);
    lack(bench, 1);
    assert_true(there(bench, 1) && !there(bench, 2));
    bench_close(bench);
}

static void pinned_objects_go_last_and_hard_pinned_never(void **state) {
    struct bench *bench = serving(false, 0);

    (void)state;
    put(bench, 1, PUBLISH_SOFT_PIN);
    put(bench, 2, PUBLISH_HARD_PIN);
    put(bench, 3, 0);
    lack(bench, 1);
    assert_true(there(bench, 1) && there(bench, 2) && !there(bench, 3));
    bench_obey(bench, 1);
    lack(bench, 2);
    assert_true(!there(bench, 1) && there(bench, 2));
    bench_close(bench);
}

static void soft_pins_may_be_kept_for_ever(void **state) {
    struct bench *bench = serving(true, 0);

    (void)state;
    put(bench, 1, PUBLISH_SOFT_PIN);
    lack(bench, 1);
    assert_true(there(bench, 1));
    bench_close(bench);
}

static void a_soft_pin_ends_after_its_time(void **state) {
    struct bench *bench = serving(true, 2000 * MS);

    (void)state;
    put(bench, 1, PUBLISH_SOFT_PIN);
    bench_advance(bench, 1999 * MS);
    lack(bench, 1);
    assert_true(there(bench, 1));
    bench_advance(bench, 1 * MS);
    lack(bench, 1);
    assert_true(!there(bench, 1));
    bench_close(bench);
}

static void what_is_being_killed_counts_as_free(void **state) {
    struct bench *bench = serving(false, 0);

    (void)state;
    for (uint32_t n = 1; n <= 4; n++)
        put(bench, n, 0);
    lack(bench, 2);
    lack(bench, 2);
    assert_int_equal(master_count(bench->master).evicted, 2);
    bench_close(bench);
}

static void twice_what_was_wanted_is_freed_however_much_is_free(void **state) {
    struct bench *bench = serving(false, 0);

    (void)state;
    for (uint32_t n = 1; n <= 6; n++)
        put(bench, n, 0);
    bench_poll_full(bench, 1, 0, 0, SEGMENT_SIZE, 2 * CHARGE);
    bench_step(bench);
    assert_int_equal(master_count(bench->master).evicted, 4);
    bench_close(bench);
}

static void of_several_replicas_the_one_goes_whose_segment_is_full(void **state) {
    struct bench *bench = serving(false, 0);
    struct message_place places[2] = {bench_place(1, 5), bench_place(2, 6)};

    (void)state;
    assert_int_equal(bench_mount(bench, 2, NULL, 0), MC_OK);
    bench_publish(bench, 1, 1, "k", 0, 0, 0, places, 2);
    bench_obey(bench, 1);
    bench_obey(bench, 2);
    lack(bench, 1);
    assert_int_equal(bench_lookup(bench, "k", 0, places), 1);
    assert_int_equal(places[0].generation, 6);
    bench_close(bench);
}

static void a_step_gives_up_a_bounded_number(void **state) {
    struct bench *bench = serving(false, 0);

    (void)state;
    for (uint32_t n = 1; n <= 600; n++)
        put(bench, n, 0);
    lack(bench, 600);
    assert_true(master_count(bench->master).evicted <= 256);
    bench_advance(bench, 1);
    assert_int_equal(master_count(bench->master).evicted, 600);
    bench_close(bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_recently_used_goes_first),
        cmocka_unit_test(a_probe_is_no_use),
        cmocka_unit_test(a_read_by_a_cached_location_is_a_use),
        cmocka_unit_test(pinned_objects_go_last_and_hard_pinned_never),
        cmocka_unit_test(soft_pins_may_be_kept_for_ever),
        cmocka_unit_test(a_soft_pin_ends_after_its_time),
        cmocka_unit_test(what_is_being_killed_counts_as_free),
        cmocka_unit_test(twice_what_was_wanted_is_freed_however_much_is_free),
        cmocka_unit_test(of_several_replicas_the_one_goes_whose_segment_is_full),
        cmocka_unit_test(a_step_gives_up_a_bounded_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

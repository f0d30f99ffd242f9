/* Listings, and what a client's sign of life brings. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/endian.h"

#define KEYS 3000u

static uint8_t seen[KEYS];

static void put_key(struct bench *bench, uint32_t n) {
    char key[16];

    snprintf(key, sizeof(key), "key%u", n);
    bench->floors[1]++;
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, bench->floors[1], key, 0, 1, n + 1), NULL), MC_OK);
}

/* Notes the keys of one page; the next cursor. */
static uint64_t page(struct bench *bench, uint64_t cursor, uint32_t limit, uint32_t *ret_count) {
    struct message_list list = {.client = bench_client(2), .epoch = EPOCH, .cursor = cursor, .limit = limit};
    struct letter *letter = bench_take(bench, bench_send_list(bench, &list));
    struct message_listed listed;
    struct message_bytes key;

    assert_non_null(letter);
    assert_int_equal(letter->status, MC_OK);
    assert_int_equal(message_unpack_listed(letter->body, letter->length, &listed), MC_OK);
    *ret_count = 0;
    while (items_next(&listed.keys, &key) == 1) {
        char text[16] = {0};

        memcpy(text, key.data, key.length);
        seen[strtoul(text + 3, NULL, 10)]++;
        ++*ret_count;
    }
    cursor = listed.cursor;
    free(letter);
    return cursor;
}

static void a_listing_is_complete_and_names_each_key_once(void **state) {
    struct bench *bench = bench_serving(1);
    uint32_t count, total = 0;
    uint64_t cursor = 0;

    (void)state;
    memset(seen, 0, sizeof(seen));
    for (uint32_t n = 0; n < KEYS; n++)
        put_key(bench, n);
    do {
        cursor = page(bench, cursor, 100, &count);
        assert_true(count <= 200);
        total += count;
    } while (cursor != 0);
    assert_int_equal(total, KEYS);
    for (uint32_t n = 0; n < KEYS; n++)
        assert_int_equal(seen[n], 1);
    bench_close(bench);
}

static void keys_that_are_there_all_the_while_are_listed_once_while_the_index_grows(void **state) {
    struct bench *bench = bench_serving(1);
    uint32_t next = 200, count;
    uint64_t cursor = 0;

    (void)state;
    memset(seen, 0, sizeof(seen));
    for (uint32_t n = 0; n < 200; n++)
        put_key(bench, n);
    do {
        cursor = page(bench, cursor, 7, &count);
        for (uint32_t n = 0; n < 90 && next < KEYS; n++)
            put_key(bench, next++);
    } while (cursor != 0);
    assert_int_equal(next, KEYS);
    for (uint32_t n = 0; n < 200; n++)
        assert_int_equal(seen[n], 1);
    for (uint32_t n = 200; n < KEYS; n++)
        assert_true(seen[n] <= 1);
    bench_close(bench);
}

static void an_empty_store_has_an_empty_listing(void **state) {
    struct bench *bench = bench_serving(1);
    uint32_t count;

    (void)state;
    assert_int_equal(page(bench, 0, 100, &count), 0);
    assert_int_equal(count, 0);
    bench_close(bench);
}

/* How many owners the answer lists. */
static int64_t beat(struct bench *bench, uint64_t *version) {
    struct message_beat beat = {.client = bench_client(2), .epoch = EPOCH, .owners_version = *version};
    struct letter *letter = bench_take(bench, bench_send_beat(bench, &beat));
    struct message_beaten beaten;
    int64_t count;

    assert_non_null(letter);
    assert_int_equal(message_unpack_beaten(letter->body, letter->length, &beaten), MC_OK);
    *version = beaten.owners_version;
    count = items_count(beaten.owners);
    free(letter);
    return count;
}

static void the_list_of_owners_comes_when_it_has_changed(void **state) {
    struct bench *bench = bench_serving(2);
    struct message_id id = bench_owner(1);
    uint64_t version = 0;

    (void)state;
    assert_int_equal(beat(bench, &version), 2);
    assert_int_equal(beat(bench, &version), 0);
    bench_poll_full(bench, 1, 0, 0, SEGMENT_SIZE / 2, 0);
    assert_int_equal(beat(bench, &version), 2);
    master_expel(bench->master, bench->now, &id);
    assert_int_equal(beat(bench, &version), 1);
    assert_int_equal(beat(bench, &version), 0);
    bench_close(bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_listing_is_complete_and_names_each_key_once),
        cmocka_unit_test(keys_that_are_there_all_the_while_are_listed_once_while_the_index_grows),
        cmocka_unit_test(an_empty_store_has_an_empty_listing),
        cmocka_unit_test(the_list_of_owners_comes_when_it_has_changed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The table keeps what is put in, while it grows, and its buckets are ranges of hashes in order. */
#include "bench.h"

#include <stdlib.h>

#include "base/random.h"
#include "store/master/table.h"

#define MANY 20000u

static void what_was_put_in_is_found_at_every_size(void **state) {
    struct table_node *nodes = calloc(MANY, sizeof(*nodes));
    struct table table = {.skip = 6};
    struct random random = {.state = 1};

    (void)state;
    assert_non_null(nodes);
    for (uint32_t n = 0; n < MANY; n++) {
        struct table_node *found;
        uint32_t known = (uint32_t)random_below(&random, n + 1);

        nodes[n].hash = random_next(&random) >> 6;
        assert_true(table_insert(&table, &nodes[n]));
        for (found = table_chain(&table, nodes[known].hash); found != &nodes[known]; found = found->next)
            assert_non_null(found);
    }
    for (uint32_t n = 0; n < MANY; n += 2)
        table_remove(&table, &nodes[n]);
    assert_int_equal(table.count, MANY / 2);
    table_clear(&table);
    free(nodes);
}

static void buckets_are_ranges_in_order(void **state) {
    struct table_node *nodes = calloc(1000, sizeof(*nodes));
    struct table table = {0};
    struct random random = {.state = 2};

    (void)state;
    assert_non_null(nodes);
    for (uint32_t size = 0; size < 1000; size++) {
        uint64_t cursor = 0, end = 0;
        uint32_t count = 0;

        do {
            struct table_node *node = table_chain_range(&table, cursor, &end);

            for (; node != NULL; node = node->next, count++)
                assert_true(node->hash >= cursor && (end == 0 || node->hash < end));
            cursor = end;
        } while (cursor != 0);
        assert_int_equal(count, size);
        nodes[size].hash = random_next(&random);
        assert_true(table_insert(&table, &nodes[size]));
    }
    table_clear(&table);
    free(nodes);
}

static void it_is_emptied_within_a_budget(void **state) {
    struct table_node *nodes = calloc(MANY, sizeof(*nodes));
    struct table table = {0};
    uint32_t taken = 0, calls = 0;

    (void)state;
    assert_non_null(nodes);
    for (uint32_t n = 0; n < MANY; n++) {
        nodes[n].hash = table_hash(n);
        assert_true(table_insert(&table, &nodes[n]));
    }
    while (table.count > 0) {
        uint32_t budget = 100;

        while (table_pop(&table, &budget) != NULL)
            taken++;
        calls++;
    }
    assert_int_equal(taken, MANY);
    assert_true(calls > 100);
    table_clear(&table);
    free(nodes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_put_in_is_found_at_every_size),
        cmocka_unit_test(buckets_are_ranges_in_order),
        cmocka_unit_test(it_is_emptied_within_a_budget),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

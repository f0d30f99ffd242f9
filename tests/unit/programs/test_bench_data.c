/* test_bench_data.c - the bytes and the times of mooncake_bench. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "programs/bench_data.h"

static void each_byte_is_compared(void **state) {
    static uint8_t bytes[1030];

    (void)state;
    for (uint64_t length = 0; length < sizeof(bytes); length += 1 + length / 16) {
        memset(bytes, 0xaa, sizeof(bytes));
        bench_fill(bytes, length, 5, 64);
        assert_int_equal(bytes[length], 0xaa);
        assert_int_equal(bench_compare(bytes, length, 5, 64), length);
        for (uint64_t i = 0; i < length; i++) {
            bytes[i] ^= 0x10;
            assert_int_equal(bench_compare(bytes, length, 5, 64), i);
            bytes[i] ^= 0x10;
        }
    }
}

static void another_key_or_place_has_other_bytes(void **state) {
    uint8_t bytes[64];

    (void)state;
    bench_fill(bytes, sizeof(bytes), 1, 0);
    assert_int_equal(bench_compare(bytes, sizeof(bytes), 1, 0), sizeof(bytes));
    assert_true(bench_compare(bytes, sizeof(bytes), 2, 0) < 8);
    assert_true(bench_compare(bytes, sizeof(bytes), 1, 8) < 8);
    assert_int_equal(bench_compare(bytes + 8, sizeof(bytes) - 8, 1, 8), sizeof(bytes) - 8);
}

static void quantiles_are_within_a_thirtieth(void **state) {
    static struct bench_histogram histogram, half;
    struct random random = {1};

    (void)state;
    assert_int_equal(bench_quantile(&histogram, 500), 0);
    for (uint64_t i = 1; i <= 100000; i++)
        bench_count(i % 2 ? &histogram : &half, i * 1000);
    bench_add(&histogram, &half);
    assert_int_equal(histogram.total, 100000);
    for (uint64_t thousandths = 1; thousandths <= 1000; thousandths++) {
        uint64_t wanted = thousandths * 100000, got = bench_quantile(&histogram, thousandths);

        assert_true(got >= wanted && got <= wanted + wanted / 30);
    }
    assert_int_equal(bench_quantile(&histogram, 1000), 100000000);
    for (int i = 0; i < 100000; i++) { /* of any size, each has a bucket that holds it */
        static struct bench_histogram one;
        uint64_t value = random_next(&random) >> random_below(&random, 64);

        one = (struct bench_histogram){.total = 0};
        bench_count(&one, value);
        assert_int_equal(bench_quantile(&one, 500), value);
        i += 999;
    }
}

static void quantiles_of_one_slow_call_among_many_are_the_fast_ones(void **state) {
    static struct bench_histogram histogram;

    (void)state;
    for (int i = 0; i < 999; i++)
        bench_count(&histogram, 20);
    bench_count(&histogram, UINT64_MAX);
    assert_int_equal(bench_quantile(&histogram, 500), 20);
    assert_int_equal(bench_quantile(&histogram, 999), 20);
    assert_int_equal(bench_quantile(&histogram, 1000), UINT64_MAX);
    assert_int_equal(histogram.largest, UINT64_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_byte_is_compared),
        cmocka_unit_test(another_key_or_place_has_other_bytes),
        cmocka_unit_test(quantiles_are_within_a_thirtieth),
        cmocka_unit_test(quantiles_of_one_slow_call_among_many_are_the_fast_ones),
    };

    return cmocka_run_group_tests_name("programs-bench-data", tests, NULL, NULL);
}

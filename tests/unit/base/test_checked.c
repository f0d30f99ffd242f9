/* test_checked.c - no sum, product, range end or row of digits wraps unseen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/checked.h"

#define MAX UINT64_MAX

static void sums_and_products_are_right_or_refused(void **state) {
    uint64_t result = 0;

    (void)state;
    assert_true(checked_add(MAX - 5, 5, &result));
    assert_int_equal(result, MAX);
    assert_false(checked_add(MAX - 5, 6, &result));
    assert_false(checked_add(MAX, MAX, &result));
    assert_true(checked_mul(UINT32_MAX, UINT32_MAX, &result));
    assert_int_equal(result, (uint64_t)UINT32_MAX * UINT32_MAX);
    assert_true(checked_mul(MAX, 1, &result));
    assert_true(checked_mul(MAX, 0, &result));
    assert_int_equal(result, 0);
    assert_false(checked_mul((uint64_t)1 << 32, (uint64_t)1 << 32, &result));
}

static void a_range_is_within_another_only_with_all_its_bytes(void **state) {
    (void)state;
    assert_true(checked_within(100, 50, 100, 50));
    assert_true(checked_within(149, 1, 100, 50));
    assert_true(checked_within(100, 0, 100, 50));
    assert_true(checked_within(150, 0, 100, 50));
    assert_false(checked_within(99, 1, 100, 50));
    assert_false(checked_within(99, 0, 100, 50));
    assert_false(checked_within(100, 51, 100, 50));
    assert_false(checked_within(149, 2, 100, 50));
    assert_false(checked_within(150, 1, 100, 50));
    assert_false(checked_within(151, 0, 100, 50));
}

static void no_end_wraps(void **state) {
    (void)state;
    assert_false(checked_within(120, MAX, 100, 50));
    assert_false(checked_within(120, MAX - 120 + 1, 100, 50));
    assert_false(checked_within(MAX, 1, 100, 50));
    assert_false(checked_within(0, MAX, 100, 50));
    assert_true(checked_within(MAX - 10, 10, MAX - 100, 100));
    assert_false(checked_within(MAX - 10, 11, MAX - 100, 100));
    assert_false(checked_within(5, 1, MAX - 100, 100));
    assert_true(checked_within(0, MAX, 0, MAX));
}

static void digits_are_a_number_and_nothing_else_is(void **state) {
    uint64_t value = 7;

    (void)state;
    assert_true(checked_decimal("0", &value));
    assert_int_equal(value, 0);
    assert_true(checked_decimal("00018446744073709551615", &value));
    assert_int_equal(value, MAX);
    value = 7;
    for (const char *const *text = (const char *const[]){"", "-1", "+1", " 1", "1 ", "0x1", "1.",
                                                         "18446744073709551616", "99999999999999999999", NULL};
         *text != NULL; text++)
        assert_false(checked_decimal(*text, &value));
    assert_int_equal(value, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_and_products_are_right_or_refused),
        cmocka_unit_test(a_range_is_within_another_only_with_all_its_bytes),
        cmocka_unit_test(no_end_wraps),
        cmocka_unit_test(digits_are_a_number_and_nothing_else_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

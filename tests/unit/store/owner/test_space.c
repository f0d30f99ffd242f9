/* test_space.c - ranges never overlap, are aligned, come back whole, and holes are found again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "store/owner/space.h"

#define SIZE (1u << 20)
#define UNITS (SIZE / SPACE_UNIT)

static void a_range_is_rounded_up_to_units(void **state) {
    struct space *space = space_new(SIZE);
    struct extent *one = space_take(space, 1, SPACE_UNIT), *other = space_take(space, 65, SPACE_UNIT);

    (void)state;
    assert_int_equal(extent_length(one), 64);
    assert_int_equal(extent_length(other), 128);
    assert_int_equal(space_used(space), 192);
    assert_int_not_equal(extent_offset(one), extent_offset(other));
    assert_null(space_free(space));
    assert_null(space_free(NULL));
}

static void the_whole_can_be_taken_and_taken_again(void **state) {
    struct space *space = space_new(SIZE);

    (void)state;
    assert_int_equal(space_largest(space), SIZE);
    for (int turn = 0; turn < 3; turn++) {
        struct extent *all = space_take(space, SIZE, SPACE_UNIT);

        assert_non_null(all);
        assert_int_equal(space_largest(space), 0);
        assert_null(space_take(space, 1, SPACE_UNIT));
        space_give(space, all);
    }
    assert_int_equal(space_used(space), 0);
    space_free(space);
}

static void lengths_that_no_space_has_are_refused(void **state) {
    struct space *space = space_new(SIZE);

    (void)state;
    assert_null(space_take(space, 0, SPACE_UNIT));
    assert_null(space_take(space, SIZE + 1, SPACE_UNIT));
    assert_null(space_take(space, UINT64_MAX, SPACE_UNIT));
    assert_null(space_take(space, UINT64_MAX, 65536));
    assert_null(space_take(space, UINT64_MAX - 65536, 65536));
    space_free(space);
    space = space_new(0);
    assert_null(space_take(space, 1, SPACE_UNIT));
    assert_int_equal(space_largest(space), 0);
    space_free(space);
}

static void free_neighbours_become_one_in_every_order(void **state) {
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

    (void)state;
    for (int order = 0; order < 6; order++) {
        struct space *space = space_new(3 * 4096);
        struct extent *parts[3];

        for (int i = 0; i < 3; i++)
            assert_non_null(parts[i] = space_take(space, 4096, SPACE_UNIT));
        assert_null(space_take(space, 1, SPACE_UNIT));
        for (int i = 0; i < 3; i++)
            space_give(space, parts[orders[order][i]]);
        assert_non_null(space_take(space, 3 * 4096, SPACE_UNIT));
        space_free(space);
    }
}

/* Searching only classes that fit in any case would not find it. */
static void a_hole_of_just_the_size_is_found(void **state) {
    const uint64_t length = 100 * SPACE_UNIT + SPACE_UNIT; /* no boundary of classes */
    struct space *space = space_new(10 * length);
    struct extent *parts[10];
    uint64_t offset;

    (void)state;
    for (int i = 0; i < 10; i++)
        assert_non_null(parts[i] = space_take(space, length, SPACE_UNIT));
    offset = extent_offset(parts[4]);
    space_give(space, parts[4]);
    parts[4] = space_take(space, length, SPACE_UNIT);
    assert_non_null(parts[4]);
    assert_int_equal(extent_offset(parts[4]), offset);
    space_free(space);
}

static void pages_are_aligned_and_leave_what_lies_before_them(void **state) {
    struct space *space = space_new(SIZE);
    struct extent *small = space_take(space, 64, SPACE_UNIT);
    struct extent *page = space_take(space, 4096, 4096);
    struct extent *large = space_take(space, 65536, 65536);

    (void)state;
    assert_int_equal(extent_offset(page) % 4096, 0);
    assert_int_equal(extent_length(page), 4096);
    assert_int_equal(extent_offset(large) % 65536, 0);
    assert_int_equal(space_used(space), 64 + 4096 + 65536);
    space_give(space, page);
    space_give(space, small);
    space_give(space, large);
    assert_int_equal(space_largest(space), SIZE);
    space_free(space);
}

/* A map of units beside it, which knows who has which. */
static void random_ranges_never_overlap_and_all_come_back(void **state) {
    enum { HELD = 300, TURNS = 20000 };
    static uint16_t map[UNITS];
    struct extent *held[HELD] = {0};
    struct space *space = space_new(SIZE);
    struct random random = {.state = 7};
    uint64_t used = 0;

    (void)state;
    memset(map, 0, sizeof(map));
    for (int turn = 0; turn < TURNS; turn++) {
        uint16_t index = (uint16_t)random_below(&random, HELD);
        bool page = random_below(&random, 20) == 0;
        uint64_t length = page ? 4096 : 1 + random_below(&random, 1ull << random_below(&random, 16));
        uint64_t first, count, largest = space_largest(space);

        if (held[index] == NULL) {
            held[index] = space_take(space, length, page ? 4096 : SPACE_UNIT);
            if (held[index] == NULL) {
                assert_true(page || length > largest);
                continue;
            }
            first = extent_offset(held[index]) / SPACE_UNIT;
            count = extent_length(held[index]) / SPACE_UNIT;
            assert_true(count == (length + SPACE_UNIT - 1) / SPACE_UNIT && first + count <= UNITS);
            assert_true(!page || first % (4096 / SPACE_UNIT) == 0);
            for (uint64_t unit = first; unit < first + count; unit++) {
                assert_int_equal(map[unit], 0);
                map[unit] = (uint16_t)(index + 1);
            }
            used += count * SPACE_UNIT;
        } else {
            first = extent_offset(held[index]) / SPACE_UNIT;
            count = extent_length(held[index]) / SPACE_UNIT;
            for (uint64_t unit = first; unit < first + count; unit++) {
                assert_int_equal(map[unit], index + 1);
                map[unit] = 0;
            }
            used -= count * SPACE_UNIT;
            space_give(space, held[index]);
            held[index] = NULL;
        }
        assert_int_equal(space_used(space), used);
    }
    for (int i = 0; i < HELD; i++)
        if (held[i] != NULL)
            space_give(space, held[i]);
    assert_int_equal(space_used(space), 0);
    assert_int_equal(space_largest(space), SIZE);
    space_free(space);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_is_rounded_up_to_units),
        cmocka_unit_test(the_whole_can_be_taken_and_taken_again),
        cmocka_unit_test(lengths_that_no_space_has_are_refused),
        cmocka_unit_test(free_neighbours_become_one_in_every_order),
        cmocka_unit_test(a_hole_of_just_the_size_is_found),
        cmocka_unit_test(pages_are_aligned_and_leave_what_lies_before_them),
        cmocka_unit_test(random_ranges_never_overlap_and_all_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

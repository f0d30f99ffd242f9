/* test_put_parts.c - which bytes of a value were written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "base/crc32c.h"
#include "base/random.h"
#include "store/put_parts.h"

enum { LENGTH = 4096 };

static void parts_in_any_order_join_to_the_sum_of_the_whole(void **state) {
    struct random random = {.state = 41};
    uint8_t value[LENGTH];

    (void)state;
    for (size_t i = 0; i < LENGTH; i++)
        value[i] = (uint8_t)random_next(&random);
    for (int round = 0; round < 100; round++) {
        struct put_parts parts = {0};
        uint32_t cuts[65], order[64], sum = 0;

        for (size_t i = 0; i < 64; i++) {
            cuts[i] = (uint32_t)i * 64 + (i > 0 ? (uint32_t)random_below(&random, 64) : 0);
            order[i] = (uint32_t)i;
        }
        cuts[64] = LENGTH;
        for (size_t i = 63; i > 0; i--) {
            size_t k = (size_t)random_below(&random, i + 1);
            uint32_t swap = order[i];

            order[i] = order[k];
            order[k] = swap;
        }
        for (size_t i = 0; i < 64; i++) {
            uint64_t offset = cuts[order[i]], length = cuts[order[i] + 1] - offset;

            assert_false(put_parts_join(&parts, LENGTH, &sum));
            assert_int_equal(put_parts_add(&parts, offset, length, crc32c(0, value + offset, length)), MC_OK);
        }
        assert_true(put_parts_join(&parts, LENGTH, &sum));
        assert_int_equal(sum, crc32c(0, value, LENGTH));
        assert_false(put_parts_join(&parts, LENGTH + 1, &sum));
        put_parts_clear(&parts);
    }
}

/* Against a map of each byte. */
static void no_byte_is_taken_twice_and_what_is_removed_can_come_again(void **state) {
    struct random random = {.state = 42};
    uint8_t there[256] = {0};
    struct put_parts parts = {0};
    uint32_t added = 0;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        uint64_t offset = random_below(&random, 256), length = random_below(&random, 20);
        bool free_bytes = true;

        if (offset + length > 256)
            length = 256 - offset;
        for (uint64_t i = offset; i < offset + length; i++)
            free_bytes = free_bytes && there[i] == 0;
        assert_int_equal(put_parts_add(&parts, offset, length, 0), free_bytes ? MC_OK : MC_ERR_INVALID_ARGUMENT);
        if (!free_bytes)
            continue;
        added++;
        if (random_below(&random, 2) == 0) {
            put_parts_remove(&parts, offset, length);
            continue;
        }
        for (uint64_t i = offset; i < offset + length; i++)
            there[i] = 1;
        if (random_below(&random, 100) == 0) {
            put_parts_clear(&parts);
            for (size_t i = 0; i < sizeof(there); i++)
                there[i] = 0;
        }
    }
    assert_true(added > 1000);
    put_parts_clear(&parts);
}

static void a_value_of_no_bytes_needs_no_parts(void **state) {
    struct put_parts parts = {0};
    uint32_t sum = 7;

    (void)state;
    assert_true(put_parts_join(&parts, 0, &sum));
    assert_int_equal(sum, 0);
    assert_int_equal(put_parts_add(&parts, UINT64_MAX, 0, 0), MC_OK);
    assert_true(put_parts_join(&parts, 0, &sum));
    put_parts_clear(&parts);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_in_any_order_join_to_the_sum_of_the_whole),
        cmocka_unit_test(no_byte_is_taken_twice_and_what_is_removed_can_come_again),
        cmocka_unit_test(a_value_of_no_bytes_needs_no_parts),
    };

    return cmocka_run_group_tests_name("store-put-parts", tests, NULL, NULL);
}

/* test_crc32c.c - both ways to compute CRC-32C agree with published vectors and with the plain definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc32c.h"

#define LENGTH_MAX 1100

typedef uint32_t (*crc_function)(uint32_t crc, const void *bytes, size_t length);

static const crc_function functions[] = {crc32c, crc32c_table};

/* Bit by bit, as it is defined. */
static uint32_t definition(uint32_t crc, const uint8_t *bytes, size_t length) {
    crc = ~crc;
    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static void fill(uint8_t *bytes, size_t length) {
    uint32_t seed = 12345;

    for (size_t i = 0; i < length; i++) {
        seed = seed * 1664525 + 1013904223;
        bytes[i] = (uint8_t)(seed >> 24);
    }
}

static void the_vectors_of_rfc_3720_come_out(void **state) {
    uint8_t bytes[32];

    (void)state;
    for (size_t f = 0; f < 2; f++) {
        crc_function crc = functions[f];

        assert_int_equal(crc(0, "", 0), 0);
        assert_int_equal(crc(0, "123456789", 9), 0xe3069283);
        memset(bytes, 0, 32);
        assert_int_equal(crc(0, bytes, 32), 0x8a9136aa);
        memset(bytes, 0xff, 32);
        assert_int_equal(crc(0, bytes, 32), 0x62a8ab43);
        for (size_t i = 0; i < 32; i++)
            bytes[i] = (uint8_t)i;
        assert_int_equal(crc(0, bytes, 32), 0x46dd794e);
        for (size_t i = 0; i < 32; i++)
            bytes[i] = (uint8_t)(31 - i);
        assert_int_equal(crc(0, bytes, 32), 0x113fdb5c);
    }
}

static void every_length_and_alignment_agrees_with_the_definition(void **state) {
    static uint8_t bytes[LENGTH_MAX + 8];
    static uint32_t expected[LENGTH_MAX + 1];

    (void)state;
    fill(bytes, sizeof(bytes));
    for (size_t at = 0; at < 8; at++) {
        for (size_t length = 1; length <= LENGTH_MAX; length++)
            expected[length] = definition(expected[length - 1], bytes + at + length - 1, 1);
        for (size_t length = 0; length <= LENGTH_MAX; length++) {
            assert_int_equal(crc32c(0, bytes + at, length), expected[length]);
            assert_int_equal(crc32c_table(0, bytes + at, length), expected[length]);
        }
    }
}

static void lengths_around_the_long_blocks_agree_with_the_definition(void **state) {
    size_t size = 4 * 3 * 8192 + 16;
    uint8_t *bytes = malloc(size);

    (void)state;
    assert_non_null(bytes);
    fill(bytes, size);
    for (size_t blocks = 1; blocks <= 4; blocks++) {
        for (size_t extra = 0; extra <= 18; extra += 3) {
            size_t length = blocks * 3 * 8192 + extra - 9;

            if (length + 3 > size)
                continue;
            assert_int_equal(crc32c(7, bytes + 3, length), definition(7, bytes + 3, length));
            assert_int_equal(crc32c_table(7, bytes + 3, length), crc32c(7, bytes + 3, length));
        }
    }
    free(bytes);
}

static void a_sum_in_pieces_is_the_sum_of_the_whole(void **state) {
    static uint8_t bytes[30000];

    (void)state;
    fill(bytes, sizeof(bytes));
    for (size_t f = 0; f < 2; f++)
        for (size_t cut = 0; cut <= sizeof(bytes); cut += 1111)
            assert_int_equal(functions[f](functions[f](0, bytes, cut), bytes + cut, sizeof(bytes) - cut),
                             functions[f](0, bytes, sizeof(bytes)));
}

static void one_flipped_bit_changes_the_sum(void **state) {
    uint8_t bytes[64];
    uint32_t sum;

    (void)state;
    fill(bytes, sizeof(bytes));
    sum = crc32c(0, bytes, sizeof(bytes));
    for (size_t bit = 0; bit < sizeof(bytes) * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(crc32c(0, bytes, sizeof(bytes)), sum);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vectors_of_rfc_3720_come_out),
        cmocka_unit_test(every_length_and_alignment_agrees_with_the_definition),
        cmocka_unit_test(lengths_around_the_long_blocks_agree_with_the_definition),
        cmocka_unit_test(a_sum_in_pieces_is_the_sum_of_the_whole),
        cmocka_unit_test(one_flipped_bit_changes_the_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_preface.c - HELLO and PROOF come out as they went in, damaged ones don't, and versions are chosen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "base/crc32c.h"
#include "wire/endian.h"
#include "wire/preface.h"

static struct preface_hello some_hello(void) {
    struct preface_hello hello = {.version_min = 0x0102, .version_max = 0x0304, .flags = 0x80000001};

    for (uint8_t i = 0; i < 16; i++) {
        hello.incarnation[i] = (uint8_t)(0x10 + i);
        hello.expected[i] = (uint8_t)(0x20 + i);
    }
    for (uint8_t i = 0; i < 32; i++)
        hello.nonce[i] = (uint8_t)(0x30 + i);
    return hello;
}

static struct preface_proof some_proof(void) {
    struct preface_proof proof = {.status = -2014, .version = 0x0506};

    for (uint8_t i = 0; i < 32; i++)
        proof.proof[i] = (uint8_t)(0x40 + i);
    return proof;
}

static void reseal(uint8_t *bytes, size_t size) {
    endian_put32(bytes + size - 4, crc32c_table(0, bytes, size - 4));
}

static void assert_hello_refused(const uint8_t bytes[PREFACE_HELLO_SIZE]) {
    struct preface_hello hello, before;

    memset(&hello, 0xa5, sizeof(hello));
    memcpy(&before, &hello, sizeof(hello));
    assert_int_equal(preface_unpack_hello(bytes, &hello), MC_ERR_PROTOCOL);
    assert_memory_equal(&hello, &before, sizeof(hello));
}

static void assert_proof_refused(const uint8_t bytes[PREFACE_PROOF_SIZE]) {
    struct preface_proof proof, before;

    memset(&proof, 0xa5, sizeof(proof));
    memcpy(&before, &proof, sizeof(proof));
    assert_int_equal(preface_unpack_proof(bytes, &proof), MC_ERR_PROTOCOL);
    assert_memory_equal(&proof, &before, sizeof(proof));
}

static void a_hello_has_the_bytes_that_the_protocol_says(void **state) {
    static const uint8_t front[16] = {'m', 'o', 'o', 'n', 'c', 'a', 'k', 'e', 2, 1, 4, 3, 1, 0, 0, 0x80};
    struct preface_hello hello = some_hello();
    uint8_t bytes[PREFACE_HELLO_SIZE], right[PREFACE_HELLO_SIZE] = {0};

    (void)state;
    memcpy(right, front, 16);
    memcpy(right + 16, hello.incarnation, 16);
    memcpy(right + 32, hello.expected, 16);
    memcpy(right + 48, hello.nonce, 32);
    reseal(right, sizeof(right));
    memset(bytes, 0xff, sizeof(bytes));
    preface_pack_hello(&hello, bytes);
    assert_memory_equal(bytes, right, sizeof(right));
}

static void a_proof_has_the_bytes_that_the_protocol_says(void **state) {
    static const uint8_t front[14] = {'m', 'o', 'o', 'n', 'c', 'a', 'k', 'e', 0x22, 0xf8, 0xff, 0xff, 6, 5};
    struct preface_proof proof = some_proof();
    uint8_t bytes[PREFACE_PROOF_SIZE], right[PREFACE_PROOF_SIZE] = {0};

    (void)state;
    memcpy(right, front, 14);
    memcpy(right + 28, proof.proof, 32);
    reseal(right, sizeof(right));
    memset(bytes, 0xff, sizeof(bytes));
    preface_pack_proof(&proof, bytes);
    assert_memory_equal(bytes, right, sizeof(right));
}

static void a_hello_comes_out_as_it_went_in(void **state) {
    struct preface_hello hello = some_hello(), out;
    uint8_t bytes[PREFACE_HELLO_SIZE];

    (void)state;
    preface_pack_hello(&hello, bytes);
    assert_int_equal(preface_unpack_hello(bytes, &out), MC_OK);
    assert_int_equal(out.version_min, hello.version_min);
    assert_int_equal(out.version_max, hello.version_max);
    assert_int_equal(out.flags, hello.flags);
    assert_memory_equal(out.incarnation, hello.incarnation, 16);
    assert_memory_equal(out.expected, hello.expected, 16);
    assert_memory_equal(out.nonce, hello.nonce, 32);
}

static void a_proof_comes_out_as_it_went_in(void **state) {
    struct preface_proof proof = some_proof(), out;
    uint8_t bytes[PREFACE_PROOF_SIZE];

    (void)state;
    preface_pack_proof(&proof, bytes);
    assert_int_equal(preface_unpack_proof(bytes, &out), MC_OK);
    assert_int_equal(out.status, proof.status);
    assert_int_equal(out.version, proof.version);
    assert_memory_equal(out.proof, proof.proof, 32);
}

static void each_single_changed_bit_is_noticed(void **state) {
    struct preface_hello hello = some_hello();
    struct preface_proof proof = some_proof();
    uint8_t bytes[PREFACE_HELLO_SIZE];

    (void)state;
    for (size_t bit = 0; bit < PREFACE_HELLO_SIZE * 8; bit++) {
        preface_pack_hello(&hello, bytes);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_hello_refused(bytes);
    }
    for (size_t bit = 0; bit < PREFACE_PROOF_SIZE * 8; bit++) {
        preface_pack_proof(&proof, bytes);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_proof_refused(bytes);
    }
}

static void another_magic_is_refused_though_the_checksum_is_right(void **state) {
    struct preface_hello hello = some_hello();
    struct preface_proof proof = some_proof();
    uint8_t bytes[PREFACE_HELLO_SIZE];

    (void)state;
    for (size_t at = 0; at < 8; at++) {
        preface_pack_hello(&hello, bytes);
        bytes[at] ^= 0x20;
        reseal(bytes, PREFACE_HELLO_SIZE);
        assert_hello_refused(bytes);
        preface_pack_proof(&proof, bytes);
        bytes[at] ^= 0x20;
        reseal(bytes, PREFACE_PROOF_SIZE);
        assert_proof_refused(bytes);
    }
}

static void reserved_bytes_must_be_zero(void **state) {
    struct preface_hello hello = some_hello();
    struct preface_proof proof = some_proof();
    uint8_t bytes[PREFACE_HELLO_SIZE];

    (void)state;
    for (size_t at = 80; at < 92; at++) {
        preface_pack_hello(&hello, bytes);
        bytes[at] = 0x80;
        reseal(bytes, PREFACE_HELLO_SIZE);
        assert_hello_refused(bytes);
    }
    for (size_t at = 14; at < 28; at++) {
        preface_pack_proof(&proof, bytes);
        bytes[at] = 0x80;
        reseal(bytes, PREFACE_PROOF_SIZE);
        assert_proof_refused(bytes);
    }
}

static void an_inverted_or_zero_version_range_is_refused(void **state) {
    static const uint16_t ranges[][2] = {{2, 1}, {0, 0}, {0, 1}, {UINT16_MAX, 1}, {1, 0}};
    uint8_t bytes[PREFACE_HELLO_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        struct preface_hello hello = some_hello();

        hello.version_min = ranges[i][0];
        hello.version_max = ranges[i][1];
        preface_pack_hello(&hello, bytes);
        assert_hello_refused(bytes);
    }
}

static void the_highest_common_version_is_chosen_from_either_side(void **state) {
    static const struct {
        uint16_t one[2], other[2], chosen;
    } cases[] = {
        {{1, 1}, {1, 1}, 1}, {{1, 2}, {2, 3}, 2},          {{1, 5}, {2, 3}, 3},
        {{1, 1}, {2, 2}, 0}, {{1, UINT16_MAX}, {1, 7}, 7}, {{UINT16_MAX, UINT16_MAX}, {1, UINT16_MAX}, UINT16_MAX},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct preface_hello one = {.version_min = cases[i].one[0], .version_max = cases[i].one[1]};
        struct preface_hello other = {.version_min = cases[i].other[0], .version_max = cases[i].other[1]};

        assert_int_equal(preface_choose(&one, &other), cases[i].chosen);
        assert_int_equal(preface_choose(&other, &one), cases[i].chosen);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hello_has_the_bytes_that_the_protocol_says),
        cmocka_unit_test(a_proof_has_the_bytes_that_the_protocol_says),
        cmocka_unit_test(a_hello_comes_out_as_it_went_in),
        cmocka_unit_test(a_proof_comes_out_as_it_went_in),
        cmocka_unit_test(each_single_changed_bit_is_noticed),
        cmocka_unit_test(another_magic_is_refused_though_the_checksum_is_right),
        cmocka_unit_test(reserved_bytes_must_be_zero),
        cmocka_unit_test(an_inverted_or_zero_version_range_is_refused),
        cmocka_unit_test(the_highest_common_version_is_chosen_from_either_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

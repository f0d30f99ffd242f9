/* test_frame.c - a header comes out as it went in, and a damaged one doesn't come out at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "base/crc32c.h"
#include "wire/endian.h"
#include "wire/frame.h"

/* Every field different, and every byte of it. */
static const struct frame full = {
    .type = FRAME_WRITE,
    .flags = FRAME_FLAG_GUARD | FRAME_FLAG_CHECKSUM,
    .status = -2015,
    .id = 0x0102030405060708,
    .address = 0x1112131415161718,
    .length = 0x2122232425262728,
    .guard_address = 0x3132333435363738,
    .guard_value = 0x4142434445464748,
    .payload_crc = 0x51525354,
    .payload = 0x00616263,
};

static const uint8_t full_bytes[FRAME_SIZE] = {
    0x02, 0x00, 0x03, 0x00, 0x21, 0xf8, 0xff, 0xff, 0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01,
    0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,
    0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, 0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41,
    0x54, 0x53, 0x52, 0x51, 0x63, 0x62, 0x61, 0x00, 0x00, 0x00, 0x00, 0x00, 0xbe, 0xe6, 0x1b, 0xc8,
};

static void reseal(uint8_t bytes[FRAME_SIZE]) {
    endian_put32(bytes + 60, crc32c_table(0, bytes, 60));
}

static void assert_refused(const uint8_t bytes[FRAME_SIZE]) {
    struct frame frame, before;

    memset(&frame, 0xa5, sizeof(frame));
    memcpy(&before, &frame, sizeof(frame));
    assert_int_equal(frame_unpack(bytes, &frame), MC_ERR_PROTOCOL);
    assert_memory_equal(&frame, &before, sizeof(frame));
}

static void a_header_has_the_bytes_that_the_protocol_says(void **state) {
    uint8_t bytes[FRAME_SIZE];

    (void)state;
    frame_pack(&full, bytes);
    assert_memory_equal(bytes, full_bytes, FRAME_SIZE);
}

static void a_header_comes_out_as_it_went_in(void **state) {
    struct frame frame;

    (void)state;
    assert_int_equal(frame_unpack(full_bytes, &frame), MC_OK);
    assert_int_equal(frame.type, full.type);
    assert_int_equal(frame.flags, full.flags);
    assert_int_equal(frame.status, full.status);
    assert_int_equal(frame.id, full.id);
    assert_int_equal(frame.address, full.address);
    assert_int_equal(frame.length, full.length);
    assert_int_equal(frame.guard_address, full.guard_address);
    assert_int_equal(frame.guard_value, full.guard_value);
    assert_int_equal(frame.payload_crc, full.payload_crc);
    assert_int_equal(frame.payload, full.payload);
}

static void a_header_may_stand_at_any_address(void **state) {
    uint8_t room[FRAME_SIZE + 8];
    struct frame frame;

    (void)state;
    for (size_t shift = 0; shift < 8; shift++) {
        frame_pack(&full, room + shift);
        assert_memory_equal(room + shift, full_bytes, FRAME_SIZE);
        assert_int_equal(frame_unpack(room + shift, &frame), MC_OK);
    }
}

static void each_single_changed_bit_is_noticed(void **state) {
    (void)state;
    for (size_t bit = 0; bit < FRAME_SIZE * 8; bit++) {
        uint8_t bytes[FRAME_SIZE];

        memcpy(bytes, full_bytes, FRAME_SIZE);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_refused(bytes);
    }
}

static void reserved_bytes_must_be_zero(void **state) {
    (void)state;
    for (size_t at = 56; at < 60; at++) {
        uint8_t bytes[FRAME_SIZE];

        memcpy(bytes, full_bytes, FRAME_SIZE);
        bytes[at] = 1;
        reseal(bytes);
        assert_refused(bytes);
    }
}

static void assert_limit(uint16_t type, uint32_t limit) {
    uint32_t beyond[] = {limit + 1, UINT32_MAX - 63, UINT32_MAX};
    struct frame frame = {.type = type, .payload = limit}, out;
    uint8_t bytes[FRAME_SIZE];

    frame_pack(&frame, bytes);
    assert_int_equal(frame_unpack(bytes, &out), MC_OK);
    for (size_t i = 0; i < 3; i++) {
        frame.payload = beyond[i];
        frame_pack(&frame, bytes);
        assert_refused(bytes);
    }
}

static void payloads_are_bounded_by_type_for_requests_and_replies(void **state) {
    (void)state;
    assert_limit(FRAME_READ, FRAME_PAYLOAD_MAX);
    assert_limit(FRAME_READ | FRAME_REPLY, FRAME_PAYLOAD_MAX);
    assert_limit(FRAME_WRITE, FRAME_PAYLOAD_MAX);
    assert_limit(FRAME_WRITE | FRAME_REPLY, FRAME_PAYLOAD_MAX);
    assert_limit(FRAME_CALL, FRAME_MESSAGE_MAX);
    assert_limit(FRAME_CALL | FRAME_REPLY, FRAME_MESSAGE_MAX);
    assert_limit(0, FRAME_MESSAGE_MAX);
    assert_limit(3, FRAME_MESSAGE_MAX);
    assert_limit(UINT16_MAX, FRAME_MESSAGE_MAX);
}

static void unknown_types_and_flags_and_huge_ranges_pass_for_the_receiver_to_judge(void **state) {
    struct frame frame = {.type = 0x7ffe, .flags = 0xffff, .address = UINT64_MAX, .length = UINT64_MAX}, out;
    uint8_t bytes[FRAME_SIZE];

    (void)state;
    frame_pack(&frame, bytes);
    assert_int_equal(frame_unpack(bytes, &out), MC_OK);
    assert_int_equal(out.type, 0x7ffe);
    assert_int_equal(out.flags, 0xffff);
    assert_int_equal(out.address, UINT64_MAX);
    assert_int_equal(out.length, UINT64_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_has_the_bytes_that_the_protocol_says),
        cmocka_unit_test(a_header_comes_out_as_it_went_in),
        cmocka_unit_test(a_header_may_stand_at_any_address),
        cmocka_unit_test(each_single_changed_bit_is_noticed),
        cmocka_unit_test(reserved_bytes_must_be_zero),
        cmocka_unit_test(payloads_are_bounded_by_type_for_requests_and_replies),
        cmocka_unit_test(unknown_types_and_flags_and_huge_ranges_pass_for_the_receiver_to_judge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_message.c - messages come out as they went in, may grow at their end, and never read or write past an end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "wire/endian.h"
#include "wire/frame.h"
#include "wire/message.h"

static struct message_bytes text(const char *words) {
    return (struct message_bytes){.data = (const uint8_t *)words, .length = (uint32_t)strlen(words)};
}

static void assert_text(struct message_bytes bytes, const char *words) {
    assert_int_equal(bytes.length, strlen(words));
    if (bytes.length > 0)
        assert_memory_equal(bytes.data, words, bytes.length);
}

/* "host:1", "kv", "ready" */
static const uint8_t notify_bytes[] = {6, 0,   0,   0, 'h', 'o', 's', 't', ':', '1', 2,   0,  0,
                                       0, 'k', 'v', 5, 0,   0,   0,   'r', 'e', 'a', 'd', 'y'};

static struct message_notify some_notify(void) {
    return (struct message_notify){.sender = text("host:1"), .name = text("kv"), .message = text("ready")};
}

/* A copy with nothing behind it, so that the address sanitizer sees each byte that is read too much. */
static uint8_t *exact_copy(const uint8_t *bytes, size_t length) {
    uint8_t *copy = malloc(length > 0 ? length : 1);

    assert_non_null(copy);
    if (length > 0)
        memcpy(copy, bytes, length);
    return copy;
}

static void a_message_has_the_bytes_that_the_protocol_says(void **state) {
    struct message_notify notify = some_notify();
    uint8_t buffer[64];

    (void)state;
    assert_int_equal(message_pack_notify(&notify, buffer, sizeof(buffer)), sizeof(notify_bytes));
    assert_memory_equal(buffer, notify_bytes, sizeof(notify_bytes));
}

static void a_message_comes_out_as_it_went_in(void **state) {
    struct message_notify notify;

    (void)state;
    assert_int_equal(message_unpack_notify(notify_bytes, sizeof(notify_bytes), &notify), MC_OK);
    assert_text(notify.sender, "host:1");
    assert_text(notify.name, "kv");
    assert_text(notify.message, "ready");
    assert_ptr_equal(notify.message.data, notify_bytes + sizeof(notify_bytes) - 5);
}

static void ids_travel_as_they_are(void **state) {
    struct message_invitation in = {.name = text("n")}, out;
    uint8_t buffer[64];

    (void)state;
    for (uint8_t i = 0; i < 16; i++) {
        in.token.bytes[i] = i;
        in.answer.bytes[i] = (uint8_t)(0xf0 + i);
    }
    assert_int_equal(message_pack_invitation(&in, buffer, sizeof(buffer)), 5 + 16 + 16);
    assert_memory_equal(buffer + 5, in.token.bytes, 16);
    assert_memory_equal(buffer + 21, in.answer.bytes, 16);
    assert_int_equal(message_unpack_invitation(buffer, 37, &out), MC_OK);
    assert_memory_equal(&out.token, &in.token, 16);
    assert_memory_equal(&out.answer, &in.answer, 16);
}

static void a_message_without_fields_is_empty(void **state) {
    struct message_ping ping = {0};

    (void)state;
    assert_int_equal(message_pack_ping(&ping, NULL, 0), 0);
    assert_int_equal(message_unpack_ping(NULL, 0, &ping), MC_OK);
}

static void a_body_cut_between_fields_reads_zero_and_one_cut_within_a_field_is_refused(void **state) {
    (void)state;
    for (size_t length = 0; length < sizeof(notify_bytes); length++) {
        uint8_t *bytes = exact_copy(notify_bytes, length);
        struct message_notify notify = some_notify();
        int32_t status = message_unpack_notify(bytes, length, &notify);

        if (length == 0 || length == 10 || length == 16) {
            assert_int_equal(status, MC_OK);
            assert_text(notify.sender, length >= 10 ? "host:1" : "");
            assert_text(notify.name, length >= 16 ? "kv" : "");
            assert_text(notify.message, "");
        } else {
            assert_int_equal(status, MC_ERR_PROTOCOL);
            assert_text(notify.message, "ready"); /* untouched */
        }
        free(bytes);
    }
}

static void a_cut_id_is_refused(void **state) {
    uint8_t whole[5 + 16 + 16] = {1, 0, 0, 0, 'n'};

    (void)state;
    for (size_t length = 0; length <= sizeof(whole); length++) {
        uint8_t *bytes = exact_copy(whole, length);
        struct message_invitation out;
        bool between = length == 0 || length == 5 || length == 21 || length == 37;

        assert_int_equal(message_unpack_invitation(bytes, length, &out), between ? MC_OK : MC_ERR_PROTOCOL);
        free(bytes);
    }
}

static void the_tail_of_a_longer_body_is_skipped(void **state) {
    uint8_t longer[sizeof(notify_bytes) + 9];
    struct message_notify notify;
    struct message_ping ping;

    (void)state;
    memset(longer, 0xff, sizeof(longer));
    memcpy(longer, notify_bytes, sizeof(notify_bytes));
    for (size_t tail = 0; tail <= 9; tail++) {
        assert_int_equal(message_unpack_notify(longer, sizeof(notify_bytes) + tail, &notify), MC_OK);
        assert_text(notify.message, "ready");
    }
    assert_int_equal(message_unpack_ping(longer, sizeof(longer), &ping), MC_OK);
}

static void lengths_near_the_end_of_the_numbers_are_refused(void **state) {
    static const uint32_t lengths[] = {6, 7, 0x7fffffff, 0x80000000, UINT32_MAX - 4, UINT32_MAX - 3, UINT32_MAX};

    (void)state;
    for (size_t field = 0; field < 3; field++) {
        static const size_t at[] = {0, 10, 16};

        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
            uint8_t *bytes = exact_copy(notify_bytes, at[field] + 4 + 5);
            struct message_notify notify;

            endian_put32(bytes + at[field], lengths[i]);
            assert_int_equal(message_unpack_notify(bytes, at[field] + 4 + 5, &notify), MC_ERR_PROTOCOL);
            free(bytes);
        }
    }
}

static void packing_never_passes_the_capacity(void **state) {
    struct message_notify notify = some_notify();

    (void)state;
    assert_int_equal(message_pack_notify(&notify, NULL, 0), sizeof(notify_bytes));
    for (size_t capacity = 0; capacity <= sizeof(notify_bytes); capacity++) {
        uint8_t *buffer = malloc(capacity > 0 ? capacity : 1);
        bool fits = capacity == sizeof(notify_bytes);

        assert_non_null(buffer);
        assert_int_equal(message_pack_notify(&notify, buffer, capacity),
                         fits ? (int64_t)sizeof(notify_bytes) : (int64_t)MC_ERR_TOO_LARGE);
        free(buffer);
    }
}

static void a_message_larger_than_a_frame_takes_is_refused_before_it_is_read(void **state) {
    struct message_notify notify = some_notify();

    (void)state;
    notify.message.length = UINT32_MAX;
    assert_int_equal(message_pack_notify(&notify, NULL, 0), MC_ERR_TOO_LARGE);
    notify.sender.length = notify.name.length = UINT32_MAX;
    assert_int_equal(message_pack_notify(&notify, NULL, 0), MC_ERR_TOO_LARGE);
    notify = (struct message_notify){.message.length = FRAME_MESSAGE_MAX - 12};
    assert_int_equal(message_pack_notify(&notify, NULL, 0), FRAME_MESSAGE_MAX);
    notify.message.length++;
    assert_int_equal(message_pack_notify(&notify, NULL, 0), MC_ERR_TOO_LARGE);
}

/* For each message and record of messages.def the same test: made with fields that all differ, it has the size of its
 * fields, comes out as it went in, reads zero behind a cut between two fields, is refused when cut within one, skips
 * what is behind its end, and is packed into nothing smaller than it is. */
#define SOME_BYTES "seven!!"

static uint64_t made;

static uint64_t make_number(void) {
    return made += 0x0123456789abcdef;
}

static struct message_id make_id(void) {
    struct message_id id;

    for (size_t i = 0; i < sizeof(id.bytes); i++)
        id.bytes[i] = (uint8_t)(make_number() >> 56);
    return id;
}

#define MAKE_U32(field) message.field = (uint32_t)make_number();
#define MAKE_U64(field) message.field = make_number();
#define MAKE_ID(field) message.field = make_id();
#define MAKE_BYTES(field) message.field = text(SOME_BYTES);

#define SIZE_OF_U32(field) ends[size += 4] = true;
#define SIZE_OF_U64(field) ends[size += 8] = true;
#define SIZE_OF_ID(field) ends[size += 16] = true;
#define SIZE_OF_BYTES(field) ends[size += 4 + sizeof(SOME_BYTES) - 1] = true;

#define EQUAL_U32(field) assert_true(out.field == message.field);
#define EQUAL_U64(field) assert_true(out.field == message.field);
#define EQUAL_ID(field) assert_memory_equal(&out.field, &message.field, 16);
#define EQUAL_BYTES(field) assert_text(out.field, SOME_BYTES);

#define LARGEST 256

#define MESSAGE(NAME, name, number, fields) RECORD(NAME, name, fields)
#define RECORD(NAME, name, fields)                                                               \
    static void name##_holds(void **state) {                                                     \
        struct message_##name message = {0}, out;                                                \
        uint8_t buffer[LARGEST] = {0}, again[LARGEST];                                           \
        bool ends[LARGEST] = {true};                                                             \
        size_t size = 0;                                                                         \
                                                                                                 \
        (void)state;                                                                             \
        fields(MAKE_U32, MAKE_U64, MAKE_ID, MAKE_BYTES);                                         \
        fields(SIZE_OF_U32, SIZE_OF_U64, SIZE_OF_ID, SIZE_OF_BYTES);                             \
        assert_int_equal(message_pack_##name(&message, NULL, 0), size);                          \
        for (size_t capacity = 0; capacity < size; capacity++)                                   \
            assert_int_equal(message_pack_##name(&message, buffer, capacity), MC_ERR_TOO_LARGE); \
        assert_int_equal(message_pack_##name(&message, buffer, size), size);                     \
        assert_int_equal(buffer[size], 0);                                                       \
        for (size_t length = 0; length <= LARGEST; length++) {                                   \
            uint8_t *bytes = exact_copy(buffer, length);                                         \
            int32_t status = message_unpack_##name(bytes, length, &out);                         \
                                                                                                 \
            assert_int_equal(status, length >= size || ends[length] ? MC_OK : MC_ERR_PROTOCOL);  \
            if (status == MC_OK) {                                                               \
                memset(again, 0xff, sizeof(again));                                              \
                assert_true(message_pack_##name(&out, again, sizeof(again)) <= (int64_t)size);   \
                assert_memory_equal(again, buffer, length < size ? length : size);               \
            }                                                                                    \
            if (length >= size) {                                                                \
                fields(EQUAL_U32, EQUAL_U64, EQUAL_ID, EQUAL_BYTES);                             \
            }                                                                                    \
            free(bytes);                                                                         \
        }                                                                                        \
    }
#include "wire/messages.def"
#undef MESSAGE
#undef RECORD

static void requests_are_even_and_their_replies_follow_them(void **state) {
    static const int numbers[] = {
#define MESSAGE(NAME, name, number, fields) MESSAGE_##NAME,
#define RECORD(NAME, name, fields)
#include "wire/messages.def"
#undef RECORD
#undef MESSAGE
    };

    (void)state;
    assert_int_equal(sizeof(numbers) / sizeof(numbers[0]) % 2, 0);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        assert_int_equal(numbers[i], i);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_has_the_bytes_that_the_protocol_says),
        cmocka_unit_test(a_message_comes_out_as_it_went_in),
        cmocka_unit_test(ids_travel_as_they_are),
        cmocka_unit_test(a_message_without_fields_is_empty),
        cmocka_unit_test(a_body_cut_between_fields_reads_zero_and_one_cut_within_a_field_is_refused),
        cmocka_unit_test(a_cut_id_is_refused),
        cmocka_unit_test(the_tail_of_a_longer_body_is_skipped),
        cmocka_unit_test(lengths_near_the_end_of_the_numbers_are_refused),
        cmocka_unit_test(packing_never_passes_the_capacity),
        cmocka_unit_test(a_message_larger_than_a_frame_takes_is_refused_before_it_is_read),
        cmocka_unit_test(requests_are_even_and_their_replies_follow_them),
#define MESSAGE(NAME, name, number, fields) cmocka_unit_test(name##_holds),
#define RECORD(NAME, name, fields) cmocka_unit_test(name##_holds),
#include "wire/messages.def"
#undef MESSAGE
#undef RECORD
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

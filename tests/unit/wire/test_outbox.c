/* test_outbox.c - letters are taken in the order in which they were written, and what can't be written isn't. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "wire/frame.h"
#include "wire/outbox.h"

static void letters_are_taken_in_the_order_in_which_they_were_written(void **state) {
    struct outbox outbox;

    (void)state;
    outbox_init(&outbox);
    for (uint64_t tag = 1; tag <= 3; tag++)
        assert_non_null(outbox_add(&outbox, MESSAGE_POLL, tag, 0));
    for (uint64_t tag = 1; tag <= 3; tag++) {
        struct letter *letter = outbox_take(&outbox);

        assert_non_null(letter);
        assert_int_equal(letter->tag, tag);
        assert_int_equal(letter->type, MESSAGE_POLL);
        free(letter);
    }
    assert_null(outbox_take(&outbox));
}

static void a_message_is_packed_into_its_letter(void **state) {
    static const struct message_id nobody;
    struct message_unmount unmount = {.segment.bytes = "a segment......", .epoch = 9}, out;
    struct outbox outbox;
    struct letter *letter;

    (void)state;
    outbox_init(&outbox);
    assert_non_null(outbox_unmount(&outbox, 7, &unmount));
    letter = outbox_take(&outbox);
    assert_non_null(letter);
    assert_int_equal(letter->tag, 7);
    assert_int_equal(letter->type, MESSAGE_UNMOUNT);
    assert_int_equal(letter->status, MC_OK);
    assert_int_equal(letter->length, 16 + 8);
    assert_memory_equal(&letter->to, &nobody, sizeof(nobody));
    assert_int_equal(message_unpack_unmount(letter->body, letter->length, &out), MC_OK);
    assert_memory_equal(&out.segment, &unmount.segment, 16);
    assert_int_equal(out.epoch, 9);
    free(letter);
}

static void a_message_without_fields_is_a_letter_too(void **state) {
    struct message_released released = {0};
    struct outbox outbox;
    struct letter *letter;

    (void)state;
    outbox_init(&outbox);
    letter = outbox_released(&outbox, 1, &released);
    assert_non_null(letter);
    assert_int_equal(letter->type, MESSAGE_RELEASED);
    assert_int_equal(letter->length, 0);
    outbox_clear(&outbox);
}

static void a_message_that_is_too_large_is_not_written(void **state) {
    struct message_reserved reserved = {.grants.length = FRAME_MESSAGE_MAX - 3};
    struct outbox outbox;

    (void)state;
    outbox_init(&outbox);
    assert_null(outbox_reserved(&outbox, 1, &reserved));
    reserved.grants.length = UINT32_MAX;
    assert_null(outbox_reserved(&outbox, 1, &reserved));
    assert_null(outbox_take(&outbox));
}

static void a_refusal_is_an_answer_with_a_status_and_no_body(void **state) {
    struct outbox outbox;
    struct letter *letter;

    (void)state;
    outbox_init(&outbox);
    outbox_refuse(&outbox, MESSAGE_RESERVE, 5, MC_ERR_NO_SPACE);
    letter = outbox_take(&outbox);
    assert_non_null(letter);
    assert_int_equal(letter->type, MESSAGE_RESERVED);
    assert_int_equal(letter->tag, 5);
    assert_int_equal(letter->status, MC_ERR_NO_SPACE);
    assert_int_equal(letter->length, 0);
    free(letter);
}

static void whatever_is_refused_the_refusal_is_no_request(void **state) {
    static const uint16_t types[] = {0, 1, MESSAGE_RESERVED, 28, 29, UINT16_MAX - 1, UINT16_MAX};
    struct outbox outbox;

    (void)state;
    outbox_init(&outbox);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct letter *letter;

        outbox_refuse(&outbox, types[i], 1, MC_ERR_NOT_SUPPORTED);
        letter = outbox_take(&outbox);
        assert_non_null(letter);
        assert_int_equal(letter->type % 2, 1);
        free(letter);
    }
}

static void a_cleared_outbox_is_empty_and_can_be_used_again(void **state) {
    struct outbox outbox;

    (void)state;
    outbox_init(&outbox);
    outbox_clear(&outbox);
    outbox_refuse(&outbox, MESSAGE_LOOKUP, 1, MC_ERR_EPOCH);
    assert_non_null(outbox_add(&outbox, MESSAGE_LOOKUP, 2, 1000));
    outbox_clear(&outbox);
    assert_null(outbox_take(&outbox));
    assert_non_null(outbox_add(&outbox, MESSAGE_LOOKUP, 3, 0));
    outbox_clear(&outbox);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(letters_are_taken_in_the_order_in_which_they_were_written),
        cmocka_unit_test(a_message_is_packed_into_its_letter),
        cmocka_unit_test(a_message_without_fields_is_a_letter_too),
        cmocka_unit_test(a_message_that_is_too_large_is_not_written),
        cmocka_unit_test(a_refusal_is_an_answer_with_a_status_and_no_body),
        cmocka_unit_test(whatever_is_refused_the_refusal_is_no_request),
        cmocka_unit_test(a_cleared_outbox_is_empty_and_can_be_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

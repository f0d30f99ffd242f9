/* test_status.c - the table of status codes is sound, and an error's words are one line that fits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"

struct row {
    const char *name;
    int32_t code;
    int32_t retryable;
    const char *python;
    const char *text;
};

static const struct row rows[] = {
#define ROW(name, code, retryable, python, text) {"MC_" #name, (code), (retryable), (python), (text)},
    MC_STATUS_TABLE(ROW)
#undef ROW
};

#define ROWS (sizeof(rows) / sizeof(rows[0]))

static void every_code_has_its_name_text_and_retryable_flag(void **state) {
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        assert_string_equal(status_name(rows[i].code), rows[i].name);
        assert_string_equal(status_text(rows[i].code), rows[i].text);
        assert_int_equal(status_retryable(rows[i].code), rows[i].retryable);
    }
}

static void codes_and_names_are_unique_and_all_but_ok_negative(void **state) {
    (void)state;
    assert_int_equal(rows[0].code, 0);
    for (size_t i = 1; i < ROWS; i++) {
        assert_true(rows[i].code < 0);
        assert_true(rows[i].retryable == 0 || rows[i].retryable == 1);
        assert_true(strlen(rows[i].text) > 0);
        assert_true(strlen(rows[i].python) > 0);
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(rows[i].code, rows[j].code);
            assert_string_not_equal(rows[i].name, rows[j].name);
        }
    }
}

static void a_number_that_is_no_code_is_unknown_and_not_retryable(void **state) {
    const int32_t numbers[] = {1, -2, -599, -2000000, INT32_MAX, INT32_MIN};

    (void)state;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        assert_string_equal(status_name(numbers[i]), "MC_ERR_UNKNOWN");
        assert_string_equal(status_text(numbers[i]), "unknown status");
        assert_int_equal(status_retryable(numbers[i]), 0);
    }
}

static void an_error_gets_code_errno_and_words_and_errno_itself_stays(void **state) {
    struct mc_error error = {.struct_size = sizeof(error)};

    (void)state;
    errno = EDOM;
    assert_int_equal(status_set(&error, MC_ERR_BUSY, ENOENT, "%s: %m", "key"), MC_ERR_BUSY);
    assert_int_equal(errno, EDOM);
    assert_int_equal(error.code, MC_ERR_BUSY);
    assert_int_equal(error.system_errno, ENOENT);
    assert_string_equal(error.message, "key: No such file or directory");
    assert_int_equal(error.struct_size, sizeof(error));
}

static void an_error_with_a_smaller_struct_size_is_left_alone(void **state) {
    const uint32_t sizes[] = {0, 1, 4, 255};
    struct mc_error error, before;

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        memset(&error, 0x5a, sizeof(error));
        error.struct_size = sizes[i];
        before = error;
        assert_int_equal(status_set(&error, MC_ERR_BUSY, 0, "words"), MC_ERR_BUSY);
        assert_memory_equal(&error, &before, sizeof(error));
    }
    assert_int_equal(status_set(NULL, MC_ERR_BUSY, 0, "words"), MC_ERR_BUSY);
}

static void an_error_of_a_later_library_is_written_as_far_as_it_is_known(void **state) {
    struct {
        struct mc_error error;
        char tail[8];
    } later;

    (void)state;
    memset(&later, 0x5a, sizeof(later));
    later.error.struct_size = sizeof(later);
    (void)status_set(&later.error, MC_ERR_BUSY, 0, "words");
    assert_string_equal(later.error.message, "words");
    for (size_t i = 0; i < sizeof(later.tail); i++)
        assert_int_equal(later.tail[i], 0x5a);
}

static void words_that_dont_fit_are_cut_between_characters(void **state) {
    struct mc_error error = {.struct_size = sizeof(error)};
    char words[400];

    (void)state;
    memset(words, 'x', sizeof(words));
    words[sizeof(words) - 1] = '\0';
    (void)status_set(&error, MC_ERR_BUSY, 0, "%s", words);
    assert_int_equal(strlen(error.message), 243);
    for (size_t room = 1; room <= 5; room++) {
        memset(words, 'x', 243 - room);
        (void)strcpy(words + 243 - room, "\xf0\x9f\x8c\x99z");
        words[243 - room + 4] = room >= 5 ? 'z' : 'y';
        (void)strcpy(words + 243 - room + 5, "zzzz");
        (void)status_set(&error, MC_ERR_BUSY, 0, "%s", words);
        assert_int_equal(strlen(error.message), room >= 4 ? 243 : 243 - room);
    }
}

static void words_are_one_line(void **state) {
    struct mc_error error = {.struct_size = sizeof(error)};

    (void)state;
    (void)status_set(&error, MC_ERR_BUSY, 0, "a\nb\x7f\x1b[0m\tö");
    assert_string_equal(error.message, "a?b??[0m?ö");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_its_name_text_and_retryable_flag),
        cmocka_unit_test(codes_and_names_are_unique_and_all_but_ok_negative),
        cmocka_unit_test(a_number_that_is_no_code_is_unknown_and_not_retryable),
        cmocka_unit_test(an_error_gets_code_errno_and_words_and_errno_itself_stays),
        cmocka_unit_test(an_error_with_a_smaller_struct_size_is_left_alone),
        cmocka_unit_test(an_error_of_a_later_library_is_written_as_far_as_it_is_known),
        cmocka_unit_test(words_that_dont_fit_are_cut_between_characters),
        cmocka_unit_test(words_are_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

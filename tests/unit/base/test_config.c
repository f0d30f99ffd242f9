/* test_config.c - a setting is the option, else the variable, else the default; a malformed one is an error in words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/config.h"

#define VARIABLE "MC_TCP_LANES_PER_PEER" /* 2, from 1 to 16 */

static int clear(void **state) {
    (void)state;
    (void)unsetenv(VARIABLE);
    (void)unsetenv("MC_CHECKSUM");
    (void)unsetenv("MC_LISTEN");
    (void)unsetenv("MC_PROTOCOL");
    return 0;
}

static void the_default_holds_without_option_and_variable(void **state) {
    uint64_t value = 0;

    (void)state;
    assert_int_equal(config_u64(SETTING_TCP_LANES, 0, &value, NULL), MC_OK);
    assert_int_equal(value, 2);
    assert_string_equal(config_text(SETTING_LISTEN, NULL), "127.0.0.1:0");
    assert_null(config_text(SETTING_PROTOCOL, NULL));
}

static void the_option_goes_before_the_variable_and_that_before_the_default(void **state) {
    uint64_t value = 0;

    (void)state;
    (void)setenv(VARIABLE, "5", 1);
    assert_int_equal(config_u64(SETTING_TCP_LANES, 0, &value, NULL), MC_OK);
    assert_int_equal(value, 5);
    assert_int_equal(config_u64(SETTING_TCP_LANES, 7, &value, NULL), MC_OK);
    assert_int_equal(value, 7);
    (void)setenv("MC_LISTEN", "1.2.3.4:5", 1);
    assert_string_equal(config_text(SETTING_LISTEN, NULL), "1.2.3.4:5");
    assert_string_equal(config_text(SETTING_LISTEN, ""), "1.2.3.4:5");
    assert_string_equal(config_text(SETTING_LISTEN, "[::1]:6"), "[::1]:6");
}

static void an_option_is_used_whatever_the_variable_holds(void **state) {
    uint64_t value = 0;

    (void)state;
    (void)setenv(VARIABLE, "rubbish", 1);
    assert_int_equal(config_u64(SETTING_TCP_LANES, 3, &value, NULL), MC_OK);
    assert_int_equal(value, 3);
}

static void an_empty_text_variable_counts_as_none_and_spaces_stay(void **state) {
    (void)state;
    (void)setenv("MC_LISTEN", "", 1);
    assert_string_equal(config_text(SETTING_LISTEN, NULL), "127.0.0.1:0");
    (void)setenv("MC_LISTEN", " a ", 1);
    assert_string_equal(config_text(SETTING_LISTEN, NULL), " a ");
}

static void every_malformed_number_is_refused_with_the_variable_and_its_limits(void **state) {
    const char *const malformed[] = {"",
                                     " ",
                                     "2 ",
                                     " 2",
                                     "+2",
                                     "-2",
                                     "-0",
                                     "2.0",
                                     "2e0",
                                     "0x2",
                                     "2k",
                                     "two",
                                     "0",
                                     "17",
                                     "2,0",
                                     "2\n",
                                     "\xd9\xa2",
                                     "18446744073709551616",
                                     "18446744073709551618",
                                     "18446744073709551620",
                                     "99999999999999999999999999999999999999999999999999"};
    uint64_t value = 42;

    (void)state;
    for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++) {
        struct mc_error error = {.struct_size = sizeof(error)};

        (void)setenv(VARIABLE, malformed[i], 1);
        assert_int_equal(config_u64(SETTING_TCP_LANES, 0, &value, &error), MC_ERR_INVALID_ARGUMENT);
        assert_int_equal(value, 42);
        assert_non_null(strstr(error.message, VARIABLE));
        assert_non_null(strstr(error.message, "from 1 to 16"));
    }
}

static void the_limits_themselves_are_fine(void **state) {
    uint64_t value = 0;

    (void)state;
    (void)setenv(VARIABLE, "1", 1);
    assert_int_equal(config_u64(SETTING_TCP_LANES, 0, &value, NULL), MC_OK);
    assert_int_equal(value, 1);
    (void)setenv(VARIABLE, "0016", 1);
    assert_int_equal(config_u64(SETTING_TCP_LANES, 0, &value, NULL), MC_OK);
    assert_int_equal(value, 16);
    (void)setenv("MC_CHECKSUM", "0", 1);
    assert_int_equal(config_u64(SETTING_CHECKSUM, 0, &value, NULL), MC_OK);
    assert_int_equal(value, 0);
}

static void an_option_beyond_the_limits_is_refused_in_words(void **state) {
    struct mc_error error = {.struct_size = sizeof(error)};
    uint64_t value = 42;

    (void)state;
    assert_int_equal(config_u64(SETTING_TCP_LANES, 17, &value, &error), MC_ERR_INVALID_ARGUMENT);
    assert_int_equal(config_u64(SETTING_TCP_LANES, UINT64_MAX, &value, NULL), MC_ERR_INVALID_ARGUMENT);
    assert_int_equal(value, 42);
    assert_non_null(strstr(error.message, VARIABLE));
    assert_non_null(strstr(error.message, "17; it must be from 1 to 16"));
}

static void every_default_lies_within_its_limits(void **state) {
    (void)state;
#define SETTING_U64(name, variable, value, minimum, maximum, words) \
    assert_true((uint64_t)(minimum) <= (uint64_t)(value) && (uint64_t)(value) <= (uint64_t)(maximum));
#define SETTING_TEXT(name, variable, value, words)
#include "base/config.def"
#undef SETTING_U64
#undef SETTING_TEXT
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_default_holds_without_option_and_variable, clear),
        cmocka_unit_test_setup(the_option_goes_before_the_variable_and_that_before_the_default, clear),
        cmocka_unit_test_setup(an_option_is_used_whatever_the_variable_holds, clear),
        cmocka_unit_test_setup(an_empty_text_variable_counts_as_none_and_spaces_stay, clear),
        cmocka_unit_test_setup(every_malformed_number_is_refused_with_the_variable_and_its_limits, clear),
        cmocka_unit_test_setup(the_limits_themselves_are_fine, clear),
        cmocka_unit_test_setup(an_option_beyond_the_limits_is_refused_in_words, clear),
        cmocka_unit_test(every_default_lies_within_its_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

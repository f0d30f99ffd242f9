/* test_library.c - the public calls about the library itself answer what the headers promise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <mooncake/mooncake.h>

#include "base/log.h"

static void versions_are_those_of_the_headers_and_the_build(void **state) {
    (void)state;
    assert_int_equal(mc_api_version(), MC_API_VERSION);
    assert_int_equal(mc_api_version() >> 16, MC_API_VERSION_MAJOR);
    assert_int_equal(mc_api_version() & 0xffff, MC_API_VERSION_MINOR);
    assert_string_equal(mc_version(), MOONCAKE_VERSION);
}

static void a_status_has_name_text_and_retryable_flag(void **state) {
    (void)state;
    assert_string_equal(mc_status_name(MC_OK), "MC_OK");
    assert_string_equal(mc_status_name(MC_ERR_BUSY), "MC_ERR_BUSY");
    assert_string_equal(mc_status_text(MC_ERR_BUSY), "still in use");
    assert_int_equal(mc_status_retryable(MC_ERR_BUSY), 1);
    assert_int_equal(mc_status_retryable(MC_ERR_CLOSED), 0);
    assert_string_equal(mc_status_name(7), "MC_ERR_UNKNOWN");
}

static void count_lines(int32_t level, const char *line, void *context) {
    (void)level;
    (void)line;
    ++*(int *)context;
}

static void a_log_hook_is_called_until_it_is_replaced(void **state) {
    int lines = 0;

    (void)state;
    assert_int_equal(mc_log_set(MC_LOG_DEBUG, count_lines, &lines), MC_OK);
    log_debug("one");
    assert_int_equal(lines, 1);
    assert_int_equal(mc_log_set(MC_LOG_WARNING, NULL, NULL), MC_OK);
    log_debug("two");
    assert_int_equal(lines, 1);
}

static void a_log_level_that_is_none_is_refused_and_changes_nothing(void **state) {
    static const int32_t levels[] = {-1, 4, INT32_MAX, INT32_MIN};
    int lines = 0;

    (void)state;
    assert_int_equal(mc_log_set(MC_LOG_DEBUG, count_lines, &lines), MC_OK);
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
        assert_int_equal(mc_log_set(levels[i], NULL, NULL), MC_ERR_INVALID_ARGUMENT);
    log_debug("one");
    assert_int_equal(lines, 1);
    assert_int_equal(mc_log_set(MC_LOG_WARNING, NULL, NULL), MC_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_are_those_of_the_headers_and_the_build),
        cmocka_unit_test(a_status_has_name_text_and_retryable_flag),
        cmocka_unit_test(a_log_hook_is_called_until_it_is_replaced),
        cmocka_unit_test(a_log_level_that_is_none_is_refused_and_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

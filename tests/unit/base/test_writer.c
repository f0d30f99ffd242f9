/* test_writer.c - text fits or is cut, never overruns, and its whole length is known either way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/writer.h"

static void text_is_appended(void **state) {
    struct writer writer;
    char text[32];

    (void)state;
    memset(text, 'x', sizeof(text));
    writer_init(&writer, text, sizeof(text));
    assert_string_equal(text, "");
    writer_print(&writer, "%d", 12);
    writer_print(&writer, "-%s", "ab");
    writer_print(&writer, "%s", "");
    assert_string_equal(text, "12-ab");
    assert_int_equal(writer.length, 5);
}

static void text_is_cut_to_any_size_and_counted_in_full(void **state) {
    static const char whole[] = "hello, world";

    (void)state;
    for (size_t size = 0; size <= sizeof(whole) + 2; size++) {
        struct writer writer;
        char text[32];
        size_t kept = size == 0 ? 0 : size - 1 < strlen(whole) ? size - 1 : strlen(whole);

        memset(text, '#', sizeof(text));
        writer_init(&writer, text, size);
        writer_print(&writer, "hello");
        writer_print(&writer, ", ");
        writer_print(&writer, "world");
        assert_int_equal(writer.length, strlen(whole));
        assert_memory_equal(text, whole, kept);
        if (size > 0)
            assert_int_equal(text[kept], '\0');
        for (size_t i = size > kept + 1 ? size : kept + (size > 0); i < sizeof(text); i++)
            assert_int_equal(text[i], '#');
    }
}

static void nothing_at_all_measures(void **state) {
    struct writer writer;

    (void)state;
    writer_init(&writer, NULL, 0);
    writer_print(&writer, "%s %d", "abc", 7);
    writer_json_string(&writer, "q\"");
    assert_int_equal(writer.length, 5 + 5);
}

static void strings_are_quoted_as_json_has_it(void **state) {
    struct writer writer;
    char text[64];

    (void)state;
    writer_init(&writer, text, sizeof(text));
    writer_json_string(&writer, "a\"b\\c\n\x01\x1f/\xc3\xa9%s");
    assert_string_equal(text, "\"a\\\"b\\\\c\\u000a\\u0001\\u001f/\xc3\xa9%s\"");
    assert_int_equal(writer.length, strlen(text));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_appended),
        cmocka_unit_test(text_is_cut_to_any_size_and_counted_in_full),
        cmocka_unit_test(nothing_at_all_measures),
        cmocka_unit_test(strings_are_quoted_as_json_has_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

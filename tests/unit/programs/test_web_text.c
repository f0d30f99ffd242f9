/* test_web_text.c - bytes from outside can't leave the place that they are put into; and the token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "programs/token.h"
#include "programs/web_text.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define TOKEN "0123456789abcdef"
#define VARIABLE "MOONCAKE_TEST_TOKEN"

static void expect(struct web_text *text, const char *wanted) {
    assert_false(text->failed);
    assert_int_equal(text->length, strlen(wanted));
    assert_memory_equal(text->bytes, wanted, text->length);
    web_text_clear(text);
}

static void json_holds_any_bytes(void **state) {
    static const struct {
        const char *bytes;
        size_t length;
        const char *wanted;
    } cases[] = {
        {"", 0, "\"\""},
        {"plain", 5, "\"plain\""},
        {"a\"b\\c\nd\te", 9, "\"a\\\"b\\\\c\\nd\\u0009e\""},
        {"\0\x1f\x7f", 3, "\"\\u0000\\u001f\x7f\""},
        {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\""},
        {"\xff\xc3", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\""},
        {"\xc0\xaf", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\""},                                 /* "/", too long */
        {"\xed\xa0\x80", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},                 /* half a pair */
        {"\xf4\x90\x80\x80", 4, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""}, /* beyond the last */
        {"\xe2\x82\"", 3, "\"\xef\xbf\xbd\xef\xbf\xbd\\\"\""},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct web_text text = {0};

        web_text_json(&text, cases[i].bytes, cases[i].length);
        expect(&text, cases[i].wanted);
    }
}

static void a_label_stays_within_its_quotes_and_its_line(void **state) {
    struct web_text text = {0};

    (void)state;
    web_text_label(&text, "a\"} 1\nb\\\r\xff");
    expect(&text, "\"a\\\"} 1\\nb\\\\\xef\xbf\xbd\xef\xbf\xbd\"");
}

static void a_line_is_one_line_and_decodes_to_what_it_was(void **state) {
    unsigned char all[256];
    struct web_text line = {0}, back = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(all); i++)
        all[i] = (unsigned char)i;
    web_text_line(&line, all, sizeof(all));
    for (size_t i = 0; i + 1 < line.length; i++)
        assert_true((unsigned char)line.bytes[i] >= 0x20);
    assert_int_equal(line.bytes[line.length - 1], '\n');
    assert_true(web_text_decode(&back, line.bytes, line.length - 1));
    assert_int_equal(back.length, sizeof(all));
    assert_memory_equal(back.bytes, all, sizeof(all));
    web_text_clear(&line);
    web_text_clear(&back);
}

static void a_percent_sign_needs_two_hexadecimal_digits(void **state) {
    static const char *const malformed[] = {"%", "%4", "a%", "a%4", "%zz", "%4g", "%g4", "%%41", "% 41", "%+1", "%0x"};
    struct web_text text = {0};

    (void)state;
    for (size_t i = 0; i < COUNT(malformed); i++) {
        assert_false(web_text_decode(&text, malformed[i], strlen(malformed[i])));
        web_text_clear(&text);
    }
    assert_false(web_text_decode(&text, "%41", 2)); /* the third byte isn't its own */
    web_text_clear(&text);
    assert_true(web_text_decode(&text, "%41%62c%2fD%2F+", 15));
    expect(&text, "Abc/D/+");
}

static void text_grows_and_what_is_printed_is_bounded(void **state) {
    struct web_text text = {0};
    char long_one[3000];

    (void)state;
    memset(long_one, 'x', sizeof(long_one) - 1);
    long_one[sizeof(long_one) - 1] = '\0';
    web_text_print(&text, "%s", long_one);
    assert_int_equal(text.length, 1023);
    for (int i = 0; i < 100; i++)
        web_text_add(&text, long_one, sizeof(long_one) - 1);
    assert_int_equal(text.length, 1023 + 100 * 2999);
    assert_false(text.failed);
    web_text_add(&text, long_one, SIZE_MAX); /* nobody has so much: it is refused, not wrapped */
    assert_true(text.failed);
    assert_int_equal(text.length, 1023 + 100 * 2999);
    web_text_clear(&text);
}

static void a_token_is_shown_whole_or_not_at_all(void **state) {
    static const char *const wrong[] = {
        NULL,
        "",
        "Bearer",
        "Bearer ",
        TOKEN,
        "Basic " TOKEN,
        "Bearer  " TOKEN,
        "Bearer " TOKEN " ",
        "Bearer 0123456789abcde",
        "Bearer 0123456789abcdeF",
        "Bearer 1123456789abcdef",
    };
    struct token token = {0};

    (void)state;
    assert_false(token_shown(&token, "Bearer "));
    setenv(VARIABLE, TOKEN, 1);
    assert_int_equal(token_load(NULL, VARIABLE, &token, NULL), MC_OK);
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_false(token_shown(&token, wrong[i]));
    assert_true(token_shown(&token, "Bearer " TOKEN));
    assert_true(token_shown(&token, "bearer " TOKEN));
    unsetenv(VARIABLE);
}

static void a_token_has_sixteen_to_1024_printable_bytes(void **state) {
    char words[1100];
    struct token token = {0};

    (void)state;
    unsetenv(VARIABLE);
    assert_int_equal(token_load(NULL, VARIABLE, &token, NULL), MC_OK);
    assert_int_equal(token.length, 0);
    for (size_t length = 0; length < sizeof(words); length++) {
        int32_t wanted = length == 0 || (length >= 16 && length <= 1024) ? MC_OK : MC_ERR_INVALID_ARGUMENT;

        memset(words, 'x', length);
        words[length] = '\0';
        setenv(VARIABLE, words, 1);
        assert_int_equal(token_load(NULL, VARIABLE, &token, NULL), wanted);
    }
    setenv(VARIABLE, "0123456789 abcdef", 1);
    assert_int_equal(token_load(NULL, VARIABLE, &token, NULL), MC_ERR_INVALID_ARGUMENT);
    unsetenv(VARIABLE);
    assert_int_equal(token_load("/nowhere/at/all", VARIABLE, &token, NULL), MC_ERR_SYSTEM);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_holds_any_bytes),
        cmocka_unit_test(a_label_stays_within_its_quotes_and_its_line),
        cmocka_unit_test(a_line_is_one_line_and_decodes_to_what_it_was),
        cmocka_unit_test(a_percent_sign_needs_two_hexadecimal_digits),
        cmocka_unit_test(text_grows_and_what_is_printed_is_bounded),
        cmocka_unit_test(a_token_is_shown_whole_or_not_at_all),
        cmocka_unit_test(a_token_has_sixteen_to_1024_printable_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

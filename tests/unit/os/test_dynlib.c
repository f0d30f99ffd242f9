/* test_dynlib.c - a library is opened once and whole, or there is a reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "os/dynlib.h"

static double (*cosine)(double x);
static void (*missing)(void);

static void a_present_library_fills_its_functions_in(void **state) {
    static const char *const sonames[] = {"libnosuch.so.9", "libm.so.6", NULL};
    static const struct dynlib_symbol symbols[] = {{"cos", (void **)&cosine}, {NULL, NULL}};
    static struct dynlib library = {sonames, symbols, PTHREAD_ONCE_INIT, NULL, ""};

    (void)state;
    assert_null(dynlib_open(&library));
    assert_null(dynlib_open(&library));
    assert_string_equal(library.reason, "");
    assert_non_null(library.handle);
    assert_true(cosine(0.0) > 0.999);
}

static void an_absent_library_is_named_in_the_reason(void **state) {
    static const char *const sonames[] = {"libnosuch.so.9", "libnosuch.so.8", NULL};
    static const struct dynlib_symbol symbols[] = {{"f", (void **)&missing}, {NULL, NULL}};
    static struct dynlib library = {sonames, symbols, PTHREAD_ONCE_INIT, NULL, ""};
    const char *reason;

    (void)state;
    reason = dynlib_open(&library);
    assert_non_null(reason);
    assert_non_null(strstr(reason, "libnosuch.so.9"));
    assert_ptr_equal(dynlib_open(&library), reason);
    assert_null(library.handle);
}

static void an_absent_function_is_named_in_the_reason_and_none_is_set(void **state) {
    static double (*sine)(double x);
    static const char *const sonames[] = {"libm.so.6", NULL};
    static const struct dynlib_symbol symbols[] = {
        {"sin", (void **)&sine}, {"no_such_function", (void **)&missing}, {NULL, NULL}};
    static struct dynlib library = {sonames, symbols, PTHREAD_ONCE_INIT, NULL, ""};
    const char *reason;

    (void)state;
    reason = dynlib_open(&library);
    assert_non_null(reason);
    assert_string_equal(reason, "libm.so.6 lacks no_such_function");
    assert_null(sine);
    assert_null(missing);
}

static const char *const raced_sonames[] = {"libm.so.6", NULL};
static const struct dynlib_symbol raced_symbols[] = {{"cos", (void **)&cosine}, {NULL, NULL}};
static struct dynlib raced = {raced_sonames, raced_symbols, PTHREAD_ONCE_INIT, NULL, ""};

static void *open_raced(void *context) {
    (void)context;
    return dynlib_open(&raced) == NULL && cosine(0.0) > 0.999 ? NULL : &raced;
}

static void threads_that_open_it_at_once_all_find_it_open(void **state) {
    pthread_t threads[4];

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, open_raced, NULL), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong = NULL;

        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_that_open_it_at_once_all_find_it_open),
        cmocka_unit_test(a_present_library_fills_its_functions_in),
        cmocka_unit_test(an_absent_library_is_named_in_the_reason),
        cmocka_unit_test(an_absent_function_is_named_in_the_reason_and_none_is_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_directory.c - which directory a connection string names, and what is said where there is none.
 *
 * dynlib_open is wrapped by the linker, so that a library can be missing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "metadata/directory.h"
#include "net/http.h"
#include "os/dynlib.h"

const char *__real_dynlib_open(struct dynlib *library);
const char *__wrap_dynlib_open(struct dynlib *library);

static const char *missing; /* the first part of a soname */

const char *__wrap_dynlib_open(struct dynlib *library) {
    if (missing == NULL)
        return __real_dynlib_open(library);
    return strncmp(library->sonames[0], missing, strlen(missing)) == 0 ? "it is not here" : NULL;
}

static int32_t open_at(const char *where, struct directory **ret_directory, struct mc_error *error) {
    *error = (struct mc_error)MC_ERROR_INIT;
    return directory_open(where, ret_directory, error);
}

static void each_connection_string_names_one_kind(void **state) {
    static const struct {
        const char *where;
        const struct directory_ops *kind;
    } strings[] = {
        {NULL, &directory_p2p},
        {"", &directory_p2p},
        {"p2p", &directory_p2p},
        {"P2PHANDSHAKE", &directory_p2p},
        {"http://127.0.0.1:8080/metadata", &directory_http},
        {"http://[::1]:8080/metadata", &directory_http},
        {"http://node-1.example:8080/a/b%20c/", &directory_http},
        {"http://localhost", &directory_http},
        {"HTTP://localhost:1/", &directory_http},
        {"https://node-1:8443/metadata", &directory_http},
    };
    struct mc_error error;

    (void)state;
    if (directory_http.unavailable() != NULL) {
        print_message("%s\n", directory_http.unavailable());
        skip();
    }
    for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
        struct directory *directory = NULL;

        assert_int_equal(open_at(strings[i].where, &directory, &error), MC_OK);
        assert_ptr_equal(directory->ops, strings[i].kind);
        assert_int_equal(directory_keeps_names(directory), strings[i].kind == &directory_http);
        assert_null(directory_close(directory));
    }
}

static void others_are_refused_with_words(void **state) {
    static const struct {
        const char *where;
        int32_t status;
        const char *words;
    } strings[] = {
        {"redis://127.0.0.1:6379", MC_ERR_NOT_SUPPORTED, "redis"},
        {"rediss://127.0.0.1:6379", MC_ERR_NOT_SUPPORTED, "redis"},
        {"etcd://a:2379,b:2379", MC_ERR_NOT_SUPPORTED, "etcd"},
        {"127.0.0.1:2379", MC_ERR_NOT_SUPPORTED, "etcd, which a bare host:port means"},
        {"a:2379,[::1]:2379", MC_ERR_NOT_SUPPORTED, "etcd"},
        {"localhost", MC_ERR_INVALID_ARGUMENT, "no directory is called \"localhost\""},
        {"127.0.0.1", MC_ERR_INVALID_ARGUMENT, "127.0.0.1"},
        {"a:2379,", MC_ERR_INVALID_ARGUMENT, "a:2379,"},
        {",", MC_ERR_INVALID_ARGUMENT, ","},
        {"a:0", MC_ERR_INVALID_ARGUMENT, "a:0"},
        {"a:99999", MC_ERR_INVALID_ARGUMENT, "a:99999"},
        {"P2PHANDSHAKES", MC_ERR_INVALID_ARGUMENT, "P2PHANDSHAKES"},
        {" p2p", MC_ERR_INVALID_ARGUMENT, " p2p"},
        {"ftp://host:1/metadata", MC_ERR_INVALID_ARGUMENT, "ftp://host:1/metadata"},
        {"file:///etc/passwd", MC_ERR_INVALID_ARGUMENT, "file"},
        {"http:/host:1/metadata", MC_ERR_INVALID_ARGUMENT, "http:/host:1/metadata"},
        {"http://", MC_ERR_INVALID_ARGUMENT, "malformed"},
        {"http:///metadata", MC_ERR_INVALID_ARGUMENT, "malformed"},
        {"http://host:0/metadata", MC_ERR_INVALID_ARGUMENT, "malformed"},
        {"http://host:65536/metadata", MC_ERR_INVALID_ARGUMENT, "malformed"},
        {"http://host:/metadata", MC_ERR_INVALID_ARGUMENT, "malformed"},
        {"http://a b/metadata", MC_ERR_INVALID_ARGUMENT, "malformed"},
        {"http://[::1/metadata", MC_ERR_INVALID_ARGUMENT, "malformed"},
        {"http://host:1/meta data", MC_ERR_INVALID_ARGUMENT, "plain"},
        {"http://host:1/a\r\nHost: b", MC_ERR_INVALID_ARGUMENT, "plain"},
        {"http://host:1/metadata?key=x", MC_ERR_INVALID_ARGUMENT, "plain"},
        {"http://host:1/#a", MC_ERR_INVALID_ARGUMENT, "plain"},
        {"http://host:1/caf\xc3\xa9", MC_ERR_INVALID_ARGUMENT, "plain"},
    };
    struct directory *untouched = (struct directory *)(void *)state;
    struct mc_error error;

    for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
        struct directory *directory = untouched;

        assert_int_equal(open_at(strings[i].where, &directory, &error), strings[i].status);
        assert_ptr_equal(directory, untouched);
        if (strstr(error.message, strings[i].words) == NULL)
            fail_msg("\"%s\" is not in \"%s\"", strings[i].words, error.message);
    }
}

static void a_password_is_in_no_words(void **state) {
    static const char *const strings[] = {
        "redis://user:hunter2@host:6379", "http://user:hunter2@host/metadata", "etcd://user:hunter2@host:2379",
        "user:hunter2@host:2379",         "ftp://user:hunter2@host/",
    };
    struct directory *directory;
    struct mc_error error;
    char where[256];

    (void)state;
    for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
        assert_int_not_equal(open_at(strings[i], &directory, &error), MC_OK);
        assert_null(strstr(error.message, "hunter2"));
    }
    /* Where it ends may be behind all that is shown. */
    (void)snprintf(where, sizeof(where), "ftp://user:hunter2%0200d@host/", 0);
    assert_int_not_equal(open_at(where, &directory, &error), MC_OK);
    assert_null(strstr(error.message, "hunter2"));
}

static void a_url_may_have_1024_bytes(void **state) {
    char where[2000];
    struct directory *directory;
    struct mc_error error;

    (void)state;
    if (directory_http.unavailable() != NULL) {
        print_message("%s\n", directory_http.unavailable());
        skip();
    }
    memset(where, 'p', sizeof(where));
    memcpy(where, "http://host:1/", 14);
    where[1024] = '\0';
    assert_int_equal(open_at(where, &directory, &error), MC_OK);
    directory_close(directory);
    where[1024] = 'p';
    where[1025] = '\0';
    assert_int_equal(open_at(where, &directory, &error), MC_ERR_INVALID_ARGUMENT);
}

static void a_cluster_is_one_word(void **state) {
    char longest[200];
    const char *const bad[] = {"two words", "new\nline", longest};
    struct directory *directory;
    struct mc_error error;

    (void)state;
    memset(longest, 'c', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    for (size_t i = 0; i < 3; i++) {
        setenv("MC_METADATA_CLUSTER_ID", bad[i], 1);
        assert_int_equal(open_at("http://host/metadata", &directory, &error), MC_ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, "MC_METADATA_CLUSTER_ID"));
    }
    unsetenv("MC_METADATA_CLUSTER_ID");
}

static void a_missing_library_is_not_supported_and_said(void **state) {
    static const char *const libraries[] = {"libcurl", "libjansson"};
    struct directory *directory;
    struct mc_error error;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        missing = libraries[i];
        assert_int_equal(open_at("http://host:1/metadata", &directory, &error), MC_ERR_NOT_SUPPORTED);
        assert_non_null(strstr(error.message, "libcurl and libjansson: it is not here"));
        assert_string_equal(directory_http.unavailable(), "it is not here");
        assert_int_equal(open_at("p2p", &directory, &error), MC_OK);
        assert_null(directory_p2p.unavailable());
    }
    missing = NULL;
}

static void a_part_of_a_url_has_only_plain_bytes(void **state) {
    char text[256];
    struct writer writer;

    (void)state;
    writer_init(&writer, text, sizeof(text));
    http_escape(&writer, "aZ09-._~ /:?#&=%+\x7f\xff\n");
    assert_string_equal(text, "aZ09-._~%20%2F%3A%3F%23%26%3D%25%2B%7F%FF%0A");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_connection_string_names_one_kind),
        cmocka_unit_test(others_are_refused_with_words),
        cmocka_unit_test(a_password_is_in_no_words),
        cmocka_unit_test(a_url_may_have_1024_bytes),
        cmocka_unit_test(a_cluster_is_one_word),
        cmocka_unit_test(a_missing_library_is_not_supported_and_said),
        cmocka_unit_test(a_part_of_a_url_has_only_plain_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_names.c - what holds for every kind of directory. Where names are kept, they stand for what was published last;
 * where they aren't, a name is an address and stands for itself. */
#include <pthread.h>
#include <unistd.h>

#include "directory_contract.h"

static void what_was_published_is_found(void **state) {
    static const char *const addresses[] = {"127.0.0.1:40000", "[::1]:1", "host-a.example:65535"};
    struct directory *directory = open_kind();
    char found[ADDRESS_TEXT_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
        EXPECT_STATUS(MC_OK, directory_publish(directory, addresses[i], addresses[i], CLOCK_NEVER, new_error()));
        EXPECT_STATUS(MC_OK, directory_find(directory, addresses[i], CLOCK_NEVER, found, new_error()));
        assert_string_equal(found, addresses[i]);
        EXPECT_STATUS(MC_OK, directory_withdraw(directory, addresses[i], addresses[i], CLOCK_NEVER, new_error()));
    }
    directory_close(directory);
}

static void what_was_withdrawn_stands_for_nothing_else(void **state) {
    const char *name = "127.0.0.1:40001";
    struct directory *directory = open_kind();
    char found[ADDRESS_TEXT_MAX] = "untouched";

    (void)state;
    EXPECT_STATUS(MC_OK, directory_publish(directory, name, name, CLOCK_NEVER, new_error()));
    EXPECT_STATUS(MC_OK, directory_withdraw(directory, name, name, CLOCK_NEVER, new_error()));
    EXPECT_STATUS(directory_keeps_names(directory) ? MC_ERR_NAME_NOT_FOUND : MC_OK,
                  directory_find(directory, name, CLOCK_NEVER, found, new_error()));
    assert_string_equal(found, directory_keeps_names(directory) ? "untouched" : name);
    EXPECT_STATUS(MC_OK, directory_withdraw(directory, name, name, CLOCK_NEVER, new_error()));
    directory_close(directory);
}

static void an_unknown_name_is_not_found(void **state) {
    struct directory *directory = open_kind();
    char found[ADDRESS_TEXT_MAX] = "untouched";

    (void)state;
    EXPECT_STATUS(directory_keeps_names(directory) ? MC_ERR_NAME_NOT_FOUND : MC_ERR_ADDRESS,
                  directory_find(directory, "nobody", CLOCK_NEVER, found, new_error()));
    expect_words("nobody");
    assert_string_equal(found, "untouched");
    directory_close(directory);
}

static void a_name_that_is_no_address_needs_a_directory_that_keeps_names(void **state) {
    struct directory *directory = open_kind();

    (void)state;
    assert_int_equal(directory_keeps_names(directory), over_http);
    EXPECT_STATUS(over_http ? MC_OK : MC_ERR_INVALID_ARGUMENT,
                  directory_publish(directory, "a name", "127.0.0.1:40002", CLOCK_NEVER, new_error()));
    directory_close(directory);
}

static void names_are_checked(void **state) {
    static const char *const bad[] = {"", "a\nb", "a\tb", "\x7f", "caf\xc3\xa9", "\x01"};
    struct directory *directory = open_kind();
    char found[ADDRESS_TEXT_MAX] = "untouched", longest[DIRECTORY_NAME_MAX + 2];

    (void)state;
    memset(longest, 'n', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    for (size_t i = 0; i <= sizeof(bad) / sizeof(bad[0]); i++) {
        const char *name = i < sizeof(bad) / sizeof(bad[0]) ? bad[i] : longest;

        EXPECT_STATUS(MC_ERR_INVALID_ARGUMENT, directory_find(directory, name, CLOCK_NEVER, found, new_error()));
        EXPECT_STATUS(MC_ERR_INVALID_ARGUMENT,
                      directory_publish(directory, name, "127.0.0.1:1", CLOCK_NEVER, new_error()));
        EXPECT_STATUS(MC_ERR_INVALID_ARGUMENT,
                      directory_withdraw(directory, name, "127.0.0.1:1", CLOCK_NEVER, new_error()));
        expect_words("the name of an engine");
    }
    assert_string_equal(found, "untouched");
    directory_close(directory);
}

static void closing_none_is_fine(void **state) {
    (void)state;
    assert_null(directory_close(NULL));
}

struct crowd {
    struct directory *directory;
    unsigned int index;
    unsigned int wrong;
};

static void *publish_and_find(void *context) {
    struct crowd *crowd = context;
    char address[ADDRESS_TEXT_MAX], found[ADDRESS_TEXT_MAX];

    for (unsigned int i = 0; i < 10; i++) {
        snprintf(address, sizeof(address), "127.0.0.%u:%u", crowd->index + 1, 1000 + i);
        crowd->wrong += directory_publish(crowd->directory, address, address, CLOCK_NEVER, NULL) != MC_OK ||
                        directory_find(crowd->directory, address, CLOCK_NEVER, found, NULL) != MC_OK ||
                        strcmp(found, address) != 0 ||
                        directory_withdraw(crowd->directory, address, address, CLOCK_NEVER, NULL) != MC_OK;
    }
    return NULL;
}

static void threads_may_share_one(void **state) {
    struct directory *directory = open_kind();
    pthread_t threads[8];
    struct crowd crowd[8];

    (void)state;
    for (unsigned int i = 0; i < 8; i++) {
        crowd[i] = (struct crowd){directory, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, publish_and_find, &crowd[i]), 0);
    }
    for (unsigned int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(crowd[i].wrong, 0);
    }
    directory_close(directory);
}

const struct CMUnitTest names_tests[] = {
    cmocka_unit_test(what_was_published_is_found),
    cmocka_unit_test(what_was_withdrawn_stands_for_nothing_else),
    cmocka_unit_test(an_unknown_name_is_not_found),
    cmocka_unit_test(a_name_that_is_no_address_needs_a_directory_that_keeps_names),
    cmocka_unit_test(names_are_checked),
    cmocka_unit_test(closing_none_is_fine),
    cmocka_unit_test(threads_may_share_one),
};
const size_t names_test_count = sizeof(names_tests) / sizeof(names_tests[0]);

/* test_store.c - libmooncake_store.so as programs see it that were written for the reference, on a store that has its master
 * inside. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <store_c.h>

#define SEGMENT (64u << 20)

static mooncake_store_t open_store(void) {
    mooncake_store_t store = mooncake_store_create();

    assert_non_null(store);
    assert_int_equal(mooncake_store_setup(store, "127.0.0.1", "P2PHANDSHAKE", SEGMENT, 16u << 20, "tcp", "", ""), 0);
    return store;
}

static void a_store_is_set_up_once_and_says_where_it_is(void **state) {
    mooncake_store_t store = mooncake_store_create();
    char text[64] = "untouched";

    (void)state;
    assert_int_equal(mooncake_store_health_check(store), 1);
    assert_int_equal(mooncake_store_get_hostname(store, text, sizeof(text)), -1);
    assert_string_equal(text, "untouched");
    assert_int_equal(mooncake_store_put(store, "key", "value", 5, NULL), -600);
    assert_int_equal(mooncake_store_setup(store, "127.0.0.1", NULL, SEGMENT, 0, NULL, NULL, "etcd://127.0.0.1:1"),
                     -600);
    assert_int_equal(mooncake_store_setup(store, "127.0.0.1", NULL, 0, 0, NULL, NULL, "127.0.0.1:1"), -900);
    assert_int_equal(mooncake_store_setup(store, "127.0.0.1", NULL, SEGMENT, 0, NULL, NULL, ""), 0);
    assert_int_equal(mooncake_store_setup(store, "127.0.0.1", NULL, SEGMENT, 0, NULL, NULL, ""), -600);
    assert_int_equal(mooncake_store_health_check(store), 0);
    assert_int_equal(mooncake_store_get_hostname(store, text, 5), -1);
    assert_int_equal(mooncake_store_get_hostname(store, text, sizeof(text)), 0);
    assert_memory_equal(text, "127.0.0.1:", 10);
    mooncake_store_set_etcd_tls_config(store, "", "", "");
    mooncake_store_destroy(store);
}

static void values_are_put_once_found_and_removed(void **state) {
    mooncake_store_t store = open_store();
    char buffer[16] = {0};

    (void)state;
    assert_int_equal(mooncake_store_is_exist(store, "key"), 0);
    assert_int_equal(mooncake_store_get_size(store, "key"), -704);
    assert_int_equal(mooncake_store_get_into(store, "key", buffer, sizeof(buffer)), -704);
    assert_int_equal(mooncake_store_remove(store, "key", 0), -704);
    assert_int_equal(mooncake_store_put(store, "key", "value", 5, NULL), 0);
    assert_int_equal(mooncake_store_put(store, "key", "another", 7, NULL), 0);
    assert_int_equal(mooncake_store_put_from(store, "empty", NULL, 0, NULL), 0);
    assert_int_equal(mooncake_store_is_exist(store, "key"), 1);
    assert_int_equal(mooncake_store_get_size(store, "key"), 5);
    assert_int_equal(mooncake_store_get_size(store, "empty"), 0);
    assert_int_equal(mooncake_store_get_into(store, "key", buffer, sizeof(buffer)), 5);
    assert_string_equal(buffer, "value");
    assert_int_equal(mooncake_store_get_into(store, "key", buffer, 4), -600);
    assert_int_equal(mooncake_store_get_into(store, "empty", NULL, 0), 0);
    assert_int_equal(mooncake_store_remove(store, "key", 1), 0);
    assert_int_equal(mooncake_store_is_exist(store, "key"), 0);
    assert_int_equal(mooncake_store_put(store, "", "value", 5, NULL), -400);
    assert_int_equal(mooncake_store_remove_all(store, 1), 1);
    mooncake_store_destroy(store);
}

static void each_item_of_a_batch_has_its_own_result(void **state) {
    mooncake_store_t store = open_store();
    char memory[4][8] = {"first", "second", "third", "fourth"};
    const char *keys[] = {"a", "", "c", "a"};
    void *buffers[] = {memory[0], memory[1], memory[2], memory[3]};
    const size_t sizes[] = {5, 6, 5, 6}, rooms[] = {8, 8, 2, 8};
    int results[4] = {7, 7, 7, 7};
    int64_t lengths[4];

    (void)state;
    assert_int_equal(mooncake_store_batch_put_from(store, keys, buffers, sizes, 4, NULL, results), 0);
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], -400);
    assert_int_equal(results[2], 0);
    assert_int_equal(results[3], 0);
    keys[1] = "b";
    memset(memory, 0, sizeof(memory));
    assert_int_equal(mooncake_store_batch_get_into(store, keys, buffers, rooms, 4, lengths), 0);
    assert_int_equal(lengths[0], lengths[3]);
    assert_string_equal(memory[0], memory[3]);
    assert_true(strcmp(memory[0], "first") == 0 || strcmp(memory[0], "fourth") == 0);
    assert_int_equal(lengths[1], -704);
    assert_int_equal(lengths[2], -600);
    assert_int_equal(mooncake_store_batch_is_exist(store, keys, 4, results), 0);
    assert_int_equal(results[0] + results[2] + results[3], 3);
    assert_int_equal(results[1], 0);
    assert_int_equal(mooncake_store_batch_put_from(store, NULL, NULL, NULL, 0, NULL, NULL), 0);
    mooncake_store_destroy(store);
}

static void a_batch_may_be_larger_than_the_library_s(void **state) {
    enum { COUNT = 70000 };
    mooncake_store_t store = open_store();
    char(*names)[8] = calloc(COUNT, sizeof(*names));
    const char **keys = calloc(COUNT, sizeof(*keys));
    void **buffers = calloc(COUNT, sizeof(*buffers));
    size_t *sizes = calloc(COUNT, sizeof(*sizes));
    int *results = calloc(COUNT, sizeof(*results));

    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof(names[i]), "%zu", i);
        keys[i] = names[i];
        buffers[i] = names[i];
        sizes[i] = strlen(names[i]);
        results[i] = 7;
    }
    assert_int_equal(mooncake_store_batch_put_from(store, keys, buffers, sizes, COUNT, NULL, results), 0);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(results[i], 0);
    assert_int_equal(mooncake_store_get_size(store, "69999"), 5);
    assert_int_equal(mooncake_store_batch_is_exist(store, keys, COUNT, results), 0);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(results[i], 1);
    assert_int_equal(mooncake_store_remove_by_regex(store, "^6999[0-4]$", 0), 5);
    assert_int_equal(mooncake_store_remove_by_regex(store, "(", 0), -600);
    assert_int_equal(mooncake_store_remove_all(store, 0), COUNT - 5);
    free(names);
    free(keys);
    free(buffers);
    free(sizes);
    free(results);
    mooncake_store_destroy(store);
}

static void a_config_says_how_a_value_is_stored(void **state) {
    mooncake_store_t store = open_store();
    const char *segments[] = {"nowhere"}, *none[] = {NULL};
    mooncake_replicate_config_t config = {.replica_num = 100,
                                          .with_soft_pin = 1,
                                          .with_hard_pin = 1,
                                          .preferred_segments = segments,
                                          .preferred_segments_count = 1};

    (void)state;
    assert_int_equal(mooncake_store_put(store, "pinned", "value", 5, &config), 0);
    config.preferred_segments = none;
    assert_int_equal(mooncake_store_put(store, "other", "value", 5, &config), -1);
    config.preferred_segments = NULL;
    assert_int_equal(mooncake_store_put(store, "other", "value", 5, &config), -1);
    config.preferred_segments_count = 0;
    assert_int_equal(mooncake_store_put(store, "other", "value", 5, &config), 0);
    mooncake_store_destroy(store);
}

static void memory_is_registered_and_given_back(void **state) {
    mooncake_store_t store = open_store();
    static char memory[8192];

    (void)state;
    assert_int_equal(mooncake_store_register_buffer(store, memory, sizeof(memory)), 0);
    assert_int_equal(mooncake_store_unregister_buffer(store, memory), 0);
    assert_int_equal(mooncake_store_unregister_buffer(store, memory), -600);
    mooncake_store_destroy(store);
}

static void what_is_null_or_destroyed_is_refused(void **state) {
    mooncake_store_t store = open_store();
    const char *keys[] = {"a", NULL};
    void *buffers[] = {keys, keys};
    const size_t sizes[] = {1, 1};
    int results[2];

    (void)state;
    assert_int_equal(mooncake_store_put(store, NULL, "value", 5, NULL), -1);
    assert_int_equal(mooncake_store_put(store, "key", NULL, 5, NULL), -1);
    assert_int_equal(mooncake_store_get_into(store, "key", NULL, 5), -1);
    assert_int_equal(mooncake_store_is_exist(store, NULL), -1);
    assert_int_equal(mooncake_store_remove_by_regex(store, NULL, 0), -1);
    assert_int_equal(mooncake_store_register_buffer(store, NULL, 5), -1);
    assert_int_equal(mooncake_store_batch_put_from(store, keys, buffers, sizes, 2, NULL, results), -1);
    assert_int_equal(mooncake_store_batch_put_from(store, keys, buffers, NULL, 1, NULL, results), -1);
    assert_int_equal(mooncake_store_batch_is_exist(store, NULL, 1, results), -1);
    mooncake_store_destroy(store);
    mooncake_store_destroy(store);
    mooncake_store_destroy(NULL);
    assert_int_equal(mooncake_store_put(store, "key", "value", 5, NULL), -1);
    assert_int_equal(mooncake_store_health_check((mooncake_store_t)(uintptr_t)12345), -1);
    assert_int_equal(mooncake_store_setup(store, "127.0.0.1", NULL, 0, 0, NULL, NULL, ""), -1);
}

struct racer {
    mooncake_store_t store;
    int number;
};

static void *put_until_it_ends(void *argument) {
    const struct racer *racer = argument;
    char key[32];
    int result = 0;

    for (int i = 0; result == 0; i++) {
        snprintf(key, sizeof(key), "%d-%d", racer->number, i % 1000);
        result = mooncake_store_put(racer->store, key, key, strlen(key), NULL);
    }
    return (void *)(intptr_t)result;
}

static void calls_on_a_store_that_is_destroyed_end(void **state) {
    struct racer racers[4];
    pthread_t threads[4];

    (void)state;
    for (int round = 0; round < 5; round++) {
        mooncake_store_t store = open_store();

        for (int i = 0; i < 4; i++) {
            racers[i] = (struct racer){.store = store, .number = i};
            assert_int_equal(pthread_create(&threads[i], NULL, put_until_it_ends, &racers[i]), 0);
        }
        usleep(20000);
        mooncake_store_destroy(store);
        for (int i = 0; i < 4; i++) {
            void *result;

            assert_int_equal(pthread_join(threads[i], &result), 0);
            assert_true((intptr_t)result == -1 || (intptr_t)result == -600 || (intptr_t)result == -901);
        }
    }
}

static void a_child_has_no_use_for_its_parent_s_handles(void **state) {
    mooncake_store_t store = open_store();
    int status;
    pid_t child;

    (void)state;
    child = fork();
    if (child == 0)
        _exit(mooncake_store_put(store, "key", "value", 5, NULL) == -1 ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(mooncake_store_put(store, "key", "value", 5, NULL), 0);
    mooncake_store_destroy(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_is_set_up_once_and_says_where_it_is),
        cmocka_unit_test(values_are_put_once_found_and_removed),
        cmocka_unit_test(each_item_of_a_batch_has_its_own_result),
        cmocka_unit_test(a_batch_may_be_larger_than_the_library_s),
        cmocka_unit_test(a_config_says_how_a_value_is_stored),
        cmocka_unit_test(memory_is_registered_and_given_back),
        cmocka_unit_test(what_is_null_or_destroyed_is_refused),
        cmocka_unit_test(calls_on_a_store_that_is_destroyed_end),
        cmocka_unit_test(a_child_has_no_use_for_its_parent_s_handles),
    };

    return cmocka_run_group_tests_name("store_c", tests, NULL, NULL);
}

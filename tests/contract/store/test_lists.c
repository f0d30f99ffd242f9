/* test_lists.c - listing keys page by page, and removing them all. */
#include "store_contract.h"

#include <stdatomic.h>

enum { KEYS = 700 };

static void put_keys(mc_store *store, const struct mc_keys *keys) {
    const void **values = calloc(keys->count, sizeof(*values));
    uint64_t *lengths = calloc(keys->count, sizeof(*lengths));
    int32_t *statuses = calloc(keys->count, sizeof(*statuses));

    assert_true(values != NULL && lengths != NULL && statuses != NULL);
    for (size_t i = 0; i < keys->count; i++) {
        values[i] = "value";
        lengths[i] = 5;
    }
    OK(mc_store_put_batch(store, keys, values, lengths, NULL, statuses, contract_error()));
    free(values);
    free(lengths);
    free(statuses);
}

/* Counts the keys "NAME-i" of a page in seen[i]; how many others there are. */
static size_t note(const struct mc_page *page, const char *name, unsigned seen[KEYS]) {
    const uint8_t *at = page->bytes;
    size_t others = 0;

    for (size_t i = 0; i < page->count; i++) {
        char key[64];
        size_t length = strlen(name);

        assert_in_range(page->lengths[i], 1, sizeof(key) - 1);
        memcpy(key, at, page->lengths[i]);
        key[page->lengths[i]] = '\0';
        at += page->lengths[i];
        if (strncmp(key, name, length) == 0 && key[length] == '-')
            seen[strtoul(key + length + 1, NULL, 10)]++;
        else
            others++;
    }
    return others;
}

/* Lists all; how many pages there were. */
static size_t list_all(mc_store *store, uint32_t limit, const char *name, unsigned seen[KEYS], size_t *ret_others) {
    uint64_t cursor = 0;
    size_t pages = 0;

    *ret_others = 0;
    memset(seen, 0, KEYS * sizeof(seen[0]));
    do {
        struct mc_page *page;

        OK(mc_store_list(store, &cursor, limit, 0, &page, contract_error()));
        *ret_others += note(page, name, seen);
        mc_page_free(page);
        assert_true(++pages < 100000);
    } while (cursor != 0);
    return pages;
}

static void every_key_is_listed_once_in_pages_of_any_size(void **state) {
    static const uint32_t limits[] = {1, 7, 100, 65536};
    const struct cluster *cluster = *state;
    struct mc_keys keys = keys_make("listed", KEYS);
    unsigned seen[KEYS];
    size_t others, pages;

    pages = list_all(cluster->store, 10, "listed", seen, &others);
    assert_int_equal(others, 0);
    put_keys(cluster->store, &keys);
    OK(PUT(cluster->store, "another", NULL, 0));
    for (size_t i = 0; i < 4; i++) {
        pages = list_all(cluster->store, limits[i], "listed", seen, &others);
        for (size_t k = 0; k < KEYS; k++)
            assert_int_equal(seen[k], 1);
        assert_int_equal(others, 1);
        if (i == 2)
            assert_in_range(pages, 2, KEYS);
    }
    keys_free(&keys);
}

struct listing {
    mc_store *store;
    atomic_bool stop;
};

static void *put_and_remove(void *context) {
    struct worker *worker = context;
    struct listing *listing = worker->context;
    char key[32];

    for (unsigned i = 0; !atomic_load(&listing->stop); i++) {
        snprintf(key, sizeof(key), "other-%u", i);
        EXPECT(worker, mc_store_put(listing->store, TEXT(key), "v", 1, NULL, NULL) == MC_OK);
        if (i >= 500) {
            snprintf(key, sizeof(key), "other-%u", i - 500);
            EXPECT(worker, mc_store_remove(listing->store, TEXT(key), 0, NULL) == MC_OK);
        }
    }
    return NULL;
}

static void what_is_there_all_the_while_is_listed_once_beside_puts_and_removes(void **state) {
    const struct cluster *cluster = *state;
    struct listing listing = {.store = cluster->store};
    struct worker worker = {.context = &listing};
    struct mc_keys keys = keys_make("listed", KEYS);
    unsigned seen[KEYS];
    size_t others;

    put_keys(cluster->store, &keys);
    worker_start(&worker, put_and_remove);
    for (size_t i = 0; i < contract_scaled(20); i++) {
        list_all(cluster->store, 50, "listed", seen, &others);
        for (size_t k = 0; k < KEYS; k++)
            assert_int_equal(seen[k], 1);
    }
    atomic_store(&listing.stop, true);
    worker_join(&worker);
    keys_free(&keys);
}

static void remove_all_removes_and_counts_them(void **state) {
    const struct cluster *cluster = *state;
    mc_store *other = cluster_join(cluster, 0, 0, NULL);
    struct mc_keys keys = keys_make("listed", KEYS);
    unsigned seen[KEYS];
    size_t others;
    char got[8];

    IS(0, (int32_t)mc_store_remove_all(cluster->store, 0, contract_error()));
    put_keys(cluster->store, &keys);
    IS(5, GET(other, "listed-1", got, sizeof(got)));
    IS(KEYS, (int32_t)mc_store_remove_all(cluster->store, 0, contract_error()));
    IS(MC_ERR_NOT_FOUND, GET(other, "listed-1", got, sizeof(got)));
    assert_int_equal(list_all(other, 100, "listed", seen, &others), 1);
    assert_int_equal(others, 0);
    for (size_t k = 0; k < KEYS; k++)
        assert_int_equal(seen[k], 0);
    cluster_await_live(cluster, 0);
    OK(mc_store_close(other));
    keys_free(&keys);
}

static void long_keys_are_listed_too(void **state) {
    const struct cluster *cluster = *state;
    char key[MC_KEY_MAX];
    uint64_t cursor = 0;
    size_t count = 0;

    memset(key, 'k', sizeof(key));
    for (int i = 0; i < 300; i++) { /* more than a megabyte of keys */
        memcpy(key, &i, sizeof(i));
        OK(mc_store_put(cluster->store, key, sizeof(key), NULL, 0, NULL, contract_error()));
    }
    do {
        struct mc_page *page;

        OK(mc_store_list(cluster->store, &cursor, 65536, 0, &page, contract_error()));
        for (size_t i = 0; i < page->count; i++)
            assert_int_equal(page->lengths[i], MC_KEY_MAX);
        count += page->count;
        mc_page_free(page);
    } while (cursor != 0);
    assert_int_equal(count, 300);
}

static int64_t remove_matching(mc_store *store, const char *pattern) {
    return mc_store_remove_matching(store, pattern, strlen(pattern), 0, contract_error());
}

static void keys_that_match_a_pattern_are_removed_and_no_others(void **state) {
    const struct cluster *cluster = *state;
    struct mc_error error = MC_ERROR_INIT;
    static const char *const names[] = {"a/1", "a/2", "b/1", "ba/1", "\xff a/3", "gr\xc3\xbc\xc3\x9f"};

    if (mc_store_remove_matching(cluster->store, "(", 1, 0, &error) == MC_ERR_NOT_SUPPORTED) {
        print_message("%s\n", error.message);
        skip();
    }
    assert_int_equal(error.code, MC_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "no pattern, at byte 1"));
    for (size_t i = 0; i < 6; i++)
        OK(PUT(cluster->store, names[i], "", 0));
    assert_int_equal(remove_matching(cluster->store, "^a/\\d$"), 2);
    assert_int_equal(remove_matching(cluster->store, "gr..$"), 1); /* by characters, not bytes */
    assert_int_equal(remove_matching(cluster->store, "a/"), 2);
    assert_int_equal(remove_matching(cluster->store, "a/"), 0);
    assert_int_equal(EXISTS(cluster->store, "b/1"), 1);
    assert_int_equal(remove_matching(cluster->store, ""), 1);
    cluster_await_live(cluster, 0);
}

static void a_pattern_that_takes_for_ever_is_given_up(void **state) {
    const struct cluster *cluster = *state;
    struct mc_error error = MC_ERROR_INIT;
    char long_one[4100];

    memset(long_one, '.', sizeof(long_one));
    OK(PUT(cluster->store, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!", "", 0));
    if (mc_store_remove_matching(cluster->store, "^(a+)+$", 7, 0, &error) == MC_ERR_NOT_SUPPORTED) {
        print_message("%s\n", error.message);
        skip();
    }
    assert_int_equal(error.code, MC_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "takes too long"));
    IS(MC_ERR_INVALID_ARGUMENT,
       (int32_t)mc_store_remove_matching(cluster->store, long_one, sizeof(long_one), 0, contract_error()));
    IS(MC_ERR_INVALID_ARGUMENT, (int32_t)mc_store_remove_matching(cluster->store, NULL, 1, 0, contract_error()));
    cluster_await_live(cluster, 1);
}

static const struct CMUnitTest tests[] = {
    STORE_TEST(every_key_is_listed_once_in_pages_of_any_size),
    STORE_TEST(what_is_there_all_the_while_is_listed_once_beside_puts_and_removes),
    STORE_TEST(remove_all_removes_and_counts_them),
    STORE_TEST(long_keys_are_listed_too),
    STORE_TEST(keys_that_match_a_pattern_are_removed_and_no_others),
    STORE_TEST(a_pattern_that_takes_for_ever_is_given_up),
};

CONTRACT_PART(store_lists, tests);

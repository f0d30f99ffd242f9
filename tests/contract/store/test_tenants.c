/* test_tenants.c - tenants have keys of their own. */
#include "store_contract.h"

static mc_store *join(const struct cluster *cluster, const char *tenant, uint32_t flags) {
    const struct mc_store_options options = {
        .struct_size = sizeof(options), .master = cluster->address, .tenant = tenant, .flags = flags};
    mc_store *store;

    OK(mc_store_open(&options, &store, contract_error()));
    return store;
}

static uint64_t count_keys(mc_store *store) {
    uint64_t cursor = 0, count = 0;

    do {
        struct mc_page *page;

        OK(mc_store_list(store, &cursor, 100, 0, &page, contract_error()));
        count += page->count;
        mc_page_free(page);
    } while (cursor != 0);
    return count;
}

static int64_t get(mc_store *store, const char *key, size_t length, char *buffer) {
    memset(buffer, 0, 16);
    return mc_store_get(store, key, length, buffer, 15, 0, contract_error());
}

static void each_tenant_has_keys_of_its_own(void **state) {
    const struct cluster *cluster = *state;
    mc_store *red = join(cluster, "red", 0), *blue = join(cluster, "blue", 0), *again = join(cluster, "red", 0);
    mc_store *by_name = join(cluster, "default", 0);
    char buffer[16];

    OK(PUT(cluster->store, "key", "nobody's", 8));
    OK(PUT(red, "key", "red's", 5));
    OK(PUT(blue, "key", "blue's", 6));
    IS(MC_ERR_ALREADY_EXISTS, PUT(again, "key", "red's", 5));
    for (int round = 0; round < 2; round++) {
        assert_int_equal(get(red, "key", 3, buffer), 5);
        assert_string_equal(buffer, "red's");
        assert_int_equal(get(again, "key", 3, buffer), 5);
        assert_int_equal(get(blue, "key", 3, buffer), 6);
        assert_int_equal(get(by_name, "key", 3, buffer), 8);
    }
    OK(REMOVE(again, "key"));
    assert_int_equal(EXISTS(red, "key"), 0);
    assert_int_equal(EXISTS(blue, "key"), 1);
    assert_int_equal(EXISTS(cluster->store, "key"), 1);
    assert_int_equal(mc_store_remove_all(blue, 0, contract_error()), 1);
    OK(mc_store_close(red));
    OK(mc_store_close(blue));
    OK(mc_store_close(again));
    OK(mc_store_close(by_name));
}

static void lists_and_removals_are_of_the_tenant_s_keys(void **state) {
    const struct cluster *cluster = *state;
    mc_store *red = join(cluster, "red", 0), *all = join(cluster, NULL, MC_STORE_STORED_KEYS);
    struct mc_keys keys = keys_make("k", 100);
    int32_t statuses[100];
    const void *values[100];
    uint64_t lengths[100] = {0};
    int64_t removed;

    for (size_t i = 0; i < 100; i++)
        values[i] = "";
    OK(mc_store_put_batch(red, &keys, values, lengths, NULL, statuses, contract_error()));
    OK(PUT(cluster->store, "k-1", "", 0));
    assert_int_equal(count_keys(red), 100);
    assert_int_equal(count_keys(cluster->store), 1);
    assert_int_equal(count_keys(all), 101);
    removed = mc_store_remove_matching(red, "^k-[0-9]$", 9, 0, contract_error());
    assert_true(removed == 10 || removed == MC_ERR_NOT_SUPPORTED);
    assert_int_equal(EXISTS(cluster->store, "k-1"), 1);
    assert_int_equal(mc_store_remove_all(red, 0, contract_error()), removed == 10 ? 90 : 100);
    assert_int_equal(count_keys(cluster->store), 1);
    OK(mc_store_put_batch(red, &keys, values, lengths, NULL, statuses, contract_error()));
    assert_int_equal(mc_store_remove_all(all, 0, contract_error()), 101);
    assert_int_equal(count_keys(cluster->store), 0);
    keys_free(&keys);
    OK(mc_store_close(red));
    OK(mc_store_close(all));
}

/* A key that looks like another's as it is stored is none. */
static void no_key_reaches_into_another_tenant(void **state) {
    const struct cluster *cluster = *state;
    mc_store *red = join(cluster, "red", 0), *unnamed = join(cluster, "", 0);
    static const char spying[] = "\xff\xffred\0key", marked[] = "\xff\xff\0key";
    char buffer[16];

    OK(PUT(red, "key", "secret", 6));
    assert_int_equal(get(cluster->store, spying, sizeof(spying) - 1, buffer), MC_ERR_NOT_FOUND);
    OK(mc_store_upsert(unnamed, spying, sizeof(spying) - 1, "mine", 4, NULL, contract_error()));
    OK(mc_store_put(unnamed, marked, sizeof(marked) - 1, "marked", 6, NULL, contract_error()));
    OK(PUT(unnamed, "key", "plain", 5));
    assert_int_equal(get(red, "key", 3, buffer), 6);
    assert_string_equal(buffer, "secret");
    assert_int_equal(get(cluster->store, spying, sizeof(spying) - 1, buffer), 4);
    assert_int_equal(get(cluster->store, marked, sizeof(marked) - 1, buffer), 6);
    assert_int_equal(get(cluster->store, "key", 3, buffer), 5);
    assert_int_equal(count_keys(cluster->store), 3);
    assert_int_equal(mc_store_remove_all(cluster->store, 0, contract_error()), 3);
    assert_int_equal(EXISTS(red, "key"), 1);
    assert_int_equal(mc_store_remove_all(red, 0, contract_error()), 1);
    OK(mc_store_close(red));
    OK(mc_store_close(unnamed));
}

static void a_tenant_s_keys_and_name_have_their_limits(void **state) {
    const struct cluster *cluster = *state;
    char name[MC_TENANT_MAX + 2], key[MC_KEY_MAX + 1];
    struct mc_store_options options = {.struct_size = sizeof(options), .master = cluster->address, .tenant = name};
    mc_store *store;

    memset(name, 't', sizeof(name));
    memset(key, 'k', sizeof(key));
    name[MC_TENANT_MAX + 1] = '\0';
    IS(MC_ERR_INVALID_ARGUMENT, mc_store_open(&options, &store, contract_error()));
    name[MC_TENANT_MAX] = '\0';
    store = join(cluster, name, 0);
    OK(mc_store_put(store, key, MC_KEY_MAX - MC_TENANT_MAX - 3, "", 0, NULL, contract_error()));
    IS(MC_ERR_INVALID_KEY, mc_store_put(store, key, MC_KEY_MAX - MC_TENANT_MAX - 2, "", 0, NULL, contract_error()));
    IS(MC_ERR_INVALID_KEY, mc_store_put(store, key, MC_KEY_MAX, "", 0, NULL, contract_error()));
    IS(MC_ERR_INVALID_KEY, mc_store_put(store, key, 0, "", 0, NULL, contract_error()));
    assert_int_equal(mc_store_exists(store, key, MC_KEY_MAX - MC_TENANT_MAX - 3, 0, contract_error()), 1);
    assert_int_equal(mc_store_remove_all(store, 0, contract_error()), 1);
    OK(mc_store_close(store));
}

static void puts_in_steps_and_views_are_of_the_tenant_s_keys(void **state) {
    const struct cluster *cluster = *state;
    mc_store *red = join(cluster, "red", 0);
    const struct mc_piece piece = {(void *)(uintptr_t) "value", 5, 0};
    struct mc_keys keys = keys_make("stepwise", 1);
    uint64_t length = 5, put, view;
    uint32_t count = 1;
    int64_t written;
    int32_t status;
    const void *data;

    OK(mc_store_put_begin(red, &keys, &length, NULL, &put, &status, contract_error()));
    OK(mc_store_put_write(red, &put, 1, &piece, &count, 0, &written, contract_error()));
    OK(mc_store_put_end(red, &put, 1, 0, &status, contract_error()));
    assert_int_equal(EXISTS(cluster->store, "stepwise-0"), 0);
    assert_int_equal(VIEW(red, "stepwise-0", &view, &data), 5);
    assert_same(data, "value", 5);
    OK(mc_view_release(view));
    IS(MC_ERR_ALREADY_EXISTS, mc_store_put_begin(red, &keys, &length, NULL, &put, &status, contract_error()));
    assert_int_equal(mc_store_remove_all(red, 0, contract_error()), 1);
    keys_free(&keys);
    OK(mc_store_close(red));
}

static const struct CMUnitTest tests[] = {
    STORE_TEST(each_tenant_has_keys_of_its_own),
    STORE_TEST(lists_and_removals_are_of_the_tenant_s_keys),
    STORE_TEST(no_key_reaches_into_another_tenant),
    STORE_TEST(a_tenant_s_keys_and_name_have_their_limits),
    STORE_TEST(puts_in_steps_and_views_are_of_the_tenant_s_keys),
};

CONTRACT_PART(store_tenants, tests);

/* test_views.c - values on loan: they stay as they are until they are given back, whatever happens to the object. */
#include "store_contract.h"

/* Is it shared memory of the library? */
static bool is_mapped(const void *data) {
    FILE *maps = fopen("/proc/self/maps", "re");
    unsigned long begin, end;
    char line[512];
    bool found = false;

    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL)
        if (sscanf(line, "%lx-%lx", &begin, &end) == 2 && (uintptr_t)data >= begin && (uintptr_t)data < end)
            found = strstr(line, "memfd:mooncake") != NULL;
    fclose(maps);
    return found;
}

static void a_view_is_the_value_without_a_copy_in_mapped_memory(void **state) {
    mc_store *store = ((const struct cluster *)*state)->store;
    uint8_t *value = malloc(MIB);
    uint64_t view, again;
    const void *data, *same;

    assert_non_null(value);
    value_make(value, MIB, 1, 1);
    OK(PUT(store, "viewed", value, MIB));
    IS((int32_t)MIB, VIEW(store, "viewed", &view, &data));
    assert_same(data, value, MIB);
    assert_int_equal(is_mapped(data), !contract_is("tcp"));
    IS((int32_t)MIB, VIEW(store, "viewed", &again, &same));
    assert_int_not_equal(again, view);
    assert_int_equal(same == data, !contract_is("tcp"));
    assert_int_equal(store_number(store, "viewed"), 2 * MIB);
    OK(mc_view_release(view));
    assert_same(same, value, MIB);
    OK(mc_view_release(again));
    assert_int_equal(store_number(store, "viewed"), 0);
    free(value);
}

static void a_view_is_released_once(void **state) {
    mc_store *store = ((const struct cluster *)*state)->store;
    uint64_t view, other;
    const void *data;

    OK(PUT(store, "lent", "value", 5));
    IS(5, VIEW(store, "lent", &view, &data));
    IS(5, VIEW(store, "lent", &other, &data));
    OK(mc_view_release(view));
    IS(MC_ERR_INVALID_HANDLE, mc_view_release(view));
    IS(MC_ERR_INVALID_HANDLE, mc_view_release(0));
    IS(MC_ERR_INVALID_HANDLE, mc_view_release(UINT64_MAX));
    IS(MC_ERR_INVALID_HANDLE, mc_view_release((uint64_t)(uintptr_t)store));
    assert_memory_equal(data, "value", 5);
    OK(mc_view_release(other));
}

static void a_view_outlives_removal_and_replacement(void **state) {
    const struct cluster *cluster = *state;
    static uint8_t old[70000], new[70000], got[70000];
    uint64_t removed, replaced;
    const void *removed_data, *replaced_data;

    value_make(old, sizeof(old), 1, 1);
    value_make(new, sizeof(new), 1, 2);
    OK(PUT(cluster->store, "removed", old, sizeof(old)));
    OK(PUT(cluster->store, "replaced", old, sizeof(old)));
    IS(sizeof(old), VIEW(cluster->store, "removed", &removed, &removed_data));
    IS(sizeof(old), VIEW(cluster->store, "replaced", &replaced, &replaced_data));
    OK(REMOVE(cluster->store, "removed"));
    OK(UPSERT(cluster->store, "replaced", new, sizeof(new)));
    IS(MC_ERR_NOT_FOUND, GET(cluster->store, "removed", got, sizeof(got)));
    for (int i = 0; i < 50; i++) { /* what is free is used again */
        OK(UPSERT(cluster->store, "removed", new, sizeof(new)));
        OK(REMOVE(cluster->store, "removed"));
    }
    IS(sizeof(new), GET(cluster->store, "replaced", got, sizeof(got)));
    assert_same(got, new, sizeof(new));
    assert_same(removed_data, old, sizeof(old));
    assert_same(replaced_data, old, sizeof(old));
    OK(mc_view_release(removed));
    OK(mc_view_release(replaced));
    cluster_await_live(cluster, 1);
}

static void a_view_outlives_its_store(void **state) {
    static uint8_t value[100000];
    struct cluster *cluster = cluster_open(4 * MIB);
    uint64_t views[2];
    const void *data[2];

    (void)state;
    value_make(value, sizeof(value), 1, 1);
    OK(PUT(cluster->store, "kept", value, sizeof(value)));
    IS(sizeof(value), VIEW(cluster->store, "kept", &views[0], &data[0]));
    IS(sizeof(value), VIEW(cluster->store, "kept", &views[1], &data[1]));
    OK(mc_store_close(cluster->store));
    cluster->store = NULL;
    assert_same(data[0], value, sizeof(value));
    OK(mc_view_release(views[0]));
    cluster_close(cluster); /* the owner's process, where there is one, ends */
    assert_same(data[1], value, sizeof(value));
    OK(mc_view_release(views[1]));
    IS(MC_ERR_INVALID_HANDLE, mc_view_release(views[1]));
}

static void what_is_viewed_is_not_reused_while_the_pool_is_full(void **state) {
    static uint8_t value[200000];
    struct cluster *cluster;
    uint64_t views[4], length = sizeof(value);
    const void *data[4];
    char key[32];

    (void)state;
    assert_int_equal(setenv("MC_STORE_POLICY", "lru", 1), 0); /* what is viewed and never read again goes first */
    cluster = cluster_open(4 * MIB);
    unsetenv("MC_STORE_POLICY");
    for (uint32_t i = 0; i < 4; i++) {
        snprintf(key, sizeof(key), "held-%u", i);
        value_make(value, length, i, 1);
        OK(PUT(cluster->store, key, value, length));
        IS((int32_t)length, VIEW(cluster->store, key, &views[i], &data[i]));
    }
    for (uint32_t i = 0; i < 100; i++) {
        snprintf(key, sizeof(key), "pressure-%u", i);
        value_make(value, length, 1000 + i, 1);
        OK(PUT(cluster->store, key, value, length));
        for (uint32_t k = 0; k < 4; k++)
            assert_true(value_is_of(data[k], length, k));
    }
    IS(0, EXISTS(cluster->store, "held-0")); /* it was evicted, and is readable here alone */
    for (uint32_t i = 0; i < 4; i++)
        OK(mc_view_release(views[i]));
    cluster_close(cluster);
}

static void views_beyond_their_bytes_are_refused(void **state) {
    const struct cluster *cluster = *state;
    const struct mc_engine_options engine = {.struct_size = sizeof(engine),
                                             .protocol = contract_is("tcp") ? "tcp" : NULL};
    const struct mc_store_options options = {
        .struct_size = sizeof(options), .master = cluster->address, .engine_options = &engine, .view_bytes = 1000};
    uint64_t first, second, id = 42;
    const void *data, *none = &id;
    char value[600] = "value";
    mc_store *store;

    OK(mc_store_open(&options, &store, contract_error()));
    OK(PUT(store, "part", value, 600));
    OK(PUT(store, "rest", value, 400));
    OK(PUT(store, "byte", value, 1));
    IS(600, VIEW(store, "part", &first, &data));
    IS(400, VIEW(store, "rest", &second, &data));
    IS(MC_ERR_TOO_MANY, VIEW(store, "byte", &id, &none));
    assert_true(id == 42 && none == &id);
    IS(1, GET(store, "byte", value, sizeof(value)));
    OK(mc_view_release(second));
    IS(MC_ERR_TOO_MANY, VIEW(store, "part", &id, &none));
    IS(1, VIEW(store, "byte", &second, &data));
    OK(mc_view_release(first));
    OK(mc_view_release(second));
    assert_int_equal(store_number(store, "viewed"), 0);
    OK(mc_store_close(store));
}

static void a_process_that_dies_gives_back_what_it_viewed(void **state) {
    static uint8_t value[400000];
    struct cluster *cluster = cluster_open(4 * MIB);
    struct actor *actor = actor_start(cluster->address, 0, NULL);

    (void)state;
    value_make(value, sizeof(value), 1, 1);
    for (int i = 0; i < 3; i++)
        OK(PUT(cluster->store, i == 0 ? "a" : i == 1 ? "b" : "c", value, sizeof(value)));
    IS(sizeof(value), actor_ask(actor, "hold a"));
    IS(sizeof(value), actor_ask(actor, "hold b"));
    actor_kill(actor);
    OK(REMOVE(cluster->store, "a"));
    OK(REMOVE(cluster->store, "b"));
    cluster_await_live(cluster, 1); /* the two aren't dead but pinned, they are free */
    cluster_close(cluster);
}

/* Many more views than a process has pins are fine: the rest are copies. */
static void thousands_of_views_are_fine(void **state) {
    mc_store *store = ((const struct cluster *)*state)->store;
    enum { VIEWS = 5000 };
    static uint64_t views[VIEWS];
    static const void *data[VIEWS];

    OK(PUT(store, "popular", "value", 5));
    for (size_t i = 0; i < VIEWS; i++)
        IS(5, VIEW(store, "popular", &views[i], &data[i]));
    OK(UPSERT(store, "popular", "other", 5));
    for (size_t i = 0; i < VIEWS; i++) {
        assert_memory_equal(data[i], "value", 5);
        OK(mc_view_release(views[i]));
    }
}

static const struct CMUnitTest tests[] = {
    STORE_TEST(a_view_is_the_value_without_a_copy_in_mapped_memory),
    STORE_TEST(a_view_is_released_once),
    STORE_TEST(a_view_outlives_removal_and_replacement),
    STORE_TEST(a_view_outlives_its_store),
    STORE_TEST(what_is_viewed_is_not_reused_while_the_pool_is_full),
    STORE_TEST(views_beyond_their_bytes_are_refused),
    STORE_TEST(a_process_that_dies_gives_back_what_it_viewed),
    STORE_TEST(thousands_of_views_are_fine),
};

CONTRACT_PART(store_views, tests);

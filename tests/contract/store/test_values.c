/* test_values.c - values of all sizes under keys of all kinds: put, upsert, get, size, exists, remove. */
#include "store_contract.h"

static void values_of_every_size_come_back_exactly(void **state) {
    static const uint64_t sizes[] = {0, 1, 63, 64, 4095, 4096, MIB - 1, MIB, MIB + 1, 8 * MIB + 1};
    const struct cluster *cluster = *state;
    mc_store *other = cluster_join(cluster, 0, 0, NULL);
    uint8_t *value = malloc(9 * MIB), *got = malloc(9 * MIB);

    assert_true(value != NULL && got != NULL);
    for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char key[32];

        snprintf(key, sizeof(key), "size-%u", i);
        value_make(value, sizes[i], i, 1);
        OK(PUT(cluster->store, key, value, sizes[i]));
        for (int round = 0; round < 4; round++) { /* located, cached, and by a client that didn't put it */
            memset(got, '#', sizes[i] + 1);
            IS((int32_t)sizes[i], GET(round < 2 ? cluster->store : other, key, got, sizes[i]));
            assert_same(got, value, sizes[i]);
            assert_int_equal(got[sizes[i]], '#');
        }
        IS((int32_t)sizes[i], SIZE(other, key));
        OK(REMOVE(cluster->store, key));
        IS(MC_ERR_NOT_FOUND, GET(cluster->store, key, got, 9 * MIB));
        IS(MC_ERR_NOT_FOUND, GET(other, key, got, 9 * MIB));
    }
    OK(mc_store_close(other));
    free(value);
    free(got);
}

static void a_missing_key_is_not_an_empty_value(void **state) {
    mc_store *store = ((const struct cluster *)*state)->store;
    const void *data = NULL;
    uint64_t view = 0;
    char byte = '#';

    IS(MC_ERR_NOT_FOUND, GET(store, "nothing", &byte, 1));
    IS(MC_ERR_NOT_FOUND, GET(store, "nothing", NULL, 0));
    IS(MC_ERR_NOT_FOUND, SIZE(store, "nothing"));
    IS(MC_ERR_NOT_FOUND, VIEW(store, "nothing", &view, &data));
    IS(0, EXISTS(store, "nothing"));
    IS(MC_ERR_NOT_FOUND, REMOVE(store, "nothing"));
    assert_true(view == 0 && data == NULL);
    OK(PUT(store, "empty", NULL, 0));
    IS(0, GET(store, "empty", &byte, 1));
    IS(0, GET(store, "empty", NULL, 0));
    IS(0, SIZE(store, "empty"));
    IS(1, EXISTS(store, "empty"));
    IS(0, VIEW(store, "empty", &view, &data));
    assert_true(view != 0 && data != NULL);
    OK(mc_view_release(view));
    OK(REMOVE(store, "empty"));
    IS(MC_ERR_NOT_FOUND, GET(store, "empty", &byte, 1));
    assert_int_equal(byte, '#');
}

static void keys_are_any_bytes(void **state) {
    mc_store *store = ((const struct cluster *)*state)->store;
    uint8_t key[2] = {0, 0}, got;

    for (unsigned i = 0; i < 256; i++) {
        uint8_t value = (uint8_t)~i;

        key[0] = (uint8_t)i;
        OK(mc_store_put(store, key, 1, &value, 1, NULL, contract_error()));
        value = (uint8_t)i;
        OK(mc_store_put(store, key, 2, &value, 1, NULL, contract_error())); /* with a NUL behind: another key */
    }
    for (unsigned i = 0; i < 256; i++) {
        key[0] = (uint8_t)i;
        IS(1, (int32_t)mc_store_get(store, key, 1, &got, 1, 0, contract_error()));
        assert_int_equal(got, (uint8_t)~i);
        IS(1, (int32_t)mc_store_get(store, key, 2, &got, 1, 0, contract_error()));
        assert_int_equal(got, i);
    }
}

static void keys_have_1_to_4096_bytes(void **state) {
    mc_store *store = ((const struct cluster *)*state)->store;
    char key[MC_KEY_MAX + 1], got[8];
    const void *data;
    uint64_t view;

    memset(key, 'k', sizeof(key));
    OK(mc_store_put(store, key, MC_KEY_MAX, "longest", 7, NULL, contract_error()));
    OK(mc_store_put(store, key, MC_KEY_MAX - 1, "shorter", 7, NULL, contract_error()));
    IS(7, (int32_t)mc_store_get(store, key, MC_KEY_MAX, got, 7, 0, contract_error()));
    assert_memory_equal(got, "longest", 7);
    IS(7, (int32_t)mc_store_get(store, key, MC_KEY_MAX - 1, got, 7, 0, contract_error()));
    assert_memory_equal(got, "shorter", 7);
    for (int i = 0; i < 3; i++) {
        size_t length = i == 0 ? MC_KEY_MAX + 1 : i == 1 ? 0 : SIZE_MAX;

        IS(MC_ERR_INVALID_KEY, mc_store_put(store, key, length, "v", 1, NULL, contract_error()));
        IS(MC_ERR_INVALID_KEY, mc_store_upsert(store, key, length, "v", 1, NULL, contract_error()));
        IS(MC_ERR_INVALID_KEY, mc_store_get(store, key, length, got, 7, 0, contract_error()));
        IS(MC_ERR_INVALID_KEY, mc_store_view(store, key, length, 0, &view, &data, contract_error()));
        IS(MC_ERR_INVALID_KEY, mc_store_size(store, key, length, 0, contract_error()));
        IS(MC_ERR_INVALID_KEY, mc_store_exists(store, key, length, 0, contract_error()));
        IS(MC_ERR_INVALID_KEY, mc_store_remove(store, key, length, 0, contract_error()));
    }
    IS(MC_ERR_INVALID_KEY, mc_store_put(store, NULL, 3, "v", 1, NULL, contract_error()));
    IS(MC_ERR_INVALID_KEY, mc_store_get(store, NULL, 3, got, 7, 0, contract_error()));
}

static void a_put_leaves_what_is_there_alone(void **state) {
    const struct cluster *cluster = *state;
    mc_store *other = cluster_join(cluster, 0, 0, NULL);
    char got[16];

    OK(PUT(cluster->store, "once", "first", 5));
    IS(MC_ERR_ALREADY_EXISTS, PUT(cluster->store, "once", "again!", 6));
    IS(MC_ERR_ALREADY_EXISTS, PUT(other, "once", "other", 5));
    IS(5, GET(cluster->store, "once", got, sizeof(got)));
    assert_memory_equal(got, "first", 5);
    IS(5, GET(other, "once", got, sizeof(got)));
    assert_memory_equal(got, "first", 5);
    OK(REMOVE(other, "once"));
    OK(PUT(cluster->store, "once", "again!", 6));
    IS(6, GET(other, "once", got, sizeof(got)));
    assert_memory_equal(got, "again!", 6);
    OK(mc_store_close(other));
}

static void after_an_upsert_nobody_reads_the_old_value(void **state) {
    static const uint64_t sizes[] = {100, 100, 5000, 0, 64, 100000, 24};
    const struct cluster *cluster = *state;
    mc_store *other = cluster_join(cluster, 0, 0, NULL);
    uint8_t value[100000], got[100000];

    for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        value_make(value, sizes[i], 7, i);
        OK(UPSERT(i % 2 == 0 ? cluster->store : other, "changing", value, sizes[i]));
        for (int round = 0; round < 4; round++) {
            IS((int32_t)sizes[i], GET(round % 2 == 0 ? cluster->store : other, "changing", got, sizeof(got)));
            assert_same(got, value, sizes[i]);
        }
        IS((int32_t)sizes[i], SIZE(other, "changing"));
    }
    cluster_await_live(cluster, 1); /* the old ones leave the pool, too */
    OK(mc_store_close(other));
}

static void a_buffer_must_have_room_for_the_whole_value(void **state) {
    const struct cluster *cluster = *state;
    mc_store *other = cluster_join(cluster, 0, 0, NULL);
    char got[101];

    OK(PUT(cluster->store, "hundred", memset(got, 'v', 100), 100));
    for (int round = 0; round < 2; round++) {
        mc_store *store = round == 0 ? cluster->store : other;

        memset(got, '#', sizeof(got));
        IS(MC_ERR_BUFFER_TOO_SMALL, GET(store, "hundred", got, 99));
        IS(MC_ERR_BUFFER_TOO_SMALL, GET(store, "hundred", NULL, 0));
        assert_int_equal(got[99], '#');
        IS(100, GET(store, "hundred", got, 100));
        assert_int_equal(got[99], 'v');
        assert_int_equal(got[100], '#');
        IS(100, GET(store, "hundred", got, 101));
        IS(MC_ERR_BUFFER_TOO_SMALL, GET(store, "hundred", got, 99)); /* known by now */
        OK(UPSERT(cluster->store, "hundred", got, 100));
    }
    OK(UPSERT(cluster->store, "hundred", "short", 5)); /* what the cache says is too long now */
    IS(5, GET(other, "hundred", got, 5));
    OK(mc_store_close(other));
}

static void a_removed_key_is_found_by_nobody(void **state) {
    const struct cluster *cluster = *state;
    mc_store *other = cluster_join(cluster, 0, 0, NULL);
    char got[8];

    for (int round = 0; round < 20; round++) {
        OK(PUT(cluster->store, "going", "value", 5));
        IS(5, GET(other, "going", got, sizeof(got)));
        IS(1, EXISTS(other, "going"));
        OK(REMOVE(round % 2 == 0 ? cluster->store : other, "going"));
        IS(MC_ERR_NOT_FOUND, GET(other, "going", got, sizeof(got)));
        IS(MC_ERR_NOT_FOUND, GET(cluster->store, "going", got, sizeof(got)));
        IS(MC_ERR_NOT_FOUND, REMOVE(other, "going"));
        IS(0, EXISTS(cluster->store, "going"));
    }
    OK(mc_store_close(other));
}

static void a_value_larger_than_every_segment_is_refused(void **state) {
    mc_store *store = ((const struct cluster *)*state)->store;
    const struct mc_put_options quick = {.struct_size = sizeof(quick), .timeout_ns = 30 * SECOND};
    uint8_t *value = calloc(1, POOL + 1);
    uint64_t begin = now_ns();
    int32_t status;

    assert_non_null(value);
    status = mc_store_put(store, TEXT("huge"), value, POOL + 1, &quick, contract_error());
    assert_true(status == MC_ERR_NO_SPACE || status == MC_ERR_TOO_LARGE);
    assert_true(now_ns() - begin < 10 * SECOND); /* at once: no wait can cure it */
    IS(0, EXISTS(store, "huge"));
    free(value);
}

static void what_another_process_puts_is_read_here_and_the_other_way_round(void **state) {
    const struct cluster *cluster = *state;
    struct actor *actor = actor_start(cluster->address, 0, NULL);
    uint8_t value[3000];

    OK((int32_t)actor_ask(actor, "put theirs 1 2000"));
    IS(2000, GET(cluster->store, "theirs", value, sizeof(value)));
    assert_true(value_is_of(value, 2000, 6));
    value_make(value, 3000, 4, 9);
    OK(PUT(cluster->store, "ours", value, 3000));
    IS(9, actor_ask(actor, "get ours 4"));
    value_make(value, 2500, 6, 2);
    OK(UPSERT(cluster->store, "theirs", value, 2500));
    IS(2, actor_ask(actor, "get theirs 6"));
    OK((int32_t)actor_ask(actor, "upsert ours 10 1000"));
    IS(1000, GET(cluster->store, "ours", value, sizeof(value)));
    assert_int_equal(value_version(value), 10);
    OK((int32_t)actor_ask(actor, "remove ours"));
    IS(MC_ERR_NOT_FOUND, GET(cluster->store, "ours", value, sizeof(value)));
    OK(REMOVE(cluster->store, "theirs"));
    IS(MC_ERR_NOT_FOUND, actor_ask(actor, "get theirs 6"));
    actor_stop(actor);
}

static const struct CMUnitTest tests[] = {
    STORE_TEST(values_of_every_size_come_back_exactly),
    STORE_TEST(a_missing_key_is_not_an_empty_value),
    STORE_TEST(keys_are_any_bytes),
    STORE_TEST(keys_have_1_to_4096_bytes),
    STORE_TEST(a_put_leaves_what_is_there_alone),
    STORE_TEST(after_an_upsert_nobody_reads_the_old_value),
    STORE_TEST(a_buffer_must_have_room_for_the_whole_value),
    STORE_TEST(a_removed_key_is_found_by_nobody),
    STORE_TEST(a_value_larger_than_every_segment_is_refused),
    STORE_TEST(what_another_process_puts_is_read_here_and_the_other_way_round),
};

CONTRACT_PART(store_values, tests);

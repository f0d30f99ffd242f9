/* test_pools.c - a pool that is full: what goes, what stays, and what a put does meanwhile. Each test has a small pool of
 * its own. */
#include "store_contract.h"

#include <stdatomic.h>

#define SMALL (4 * MIB)
#define PIECE ((size_t)100000)
#define A_SECOND (contract_scaled(10) < 10 ? 10 * SECOND : SECOND) /* for a put that needs space */
#define SHORT (200 * MILLISECOND)

static uint8_t piece[PIECE];

static int32_t put_piece(mc_store *store, const char *name, unsigned i, uint32_t flags, uint64_t timeout) {
    const struct mc_put_options options = {.struct_size = sizeof(options), .flags = flags, .timeout_ns = timeout};
    char key[32];

    snprintf(key, sizeof(key), "%s-%u", name, i);
    value_make(piece, PIECE, i, 1);
    return mc_store_put(store, TEXT(key), piece, PIECE, &options, contract_error());
}

static int32_t has(mc_store *store, const char *name, unsigned i) {
    char key[32];

    snprintf(key, sizeof(key), "%s-%u", name, i);
    return EXISTS(store, key);
}

static bool is_whole(mc_store *store, const char *name, unsigned i) {
    static uint8_t got[PIECE];
    char key[32];

    snprintf(key, sizeof(key), "%s-%u", name, i);
    return GET(store, key, got, PIECE) == (int64_t)PIECE && value_is_of(got, PIECE, i);
}

/* Fills the pool with hard-pinned pieces; how many there are. */
static unsigned fill_pinned(mc_store *store) {
    unsigned count = 0;
    int32_t status;

    while ((status = put_piece(store, "pinned", count, MC_PUT_HARD_PIN, SHORT)) == MC_OK)
        count++;
    IS(MC_ERR_NO_SPACE, status);
    assert_in_range(count, SMALL / PIECE / 2, SMALL / PIECE);
    return count;
}

struct probing {
    mc_store *store;
    atomic_bool stop;
    atomic_uint probes;
};

static void *probe(void *context) {
    struct worker *worker = context;
    struct probing *probing = worker->context;

    while (!atomic_load(&probing->stop))
        for (unsigned i = 0; i < 100; i++) {
            EXPECT(worker, has(probing->store, "plain", i) >= 0);
            atomic_fetch_add(&probing->probes, 1);
        }
    return NULL;
}

static void a_put_into_a_full_pool_succeeds_within_a_second_though_all_is_probed(void **state) {
    struct cluster *cluster = cluster_open(SMALL);
    struct probing probing = {.store = cluster_join(cluster, 0, 0, NULL)};
    struct worker worker = {.context = &probing};
    unsigned left = 0;

    (void)state;
    worker_start(&worker, probe);
    while (atomic_load(&probing.probes) < 100)
        ;
    for (unsigned i = 0; i < 150; i++) {
        uint64_t begin = now_ns();

        OK(put_piece(cluster->store, "plain", i, 0, 0));
        assert_true(now_ns() - begin < A_SECOND);
    }
    atomic_store(&probing.stop, true);
    worker_join(&worker);
    for (unsigned i = 0; i < 150; i++)
        left += has(cluster->store, "plain", i) == 1;
    assert_in_range(left, SMALL / PIECE / 2, SMALL / PIECE);
    assert_true(is_whole(cluster->store, "plain", 149)); /* the last one is there, of course */
    OK(mc_store_close(probing.store));
    cluster_close(cluster);
}

/* Only what is promoted can be evicted. */
static void await_promoted(const struct cluster *cluster) {
    uint64_t deadline = now_ns() + PROMPT;

    while (cluster_number(cluster, "reserved") > store_number(cluster->store, "stock") && now_ns() < deadline)
        usleep(100);
}

static void soft_pins_go_only_when_nothing_else_is_left(void **state) {
    struct cluster *cluster = cluster_open(SMALL);

    (void)state;
    for (unsigned i = 0; i < 10; i++)
        OK(put_piece(cluster->store, "soft", i, MC_PUT_SOFT_PIN, 0));
    for (unsigned i = 0; i < 120; i++) {
        OK(put_piece(cluster->store, "plain", i, 0, 0));
        await_promoted(cluster);
    }
    for (unsigned i = 0; i < 10; i++)
        assert_true(is_whole(cluster->store, "soft", i));
    for (unsigned i = 10; i < 120; i++)
        OK(put_piece(cluster->store, "soft", i, MC_PUT_SOFT_PIN, 0));
    IS(0, has(cluster->store, "soft", 0));
    IS(0, has(cluster->store, "plain", 119));
    assert_true(is_whole(cluster->store, "soft", 119));
    cluster_close(cluster);
}

static void hard_pins_never_go(void **state) {
    struct cluster *cluster = cluster_open(SMALL);
    unsigned count;
    uint64_t begin;

    (void)state;
    for (unsigned i = 0; i < 60; i++)
        OK(put_piece(cluster->store, "plain", i, 0, 0));
    count = fill_pinned(cluster->store);
    for (unsigned i = 0; i < 60; i++)
        IS(0, has(cluster->store, "plain", i));
    begin = now_ns();
    IS(MC_ERR_NO_SPACE, put_piece(cluster->store, "plain", 0, 0, SHORT));
    assert_true(now_ns() - begin >= SHORT && now_ns() - begin < SHORT + 5 * SECOND);
    for (unsigned i = 0; i < count; i++)
        assert_true(is_whole(cluster->store, "pinned", i));
    for (unsigned i = 0; i < 6; i++) { /* enough for it to stay: a pool is never kept quite full */
        char key[32];

        snprintf(key, sizeof(key), "pinned-%u", i);
        OK(REMOVE(cluster->store, key));
    }
    OK(put_piece(cluster->store, "plain", 0, 0, 0));
    assert_true(is_whole(cluster->store, "plain", 0));
    cluster_close(cluster);
}

static void an_upsert_without_space_leaves_the_old_value(void **state) {
    const struct mc_put_options brief = {.struct_size = sizeof(brief), .flags = MC_PUT_HARD_PIN, .timeout_ns = SHORT};
    static uint8_t larger[2 * PIECE];
    struct cluster *cluster = cluster_open(SMALL);
    unsigned count = fill_pinned(cluster->store);

    (void)state;
    value_make(larger, sizeof(larger), 2, 2);
    for (int i = 0; i < 3; i++) {
        IS(MC_ERR_NO_SPACE,
           mc_store_upsert(cluster->store, TEXT("pinned-2"), larger, sizeof(larger), &brief, contract_error()));
        assert_true(is_whole(cluster->store, "pinned", 2));
    }
    OK(REMOVE(cluster->store, "pinned-3"));
    OK(REMOVE(cluster->store, "pinned-4"));
    OK(REMOVE(cluster->store, "pinned-5"));
    OK(mc_store_upsert(cluster->store, TEXT("pinned-2"), larger, sizeof(larger), NULL, contract_error()));
    IS(sizeof(larger), SIZE(cluster->store, "pinned-2"));
    assert_true(is_whole(cluster->store, "pinned", count - 1));
    cluster_close(cluster);
}

struct replacing {
    mc_store *store;
    atomic_bool done;
};

static void *replace(void *context) {
    struct worker *worker = context;
    struct replacing *replacing = worker->context;
    static uint8_t larger[2 * PIECE];

    value_make(larger, sizeof(larger), 2, 2);
    EXPECT(worker, mc_store_upsert(replacing->store, TEXT("pinned-2"), larger, sizeof(larger), NULL, NULL) == MC_OK);
    atomic_store(&replacing->done, true);
    return NULL;
}

static void an_upsert_that_waits_for_space_leaves_the_old_value_until_it_has_it(void **state) {
    struct cluster *cluster = cluster_open(SMALL);
    struct replacing replacing = {.store = cluster_join(cluster, 0, 0, NULL)};
    struct worker worker = {.context = &replacing};
    uint64_t end;

    (void)state;
    fill_pinned(cluster->store);
    worker_start(&worker, replace);
    for (end = now_ns() + 100 * MILLISECOND; now_ns() < end;)
        assert_true(is_whole(cluster->store, "pinned", 2));
    assert_false(atomic_load(&replacing.done));
    for (unsigned i = 5; i < 9; i++) {
        char key[32];

        snprintf(key, sizeof(key), "pinned-%u", i);
        OK(REMOVE(cluster->store, key));
    }
    worker_join(&worker);
    IS(2 * PIECE, SIZE(cluster->store, "pinned-2"));
    OK(mc_store_close(replacing.store));
    cluster_close(cluster);
}

static void a_batch_larger_than_the_pool_is_put_as_far_as_it_goes(void **state) {
    struct cluster *cluster = cluster_open(SMALL);
    const struct mc_put_options options = {
        .struct_size = sizeof(options), .flags = MC_PUT_HARD_PIN, .timeout_ns = 2 * SECOND};
    struct mc_keys keys = keys_make("batch", 100);
    const void *values[100];
    uint64_t lengths[100];
    int32_t statuses[100];
    unsigned done = 0;

    (void)state;
    value_make(piece, PIECE, 1, 1);
    for (size_t i = 0; i < 100; i++) {
        values[i] = piece;
        lengths[i] = PIECE;
    }
    IS(MC_ERR_NO_SPACE,
       mc_store_put_batch(cluster->store, &keys, values, lengths, &options, statuses, contract_error()));
    for (unsigned i = 0; i < 100; i++) {
        assert_true(statuses[i] == MC_OK || statuses[i] == MC_ERR_NO_SPACE);
        IS(statuses[i] == MC_OK, has(cluster->store, "batch", i));
        done += statuses[i] == MC_OK;
    }
    assert_in_range(done, SMALL / PIECE / 2, SMALL / PIECE);
    cluster_await_live(cluster, done);
    keys_free(&keys);
    cluster_close(cluster);
}

/* What was written and didn't come to be, or was put and removed, costs nothing in the end. */
static void space_comes_back_wholly(void **state) {
    struct cluster *cluster = cluster_open(SMALL);
    uint8_t *value = calloc(1, 3 * MIB);

    (void)state;
    assert_non_null(value);
    for (int round = 0; round < 5; round++) {
        for (unsigned i = 0; i < 20; i++)
            OK(put_piece(cluster->store, "piece", i, MC_PUT_HARD_PIN, 0));
        for (unsigned i = 0; i < 20; i++)
            IS(MC_ERR_ALREADY_EXISTS, put_piece(cluster->store, "piece", i, 0, 0));
        IS(20, (int32_t)mc_store_remove_all(cluster->store, 0, contract_error()));
        OK(PUT(cluster->store, "whole", value, 3 * MIB)); /* most of the pool in one */
        OK(REMOVE(cluster->store, "whole"));
    }
    free(value);
    cluster_close(cluster);
}

static const struct CMUnitTest tests[] = {
    STORE_TEST(a_put_into_a_full_pool_succeeds_within_a_second_though_all_is_probed),
    STORE_TEST(soft_pins_go_only_when_nothing_else_is_left),
    STORE_TEST(hard_pins_never_go),
    STORE_TEST(an_upsert_without_space_leaves_the_old_value),
    STORE_TEST(an_upsert_that_waits_for_space_leaves_the_old_value_until_it_has_it),
    STORE_TEST(a_batch_larger_than_the_pool_is_put_as_far_as_it_goes),
    STORE_TEST(space_comes_back_wholly),
};

CONTRACT_PART(store_pools, tests);

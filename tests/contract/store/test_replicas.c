/* test_replicas.c - objects in several segments, and in those that the caller prefers. */
#include "store_contract.h"

static const char *const both[] = {"second", "pool"};

/* A client that knows of all segments: one that is open already hears of a new one within a second. */
static mc_store *join_late(const struct cluster *cluster) {
    return cluster_join(cluster, 0, 0, NULL);
}

static struct mc_put_options options_of(uint32_t replicas, uint32_t preferred) {
    return (struct mc_put_options){.struct_size = sizeof(struct mc_put_options),
                                   .replicas = replicas,
                                   .preferred = both,
                                   .preferred_count = preferred};
}

/* Waits until this store's segment holds so many. */
static void await_live(mc_store *store, uint64_t count) {
    uint64_t deadline = now_ns() + PROMPT;

    while ((store_number(store, "live") != count || store_number(store, "dead") != 0) && now_ns() < deadline)
        usleep(1000);
    assert_int_equal(store_number(store, "live"), count);
}

static void a_replicated_object_is_in_two_segments_and_leaves_both(void **state) {
    const struct cluster *cluster = *state;
    mc_store *second = cluster_join(cluster, 0, 4 * MIB, "second"), *late = join_late(cluster);
    const struct mc_put_options options = options_of(2, 2);
    static uint8_t value[50000], got[50000];

    for (uint32_t round = 1; round <= 3; round++) {
        value_make(value, sizeof(value), 1, round);
        OK(mc_store_upsert(late, TEXT("twice"), value, sizeof(value), &options, contract_error()));
        await_live(second, 1);
        cluster_await_live(cluster, 1);
        IS(sizeof(got), GET(second, "twice", got, sizeof(got)));
        assert_same(got, value, sizeof(value));
        IS(sizeof(got), GET(cluster->store, "twice", got, sizeof(got)));
        assert_same(got, value, sizeof(value));
    }
    OK(REMOVE(cluster->store, "twice"));
    IS(MC_ERR_NOT_FOUND, GET(second, "twice", got, sizeof(got)));
    await_live(second, 0);
    cluster_await_live(cluster, 0);
    OK(mc_store_close(second));
    OK(mc_store_close(late));
}

static void a_replica_is_enough_when_the_other_ones_owner_has_left(void **state) {
    struct cluster *cluster = cluster_open(4 * MIB); /* removing from it would wait for a lease */
    mc_store *second = cluster_join(cluster, 0, 4 * MIB, "second"), *late = join_late(cluster);
    const struct mc_put_options twice = options_of(2, 2), once = options_of(1, 1);
    static uint8_t value[50000], got[50000];

    (void)state;
    value_make(value, sizeof(value), 1, 1);
    OK(mc_store_put(late, TEXT("twice"), value, sizeof(value), &twice, contract_error()));
    OK(mc_store_put(late, TEXT("once"), value, sizeof(value), &once, contract_error()));
    await_live(second, 2);
    IS(sizeof(got), GET(cluster->store, "twice", got, sizeof(got)));
    IS(sizeof(got), GET(cluster->store, "once", got, sizeof(got)));
    OK(mc_store_close(second));
    memset(got, 0, sizeof(got));
    IS(sizeof(got), GET(cluster->store, "twice", got, sizeof(got)));
    assert_same(got, value, sizeof(value));
    IS(0, EXISTS(cluster->store, "once"));
    cluster_await_live(cluster, 1);
    OK(mc_store_close(late));
    cluster_close(cluster);
}

static void a_replica_is_enough_when_the_other_ones_owner_is_killed(void **state) {
    struct cluster *cluster = cluster_open(4 * MIB); /* removing from it would wait for a lease */
    struct actor *actor = actor_start(cluster->address, 4 * MIB, "second");
    mc_store *late = join_late(cluster);
    const struct mc_put_options twice = options_of(2, 2);
    static uint8_t value[50000], got[50000];

    (void)state;
    value_make(value, sizeof(value), 1, 1);
    OK(mc_store_put(late, TEXT("twice"), value, sizeof(value), &twice, contract_error()));
    IS(1, actor_ask(actor, "get twice 1"));
    actor_kill(actor);
    for (int i = 0; i < 3; i++) {
        memset(got, 0, sizeof(got));
        IS(sizeof(got), GET(cluster->store, "twice", got, sizeof(got)));
        assert_same(got, value, sizeof(value));
    }
    OK(mc_store_close(late));
    cluster_close(cluster);
}

static void more_replicas_than_owners_are_made_as_far_as_it_goes(void **state) {
    const struct cluster *cluster = *state;
    mc_store *second = cluster_join(cluster, 0, 4 * MIB, "second"), *late = join_late(cluster);
    const struct mc_put_options options = options_of(MC_REPLICAS_MAX, 0);
    char got[100];

    OK(mc_store_put(late, TEXT("eight"), memset(got, 'v', 100), 100, &options, contract_error()));
    await_live(second, 1);
    cluster_await_live(cluster, cluster->owner != NULL ? 2 : 1); /* the master's own little segment counts */
    OK(REMOVE(second, "eight"));
    cluster_await_live(cluster, 0);
    OK(mc_store_close(second));
    OK(mc_store_close(late));
}

static void a_preferred_segment_is_taken_while_it_has_space(void **state) {
    static const char *const unknown[] = {"nobody", "", "second"};
    const struct cluster *cluster = *state;
    mc_store *second = cluster_join(cluster, 0, MIB, "second"), *late = join_late(cluster);
    struct mc_put_options options = options_of(1, 1);
    static uint8_t value[40000];
    char key[32];

    for (unsigned i = 0; i < 10; i++) {
        snprintf(key, sizeof(key), "near-%u", i);
        options.preferred = i % 2 == 0 ? both : unknown;
        options.preferred_count = i % 2 == 0 ? 1 : 3;
        OK(mc_store_put(late, TEXT(key), value, sizeof(value), &options, contract_error()));
    }
    await_live(second, 10);
    cluster_await_live(cluster, 0);
    options.flags = MC_PUT_HARD_PIN;
    for (unsigned i = 10; i < 60; i++) { /* more than fit, beside those which are evicted */
        snprintf(key, sizeof(key), "near-%u", i);
        OK(mc_store_put(late, TEXT(key), value, sizeof(value), &options, contract_error()));
    }
    assert_true(cluster_number(cluster, "live") > 0);
    for (unsigned i = 10; i < 60; i++) {
        snprintf(key, sizeof(key), "near-%u", i);
        IS(1, EXISTS(cluster->store, key));
    }
    OK(mc_store_close(second));
    OK(mc_store_close(late));
}

static void replicas_are_told_with_their_segments_and_owners(void **state) {
    const struct cluster *cluster = *state;
    mc_store *second = cluster_join(cluster, 0, 4 * MIB, "second"), *late = join_late(cluster);
    const struct mc_put_options options = options_of(2, 2);
    struct mc_keys keys = keys_make("told", 3);
    struct mc_replica replicas[3 * 2];
    char address[ADDRESS_TEXT];
    int32_t counts[3];
    int seconds = 0;

    OK(mc_store_put(late, TEXT("told-0"), "value", 5, &options, contract_error()));
    OK(PUT(late, "told-2", "", 0));
    assert_true(mc_store_address(second, address, sizeof(address)) > 0);
    memset(replicas, 0xa5, sizeof(replicas));
    IS(MC_ERR_NOT_FOUND, mc_store_replicas(late, &keys, 0, replicas, 2, sizeof(replicas[0]), counts, contract_error()));
    assert_int_equal(counts[0], 2);
    assert_int_equal(counts[1], MC_ERR_NOT_FOUND);
    assert_int_equal(counts[2], 1);
    for (int i = 0; i < 2; i++) {
        bool is_second = strcmp(replicas[i].segment, "second") == 0;

        seconds += is_second;
        assert_int_equal(strcmp(replicas[i].address, address) == 0, is_second);
        assert_int_equal(replicas[i].length, 5);
        assert_true(replicas[i].offset > 0);
    }
    assert_int_equal(seconds, 1);
    assert_int_equal(replicas[4].length, 0);
    assert_int_equal(((uint8_t *)&replicas[5])[0], 0xa5); /* nothing is written beyond the count */
    /* Of more than there is room for, as many as there is. */
    keys.count = 1;
    memset(replicas, 0xa5, sizeof(replicas));
    OK(mc_store_replicas(late, &keys, 0, replicas, 1, sizeof(replicas[0]), counts, contract_error()));
    assert_int_equal(counts[0], 2);
    assert_int_equal(((uint8_t *)&replicas[1])[0], 0xa5);
    IS(MC_ERR_INVALID_ARGUMENT,
       mc_store_replicas(late, &keys, 0, replicas, 1, sizeof(replicas[0]) - 8, counts, contract_error()));
    IS(MC_ERR_INVALID_ARGUMENT,
       mc_store_replicas(late, &keys, 0, replicas, MC_REPLICAS_MAX + 1, sizeof(replicas[0]), counts, contract_error()));
    keys.count = 3;
    keys_free(&keys);
    OK(mc_store_close(second));
    OK(mc_store_close(late));
}

static const struct CMUnitTest tests[] = {
    STORE_TEST(replicas_are_told_with_their_segments_and_owners),
    STORE_TEST(a_replicated_object_is_in_two_segments_and_leaves_both),
    STORE_TEST(a_replica_is_enough_when_the_other_ones_owner_has_left),
    STORE_TEST(a_replica_is_enough_when_the_other_ones_owner_is_killed),
    STORE_TEST(more_replicas_than_owners_are_made_as_far_as_it_goes),
    STORE_TEST(a_preferred_segment_is_taken_while_it_has_space),
};

CONTRACT_PART(store_replicas, tests);

/* test_damage.c - a byte that has changed in a segment: never wrong bytes where checksums are compared, which is
 * everywhere but on mapped memory without MC_STORE_VERIFY. The segments are this process's own; a view, which is of the
 * segment itself, leads to the bytes. */
#include "store_contract.h"

#define LENGTH ((size_t)5000)

/* An owner in this process, and those who read from it: by mapped memory (or as the path wants), with checks, by TCP. */
struct damaged {
    mc_store *owner, *plain, *checking, *far;
    uint8_t value[LENGTH];
};

static mc_store *join_by_tcp(const struct cluster *cluster) {
    const struct mc_engine_options engine = {.struct_size = sizeof(engine), .protocol = "tcp"};
    const struct mc_store_options options = {
        .struct_size = sizeof(options), .master = cluster->address, .engine_options = &engine};
    mc_store *store;

    OK(mc_store_open(&options, &store, contract_error()));
    return store;
}

static void damaged_open(const struct cluster *cluster, struct damaged *damaged) {
    damaged->owner = cluster_join(cluster, 0, MIB, "here");
    damaged->plain = cluster_join(cluster, 0, 0, NULL);
    damaged->checking = cluster_join(cluster, MC_STORE_VERIFY, 0, NULL);
    damaged->far = join_by_tcp(cluster);
    value_make(damaged->value, LENGTH, 1, 1);
}

static void damaged_close(struct damaged *damaged) {
    OK(mc_store_close(damaged->far));
    OK(mc_store_close(damaged->checking));
    OK(mc_store_close(damaged->plain));
    OK(mc_store_close(damaged->owner));
}

/* Changes one byte of the value where it lies. */
static void flip(mc_store *owner, const char *key, size_t index) {
    const void *data;
    uint64_t view;

    IS(LENGTH, VIEW(owner, key, &view, &data));
    ((uint8_t *)(uintptr_t)data)[index] ^= 0x40;
    OK(mc_view_release(view));
}

static void put_here(const struct damaged *damaged, const char *key, uint32_t replicas) {
    static const char *const preferred[] = {"here", "pool"};
    const struct mc_put_options options = {
        .struct_size = sizeof(options), .replicas = replicas, .preferred = preferred, .preferred_count = replicas};

    OK(mc_store_put(damaged->owner, TEXT(key), damaged->value, LENGTH, &options, contract_error()));
}

static int32_t get_in_two(mc_store *store, const char *key, uint8_t *buffer) {
    const struct mc_piece pieces[] = {{buffer, 100, 0}, {buffer + 100, LENGTH - 100, 0}};
    uint32_t length = (uint32_t)strlen(key), count = 2;
    const struct mc_keys keys = {.bytes = key, .lengths = &length, .count = 1};
    int64_t found;

    return mc_store_get_pieces(store, &keys, pieces, &count, 0, 0, &found, contract_error());
}

static void expect_mismatch(mc_store *store, const char *key) {
    uint8_t got[LENGTH];
    const void *data = NULL;
    uint64_t view = 0;

    for (int i = 0; i < 2; i++) {
        IS(MC_ERR_CHECKSUM_MISMATCH, GET(store, key, got, LENGTH));
        IS(MC_ERR_CHECKSUM_MISMATCH, get_in_two(store, key, got));
        IS(MC_ERR_CHECKSUM_MISMATCH, VIEW(store, key, &view, &data));
    }
    assert_true(view == 0 && data == NULL);
    IS(LENGTH, SIZE(store, key));
}

static void expect_whole(mc_store *store, const char *key, const uint8_t *value) {
    uint8_t got[LENGTH];
    const void *data;
    uint64_t view;

    for (int i = 0; i < 2; i++) {
        IS(LENGTH, GET(store, key, got, LENGTH));
        assert_same(got, value, LENGTH);
        IS(LENGTH, VIEW(store, key, &view, &data));
        assert_same(data, value, LENGTH);
        OK(mc_view_release(view));
    }
}

static void a_flipped_byte_is_a_mismatch_over_tcp_and_where_verified(void **state) {
    struct damaged damaged;

    damaged_open(*state, &damaged);
    for (size_t i = 0; i < 3; i++) { /* in the first byte, in the middle, in the last */
        const char *key = i == 0 ? "first" : i == 1 ? "middle" : "last";

        put_here(&damaged, key, 1);
        expect_whole(damaged.far, key, damaged.value);
        flip(damaged.owner, key, i * (LENGTH - 1) / 2);
        expect_mismatch(damaged.far, key);
        expect_mismatch(damaged.checking, key);
        OK(REMOVE(damaged.owner, key));
    }
    damaged_close(&damaged);
}

static void without_verification_a_flipped_byte_is_seen_in_mapped_memory(void **state) {
    struct damaged damaged;

    damaged_open(*state, &damaged);
    put_here(&damaged, "seen", 1);
    expect_whole(damaged.plain, "seen", damaged.value);
    flip(damaged.owner, "seen", 77);
    damaged.value[77] ^= 0x40;
    expect_whole(damaged.owner, "seen", damaged.value);
    if (contract_is("tcp"))
        expect_mismatch(damaged.plain, "seen");
    else
        expect_whole(damaged.plain, "seen", damaged.value);
    OK(REMOVE(damaged.owner, "seen"));
    damaged_close(&damaged);
}

static void of_two_replicas_the_good_one_is_read(void **state) {
    struct damaged damaged;

    damaged_open(*state, &damaged);
    for (int i = 0; i < 5; i++) { /* which one is damaged, and which tried first, is a matter of chance */
        char key[16];

        snprintf(key, sizeof(key), "twice-%d", i);
        put_here(&damaged, key, 2);
    }
    for (int i = 0; i < 5; i++) {
        char key[16];

        snprintf(key, sizeof(key), "twice-%d", i);
        flip(damaged.owner, key, 1234);
        expect_whole(damaged.far, key, damaged.value);
        expect_whole(damaged.checking, key, damaged.value);
        OK(REMOVE(damaged.owner, key));
    }
    damaged_close(&damaged);
}

static void a_damaged_object_can_be_replaced_and_is_whole_then(void **state) {
    struct damaged damaged;

    damaged_open(*state, &damaged);
    put_here(&damaged, "healed", 1);
    flip(damaged.owner, "healed", 0);
    expect_mismatch(damaged.far, "healed");
    IS(MC_ERR_ALREADY_EXISTS, PUT(damaged.far, "healed", damaged.value, LENGTH));
    OK(UPSERT(damaged.far, "healed", damaged.value, LENGTH));
    expect_whole(damaged.far, "healed", damaged.value);
    expect_whole(damaged.plain, "healed", damaged.value);
    OK(REMOVE(damaged.owner, "healed"));
    damaged_close(&damaged);
}

static const struct CMUnitTest tests[] = {
    STORE_TEST(a_flipped_byte_is_a_mismatch_over_tcp_and_where_verified),
    STORE_TEST(without_verification_a_flipped_byte_is_seen_in_mapped_memory),
    STORE_TEST(of_two_replicas_the_good_one_is_read),
    STORE_TEST(a_damaged_object_can_be_replaced_and_is_whole_then),
};

CONTRACT_PART(store_damage, tests);

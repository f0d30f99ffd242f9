/* test_batches.c - batches: each item has a result of its own, in order, and none disturbs another. */
#include "store_contract.h"

enum { MANY = 1000, LONGEST = 2000 };

/* Values of `count` items, item i's of length_of(i), in one piece. */
struct load {
    struct mc_keys keys;
    uint8_t *bytes, *room;
    const void *values[MANY];
    void *buffers[MANY];
    uint64_t lengths[MANY], capacities[MANY];
    int32_t statuses[MANY];
    int64_t found[MANY];
    uint64_t views[MANY];
    const void *data[MANY];
};

static uint64_t length_of(size_t i) {
    return i * 37 % LONGEST;
}

static struct load *load_make(const char *name, size_t count, uint32_t version) {
    struct load *load = calloc(1, sizeof(*load));

    assert_non_null(load);
    load->keys = keys_make(name, count);
    load->bytes = malloc(count * LONGEST);
    load->room = malloc(count * LONGEST);
    assert_true(load->bytes != NULL && load->room != NULL);
    for (size_t i = 0; i < count; i++) {
        load->values[i] = load->bytes + i * LONGEST;
        load->buffers[i] = load->room + i * LONGEST;
        load->lengths[i] = length_of(i);
        load->capacities[i] = LONGEST;
        value_make(load->bytes + i * LONGEST, load->lengths[i], (uint32_t)i, version);
    }
    return load;
}

static void load_free(struct load *load) {
    keys_free(&load->keys);
    free(load->bytes);
    free(load->room);
    free(load);
}

static int32_t put_load(mc_store *store, struct load *load, uint32_t flags) {
    const struct mc_put_options options = {.struct_size = sizeof(options), .flags = flags};

    return mc_store_put_batch(store, &load->keys, load->values, load->lengths, &options, load->statuses,
                              contract_error());
}

static int32_t get_load(mc_store *store, struct load *load) {
    return mc_store_get_batch(store, &load->keys, load->buffers, load->capacities, 0, load->found, contract_error());
}

static void assert_loaded(const struct load *load) {
    for (size_t i = 0; i < load->keys.count; i++) {
        assert_int_equal(load->found[i], load->lengths[i]);
        assert_same(load->buffers[i], load->values[i], load->lengths[i]);
    }
}

static void a_thousand_items_are_put_found_viewed_and_removed(void **state) {
    const struct cluster *cluster = *state;
    mc_store *other = cluster_join(cluster, 0, 0, NULL);
    struct load *load = load_make("many", MANY, 1);

    OK(put_load(cluster->store, load, 0));
    for (int round = 0; round < 2; round++) {
        memset(load->room, '#', MANY * LONGEST);
        OK(get_load(round == 0 ? cluster->store : other, load));
        assert_loaded(load);
    }
    OK(mc_store_size_batch(other, &load->keys, 0, load->found, contract_error()));
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(load->found[i], load->lengths[i]);
    OK(mc_store_exists_batch(other, &load->keys, 0, load->statuses, contract_error()));
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(load->statuses[i], 1);
    OK(mc_store_view_batch(other, &load->keys, 0, load->views, load->data, load->found, contract_error()));
    OK(mc_store_remove_batch(cluster->store, &load->keys, 0, load->statuses, contract_error()));
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(load->statuses[i], MC_OK);
        assert_int_equal(load->found[i], load->lengths[i]);
        assert_same(load->data[i], load->values[i], load->lengths[i]);
        OK(mc_view_release(load->views[i]));
    }
    IS(MC_ERR_NOT_FOUND, get_load(other, load));
    cluster_await_live(cluster, 0);
    OK(mc_store_close(other));
    load_free(load);
}

static void an_upsert_of_a_thousand_replaces_each(void **state) {
    const struct cluster *cluster = *state;
    struct load *old = load_make("many", MANY, 1), *new = load_make("many", MANY, 2);

    OK(put_load(cluster->store, old, 0));
    IS(MC_ERR_ALREADY_EXISTS, put_load(cluster->store, new, 0));
    OK(get_load(cluster->store, old));
    assert_loaded(old);
    OK(put_load(cluster->store, new, MC_PUT_UPSERT));
    memset(new->room, '#', MANY * LONGEST);
    OK(get_load(cluster->store, new));
    assert_loaded(new);
    cluster_await_live(cluster, MANY);
    load_free(old);
    load_free(new);
}

static void bad_items_of_a_put_leave_the_others_done_and_nothing_behind(void **state) {
    const struct cluster *cluster = *state;
    struct load *load = load_make("item", 8, 1);
    uint32_t *lengths = (uint32_t *)(uintptr_t)load->keys.lengths;
    void *huge = calloc(1, POOL + MIB);

    assert_non_null(huge);
    OK(PUT(cluster->store, "item-3", "first", 5));
    cluster_await_live(cluster, 1);
    lengths[1] = 0; /* its bytes become part of the next key: "item-1item-2", less its tail */
    lengths[2] += 6;
    load->lengths[5] = POOL + MIB; /* no space, ever */
    load->values[5] = huge;
    IS(MC_ERR_INVALID_KEY, put_load(cluster->store, load, 0));
    for (size_t i = 0; i < 8; i++) {
        const int32_t wanted = i == 1   ? MC_ERR_INVALID_KEY
                               : i == 3 ? MC_ERR_ALREADY_EXISTS
                               : i == 5 ? load->statuses[5]
                                        : MC_OK;

        assert_int_equal(load->statuses[i], wanted);
    }
    assert_true(load->statuses[5] == MC_ERR_NO_SPACE || load->statuses[5] == MC_ERR_TOO_LARGE);
    IS(MC_ERR_INVALID_KEY, get_load(cluster->store, load));
    assert_int_equal(load->found[1], MC_ERR_INVALID_KEY);
    assert_int_equal(load->found[3], 5);
    assert_int_equal(load->found[5], MC_ERR_NOT_FOUND);
    for (size_t i = 0; i < 8; i++)
        if (i != 1 && i != 3 && i != 5) {
            assert_int_equal(load->found[i], load->lengths[i]);
            assert_same(load->buffers[i], load->values[i], load->lengths[i]);
        }
    cluster_await_live(cluster, 6);
    load_free(load);
    free(huge);
}

static void bad_items_of_other_calls_leave_the_others_done(void **state) {
    const struct cluster *cluster = *state;
    struct load *load = load_make("item", 6, 1);
    uint32_t *lengths = (uint32_t *)(uintptr_t)load->keys.lengths;

    OK(put_load(cluster->store, load, 0));
    OK(REMOVE(cluster->store, "item-2"));
    load->capacities[3] = load->lengths[3] - 1;
    IS(MC_ERR_NOT_FOUND, get_load(cluster->store, load));
    assert_int_equal(load->found[2], MC_ERR_NOT_FOUND);
    assert_int_equal(load->found[3], MC_ERR_BUFFER_TOO_SMALL);
    IS(MC_ERR_NOT_FOUND, mc_store_size_batch(cluster->store, &load->keys, 0, load->found, contract_error()));
    assert_int_equal(load->found[2], MC_ERR_NOT_FOUND);
    assert_int_equal(load->found[3], load->lengths[3]);
    OK(mc_store_exists_batch(cluster->store, &load->keys, 0, load->statuses, contract_error()));
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(load->statuses[i], i != 2);
    memset(load->views, 0, sizeof(load->views));
    IS(MC_ERR_NOT_FOUND,
       mc_store_view_batch(cluster->store, &load->keys, 0, load->views, load->data, load->found, contract_error()));
    assert_true(load->found[2] == MC_ERR_NOT_FOUND && load->views[2] == 0 && load->data[2] == NULL);
    for (size_t i = 0; i < 6; i++)
        if (i != 2) {
            assert_same(load->data[i], load->values[i], load->lengths[i]);
            OK(mc_view_release(load->views[i]));
        }
    lengths[4] = MC_KEY_MAX + 1;
    load->keys.count = 5; /* as far as the blob goes, the last one is too long to be looked at */
    IS(MC_ERR_NOT_FOUND, mc_store_remove_batch(cluster->store, &load->keys, 0, load->statuses, contract_error()));
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(load->statuses[i], i == 2 ? MC_ERR_NOT_FOUND : i == 4 ? MC_ERR_INVALID_KEY : MC_OK);
    cluster_await_live(cluster, 2);
    load_free(load);
}

static void a_value_or_buffer_that_is_no_memory_fails_by_itself(void **state) {
    const struct cluster *cluster = *state;
    struct load *load = load_make("item", 4, 1);

    load->values[1] = NULL;
    load->lengths[1] = 0; /* no bytes at NULL are a value */
    load->values[2] = NULL;
    load->values[3] = (const void *)(UINTPTR_MAX - 10);
    load->lengths[2] = load->lengths[3] = 100;
    IS(MC_ERR_INVALID_ARGUMENT, put_load(cluster->store, load, 0));
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(load->statuses[i], i < 2 ? MC_OK : MC_ERR_INVALID_ARGUMENT);
    cluster_await_live(cluster, 2);
    load->buffers[0] = NULL;
    IS(MC_ERR_INVALID_ARGUMENT, get_load(cluster->store, load));
    assert_int_equal(load->found[0], MC_ERR_INVALID_ARGUMENT);
    assert_int_equal(load->found[1], 0);
    assert_int_equal(load->found[2], MC_ERR_NOT_FOUND);
    load_free(load);
}

static void of_one_key_several_times_in_a_batch_one_is_put(void **state) {
    static const char bytes[] = "samesameother";
    static const uint32_t lengths[] = {4, 4, 5};
    const struct cluster *cluster = *state;
    const struct mc_keys keys = {bytes, lengths, 3};
    const struct mc_put_options upsert = {.struct_size = sizeof(upsert), .flags = MC_PUT_UPSERT};
    const void *values[] = {"first", "second", "third"};
    const uint64_t sizes[] = {5, 6, 5};
    int32_t statuses[3];
    int64_t found[3];
    char got[3][8];
    void *buffers[] = {got[0], got[1], got[2]};
    const uint64_t capacities[] = {8, 8, 8};

    IS(MC_ERR_ALREADY_EXISTS,
       mc_store_put_batch(cluster->store, &keys, values, sizes, NULL, statuses, contract_error()));
    assert_int_equal(statuses[0] + statuses[1], MC_ERR_ALREADY_EXISTS);
    OK(statuses[2]);
    OK(mc_store_get_batch(cluster->store, &keys, buffers, capacities, 0, found, contract_error()));
    assert_int_equal(found[0], statuses[0] == MC_OK ? 5 : 6);
    assert_memory_equal(got[0], statuses[0] == MC_OK ? "first" : "second", (size_t)found[0]);
    assert_int_equal(found[1], found[0]);
    assert_memory_equal(got[1], got[0], (size_t)found[0]);
    assert_memory_equal(got[2], "third", 5);
    OK(mc_store_put_batch(cluster->store, &keys, values, sizes, &upsert, statuses, contract_error()));
    OK(mc_store_get_batch(cluster->store, &keys, buffers, capacities, 0, found, contract_error()));
    assert_true(found[0] == 5 || found[0] == 6);
    assert_memory_equal(got[0], found[0] == 5 ? "first" : "second", (size_t)found[0]);
    cluster_await_live(cluster, 2);
    IS(MC_ERR_NOT_FOUND, mc_store_remove_batch(cluster->store, &keys, 0, statuses, contract_error()));
    assert_int_equal(statuses[0] + statuses[1], MC_ERR_NOT_FOUND);
    OK(statuses[2]);
    cluster_await_live(cluster, 0);
}

static const struct CMUnitTest tests[] = {
    STORE_TEST(a_thousand_items_are_put_found_viewed_and_removed),
    STORE_TEST(an_upsert_of_a_thousand_replaces_each),
    STORE_TEST(bad_items_of_a_put_leave_the_others_done_and_nothing_behind),
    STORE_TEST(bad_items_of_other_calls_leave_the_others_done),
    STORE_TEST(a_value_or_buffer_that_is_no_memory_fails_by_itself),
    STORE_TEST(of_one_key_several_times_in_a_batch_one_is_put),
};

CONTRACT_PART(store_batches, tests);

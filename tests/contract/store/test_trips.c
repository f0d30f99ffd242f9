/* test_trips.c - what calls cost, counted on the wire: requests to the master and to the owner, and which of them travel
 * together. The client under test reaches both through meters. */
#include "store_contract.h"

#include "meter.h"

enum { BATCH = 32, LENGTH = 1000 };

/* The owner listens at one loopback address and tells another, where its meter is, with the same port. */
struct rig {
    struct meter *master, *owner;
    mc_store *holder; /* the owner's store */
    mc_store *client;
    uint64_t before[2][METER_TYPES];
};

static const char *const metered[] = {"metered"};
static const struct mc_put_options there = {.struct_size = sizeof(there), .preferred = metered, .preferred_count = 1};
static uint8_t value[BATCH][LENGTH];

static mc_store *open_holder(const struct cluster *cluster, uint16_t port) {
    char listen[32];
    const struct mc_engine_options engine = {.struct_size = sizeof(engine),
                                             .listen = listen,
                                             .advertise = "127.0.0.2",
                                             .protocol = contract_is("tcp") ? "tcp" : NULL};
    const struct mc_store_options options = {.struct_size = sizeof(options),
                                             .master = cluster->address,
                                             .name = "metered",
                                             .segment_size = 4 * MIB,
                                             .engine_options = &engine};
    mc_store *store;

    snprintf(listen, sizeof(listen), "127.0.0.1:%u", port);
    OK(mc_store_open(&options, &store, contract_error()));
    return store;
}

static void rig_open(const struct cluster *cluster, struct rig *rig) {
    struct cluster through = {0};

    rig->owner = meter_open("127.0.0.2");
    rig->holder = open_holder(cluster, meter_port(rig->owner));
    meter_serve(rig->owner, "127.0.0.1", meter_port(rig->owner));
    rig->master = meter_open("127.0.0.1");
    meter_serve(rig->master, "127.0.0.1", (uint16_t)atoi(strrchr(cluster->address, ':') + 1));
    snprintf(through.address, sizeof(through.address), "%s", meter_address(rig->master));
    assert_int_equal(setenv("MC_RINGS", "0", 1), 0); /* what goes through memory is on no wire */
    rig->client = cluster_join(&through, 0, 0, NULL);
    assert_int_equal(unsetenv("MC_RINGS"), 0);
    for (size_t i = 0; i < BATCH; i++)
        value_make(value[i], LENGTH, (uint32_t)i, 1);
}

static void rig_close(struct rig *rig) {
    assert_true(mc_store_remove_all(rig->client, 0, contract_error()) >= 0);
    OK(mc_store_close(rig->client));
    OK(mc_store_close(rig->holder));
    meter_close(rig->master);
    meter_close(rig->owner);
}

static void begin(struct rig *rig) {
    for (unsigned i = 0; i < METER_TYPES; i++) {
        rig->before[0][i] = meter_count(rig->master, i);
        rig->before[1][i] = meter_count(rig->owner, i);
    }
}

static uint64_t to_master(const struct rig *rig, unsigned type) {
    return meter_count(rig->master, type) - rig->before[0][type];
}

static uint64_t to_owner(const struct rig *rig, unsigned type) {
    return meter_count(rig->owner, type) - rig->before[1][type];
}

/* All that an operation waits for; signs of life go their own way. */
static uint64_t asked_of_master(const struct rig *rig) {
    return to_master(rig, METER_PUBLISH) + to_master(rig, METER_LOOKUP) + to_master(rig, METER_REMOVE) +
           to_master(rig, METER_LIST);
}

static void put_keys(const struct rig *rig, const struct mc_keys *keys) {
    const void *values[BATCH];
    uint64_t lengths[BATCH];
    int32_t statuses[BATCH];

    for (size_t i = 0; i < keys->count; i++) {
        values[i] = value[i];
        lengths[i] = LENGTH;
    }
    OK(mc_store_put_batch(rig->client, keys, values, lengths, &there, statuses, contract_error()));
}

static void get_keys(const struct rig *rig, const struct mc_keys *keys) {
    static uint8_t got[BATCH][LENGTH];
    void *buffers[BATCH];
    uint64_t capacities[BATCH];
    int64_t found[BATCH];

    for (size_t i = 0; i < keys->count; i++) {
        buffers[i] = got[i];
        capacities[i] = LENGTH;
    }
    OK(mc_store_get_batch(rig->client, keys, buffers, capacities, 0, found, contract_error()));
    for (size_t i = 0; i < keys->count; i++)
        assert_same(got[i], value[i], LENGTH);
}

/* Puts batches until there is stock for another one. */
static void lay_in_stock(struct rig *rig, size_t count) {
    for (int round = 0; round < 8 && store_number(rig->client, "stock") < count; round++) {
        char name[16];
        struct mc_keys keys;

        snprintf(name, sizeof(name), "stock%d", round);
        keys = keys_make(name, count);
        put_keys(rig, &keys);
        keys_free(&keys);
    }
    assert_true(store_number(rig->client, "stock") >= count);
}

/* What `count` puts at once cost when there is stock. */
static void expect_put(struct rig *rig, const char *name, size_t count) {
    struct mc_keys keys = keys_make(name, count);

    lay_in_stock(rig, count);
    begin(rig);
    put_keys(rig, &keys);
    assert_int_equal(asked_of_master(rig), 1);
    assert_int_equal(to_master(rig, METER_PUBLISH), 1);
    assert_int_equal(to_owner(rig, METER_RESERVE), 0);
    assert_int_equal(to_owner(rig, METER_READ), 0);
    if (contract_is("tcp"))
        assert_true(to_owner(rig, METER_WRITE) > 0);
    else
        assert_int_equal(to_owner(rig, METER_WRITE), 0);
    keys_free(&keys);
}

static void a_put_is_one_request_to_the_master_and_over_tcp_a_write_before(void **state) {
    struct rig rig;

    rig_open(*state, &rig);
    expect_put(&rig, "single", 1);
    rig_close(&rig);
}

static void a_batch_of_puts_costs_the_round_trips_of_one(void **state) {
    struct rig rig;

    rig_open(*state, &rig);
    expect_put(&rig, "batch", BATCH);
    rig_close(&rig);
}

static void expect_gets(struct rig *rig, size_t count) {
    struct mc_keys keys = keys_make("got", count);
    mc_store *other = rig->holder;
    const void *values[BATCH];
    uint64_t lengths[BATCH];
    int32_t statuses[BATCH];

    for (size_t i = 0; i < count; i++) {
        values[i] = value[i];
        lengths[i] = LENGTH;
    }
    OK(mc_store_put_batch(other, &keys, values, lengths, &there, statuses, contract_error()));
    get_keys(rig, &keys); /* the owner is attached by now */
    OK(mc_store_remove_batch(other, &keys, 0, statuses, contract_error()));
    OK(mc_store_put_batch(other, &keys, values, lengths, &there, statuses, contract_error()));
    IS(0, EXISTS(rig->client, "another"));
    begin(rig);
    get_keys(rig, &keys);
    assert_int_equal(asked_of_master(rig), 1); /* it has learnt that what it knew isn't so any more */
    begin(rig);
    get_keys(rig, &keys);
    get_keys(rig, &keys);
    assert_int_equal(asked_of_master(rig), 0);
    assert_int_equal(to_owner(rig, METER_ATTACH) + to_owner(rig, METER_RESERVE), 0);
    if (contract_is("tcp"))
        assert_true(to_owner(rig, METER_READ) > 0);
    else
        assert_int_equal(to_owner(rig, METER_READ), 0);
    keys_free(&keys);
}

static void a_get_of_what_is_known_asks_nobody_and_over_tcp_the_owner(void **state) {
    struct rig rig;

    rig_open(*state, &rig);
    expect_gets(&rig, 1);
    rig_close(&rig);
}

static void a_batch_of_gets_costs_the_round_trips_of_one(void **state) {
    struct rig rig;

    rig_open(*state, &rig);
    expect_gets(&rig, BATCH);
    rig_close(&rig);
}

static void probes_sizes_and_removes_of_a_batch_are_one_request_each(void **state) {
    struct mc_keys keys = keys_make("asked", BATCH);
    int32_t statuses[BATCH];
    int64_t found[BATCH];
    struct rig rig;

    rig_open(*state, &rig);
    put_keys(&rig, &keys);
    begin(&rig);
    OK(mc_store_exists_batch(rig.client, &keys, 0, statuses, contract_error()));
    assert_in_range(asked_of_master(&rig), 0, 1);
    begin(&rig);
    OK(mc_store_size_batch(rig.client, &keys, 0, found, contract_error()));
    assert_in_range(asked_of_master(&rig), 0, 1);
    begin(&rig);
    OK(mc_store_remove_batch(rig.client, &keys, 0, statuses, contract_error()));
    assert_int_equal(to_master(&rig, METER_REMOVE), 1);
    assert_int_equal(asked_of_master(&rig), 1);
    keys_free(&keys);
    rig_close(&rig);
}

/* ---- What travels together ---- */

static void *put_eight(void *context) {
    struct worker *worker = context;
    struct rig *rig = worker->context;
    struct mc_keys keys = keys_make("flight", 8);
    const void *values[8];
    uint64_t lengths[8];
    int32_t statuses[8];

    for (size_t i = 0; i < 8; i++) {
        values[i] = value[i];
        lengths[i] = LENGTH;
    }
    EXPECT(worker, mc_store_put_batch(rig->client, &keys, values, lengths, &there, statuses, NULL) == MC_OK);
    keys_free(&keys);
    return NULL;
}

static void nothing_is_published_before_all_writes_are_acknowledged(void **state) {
    struct rig rig;
    struct worker worker = {.context = &rig};
    uint64_t deadline = now_ns() + PROMPT, writes;

    if (!contract_is("tcp"))
        return; /* mapped memory needs no acknowledgements */
    rig_open(*state, &rig);
    lay_in_stock(&rig, 8);
    begin(&rig);
    meter_hold(rig.owner);
    worker_start(&worker, put_eight);
    while (to_owner(&rig, METER_WRITE) < 24 && now_ns() < deadline)
        usleep(100);
    writes = to_owner(&rig, METER_WRITE);
    assert_int_equal(writes, 24); /* value, key and description of each, in one flight */
    assert_int_equal(to_master(&rig, METER_PUBLISH), 0);
    meter_let_go(rig.owner);
    worker_join(&worker);
    assert_int_equal(to_owner(&rig, METER_WRITE), 24);
    assert_int_equal(to_master(&rig, METER_PUBLISH), 1);
    rig_close(&rig);
}

static void *get_one(void *context) {
    struct worker *worker = context;
    struct rig *rig = worker->context;
    uint8_t got[LENGTH];

    EXPECT(worker, mc_store_get(rig->client, TEXT("flight"), got, LENGTH, 0, NULL) == LENGTH);
    EXPECT(worker, memcmp(got, value[3], LENGTH) == 0);
    return NULL;
}

static void slot_and_value_are_read_in_one_flight(void **state) {
    struct rig rig;
    struct worker worker = {.context = &rig};
    uint64_t deadline = now_ns() + PROMPT;

    if (!contract_is("tcp"))
        return;
    rig_open(*state, &rig);
    OK(mc_store_put(rig.client, TEXT("flight"), value[3], LENGTH, &there, contract_error()));
    get_one(&worker); /* it is known now, and live */
    begin(&rig);
    meter_hold(rig.owner);
    worker_start(&worker, get_one);
    while (to_owner(&rig, METER_READ) < 2 && now_ns() < deadline)
        usleep(100);
    assert_int_equal(to_owner(&rig, METER_READ), 2);
    meter_let_go(rig.owner);
    worker_join(&worker);
    assert_int_equal(asked_of_master(&rig), 0);
    rig_close(&rig);
}

static const struct CMUnitTest tests[] = {
    STORE_TEST(a_put_is_one_request_to_the_master_and_over_tcp_a_write_before),
    STORE_TEST(a_batch_of_puts_costs_the_round_trips_of_one),
    STORE_TEST(a_get_of_what_is_known_asks_nobody_and_over_tcp_the_owner),
    STORE_TEST(a_batch_of_gets_costs_the_round_trips_of_one),
    STORE_TEST(probes_sizes_and_removes_of_a_batch_are_one_request_each),
    STORE_TEST(nothing_is_published_before_all_writes_are_acknowledged),
    STORE_TEST(slot_and_value_are_read_in_one_flight),
};

CONTRACT_PART(store_trips, tests);

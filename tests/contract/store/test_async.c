/* test_async.c - operations that are submitted: each completes once, in its queue, with the results of the batch call. */
#include "store_contract.h"

#include <poll.h>

enum { ITEMS = 3, MANY = 1000, LONG = 100 };

/* Everything an operation of three items may point to. */
struct work {
    struct mc_keys keys;
    uint8_t bytes[ITEMS][LONG], room[ITEMS][LONG];
    const void *values[ITEMS];
    void *buffers[ITEMS];
    uint64_t lengths[ITEMS];
    int32_t statuses[ITEMS];
    int64_t found[ITEMS];
    uint64_t views[ITEMS];
    const void *data[ITEMS];
};

static void work_make(struct work *work, const char *name) {
    *work = (struct work){.keys = keys_make(name, ITEMS)};
    for (uint32_t i = 0; i < ITEMS; i++) {
        value_make(work->bytes[i], LONG, i, 1);
        work->values[i] = work->bytes[i];
        work->buffers[i] = work->room[i];
        work->lengths[i] = LONG;
        work->statuses[i] = 42;
        work->found[i] = 42;
    }
}

static struct mc_store_operation operation_of(struct work *work, uint32_t kind) {
    bool puts = kind == MC_STORE_PUT, gets = kind == MC_STORE_GET, views = kind == MC_STORE_VIEW;

    return (struct mc_store_operation){
        .struct_size = sizeof(struct mc_store_operation),
        .kind = kind,
        .keys = work->keys,
        .values = puts ? work->values : NULL,
        .buffers = gets ? work->buffers : NULL,
        .lengths = puts || gets ? work->lengths : NULL,
        .statuses = puts || kind >= MC_STORE_EXISTS ? work->statuses : NULL,
        .found = gets || views || kind == MC_STORE_SIZE ? work->found : NULL,
        .views = views ? work->views : NULL,
        .data = views ? work->data : NULL,
    };
}

static mc_queue *queue_open(void) {
    mc_queue *queue;

    OK(mc_queue_open(&queue, contract_error()));
    return queue;
}

/* Runs one operation through a queue; its completion. */
static struct mc_completion run(mc_store *store, mc_queue *queue, struct work *work, uint32_t kind) {
    const struct mc_store_operation operation = operation_of(work, kind);
    struct mc_completion completion;
    uint64_t id;

    OK(mc_store_submit(store, &operation, queue, 1000 + kind, &id, contract_error()));
    IS(1, (int32_t)mc_queue_reap(queue, &completion, 1, sizeof(completion), 30 * SECOND));
    assert_int_equal(completion.batch, id);
    assert_int_equal(completion.user_data, 1000 + kind);
    OK(mc_operation_free(id));
    return completion;
}

static void each_kind_of_operation_gives_what_its_batch_call_gives(void **state) {
    mc_store *store = ((const struct cluster *)*state)->store;
    mc_queue *queue = queue_open();
    struct work work;

    work_make(&work, "async");
    OK(run(store, queue, &work, MC_STORE_PUT).status);
    OK(run(store, queue, &work, MC_STORE_GET).status);
    OK(run(store, queue, &work, MC_STORE_VIEW).status);
    OK(run(store, queue, &work, MC_STORE_EXISTS).status);
    for (size_t i = 0; i < ITEMS; i++) {
        assert_int_equal(work.statuses[i], 1);
        assert_int_equal(work.found[i], LONG);
        assert_same(work.room[i], work.bytes[i], LONG);
        assert_same(work.data[i], work.bytes[i], LONG);
        OK(mc_view_release(work.views[i]));
        work.found[i] = 42;
    }
    OK(run(store, queue, &work, MC_STORE_SIZE).status);
    OK(run(store, queue, &work, MC_STORE_REMOVE).status);
    for (size_t i = 0; i < ITEMS; i++) {
        assert_int_equal(work.found[i], LONG);
        assert_int_equal(work.statuses[i], MC_OK);
    }
    OK(run(store, queue, &work, MC_STORE_EXISTS).status);
    assert_int_equal(work.statuses[1], 0);
    OK(mc_queue_close(queue));
    keys_free(&work.keys);
}

static void a_completion_says_how_many_items_failed_and_the_first_status(void **state) {
    mc_store *store = ((const struct cluster *)*state)->store;
    mc_queue *queue = queue_open();
    struct mc_completion completion;
    struct work work;

    work_make(&work, "async");
    OK(PUT(store, "async-1", "there", 5));
    completion = run(store, queue, &work, MC_STORE_PUT);
    IS(MC_ERR_ALREADY_EXISTS, completion.status);
    assert_int_equal(completion.failed, 1);
    assert_true(work.statuses[0] == MC_OK && work.statuses[1] == MC_ERR_ALREADY_EXISTS && work.statuses[2] == MC_OK);
    OK(mc_store_remove_all(store, 0, contract_error()) == 3 ? MC_OK : MC_ERR_INTERNAL);
    completion = run(store, queue, &work, MC_STORE_GET);
    IS(MC_ERR_NOT_FOUND, completion.status);
    assert_int_equal(completion.failed, ITEMS);
    OK(mc_queue_close(queue));
    keys_free(&work.keys);
}

/* A thousand operations of one item each. */
struct crowd {
    struct mc_keys keys;
    uint32_t offsets[MANY];
    uint64_t values[MANY], got[MANY], ids[MANY];
    const void *sources[MANY];
    void *buffers[MANY];
    uint64_t lengths[MANY];
    int32_t statuses[MANY];
    int64_t found[MANY];
};

static struct crowd *crowd_make(void) {
    struct crowd *crowd = calloc(1, sizeof(*crowd));
    uint32_t offset = 0;

    assert_non_null(crowd);
    crowd->keys = keys_make("crowd", MANY);
    for (size_t i = 0; i < MANY; i++) {
        crowd->offsets[i] = offset;
        offset += crowd->keys.lengths[i];
        crowd->values[i] = i * 12345;
        crowd->sources[i] = &crowd->values[i];
        crowd->buffers[i] = &crowd->got[i];
        crowd->lengths[i] = sizeof(uint64_t);
    }
    return crowd;
}

static void crowd_submit(mc_store *store, mc_queue *queue, struct crowd *crowd, uint32_t kind) {
    for (size_t i = 0; i < MANY; i++) {
        const struct mc_store_operation operation = {
            .struct_size = sizeof(operation),
            .kind = kind,
            .keys = {(const char *)crowd->keys.bytes + crowd->offsets[i], &crowd->keys.lengths[i], 1},
            .values = &crowd->sources[i],
            .buffers = &crowd->buffers[i],
            .lengths = &crowd->lengths[i],
            .statuses = &crowd->statuses[i],
            .found = &crowd->found[i],
        };

        OK(mc_store_submit(store, &operation, queue, i, &crowd->ids[i], contract_error()));
    }
}

/* Each operation completes once. Returns how many with MC_OK. */
static size_t crowd_reap(mc_queue *queue, struct crowd *crowd, int32_t other) {
    static bool seen[MANY];
    struct mc_completion completions[64];
    size_t count = 0, good = 0;

    memset(seen, 0, sizeof(seen));
    while (count < MANY) {
        int64_t got = mc_queue_reap(queue, completions, 64, sizeof(completions[0]), 30 * SECOND);

        assert_true(got > 0);
        for (int64_t i = 0; i < got; i++) {
            assert_int_equal(completions[i].batch, crowd->ids[completions[i].user_data]);
            assert_false(seen[completions[i].user_data]);
            seen[completions[i].user_data] = true;
            good += completions[i].status == MC_OK;
            /* a put whose publication is on its way when the store is closed can't know */
            if (completions[i].status != MC_OK && completions[i].status != MC_ERR_INDETERMINATE)
                IS(other, completions[i].status);
            OK(mc_operation_free(completions[i].batch));
            IS(MC_ERR_INVALID_HANDLE, mc_operation_free(completions[i].batch));
        }
        count += (size_t)got;
    }
    IS(MC_ERR_PENDING, (int32_t)mc_queue_reap(queue, completions, 64, sizeof(completions[0]), 0));
    return good;
}

static void a_thousand_operations_in_flight_complete_once_each(void **state) {
    const struct cluster *cluster = *state;
    mc_queue *queue = queue_open();
    struct crowd *crowd = crowd_make();
    struct pollfd polled = {.fd = mc_queue_fd(queue), .events = POLLIN};

    assert_true(polled.fd >= 0);
    assert_int_equal(poll(&polled, 1, 0), 0);
    crowd_submit(cluster->store, queue, crowd, MC_STORE_PUT);
    assert_int_equal(poll(&polled, 1, 30000), 1);
    assert_int_equal(crowd_reap(queue, crowd, MC_OK), MANY);
    assert_int_equal(poll(&polled, 1, 0), 0);
    crowd_submit(cluster->store, queue, crowd, MC_STORE_GET);
    assert_int_equal(crowd_reap(queue, crowd, MC_OK), MANY);
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(crowd->found[i], sizeof(uint64_t));
        assert_int_equal(crowd->got[i], crowd->values[i]);
    }
    OK(mc_queue_close(queue));
    keys_free(&crowd->keys);
    free(crowd);
}

#define MOST (3 * MIB) /* of a pool of 4 MiB */
static const struct mc_put_options pinned = {.struct_size = sizeof(pinned), .flags = MC_PUT_HARD_PIN};

/* Fills most of the pool with one pinned object, "full"; returns a value of that size. */
static uint8_t *fill_pool(const struct cluster *cluster) {
    uint8_t *value = calloc(1, MOST);

    assert_non_null(value);
    OK(mc_store_put(cluster->store, TEXT("full"), value, MOST, &pinned, contract_error()));
    return value;
}

static void an_operation_is_busy_until_it_has_completed(void **state) {
    struct cluster *cluster = cluster_open(4 * MIB);
    mc_queue *queue = queue_open();
    struct mc_store_operation operation;
    struct mc_completion completion;
    struct work work;
    uint8_t *value = fill_pool(cluster);
    uint64_t id;

    (void)state;
    work_make(&work, "wait");
    operation = operation_of(&work, MC_STORE_PUT); /* which waits for space */
    work.values[0] = value;
    work.lengths[0] = MOST;
    operation.keys.count = 1;
    operation.put = &pinned;
    OK(mc_store_submit(cluster->store, &operation, queue, 7, &id, contract_error()));
    IS(MC_ERR_BUSY, mc_operation_free(id));
    IS(MC_ERR_BUSY, mc_queue_close(queue));
    IS(MC_ERR_PENDING, (int32_t)mc_queue_reap(queue, &completion, 1, sizeof(completion), 50 * MILLISECOND));
    OK(REMOVE(cluster->store, "full"));
    IS(1, (int32_t)mc_queue_reap(queue, &completion, 1, sizeof(completion), 30 * SECOND));
    OK(completion.status);
    IS(MC_ERR_BUSY, mc_queue_close(queue)); /* the operation is still bound to it */
    OK(mc_operation_free(id));
    OK(mc_queue_close(queue));
    keys_free(&work.keys);
    free(value);
    cluster_close(cluster);
}

static void what_a_full_pool_makes_wait_times_out_in_the_queue(void **state) {
    struct cluster *cluster = cluster_open(4 * MIB);
    mc_queue *queue = queue_open();
    struct mc_store_operation operation;
    struct mc_completion completion;
    struct work work;
    uint8_t *value = fill_pool(cluster);
    uint64_t id;

    (void)state;
    work_make(&work, "wait");
    operation = operation_of(&work, MC_STORE_PUT);
    work.values[1] = value;
    work.lengths[1] = MOST;
    operation.timeout_ns = 100 * MILLISECOND;
    OK(mc_store_submit(cluster->store, &operation, queue, 7, &id, contract_error()));
    IS(1, (int32_t)mc_queue_reap(queue, &completion, 1, sizeof(completion), 30 * SECOND));
    IS(MC_ERR_NO_SPACE, completion.status);
    assert_int_equal(completion.failed, 1);
    assert_true(work.statuses[0] == MC_OK && work.statuses[1] == MC_ERR_NO_SPACE && work.statuses[2] == MC_OK);
    OK(mc_operation_free(id));
    OK(mc_queue_close(queue));
    keys_free(&work.keys);
    free(value);
    cluster_close(cluster);
}

static void closing_the_store_completes_what_is_in_flight(void **state) {
    struct cluster *cluster = cluster_open(4 * MIB);
    mc_queue *queue = queue_open();
    struct crowd *crowd = crowd_make();
    size_t good;

    (void)state;
    crowd_submit(cluster->store, queue, crowd, MC_STORE_PUT);
    OK(mc_store_close(cluster->store));
    good = crowd_reap(queue, crowd, MC_ERR_CLOSED);
    for (size_t i = 0; i < MANY; i++)
        good -= crowd->statuses[i] == MC_OK;
    assert_int_equal(good, 0);
    OK(mc_queue_close(queue));
    cluster->store = NULL;
    cluster_close(cluster);
    keys_free(&crowd->keys);
    free(crowd);
}

static const struct CMUnitTest tests[] = {
    STORE_TEST(each_kind_of_operation_gives_what_its_batch_call_gives),
    STORE_TEST(a_completion_says_how_many_items_failed_and_the_first_status),
    STORE_TEST(a_thousand_operations_in_flight_complete_once_each),
    STORE_TEST(an_operation_is_busy_until_it_has_completed),
    STORE_TEST(what_a_full_pool_makes_wait_times_out_in_the_queue),
    STORE_TEST(closing_the_store_completes_what_is_in_flight),
};

CONTRACT_PART(store_async, tests);

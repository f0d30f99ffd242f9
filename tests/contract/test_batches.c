/* test_batches.c - requests that are submitted together: all or none, each with its own end. */
#include "contract.h"

static void a_batch_with_one_bad_request_begins_nothing(void **state) {
    const struct pair *pair = *state;
    struct mc_request requests[64];
    uint64_t before, batch = 42;

    fill(pair->near, SPAN, 1);
    fill(pair->far, SPAN, 2);
    before = hash(pair->far, SPAN);
    for (size_t bad = 0; bad < 7; bad++)
        for (size_t where = 0; where < 64; where += 21) {
            struct mc_error *error = contract_error();

            for (size_t i = 0; i < 64; i++)
                requests[i] = request(pair, MC_WRITE, i * 1024, i * 1024, 1024);
            switch (bad) {
            case 0:
                requests[where].opcode = 2;
                break;
            case 1:
                requests[where].flags = 1u << 31;
                break;
            case 2:
                requests[where].peer = 0;
                break;
            case 3:
                requests[where].peer ^= UINT64_C(2) << 32;
                break;
            case 4:
                requests[where].local = &before;
                break;
            case 5:
                requests[where].length = UINT64_MAX;
                break;
            default:
                requests[where].local = NULL;
                break;
            }
            assert_int_not_equal(mc_batch_submit(pair->here, requests, 64, sizeof(requests[0]), NULL, &batch, error),
                                 MC_OK);
            assert_true(error->message[0] != '\0');
            assert_int_equal(batch, 42);
            assert_int_not_equal(mc_engine_transfer(pair->here, requests, 64, sizeof(requests[0]), 0, contract_error()),
                                 MC_OK);
        }
    OK(mc_peer_probe(pair->peer, SECOND, contract_error()));
    assert_true(hash(pair->far, SPAN) == before);
}

static void each_request_of_a_batch_has_its_own_status_and_bytes(void **state) {
    const struct pair *pair = *state;
    struct mc_request requests[16];
    struct mc_request_status statuses[16];
    uint64_t batch;

    fill(pair->near, SPAN, 1);
    memset(pair->far, 0, SPAN);
    for (size_t i = 0; i < 16; i++) {
        requests[i] = request(pair, MC_WRITE, i * 8192, i * 8192, 4096 + i);
        if (i % 3 == 1)
            requests[i].remote = (uint64_t)(uintptr_t)pair->far + SPAN - 100;
        if (i % 3 == 2)
            requests[i].length = 0;
    }
    batch = submit(pair, requests, 16, 0);
    IS(MC_ERR_NOT_REGISTERED, mc_batch_wait(batch, MC_FOREVER));
    OK(mc_batch_status(batch, 0, statuses, 16, sizeof(statuses[0])));
    for (size_t i = 0; i < 16; i++) {
        bool bad = i % 3 == 1;

        IS(bad ? MC_ERR_NOT_REGISTERED : MC_OK, statuses[i].status);
        assert_int_equal(statuses[i].state, bad ? MC_STATE_FAILED : MC_STATE_COMPLETED);
        assert_int_equal(statuses[i].bytes, bad ? 0 : requests[i].length);
        if (!bad) {
            assert_int_equal(statuses[i].flags, 0);
            assert_same(pair->far + i * 8192, pair->near + i * 8192, requests[i].length);
        }
    }
    OK(mc_batch_free(batch));
}

#define MANY ((size_t)10000)

static void ten_thousand_small_requests_both_ways_are_exact(void **state) {
    const struct pair *pair = *state;
    struct mc_request *requests = calloc(MANY, sizeof(*requests));
    uint8_t *near = malloc(SPAN), *far = malloc(SPAN);
    uint64_t batch, seed = 3;

    assert_true(requests != NULL && near != NULL && far != NULL);
    fill(pair->near, SPAN, 1);
    fill(pair->far, SPAN, 2);
    memcpy(near, pair->near, SPAN);
    memcpy(far, pair->far, SPAN);
    for (size_t i = 0; i < MANY; i++) {
        size_t offset = i * 1000 + (size_t)(random_next(&seed) % 100), length = (size_t)(random_next(&seed) % 900);
        bool read = random_next(&seed) % 2 == 0;

        requests[i] = request(pair, read ? MC_READ : MC_WRITE, offset, offset, length);
        memcpy((read ? near : far) + offset, (read ? pair->far : pair->near) + offset, length);
    }
    batch = submit(pair, requests, MANY, 0);
    OK(mc_batch_wait(batch, MC_FOREVER));
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(status_of(batch, i).bytes, requests[i].length);
    OK(mc_batch_free(batch));
    assert_same(near, pair->near, SPAN);
    assert_same(far, pair->far, SPAN);
    /* And once more in one blocking call. */
    memset(pair->far, 0, SPAN);
    for (size_t i = 0; i < MANY; i++) {
        requests[i] = request(pair, MC_WRITE, i * 1000, i * 1000, 1000);
    }
    OK(mc_engine_transfer(pair->here, requests, MANY, sizeof(*requests), 0, contract_error()));
    assert_same(pair->near, pair->far, MANY * 1000);
    free(requests);
    free(near);
    free(far);
}

static void a_batch_may_go_to_several_peers(void **state) {
    const struct pair *pair = *state;
    mc_engine *others[3];
    uint64_t peers[4] = {pair->peer}, memories[3];
    void *memory[4] = {pair->far};
    struct mc_request requests[80];

    for (size_t i = 0; i < 3; i++) {
        others[i] = contract_engine();
        OK(mc_memory_alloc(MIB, NULL, &memories[i], &memory[i + 1], contract_error()));
        OK(mc_engine_register(others[i], memory[i + 1], MIB, NULL, RIGHTS, contract_error()));
        peers[i + 1] = contract_peer(pair->here, others[i]);
    }
    fill(pair->near, MIB, 5);
    for (size_t i = 0; i < 80; i++) {
        requests[i] = request(pair, MC_WRITE, i * 4096, 0, 4096);
        requests[i].peer = peers[i % 4];
        requests[i].remote = (uint64_t)(uintptr_t)memory[i % 4] + i * 4096;
    }
    OK(mc_engine_transfer(pair->here, requests, 80, sizeof(requests[0]), 0, contract_error()));
    for (size_t i = 0; i < 80; i++)
        assert_same((uint8_t *)memory[i % 4] + i * 4096, pair->near + i * 4096, 4096);
    for (size_t i = 0; i < 3; i++) {
        OK(mc_peer_close(peers[i + 1]));
        OK(mc_engine_close(others[i]));
        OK(mc_memory_free(memories[i]));
    }
}

/* A batch to `count` peers, which are all `there`, from an engine with so many lanes to each. */
static void move_by_lanes(const struct pair *whole, uint32_t lanes, size_t count) {
    const struct mc_engine_options options = {
        .struct_size = sizeof(options), .protocol = contract_is("tcp") ? "tcp" : NULL, .lanes = lanes};
    struct pair pair = *whole;
    struct mc_request requests[80];
    uint64_t peers[17], batch;

    OK(mc_engine_open(&options, &pair.here, contract_error()));
    OK(mc_engine_register(pair.here, pair.near, SPAN, NULL, RIGHTS, contract_error()));
    for (size_t i = 0; i < count; i++)
        peers[i] = contract_peer(pair.here, pair.there);
    fill(pair.near, SPAN, 5);
    for (size_t i = 0; i < 80; i++) {
        requests[i] = request(&pair, MC_WRITE, i * (SPAN / 80), i * (SPAN / 80), SPAN / 80);
        requests[i].peer = peers[i % count];
    }
    memset(pair.far, 0, SPAN);
    batch = submit(&pair, requests, 80, 20 * SECOND);
    OK(mc_batch_wait(batch, MC_FOREVER));
    OK(mc_batch_free(batch));
    assert_same(pair.near, pair.far, SPAN);
    memset(pair.far, 0, SPAN);
    OK(mc_engine_transfer(pair.here, requests, 80, sizeof(requests[0]), 20 * SECOND, contract_error()));
    assert_same(pair.near, pair.far, SPAN);
    OK(mc_engine_close(pair.here));
}

static void a_batch_on_more_lanes_than_a_caller_can_drive_completes(void **state) {
    move_by_lanes(*state, 1, 17);
    move_by_lanes(*state, 16, 2);
}

static void arrays_may_have_a_stride_and_be_reused_at_once(void **state) {
    const struct pair *pair = *state;
    struct wide_request {
        struct mc_request request;
        uint64_t mine[3];
    } requests[50];
    struct wide_status {
        struct mc_request_status status;
        uint64_t mine[5];
    } statuses[50];
    uint64_t batch = 0;

    fill(pair->near, MIB, 5);
    memset(requests, 0xff, sizeof(requests));
    memset(statuses, 0xee, sizeof(statuses));
    for (size_t i = 0; i < 50; i++)
        requests[i].request = request(pair, MC_WRITE, i * 4096, i * 8192, 4096);
    OK(mc_batch_submit(pair->here, &requests[0].request, 50, sizeof(requests[0]), NULL, &batch, contract_error()));
    memset(requests, 0xff, sizeof(requests));
    OK(mc_batch_wait(batch, MC_FOREVER));
    OK(mc_batch_status(batch, 0, &statuses[0].status, 50, sizeof(statuses[0])));
    for (size_t i = 0; i < 50; i++) {
        assert_same(pair->far + i * 8192, pair->near + i * 4096, 4096);
        assert_int_equal(statuses[i].status.bytes, 4096);
        for (size_t j = 0; j < 5; j++)
            assert_true(statuses[i].mine[j] == UINT64_C(0xeeeeeeeeeeeeeeee));
    }
    OK(mc_batch_free(batch));
}

static void a_wait_that_runs_out_answers_pending_and_the_batch_goes_on(void **state) {
    const struct pair *pair = *state;
    struct mc_request requests[64];
    uint64_t batch;
    size_t slices = 0;
    int32_t status;

    fill(pair->near, 8 * MIB, 6);
    memset(pair->far, 0, 8 * MIB);
    for (size_t i = 0; i < 64; i++)
        requests[i] = request(pair, MC_WRITE, 0, 0, 8 * MIB);
    batch = submit(pair, requests, 64, 0);
    IS(MC_ERR_PENDING, mc_batch_wait(batch, 0));
    IS(MC_ERR_BUSY, mc_batch_free(batch));
    while ((status = mc_batch_wait(batch, MILLISECOND)) == MC_ERR_PENDING)
        slices++;
    OK(status);
    assert_true(slices > 0);
    OK(mc_batch_wait(batch, 0));
    assert_same(pair->near, pair->far, 8 * MIB);
    OK(mc_batch_free(batch));
}

static void a_batch_that_nobody_waits_for_ends_all_the_same(void **state) {
    const struct pair *pair = *state;
    struct mc_request requests[16];
    uint64_t batch;

    fill(pair->near, 8 * MIB, 6);
    memset(pair->far, 0, 8 * MIB);
    for (size_t i = 0; i < 16; i++)
        requests[i] = request(pair, MC_WRITE, 0, 0, 8 * MIB);
    batch = submit(pair, requests, 16, 0);
    while (status_of(batch, 15).state == MC_STATE_PENDING || mc_batch_free(batch) == MC_ERR_BUSY)
        ;
    IS(MC_ERR_INVALID_HANDLE, mc_batch_free(batch));
    assert_same(pair->near, pair->far, 8 * MIB);
}

static void *wait_for_it(void *context) {
    struct worker *worker = context;

    EXPECT(worker, mc_batch_wait(*(uint64_t *)worker->context, MC_FOREVER) == MC_OK);
    return NULL;
}

static void many_threads_may_wait_for_one_batch(void **state) {
    const struct pair *pair = *state;
    struct mc_request requests[32];
    uint64_t batch;

    for (size_t i = 0; i < 32; i++)
        requests[i] = request(pair, MC_WRITE, 0, 0, 8 * MIB);
    batch = submit(pair, requests, 32, 0);
    contract_run(pair, 8, wait_for_it, &batch);
    OK(mc_batch_free(batch));
}

static void batches_in_flight_outlive_the_peer_id(void **state) {
    const struct pair *pair = *state;
    uint64_t peer = contract_peer(pair->here, pair->there), batch;
    struct mc_request requests[16];

    fill(pair->near, 8 * MIB, 9);
    for (size_t i = 0; i < 16; i++) {
        requests[i] = request(pair, MC_WRITE, 0, 0, 8 * MIB);
        requests[i].peer = peer;
    }
    batch = submit(pair, requests, 16, 0);
    OK(mc_peer_close(peer));
    OK(mc_batch_wait(batch, MC_FOREVER));
    assert_same(pair->near, pair->far, 8 * MIB);
    OK(mc_batch_free(batch));
    IS(MC_ERR_INVALID_HANDLE, mc_peer_close(peer));
}

static uint64_t submit_driven(const struct pair *pair, const struct mc_request *requests, size_t count,
                              uint64_t timeout_ns) {
    const struct mc_batch_options options = {
        .struct_size = sizeof(options), .flags = MC_BATCH_DRIVEN, .timeout_ns = timeout_ns};
    uint64_t batch = 0;

    OK(mc_batch_submit(pair->here, requests, count, sizeof(*requests), &options, &batch, contract_error()));
    return batch;
}

static void a_batch_that_its_caller_drives_ends_by_waits_alone(void **state) {
    const struct pair *pair = *state;
    struct mc_request requests[64];
    uint64_t batch;
    int32_t status;

    fill(pair->near, 8 * MIB, 6);
    memset(pair->far, 0, 8 * MIB);
    for (size_t i = 0; i < 64; i++)
        requests[i] = request(pair, MC_WRITE, 0, 0, 8 * MIB);
    batch = submit_driven(pair, requests, 64, 0);
    IS(MC_ERR_PENDING, mc_batch_wait(batch, 0));
    IS(MC_ERR_BUSY, mc_batch_free(batch));
    while ((status = mc_batch_wait(batch, MILLISECOND)) == MC_ERR_PENDING)
        ;
    OK(status);
    assert_same(pair->near, pair->far, 8 * MIB);
    OK(mc_batch_free(batch));
    batch = submit_driven(pair, requests, 64, 0);
    OK(mc_batch_cancel(batch));
    IS(MC_ERR_CANCELLED, mc_batch_wait(batch, MC_FOREVER));
    OK(mc_batch_free(batch));
    batch = submit_driven(pair, requests, 64, MILLISECOND);
    IS(MC_ERR_TIMEOUT, mc_batch_wait(batch, MC_FOREVER));
    OK(mc_batch_free(batch));
    batch = submit_driven(pair, requests, 64, 0);
    IS(MC_ERR_PENDING, mc_batch_wait(batch, 0));
    /* The engine's close ends it. */
    contract_close_engines(*state);
    IS(MC_ERR_CANCELLED, mc_batch_wait(batch, MC_FOREVER));
    OK(mc_batch_free(batch));
}

/* What takes longer to copy than a waiter stays, in pieces of 8 MiB. */
#ifdef CONTRACT_THREAD_SANITIZED
#define LONG_COPY ((size_t)64)
#else
#define LONG_COPY ((size_t)256)
#endif

struct leave {
    uint64_t batch;
    int32_t status; /* what the leaver was told */
};

static void *wait_and_leave(void *context) {
    struct worker *worker = context;
    struct leave *leave = worker->context;

    leave->status = mc_batch_wait(leave->batch, 20 * MILLISECOND);
    EXPECT(worker, leave->status == MC_ERR_PENDING || leave->status == MC_OK);
    return NULL;
}

static void a_waiter_who_leaves_a_batch_that_they_drive_is_followed_by_the_next(void **state) {
    const struct pair *pair = *state;
    static struct mc_request requests[LONG_COPY];
    size_t count = contract_is("tcp") ? 32 : LONG_COPY;

    for (size_t i = 0; i < count; i++)
        requests[i] = request(pair, MC_WRITE, 0, 0, 8 * MIB);
    requests[0].length = 4096;
    /* On a busy machine the leaver may sleep through the whole batch, and has nothing to leave: then again. */
    for (int i = 0, left = 0; left < 3; i++) {
        struct leave leave = {.batch = submit_driven(pair, requests, count, 20 * SECOND)};
        struct worker leaver = {.pair = pair, .context = &leave};

        assert_true(i < 100);
        worker_start(&leaver, wait_and_leave);
        /* The other one drives when something has moved. */
        while (status_of(leave.batch, 0).state == MC_STATE_PENDING)
            ;
        OK(mc_batch_wait(leave.batch, MC_FOREVER));
        worker_join(&leaver);
        OK(mc_batch_free(leave.batch));
        left += leave.status == MC_ERR_PENDING;
    }
}

/* Whoever sees by the states that all is over may free at once. */
static void a_batch_whose_requests_are_all_terminal_can_be_freed(void **state) {
    const struct pair *pair = *state;
    struct mc_request wanted = request(pair, MC_WRITE, 0, 0, 4096);

    for (size_t i = 0; i < contract_scaled(20000); i++) {
        uint64_t batch = submit(pair, &wanted, 1, 20 * SECOND);

        while (status_of(batch, 0).state == MC_STATE_PENDING)
            ;
        OK(mc_batch_free(batch));
    }
}

static void a_failed_batch_explains_itself_in_words(void **state) {
    const struct pair *pair = *state;
    struct mc_request requests[3];
    struct mc_error *error;
    uint64_t batch;

    for (size_t i = 0; i < 3; i++)
        requests[i] = request(pair, MC_READ, 0, i == 1 ? SPAN - 10 : 0, 4096);
    batch = submit(pair, requests, 3, 0);
    IS(MC_ERR_NOT_REGISTERED, mc_batch_wait(batch, MC_FOREVER));
    error = contract_error();
    IS(MC_ERR_NOT_REGISTERED, mc_batch_explain(batch, error));
    assert_int_equal(error->code, MC_ERR_NOT_REGISTERED);
    assert_non_null(strstr(error->message, "request 1"));
    IS(MC_ERR_NOT_REGISTERED, mc_batch_explain(batch, NULL));
    OK(mc_batch_free(batch));
    batch = submit(pair, requests, 1, 0);
    OK(mc_batch_wait(batch, MC_FOREVER));
    OK(mc_batch_explain(batch, contract_error()));
    OK(mc_batch_free(batch));
}

static const struct CMUnitTest tests[] = {
    CONTRACT_TEST(a_batch_with_one_bad_request_begins_nothing),
    CONTRACT_TEST(each_request_of_a_batch_has_its_own_status_and_bytes),
    CONTRACT_TEST(ten_thousand_small_requests_both_ways_are_exact),
    CONTRACT_TEST(a_batch_may_go_to_several_peers),
    CONTRACT_TEST(a_batch_on_more_lanes_than_a_caller_can_drive_completes),
    CONTRACT_TEST(arrays_may_have_a_stride_and_be_reused_at_once),
    CONTRACT_TEST(a_wait_that_runs_out_answers_pending_and_the_batch_goes_on),
    CONTRACT_TEST(a_batch_that_nobody_waits_for_ends_all_the_same),
    CONTRACT_TEST(many_threads_may_wait_for_one_batch),
    CONTRACT_TEST(a_batch_that_its_caller_drives_ends_by_waits_alone),
    CONTRACT_TEST(a_waiter_who_leaves_a_batch_that_they_drive_is_followed_by_the_next),
    CONTRACT_TEST(a_batch_whose_requests_are_all_terminal_can_be_freed),
    CONTRACT_TEST(a_failed_batch_explains_itself_in_words),
    CONTRACT_TEST(batches_in_flight_outlive_the_peer_id),
};

CONTRACT_PART(contract_batches, tests);

/* test_stalls.c - a peer that stops answering (a proxy that stalls): requests end at their deadline or when they are
 * cancelled, their buffers are quiet from then on, and the connection serves others when it goes on. */
#include "contract.h"

#include <stdatomic.h>

#include "proxy.h"

#define BIG (8 * MIB)
#define LATE (500 * MILLISECOND) /* how much later than at its deadline a request may end */

struct stalled {
    struct pair pair; /* `here` reaches `there` through the proxy, by one lane */
    struct proxy *proxy;
};

static void stalled_open(struct stalled *stalled, const struct pair *pair) {
    const struct mc_engine_options options = {.struct_size = sizeof(options), .protocol = "tcp", .lanes = 1};
    char address[ADDRESS_TEXT];

    contract_address(pair->there, address);
    stalled->pair = *pair;
    stalled->proxy = proxy_start(address);
    OK(mc_engine_open(&options, &stalled->pair.here, contract_error()));
    OK(mc_engine_register(stalled->pair.here, pair->near, SPAN, NULL, RIGHTS, contract_error()));
    OK(mc_peer_open(stalled->pair.here, proxy_address(stalled->proxy), &stalled->pair.peer, contract_error()));
}

static void stalled_close(struct stalled *stalled) {
    OK(mc_engine_close(stalled->pair.here));
    proxy_stop(stalled->proxy);
}

static void assert_all(const uint8_t *bytes, size_t length, uint8_t value) {
    for (size_t i = 0; i < length; i++)
        if (bytes[i] != value)
            fail_msg("byte %zu is 0x%02x, not 0x%02x", i, bytes[i], value);
}

/* Waits until `bytes` more have passed the proxy, or the kernel holds all that it can. */
static void let_through(uint64_t (*count)(const struct proxy *), const struct proxy *proxy, uint64_t bytes) {
    uint64_t wanted = count(proxy) + bytes;

    while (count(proxy) < wanted)
        ;
}

enum ending { BY_DEADLINE, BY_DEADLINE_UNATTENDED, BY_CANCEL, BLOCKING };

/* Ends the request, which can't be answered, and checks that it ends as it should and in time. */
static void end_request(const struct pair *pair, const struct mc_request *wanted, enum ending ending, uint32_t flags) {
    const uint64_t timeout = 200 * MILLISECOND;
    uint64_t begin = now_ns(), batch;
    struct mc_request_status status;
    int32_t code = ending == BY_CANCEL ? MC_ERR_CANCELLED : MC_ERR_TIMEOUT;

    if (ending == BLOCKING) {
        IS(code, mc_engine_transfer(pair->here, wanted, 1, sizeof(*wanted), timeout, contract_error()));
    } else {
        batch = submit(pair, wanted, 1, ending == BY_CANCEL ? 0 : timeout);
        IS(MC_ERR_PENDING, mc_batch_wait(batch, 0));
        if (ending == BY_CANCEL)
            OK(mc_batch_cancel(batch));
        while (ending == BY_DEADLINE_UNATTENDED && status_of(batch, 0).state == MC_STATE_PENDING)
            assert_true(now_ns() - begin < timeout + LATE);
        IS(code, mc_batch_wait(batch, MC_FOREVER));
        status = status_of(batch, 0);
        IS(code, status.status);
        assert_int_equal(status.state, ending == BY_CANCEL ? MC_STATE_CANCELLED : MC_STATE_TIMEOUT);
        assert_int_equal(status.flags, flags);
        OK(mc_batch_free(batch));
    }
    assert_true(now_ns() - begin < (ending == BY_CANCEL ? 0 : timeout) + LATE);
    assert_true(ending == BY_CANCEL || now_ns() - begin >= timeout);
}

/* A READ that is given up: nothing of its late answer reaches the buffer, and the next on the lane is exact. */
static void a_read_ends(const struct pair *whole, unsigned mode, size_t length, enum ending ending) {
    struct stalled stalled;
    const struct pair *pair = &stalled.pair;
    struct mc_request wanted, next;
    uint64_t batch;

    stalled_open(&stalled, whole);
    wanted = request(pair, MC_READ, 0, 0, length);
    next = request(pair, MC_READ, BIG, 0, MIB);
    memset(pair->near, 1, SPAN);
    memset(pair->far, 2, SPAN);
    proxy_set(stalled.proxy, mode);
    end_request(pair, &wanted, ending, 0);
    memset(pair->near, 3, BIG);
    batch = submit(pair, &next, 1, 20 * SECOND);
    IS(MC_ERR_PENDING, mc_batch_wait(batch, 20 * MILLISECOND));
    proxy_set(stalled.proxy, PROXY_GOES);
    OK(mc_batch_wait(batch, MC_FOREVER));
    OK(mc_batch_free(batch));
    assert_all(pair->near, BIG, 3);
    assert_all(pair->near + BIG, MIB, 2);
    stalled_close(&stalled);
}

/* Fault 13. */
static void a_read_without_answer_ends_at_its_deadline_and_its_buffer_is_quiet(void **state) {
    a_read_ends(*state, PROXY_STALLS_REPLIES, 4096, BY_DEADLINE);
    a_read_ends(*state, PROXY_STALLS_REPLIES, BIG, BY_DEADLINE_UNATTENDED);
    a_read_ends(*state, PROXY_STALLS_REQUESTS, BIG, BY_DEADLINE);
    a_read_ends(*state, PROXY_STALLS_REPLIES, BIG, BLOCKING);
}

static void a_read_without_answer_is_cancelled_at_once_and_its_buffer_is_quiet(void **state) {
    a_read_ends(*state, PROXY_STALLS_REPLIES, 4096, BY_CANCEL);
    a_read_ends(*state, PROXY_STALLS_REPLIES, BIG, BY_CANCEL);
    a_read_ends(*state, PROXY_STALLS_REQUESTS, BIG, BY_CANCEL);
}

static void a_read_that_is_given_up_half_received_leaves_its_buffer_alone(void **state) {
    struct stalled stalled;
    const struct pair *pair = &stalled.pair;
    struct mc_request wanted, next;

    stalled_open(&stalled, *state);
    wanted = request(pair, MC_READ, 0, 0, BIG);
    next = request(pair, MC_READ, BIG, 0, MIB);
    memset(pair->far, 2, SPAN);
    for (int i = 0; i < 5; i++) {
        uint64_t batch;

        memset(pair->near, 1, SPAN);
        batch = submit(pair, &wanted, 1, 0);
        let_through(proxy_replied, stalled.proxy, 100000);
        proxy_set(stalled.proxy, PROXY_STALLS_REPLIES);
        OK(mc_batch_cancel(batch));
        memset(pair->near, 3, BIG);
        OK(mc_batch_free(batch));
        batch = submit(pair, &next, 1, 20 * SECOND);
        proxy_set(stalled.proxy, PROXY_GOES);
        OK(mc_batch_wait(batch, MC_FOREVER));
        OK(mc_batch_free(batch));
        assert_all(pair->near, BIG, 3);
        assert_all(pair->near + BIG, MIB, 2);
    }
    stalled_close(&stalled);
}

/* A WRITE that is given up: its source may be overwritten, and the target never sees the new bytes. */
static void a_write_ends(const struct pair *whole, unsigned mode, size_t length, enum ending ending) {
    struct stalled stalled;
    const struct pair *pair = &stalled.pair;
    struct mc_request wanted, next;
    uint64_t batch;

    stalled_open(&stalled, whole);
    wanted = request(pair, MC_WRITE, 0, 0, length);
    next = request(pair, MC_WRITE, BIG, BIG, MIB);
    memset(pair->near, 1, SPAN);
    memset(pair->far, 2, SPAN);
    proxy_set(stalled.proxy, mode);
    end_request(pair, &wanted, ending, MC_STATUS_INDETERMINATE);
    memset(pair->near, 3, BIG);
    batch = submit(pair, &next, 1, 20 * SECOND);
    IS(MC_ERR_PENDING, mc_batch_wait(batch, 20 * MILLISECOND));
    proxy_set(stalled.proxy, PROXY_GOES);
    OK(mc_batch_wait(batch, MC_FOREVER));
    OK(mc_batch_free(batch));
    for (size_t i = 0; i < BIG; i++)
        if (pair->far[i] == 3)
            fail_msg("byte %zu was sent after the end", i);
    assert_all(pair->far + BIG, MIB, 1);
    assert_all(pair->far + BIG + MIB, SPAN - BIG - MIB, 2);
    stalled_close(&stalled);
}

/* Fault 13. */
static void a_write_without_answer_ends_at_its_deadline_and_its_source_is_free(void **state) {
    a_write_ends(*state, PROXY_STALLS_REQUESTS, 4096, BY_DEADLINE);
    a_write_ends(*state, PROXY_STALLS_REQUESTS, BIG, BY_DEADLINE_UNATTENDED);
    a_write_ends(*state, PROXY_STALLS_REPLIES, BIG, BY_DEADLINE);
    a_write_ends(*state, PROXY_STALLS_REQUESTS, BIG, BLOCKING);
}

static void a_write_without_answer_is_cancelled_at_once_and_its_source_is_free(void **state) {
    a_write_ends(*state, PROXY_STALLS_REQUESTS, 4096, BY_CANCEL);
    a_write_ends(*state, PROXY_STALLS_REQUESTS, BIG, BY_CANCEL);
    a_write_ends(*state, PROXY_STALLS_REPLIES, BIG, BY_CANCEL);
}

static void others_on_the_lane_go_on_when_one_is_given_up(void **state) {
    struct stalled stalled;
    const struct pair *pair = &stalled.pair;
    struct mc_request requests[9];
    uint64_t batches[9];

    stalled_open(&stalled, *state);
    fill(pair->near, SPAN, 1);
    memset(pair->far, 0, SPAN);
    proxy_set(stalled.proxy, PROXY_STALLS_REQUESTS);
    for (size_t i = 0; i < 9; i++) {
        requests[i] = request(pair, MC_WRITE, i * MIB, i * MIB, MIB);
        batches[i] = submit(pair, &requests[i], 1, i % 3 == 1 ? 100 * MILLISECOND : 20 * SECOND);
    }
    for (size_t i = 0; i < 9; i++) {
        if (i % 3 == 0)
            OK(mc_batch_cancel(batches[i]));
        if (i % 3 == 1)
            IS(MC_ERR_TIMEOUT, mc_batch_wait(batches[i], MC_FOREVER));
    }
    proxy_set(stalled.proxy, PROXY_GOES);
    for (size_t i = 0; i < 9; i++) {
        if (i % 3 == 2) {
            OK(mc_batch_wait(batches[i], MC_FOREVER));
            assert_same(pair->far + i * MIB, pair->near + i * MIB, MIB);
        }
        OK(mc_batch_free(batches[i]));
    }
    stalled_close(&stalled);
}

static void the_failure_that_is_reported_is_the_one_that_is_explained(void **state) {
    struct stalled stalled;
    const struct pair *pair = &stalled.pair;
    struct mc_request requests[2];
    struct mc_error *error = contract_error();
    uint64_t batch;

    stalled_open(&stalled, *state);
    proxy_set(stalled.proxy, PROXY_STALLS_REPLIES);
    /* Request 1 goes past the proxy and fails at once; request 0 fails after it, in another way. */
    requests[0] = request(pair, MC_READ, 0, 0, 4096);
    requests[1] = request(pair, MC_READ, BIG, SPAN - 10, 4096);
    requests[1].peer = contract_peer(pair->here, pair->there);
    IS(MC_ERR_NOT_REGISTERED,
       mc_engine_transfer(pair->here, requests, 2, sizeof(requests[0]), 200 * MILLISECOND, error));
    assert_int_equal(error->code, MC_ERR_NOT_REGISTERED);
    assert_non_null(strstr(error->message, "request 1"));
    requests[0].flags = MC_REQUEST_GUARD;
    requests[0].guard_address = requests[0].remote;
    requests[0].guard_value = ~*(const uint64_t *)(const void *)pair->far;
    batch = submit(pair, requests, 2, 20 * SECOND);
    while (status_of(batch, 1).state == MC_STATE_PENDING)
        ;
    proxy_set(stalled.proxy, PROXY_GOES);
    IS(MC_ERR_NOT_REGISTERED, mc_batch_wait(batch, MC_FOREVER));
    IS(MC_ERR_GUARD_MISMATCH, status_of(batch, 0).status);
    error = contract_error();
    IS(MC_ERR_NOT_REGISTERED, mc_batch_explain(batch, error));
    assert_int_equal(error->code, MC_ERR_NOT_REGISTERED);
    assert_non_null(strstr(error->message, "request 1"));
    OK(mc_batch_free(batch));
    stalled_close(&stalled);
}

static void the_other_calls_end_at_their_deadlines_too(void **state) {
    struct stalled stalled;
    uint64_t begin, peer = 42;
    struct mc_engine_options options = {
        .struct_size = sizeof(options), .protocol = "tcp", .connect_timeout_ns = 300 * MILLISECOND};
    mc_engine *engine;

    stalled_open(&stalled, *state);
    proxy_set(stalled.proxy, PROXY_STALLS_REQUESTS | PROXY_STALLS_REPLIES);
    begin = now_ns();
    IS(MC_ERR_TIMEOUT, mc_peer_probe(stalled.pair.peer, 100 * MILLISECOND, contract_error()));
    IS(MC_ERR_TIMEOUT, mc_peer_notify(stalled.pair.peer, "n", 1, "m", 1, 100 * MILLISECOND, contract_error()));
    assert_true(now_ns() - begin >= 200 * MILLISECOND && now_ns() - begin < 200 * MILLISECOND + LATE);
    OK(mc_engine_open(&options, &engine, contract_error()));
    begin = now_ns();
    IS(MC_ERR_UNREACHABLE, mc_peer_open(engine, proxy_address(stalled.proxy), &peer, contract_error()));
    assert_true(now_ns() - begin < 300 * MILLISECOND + LATE);
    assert_int_equal(peer, 42);
    OK(mc_engine_close(engine));
    proxy_set(stalled.proxy, PROXY_GOES);
    OK(mc_peer_probe(stalled.pair.peer, 10 * SECOND, contract_error()));
    stalled_close(&stalled);
}

static void a_read_that_was_given_up_does_not_hold_the_targets_memory(void **state) {
    struct pair *pair = *state;
    struct mc_request requests[64];
    uint64_t batch;

    for (size_t i = 0; i < 64; i++)
        requests[i] = request(pair, MC_READ, 0, 0, BIG);
    batch = submit(pair, requests, 64, 0);
    IS(MC_ERR_PENDING, mc_batch_wait(batch, MILLISECOND));
    OK(mc_batch_cancel(batch));
    OK(mc_batch_free(batch));
    OK(mc_engine_unregister(pair->there, pair->far, contract_error()));
    OK(mc_engine_register(pair->there, pair->far, SPAN, NULL, RIGHTS, contract_error()));
}

static void a_connection_that_is_cut_fails_what_is_in_flight_and_is_made_again(void **state) {
    struct stalled stalled;
    const struct pair *pair = &stalled.pair;
    struct mc_request wanted;
    uint64_t batch, deadline;

    stalled_open(&stalled, *state);
    for (int i = 0; i < 4; i++) {
        int32_t status;

        memset(pair->near, 1, BIG);
        memset(pair->far, 2, BIG);
        wanted = request(pair, i % 2 == 0 ? MC_READ : MC_WRITE, 0, 0, BIG);
        proxy_set(stalled.proxy, i < 2 ? PROXY_STALLS_REPLIES : PROXY_STALLS_REQUESTS);
        batch = submit(pair, &wanted, 1, 20 * SECOND);
        IS(MC_ERR_PENDING, mc_batch_wait(batch, 10 * MILLISECOND));
        proxy_cut(stalled.proxy);
        IS(MC_ERR_CONNECTION_LOST, mc_batch_wait(batch, SECOND));
        assert_int_equal(status_of(batch, 0).state, MC_STATE_FAILED);
        assert_int_equal(status_of(batch, 0).flags, i % 2 == 0 ? 0 : MC_STATUS_INDETERMINATE);
        memset(pair->near, 3, BIG);
        OK(mc_batch_free(batch));
        deadline = now_ns() + 2 * SECOND;
        do
            status = mc_peer_probe(pair->peer, SECOND, contract_error());
        while (status != MC_OK && now_ns() < deadline);
        OK(status);
        assert_all(pair->near, BIG, 3);
        for (size_t j = 0; j < BIG; j++)
            if (pair->far[j] == 3)
                fail_msg("byte %zu was sent after the end", j);
        OK(mc_engine_transfer(pair->here, &wanted, 1, sizeof(wanted), 0, contract_error()));
    }
    stalled_close(&stalled);
}

/* ---- Closing under calls that can't end by themselves ---- */

struct blocked {
    atomic_size_t begun;
    uint64_t batch;
};

static void *block(void *context) {
    struct worker *worker = context;
    struct blocked *blocked = worker->context;
    const struct pair *pair = worker->pair;
    struct mc_request wanted = request(pair, MC_WRITE, 0, 0, BIG);
    int32_t status;

    atomic_fetch_add(&blocked->begun, 1);
    switch (worker->index) {
    case 0:
        status = mc_engine_transfer(pair->here, &wanted, 1, sizeof(wanted), MC_FOREVER, NULL);
        break;
    case 1:
        status = mc_peer_read(pair->peer, pair->near + BIG, wanted.remote, 64, MC_FOREVER, NULL);
        break;
    case 2:
        status = mc_peer_notify(pair->peer, "n", 1, "m", 1, MC_FOREVER, NULL);
        break;
    case 3:
        status = mc_peer_probe(pair->peer, MC_FOREVER, NULL);
        break;
    default:
        status = mc_batch_wait(blocked->batch, MC_FOREVER);
        break;
    }
    EXPECT(worker, status != MC_OK && status != MC_ERR_PENDING && status != MC_ERR_TIMEOUT);
    return NULL;
}

static void closing_ends_calls_that_wait_for_a_peer_that_is_stalled(void **state) {
    struct stalled stalled;
    const struct pair *pair = &stalled.pair;

    for (int i = 0; i < 5; i++) {
        struct blocked blocked = {0};
        struct worker workers[5];
        struct mc_request wanted;
        uint64_t begin;

        stalled_open(&stalled, *state);
        wanted = request(pair, MC_WRITE, 0, 0, BIG);
        proxy_set(stalled.proxy, PROXY_STALLS_REQUESTS | PROXY_STALLS_REPLIES);
        blocked.batch = submit(pair, &wanted, 1, MC_FOREVER);
        for (size_t j = 0; j < 5; j++) {
            workers[j] = (struct worker){.pair = pair, .index = j, .context = &blocked};
            worker_start(&workers[j], block);
        }
        while (atomic_load(&blocked.begun) < 5)
            ;
        if (i > 0)
            IS(MC_ERR_PENDING, mc_batch_wait(blocked.batch, 20 * MILLISECOND));
        begin = now_ns();
        OK(mc_engine_close(pair->here));
        assert_true(now_ns() - begin < 2 * SECOND);
        for (size_t j = 0; j < 5; j++)
            worker_join(&workers[j]);
        assert_int_equal(status_of(blocked.batch, 0).flags, MC_STATUS_INDETERMINATE);
        OK(mc_batch_free(blocked.batch));
        proxy_stop(stalled.proxy);
    }
}

static const struct CMUnitTest tests[] = {
    CONTRACT_TEST(a_read_without_answer_ends_at_its_deadline_and_its_buffer_is_quiet),
    CONTRACT_TEST(a_read_without_answer_is_cancelled_at_once_and_its_buffer_is_quiet),
    CONTRACT_TEST(a_read_that_is_given_up_half_received_leaves_its_buffer_alone),
    CONTRACT_TEST(a_write_without_answer_ends_at_its_deadline_and_its_source_is_free),
    CONTRACT_TEST(a_write_without_answer_is_cancelled_at_once_and_its_source_is_free),
    CONTRACT_TEST(others_on_the_lane_go_on_when_one_is_given_up),
    CONTRACT_TEST(the_failure_that_is_reported_is_the_one_that_is_explained),
    CONTRACT_TEST(the_other_calls_end_at_their_deadlines_too),
    CONTRACT_TEST(a_read_that_was_given_up_does_not_hold_the_targets_memory),
    CONTRACT_TEST(a_connection_that_is_cut_fails_what_is_in_flight_and_is_made_again),
    CONTRACT_TEST(closing_ends_calls_that_wait_for_a_peer_that_is_stalled),
};

CONTRACT_PART(contract_stalls, tests);

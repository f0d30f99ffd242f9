/* test_cancels.c - a batch ends early, on every path, and its buffers are quiet from then on. */
#include "contract.h"

#include <stdatomic.h>

#define REQUESTS ((size_t)256) /* two GiB: not done before the end comes, not even out of a large cache */
#define SIZE (8 * MIB)

struct cancel {
    uint64_t batch;
    const volatile uint8_t *watched;
    uint8_t old_byte;
};

RACY static uint8_t look(const volatile uint8_t *byte) {
    return *byte;
}

static void *cancel_once_it_moves(void *context) {
    struct worker *worker = context;
    struct cancel *cancel = worker->context;

    while (look(cancel->watched) == cancel->old_byte)
        ;
    EXPECT(worker, mc_batch_cancel(cancel->batch) == MC_OK);
    /* Terminal on return. */
    EXPECT(worker, mc_batch_wait(cancel->batch, 0) == MC_ERR_CANCELLED);
    return NULL;
}

/* Cancels a large batch under a waiting caller. Returns its id. */
static uint64_t cancelled(const struct pair *pair, uint32_t opcode, bool waiting) {
    uint8_t *from = opcode == MC_READ ? pair->far : pair->near, *to = opcode == MC_READ ? pair->near : pair->far;
    struct cancel cancel = {.watched = to, .old_byte = 1};
    struct worker worker = {.pair = pair, .context = &cancel};
    struct mc_request requests[REQUESTS];
    size_t ended = 0;

    memset(from, 2, SIZE);
    memset(to, 1, SIZE);
    for (size_t i = 0; i < REQUESTS; i++)
        requests[i] = request(pair, opcode, 0, 0, SIZE);
    cancel.batch = submit(pair, requests, REQUESTS, 0);
    worker_start(&worker, cancel_once_it_moves);
    if (waiting)
        IS(MC_ERR_CANCELLED, mc_batch_wait(cancel.batch, MC_FOREVER));
    worker_join(&worker);
    IS(MC_ERR_CANCELLED, mc_batch_wait(cancel.batch, 0));
    for (size_t i = 0; i < REQUESTS; i++) {
        struct mc_request_status status = status_of(cancel.batch, i);

        assert_true(status.state == MC_STATE_CANCELLED || status.state == MC_STATE_COMPLETED);
        IS(status.state == MC_STATE_CANCELLED ? MC_ERR_CANCELLED : MC_OK, status.status);
        if (opcode == MC_READ)
            assert_int_equal(status.flags, 0);
        ended += status.state == MC_STATE_CANCELLED;
    }
    assert_true(ended > 0);
    return cancel.batch;
}

/* Behind what is still under way on any lane: requests of this size are spread. */
static void over_all_lanes(const struct pair *pair, uint32_t opcode) {
    const struct mc_request requests[] = {request(pair, opcode, SIZE, SIZE, MIB),
                                          request(pair, opcode, SIZE + MIB, SIZE + MIB, MIB)};

    for (int i = 0; i < 4; i++)
        OK(mc_engine_transfer(pair->here, requests, 2, sizeof(requests[0]), 0, contract_error()));
}

static void a_cancelled_read_ends_early_and_leaves_the_buffer_alone(void **state) {
    const struct pair *pair = *state;

    for (size_t i = 0; i < contract_scaled(10); i++) {
        uint64_t batch = cancelled(pair, MC_READ, i % 2 == 0);

        memset(pair->near, 3, SIZE);
        over_all_lanes(pair, MC_READ);
        for (size_t j = 0; j < SIZE; j++)
            if (pair->near[j] != 3)
                fail_msg("byte %zu was written after the end", j);
        OK(mc_batch_free(batch));
    }
}

static void a_cancelled_write_never_sends_what_is_written_to_its_source_later(void **state) {
    const struct pair *pair = *state;

    for (size_t i = 0; i < contract_scaled(10); i++) {
        uint64_t batch = cancelled(pair, MC_WRITE, i % 2 == 0);

        memset(pair->near, 3, SIZE);
        OK(mc_batch_free(batch));
        over_all_lanes(pair, MC_WRITE);
        for (size_t j = 0; j < SIZE; j++)
            if (pair->far[j] == 3)
                fail_msg("byte %zu was sent after the end", j);
    }
}

static void cancelling_a_finished_batch_changes_nothing(void **state) {
    const struct pair *pair = *state;
    struct mc_request wanted = request(pair, MC_WRITE, 0, 0, 4096);
    uint64_t batch = submit(pair, &wanted, 1, 0);

    OK(mc_batch_wait(batch, MC_FOREVER));
    OK(mc_batch_cancel(batch));
    OK(mc_batch_cancel(batch));
    OK(mc_batch_wait(batch, 0));
    assert_int_equal(status_of(batch, 0).state, MC_STATE_COMPLETED);
    OK(mc_batch_free(batch));
    IS(MC_ERR_INVALID_HANDLE, mc_batch_cancel(batch));
}

static void *cancel_it(void *context) {
    struct worker *worker = context;

    EXPECT(worker, mc_batch_cancel(*(uint64_t *)worker->context) == MC_OK);
    return NULL;
}

static void threads_that_cancel_the_same_batch_all_find_it_ended(void **state) {
    const struct pair *pair = *state;
    struct mc_request requests[REQUESTS];

    for (size_t i = 0; i < REQUESTS; i++)
        requests[i] = request(pair, MC_WRITE, 0, 0, SIZE);
    for (size_t i = 0; i < contract_scaled(10); i++) {
        uint64_t batch = submit(pair, requests, REQUESTS, 0);

        contract_run(pair, 4, cancel_it, &batch);
        IS(MC_ERR_CANCELLED, mc_batch_wait(batch, 0));
        OK(mc_batch_free(batch));
    }
}

/* Fault 13. */
static void a_deadline_ends_a_large_copy_in_time(void **state) {
    const struct pair *pair = *state;
    struct mc_request requests[REQUESTS];
    struct mc_request_status status;

    for (size_t i = 0; i < REQUESTS; i++)
        requests[i] = request(pair, MC_WRITE, 0, 0, SIZE);
    for (size_t i = 0; i < 2; i++) {
        uint64_t begin = now_ns(), batch = submit(pair, requests, REQUESTS, 20 * MILLISECOND);

        /* With and without a waiting caller. */
        while (i == 0 && status_of(batch, REQUESTS - 1).state == MC_STATE_PENDING)
            ;
        IS(MC_ERR_TIMEOUT, mc_batch_wait(batch, MC_FOREVER));
        assert_true(now_ns() - begin < 520 * MILLISECOND);
        status = status_of(batch, REQUESTS - 1);
        assert_int_equal(status.state, MC_STATE_TIMEOUT);
        IS(MC_ERR_TIMEOUT, status.status);
        OK(mc_batch_free(batch));
    }
    IS(MC_ERR_TIMEOUT,
       mc_engine_transfer(pair->here, requests, REQUESTS, sizeof(requests[0]), 20 * MILLISECOND, contract_error()));
    OK(mc_peer_write(pair->peer, pair->near, (uint64_t)(uintptr_t)pair->far, SIZE, 0, contract_error()));
}

static const struct CMUnitTest tests[] = {
    CONTRACT_TEST(a_cancelled_read_ends_early_and_leaves_the_buffer_alone),
    CONTRACT_TEST(a_cancelled_write_never_sends_what_is_written_to_its_source_later),
    CONTRACT_TEST(cancelling_a_finished_batch_changes_nothing),
    CONTRACT_TEST(threads_that_cancel_the_same_batch_all_find_it_ended),
    CONTRACT_TEST(a_deadline_ends_a_large_copy_in_time),
};

CONTRACT_PART(contract_cancels, tests);

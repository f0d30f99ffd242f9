/* test_queues.c - each finished batch that was bound to a queue is in it once, until it is reaped or freed. */
#include "contract.h"

#include <poll.h>

static mc_queue *queue_opened(void) {
    mc_queue *queue;

    OK(mc_queue_open(&queue, contract_error()));
    return queue;
}

static bool readable(mc_queue *queue, int timeout_ms) {
    struct pollfd polled = {.fd = mc_queue_fd(queue), .events = POLLIN};

    assert_true(polled.fd >= 0);
    return poll(&polled, 1, timeout_ms) == 1;
}

static uint64_t submit_to(const struct pair *pair, mc_queue *queue, uint64_t user_data, uint64_t length) {
    const struct mc_batch_options options = {.struct_size = sizeof(options), .queue = queue, .user_data = user_data};
    struct mc_request wanted = request(pair, MC_WRITE, 0, 0, length);
    uint64_t batch = 0;

    OK(mc_batch_submit(pair->here, &wanted, 1, sizeof(wanted), &options, &batch, contract_error()));
    return batch;
}

static void the_descriptor_is_readable_exactly_while_a_completion_waits(void **state) {
    const struct pair *pair = *state;
    mc_queue *queue = queue_opened();
    struct mc_completion completion;
    uint64_t first, second;

    assert_false(readable(queue, 0));
    first = submit_to(pair, queue, 1, 100);
    assert_true(readable(queue, 10000));
    second = submit_to(pair, queue, 2, 100);
    OK(mc_batch_wait(second, MC_FOREVER));
    IS(1, mc_queue_reap(queue, &completion, 1, sizeof(completion), MC_FOREVER));
    assert_true(completion.batch == first && completion.user_data == 1);
    assert_true(readable(queue, 0));
    IS(1, mc_queue_reap(queue, &completion, 1, sizeof(completion), MC_FOREVER));
    assert_true(completion.batch == second && completion.user_data == 2);
    assert_false(readable(queue, 0));
    IS(MC_ERR_PENDING, mc_queue_reap(queue, &completion, 1, sizeof(completion), 0));
    IS(MC_ERR_PENDING, mc_queue_reap(queue, &completion, 1, sizeof(completion), MILLISECOND));
    OK(mc_batch_free(first));
    OK(mc_batch_free(second));
    OK(mc_queue_close(queue));
}

static void a_batch_that_is_freed_before_it_is_reaped_leaves_the_queue(void **state) {
    const struct pair *pair = *state;
    mc_queue *queue = queue_opened();
    struct mc_completion completions[4];
    uint64_t batches[3];

    for (size_t i = 0; i < 3; i++) {
        batches[i] = submit_to(pair, queue, i, 100);
        OK(mc_batch_wait(batches[i], MC_FOREVER));
    }
    OK(mc_batch_free(batches[1]));
    IS(2, mc_queue_reap(queue, completions, 4, sizeof(completions[0]), 0));
    assert_true(completions[0].batch == batches[0] && completions[1].batch == batches[2]);
    OK(mc_batch_free(batches[0]));
    batches[1] = submit_to(pair, queue, 9, 100);
    OK(mc_batch_wait(batches[1], MC_FOREVER));
    OK(mc_batch_free(batches[1]));
    assert_false(readable(queue, 0));
    IS(MC_ERR_PENDING, mc_queue_reap(queue, completions, 4, sizeof(completions[0]), 0));
    OK(mc_batch_free(batches[2]));
    OK(mc_queue_close(queue));
}

static void a_queue_is_busy_while_a_batch_is_bound_to_it(void **state) {
    const struct pair *pair = *state;
    mc_queue *queue = queue_opened();
    struct mc_completion completion;
    uint64_t batch = submit_to(pair, queue, 1, 8 * MIB);

    IS(MC_ERR_BUSY, mc_queue_close(queue));
    OK(mc_batch_wait(batch, MC_FOREVER));
    IS(MC_ERR_BUSY, mc_queue_close(queue));
    IS(1, mc_queue_reap(queue, &completion, 1, sizeof(completion), 0));
    IS(MC_ERR_BUSY, mc_queue_close(queue));
    OK(mc_batch_free(batch));
    OK(mc_queue_close(queue));
    IS(MC_ERR_INVALID_HANDLE, mc_queue_close(queue));
}

#define BATCHES ((size_t)300)

static void completions_are_reaped_in_groups_each_once(void **state) {
    const struct pair *pair = *state;
    mc_queue *queue = queue_opened();
    struct wide_completion {
        struct mc_completion completion;
        uint64_t mine[2];
    } completions[7];
    uint64_t batches[BATCHES];
    bool seen[BATCHES] = {false};
    size_t reaped = 0;

    for (size_t i = 0; i < BATCHES; i++)
        batches[i] = submit_to(pair, queue, i, 1 + i * 50);
    while (reaped < BATCHES) {
        int64_t count;

        memset(completions, 0xee, sizeof(completions));
        count = mc_queue_reap(queue, &completions[0].completion, 7, sizeof(completions[0]), 10 * SECOND);
        assert_true(count >= 1 && count <= 7);
        for (size_t i = 0; i < 7; i++) {
            const struct mc_completion *got = &completions[i].completion;

            assert_true(completions[i].mine[0] == UINT64_C(0xeeeeeeeeeeeeeeee));
            if (i >= (size_t)count)
                continue;
            assert_true(got->user_data < BATCHES && !seen[got->user_data]);
            assert_true(got->batch == batches[got->user_data]);
            OK(got->status);
            assert_int_equal(got->failed, 0);
            seen[got->user_data] = true;
        }
        reaped += (size_t)count;
    }
    assert_false(readable(queue, 0));
    for (size_t i = 0; i < BATCHES; i++)
        OK(mc_batch_free(batches[i]));
    OK(mc_queue_close(queue));
}

static void a_completion_says_how_many_failed_and_why(void **state) {
    const struct pair *pair = *state;
    mc_queue *queue = queue_opened();
    const struct mc_batch_options options = {.struct_size = sizeof(options), .queue = queue};
    struct mc_completion completion;
    struct mc_request requests[9];
    uint64_t batch = 0;

    for (size_t i = 0; i < 9; i++)
        requests[i] = request(pair, MC_READ, i * 4096, i % 2 == 0 ? i * 4096 : SPAN - 10, 4096);
    OK(mc_batch_submit(pair->here, requests, 9, sizeof(requests[0]), &options, &batch, contract_error()));
    IS(1, mc_queue_reap(queue, &completion, 1, sizeof(completion), 10 * SECOND));
    IS(MC_ERR_NOT_REGISTERED, completion.status);
    assert_int_equal(completion.failed, 4);
    OK(mc_batch_free(batch));
    OK(mc_queue_close(queue));
}

static void *reap_and_free(void *context) {
    struct worker *worker = context;
    struct mc_completion completion;

    for (size_t i = 0; i < 50; i++) {
        EXPECT(worker, mc_queue_reap(worker->context, &completion, 1, sizeof(completion), 30 * SECOND) == 1);
        EXPECT(worker, completion.status == MC_OK && mc_batch_free(completion.batch) == MC_OK);
    }
    return NULL;
}

static void threads_share_a_queue(void **state) {
    const struct pair *pair = *state;
    mc_queue *queue = queue_opened();
    struct worker workers[4];

    for (size_t i = 0; i < 4; i++) {
        workers[i] = (struct worker){.pair = pair, .index = i, .context = queue};
        worker_start(&workers[i], reap_and_free);
    }
    for (size_t i = 0; i < 200; i++)
        (void)submit_to(pair, queue, i, 1 + i * 97);
    for (size_t i = 0; i < 4; i++)
        worker_join(&workers[i]);
    assert_false(readable(queue, 0));
    OK(mc_queue_close(queue));
}

static const struct CMUnitTest tests[] = {
    CONTRACT_TEST(the_descriptor_is_readable_exactly_while_a_completion_waits),
    CONTRACT_TEST(a_batch_that_is_freed_before_it_is_reaped_leaves_the_queue),
    CONTRACT_TEST(a_queue_is_busy_while_a_batch_is_bound_to_it),
    CONTRACT_TEST(completions_are_reaped_in_groups_each_once),
    CONTRACT_TEST(a_completion_says_how_many_failed_and_why),
    CONTRACT_TEST(threads_share_a_queue),
};

CONTRACT_PART(contract_queues, tests);

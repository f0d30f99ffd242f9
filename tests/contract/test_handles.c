/* test_handles.c - ids go stale for ever, and a million of them cost nothing. */
#include "contract.h"

static void submit_wait_free(const struct pair *pair, uint64_t length) {
    struct mc_request wanted = request(pair, MC_WRITE, 0, 0, length);
    uint64_t batch;

    OK(mc_batch_submit(pair->here, &wanted, 1, sizeof(wanted), NULL, &batch, NULL));
    OK(mc_batch_wait(batch, MC_FOREVER));
    OK(mc_batch_free(batch));
}

/* Fault 15. */
static void a_million_batches_leave_memory_and_descriptors_as_they_were(void **state) {
    const struct pair *pair = *state;
    /* Over a network most of them move nothing, for the sake of time. */
    const size_t moving = contract_is("tcp") ? 50 : 1;
    const size_t cycles = contract_scaled(1000000) / (contract_scaled(10) == 10 ? 1 : 5);
    size_t descriptors, resident;

    for (size_t i = 0; i < cycles / 20; i++)
        submit_wait_free(pair, 64);
    descriptors = descriptor_count();
    resident = resident_bytes();
    for (size_t i = 0; i < cycles; i++)
        submit_wait_free(pair, i % moving == 0 ? 64 : 0);
    assert_int_equal(descriptor_count(), descriptors);
#ifdef CONTRACT_SANITIZED
    (void)resident; /* the sanitizer keeps what was freed */
#else
    assert_true(resident_bytes() < resident + MIB);
#endif
}

/* Fault 15. */
static void a_stale_batch_is_invalid_for_every_call(void **state) {
    const struct pair *pair = *state;
    struct mc_request wanted = request(pair, MC_WRITE, 0, 0, 64);
    struct mc_request_status status;
    uint64_t batch = submit(pair, &wanted, 1, 0);

    OK(mc_batch_wait(batch, MC_FOREVER));
    OK(mc_batch_free(batch));
    for (size_t i = 0; i < contract_scaled(20000); i++) { /* until each slot has been used again */
        uint64_t next = submit(pair, &wanted, 1, 0);

        assert_true(next != batch);
        IS(MC_ERR_INVALID_HANDLE, mc_batch_wait(batch, 0));
        IS(MC_ERR_INVALID_HANDLE, mc_batch_status(batch, 0, &status, 1, sizeof(status)));
        IS(MC_ERR_INVALID_HANDLE, mc_batch_cancel(batch));
        IS(MC_ERR_INVALID_HANDLE, mc_batch_explain(batch, contract_error()));
        IS(MC_ERR_INVALID_HANDLE, mc_batch_free(batch));
        OK(mc_batch_wait(next, MC_FOREVER));
        OK(mc_batch_free(next));
    }
}

static void a_stale_peer_is_invalid_for_every_call(void **state) {
    const struct pair *pair = *state;
    uint64_t peer = contract_peer(pair->here, pair->there), next, batch = 42;
    struct mc_request wanted = request(pair, MC_READ, 0, 0, 8);
    char text[64];

    wanted.peer = peer;
    OK(mc_peer_close(peer));
    next = contract_peer(pair->here, pair->there);
    assert_true(next != peer);
    IS(MC_ERR_INVALID_HANDLE, mc_peer_close(peer));
    IS(MC_ERR_INVALID_HANDLE, mc_peer_probe(peer, SECOND, contract_error()));
    IS(MC_ERR_INVALID_HANDLE, mc_peer_explain(peer, text, sizeof(text)));
    IS(MC_ERR_INVALID_HANDLE, mc_peer_notify(peer, "n", 1, "m", 1, SECOND, contract_error()));
    IS(MC_ERR_INVALID_HANDLE, mc_peer_read(peer, pair->near, wanted.remote, 8, 0, contract_error()));
    IS(MC_ERR_INVALID_HANDLE, mc_peer_write(peer, pair->near, wanted.remote, 8, 0, contract_error()));
    IS(MC_ERR_INVALID_HANDLE, mc_engine_transfer(pair->here, &wanted, 1, sizeof(wanted), 0, contract_error()));
    IS(MC_ERR_INVALID_HANDLE, mc_batch_submit(pair->here, &wanted, 1, sizeof(wanted), NULL, &batch, contract_error()));
    OK(mc_peer_close(next));
}

static void a_stale_queue_is_invalid_for_every_call(void **state) {
    const struct pair *pair = *state;
    struct mc_request wanted = request(pair, MC_READ, 0, 0, 8);
    struct mc_batch_options options = {.struct_size = sizeof(options)};
    struct mc_completion completion;
    uint64_t batch = 42;
    mc_queue *next;

    OK(mc_queue_open(&options.queue, contract_error()));
    OK(mc_queue_close(options.queue));
    OK(mc_queue_open(&next, contract_error()));
    IS(MC_ERR_INVALID_HANDLE, mc_queue_close(options.queue));
    IS(MC_ERR_INVALID_HANDLE, mc_queue_fd(options.queue));
    IS(MC_ERR_INVALID_HANDLE, mc_queue_reap(options.queue, &completion, 1, sizeof(completion), 0));
    IS(MC_ERR_INVALID_HANDLE,
       mc_batch_submit(pair->here, &wanted, 1, sizeof(wanted), &options, &batch, contract_error()));
    assert_int_equal(batch, 42);
    OK(mc_queue_close(next));
}

/* Every call that takes an engine, a queue, a peer, a batch or a memory, with an id that is none of its kind. */
static void every_call_refuses(const struct pair *pair, uint64_t id, uint32_t but) {
    mc_engine *engine = (mc_engine *)(uintptr_t)id;
    mc_queue *queue = (mc_queue *)(uintptr_t)id;
    struct mc_request wanted = request(pair, MC_READ, 0, 0, 8);
    struct mc_request_status status;
    struct mc_completion completion;
    struct mc_notification *got = NULL;
    uint64_t made = 42;
    uint8_t incarnation[16];
    char text[64];

    if (but != 1) {
        IS(MC_ERR_INVALID_HANDLE, mc_engine_close(engine));
        IS(MC_ERR_INVALID_HANDLE, mc_engine_address(engine, text, sizeof(text)));
        IS(MC_ERR_INVALID_HANDLE, mc_engine_incarnation(engine, incarnation));
        IS(MC_ERR_INVALID_HANDLE, mc_engine_metrics(engine, MC_METRICS_JSON, text, sizeof(text)));
        IS(MC_ERR_INVALID_HANDLE, mc_engine_register(engine, pair->near, 8, NULL, 0, contract_error()));
        IS(MC_ERR_INVALID_HANDLE, mc_engine_unregister(engine, pair->near, contract_error()));
        IS(MC_ERR_INVALID_HANDLE, mc_peer_open(engine, "127.0.0.1:1", &made, contract_error()));
        IS(MC_ERR_INVALID_HANDLE, mc_engine_receive(engine, 0, &got));
        IS(MC_ERR_INVALID_HANDLE, mc_engine_notification_fd(engine));
        IS(MC_ERR_INVALID_HANDLE, mc_batch_submit(engine, &wanted, 1, sizeof(wanted), NULL, &made, contract_error()));
        IS(MC_ERR_INVALID_HANDLE, mc_engine_transfer(engine, &wanted, 1, sizeof(wanted), 0, contract_error()));
    }
    if (but != 2) {
        struct mc_batch_options options = {.struct_size = sizeof(options), .queue = queue};

        IS(MC_ERR_INVALID_HANDLE, mc_queue_close(queue));
        IS(MC_ERR_INVALID_HANDLE, mc_queue_fd(queue));
        IS(MC_ERR_INVALID_HANDLE, mc_queue_reap(queue, &completion, 1, sizeof(completion), 0));
        if (queue != NULL)
            IS(MC_ERR_INVALID_HANDLE,
               mc_batch_submit(pair->here, &wanted, 1, sizeof(wanted), &options, &made, contract_error()));
    }
    if (but != 3) {
        wanted.peer = id;
        IS(MC_ERR_INVALID_HANDLE, mc_peer_close(id));
        IS(MC_ERR_INVALID_HANDLE, mc_peer_probe(id, SECOND, contract_error()));
        IS(MC_ERR_INVALID_HANDLE, mc_peer_explain(id, text, sizeof(text)));
        IS(MC_ERR_INVALID_HANDLE, mc_peer_notify(id, "n", 1, "m", 1, SECOND, contract_error()));
        IS(MC_ERR_INVALID_HANDLE, mc_peer_read(id, pair->near, wanted.remote, 8, 0, contract_error()));
        IS(MC_ERR_INVALID_HANDLE, mc_peer_write(id, pair->near, wanted.remote, 8, 0, contract_error()));
        IS(MC_ERR_INVALID_HANDLE, mc_engine_transfer(pair->here, &wanted, 1, sizeof(wanted), 0, contract_error()));
    }
    if (but != 4) {
        IS(MC_ERR_INVALID_HANDLE, mc_batch_wait(id, 0));
        IS(MC_ERR_INVALID_HANDLE, mc_batch_status(id, 0, &status, 1, sizeof(status)));
        IS(MC_ERR_INVALID_HANDLE, mc_batch_cancel(id));
        IS(MC_ERR_INVALID_HANDLE, mc_batch_explain(id, contract_error()));
        IS(MC_ERR_INVALID_HANDLE, mc_batch_free(id));
    }
    if (but != 5)
        IS(MC_ERR_INVALID_HANDLE, mc_memory_free(id));
    assert_int_equal(made, 42);
    assert_null(got);
}

static void invented_handles_are_invalid_for_every_call(void **state) {
    const struct pair *pair = *state;
    uint64_t here = (uint64_t)(uintptr_t)pair->here, seed = 1;
    const uint64_t invented[] = {0,
                                 1,
                                 UINT64_MAX,
                                 UINT32_MAX,
                                 UINT64_C(1) << 32,
                                 (uint64_t)(uintptr_t)pair,
                                 here + (UINT64_C(1) << 32),
                                 here + (UINT64_C(2) << 32),
                                 here - (UINT64_C(2) << 32),
                                 here | UINT32_MAX};

    for (size_t i = 0; i < sizeof(invented) / sizeof(invented[0]); i++)
        every_call_refuses(pair, invented[i], 0);
    for (size_t i = 0; i < 1000; i++)
        every_call_refuses(pair, random_next(&seed), 0);
}

static void a_handle_of_another_kind_is_invalid_for_every_call(void **state) {
    const struct pair *pair = *state;
    struct mc_request wanted = request(pair, MC_READ, 0, 0, 8);
    uint64_t batch = submit(pair, &wanted, 1, 0);
    mc_queue *queue;

    OK(mc_batch_wait(batch, MC_FOREVER));
    OK(mc_queue_open(&queue, contract_error()));
    every_call_refuses(pair, (uint64_t)(uintptr_t)pair->here, 1);
    every_call_refuses(pair, (uint64_t)(uintptr_t)queue, 2);
    every_call_refuses(pair, pair->peer, 3);
    every_call_refuses(pair, batch, 4);
    every_call_refuses(pair, pair->near_id, 5);
    OK(mc_batch_free(batch));
    OK(mc_queue_close(queue));
}

static void a_peer_of_another_engine_is_refused(void **state) {
    const struct pair *pair = *state;
    mc_engine *other = contract_engine();
    struct mc_request wanted = request(pair, MC_READ, 0, 0, 8);
    struct mc_error *error = contract_error();
    uint64_t batch = 42;

    OK(mc_engine_register(other, pair->near, SPAN, NULL, 0, contract_error()));
    IS(MC_ERR_INVALID_ARGUMENT, mc_batch_submit(other, &wanted, 1, sizeof(wanted), NULL, &batch, error));
    assert_true(error->message[0] != '\0');
    IS(MC_ERR_INVALID_ARGUMENT, mc_engine_transfer(other, &wanted, 1, sizeof(wanted), 0, contract_error()));
    assert_int_equal(batch, 42);
    OK(mc_engine_close(other));
}

static const struct CMUnitTest tests[] = {
    CONTRACT_TEST(a_million_batches_leave_memory_and_descriptors_as_they_were),
    CONTRACT_TEST(a_stale_batch_is_invalid_for_every_call),
    CONTRACT_TEST(a_stale_peer_is_invalid_for_every_call),
    CONTRACT_TEST(a_stale_queue_is_invalid_for_every_call),
    CONTRACT_TEST(invented_handles_are_invalid_for_every_call),
    CONTRACT_TEST(a_handle_of_another_kind_is_invalid_for_every_call),
    CONTRACT_TEST(a_peer_of_another_engine_is_refused),
};

CONTRACT_PART(contract_handles, tests);

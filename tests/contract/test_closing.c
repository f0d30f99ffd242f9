/* test_closing.c - closing ends what waits, frees everything, and is safe in any order. */
#include "contract.h"

#include <stdatomic.h>
#include <stdio.h>

/* How many threads sleep in the kernel, as far as the test can see: those that have begun. */
struct waiting {
    atomic_size_t begun;
    uint64_t batch;
};

static void *receive_until_closed(void *context) {
    struct worker *worker = context;
    struct waiting *waiting = worker->context;
    struct mc_notification *got = NULL;
    int32_t status;

    atomic_fetch_add(&waiting->begun, 1);
    status = mc_engine_receive(worker->pair->there, MC_FOREVER, &got);
    EXPECT(worker, status == MC_ERR_CLOSED || status == MC_ERR_INVALID_HANDLE);
    EXPECT(worker, got == NULL);
    return NULL;
}

static void closing_ends_receivers_that_wait(void **state) {
    struct pair *pair = *state;
    struct waiting waiting = {0};
    struct worker workers[4];

    for (size_t i = 0; i < 4; i++) {
        workers[i] = (struct worker){.pair = pair, .index = i, .context = &waiting};
        worker_start(&workers[i], receive_until_closed);
    }
    while (atomic_load(&waiting.begun) < 4)
        ;
    contract_close_engines(pair);
    for (size_t i = 0; i < 4; i++)
        worker_join(&workers[i]);
}

static void *wait_until_closed(void *context) {
    struct worker *worker = context;
    struct waiting *waiting = worker->context;

    atomic_fetch_add(&waiting->begun, 1);
    EXPECT(worker, mc_batch_wait(waiting->batch, MC_FOREVER) != MC_OK);
    return NULL;
}

static void *transfer_until_closed(void *context) {
    struct worker *worker = context;
    struct waiting *waiting = worker->context;
    const struct pair *pair = worker->pair;
    const size_t own = (6 + worker->index) * MIB;
    struct mc_request wanted = request(pair, MC_WRITE, own, own, MIB);
    int32_t status = MC_OK;

    atomic_fetch_add(&waiting->begun, 1);
    while (status == MC_OK)
        status = mc_engine_transfer(pair->here, &wanted, 1, sizeof(wanted), 0, NULL);
    EXPECT(worker, status == MC_ERR_CLOSED || status == MC_ERR_CANCELLED || status == MC_ERR_INVALID_HANDLE);
    return NULL;
}

static void closing_ends_transfers_and_waits_and_batches_stay_readable(void **state) {
    struct pair *pair = *state;
    struct mc_request requests[256];
    struct waiting waiting = {0};
    struct worker workers[4];

    for (size_t i = 0; i < 256; i++)
        requests[i] = request(pair, MC_WRITE, 0, 0, 8 * MIB);
    waiting.batch = submit(pair, requests, 256, 0);
    for (size_t i = 0; i < 4; i++) {
        workers[i] = (struct worker){.pair = pair, .index = i, .context = &waiting};
        worker_start(&workers[i], i < 2 ? wait_until_closed : transfer_until_closed);
    }
    while (atomic_load(&waiting.begun) < 4)
        ;
    OK(mc_engine_close(pair->here));
    for (size_t i = 0; i < 4; i++)
        worker_join(&workers[i]);
    assert_true(status_of(waiting.batch, 255).state != MC_STATE_PENDING);
    assert_true(mc_batch_wait(waiting.batch, 0) != MC_ERR_PENDING);
    OK(mc_batch_cancel(waiting.batch));
    OK(mc_batch_free(waiting.batch));
    if (pair->there != pair->here)
        OK(mc_engine_close(pair->there));
    pair->here = pair->there = NULL;
}

static void a_closed_engine_and_its_peers_answer_so(void **state) {
    struct pair *pair = *state;
    struct pair old = *pair;
    struct mc_request wanted = request(pair, MC_READ, 0, 0, 8);
    uint64_t batch = submit(pair, &wanted, 1, 0), id = 42;
    struct mc_notification *got = NULL;
    char text[64];
    uint8_t incarnation[16];

    OK(mc_batch_wait(batch, MC_FOREVER));
    contract_close_engines(pair);
    for (int i = 0; i < 2; i++) {
        mc_engine *engine = i == 0 ? old.here : old.there;

        IS(MC_ERR_INVALID_HANDLE, mc_engine_close(engine));
        IS(MC_ERR_INVALID_HANDLE, mc_engine_address(engine, text, sizeof(text)));
        IS(MC_ERR_INVALID_HANDLE, mc_engine_incarnation(engine, incarnation));
        IS(MC_ERR_INVALID_HANDLE, mc_engine_register(engine, old.near, 8, NULL, 0, contract_error()));
        IS(MC_ERR_INVALID_HANDLE, mc_engine_unregister(engine, old.near, contract_error()));
        IS(MC_ERR_INVALID_HANDLE, mc_peer_open(engine, "127.0.0.1:1", &id, contract_error()));
        IS(MC_ERR_INVALID_HANDLE, mc_engine_receive(engine, 0, &got));
        IS(MC_ERR_INVALID_HANDLE, mc_engine_notification_fd(engine));
        IS(MC_ERR_INVALID_HANDLE, mc_batch_submit(engine, &wanted, 1, sizeof(wanted), NULL, &id, contract_error()));
        IS(MC_ERR_INVALID_HANDLE, mc_engine_transfer(engine, &wanted, 1, sizeof(wanted), 0, contract_error()));
    }
    IS(MC_ERR_CLOSED, mc_peer_probe(old.peer, SECOND, contract_error()));
    IS(MC_ERR_CLOSED, mc_peer_explain(old.peer, text, sizeof(text)));
    IS(MC_ERR_CLOSED, mc_peer_notify(old.peer, "n", 1, "m", 1, SECOND, contract_error()));
    IS(MC_ERR_CLOSED, mc_peer_read(old.peer, old.near, (uint64_t)(uintptr_t)old.far, 8, 0, contract_error()));
    OK(mc_peer_close(old.peer));
    IS(MC_ERR_INVALID_HANDLE, mc_peer_close(old.peer));
    OK(mc_batch_wait(batch, 0));
    assert_int_equal(status_of(batch, 0).bytes, 8);
    OK(mc_batch_free(batch));
    assert_int_equal(id, 42);
}

static void a_peer_that_was_closed_is_noticed_at_once(void **state) {
    struct pair *pair = *state;
    uint64_t begin;
    int32_t status;

    if (contract_is("self"))
        return; /* it is the caller's own engine */
    OK(mc_engine_close(pair->there));
    begin = now_ns();
    status = mc_peer_write(pair->peer, pair->near, (uint64_t)(uintptr_t)pair->far, MIB, 0, contract_error());
    assert_true(status == MC_ERR_CONNECTION_LOST || status == MC_ERR_UNREACHABLE || status == MC_ERR_STALE_PEER);
    assert_true(now_ns() - begin < SECOND);
    assert_int_not_equal(mc_peer_probe(pair->peer, SECOND, contract_error()), MC_OK);
    assert_int_not_equal(mc_peer_notify(pair->peer, "n", 1, "m", 1, SECOND, contract_error()), MC_OK);
    assert_true(now_ns() - begin < 3 * SECOND);
    OK(mc_engine_close(pair->here));
    pair->here = pair->there = NULL;
}

/* Fault 9. */
static void another_engine_at_the_same_address_is_not_taken_for_the_old_one(void **state) {
    struct pair *pair = *state;
    char address[ADDRESS_TEXT];
    struct mc_engine_options options = {
        .struct_size = sizeof(options), .listen = address, .protocol = contract_is("tcp") ? "tcp" : NULL};
    uint64_t deadline = now_ns() + 5 * SECOND, peer;
    mc_engine *second;
    int32_t status;

    if (contract_is("self"))
        return;
    contract_address(pair->there, address);
    OK(mc_engine_close(pair->there));
    OK(mc_engine_open(&options, &second, contract_error()));
    /* The same memory at the same addresses: only the incarnation tells them apart. */
    OK(mc_engine_register(second, pair->far, SPAN, NULL, RIGHTS, contract_error()));
    memset(pair->near, 1, MIB);
    memset(pair->far, 2, MIB);
    do {
        status = mc_peer_write(pair->peer, pair->near, (uint64_t)(uintptr_t)pair->far, MIB, 0, contract_error());
        assert_int_not_equal(status, MC_OK);
    } while (status != MC_ERR_STALE_PEER && now_ns() < deadline);
    IS(MC_ERR_STALE_PEER, status);
    assert_int_equal(pair->far[0], 2);
    peer = contract_peer(pair->here, second);
    OK(mc_peer_write(peer, pair->near, (uint64_t)(uintptr_t)pair->far, MIB, 0, contract_error()));
    assert_same(pair->near, pair->far, MIB);
    OK(mc_engine_close(second));
    OK(mc_engine_close(pair->here));
    pair->here = pair->there = NULL;
}

/* Two engines, of which one uses the other. */
static void open_use_and_close(void) {
    mc_engine *here = contract_engine(), *there = contract_is("self") ? here : contract_engine();
    uint64_t peer = contract_peer(here, there), memory;
    void *bytes;

    OK(mc_memory_alloc(8192, NULL, &memory, &bytes, contract_error()));
    OK(mc_engine_register(here, bytes, 4096, NULL, RIGHTS, contract_error()));
    OK(mc_engine_register(there, (uint8_t *)bytes + 4096, 4096, NULL, RIGHTS, contract_error()));
    OK(mc_peer_write(peer, bytes, (uint64_t)(uintptr_t)bytes + 4096, 4096, 0, contract_error()));
    OK(mc_engine_close(here));
    if (there != here)
        OK(mc_engine_close(there));
    OK(mc_memory_free(memory));
}

static void engines_that_come_and_go_leave_nothing_behind(void **state) {
    size_t descriptors, threads, mappings;

    (void)state;
    open_use_and_close();
    descriptors = descriptor_count();
    threads = thread_count();
    mappings = mapping_count();
    for (size_t i = 0; i < contract_scaled(200); i++)
        open_use_and_close();
    assert_int_equal(descriptor_count(), descriptors);
    assert_int_equal(thread_count(), threads);
    assert_int_equal(mapping_count(), mappings);
}

static void *open_and_close(void *context) {
    struct worker *worker = context;
    struct mc_engine_options options = {.struct_size = sizeof(options), .protocol = contract_is("tcp") ? "tcp" : NULL};

    for (size_t i = 0; i < contract_scaled(30); i++) {
        mc_engine *engine;
        char address[ADDRESS_TEXT];
        uint64_t peer;

        EXPECT(worker, mc_engine_address(worker->pair->there, address, sizeof(address)) > 0);
        EXPECT(worker, mc_engine_open(&options, &engine, NULL) == MC_OK);
        EXPECT(worker, mc_peer_open(engine, address, &peer, NULL) == MC_OK);
        EXPECT(worker, mc_peer_probe(peer, 10 * SECOND, NULL) == MC_OK);
        if (i % 2 == 0)
            EXPECT(worker, mc_peer_close(peer) == MC_OK);
        EXPECT(worker, mc_engine_close(engine) == MC_OK);
        if (i % 2 != 0)
            EXPECT(worker, mc_peer_close(peer) == MC_OK);
    }
    return NULL;
}

static void threads_may_open_and_close_engines_at_once(void **state) {
    contract_run(*state, 8, open_and_close, NULL);
}

static void *close_it(void *context) {
    struct worker *worker = context;
    int32_t status = mc_engine_close(worker->context);

    EXPECT(worker, status == MC_OK || status == MC_ERR_CLOSED || status == MC_ERR_INVALID_HANDLE);
    return NULL;
}

static void threads_that_close_the_same_engine_close_it_once(void **state) {
    for (size_t i = 0; i < contract_scaled(30); i++) {
        mc_engine *engine = contract_engine();

        contract_run(*state, 4, close_it, engine);
        IS(MC_ERR_INVALID_HANDLE, mc_engine_close(engine));
    }
}

static const struct CMUnitTest tests[] = {
    CONTRACT_TEST(closing_ends_receivers_that_wait),
    CONTRACT_TEST(closing_ends_transfers_and_waits_and_batches_stay_readable),
    CONTRACT_TEST(a_closed_engine_and_its_peers_answer_so),
    CONTRACT_TEST(a_peer_that_was_closed_is_noticed_at_once),
    CONTRACT_TEST(another_engine_at_the_same_address_is_not_taken_for_the_old_one),
    CONTRACT_TEST(engines_that_come_and_go_leave_nothing_behind),
    CONTRACT_TEST(threads_may_open_and_close_engines_at_once),
    CONTRACT_TEST(threads_that_close_the_same_engine_close_it_once),
};

CONTRACT_PART(contract_closing, tests);

/* test_forks.c - in a child the parent's handles answer so, new ones work, and the parent goes on. The child doesn't
 * assert: it ends with the line at which something was wrong. */
#include "contract.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEED(condition)      \
    do {                     \
        if (!(condition))    \
            return __LINE__; \
    } while (0)

struct family {
    const struct pair *pair;
    mc_queue *queue;
    uint64_t batch;
};

/* Runs `check` in a child. */
static void in_child(int (*check)(const struct family *), const struct family *family) {
    int pipes[2], line = -1, status = 0;
    pid_t child;

    assert_int_equal(pipe(pipes), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)alarm(60);
        line = check(family);
        _exit(write(pipes[1], &line, sizeof(line)) == (ssize_t)sizeof(line) ? 0 : 1);
    }
    (void)close(pipes[1]);
    if (read(pipes[0], &line, sizeof(line)) != (ssize_t)sizeof(line))
        line = -1;
    (void)close(pipes[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (line != 0 || status != 0)
        fail_msg("the child failed at line %d, status 0x%x", line, status);
}

static int handles_are_foreign(const struct family *family) {
    const struct pair *pair = family->pair;
    struct mc_request wanted = request(pair, MC_READ, 0, 0, 8);
    struct mc_request_status status;
    struct mc_completion completion;
    struct mc_notification *got;
    uint8_t incarnation[16];
    uint64_t id;
    char text[64];

    NEED(mc_engine_close(pair->here) == MC_ERR_FORKED);
    NEED(mc_engine_address(pair->here, text, sizeof(text)) == MC_ERR_FORKED);
    NEED(mc_engine_incarnation(pair->here, incarnation) == MC_ERR_FORKED);
    NEED(mc_engine_metrics(pair->here, MC_METRICS_JSON, text, sizeof(text)) == MC_ERR_FORKED);
    NEED(mc_engine_register(pair->here, &status, 8, NULL, 0, NULL) == MC_ERR_FORKED);
    NEED(mc_engine_unregister(pair->here, pair->near, NULL) == MC_ERR_FORKED);
    NEED(mc_engine_receive(pair->here, 0, &got) == MC_ERR_FORKED);
    NEED(mc_engine_notification_fd(pair->here) == MC_ERR_FORKED);
    NEED(mc_batch_explain(family->batch, NULL) == MC_ERR_FORKED);
    NEED(mc_engine_transfer(pair->here, &wanted, 1, sizeof(wanted), 0, NULL) == MC_ERR_FORKED);
    NEED(mc_batch_submit(pair->here, &wanted, 1, sizeof(wanted), NULL, &id, NULL) == MC_ERR_FORKED);
    NEED(mc_peer_open(pair->here, "127.0.0.1:1", &id, NULL) == MC_ERR_FORKED);
    NEED(mc_peer_close(pair->peer) == MC_ERR_FORKED);
    NEED(mc_peer_probe(pair->peer, 0, NULL) == MC_ERR_FORKED);
    NEED(mc_peer_explain(pair->peer, text, sizeof(text)) == MC_ERR_FORKED);
    NEED(mc_peer_notify(pair->peer, "n", 1, "m", 1, 0, NULL) == MC_ERR_FORKED);
    NEED(mc_peer_read(pair->peer, pair->near, wanted.remote, 8, 0, NULL) == MC_ERR_FORKED);
    NEED(mc_peer_write(pair->peer, pair->near, wanted.remote, 8, 0, NULL) == MC_ERR_FORKED);
    NEED(mc_batch_wait(family->batch, 0) == MC_ERR_FORKED);
    NEED(mc_batch_status(family->batch, 0, &status, 1, sizeof(status)) == MC_ERR_FORKED);
    NEED(mc_batch_cancel(family->batch) == MC_ERR_FORKED);
    NEED(mc_batch_free(family->batch) == MC_ERR_FORKED);
    NEED(mc_queue_close(family->queue) == MC_ERR_FORKED);
    NEED(mc_queue_fd(family->queue) == MC_ERR_FORKED);
    NEED(mc_queue_reap(family->queue, &completion, 1, sizeof(completion), 0) == MC_ERR_FORKED);
    NEED(mc_memory_free(pair->near_id) == MC_ERR_FORKED);
    return 0;
}

static void a_child_gets_forked_from_every_call_and_the_parent_goes_on(void **state) {
    const struct pair *pair = *state;
    struct mc_request wanted = request(pair, MC_WRITE, 0, 0, MIB);
    struct family family = {.pair = pair};

    OK(mc_queue_open(&family.queue, contract_error()));
    family.batch = submit(pair, &wanted, 1, 0);
    in_child(handles_are_foreign, &family);
    OK(mc_batch_wait(family.batch, MC_FOREVER));
    OK(mc_batch_free(family.batch));
    OK(mc_queue_close(family.queue));
    OK(mc_peer_write(pair->peer, pair->near, (uint64_t)(uintptr_t)pair->far, MIB, 0, contract_error()));
    OK(mc_peer_notify(pair->peer, "n", 1, "m", 1, SECOND, contract_error()));
}

#if defined(CONTRACT_THREAD_SANITIZED) && !defined(__clang__)
#define THREADS_AFTER_FORK 0 /* the run-time library of gcc's thread sanitizer ends such a child */
#else
#define THREADS_AFTER_FORK 1
#endif

#if THREADS_AFTER_FORK
/* The child, as a peer of the parent's engine. */
static int new_engine_works(const struct family *family) {
    const struct mc_engine_options options = {.struct_size = sizeof(options),
                                              .protocol = contract_is("tcp") ? "tcp" : NULL};
    const char *address = (const char *)family->pair->near + SPAN - 1000;
    uint64_t remote = (uint64_t)(uintptr_t)family->pair->far, memory, peer;
    mc_engine *engine;
    mc_queue *queue;
    void *bytes;

    NEED(mc_engine_open(&options, &engine, NULL) == MC_OK);
    NEED(mc_memory_alloc(MIB, NULL, &memory, &bytes, NULL) == MC_OK);
    NEED(mc_engine_register(engine, bytes, MIB, NULL, RIGHTS, NULL) == MC_OK);
    NEED(mc_peer_open(engine, address, &peer, NULL) == MC_OK);
    NEED(mc_peer_read(peer, bytes, remote, 4096, 0, NULL) == MC_OK);
    NEED(memcmp(bytes, "from the parent", 16) == 0);
    memcpy(bytes, "from the child", 15);
    NEED(mc_peer_write(peer, bytes, remote, 15, 0, NULL) == MC_OK);
    NEED(mc_queue_open(&queue, NULL) == MC_OK);
    NEED(mc_queue_close(queue) == MC_OK);
    NEED(mc_peer_close(peer) == MC_OK);
    NEED(mc_engine_close(engine) == MC_OK);
    NEED(mc_memory_free(memory) == MC_OK);
    return 0;
}

static void a_new_engine_works_in_a_child(void **state) {
    const struct pair *pair = *state;
    struct family family = {.pair = pair};

    contract_address(pair->there, (char *)pair->near + SPAN - 1000);
    memcpy(pair->far, "from the parent", 16);
    in_child(new_engine_works, &family);
    OK(mc_peer_probe(pair->peer, SECOND, contract_error()));
    assert_string_equal((char *)pair->far, "from the child");
}
#endif

static void *transfer_meanwhile(void *context) {
    struct worker *worker = context;
    const struct pair *pair = worker->pair;
    size_t offset = (worker->index + 1) * MIB;

    while (!atomic_load((atomic_bool *)worker->context))
        EXPECT(worker, mc_peer_write(pair->peer, pair->near + offset, (uint64_t)(uintptr_t)pair->far + offset, 100000,
                                     0, NULL) == MC_OK);
    return NULL;
}

static void forks_in_the_midst_of_transfers_are_safe_on_both_sides(void **state) {
    const struct pair *pair = *state;
    struct mc_request wanted = request(pair, MC_WRITE, 0, 0, 64);
    struct family family = {.pair = pair, .batch = submit(pair, &wanted, 1, 0)};
    struct worker workers[2];
    atomic_bool stop = false;

    OK(mc_queue_open(&family.queue, contract_error()));
    OK(mc_batch_wait(family.batch, MC_FOREVER));
    for (size_t i = 0; i < 2; i++) {
        workers[i] = (struct worker){.pair = pair, .index = i, .context = &stop};
        worker_start(&workers[i], transfer_meanwhile);
    }
    for (size_t i = 0; i < contract_scaled(50); i++)
        in_child(handles_are_foreign, &family);
    atomic_store(&stop, true);
    for (size_t i = 0; i < 2; i++)
        worker_join(&workers[i]);
    OK(mc_batch_free(family.batch));
    OK(mc_queue_close(family.queue));
}

static const struct CMUnitTest tests[] = {
    CONTRACT_TEST(a_child_gets_forked_from_every_call_and_the_parent_goes_on),
#if THREADS_AFTER_FORK
    CONTRACT_TEST(a_new_engine_works_in_a_child),
#endif
    CONTRACT_TEST(forks_in_the_midst_of_transfers_are_safe_on_both_sides),
};

CONTRACT_PART(contract_forks, tests);

/* test_no_memory.c - whatever allocation fails, a call says so or does without, and everything can be closed.
 *
 * The linker's --wrap puts this between the library and its allocations: one of them fails, in each run another.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <mooncake/mooncake.h>

#define LENGTH 8192u
#define RUNS_MAX 2000
#define SECOND UINT64_C(1000000000)

static atomic_long until; /* allocations that succeed before the one that fails */

static bool fails(void) {
    return atomic_fetch_sub(&until, 1) == 0;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_malloc(size_t size) {
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size) {
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size) {
    return fails() ? NULL : __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size) {
    return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

/* A batch that notifies, if it can be begun. */
static bool tell(mc_engine *engine, const struct mc_request *request) {
    const struct mc_batch_options options = {
        .struct_size = sizeof(options), .flags = MC_BATCH_NOTIFY, .timeout_ns = 2 * SECOND};
    uint64_t batch;
    int32_t status;

    if (mc_batch_submit(engine, request, 1, sizeof(*request), &options, &batch, NULL) != MC_OK)
        return false;
    status = mc_batch_wait(batch, 10 * SECOND);
    assert_int_not_equal(status, MC_ERR_PENDING);
    assert_int_equal(mc_batch_free(batch), MC_OK);
    return status == MC_OK;
}

/* From `here`, which has `local`, to `there`, which has `remote`. True if all went well. */
static bool use(mc_engine *here, mc_engine *there, uint8_t *local, const uint8_t *remote) {
    struct mc_request request = {
        .opcode = MC_READ, .local = local, .remote = (uint64_t)(uintptr_t)remote, .length = LENGTH};
    char address[300], text[4096];
    bool good;

    if (mc_engine_address(there, address, sizeof(address)) < 0 || mc_peer_open(here, address, &request.peer, NULL) != 0)
        return false;
    good = mc_peer_read(request.peer, local, request.remote, LENGTH, 2 * SECOND, NULL) == MC_OK;
    if (good)
        assert_memory_equal(local, remote, LENGTH);
    good = tell(here, &request) && good;
    good = mc_peer_notify(request.peer, "name", 4, "text", 4, 2 * SECOND, NULL) == MC_OK && good;
    good = mc_peer_explain(request.peer, text, sizeof(text)) > 0 && good;
    assert_int_equal(mc_peer_close(request.peer), MC_OK);
    return good;
}

/* Everything once, with the allocation after `count` others failing. True if all went well. */
static bool run(long count) {
    static uint8_t local[LENGTH], plain[LENGTH];
    const struct mc_engine_options options = {.struct_size = sizeof(options), .connect_timeout_ns = SECOND};
    mc_engine *here = NULL, *there = NULL;
    uint64_t memory = 0;
    void *shared = NULL;
    bool good;

    memset(plain, (int)count + 1, sizeof(plain));
    atomic_store(&until, count);
    good = mc_engine_open(&options, &here, NULL) == MC_OK && mc_engine_open(&options, &there, NULL) == MC_OK &&
           mc_memory_alloc(LENGTH, NULL, &memory, &shared, NULL) == MC_OK &&
           mc_engine_register(there, shared, LENGTH, NULL, MC_REMOTE_READ, NULL) == MC_OK &&
           mc_engine_register(there, plain, LENGTH, NULL, MC_REMOTE_READ, NULL) == MC_OK &&
           mc_engine_register(here, local, LENGTH, NULL, 0, NULL) == MC_OK;
    if (good) {
        memset(shared, (int)count + 2, LENGTH);
        good = use(here, there, local, plain);
        good = use(here, there, local, shared) && good;
    }
    if (there != NULL)
        assert_int_equal(mc_engine_close(there), MC_OK);
    if (here != NULL)
        assert_int_equal(mc_engine_close(here), MC_OK);
    if (memory != 0)
        assert_int_equal(mc_memory_free(memory), MC_OK);
    return good;
}

static void whatever_allocation_fails_is_said_or_done_without(void **state) {
    long count = 0;

    (void)state;
    assert_true(run(-1)); /* what is made once is made now */
    for (; count < RUNS_MAX; count++)
        if (run(count) && atomic_load(&until) >= 0)
            break;
    assert_true(count > 50 && count < RUNS_MAX); /* the last run has had fewer allocations */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_allocation_fails_is_said_or_done_without),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

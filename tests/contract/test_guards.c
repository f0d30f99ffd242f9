/* test_guards.c - a guard is compared before the first byte and after the last. The guard is the first word of `far`. */
#include "contract.h"

#include <sched.h>
#include <stdatomic.h>

#define BODY ((size_t)4096) /* where the guarded bytes begin */

static uint64_t *guard_of(const struct pair *pair) {
    return (uint64_t *)(void *)pair->far;
}

static void set_guard(const struct pair *pair, uint64_t value) {
    __atomic_store_n(guard_of(pair), value, __ATOMIC_SEQ_CST);
}

static struct mc_request guarded(const struct pair *pair, uint32_t opcode, uint64_t length, uint64_t value) {
    struct mc_request wanted = request(pair, opcode, BODY, BODY, length);

    wanted.flags = MC_REQUEST_GUARD;
    wanted.guard_address = (uint64_t)(uintptr_t)guard_of(pair);
    wanted.guard_value = value;
    return wanted;
}

static int32_t run(const struct pair *pair, const struct mc_request *wanted) {
    return mc_engine_transfer(pair->here, wanted, 1, sizeof(*wanted), 0, contract_error());
}

static void a_guard_that_matches_lets_the_bytes_through(void **state) {
    const struct pair *pair = *state;
    static const size_t lengths[] = {1, 4096, MIB - 1, MIB + 1, 8 * MIB};

    set_guard(pair, 7);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
        for (uint32_t opcode = MC_READ; opcode <= MC_WRITE; opcode++) {
            struct mc_request wanted = guarded(pair, opcode, lengths[i], 7);

            fill(pair->near + BODY, lengths[i], i);
            fill(pair->far + BODY, lengths[i], i + 100);
            OK(run(pair, &wanted));
            assert_same(pair->near + BODY, pair->far + BODY, lengths[i]);
        }
}

static void a_guard_that_differs_refuses_before_the_first_byte(void **state) {
    const struct pair *pair = *state;
    static const size_t lengths[] = {1, 4096, 4 * MIB};

    set_guard(pair, 7);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct mc_request wanted = guarded(pair, MC_WRITE, lengths[i], 8);
        uint64_t before, batch;

        fill(pair->near + BODY, lengths[i], i);
        fill(pair->far + BODY, lengths[i], i + 100);
        before = hash(pair->far, SPAN);
        batch = submit(pair, &wanted, 1, 0);
        IS(MC_ERR_GUARD_MISMATCH, mc_batch_wait(batch, MC_FOREVER));
        assert_int_equal(status_of(batch, 0).state, MC_STATE_FAILED);
        OK(mc_batch_free(batch));
        assert_true(hash(pair->far, SPAN) == before);
        wanted.opcode = MC_READ;
        IS(MC_ERR_GUARD_MISMATCH, run(pair, &wanted));
        wanted.guard_value = 7;
        OK(run(pair, &wanted));
    }
}

static void a_guard_that_can_not_be_read_refuses(void **state) {
    const struct pair *pair = *state;
    uint64_t word = 7, unregistered_guard = (uint64_t)(uintptr_t)&word;
    uint64_t memory;
    void *write_only;

    OK(mc_memory_alloc(4096, NULL, &memory, &write_only, contract_error()));
    OK(mc_engine_register(pair->there, write_only, 4096, NULL, MC_REMOTE_WRITE, contract_error()));
    set_guard(pair, 7);
    for (uint32_t opcode = MC_READ; opcode <= MC_WRITE; opcode++) {
        struct mc_request wanted = guarded(pair, opcode, 4096, 7);
        uint64_t before = hash(pair->far, SPAN);

        wanted.guard_address = unregistered_guard;
        IS(MC_ERR_NOT_REGISTERED, run(pair, &wanted));
        wanted.guard_address = UINT64_MAX - 7;
        IS(MC_ERR_NOT_REGISTERED, run(pair, &wanted));
        wanted.guard_address = (uint64_t)(uintptr_t)write_only;
        IS(MC_ERR_ACCESS_DENIED, run(pair, &wanted));
        for (uint64_t offset = 1; offset < 8; offset++) {
            wanted.guard_address = (uint64_t)(uintptr_t)guard_of(pair) + offset;
            IS(MC_ERR_INVALID_ARGUMENT, run(pair, &wanted));
        }
        assert_true(hash(pair->far, SPAN) == before);
    }
    OK(mc_engine_unregister(pair->there, write_only, contract_error()));
    OK(mc_memory_free(memory));
}

/* ---- Changes in the middle ---- */

struct flip {
    size_t length;
    atomic_bool go, stop, was_in_the_middle;
    uint8_t old_byte, new_byte;
};

RACY static uint8_t look(const volatile uint8_t *byte) {
    return *byte;
}

/* Waits until the first byte has come, changes the guard, and looks whether the last one had not. */
static void *flip_in_the_middle(void *context) {
    struct worker *worker = context;
    struct flip *flip = worker->context;
    const volatile uint8_t *body = worker->pair->far + BODY;

    while (look(body) == flip->old_byte && !atomic_load(&flip->stop))
        ;
    set_guard(worker->pair, 8);
    atomic_store(&flip->was_in_the_middle, look(body + flip->length - 1) == flip->old_byte);
    return NULL;
}

/* How often the guard was changed in the middle, of at most `attempts` times. */
static size_t change_in_the_middle(const struct pair *pair, size_t length, size_t attempts, size_t enough) {
    size_t middles = 0;

    for (size_t i = 0; i < attempts && middles < enough; i++) {
        struct flip flip = {.length = length, .old_byte = 1, .new_byte = 2};
        struct worker worker = {.pair = pair, .context = &flip};
        struct mc_request wanted = guarded(pair, MC_WRITE, length, 7);
        int32_t status;

        memset(pair->near + BODY, flip.new_byte, length);
        memset(pair->far + BODY, flip.old_byte, length);
        set_guard(pair, 7);
        worker_start(&worker, flip_in_the_middle);
        status = run(pair, &wanted);
        atomic_store(&flip.stop, true);
        worker_join(&worker);
        if (atomic_load(&flip.was_in_the_middle)) {
            IS(MC_ERR_GUARD_MISMATCH, status);
            middles++;
        } else {
            assert_true(status == MC_OK || status == MC_ERR_GUARD_MISMATCH);
        }
    }
    return middles;
}

static void a_write_whose_guard_changes_in_the_middle_never_completes(void **state) {
    assert_true(change_in_the_middle(*state, 8 * MIB, 100, contract_scaled(10)) > 0);
    (void)change_in_the_middle(*state, MIB, contract_scaled(300), 10); /* one frame of a network, if caught */
}

RACY static void write_generation(volatile uint64_t *words, size_t count, uint64_t generation) {
    for (size_t i = 0; i < count; i++)
        words[i] = generation;
}

#define SHARED MIB

/* Writes generation after generation, as the owner of a reused slot does: closes the guard, writes, opens it. */
static void *write_generations(void *context) {
    struct worker *worker = context;
    struct flip *flip = worker->context;

    for (uint64_t generation = 2; !atomic_load(&flip->stop); generation++) {
        while (!atomic_load(&flip->go) && !atomic_load(&flip->stop))
            sched_yield();
        atomic_store(&flip->go, false);
        set_guard(worker->pair, 0);
        atomic_thread_fence(memory_order_seq_cst);
        write_generation((volatile uint64_t *)(void *)(worker->pair->far + BODY), SHARED / 8, generation);
        atomic_thread_fence(memory_order_seq_cst);
        set_guard(worker->pair, generation);
    }
    return NULL;
}

static void a_guarded_read_that_completes_is_never_torn(void **state) {
    const struct pair *pair = *state;
    const uint64_t *words = (const uint64_t *)(const void *)(pair->near + BODY);
    struct flip flip = {0};
    struct worker worker = {.pair = pair, .context = &flip};
    uint64_t seed = 1;
    size_t completed = 0;

    write_generation((volatile uint64_t *)(void *)(pair->far + BODY), SHARED / 8, 1);
    set_guard(pair, 1);
    worker_start(&worker, write_generations);
    for (size_t i = 0; i < contract_scaled(2000); i++) {
        struct mc_request wanted;
        uint64_t value;
        int32_t status;

        while (i % 4 == 3 && (atomic_load(&flip.go) || __atomic_load_n(guard_of(pair), __ATOMIC_SEQ_CST) == 0))
            sched_yield();
        value = __atomic_load_n(guard_of(pair), __ATOMIC_SEQ_CST);
        wanted = guarded(pair, MC_READ, SHARED, value);
        /* The writer begins before the read, under it, or not at all. */
        atomic_store(&flip.go, i % 2 == 0);
        for (uint64_t pause = random_next(&seed) % 20000; i % 4 == 0 && pause > 0; pause--)
            __asm__ volatile("");
        status = run(pair, &wanted);
        if (status == MC_OK && value != 0) {
            completed++;
            for (size_t j = 0; j < SHARED / 8; j++)
                if (words[j] != value)
                    fail_msg("word %zu is of generation %llu, not %llu", j, (unsigned long long)words[j],
                             (unsigned long long)value);
        } else if (status != MC_OK) {
            IS(MC_ERR_GUARD_MISMATCH, status);
        }
    }
    atomic_store(&flip.stop, true);
    worker_join(&worker);
    assert_true(completed > 0);
}

static const struct CMUnitTest tests[] = {
    CONTRACT_TEST(a_guard_that_matches_lets_the_bytes_through),
    CONTRACT_TEST(a_guard_that_differs_refuses_before_the_first_byte),
    CONTRACT_TEST(a_guard_that_can_not_be_read_refuses),
    CONTRACT_TEST(a_write_whose_guard_changes_in_the_middle_never_completes),
    CONTRACT_TEST(a_guarded_read_that_completes_is_never_torn),
};

CONTRACT_PART(contract_guards, tests);

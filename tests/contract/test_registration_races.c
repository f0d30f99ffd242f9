/* test_registration_races.c - registering and unregistering by many threads, and under transfers. */
#include "contract.h"

#include <stdatomic.h>

#define THREADS ((size_t)16)
#define SHARE ((size_t)8192)

struct shared {
    uint8_t *bytes; /* one part that all register, then one for each thread */
    atomic_size_t registered, unregistered;
};

static void *register_and_unregister(void *context) {
    struct worker *worker = context;
    struct shared *shared = worker->context;
    mc_engine *engine = worker->pair->there;
    uint8_t *own = shared->bytes + (worker->index + 1) * SHARE;

    for (size_t i = 0; i < contract_scaled(500) && worker->failed_line == 0; i++) {
        int32_t status = mc_engine_register(engine, shared->bytes, SHARE, NULL, RIGHTS, NULL);

        EXPECT(worker, status == MC_OK || status == MC_ERR_BUSY);
        if (status == MC_OK)
            atomic_fetch_add(&shared->registered, 1);
        EXPECT(worker, mc_engine_register(engine, own, SHARE, NULL, RIGHTS, NULL) == MC_OK);
        EXPECT(worker, mc_engine_register(engine, own + 1, SHARE - 1, NULL, RIGHTS, NULL) == MC_ERR_OVERLAP);
        if (status == MC_OK) {
            status = mc_engine_unregister(engine, shared->bytes, NULL);
            EXPECT(worker, status == MC_OK || status == MC_ERR_BUSY);
            if (status == MC_OK)
                atomic_fetch_add(&shared->unregistered, 1);
        }
        EXPECT(worker, mc_engine_unregister(engine, own, NULL) == MC_OK);
        EXPECT(worker, mc_engine_unregister(engine, own, NULL) == MC_ERR_NOT_REGISTERED);
    }
    return NULL;
}

static void sixteen_threads_that_register_the_same_and_neighbouring_ranges_keep_the_counts(void **state) {
    const struct pair *pair = *state;
    struct shared shared = {0};
    uint64_t memory;
    void *bytes;

    OK(mc_memory_alloc((THREADS + 1) * SHARE, NULL, &memory, &bytes, contract_error()));
    shared.bytes = bytes;
    contract_run(pair, THREADS, register_and_unregister, &shared);
    for (size_t i = atomic_load(&shared.unregistered); i < atomic_load(&shared.registered); i++)
        OK(mc_engine_unregister(pair->there, bytes, contract_error()));
    IS(MC_ERR_NOT_REGISTERED, mc_engine_unregister(pair->there, bytes, contract_error()));
    OK(mc_memory_free(memory));
}

/* ---- Under transfers ---- */

#define MOVERS ((size_t)4)
#define PART (512u << 10)

struct target {
    uint8_t *bytes; /* MOVERS parts */
    bool local;     /* it is the local end that comes and goes */
    atomic_bool stop;
    atomic_size_t completed, refused;
};

/* Writes to and reads from its part; whatever is reported complete is exact. */
static void *move_while_it_lasts(void *context) {
    struct worker *worker = context;
    struct target *target = worker->context;
    const struct pair *pair = worker->pair;
    uint8_t *part = target->bytes + worker->index * PART, *near = pair->near + worker->index * PART;
    uint64_t remote = (uint64_t)(uintptr_t)(target->local ? pair->far + worker->index * PART : part);
    uint8_t *local = target->local ? part : near;

    for (uint64_t i = 0; !atomic_load(&target->stop) && worker->failed_line == 0; i++) {
        size_t length = i % 3 == 0 ? PART : 4096 + (size_t)i % 1000;
        int32_t status;

        if (!target->local)
            fill(local, length, i * MOVERS + worker->index);
        status = i % 2 == 0 || target->local ? mc_peer_write(pair->peer, local, remote, length, 0, NULL)
                                             : mc_peer_read(pair->peer, local, remote, length, 0, NULL);
        if (status == MC_OK) {
            atomic_fetch_add(&target->completed, 1);
            EXPECT(worker, memcmp(local, (const void *)(uintptr_t)remote, length) == 0);
        } else {
            atomic_fetch_add(&target->refused, 1);
            EXPECT(worker, status == MC_ERR_NOT_REGISTERED);
        }
    }
    return NULL;
}

static void unregister_under_transfers(const struct pair *pair, mc_engine *owner, uint8_t *bytes, bool local) {
    struct target target = {.bytes = bytes, .local = local};
    struct worker workers[MOVERS];

    fill(bytes, MOVERS * PART, 1);
    for (size_t i = 0; i < MOVERS; i++) {
        workers[i] = (struct worker){.pair = pair, .index = i, .context = &target};
        worker_start(&workers[i], move_while_it_lasts);
    }
    for (size_t i = 0; i < contract_scaled(60) || atomic_load(&target.completed) < 20; i++) {
        size_t completed = atomic_load(&target.completed), refused = atomic_load(&target.refused);
        int32_t status;

        OK(mc_engine_register(owner, bytes, MOVERS * PART, NULL, RIGHTS, contract_error()));
        while (atomic_load(&target.completed) == completed)
            ;
        status = mc_engine_unregister(owner, bytes, contract_error());
        if (status == MC_ERR_BUSY) {
            OK(mc_engine_unregister(owner, bytes, contract_error()));
        } else {
            IS(MC_OK, status);
        }
        if (!local) {
            /* Nobody writes there any more, though four threads try. */
            uint64_t before = hash(bytes, MOVERS * PART);

            while (atomic_load(&target.refused) < refused + 2 * MOVERS)
                ;
            assert_true(hash(bytes, MOVERS * PART) == before);
        }
    }
    atomic_store(&target.stop, true);
    for (size_t i = 0; i < MOVERS; i++)
        worker_join(&workers[i]);
}

/* Fault 6. */
static void shared_memory_unregistered_under_transfers_is_not_written_afterwards(void **state) {
    const struct pair *pair = *state;
    uint64_t memory;
    void *bytes;

    OK(mc_memory_alloc(MOVERS * PART, NULL, &memory, &bytes, contract_error()));
    unregister_under_transfers(pair, pair->there, bytes, false);
    OK(mc_memory_free(memory));
}

/* Fault 6. */
static void private_memory_unregistered_under_transfers_is_not_written_afterwards(void **state) {
    const struct pair *pair = *state;
    uint8_t *bytes = malloc(MOVERS * PART);

    assert_non_null(bytes);
    unregister_under_transfers(pair, pair->there, bytes, false);
    free(bytes);
}

static void the_local_end_may_be_unregistered_under_transfers(void **state) {
    const struct pair *pair = *state;
    uint8_t *bytes = malloc(MOVERS * PART);

    assert_non_null(bytes);
    unregister_under_transfers(pair, pair->here, bytes, true);
    free(bytes);
}

static const struct CMUnitTest tests[] = {
    CONTRACT_TEST(sixteen_threads_that_register_the_same_and_neighbouring_ranges_keep_the_counts),
    CONTRACT_TEST(shared_memory_unregistered_under_transfers_is_not_written_afterwards),
    CONTRACT_TEST(private_memory_unregistered_under_transfers_is_not_written_afterwards),
    CONTRACT_TEST(the_local_end_may_be_unregistered_under_transfers),
};

CONTRACT_PART(contract_registration_races, tests);

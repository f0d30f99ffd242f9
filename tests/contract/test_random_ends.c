/* test_random_ends.c - batches that are cancelled or run out of time at random points, and ranges that come and go at
 * random by many threads. A seed decides what is done; when it happens is left to the machine. */
#include "contract.h"

#include <sched.h>
#include <stdatomic.h>

/* ---- Ends ---- */

#define REQUESTS_MAX ((size_t)32)
#define ROOM (8 * MIB)  /* of all requests, in `near` and in `far` */
#define FLUSH (MIB / 2) /* behind it */
#define OLD 1
#define NEW 2
#define LATE 3 /* what the buffers hold after the end: nobody else writes there, and nobody sends it */

enum how { CANCEL, CANCEL_BY_ANOTHER, DEADLINE, DEADLINE_UNATTENDED, HOWS };

struct try {
    const struct pair *pair;
    enum how how;
    uint64_t pause; /* before the cancel */
    bool driven;    /* nothing moves until somebody waits: so that also short copies are interrupted */
    size_t count;
    uint64_t batch;
    struct mc_request requests[REQUESTS_MAX];
    struct mc_request_status ends[REQUESTS_MAX];
};

static void spin_for(uint64_t nanoseconds) {
    uint64_t end = now_ns() + nanoseconds;

    while (now_ns() < end)
        sched_yield();
}

/* What was being read and isn't complete; on return from the cancel its buffer is this thread's at once. */
static bool was_read_in_part(const struct try *try, size_t index) {
    struct mc_request_status end;

    return try->requests[index].opcode == MC_READ &&
           mc_batch_status(try->batch, index, &end, 1, sizeof(end)) == MC_OK && end.state != MC_STATE_COMPLETED;
}

static void *cancel_later(void *context) {
    struct worker *worker = context;
    struct try *try = worker->context;

    spin_for(try->pause);
    EXPECT(worker, mc_batch_cancel(try->batch) == MC_OK);
    EXPECT(worker, mc_batch_wait(try->batch, 0) != MC_ERR_PENDING);
    for (size_t i = 0; i < try->count; i++)
        if (was_read_in_part(try, i))
            memset(try->requests[i].local, OLD, try->requests[i].length);
    spin_for(200000);
    for (size_t i = 0; i < try->count; i++) {
        const uint8_t *bytes = try->requests[i].local;

        if (!was_read_in_part(try, i))
            continue;
        for (size_t j = 0; j < try->requests[i].length; j += 64)
            EXPECT(worker, bytes[j] == OLD);
    }
    return NULL;
}

/* Submits it, and comes back when it has ended in the way that was drawn. */
static void run_to_the_end(struct try *try) {
    struct worker worker = {.pair = try->pair, .context = try};
    const struct mc_batch_options options = {
        .struct_size = sizeof(options),
        .flags = try->driven ? MC_BATCH_DRIVEN : 0,
        .timeout_ns = try->how >= DEADLINE ? try->pause + 1 : 20 * SECOND,
    };

    OK(mc_batch_submit(try->pair->here, try->requests, try->count, sizeof(try->requests[0]), &options, &try->batch,
                       contract_error()));
    switch (try->how) {
    case CANCEL:
        spin_for(try->pause);
        OK(mc_batch_cancel(try->batch));
        break;
    case CANCEL_BY_ANOTHER:
        worker_start(&worker, cancel_later);
        (void)mc_batch_wait(try->batch, MC_FOREVER);
        worker_join(&worker);
        break;
    case DEADLINE:
        (void)mc_batch_wait(try->batch, MC_FOREVER);
        break;
    default:
        for (size_t i = 0; i < try->count; i++)
            while (status_of(try->batch, i).state == MC_STATE_PENDING)
                sched_yield();
        break;
    }
    OK(mc_batch_status(try->batch, 0, try->ends, try->count, sizeof(try->ends[0])));
}

/* One terminal state each, which is one of the two that can be; how many have completed. */
static size_t check_states(const struct try *try) {
    uint32_t early = try->how >= DEADLINE ? MC_STATE_TIMEOUT : MC_STATE_CANCELLED;
    size_t completed = 0;

    for (size_t i = 0; i < try->count; i++) {
        const struct mc_request_status *end = &try->ends[i];
        bool done = end->state == MC_STATE_COMPLETED;

        if (!done)
            assert_int_equal(end->state, early);
        IS(done ? MC_OK : early == MC_STATE_TIMEOUT ? MC_ERR_TIMEOUT : MC_ERR_CANCELLED, end->status);
        assert_true(done ? end->bytes == try->requests[i].length : end->bytes <= try->requests[i].length);
        assert_true(end->flags == 0 || (!done && try->requests[i].opcode == MC_WRITE));
        completed += done;
    }
    return completed;
}

/* The first byte that is neither `one` nor `other`; `length` if there is none. What a given-up WRITE has sent already may
 * just be arriving. */
RACY static size_t first_other(const volatile uint8_t *bytes, size_t length, uint8_t one, uint8_t other) {
    for (size_t at = 0; at < length; at++) {
        uint8_t byte = bytes[at];

        if (byte != one && byte != other)
            return at;
    }
    return length;
}

/* What was reported complete is there, and what wasn't holds nothing but old and new bytes. */
static void check_bytes(const struct try *try) {
    for (size_t i = 0; i < try->count; i++) {
        const struct mc_request *one = &try->requests[i];
        const uint8_t *to = one->opcode == MC_READ ? one->local : (const uint8_t *)(uintptr_t)one->remote;
        bool complete = try->ends[i].state == MC_STATE_COMPLETED;
        size_t at = first_other(to, one->length, NEW, complete ? NEW : OLD);

        if (at < one->length)
            fail_msg("request %zu, byte %zu: 0x%02x", i, at, to[at]);
        assert_int_equal(to[one->length], OLD);
    }
}

/* Over all lanes, behind what may still be on its way. */
static void flush(const struct pair *pair) {
    const struct mc_request requests[] = {
        request(pair, MC_WRITE, SPAN - FLUSH, SPAN - FLUSH, FLUSH),
        request(pair, MC_WRITE, SPAN - 2 * FLUSH, SPAN - 2 * FLUSH, FLUSH),
    };

    for (int i = 0; i < 2; i++)
        OK(mc_engine_transfer(pair->here, requests, 2, sizeof(requests[0]), 0, contract_error()));
}

/* The local buffers are the caller's again: what it puts there stays, and isn't sent. */
static void check_quiet(const struct try *try) {
    for (size_t i = 0; i < try->count; i++)
        memset(try->requests[i].local, LATE, try->requests[i].length);
    flush(try->pair);
    for (size_t i = 0; i < try->count; i++) {
        const struct mc_request *one = &try->requests[i];
        const uint8_t *near = one->local, *far = (const uint8_t *)(uintptr_t)one->remote;

        for (size_t j = 0; j < one->length; j++)
            if (near[j] != LATE || far[j] == LATE)
                fail_msg("request %zu, byte %zu was %s after the end", i, j, near[j] != LATE ? "written" : "sent");
    }
}

static void draw(struct try *try, uint64_t *seed) {
    const struct pair *pair = try->pair;
    size_t room;

    try->how = (enum how)(random_next(seed) % HOWS);
    try->driven = try->how != DEADLINE_UNATTENDED && random_next(seed) % 2 == 0;
    try->pause = random_next(seed) % 4 == 0 ? 0 : random_next(seed) % ((uint64_t)1 << (10 + random_next(seed) % 13));
    try->count = (size_t)(random_next(seed) % ((uint64_t)1 << random_next(seed) % 6)) + 1;
    room = ROOM / try->count;
    for (size_t i = 0; i < try->count; i++) {
        uint32_t opcode = random_next(seed) % 2 == 0 ? MC_READ : MC_WRITE;
        /* Half of them as large as there is room for, the others of any order of magnitude. */
        uint64_t limit = random_next(seed) % 2 == 0 ? room - 1 : (uint64_t)1 << random_next(seed) % 22;
        size_t length = (size_t)(random_next(seed) % limit) % (room - 1) + 1;

        try->requests[i] = request(pair, opcode, i * room, i * room, length);
        memset(pair->near + i * room, opcode == MC_READ ? OLD : NEW, length + 1);
        memset(pair->far + i * room, opcode == MC_READ ? NEW : OLD, length + 1);
    }
}

/* Faults 6 and 13. */
static void batches_that_end_at_random_points_have_one_end_and_quiet_buffers(void **state) {
    struct try try = {.pair = *state};
    uint64_t seed = 1;
    size_t requests = 0, completed = 0;

    for (size_t i = 0; i < contract_scaled(200); i++) {
        struct mc_request_status again[REQUESTS_MAX];

        draw(&try, &seed);
        run_to_the_end(&try);
        requests += try.count;
        completed += check_states(&try);
        check_bytes(&try);
        check_quiet(&try);
        OK(mc_batch_status(try.batch, 0, again, try.count, sizeof(again[0])));
        assert_memory_equal(again, try.ends, try.count * sizeof(again[0]));
        OK(mc_batch_free(try.batch));
        IS(MC_ERR_INVALID_HANDLE, mc_batch_free(try.batch));
    }
    assert_true(completed > 0 && completed < requests);
}

/* ---- Ranges ---- */

#define CELLS ((size_t)12)
#define CELL ((size_t)4096)
#define OWNERS ((size_t)16)

/* Who has a cell: the range in the upper half, and by how many counts in the lower. It is marked after the range was
 * registered, and until before it is unregistered: so two ranges that overlap must never meet here. */
struct grid {
    uint8_t *cells;
    _Atomic uint64_t marks[CELLS];
    atomic_size_t registered;
};

static bool mark(struct grid *grid, size_t begin, size_t end) {
    uint64_t range = (uint64_t)(begin * CELLS + end) << 32;

    for (size_t i = begin; i < end; i++) {
        uint64_t before = atomic_load(&grid->marks[i]);

        do
            if (before != 0 && (before & ~(uint64_t)UINT32_MAX) != range)
                return false;
        while (!atomic_compare_exchange_weak(&grid->marks[i], &before, (before | range) + 1));
    }
    return true;
}

static void unmark(struct grid *grid, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++) {
        uint64_t before = atomic_load(&grid->marks[i]);

        while (!atomic_compare_exchange_weak(&grid->marks[i], &before, (uint32_t)before == 1 ? 0 : before - 1))
            ;
    }
}

static void *register_at_random(void *context) {
    struct worker *worker = context;
    struct grid *grid = worker->context;
    const struct pair *pair = worker->pair;
    uint64_t seed = worker->index + 100;

    for (size_t i = 0; i < contract_scaled(600) && worker->failed_line == 0; i++) {
        size_t begin = (size_t)(random_next(&seed) % CELLS), end = begin + 1 + (size_t)(random_next(&seed) % 3);
        uint8_t *bytes = grid->cells + begin * CELL;
        int32_t status;

        if (end > CELLS)
            end = CELLS;
        status = mc_engine_register(pair->there, bytes, (end - begin) * CELL, NULL, RIGHTS, NULL);
        EXPECT(worker, status == MC_OK || status == MC_ERR_OVERLAP || status == MC_ERR_BUSY);
        if (status != MC_OK)
            continue;
        atomic_fetch_add(&grid->registered, 1);
        EXPECT(worker, mark(grid, begin, end));
        /* It is in reach from now on, to its last byte. */
        if (i % 4 == 0)
            EXPECT(worker, mc_peer_read(pair->peer, pair->near + worker->index * 3 * CELL, (uint64_t)(uintptr_t)bytes,
                                        (end - begin) * CELL, 20 * SECOND, NULL) == MC_OK);
        if (i % 8 == 0) /* so that they meet, on whatever machine */
            spin_for(20000);
        unmark(grid, begin, end);
        do
            status = mc_engine_unregister(pair->there, bytes, NULL);
        while (status == MC_ERR_BUSY);
        EXPECT(worker, status == MC_OK);
    }
    return NULL;
}

/* Fault 6. */
static void sixteen_threads_that_register_overlapping_ranges_never_both_succeed(void **state) {
    const struct pair *pair = *state;
    struct grid grid = {0};
    uint64_t memory;
    void *bytes;

    for (size_t shared = 0; shared < 2; shared++) {
        if (shared == 1)
            OK(mc_memory_alloc(CELLS * CELL, NULL, &memory, &bytes, contract_error()));
        else
            bytes = calloc(CELLS, CELL);
        assert_non_null(bytes);
        grid.cells = bytes;
        contract_run(pair, OWNERS, register_at_random, &grid);
        for (size_t i = 0; i < CELLS; i++)
            IS(MC_ERR_NOT_REGISTERED, mc_engine_unregister(pair->there, grid.cells + i * CELL, contract_error()));
        OK(mc_engine_register(pair->there, bytes, CELLS * CELL, NULL, RIGHTS, contract_error()));
        OK(mc_engine_unregister(pair->there, bytes, contract_error()));
        if (shared == 1)
            OK(mc_memory_free(memory));
        else
            free(bytes);
    }
    /* On a busy machine the threads may come one by one, and nobody be refused. */
    assert_true(atomic_load(&grid.registered) > 0);
}

static const struct CMUnitTest tests[] = {
    CONTRACT_TEST(batches_that_end_at_random_points_have_one_end_and_quiet_buffers),
    CONTRACT_TEST(sixteen_threads_that_register_overlapping_ranges_never_both_succeed),
};

CONTRACT_PART(contract_random_ends, tests);

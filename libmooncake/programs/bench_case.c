/* programs/bench_case.c - runs one combination of sizes, numbers and operation, in threads that call and wait.
 *
 * Each thread has a part of its own of both halves of the memory, the same at both ends, cut into slots. A call moves
 * the next slots. With verification what is written is read back and compared, under a key that no earlier call had;
 * what is read is compared with the target's seed. Neither is within the measured time.
 *
 * Threads: the workers, which touch their struct alone, and the main thread, which waits for a signal or the end of the
 * time, and then for them.
 */
#include "programs/bench_case.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "base/status.h"
#include "os/thread.h"
#include "programs/signals.h"

#define FAILURES_MAX 100u /* of a thread, which then ends */
#define EXPLAINED_MAX 65536u

/* What the workers and the main thread share. */
struct crowd {
    atomic_bool stop;
    atomic_bool cancelled; /* what fails now has been cancelled */
    atomic_uint begun;
    atomic_uint ended;
};

struct worker {
    const struct bench_place *place;
    const struct bench_case *what;
    struct crowd *crowd;
    uint64_t index;
    uint64_t span, stride, slots; /* of its part, bytes; of a slot; number of them */
    uint64_t next;
    uint64_t generation;
    struct random random;
    struct mc_request *requests;
    uint8_t *scratch; /* one slot, registered; with verification */
    uint64_t began, ended, busy;
    struct bench_result result;
    struct mc_error error; /* the first */
    char words[160];       /* of the first wrong byte */
    pthread_t thread;
    bool started;
};

/* ---- A call ---- */

static uint64_t next_slot(struct worker *worker, uint64_t nth) {
    switch (worker->place->plan->pattern) {
    case BENCH_HOT:
        return nth % worker->slots;
    case BENCH_RANDOM:
        return random_below(&worker->random, worker->slots);
    default:
        worker->next = worker->next + 1 < worker->slots ? worker->next + 1 : 0;
        return worker->next;
    }
}

static void choose_slots(struct worker *worker, bool write) {
    const struct bench_place *place = worker->place;
    uint64_t part = (write ? place->size / 2 / BENCH_ALIGNMENT * BENCH_ALIGNMENT : 0) + worker->index * worker->span;

    for (uint64_t i = 0; i < worker->what->batch; i++) {
        uint64_t offset = part + next_slot(worker, i) * worker->stride;

        worker->requests[i] = (struct mc_request){.peer = place->peer,
                                                  .opcode = write ? MC_WRITE : MC_READ,
                                                  .local = place->end->buffer + offset,
                                                  .remote = place->remote + offset,
                                                  .length = worker->what->block};
    }
}

static void failed(struct worker *worker, const struct mc_error *error) {
    if (atomic_load(&worker->crowd->cancelled))
        return;
    if (worker->result.failures++ == 0)
        worker->error = *error;
}

static uint64_t offset_of(const struct worker *worker, const struct mc_request *request) {
    return request->remote - worker->place->remote;
}

/* ---- Verification ---- */

static uint64_t key_of(const struct worker *worker) {
    return worker->place->plan->seed + worker->generation * 1000003 + worker->index * 7919 + 1;
}

static void prepare_bytes(struct worker *worker, bool write) {
    worker->generation++;
    for (uint64_t i = 0; i < worker->what->batch; i++) {
        const struct mc_request *request = &worker->requests[i];

        if (write)
            bench_fill(request->local, request->length, key_of(worker), offset_of(worker, request));
        else
            memset(request->local, 0, request->length);
    }
}

static void check_bytes(struct worker *worker, const struct mc_request *request, const uint8_t *bytes, uint64_t key) {
    uint64_t offset = offset_of(worker, request);
    uint64_t good = bench_compare(bytes, request->length, key, offset);

    if (good < request->length && worker->result.wrong++ == 0)
        (void)snprintf(
            worker->words, sizeof(worker->words),
            "byte %" PRIu64 " of the target's memory (0x%" PRIx64 ") is wrong after a %s of %" PRIu64 " bytes",
            offset + good, request->remote + good, request->opcode == MC_WRITE ? "write" : "read", request->length);
}

static void verify_call(struct worker *worker, bool write) {
    struct mc_error error = MC_ERROR_INIT;

    for (uint64_t i = 0; i < worker->what->batch; i++) {
        const struct mc_request *request = &worker->requests[i];

        if (!write)
            check_bytes(worker, request, request->local, worker->place->seed);
        else if (mc_peer_read(request->peer, worker->scratch, request->remote, request->length, 0, &error) == MC_OK)
            check_bytes(worker, request, worker->scratch, key_of(worker));
        else
            failed(worker, &error);
    }
}

/* ---- A thread ---- */

static void call_once(struct worker *worker, bool write, bool counts) {
    const struct bench_place *place = worker->place;
    struct mc_error error = MC_ERROR_INIT;
    uint64_t before, after;
    int32_t status;

    choose_slots(worker, write);
    if (place->plan->verify)
        prepare_bytes(worker, write);
    before = clock_now();
    status = mc_engine_transfer(place->end->engine, worker->requests, worker->what->batch, sizeof(struct mc_request), 0,
                                &error);
    after = clock_now();
    if (status != MC_OK) {
        failed(worker, &error);
    } else if (counts) {
        bench_count(&worker->result.times, after - before);
        worker->busy += after - before;
        worker->result.operations += worker->what->batch;
        worker->result.bytes += worker->what->batch * worker->what->block;
    }
    if (place->plan->verify && status == MC_OK)
        verify_call(worker, write);
}

static void *work(void *context) {
    struct worker *worker = context;
    enum bench_operation operation = worker->what->operation;
    bool write = operation != BENCH_READ;

    call_once(worker, write, false); /* connections and mappings are made now */
    worker->began = clock_now();
    atomic_fetch_add(&worker->crowd->begun, 1);
    do {
        call_once(worker, write, true);
        if (operation == BENCH_MIX)
            write = !write;
    } while (!atomic_load_explicit(&worker->crowd->stop, memory_order_relaxed) &&
             worker->result.failures < FAILURES_MAX);
    worker->ended = clock_now();
    atomic_fetch_add(&worker->crowd->ended, 1);
    return NULL;
}

/* A worker's place, and the memory that it needs; also after a failure for worker_free. */
static int32_t worker_init(struct worker *worker, const struct bench_place *place, const struct bench_case *what,
                           uint64_t index, struct mc_error *error) {
    worker->place = place;
    worker->what = what;
    worker->index = index;
    worker->span = place->size / 2 / what->threads / BENCH_ALIGNMENT * BENCH_ALIGNMENT;
    worker->stride = (what->block + BENCH_ALIGNMENT - 1) / BENCH_ALIGNMENT * BENCH_ALIGNMENT;
    worker->slots = worker->span / worker->stride;
    worker->random.state = place->plan->seed + index;
    if (worker->slots == 0)
        return status_set(error, MC_ERR_TOO_LARGE, 0,
                          "%" PRIu64 " bytes are more than a thread's part of the target's memory", what->block);
    worker->requests = calloc(what->batch, sizeof(worker->requests[0]));
    if (worker->requests == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    if (!place->plan->verify)
        return MC_OK;
    worker->scratch = malloc(what->block);
    if (worker->scratch == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    return mc_engine_register(place->end->engine, worker->scratch, what->block, NULL, 0, error);
}

static void worker_free(struct worker *worker) {
    if (worker->scratch != NULL)
        (void)mc_engine_unregister(worker->place->end->engine, worker->scratch, NULL);
    free(worker->scratch);
    free(worker->requests);
}

/* ---- All threads ---- */

/* The processor time of a process, in seconds. Negative: it isn't known, as that of process 0. */
static double cpu_of(pid_t process) {
    struct timespec time;
    clockid_t clock;

    if (process == 0 || clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0)
        return -1;
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* The path to the target's memory, from the library's words about the peer: that of its region, else the first
 * transport that can be used. */
static void find_path(const struct bench_place *place, char path[32]) {
    static const char usable[] = "\"usable\":true";
    char *text = malloc(EXPLAINED_MAX), base[32];
    const char *found = NULL, *end;

    (void)snprintf(path, 32, "?");
    if (text == NULL || mc_peer_explain(place->peer, text, EXPLAINED_MAX) < 0) {
        free(text);
        return;
    }
    (void)snprintf(base, sizeof(base), "\"base\":%" PRIu64 ",", place->remote);
    found = strstr(text, base);
    if (found != NULL)
        found = strstr(found, "\"path\":\"");
    if (found != NULL) {
        found += strlen("\"path\":\"");
    } else {
        end = strstr(text, usable);
        for (const char *next = text; end != NULL && (next = strstr(next, "\"transport\":\"")) != NULL && next < end;)
            found = next += strlen("\"transport\":\"");
    }
    if (found != NULL)
        (void)snprintf(path, 32, "%.*s", (int)strcspn(found, "\""), found);
    free(text);
}

/* Adds a worker's part up, and says what was the first trouble of all. */
static void add_up(const struct bench_plan *plan, const struct worker *worker, struct bench_result *result) {
    if (worker->error.code != MC_OK && result->failures == 0)
        fprintf(stderr, "%s: %s\n", plan->program, worker->error.message);
    if (worker->result.wrong > 0 && result->wrong == 0)
        fprintf(stderr, "%s: %s\n", plan->program, worker->words);
    result->operations += worker->result.operations;
    result->bytes += worker->result.bytes;
    result->failures += worker->result.failures;
    result->wrong += worker->result.wrong;
    bench_add(&result->times, &worker->result.times);
}

/* Wall time from the first begin to the last end. With verification that of all calls: the rate is then that of a thread
 * while it calls. */
static double time_of(const struct bench_plan *plan, const struct worker *workers, uint64_t count) {
    uint64_t began = UINT64_MAX, ended = 0, busy = 0;

    for (uint64_t i = 0; i < count; i++) {
        began = workers[i].began < began ? workers[i].began : began;
        ended = workers[i].ended > ended ? workers[i].ended : ended;
        busy += workers[i].busy;
    }
    return (double)(plan->verify ? busy : ended - began) / 1e9;
}

/* Until the time is over since all workers have begun, a signal comes (true), or no worker is left. */
static bool wait_for(uint64_t duration, const struct crowd *crowd, unsigned count) {
    uint64_t end = CLOCK_NEVER;
    bool ended = false;

    while (!ended && atomic_load(&crowd->ended) < count) {
        uint64_t now = clock_now();
        uint64_t glance = end == CLOCK_NEVER ? CLOCK_MILLISECOND : 100 * CLOCK_MILLISECOND;

        if (end == CLOCK_NEVER && atomic_load(&crowd->begun) == count)
            end = clock_after(now, duration);
        if (now >= end)
            break;
        ended = signals_wait(end - now < glance ? end - now : glance);
    }
    return ended;
}

/* Until no worker is left. A second after a signal, or with a second one, what the workers still wait for is cancelled
 * with the engine: their target doesn't answer. */
static void wait_for_last(const struct bench_place *place, struct crowd *crowd, unsigned count, bool *ret_ended) {
    uint64_t latest = *ret_ended ? clock_after(clock_now(), CLOCK_SECOND) : CLOCK_NEVER;

    while (atomic_load(&crowd->ended) < count && clock_now() < latest) {
        if (!signals_wait(CLOCK_MILLISECOND))
            continue;
        latest = *ret_ended ? 0 : clock_after(clock_now(), CLOCK_SECOND);
        *ret_ended = true;
    }
    if (atomic_load(&crowd->ended) < count) {
        atomic_store(&crowd->cancelled, true);
        (void)mc_engine_close(place->end->engine);
    }
}

static int32_t run_workers(struct worker *workers, uint64_t count, uint64_t duration, bool *ret_ended,
                           struct mc_error *error) {
    struct crowd crowd = {.stop = false};
    int32_t status = MC_OK;

    for (uint64_t i = 0; i < count && status == MC_OK; i++) {
        int failure;

        workers[i].crowd = &crowd;
        failure = thread_start(&workers[i].thread, "bench", work, &workers[i]);
        workers[i].started = failure == 0;
        if (failure != 0)
            status = status_set(error, MC_ERR_SYSTEM, failure, "a thread can't be started: %s", strerror(failure));
    }
    if (status == MC_OK)
        *ret_ended = wait_for(duration, &crowd, (unsigned)count);
    atomic_store(&crowd.stop, true);
    if (status == MC_OK)
        wait_for_last(workers[0].place, &crowd, (unsigned)count, ret_ended);
    for (uint64_t i = 0; i < count; i++)
        if (workers[i].started)
            pthread_join(workers[i].thread, NULL);
    return status;
}

int32_t bench_case_run(const struct bench_place *place, const struct bench_case *what, struct bench_result *result,
                       bool *ret_ended, struct mc_error *error) {
    struct worker *workers = calloc(what->threads, sizeof(*workers));
    double own, target;
    int32_t status = MC_OK;

    memset(result, 0, sizeof(*result));
    if (workers == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    for (uint64_t i = 0; i < what->threads && status == MC_OK; i++)
        status = worker_init(&workers[i], place, what, i, error);
    own = cpu_of(getpid());
    target = cpu_of(place->target);
    if (status == MC_OK)
        status = run_workers(workers, what->threads, place->plan->duration, ret_ended, error);
    if (status == MC_OK) {
        result->cpu = cpu_of(getpid()) - own;
        result->target_cpu = target < 0 ? -1 : cpu_of(place->target) - target;
        result->seconds = time_of(place->plan, workers, what->threads);
        for (uint64_t i = 0; i < what->threads; i++)
            add_up(place->plan, &workers[i], result);
        find_path(place, result->path);
    }
    for (uint64_t i = 0; i < what->threads; i++)
        worker_free(&workers[i]);
    free(workers);
    return status;
}

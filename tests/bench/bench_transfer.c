/* tests/bench/bench_transfer.c - the engine between two processes, beside memcpy and raw sockets.
 *
 *   bench_transfer [--quick] [PATH ...]      of shm, tcp (one connection), tcp2 (two)
 *
 * Prints "name number" lines. Both subjects of a comparison do the same work on the same memory in short rounds that
 * alternate, so that noise meets both; a ratio is the median of the rounds' ratios. Every size is checked byte by byte once.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "raw.h"
#include "target.h"
#include "work.h"

#define ROUNDS_MAX 7
#define BATCH 128

struct effort {
    unsigned rounds;
    double seconds; /* of a round of the slower one, about */
};

/* One way of the engine, and what it is compared with. */
struct path {
    const char *name;
    const char *versus;
    struct subject engine;
    struct subject limit;
    uint64_t least; /* smaller sizes would be the same as those of another path */
};

struct engine {
    mc_engine *engine;
    uint64_t peer;
    uint64_t remote;
    unsigned char *local;
};

struct copier {
    unsigned char *local;
    unsigned char *remote;
};

/* ---- Subjects ---- */

static void copier_run(const struct subject *subject, const struct work *work) {
    const struct copier *copier = subject->context;

    for (uint64_t call = 0; call < work->calls; call++) {
        uint64_t offset = work_offset(work, call);

        for (uint32_t i = 0; i < work->items; i++, offset += work->size)
            if (work->opcode == MC_READ)
                memcpy(copier->local + offset, copier->remote + offset, work->size);
            else
                memcpy(copier->remote + offset, copier->local + offset, work->size);
    }
}

static void run_batch(const struct engine *engine, const struct work *work, uint64_t offset) {
    struct mc_request requests[BATCH];

    for (uint32_t i = 0; i < work->items; i++, offset += work->size)
        requests[i] = (struct mc_request){
            .peer = engine->peer,
            .opcode = work->opcode,
            .local = engine->local + offset,
            .remote = engine->remote + offset,
            .length = work->size,
        };
    CHECK(mc_engine_transfer(engine->engine, requests, work->items, sizeof(requests[0]), 0, NULL));
}

static void engine_run(const struct subject *subject, const struct work *work) {
    const struct engine *engine = subject->context;

    for (uint64_t call = 0; call < work->calls; call++) {
        uint64_t offset = work_offset(work, call);
        void *local = engine->local + offset;

        if (work->items > 1)
            run_batch(engine, work, offset);
        else if (work->opcode == MC_READ)
            CHECK(mc_peer_read(engine->peer, local, engine->remote + offset, work->size, 0, NULL));
        else
            CHECK(mc_peer_write(engine->peer, local, engine->remote + offset, work->size, 0, NULL));
    }
}

static void engine_start(struct engine *engine, const char *protocol, uint32_t lanes, const struct target *target,
                         unsigned char *local) {
    struct mc_engine_options options = {.struct_size = sizeof(options), .protocol = protocol, .lanes = lanes};

    CHECK(mc_engine_open(&options, &engine->engine, NULL));
    CHECK(mc_engine_register(engine->engine, local, SPAN, NULL, 0, NULL));
    CHECK(mc_peer_open(engine->engine, target->engine, &engine->peer, NULL));
    engine->remote = target->address;
    engine->local = local;
}

static void engine_stop(struct engine *engine) {
    CHECK(mc_peer_close(engine->peer));
    CHECK(mc_engine_unregister(engine->engine, engine->local, NULL));
    CHECK(mc_engine_close(engine->engine));
}

/* ---- Measuring ---- */

static void size_name(uint64_t size, char name[32]) {
    if (size >= 1u << 20)
        snprintf(name, 32, "%lluMiB", (unsigned long long)(size >> 20));
    else if (size >= 1u << 10)
        snprintf(name, 32, "%lluKiB", (unsigned long long)(size >> 10));
    else
        snprintf(name, 32, "%lluB", (unsigned long long)size);
}

/* How many calls make a round. Also brings lanes up and caches into the state of the pattern. */
static uint64_t calibrate(const struct path *path, struct work *work, double seconds) {
    double slower = 0;

    for (work->calls = 1;; work->calls *= 2) {
        double one, other;

        work_time(&path->engine, work);
        one = work_time(&path->engine, work);
        other = work_time(&path->limit, work);
        slower = one > other ? one : other;
        if (slower * 4 >= seconds)
            break;
    }
    slower /= (double)work->calls;
    return slower > seconds ? 1 : (uint64_t)(seconds / slower);
}

struct result {
    double seconds; /* a call of the engine */
    double limit;   /* a call of the limit */
    double ratio;
};

static struct result compare(const struct path *path, struct work work, const struct effort *effort) {
    double engine[ROUNDS_MAX], limit[ROUNDS_MAX], ratio[ROUNDS_MAX];
    double calls;

    work.calls = calibrate(path, &work, effort->seconds);
    calls = (double)work.calls;
    for (unsigned i = 0; i < effort->rounds; i++) {
        for (unsigned turn = 0; turn < 2; turn++) {
            /* Who begins changes each round; the walk goes on from one to the other. */
            if ((turn + i) % 2 == 0)
                engine[i] = work_time(&path->engine, &work) / calls;
            else
                limit[i] = work_time(&path->limit, &work) / calls;
            work.first = (work.first + work.calls * work_bytes(&work)) % work.span;
        }
        ratio[i] = limit[i] / engine[i];
    }
    return (struct result){work_median(engine, effort->rounds), work_median(limit, effort->rounds),
                           work_median(ratio, effort->rounds)};
}

static const char *direction(const struct work *work) {
    return work->opcode == MC_READ ? "read" : "write";
}

/* Prints what was measured; `suffix` tells apart what has the same path, direction and size. */
static void report(const struct path *path, const struct work *work, const char *suffix, const struct result *result) {
    char name[160], size[32];
    double bytes = (double)work_bytes(work) * work->threads;

    size_name(work->size, size);
    if (work->items > 1)
        snprintf(name, sizeof(name), "transfer.%s.%s.batch%ux%s", path->name, direction(work), work->items, size);
    else
        snprintf(name, sizeof(name), "transfer.%s.%s.%s%s", path->name, direction(work), size, suffix);
    printf("%s.us %.4g\n", name, result->seconds * 1e6);
    printf("%s.gbps %.4g\n", name, bytes / result->seconds * 1e-9);
    printf("%s.limit_gbps %.4g\n", name, bytes / result->limit * 1e-9);
    if (work->items > 1)
        printf("%s.items_per_s %.4g\n", name, work->items / result->seconds);
    printf("%s.%s %.4g\n", name, path->versus, result->ratio);
    fflush(stdout);
}

/* Do the bytes arrive, and only where they should? */
static void verify(const struct path *path, const struct copier *memory, struct work work) {
    unsigned char *source = work.opcode == MC_READ ? memory->remote : memory->local;
    unsigned char *sink = work.opcode == MC_READ ? memory->local : memory->remote;
    uint64_t bytes = work_bytes(&work), start = bytes;

    work.first = start;
    work.calls = 1;
    for (uint64_t i = 0; i < bytes; i++)
        source[start + i] = (unsigned char)(i * 131 + (i >> 8) * 7 + work.opcode);
    memset(sink + start - 1, 0xEE, bytes + 2);
    work_time(&path->engine, &work);
    if (memcmp(source + start, sink + start, bytes) != 0 || sink[start - 1] != 0xEE || sink[start + bytes] != 0xEE)
        work_fail(__FILE__, __LINE__, path->name, "the bytes that arrived are not those that were sent");
}

static void measure_path(const struct path *path, const struct copier *memory, const struct effort *effort) {
    static const uint64_t sizes[] = {64, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};

    for (uint32_t opcode = MC_READ; opcode <= MC_WRITE; opcode++) {
        struct work work = {.opcode = opcode, .items = 1, .threads = 1, .span = SPAN};
        struct result result;

        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            work.size = sizes[i];
            if (work.size < path->least)
                continue;
            verify(path, memory, work);
            work.span = work.size;
            result = compare(path, work, effort);
            report(path, &work, ".hot", &result);
            work.span = SPAN;
            result = compare(path, work, effort);
            report(path, &work, ".walk", &result);
            report(path, &work, "", &result);
        }
        for (size_t i = 1; i <= 2; i++) {
            struct work batch = {.opcode = opcode, .items = BATCH, .threads = 1, .size = sizes[i], .span = SPAN};

            verify(path, memory, batch);
            result = compare(path, batch, effort);
            report(path, &batch, "", &result);
        }
        work.threads = 4;
        for (size_t i = 2; i <= 3; i++) {
            work.size = sizes[i];
            result = compare(path, work, effort);
            report(path, &work, ".threads4", &result);
        }
    }
}

static bool is_named(char *const *names, const char *name) {
    while (*names != NULL && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

int main(int argc, char **argv) {
    struct effort effort = {.rounds = ROUNDS_MAX, .seconds = 0.01};
    struct raw_client raw[2];
    struct engine engines[3];
    struct target target;
    struct copier copier;
    uint64_t memory;
    void *local;

    if (argc > 1 && strcmp(argv[1], "--quick") == 0) {
        effort = (struct effort){.rounds = 3, .seconds = 0.001};
        argv++;
    }
    target_start(&target);
    CHECK(mc_memory_alloc(SPAN, NULL, &memory, &local, NULL));
    copier = (struct copier){local, target.memory};
    raw_connect(&raw[0], target.raw_port, 1, local);
    raw_connect(&raw[1], target.raw_port, 2, local);
    engine_start(&engines[0], "shm", 1, &target, local);
    engine_start(&engines[1], "tcp", 1, &target, local);
    engine_start(&engines[2], "tcp", 2, &target, local);

    const struct path paths[] = {
        {"shm", "vs_memcpy", {engine_run, NULL, &engines[0]}, {copier_run, NULL, &copier}, 0},
        {"tcp", "vs_raw_socket", {engine_run, NULL, &engines[1]}, {raw_run, raw_prepare, &raw[0]}, 0},
        {"tcp2", "vs_raw_sockets", {engine_run, NULL, &engines[2]}, {raw_run, raw_prepare, &raw[1]}, 1 << 20},
    };
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (argv[1] == NULL || is_named(argv + 1, paths[i].name))
            measure_path(&paths[i], &copier, &effort);
    for (size_t i = 0; i < sizeof(engines) / sizeof(engines[0]); i++)
        engine_stop(&engines[i]);
    CHECK(mc_memory_free(memory));
    target_stop(&target);
    return 0;
}

/* tests/bench/bench_transfer.c - how fast the engine moves bytes between two processes, beside memcpy, streaming stores,
 * process_vm and raw sockets.
 *
 *   bench_transfer [--quick] [--spoil] [PATH ...]
 *
 * Paths: shm (mapped memory), pvm (ordinary memory, by process_vm), tcp (one connection), tcp2 (two); shm_crc, tcp_crc
 * and tcp2_crc are the same with a checksum. Prints "name number" lines. Every size is checked byte by byte before it is
 * measured; with --spoil each request goes to a wrong place, so the program has to fail.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "caller.h"
#include "compare.h"
#include "raw.h"
#include "raw_copy.h"
#include "target.h"

/* One way of the engine, and what it is compared with. */
struct path {
    const char *name;
    struct caller_options options;
    uint64_t least; /* smaller sizes would be the same as those of another path */
    struct limit limits[LIMITS_MAX];
    struct caller caller;
    struct subject subject;
};

/* ---- Telling ---- */

static const char *direction(const struct work *work) {
    return work->opcode == MC_READ ? "read" : "write";
}

/* Prints what was measured; `suffix` tells apart what has the same path, direction and size. */
static void report(const struct path *path, const struct work *work, const char *suffix, const struct limit *limits,
                   const struct comparison *result) {
    char name[160], size[32];
    double bytes = (double)work_bytes(work) * work->threads;

    work_size_name(work->size, size);
    if (work->items > 1)
        snprintf(name, sizeof(name), "transfer.%s.%s.batch%ux%s", path->name, direction(work), work->items, size);
    else
        snprintf(name, sizeof(name), "transfer.%s.%s.%s%s", path->name, direction(work), size, suffix);
    printf("%s.us %.4g\n", name, result->seconds * 1e6);
    printf("%s.gbps %.4g\n", name, bytes / result->seconds * 1e-9);
    if (work->items > 1)
        printf("%s.items_per_s %.4g\n", name, work->items / result->seconds);
    for (size_t i = 0; i < LIMITS_MAX && limits[i].versus != NULL; i++) {
        printf("%s.%s_gbps %.4g\n", name, limits[i].versus, bytes / result->limits[i] * 1e-9);
        printf("%s.vs_%s %.4g\n", name, limits[i].versus, result->ratios[i]);
    }
    fflush(stdout);
}

/* ---- Measuring ---- */

static uint32_t crc32c(const unsigned char *bytes, uint64_t length) {
    uint32_t crc = UINT32_MAX;

    for (uint64_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1u)));
    }
    return ~crc;
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
    work_time(&path->subject, &work);
    if (memcmp(source + start, sink + start, bytes) != 0 || sink[start - 1] != 0xEE || sink[start + bytes] != 0xEE)
        work_fail(__FILE__, __LINE__, path->name, "the bytes that arrived are not those that were sent");
    if (path->caller.request_flags != 0 && work.items == 1 && bytes <= 1 << 20 &&
        path->caller.checksum != crc32c(source + start, bytes))
        work_fail(__FILE__, __LINE__, path->name, "the checksum is not that of the bytes");
}

static void measure(const struct path *path, const struct work *work, const char *suffix, const struct effort *effort) {
    struct limit limits[LIMITS_MAX] = {path->limits[0], path->limits[1]};
    struct comparison result;

    if (work->threads > 1)
        limits[1] = (struct limit){"one_thread", path->subject, 1};
    result = compare(&path->subject, limits, LIMITS_MAX - (limits[1].versus == NULL), *work, effort);
    report(path, work, suffix, limits, &result);
    if (strcmp(suffix, ".walk") == 0)
        report(path, work, "", limits, &result);
}

static void measure_path(const struct path *path, const struct copier *memory, const struct effort *effort) {
    static const uint64_t sizes[] = {64, 4 << 10, 64 << 10, 1 << 20, 8 << 20, 16 << 20, 64 << 20};

    for (uint32_t opcode = MC_READ; opcode <= MC_WRITE; opcode++) {
        struct work work = {.opcode = opcode, .items = 1, .threads = 1, .span = SPAN};

        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            work.size = sizes[i];
            if (work.size < path->least)
                continue;
            verify(path, memory, work);
            work.span = work.size;
            measure(path, &work, ".hot", effort);
            work.span = SPAN;
            measure(path, &work, ".walk", effort);
        }
        for (size_t i = 1; i <= 2; i++) {
            struct work batch = {.opcode = opcode, .items = BATCH_MAX, .threads = 1, .size = sizes[i], .span = SPAN};

            verify(path, memory, batch);
            measure(path, &batch, "", effort);
        }
        work.threads = 4;
        for (size_t i = 2; i <= 3; i++) {
            work.size = sizes[i];
            measure(path, &work, ".threads4", effort);
        }
    }
}

static bool is_named(char *const *names, const char *name) {
    while (*names != NULL && strcmp(*names, name) != 0)
        names++;
    return *names != NULL;
}

/* Measures one path, with an engine of its own. */
static void run_path(struct path *path, const struct target *target, unsigned char *local, bool spoil,
                     const struct effort *effort) {
    struct copier memory = {.local = local, .remote = path->options.ordinary ? target->ordinary : target->memory};
    const char *trouble;

    caller_start(&path->caller, &path->options, target, local);
    path->subject = (struct subject){caller_call, NULL, &path->caller};
    trouble = caller_trouble(&path->caller);
    if (spoil)
        path->caller.remote += 64;
    if (trouble != NULL)
        fprintf(stderr, "bench_transfer: %s can't be measured here: %s\n", path->name, trouble);
    else
        measure_path(path, &memory, effort);
    caller_stop(&path->caller);
}

static bool take_flag(char ***arguments, const char *flag) {
    if ((*arguments)[1] == NULL || strcmp((*arguments)[1], flag) != 0)
        return false;
    (*arguments)++;
    return true;
}

int main(int argc, char **argv) {
    struct effort effort = {.rounds = 9, .seconds = 0.01};
    struct raw_client raw[2];
    struct target target;
    struct copier mapped, other;
    uint64_t memory;
    bool spoil;
    void *local;

    (void)argc;
    if (take_flag(&argv, "--quick"))
        effort = (struct effort){.rounds = 3, .seconds = 0.001};
    spoil = take_flag(&argv, "--spoil");
    srandom((unsigned)getpid());
    target_start(&target);
    CHECK(mc_memory_alloc(SPAN, NULL, &memory, &local, NULL));
    mapped = (struct copier){local, target.memory, target.process};
    other = (struct copier){local, target.ordinary, target.process};
    raw_connect(&raw[0], target.raw_port, 1, local);
    raw_connect(&raw[1], target.raw_port, 2, local);

    const struct limit copy = {"memcpy", {raw_memcpy_call, NULL, &mapped}, 0};
    const struct limit stream = {raw_streams() ? "streaming" : NULL, {raw_stream_call, NULL, &mapped}, 0};
    const struct limit vm = {"process_vm", {raw_vm_call, NULL, &other}, 0};
    const struct limit socket = {"raw_socket", {raw_call, raw_prepare, &raw[0]}, 0};
    const struct limit sockets = {"raw_sockets", {raw_call, raw_prepare, &raw[1]}, 0};
    const struct caller_options crc = {.protocol = "shm", .request_flags = MC_REQUEST_CHECKSUM};
    const uint32_t tcp_crc = MC_ENGINE_CHECKSUM;
    struct path paths[] = {
        {.name = "shm", .options = {.protocol = "shm"}, .limits = {copy, stream}},
        {.name = "shm_crc", .options = crc, .least = 1 << 20, .limits = {copy, stream}},
        {.name = "pvm", .options = {.protocol = "shm", .ordinary = true}, .least = 4 << 10, .limits = {vm}},
        {.name = "tcp", .options = {.protocol = "tcp", .lanes = 1}, .limits = {socket}},
        {.name = "tcp2", .options = {.protocol = "tcp", .lanes = 2}, .least = 1 << 20, .limits = {sockets}},
        {.name = "tcp_crc", .options = {"tcp", 1, tcp_crc, 0, 0, false}, .least = 1 << 20, .limits = {socket}},
        {.name = "tcp2_crc", .options = {"tcp", 2, tcp_crc, 0, 0, false}, .least = 1 << 20, .limits = {sockets}},
    };
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (argv[1] == NULL || is_named(argv + 1, paths[i].name))
            run_path(&paths[i], &target, local, spoil, &effort);
    CHECK(mc_memory_free(memory));
    target_stop(&target);
    return 0;
}

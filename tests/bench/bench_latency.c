/* tests/bench/bench_latency.c - how long a small blocking call takes: the median of calls that are timed one by one.
 *
 *   bench_latency [--quick]
 *
 * Prints "name number" lines, for 4 KiB: shm beside memcpy (which is timed in the same way, so that what the clock
 * takes falls out of the difference), tcp beside a blocking ping-pong of the same bytes, and tcp_busy, where both ends
 * poll busily, beside that and beside sockets that spin on both ends. Rounds as in compare.h.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "caller.h"
#include "raw.h"
#include "raw_copy.h"
#include "target.h"

#define ROUNDS 11
#define RIVALS_MAX 2
#define CALLS_MAX 20000
#define SIZE ((uint64_t)4 << 10)

/* One that is measured; the first of a group is ours, beside the others. */
struct rival {
    const char *name;
    struct subject subject;
};

struct group {
    struct rival ours;
    struct rival rivals[RIVALS_MAX];
    uint64_t calls;  /* a round */
    bool difference; /* tells microseconds more than the rival, not the ratio of times */
};

/* Microseconds of the median call. */
static double median_call(const struct subject *subject, const struct work *work) {
    static double each[CALLS_MAX];

    work_time_each(subject, work, each);
    return work_median(each, work->calls) * 1e6;
}

static size_t rival_count(const struct group *group) {
    size_t count = 0;

    while (count < RIVALS_MAX && group->rivals[count].name != NULL)
        count++;
    return count;
}

static void report(const struct group *group, const struct work *work, const char *pattern,
                   double times[1 + RIVALS_MAX][ROUNDS]) {
    const char *direction = work->opcode == MC_READ ? "read" : "write";
    double versus[ROUNDS];

    for (size_t i = 1; i <= rival_count(group); i++) {
        const char *name = group->rivals[i - 1].name;

        for (unsigned round = 0; round < ROUNDS; round++)
            versus[round] = group->difference ? times[0][round] - times[i][round] : times[i][round] / times[0][round];
        printf(group->difference ? "latency.%s.%s.4KiB.%s.over_%s_us %.4g\n" : "latency.%s.%s.4KiB.%s.vs_%s %.4g\n",
               group->ours.name, direction, pattern, name, work_median(versus, ROUNDS));
    }
    for (size_t i = 1; i <= rival_count(group); i++)
        printf("latency.%s.%s.4KiB.%s.us %.4g\n", group->rivals[i - 1].name, direction, pattern,
               work_median(times[i], ROUNDS));
    printf("latency.%s.%s.4KiB.%s.us %.4g\n", group->ours.name, direction, pattern, work_median(times[0], ROUNDS));
    fflush(stdout);
}

static void measure(const struct group *group, struct work work, const char *pattern, bool quick) {
    double times[1 + RIVALS_MAX][ROUNDS];
    size_t count = 1 + rival_count(group);

    work.calls = group->calls;
    median_call(&group->ours.subject, &work); /* warms the lanes */
    if (quick)
        work.calls = group->calls / 100;
    for (unsigned round = 0; round < ROUNDS; round++) {
        size_t first = (size_t)random() % count;

        for (size_t i = 0; i < count; i++) {
            size_t who = (first + i) % count;
            const struct subject *subject = who == 0 ? &group->ours.subject : &group->rivals[who - 1].subject;

            times[who][round] = median_call(subject, &work);
            work.first = (work.first + work.calls * SIZE) % work.span;
        }
    }
    report(group, &work, pattern, times);
}

static void verify(const struct group *group, const struct copier *memory) {
    struct work work = {.opcode = MC_WRITE, .items = 1, .threads = 1, .size = SIZE, .span = SPAN, .calls = 1};

    for (uint64_t i = 0; i < SIZE; i++)
        memory->local[i] = (unsigned char)(i * 131 + (i >> 8) * 7);
    memset(memory->remote, 0xEE, SIZE);
    work_time(&group->ours.subject, &work);
    if (memcmp(memory->local, memory->remote, SIZE) != 0)
        work_fail(__FILE__, __LINE__, group->ours.name, "the bytes that arrived are not those that were sent");
}

int main(int argc, char **argv) {
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    const struct caller_options shm = {.protocol = "shm"}, tcp = {.protocol = "tcp"};
    const struct caller_options busy = {.protocol = "tcp", .busy_poll_us = TARGET_BUSY_POLL_US};
    struct caller callers[3];
    struct raw_client blocking, spinning;
    struct target target;
    struct copier memory;
    uint64_t id;
    void *local;

    srandom((unsigned)getpid());
    target_start(&target);
    CHECK(mc_memory_alloc(SPAN, NULL, &id, &local, NULL));
    memory = (struct copier){local, target.memory, target.process};
    raw_connect(&blocking, target.raw_port, 1, local);
    raw_connect(&spinning, target.raw_port, 1, local);
    spinning.spinning = true;
    caller_start(&callers[0], &shm, &target, local);
    caller_start(&callers[1], &tcp, &target, local);
    caller_start(&callers[2], &busy, &target, local);

    const struct rival copy = {"memcpy", {raw_memcpy_call, NULL, &memory}};
    const struct rival socket = {"raw_socket", {raw_call, raw_prepare, &blocking}};
    const struct rival spin = {"raw_spinning", {raw_call, raw_prepare, &spinning}};
    const struct group groups[] = {
        {{"shm", {caller_call, NULL, &callers[0]}}, {copy}, CALLS_MAX, true},
        {{"tcp", {caller_call, NULL, &callers[1]}}, {socket}, 500, false},
        {{"tcp_busy", {caller_call, NULL, &callers[2]}}, {socket, spin}, 500, false},
    };
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        struct work work = {.items = 1, .threads = 1, .size = SIZE};

        verify(&groups[i], &memory);
        for (work.opcode = MC_READ; work.opcode <= MC_WRITE; work.opcode++) {
            work.span = SIZE;
            measure(&groups[i], work, "hot", quick);
            work.span = SPAN;
            measure(&groups[i], work, "walk", quick);
        }
    }
    for (size_t i = 0; i < sizeof(callers) / sizeof(callers[0]); i++)
        caller_stop(&callers[i]);
    CHECK(mc_memory_free(id));
    target_stop(&target);
    return 0;
}

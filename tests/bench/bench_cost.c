/* tests/bench/bench_cost.c - what an engine takes beside the bytes that it moves.
 *
 *   bench_cost [--quick]
 *
 * For shm and tcp, prints of the caller: threads, resident bytes beside the buffers (all that the process has, with
 * its program and libraries), the processor's share while the pair is idle (both processes, from half a second after
 * the last transfer), and processor seconds per GB moved in calls of 64 MiB (both processes).
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "caller.h"
#include "footprint.h"
#include "target.h"

static double cpu_of_both(const struct target *target) {
    return footprint_of(getpid()).cpu_seconds + footprint_of(target->process).cpu_seconds;
}

static void measure_bytes(const char *protocol, const struct caller *caller, const struct target *target, bool quick) {
    const struct subject subject = {caller_call, NULL, (void *)(uintptr_t)caller};
    struct work work = {.items = 1, .threads = 1, .size = 64 << 20, .span = SPAN, .calls = quick ? 1 : 32};

    for (work.opcode = MC_READ; work.opcode <= MC_WRITE; work.opcode++) {
        double cpu;

        work_time(&subject, &(struct work){work.opcode, 1, 1, work.size, 0, SPAN, 0, 1}); /* warm */
        cpu = cpu_of_both(target);
        work_time(&subject, &work);
        cpu = cpu_of_both(target) - cpu;
        printf("cost.%s.%s.64MiB.cpu_s_per_gb %.4g\n", protocol, work.opcode == MC_READ ? "read" : "write",
               cpu / ((double)(work.size * work.calls) * 1e-9));
    }
}

static void measure_rest(const char *protocol, const struct target *target, bool quick) {
    double seconds = quick ? 0.2 : 5, cpu;
    struct footprint mine;

    usleep(500000);
    cpu = cpu_of_both(target);
    usleep((useconds_t)(seconds * 1e6));
    cpu = cpu_of_both(target) - cpu;
    mine = footprint_of(getpid());
    printf("cost.%s.idle.cpu_percent %.3f\n", protocol, cpu / seconds * 100);
    printf("cost.%s.threads %u\n", protocol, mine.threads);
    /* Of shared memory there are this process's buffer, the target's as far as it was touched, and the pages of shm. */
    printf("cost.%s.resident_bytes %llu\n", protocol, (unsigned long long)(mine.private_bytes + mine.file_bytes));
    fflush(stdout);
}

int main(int argc, char **argv) {
    static const char *const protocols[] = {"shm", "tcp"};
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    struct target target;
    uint64_t memory;
    void *local;

    target_start(&target);
    CHECK(mc_memory_alloc(SPAN, NULL, &memory, &local, NULL));
    for (size_t i = 0; i < sizeof(protocols) / sizeof(protocols[0]); i++) {
        const struct caller_options options = {.protocol = protocols[i]};
        struct caller caller;

        caller_start(&caller, &options, &target, local);
        measure_bytes(protocols[i], &caller, &target, quick);
        measure_rest(protocols[i], &target, quick);
        caller_stop(&caller);
    }
    CHECK(mc_memory_free(memory));
    target_stop(&target);
    return 0;
}

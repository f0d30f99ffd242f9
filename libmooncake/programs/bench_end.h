/* programs/bench_end.h - the two ends of a measurement, each in a process of its own.
 *
 * A target lends memory. It answers a notification BENCH_HELLO with another, BENCH_BUFFER, whose message is "ADDRESS
 * SIZE SEED", hexadecimal and decimal twice: so an initiator needs to know nothing but the target's address. The lower
 * half of the memory holds the bytes of the seed, and is for reads; the upper half is for writes.
 */
#ifndef MC_PROGRAMS_BENCH_END_H
#define MC_PROGRAMS_BENCH_END_H

#include <stdio.h>
#include <sys/types.h>

#include "programs/bench_plan.h"

#define BENCH_HELLO "mooncake_bench hello"
#define BENCH_BUFFER "mooncake_bench buffer"

struct bench_end {
    mc_engine *engine;
    uint8_t *buffer;
    uint64_t size;
    uint64_t memory; /* id, where it is the library's */
};

/* Opens an engine, and registers memory of --buffer_size with it. What was opened before a failure is to be closed. */
int32_t bench_end_open(const struct bench_plan *plan, uint32_t rights, struct bench_end *end, struct mc_error *error);
void bench_end_close(struct bench_end *end);

/* Serves until a signal comes; says where in one line to `out`. The exit status. The signals are blocked. */
int bench_target(const struct bench_plan *plan, FILE *out);

/* Runs all combinations against plan->segment; `target` is that process, if it is a child, else 0. The exit status. */
int bench_initiator(struct bench_plan *plan, pid_t target);

#endif

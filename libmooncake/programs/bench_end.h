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

#include "programs/bench_data.h"
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

/* What one combination has shown. */
struct bench_result {
    double seconds;
    uint64_t operations; /* requests that completed */
    uint64_t bytes;
    uint64_t failures; /* calls that failed */
    uint64_t wrong;    /* requests whose bytes were others */
    double cpu;        /* seconds of this process */
    double target_cpu; /* of the other end; negative: it isn't known */
    char path[32];
    struct bench_histogram times; /* of calls */
};

/* Runs all combinations against plan->segment; `target` is that process, if it is a child, else 0. The exit status. */
int bench_initiator(struct bench_plan *plan, pid_t target);

/* programs/bench_report.c: the head of the table, and a line of it; or an object. */
void bench_report_begin(const struct bench_plan *plan);
void bench_report(const struct bench_plan *plan, const struct bench_case *what, const struct bench_result *result);

/* programs/bench_case.c: runs one combination. *ret_ended: a signal came. MC_OK, or what keeps it from being run. */
struct bench_place {
    const struct bench_plan *plan;
    const struct bench_end *end;
    pid_t target;
    uint64_t peer;
    uint64_t remote; /* the target's memory */
    uint64_t size;   /* the smaller of the two memories */
    uint64_t seed;   /* the target's */
};
int32_t bench_case_run(const struct bench_place *place, const struct bench_case *what, struct bench_result *result,
                       bool *ret_ended, struct mc_error *error);

#endif

/* programs/bench_case.h - one combination of what the lists have: running it, and reporting what it has shown.
 *
 * Threads: the main thread; bench_case_run starts its own and waits for them.
 */
#ifndef MC_PROGRAMS_BENCH_CASE_H
#define MC_PROGRAMS_BENCH_CASE_H

#include <sys/types.h>

#include "programs/bench_data.h"
#include "programs/bench_end.h"
#include "programs/bench_plan.h"

struct bench_case {
    enum bench_operation operation;
    uint64_t block;   /* bytes of a request */
    uint64_t batch;   /* requests of a call */
    uint64_t threads; /* that call */
};

/* Where it runs. */
struct bench_place {
    const struct bench_plan *plan;
    const struct bench_end *end;
    pid_t target; /* 0: no child of ours */
    uint64_t peer;
    uint64_t remote; /* the target's memory */
    uint64_t size;   /* the smaller of the two memories */
    uint64_t seed;   /* the target's */
};

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

/* *ret_ended: a signal came. MC_OK, or what keeps it from being run. */
int32_t bench_case_run(const struct bench_place *place, const struct bench_case *what, struct bench_result *result,
                       bool *ret_ended, struct mc_error *error);

/* programs/bench_report.c: the head of the table, and a line of it; or an object. */
void bench_report_begin(const struct bench_plan *plan);
void bench_report(const struct bench_plan *plan, const struct bench_case *what, const struct bench_result *result);

#endif

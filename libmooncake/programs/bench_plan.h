/* programs/bench_plan.h - what mooncake_bench is to do, read from its flags. Texts belong to the flags. */
#ifndef MC_PROGRAMS_BENCH_PLAN_H
#define MC_PROGRAMS_BENCH_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mooncake/transfer.h>

#include "os/address.h"
#include "programs/flags.h"

#define BENCH_LIST_MAX 32u
#define BENCH_ALIGNMENT 64u /* of requests within the buffer */

enum bench_mode { BENCH_ALONE, BENCH_TARGET, BENCH_INITIATOR };
enum bench_operation { BENCH_WRITE, BENCH_READ, BENCH_MIX };
enum bench_pattern { BENCH_WALK, BENCH_RANDOM, BENCH_HOT };

struct bench_list {
    uint64_t values[BENCH_LIST_MAX];
    size_t count;
};

struct bench_unit {
    const char *name;
    double bytes;
};

struct bench_plan {
    const char *program; /* as it was called */
    enum bench_mode mode;
    struct bench_list operations; /* of enum bench_operation */
    struct bench_list blocks, batches, threads;
    uint64_t duration; /* nanoseconds */
    uint64_t buffer_size;
    bool ordinary;
    enum bench_pattern pattern;
    bool verify;
    uint64_t seed;
    bool json;
    const struct bench_unit *unit;
    int precision;
    const char *segment;
    bool listen_given;
    char listen[ADDRESS_TEXT_MAX];
    struct mc_engine_options engine;
};

extern const struct flag bench_flags[];
extern const size_t bench_flag_count;

const char *bench_operation_name(uint64_t operation);
const char *bench_pattern_name(enum bench_pattern pattern);

/* -1, or the exit status after words on stderr. The plan holds pointers to itself: it mustn't be copied. */
int bench_plan_make(const struct flags *flags, const char *program, struct bench_plan *plan);

#endif

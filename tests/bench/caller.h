/* tests/bench/caller.h - this process's engine and its peer in the target, as something that does work. */
#ifndef MC_BENCH_CALLER_H
#define MC_BENCH_CALLER_H

#include <stdbool.h>

#include "target.h"
#include "work.h"

#define BATCH_MAX 128

struct caller {
    mc_engine *engine;
    uint64_t peer;
    uint64_t remote;
    unsigned char *local;
    uint32_t request_flags; /* MC_REQUEST_CHECKSUM: submitted and waited for, so that there is a status to read */
    uint32_t checksum;      /* of the last request, if it was asked for */
};

/* What isn't given is the default, or the target's ordinary engine and memory. */
struct caller_options {
    const char *protocol;
    uint32_t lanes;
    uint32_t engine_flags;
    uint32_t request_flags;
    uint32_t busy_poll_us; /* on both ends */
    bool ordinary;         /* memory of the target that can't be mapped */
};

/* Opens an engine and registers SPAN bytes at `local`. */
void caller_start(struct caller *caller, const struct caller_options *options, const struct target *target,
                  unsigned char *local);
void caller_stop(struct caller *caller);

/* subject->call; its context is a caller. Blocking; each call is one request, or one batch of `items`. */
void caller_call(const struct subject *subject, const struct work *work, uint64_t index);

/* Why the path can't be had here, in words; NULL if one byte arrives. */
const char *caller_trouble(struct caller *caller);

#endif

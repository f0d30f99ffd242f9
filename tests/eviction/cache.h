/* cache.h - a cache of blocks of one size, whose victims an eviction policy of the master chooses.
 *
 * The policy is the store's own code. As in a store, the blocks of a request that are there are read, the others are put in
 * one batch, and what is too much is evicted.
 */
#ifndef MC_TESTS_EVICTION_CACHE_H
#define MC_TESTS_EVICTION_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "store/master/policy.h"

/* Requests: the ids of their blocks behind each other, and where each request ends. */
struct trace {
    uint64_t *ids;
    size_t *ends;
    size_t id_count, id_room;
    size_t count, room;
};

void trace_add(struct trace *trace, uint64_t id);
/* What was added since the last one is a request. */
void trace_end(struct trace *trace);
void trace_clear(struct trace *trace);

/* How many blocks are found by a cache of that many. A hit counts only while all earlier blocks of the request hit. */
uint64_t cache_hits(const struct policy_ops *policy, const struct trace *trace, size_t capacity);

#endif

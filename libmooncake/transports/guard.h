/* transports/guard.h - guards: a 64-bit value at the target, to be there before the first byte and after the last.
 *
 * A guard's word is changed by its owner to end what it guards. Then the owner must know when nobody goes on who found
 * it unchanged: so whoever moves bytes under a guard is counted, from before a look at the word until the bytes that
 * rely on that look are moved. The owner changes the word first, and asks then; all steps are sequentially consistent,
 * so one of the two sees the other.
 */
#ifndef MC_TRANSPORTS_GUARD_H
#define MC_TRANSPORTS_GUARD_H

#include <stdatomic.h>

#include "transports/transport.h"

#define GUARD_COUNTERS 4096u /* a power of two */

/* Transfers under way, by the address of their guard's word. Words that share a counter only wait for each other. Any
 * thread. */
struct guard_table {
    _Atomic uint32_t counters[GUARD_COUNTERS];
};

static inline _Atomic uint32_t *guard_counter(struct guard_table *table, uint64_t address) {
    return &table->counters[(address / sizeof(uint64_t) * 0x9e3779b97f4a7c15ull) >> 52];
}

static inline void guard_enter(struct guard_table *table, uint64_t address) {
    atomic_fetch_add(guard_counter(table, address), 1);
}

static inline void guard_leave(struct guard_table *table, uint64_t address) {
    atomic_fetch_sub(guard_counter(table, address), 1);
}

static inline bool guard_in_flight(struct guard_table *table, const void *guard) {
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load(guard_counter(table, (uint64_t)(uintptr_t)guard)) != 0;
}

_Static_assert(GUARD_COUNTERS == 1u << (64 - 52), "a hash is an index");

/* Is the value there? `at` is 8-aligned. The fences keep the copy on its side of the look, whichever side that is. */
static inline bool guard_holds(const void *at, uint64_t value) {
    bool holds;

    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    holds = __atomic_load_n((const uint64_t *)at, __ATOMIC_SEQ_CST) == value;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return holds;
}

/* Compares the value at `address` of this engine's own registered memory. MC_OK, MC_ERR_GUARD_MISMATCH,
 * MC_ERR_INVALID_ARGUMENT (not 8-aligned), MC_ERR_NOT_REGISTERED, MC_ERR_ACCESS_DENIED. */
static inline int32_t guard_check(const struct transport_host *host, uint64_t address, uint64_t value) {
    void *pin;
    int32_t status;

    if (address % sizeof(uint64_t) != 0)
        return MC_ERR_INVALID_ARGUMENT;
    status = host->pin(host->context, address, sizeof(uint64_t), MC_REMOTE_READ, &pin);
    if (status != MC_OK)
        return status;
    if (!guard_holds((const void *)(uintptr_t)address, value))
        status = MC_ERR_GUARD_MISMATCH;
    host->unpin(host->context, pin);
    return status;
}

#endif

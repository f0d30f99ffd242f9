/* transports/guard.h - guards: a 64-bit value at the target, to be there before the first byte and after the last. */
#ifndef MC_TRANSPORTS_GUARD_H
#define MC_TRANSPORTS_GUARD_H

#include "transports/transport.h"

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

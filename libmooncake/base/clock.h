/* base/clock.h - monotonic time in nanoseconds; nothing in the library reads any other clock. */
#ifndef MC_BASE_CLOCK_H
#define MC_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define CLOCK_NEVER UINT64_MAX
#define CLOCK_SECOND 1000000000ull
#define CLOCK_MILLISECOND 1000000ull

static inline uint64_t clock_now(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * CLOCK_SECOND + (uint64_t)now.tv_nsec;
}

/* now + duration, or CLOCK_NEVER where that would overflow. */
static inline uint64_t clock_after(uint64_t now, uint64_t duration) {
    return duration > CLOCK_NEVER - now ? CLOCK_NEVER : now + duration;
}

/* What is left until `deadline`, for poll and epoll: milliseconds rounded up, 0 when it has passed, at most `limit_ms`;
 * -1 for CLOCK_NEVER with a negative limit. */
static inline int clock_poll_ms(uint64_t deadline, uint64_t now, int limit_ms) {
    uint64_t ms;

    if (deadline == CLOCK_NEVER)
        return limit_ms;
    ms = deadline <= now ? 0 : (deadline - now - 1) / CLOCK_MILLISECOND + 1;
    if (limit_ms >= 0 && ms > (uint64_t)limit_ms)
        return limit_ms;
    return ms > INT32_MAX ? INT32_MAX : (int)ms;
}

#endif

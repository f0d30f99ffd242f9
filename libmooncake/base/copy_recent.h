/* base/copy_recent.h - which memory a thread has lately copied to, so that it is likely to be in a cache.
 *
 * A table of blocks by their addresses, each with the time of the last copy there; time is counted in bytes that were
 * copied, read and written. It is a guess: blocks of other threads and of other work aren't seen, and two blocks that
 * share a place in the table forget each other. Wrong guesses cost time only.
 *
 * Threads: a table is one thread's own. All zero is an empty one.
 */
#ifndef MC_BASE_COPY_RECENT_H
#define MC_BASE_COPY_RECENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COPY_RECENT_BLOCK 32768u
#define COPY_RECENT_PLACES 512u
#define COPY_RECENT_LEAST (2 * COPY_RECENT_BLOCK)                                   /* bytes of a copy */
#define COPY_RECENT_WINDOW_MAX ((size_t)2 * COPY_RECENT_BLOCK * COPY_RECENT_PLACES) /* what the table can tell */

struct copy_recent {
    uint32_t now; /* in blocks; it may wrap around */
    struct {
        uint32_t block;
        uint32_t time;
    } places[COPY_RECENT_PLACES];
};

/* Notes a copy of `length` bytes, at least COPY_RECENT_LEAST, to `to`. Was that memory copied to before, with at most
 * `window` bytes of traffic since? */
static inline bool copy_recent_note(struct copy_recent *recent, const void *to, size_t length, size_t window) {
    uint64_t address = (uint64_t)(uintptr_t)to;
    /* A block that is copied to as a whole: unlike those at the ends it's none that the neighbouring copy of a walk has
     * touched, too. */
    uint32_t middle = (uint32_t)((address + length / 2) / COPY_RECENT_BLOCK);
    uint64_t last = (address + length - 1) / COPY_RECENT_BLOCK;
    bool known = recent->places[middle % COPY_RECENT_PLACES].block == middle &&
                 recent->now - recent->places[middle % COPY_RECENT_PLACES].time <= window / COPY_RECENT_BLOCK;

    recent->now += (uint32_t)(2 * length / COPY_RECENT_BLOCK);
    for (uint64_t block = address / COPY_RECENT_BLOCK; block <= last; block++) {
        recent->places[block % COPY_RECENT_PLACES].block = (uint32_t)block;
        recent->places[block % COPY_RECENT_PLACES].time = recent->now;
    }
    return known;
}

#endif

/* os/spin.h - is it worth to stay awake for what may come at once?
 *
 * Waking a thread takes tens of microseconds, looking at memory none: so who waits looks first, for about as long as
 * being woken would take. But where the other side needs this very processor, or comes later each time, looking is
 * wasted: who has failed doesn't look the next few times, and each further failure makes them more.
 *
 * Not thread-safe. Zeroed is new.
 */
#ifndef MC_OS_SPIN_H
#define MC_OS_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#define SPIN_SKIPS_FIRST 16u
#define SPIN_SKIPS_LAST 1024u

struct spin {
    uint32_t skips;  /* times still not to look */
    uint32_t failed; /* how many they were, after the last failure; 0 after a success */
};

/* A wait begins: is it worth to look? */
static inline bool spin_try(struct spin *spin) {
    if (spin->skips == 0)
        return true;
    spin->skips--;
    return false;
}

/* It was looked, and something came in time, or nothing. */
static inline void spin_learn(struct spin *spin, bool found) {
    if (found)
        spin->failed = 0;
    else
        spin->failed = spin->failed == 0                     ? SPIN_SKIPS_FIRST
                       : spin->failed >= SPIN_SKIPS_LAST / 2 ? SPIN_SKIPS_LAST
                                                             : spin->failed * 2;
    spin->skips = spin->failed;
}

#endif

/* base/random.h - numbers that are random enough for choosing, and the same again for the same seed (splitmix64). */
#ifndef MC_BASE_RANDOM_H
#define MC_BASE_RANDOM_H

#include <stdint.h>

struct random {
    uint64_t state;
};

static inline uint64_t random_next(struct random *random) {
    uint64_t value = random->state += 0x9e3779b97f4a7c15ull;

    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ value >> 27) * 0x94d049bb133111ebull;
    return value ^ value >> 31;
}

/* A number below `bound`, which is not 0. */
static inline uint64_t random_below(struct random *random, uint64_t bound) {
    return (uint64_t)(((unsigned __int128)random_next(random) * bound) >> 64);
}

#endif

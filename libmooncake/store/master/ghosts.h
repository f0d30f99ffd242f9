/* store/master/ghosts.h - what was evicted, remembered for a while: keys, and what the policy knew of them.
 *
 * A ring in the order of eviction, with an index by key. Two keys may share their 32 bits here; then one is
 * taken for the other, which costs a guess. Not thread-safe.
 */
#ifndef MC_STORE_MASTER_GHOSTS_H
#define MC_STORE_MASTER_GHOSTS_H

#include <stdbool.h>
#include <stdint.h>

struct ghost {
    uint32_t key; /* 0: it was taken out */
    uint32_t next;
    uint64_t state; /* the policy's own */
};

struct ghosts {
    struct ghost *ring;
    uint32_t *heads; /* by key, `room` of them: position + 1 */
    uint32_t room;   /* a power of two, or 0 */
    uint32_t first;  /* position of the oldest */
    uint32_t count;  /* positions in use, taken out or not */
};

void ghosts_clear(struct ghosts *ghosts);

/* Remembers one; without memory it is forgotten at once. */
void ghosts_add(struct ghosts *ghosts, uint64_t key, uint64_t state);

/* Takes one out by its key; false: it isn't there. */
bool ghosts_take(struct ghosts *ghosts, uint64_t key, uint64_t *ret_state);

/* Takes out the oldest while there are more than `most`; false: none was. */
bool ghosts_shrink(struct ghosts *ghosts, uint32_t most, uint64_t *ret_state);

#endif

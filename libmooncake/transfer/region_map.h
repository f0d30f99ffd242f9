/* transfer/region_map.h - regions by their first address, which one thread changes while others look without a lock.
 *
 * A skip list under a sequence counter. Whoever looks begins with region_map_look, and believes what was found only if
 * region_map_holds says afterwards that nothing was changed meanwhile; until then nodes may have been taken out, or put
 * in elsewhere. So their memory must stay, and stay nodes, as long as the map does.
 *
 * Threads: any may look; changes are one at a time, by a lock of the owner.
 */
#ifndef MC_TRANSFER_REGION_MAP_H
#define MC_TRANSFER_REGION_MAP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define REGION_LEVELS 10 /* a quarter of the nodes of each level are on the next one: enough for millions */

/* Embedded in its owner. */
struct region_node {
    _Atomic uint64_t base;
    _Atomic(struct region_node *) next[REGION_LEVELS];
};

struct region_map {
    _Atomic uint64_t sequence; /* odd while it is being changed */
    uint64_t random;
    struct region_node head; /* before all others; its base doesn't count */
};

void region_map_init(struct region_map *map);

/* Around each change of the map, and of whatever its owner keeps consistent with it. */
void region_map_begin(struct region_map *map);
void region_map_end(struct region_map *map);

/* Within a change. `base` is in no other node of the map. */
void region_map_insert(struct region_map *map, struct region_node *node, uint64_t base);
void region_map_erase(struct region_map *map, struct region_node *node);

/* The last node that begins at or below `address`; NULL if there is none. By a thread that looks, or changes. */
struct region_node *region_map_floor(const struct region_map *map, uint64_t address);

/* The next one in order; NULL behind the last. As above. */
struct region_node *region_map_next(const struct region_node *node);

/* Waits for a change that is under way (some instructions), and says what to compare with. */
uint64_t region_map_look(const struct region_map *map);
bool region_map_holds(const struct region_map *map, uint64_t sequence);

#endif

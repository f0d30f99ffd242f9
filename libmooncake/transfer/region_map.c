/* transfer/region_map.c - a skip list under a sequence counter.
 *
 * Invariant: the list of each level is sorted by base, and holds nodes of the level below only.
 */
#include "transfer/region_map.h"

#include <sched.h>
#include <stddef.h>

void region_map_init(struct region_map *map) {
    atomic_init(&map->sequence, 0);
    map->random = 0x9e3779b97f4a7c15ull;
    atomic_init(&map->head.base, 0);
    for (int level = 0; level < REGION_LEVELS; level++)
        atomic_init(&map->head.next[level], NULL);
}

void region_map_begin(struct region_map *map) {
    atomic_fetch_add(&map->sequence, 1);
}

void region_map_end(struct region_map *map) {
    atomic_fetch_add(&map->sequence, 1);
}

uint64_t region_map_look(const struct region_map *map) {
    uint64_t sequence;

    while ((sequence = atomic_load(&map->sequence)) % 2 != 0)
        (void)sched_yield();
    return sequence;
}

bool region_map_holds(const struct region_map *map, uint64_t sequence) {
    return atomic_load(&map->sequence) == sequence;
}

/* Acquire, so that what is reached is seen at least as new as the way to it, and region_map_holds comes after. */
static struct region_node *next_of(const struct region_node *node, int level) {
    return atomic_load_explicit(&node->next[level], memory_order_acquire);
}

static uint64_t base_of(const struct region_node *node) {
    return atomic_load_explicit(&node->base, memory_order_acquire);
}

/* Release, so that whoever meets a new value also finds the sequence changed. */
static void link_to(struct region_node *node, int level, struct region_node *next) {
    atomic_store_explicit(&node->next[level], next, memory_order_release);
}

struct region_node *region_map_next(const struct region_node *node) {
    return next_of(node, 0);
}

struct region_node *region_map_floor(const struct region_map *map, uint64_t address) {
    const struct region_node *node = &map->head, *next;

    for (int level = REGION_LEVELS - 1; level >= 0; level--)
        while ((next = next_of(node, level)) != NULL && base_of(next) <= address)
            node = next;
    return node == &map->head ? NULL : (struct region_node *)(uintptr_t)node;
}

/* The last node before `base`, at each level. */
static void find_before(struct region_map *map, uint64_t base, struct region_node *before[REGION_LEVELS]) {
    struct region_node *node = &map->head, *next;

    for (int level = REGION_LEVELS - 1; level >= 0; level--) {
        while ((next = next_of(node, level)) != NULL && base_of(next) < base)
            node = next;
        before[level] = node;
    }
}

/* 1 in three of four cases, 2 in three of the rest, …: xorshift64. */
static int random_height(struct region_map *map) {
    uint64_t bits = map->random;
    int height = 1;

    bits ^= bits << 13;
    bits ^= bits >> 7;
    bits ^= bits << 17;
    map->random = bits;
    for (; bits % 4 == 0 && height < REGION_LEVELS; bits /= 4)
        height++;
    return height;
}

void region_map_insert(struct region_map *map, struct region_node *node, uint64_t base) {
    struct region_node *before[REGION_LEVELS];
    int height = random_height(map);

    find_before(map, base, before);
    atomic_store_explicit(&node->base, base, memory_order_release);
    for (int level = 0; level < REGION_LEVELS; level++)
        link_to(node, level, level < height ? next_of(before[level], level) : NULL);
    for (int level = 0; level < height; level++)
        link_to(before[level], level, node);
}

void region_map_erase(struct region_map *map, struct region_node *node) {
    struct region_node *before[REGION_LEVELS];

    find_before(map, base_of(node), before);
    for (int level = 0; level < REGION_LEVELS; level++)
        if (next_of(before[level], level) == node)
            link_to(before[level], level, next_of(node, level));
}

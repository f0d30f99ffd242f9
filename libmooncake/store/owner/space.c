/* store/owner/space.c - two-level segregated fit over a range that is never touched.
 *
 * Owns: the extents, in slabs that are kept until the end. Not thread-safe.
 * Invariants: the extents lie side by side and cover the whole range; no two neighbours are free; each free one is in
 * the list of its class, and the bitmaps name exactly the classes with something in their lists.
 */
#include "store/owner/space.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/list.h"

#define SECOND_BITS 5u
#define SECOND (1u << SECOND_BITS) /* classes between two powers of two: what is wasted is at most 1/32 */
#define FIRST (64u - SECOND_BITS)
#define SLAB_EXTENTS 256u
#define SAME_CLASS_TRIES 16u

/* Lengths are in units within this file. */
struct extent {
    uint64_t begin;
    uint64_t length;
    struct extent *before; /* neighbours in the range */
    struct extent *behind;
    struct list node; /* in its class, or in the list of unused records */
    bool free;
};

struct slab {
    struct slab *next;
    struct extent extents[SLAB_EXTENTS];
};

struct space {
    uint64_t used;
    struct slab *slabs;
    struct list unused; /* records */
    uint64_t first_map;
    uint32_t second_map[FIRST];
    struct list classes[FIRST][SECOND];
};

struct size_class {
    uint32_t first;
    uint32_t second;
};

static uint32_t highest_bit(uint64_t value) {
    return 63u - (uint32_t)__builtin_clzll(value);
}

/* The class of free extents with `length` units. Below SECOND each length has its own. */
static struct size_class class_of(uint64_t length) {
    uint32_t bit;

    if (length < SECOND)
        return (struct size_class){.first = 0, .second = (uint32_t)length};
    bit = highest_bit(length);
    return (struct size_class){.first = bit - SECOND_BITS + 1,
                               .second = (uint32_t)(length >> (bit - SECOND_BITS)) & (SECOND - 1)};
}

/* ---- Records ---- */

static struct extent *record_take(struct space *space) {
    struct extent *extent;

    if (list_empty(&space->unused)) {
        struct slab *slab = malloc(sizeof(*slab));

        if (slab == NULL)
            return NULL;
        slab->next = space->slabs;
        space->slabs = slab;
        for (size_t i = 0; i < SLAB_EXTENTS; i++)
            list_append(&space->unused, &slab->extents[i].node);
    }
    extent = list_entry(space->unused.next, struct extent, node);
    list_remove(&extent->node);
    return extent;
}

static void record_give(struct space *space, struct extent *extent) {
    list_append(&space->unused, &extent->node);
}

/* ---- Free lists ---- */

static void free_add(struct space *space, struct extent *extent) {
    struct size_class class = class_of(extent->length);

    extent->free = true;
    list_append(&space->classes[class.first][class.second], &extent->node);
    space->second_map[class.first] |= 1u << class.second;
    space->first_map |= 1ull << class.first;
}

static void free_remove(struct space *space, struct extent *extent) {
    struct size_class class = class_of(extent->length);

    extent->free = false;
    list_remove(&extent->node);
    if (!list_empty(&space->classes[class.first][class.second]))
        return;
    space->second_map[class.first] &= ~(1u << class.second);
    if (space->second_map[class.first] == 0)
        space->first_map &= ~(1ull << class.first);
}

/* Where the aligned part of a free extent would begin, if it has one of `length` units. */
static bool fits(const struct extent *extent, uint64_t length, uint64_t align, uint64_t *ret_begin) {
    uint64_t begin = (extent->begin + align - 1) & ~(align - 1);
    uint64_t lost = begin - extent->begin;

    if (lost > extent->length || extent->length - lost < length)
        return false;
    *ret_begin = begin;
    return true;
}

/* A free extent of the class itself: objects of one size leave holes of just that size, which a search in the larger
 * classes alone would never fill. */
static struct extent *find_in_class(struct space *space, uint64_t length, uint64_t align, uint64_t *ret_begin) {
    struct size_class class = class_of(length);
    struct list *head = &space->classes[class.first][class.second];
    struct list *node, *after;
    uint32_t tries = 0;

    list_each (node, after, head) {
        struct extent *extent = list_entry(node, struct extent, node);

        if (fits(extent, length, align, ret_begin))
            return extent;
        if (++tries == SAME_CLASS_TRIES)
            break;
    }
    return NULL;
}

/* The first free extent of a class above that of `length`; each is long enough. */
static struct extent *find_above(struct space *space, uint64_t length) {
    struct size_class class = class_of(length);
    uint32_t second = space->second_map[class.first] & ~((2u << class.second) - 1);
    uint64_t first = space->first_map & ~((2ull << class.first) - 1);

    if (second == 0) {
        if (first == 0)
            return NULL;
        class.first = (uint32_t)__builtin_ctzll(first);
        second = space->second_map[class.first];
    }
    class.second = (uint32_t)__builtin_ctz(second);
    return list_entry(space->classes[class.first][class.second].next, struct extent, node);
}

static struct extent *find(struct space *space, uint64_t length, uint64_t align, uint64_t *ret_begin) {
    struct extent *extent = find_in_class(space, length, align, ret_begin);

    if (extent == NULL) {
        extent = find_above(space, length);
        if (extent != NULL && !fits(extent, length, align, ret_begin))
            extent = NULL;
    }
    if (extent == NULL && align > 1) {
        extent = find_in_class(space, length + align - 1, align, ret_begin);
        if (extent == NULL)
            extent = find_above(space, length + align - 1);
        if (extent != NULL && !fits(extent, length, align, ret_begin))
            extent = NULL;
    }
    return extent;
}

/* ---- Taking and giving ---- */

/* Makes the rest of `extent` from `length` units on a free extent of its own, in `record`. */
static void split(struct space *space, struct extent *extent, uint64_t length, struct extent *record) {
    record->begin = extent->begin + length;
    record->length = extent->length - length;
    record->before = extent;
    record->behind = extent->behind;
    if (record->behind != NULL)
        record->behind->before = record;
    extent->behind = record;
    extent->length = length;
    free_add(space, record);
}

struct extent *space_take(struct space *space, uint64_t length, uint64_t align) {
    uint64_t units = length / SPACE_UNIT + (length % SPACE_UNIT != 0);
    uint64_t begin;
    struct extent *extent, *front, *rest;

    if (length == 0 || units > UINT64_MAX / SPACE_UNIT - align / SPACE_UNIT)
        return NULL;
    front = record_take(space);
    rest = record_take(space);
    extent = front != NULL && rest != NULL ? find(space, units, align / SPACE_UNIT, &begin) : NULL;
    if (extent != NULL) {
        free_remove(space, extent);
        if (begin > extent->begin) {
            struct extent *hole = extent;

            split(space, hole, begin - hole->begin, front);
            free_add(space, hole);
            extent = front;
            free_remove(space, extent);
            front = NULL;
        }
        if (extent->length > units) {
            split(space, extent, units, rest);
            rest = NULL;
        }
        space->used += units;
    }
    if (front != NULL)
        record_give(space, front);
    if (rest != NULL)
        record_give(space, rest);
    return extent;
}

/* Takes `behind`, which is in no list, into its neighbour. */
static void swallow(struct space *space, struct extent *extent, struct extent *behind) {
    extent->length += behind->length;
    extent->behind = behind->behind;
    if (extent->behind != NULL)
        extent->behind->before = extent;
    record_give(space, behind);
}

void space_give(struct space *space, struct extent *extent) {
    struct extent *before = extent->before, *behind = extent->behind;

    space->used -= extent->length;
    if (behind != NULL && behind->free) {
        free_remove(space, behind);
        swallow(space, extent, behind);
    }
    if (before != NULL && before->free) {
        free_remove(space, before);
        swallow(space, before, extent);
        extent = before;
    }
    free_add(space, extent);
}

/* ---- The whole ---- */

struct space *space_new(uint64_t size) {
    struct space *space = calloc(1, sizeof(*space));
    struct extent *all;

    if (space == NULL)
        return NULL;
    list_init(&space->unused);
    for (uint32_t first = 0; first < FIRST; first++)
        for (uint32_t second = 0; second < SECOND; second++)
            list_init(&space->classes[first][second]);
    if (size < SPACE_UNIT)
        return space;
    all = record_take(space);
    if (all == NULL)
        return space_free(space);
    *all = (struct extent){.length = size / SPACE_UNIT};
    list_init(&all->node);
    free_add(space, all);
    return space;
}

struct space *space_free(struct space *space) {
    if (space == NULL)
        return NULL;
    while (space->slabs != NULL) {
        struct slab *slab = space->slabs;

        space->slabs = slab->next;
        free(slab);
    }
    free(space);
    return NULL;
}

uint64_t extent_offset(const struct extent *extent) {
    return extent->begin * SPACE_UNIT;
}

uint64_t extent_length(const struct extent *extent) {
    return extent->length * SPACE_UNIT;
}

uint64_t space_used(const struct space *space) {
    return space->used * SPACE_UNIT;
}

uint64_t space_largest(const struct space *space) {
    uint32_t first, second;

    if (space->first_map == 0)
        return 0;
    first = highest_bit(space->first_map);
    second = highest_bit(space->second_map[first]);
    return list_entry(space->classes[first][second].next, struct extent, node)->length * SPACE_UNIT;
}

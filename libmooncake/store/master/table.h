/* store/master/table.h - a hash table through members of its elements, ordered by hash, growing a little at a time.
 *
 * An element's bucket is made of its hash's top bits (behind the first `skip`), so that going through the buckets is
 * going through the hashes, whatever the table's size. Doubling moves a few buckets with each insertion: no call takes
 * time in proportion to the table. Not thread-safe. All zeros (with `skip` set) is an empty table.
 */
#ifndef MC_STORE_MASTER_TABLE_H
#define MC_STORE_MASTER_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct table_node {
    struct table_node *next;
    uint64_t hash;
};

struct table {
    struct table_node **buckets; /* 1 << bits */
    struct table_node **before;  /* the half as large ones, while they are moved; else NULL */
    size_t moved;                /* so many of them have been */
    size_t scan;                 /* table_pop has emptied so many buckets */
    uint64_t count;
    uint32_t bits;
    uint32_t skip; /* top bits that are the same in the whole table */
};

/* Frees the buckets, not the elements. */
void table_clear(struct table *table);

/* node->hash is set. False if memory is short. */
bool table_insert(struct table *table, struct table_node *node);

void table_remove(struct table *table, struct table_node *node);

/* The elements of one bucket, linked by `next`: all that have this hash, and others. */
struct table_node *table_chain(const struct table *table, uint64_t hash);

/* Has the processor fetch where table_chain looks. */
void table_fetch(const struct table *table, uint64_t hash);

/* The same; and the first hash behind this bucket (0: there is none). */
struct table_node *table_chain_range(const struct table *table, uint64_t hash, uint64_t *ret_end);

/* Takes out any element, looking into at most *budget buckets, which are subtracted. NULL: none found within it.
 * Nothing may be inserted any more once this has been called. */
struct table_node *table_pop(struct table *table, uint32_t *budget);

/* A hash of a number. */
static inline uint64_t table_hash(uint64_t value) {
    value = (value ^ value >> 31) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ value >> 27) * 0x94d049bb133111ebull;
    return value ^ value >> 31;
}

#define table_entry(node, type, member) ((type *)((char *)(node)-offsetof(type, member)))

#endif

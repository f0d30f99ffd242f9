/* store/master/policy.h - which object of a segment is given up first: the interface of eviction policies.
 *
 * A policy has one book per segment, and an entry of it in each replica. Not thread-safe.
 */
#ifndef MC_STORE_MASTER_POLICY_H
#define MC_STORE_MASTER_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

/* A replica's place in a book; embedded in the replica. */
struct policy_entry {
    struct list node; /* alone when in no book */
    uint32_t charge;  /* bytes of the extent, in units of 64 */
    uint32_t tier;    /* enum policy_tier */
    uint64_t state;   /* the policy's own */
};

/* Pinned objects go after all others; those of the last tier never. */
enum policy_tier { POLICY_PLAIN, POLICY_SOFT_PINNED, POLICY_HARD_PINNED, POLICY_TIERS };

/* What is known of an object when it comes. */
struct policy_news {
    uint64_t key; /* a hash of it */
    bool last;    /* it ended the batch that it was put with */
};

struct policy_book;

struct policy_ops {
    const char *name;
    struct policy_book *(*open)(void); /* NULL if memory is short */
    void (*close)(struct policy_book *book);
    void (*insert)(struct policy_book *book, struct policy_entry *entry, const struct policy_news *news);
    /* It has gone; one that has been evicted may be removed again. */
    void (*remove)(struct policy_book *book, struct policy_entry *entry);
    /* It goes because it was the victim; the policy may remember it by its key. */
    void (*evict)(struct policy_book *book, struct policy_entry *entry, uint64_t key);
    /* It was read. */
    void (*touch)(struct policy_book *book, struct policy_entry *entry);
    /* Its tier has changed to `tier`. */
    void (*move)(struct policy_book *book, struct policy_entry *entry, enum policy_tier tier);
    /* The one to go first among those of tiers up to `highest`, still in the book; NULL if there is none. */
    struct policy_entry *(*victim)(struct policy_book *book, enum policy_tier highest);
    /* The first in any order whatever, for clean-up; NULL if the book is empty. */
    struct policy_entry *(*any)(struct policy_book *book);
};

extern const struct policy_ops policy_lru, policy_hazard;

#define POLICY_DEFAULT "hazard"

/* By name; NULL if there is no such policy. */
const struct policy_ops *policy_find(const char *name);

#endif

/* store/master/table.c - the table of table.h. Owns the arrays of buckets; not thread-safe.
 *
 * While it grows, bucket b of `before` holds what buckets 2b and 2b + 1 will hold, for b >= moved; those below `moved`
 * are empty. Growth that finds no memory is put off: chains get longer.
 */
#include "store/master/table.h"

#include <stdlib.h>

#define FIRST_BITS 4u
#define MOVES 4u /* buckets moved with each insertion: doubling ends long before the next one begins */

void table_clear(struct table *table) {
    free(table->buckets);
    free(table->before);
    *table = (struct table){.skip = table->skip};
}

static size_t bucket(const struct table *table, uint64_t hash, uint32_t bits) {
    return (size_t)(hash << table->skip >> (64 - bits));
}

/* The bucket of a hash, and how many bits make it up. */
static struct table_node **chain(const struct table *table, uint64_t hash, uint32_t *ret_bits) {
    if (table->before != NULL) {
        size_t old = bucket(table, hash, table->bits - 1);

        if (old >= table->moved) {
            *ret_bits = table->bits - 1;
            return &table->before[old];
        }
    }
    *ret_bits = table->bits;
    return &table->buckets[bucket(table, hash, table->bits)];
}

static void move_one(struct table *table) {
    struct table_node *node = table->before[table->moved], *next;

    for (; node != NULL; node = next) {
        struct table_node **to = &table->buckets[bucket(table, node->hash, table->bits)];

        next = node->next;
        node->next = *to;
        *to = node;
    }
    table->before[table->moved++] = NULL;
    if (table->moved == (size_t)1 << (table->bits - 1)) {
        free(table->before);
        table->before = NULL;
    }
}

static void grow(struct table *table) {
    struct table_node **buckets;

    if (table->before != NULL || table->count <= (uint64_t)1 << table->bits || table->bits + table->skip >= 48)
        return;
    buckets = calloc((size_t)1 << (table->bits + 1), sizeof(struct table_node *));
    if (buckets == NULL)
        return;
    table->before = table->buckets;
    table->buckets = buckets;
    table->bits++;
    table->moved = 0;
}

bool table_insert(struct table *table, struct table_node *node) {
    struct table_node **to;
    uint32_t bits;

    if (table->buckets == NULL) {
        table->buckets = calloc((size_t)1 << FIRST_BITS, sizeof(struct table_node *));
        if (table->buckets == NULL)
            return false;
        table->bits = FIRST_BITS;
    }
    grow(table);
    for (uint32_t n = 0; n < MOVES && table->before != NULL; n++)
        move_one(table);
    to = chain(table, node->hash, &bits);
    node->next = *to;
    *to = node;
    table->count++;
    return true;
}

void table_remove(struct table *table, struct table_node *node) {
    uint32_t bits;
    struct table_node **link = chain(table, node->hash, &bits);

    while (*link != node)
        link = &(*link)->next;
    *link = node->next;
    node->next = NULL;
    table->count--;
}

struct table_node *table_chain(const struct table *table, uint64_t hash) {
    uint32_t bits;

    return table->buckets == NULL ? NULL : *chain(table, hash, &bits);
}

void table_fetch(const struct table *table, uint64_t hash) {
    uint32_t bits;

    if (table->buckets != NULL)
        __builtin_prefetch(chain(table, hash, &bits));
}

struct table_node *table_chain_range(const struct table *table, uint64_t hash, uint64_t *ret_end) {
    uint32_t bits = 0;
    struct table_node *first = table->buckets == NULL ? NULL : *chain(table, hash, &bits);
    uint32_t free_bits = 64 - table->skip - bits;

    *ret_end = free_bits == 64 ? 0 : ((hash >> free_bits) + 1) << free_bits;
    return first;
}

struct table_node *table_pop(struct table *table, uint32_t *budget) {
    struct table_node *node;

    for (; *budget > 0 && table->before != NULL; --*budget)
        move_one(table);
    if (table->before != NULL || table->buckets == NULL || table->count == 0)
        return NULL;
    for (; *budget > 0; --*budget, table->scan++)
        if ((node = table->buckets[table->scan]) != NULL) {
            table->buckets[table->scan] = node->next;
            node->next = NULL;
            table->count--;
            return node;
        }
    return NULL;
}

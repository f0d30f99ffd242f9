/* store/master/index.c - from a key to what the master knows of it, and the tombstones.
 *
 * Owns the entries. Shards are by the top bits of the key's hash, buckets by those that follow. An entry is freed by
 * entry_settle, once nothing is in it: so whoever empties one calls that when it is through with it.
 */
#include "store/master/inside.h"

#include <stdlib.h>
#include <string.h>

static struct table *shard(const struct master *master, uint64_t high) {
    return (struct table *)&master->shards[high >> (64 - SHARD_BITS)];
}

struct entry *index_find_hash(const struct master *master, const struct key_hash *hash) {
    struct table_node *node = table_chain(shard(master, hash->high), hash->high);

    for (; node != NULL; node = node->next) {
        struct entry *entry = table_entry(node, struct entry, node);

        if (node->hash == hash->high && entry->hash_low == hash->low)
            return entry;
    }
    return NULL;
}

void index_fetch(const struct master *master, uint64_t high) {
    table_fetch(shard(master, high), high);
}

void index_fetch_entry(const struct master *master, uint64_t high) {
    __builtin_prefetch(table_chain(shard(master, high), high));
}

static struct entry *find(const struct master *master, const struct key_hash *hash, const void *key, uint32_t length) {
    struct table_node *node = table_chain(shard(master, hash->high), hash->high);

    for (; node != NULL; node = node->next) {
        struct entry *entry = table_entry(node, struct entry, node);

        if (node->hash == hash->high && entry->hash_low == hash->low && entry->key_length == length &&
            memcmp(entry->key, key, length) == 0)
            return entry;
    }
    return NULL;
}

struct entry *index_find(const struct master *master, const void *key, uint32_t length) {
    struct key_hash hash = key_hash(key, length);

    return find(master, &hash, key, length);
}

struct entry *index_obtain(struct master *master, const void *key, uint32_t length) {
    struct key_hash hash = key_hash(key, length);
    struct entry *entry = find(master, &hash, key, length);

    if (entry != NULL)
        return entry;
    entry = calloc(1, sizeof(*entry) + length);
    if (entry == NULL)
        return NULL;
    entry->node.hash = hash.high;
    entry->hash_low = hash.low;
    entry->key_length = length;
    memcpy(entry->key, key, length);
    list_init(&entry->kills);
    list_init(&entry->doubts);
    list_init(&entry->parked);
    list_init(&entry->grave);
    if (!table_insert(shard(master, hash.high), &entry->node)) {
        free(entry);
        return NULL;
    }
    return entry;
}

void entry_settle(struct master *master, struct entry *entry) {
    if (entry->current != NULL || entry->pending != NULL || entry->uses > 0 || !list_empty(&entry->kills) ||
        !list_empty(&entry->doubts) || !list_empty(&entry->parked) || !list_empty(&entry->grave))
        return;
    table_remove(shard(master, entry->node.hash), &entry->node);
    free(entry);
}

/* A replica of the record on a member that is gone; NULL if there is none. */
static struct claim *lost_replica(const struct record *record) {
    struct list *node, *after;

    if (record == NULL)
        return NULL;
    list_each (node, after, &record->replicas)
        if (list_entry(node, struct claim, sibling)->member->gone)
            return list_entry(node, struct claim, sibling);
    return NULL;
}

/* Burying one may change which record is which: so it is asked anew each time. */
void entry_bury(struct master *master, uint64_t now, struct entry *entry) {
    struct claim *claim;

    entry->uses++;
    while ((claim = lost_replica(entry->current)) != NULL || (claim = lost_replica(entry->pending)) != NULL)
        claim_bury(master, now, claim);
    entry->uses--;
}

void entry_wake(struct master *master, struct entry *entry) {
    if (master->running != NULL && master->running->blocker == entry)
        master->running->changed = true;
    while (!list_empty(&entry->parked)) {
        struct parked *parked = list_entry(entry->parked.next, struct parked, place);

        list_remove(&parked->place);
        parked->entry = NULL;
        list_append(&master->ready, &parked->place);
    }
}

void entry_entomb(struct master *master, struct entry *entry, struct version version) {
    if (!master->graves)
        return;
    if (version_less(entry->tombstone, version))
        entry->tombstone = version;
    if (list_empty(&entry->grave))
        list_append(&master->tombstones, &entry->grave);
}

void index_forget_tombstones(struct master *master, uint32_t count) {
    for (; count > 0 && !list_empty(&master->tombstones); count--) {
        struct entry *entry = list_entry(master->tombstones.next, struct entry, grave);

        list_remove(&entry->grave);
        entry->tombstone = (struct version){0};
        entry_settle(master, entry);
    }
}

void index_init(struct master *master) {
    for (uint32_t n = 0; n < SHARDS; n++)
        master->shards[n].skip = SHARD_BITS;
}

static void free_record(struct record *record) {
    if (record == NULL)
        return;
    list_remove(&record->pin);
    free(record);
}

/* The claims are freed with their members, and nothing of the index is used in between. */
void index_clear(struct master *master) {
    for (uint32_t n = 0; n < SHARDS; n++) {
        struct table_node *node;
        uint32_t budget = UINT32_MAX;

        while ((node = table_pop(&master->shards[n], &budget)) != NULL) {
            struct entry *entry = table_entry(node, struct entry, node);

            free_record(entry->current);
            free_record(entry->pending);
            free(entry);
            budget = UINT32_MAX;
        }
        table_clear(&master->shards[n]);
    }
}

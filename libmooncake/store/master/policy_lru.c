/* store/master/policy_lru.c - the least recently used object goes first. A book owns a list for each tier, oldest
 * first; entries are their replicas'. Not thread-safe. */
#include "store/master/policy.h"

#include <stdlib.h>
#include <string.h>

struct policy_book {
    struct list tiers[POLICY_TIERS];
};

static struct policy_book *lru_open(void) {
    struct policy_book *book = malloc(sizeof(*book));

    for (int tier = 0; book != NULL && tier < POLICY_TIERS; tier++)
        list_init(&book->tiers[tier]);
    return book;
}

static void lru_close(struct policy_book *book) {
    free(book);
}

static void lru_insert(struct policy_book *book, struct policy_entry *entry, const struct policy_news *news) {
    (void)news;
    list_append(&book->tiers[entry->tier], &entry->node);
}

static void lru_remove(struct policy_book *book, struct policy_entry *entry) {
    (void)book;
    list_remove(&entry->node);
}

static void lru_evict(struct policy_book *book, struct policy_entry *entry, uint64_t key) {
    (void)key;
    lru_remove(book, entry);
}

static void lru_touch(struct policy_book *book, struct policy_entry *entry) {
    list_remove(&entry->node);
    list_append(&book->tiers[entry->tier], &entry->node);
}

static void lru_move(struct policy_book *book, struct policy_entry *entry, enum policy_tier tier) {
    list_remove(&entry->node);
    entry->tier = tier;
    list_append(&book->tiers[tier], &entry->node);
}

static struct policy_entry *lru_victim(struct policy_book *book, enum policy_tier highest) {
    for (int tier = 0; tier <= (int)highest && tier < POLICY_TIERS; tier++)
        if (!list_empty(&book->tiers[tier]))
            return list_entry(book->tiers[tier].next, struct policy_entry, node);
    return NULL;
}

static struct policy_entry *lru_any(struct policy_book *book) {
    return lru_victim(book, POLICY_HARD_PINNED);
}

const struct policy_ops policy_lru = {
    .name = "lru",
    .open = lru_open,
    .close = lru_close,
    .insert = lru_insert,
    .remove = lru_remove,
    .evict = lru_evict,
    .touch = lru_touch,
    .move = lru_move,
    .victim = lru_victim,
    .any = lru_any,
};

const struct policy_ops *policy_find(const char *name) {
    static const struct policy_ops *const all[] = {&policy_lru, &policy_hazard};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (strcmp(name, all[i]->name) == 0)
            return all[i];
    return NULL;
}

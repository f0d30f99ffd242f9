/* net/clients.c - how many connections of each client incarnation a server has.
 *
 * A hash table of lists. Invariant: no entry's count is zero.
 */
#include "net/clients.h"

#include <stdlib.h>
#include <string.h>

#include <mooncake/error.h>

struct entry {
    struct list node;
    uint8_t incarnation[16];
    uint32_t count;
};

void clients_init(struct clients *clients) {
    memset(clients, 0, sizeof(*clients));
    pthread_mutex_init(&clients->lock, NULL);
    for (size_t i = 0; i < CLIENTS_BUCKETS; i++)
        list_init(&clients->buckets[i]);
}

void clients_destroy(struct clients *clients) {
    struct list *node, *after;

    for (size_t i = 0; i < CLIENTS_BUCKETS; i++)
        list_each (node, after, &clients->buckets[i])
            free(list_entry(node, struct entry, node));
    pthread_mutex_destroy(&clients->lock);
}

void clients_watch(struct clients *clients, void (*lost)(void *context, const uint8_t incarnation[16]), void *context) {
    clients->lost = lost;
    clients->context = context;
}

/* With the lock held. */
static struct entry *find(struct clients *clients, const uint8_t incarnation[16]) {
    struct list *bucket = &clients->buckets[incarnation[0] % CLIENTS_BUCKETS], *node, *after;

    list_each (node, after, bucket) {
        struct entry *entry = list_entry(node, struct entry, node);

        if (memcmp(entry->incarnation, incarnation, 16) == 0)
            return entry;
    }
    return NULL;
}

int32_t clients_join(struct clients *clients, const uint8_t incarnation[16]) {
    struct entry *entry;

    pthread_mutex_lock(&clients->lock);
    entry = find(clients, incarnation);
    if (entry == NULL) {
        entry = calloc(1, sizeof(*entry));
        if (entry != NULL) {
            memcpy(entry->incarnation, incarnation, 16);
            list_append(&clients->buckets[incarnation[0] % CLIENTS_BUCKETS], &entry->node);
        }
    }
    if (entry != NULL)
        entry->count++;
    pthread_mutex_unlock(&clients->lock);
    return entry != NULL ? MC_OK : MC_ERR_NO_MEMORY;
}

void clients_leave(struct clients *clients, const uint8_t incarnation[16]) {
    struct entry *entry, *gone = NULL;

    pthread_mutex_lock(&clients->lock);
    entry = find(clients, incarnation);
    if (entry != NULL && --entry->count == 0) {
        list_remove(&entry->node);
        gone = entry;
    }
    pthread_mutex_unlock(&clients->lock);
    if (gone != NULL && clients->lost != NULL)
        clients->lost(clients->context, gone->incarnation);
    free(gone);
}

uint32_t clients_count(struct clients *clients, const uint8_t incarnation[16]) {
    const struct entry *entry;
    uint32_t count = 0;

    pthread_mutex_lock(&clients->lock);
    entry = find(clients, incarnation);
    if (entry != NULL)
        count = entry->count;
    pthread_mutex_unlock(&clients->lock);
    return count;
}

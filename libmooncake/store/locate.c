/* store/locate.c - where the replicas of objects are, as the master says, in words for people and programs. */
#include "store/locate.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

static void copy_text(char *to, size_t room, const char *from) {
    size_t length = strnlen(from, room - 1);

    memcpy(to, from, length);
    to[length] = '\0';
}

/* With the client's lock held. A segment that is gone meanwhile has no name. */
static void describe(struct store *store, const struct client_place *place, struct mc_replica *ret_replica) {
    const struct client_segment *segment = client_segment_of(store->client.core, &place->place.segment);

    *ret_replica = (struct mc_replica){.offset = place->place.offset, .length = place->length};
    if (segment == NULL)
        return;
    copy_text(ret_replica->segment, sizeof(ret_replica->segment), segment->name);
    copy_text(ret_replica->address, sizeof(ret_replica->address), segment->address);
}

static int32_t hand_over(struct store *store, const struct client_item *item, uint8_t *replicas, uint32_t capacity,
                         size_t stride) {
    uint32_t count = item->place_count < capacity ? item->place_count : capacity;

    if (item->status != MC_OK)
        return item->status;
    for (uint32_t i = 0; i < count; i++)
        describe(store, &item->places[i], (struct mc_replica *)(void *)(replicas + i * stride));
    return (int32_t)item->place_count;
}

int32_t locate_replicas(struct store *store, const struct mc_keys *keys, uint64_t deadline,
                        struct mc_replica *ret_replicas, uint32_t capacity, size_t stride, int32_t *ret_counts,
                        struct mc_error *error) {
    struct client_item *items = calloc(keys->count, sizeof(*items));
    struct mc_keys stored = {0};
    struct client_op op = {0};
    void *memory = NULL;
    const uint8_t *key;
    int32_t status = items != NULL ? tenant_wrap(&store->tenant, keys, &stored, &memory) : MC_ERR_NO_MEMORY;

    if (status != MC_OK) {
        free(items);
        return status_set(error, status, 0, "no memory for %zu items", keys->count);
    }
    key = stored.bytes;
    for (size_t i = 0; i < keys->count; key += stored.lengths[i], i++)
        items[i] = (struct client_item){.key = key, .key_length = stored.lengths[i]};
    client_side_begin(&store->client, &op, CLIENT_LOCATE, items, keys->count, NULL, deadline);
    (void)client_side_run(&store->client, &op);
    pthread_mutex_lock(&store->client.lock);
    for (size_t i = 0; i < keys->count; i++)
        ret_counts[i] = hand_over(store, &items[i], (uint8_t *)ret_replicas + i * capacity * stride, capacity, stride);
    pthread_mutex_unlock(&store->client.lock);
    client_side_end(&store->client, &op);
    for (size_t i = 0; i < keys->count; i++) {
        if (items[i].status != MC_OK) /* closing gives some their own */
            ret_counts[i] = items[i].status;
        if (status == MC_OK && ret_counts[i] < 0)
            status = status_set(error, ret_counts[i], 0, "item %zu: %s", i, status_text(ret_counts[i]));
    }
    free(memory);
    free(items);
    return status;
}

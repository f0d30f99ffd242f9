/* store/client/cache.c - where objects were found, by the hash of the key.
 *
 * Owns: the entries, at most options.cached, the least lately used given up first. None is used after the lease has
 * ended, nor below its segment's floor; a new epoch empties it (rule 11). Segments are named by id: one that is not
 * known has no floor, so nothing is kept about it.
 */
#include <stdlib.h>
#include <string.h>

#include "store/client/inside.h"

#define CACHED_PLACES 4u

struct location {
    struct list age;
    struct location *next; /* in the bucket */
    struct key_hash hash;
    uint64_t index_sequence; /* of the answer that it is from */
    uint32_t count;
    struct {
        struct message_place place;
        uint64_t length;
    } places[];
};

static struct location **bucket_of(const struct client *client, const struct key_hash *hash) {
    return &client->cache[hash->low & (client->cache_buckets - 1)];
}

int32_t cache_new(struct client *client) {
    uint32_t buckets = 16;

    while (buckets < client->options.cached && buckets < 1u << 24)
        buckets *= 2;
    list_init(&client->cache_ages);
    client->cache = calloc(buckets, sizeof(client->cache[0]));
    client->cache_buckets = buckets;
    return client->cache == NULL ? MC_ERR_NO_MEMORY : MC_OK;
}

void cache_free(struct client *client) {
    if (client->cache != NULL)
        cache_empty(client);
    free(client->cache);
    client->cache = NULL;
}

/* The pointer that points to the entry, or to NULL at the end of its bucket. */
static struct location **find(const struct client *client, const struct key_hash *hash) {
    struct location **place = bucket_of(client, hash);

    while (*place != NULL && !key_hash_equal(&(*place)->hash, hash))
        place = &(*place)->next;
    return place;
}

static void drop(struct client *client, struct location **place) {
    struct location *location = *place;

    *place = location->next;
    list_remove(&location->age);
    client->cache_count--;
    free(location);
}

void cache_drop(struct client *client, const struct key_hash *hash) {
    struct location **place = find(client, hash);

    if (*place != NULL)
        drop(client, place);
}

void cache_empty(struct client *client) {
    while (!list_empty(&client->cache_ages))
        cache_drop(client, &list_entry(client->cache_ages.next, struct location, age)->hash);
}

void cache_put(struct client *client, const struct client_item *item, uint64_t index_sequence) {
    struct location *location;
    struct location **place;

    cache_drop(client, &item->hash);
    if (client->options.cached == 0)
        return;
    location = malloc(sizeof(*location) + CACHED_PLACES * sizeof(location->places[0]));
    if (location == NULL)
        return;
    location->count = 0;
    location->hash = item->hash;
    location->index_sequence = index_sequence;
    for (uint32_t i = 0; i < item->place_count && location->count < CACHED_PLACES; i++) {
        if (client_segment_of(client, &item->places[i].place.segment) == NULL)
            continue;
        location->places[location->count].place = item->places[i].place;
        location->places[location->count++].length = item->places[i].length;
    }
    if (location->count == 0) {
        free(location);
        return;
    }
    if (client->cache_count >= client->options.cached)
        cache_drop(client, &list_entry(client->cache_ages.next, struct location, age)->hash);
    place = bucket_of(client, &item->hash);
    location->next = *place;
    *place = location;
    list_append(&client->cache_ages, &location->age);
    client->cache_count++;
}

static void use(struct client *client, struct location *location) {
    list_remove(&location->age);
    list_append(&client->cache_ages, &location->age);
}

bool client_find(struct client *client, uint64_t now, const struct key_hash *hash, uint32_t key_length,
                 uint64_t capacity, struct client_hit *ret_hit) {
    struct location *location = *find(client, hash);
    const struct message_place *place;
    struct client_segment *segment;
    uint64_t length;

    if (location == NULL || now >= client->lease)
        return false;
    place = &location->places[0].place;
    length = location->places[0].length;
    segment = client_segment_of(client, &place->segment);
    if (segment == NULL || location->index_sequence < segment->floor || segment->memory == NULL || !segment->attached ||
        length > capacity || !segment_has(segment, place, length + key_length))
        return false;
    use(client, location);
    client->cache_hits++;
    reads_add(client, hash);
    *ret_hit = (struct client_hit){.segment = segment, .memory = segment->memory, .place = *place, .length = length};
    return true;
}

bool cache_get(struct client *client, uint64_t now, struct client_item *item) {
    struct location *location = *find(client, &item->hash);

    if (location == NULL || now >= client->lease || !item_has_room(item, location->count))
        return false;
    item->place_count = 0;
    for (uint32_t i = 0; i < location->count; i++) {
        const struct message_place *place = &location->places[i].place;
        struct client_segment *segment = client_segment_of(client, &place->segment);

        if (segment == NULL || location->index_sequence < segment->floor)
            continue;
        item->places[item->place_count++] =
            (struct client_place){.place = *place, .length = location->places[i].length};
    }
    if (item->place_count == 0) {
        cache_drop(client, &item->hash);
        return false;
    }
    use(client, location);
    return true;
}

/* store/client/segments.c - the segments that this client knows, by id.
 *
 * Owns: every struct client_segment, with what is in its lists. One is made when the master lists it. When it no longer
 * does, it is used on for what is there already: its owner may come again, or go on under another id, and takes slots of
 * the old one back. It goes after a while, when nothing uses or names it any more and nothing is left to be given back;
 * for that its owner has as much time as the master gives a client.
 */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "store/client/inside.h"

static struct list *bucket_of(const struct client *client, const struct message_id *id) {
    uint32_t number;

    memcpy(&number, id->bytes, sizeof(number)); /* ids are random */
    return (struct list *)&client->buckets[number % SEGMENT_BUCKETS];
}

struct client_segment *client_segment_of(const struct client *client, const struct message_id *id) {
    struct list *bucket = bucket_of(client, id);
    struct list *node, *after;

    list_each (node, after, bucket) {
        struct client_segment *segment = list_entry(node, struct client_segment, bucket);

        if (message_id_equal(&segment->id, id))
            return segment;
    }
    return NULL;
}

struct client_segment *client_segments(struct client *client, struct client_segment *before) {
    struct list *node = before == NULL ? client->segments.next : before->node.next;

    for (; node != &client->segments; node = node->next)
        if (list_entry(node, struct client_segment, node)->listed)
            return list_entry(node, struct client_segment, node);
    return NULL;
}

void segment_use(struct client_segment *segment) {
    segment->uses++;
}

void segment_unuse(struct client *client, struct client_segment *segment) {
    (void)client;
    segment->uses--;
}

void client_attached(struct client *client, uint64_t now, struct client_segment *segment) {
    (void)client;
    (void)now;
    segment->attached = true;
    segment->retry_at = 0;
}

void segment_back_off(struct client *client, uint64_t now, struct client_segment *segment, uint64_t span) {
    (void)client;
    segment->retry_at = clock_after(now, span);
}

void client_unreachable(struct client *client, uint64_t now, struct client_segment *segment) {
    segment->attached = false;
    segment_back_off(client, now, segment, client->options.timing.resend);
}

bool segment_takes(const struct client_segment *segment) {
    return segment->listed && !segment->drains && !segment->lost;
}

bool segments_take_any(struct client *client) {
    struct client_segment *segment = NULL;

    while ((segment = client_segments(client, segment)) != NULL)
        if (segment_takes(segment))
            return true;
    return false;
}

bool segment_has(const struct client_segment *segment, const struct message_place *place, uint64_t length) {
    return place->generation != 0 && place->generation <= GENERATION_MAX && place->slot % sizeof(struct slot) == 0 &&
           checked_within(place->slot, sizeof(struct slot), 0, segment->size) &&
           checked_within(place->offset, length, 0, segment->size);
}

static struct client_segment *segment_new(struct client *client, const struct message_owner *owner) {
    struct client_segment *segment = calloc(1, sizeof(*segment));

    if (segment == NULL)
        return NULL;
    segment->id = owner->segment;
    segment->size = owner->size;
    segment->floor = client->index_sequence; /* as high as any floor that came while it wasn't known */
    list_init(&segment->stock);
    list_init(&segment->reservations);
    list_init(&segment->returns);
    list_append(&client->segments, &segment->node);
    list_append(bucket_of(client, &segment->id), &segment->bucket);
    return segment;
}

static void detach(struct client *client, struct client_segment *segment) {
    if ((segment->attached || segment->user != NULL) && client->options.detach != NULL)
        client->options.detach(client->options.context, segment);
    segment->attached = false;
    segment->memory = NULL;
    segment->pins = NULL;
}

void segment_free(struct client *client, struct client_segment *segment) {
    stock_drop(client, segment);
    detach(client, segment);
    list_remove(&segment->node);
    list_remove(&segment->bucket);
    free(segment);
}

static bool is_text(struct message_bytes bytes, size_t capacity) {
    return bytes.length < capacity && (bytes.length == 0 || memchr(bytes.data, '\0', bytes.length) == NULL);
}

static void put_text(char *text, struct message_bytes bytes) {
    if (bytes.length > 0)
        memcpy(text, bytes.data, bytes.length);
    text[bytes.length] = '\0';
}

static void owner_take(struct client *client, const struct message_owner *owner) {
    struct client_segment *segment = client_segment_of(client, &owner->segment);

    if (owner->size == 0 || !is_text(owner->address, MESSAGE_ADDRESS_MAX) || !is_text(owner->name, MESSAGE_NAME_MAX))
        return;
    if (segment == NULL)
        segment = segment_new(client, owner);
    if (segment == NULL || segment->lost)
        return;
    if (!segment->attached)
        put_text(segment->address, owner->address);
    put_text(segment->name, owner->name);
    segment->drains = owner->state != SEGMENT_SERVES;
    segment->free = owner->free < segment->size ? owner->free : segment->size;
    segment->listed = true;
}

int32_t segments_take(struct client *client, uint64_t now, struct message_bytes owners) {
    struct message_bytes list = owners;
    struct message_owner owner;
    struct list *node, *after;
    int32_t more;

    while ((more = items_next_owner(&list, &owner)) == 1)
        ;
    if (more < 0)
        return more;
    list_each (node, after, &client->segments) {
        struct client_segment *segment = list_entry(node, struct client_segment, node);

        if (segment->listed)
            segment->unlisted_at = now;
        segment->listed = false;
    }
    while (items_next_owner(&owners, &owner) == 1)
        owner_take(client, &owner);
    list_each (node, after, &client->segments)
        if (!segment_takes(list_entry(node, struct client_segment, node)))
            stock_return_all(client, now, list_entry(node, struct client_segment, node));
    client_due(client, now);
    return MC_OK;
}

/* Its owner may come again: a new master lists none before it has announced itself. */
static bool may_go(const struct client *client, const struct client_segment *segment, uint64_t now) {
    return (segment->lost || now >= clock_after(segment->unlisted_at, client->options.timing.owner_ttl)) &&
           segment->uses == 0 && list_empty(&segment->stock) && list_empty(&segment->returns) &&
           list_empty(&segment->reservations) && !publications_need(client, segment);
}

void client_look_again(struct client *client) {
    client->owners_known = false;
}

void client_lose(struct client *client, uint64_t now, const struct message_id *id) {
    struct client_segment *segment = client_segment_of(client, id);

    if (segment == NULL)
        return;
    segment->lost = true;
    segment->listed = false;
    segment->unlisted_at = now;
    if (!segment->returning)
        stock_drop(client, segment);
    if (segment->uses == 0)
        detach(client, segment);
    if (may_go(client, segment, now))
        segment_free(client, segment);
    else
        client_due(client, now);
}

void segments_step(struct client *client, uint64_t now) {
    const struct store_timing *timing = &client->options.timing;
    struct list *node, *after;

    list_each (node, after, &client->segments) {
        struct client_segment *segment = list_entry(node, struct client_segment, node);

        if (segment->listed)
            continue;
        if ((segment->lost || now >= clock_after(segment->unlisted_at, timing->client_ttl)) && !segment->returning)
            stock_drop(client, segment);
        if (segment->lost && segment->uses == 0)
            detach(client, segment);
        if (may_go(client, segment, now))
            segment_free(client, segment);
        else
            client_due(client, clock_after(now, timing->owner_ttl));
    }
}

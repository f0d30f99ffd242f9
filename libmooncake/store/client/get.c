/* store/client/get.c - finding objects, and reading them.
 *
 * A candidate is a place where an object may be, as the master or the cache has said. Whether it is still there is
 * proved by whoever reads (rule 10); a wrong candidate costs time, never a wrong byte. New versions come before old ones
 * (rule 8); among the replicas of one, mapped memory comes first.
 */
#include <stdlib.h>
#include <string.h>

#include "store/client/inside.h"

#define CANDIDATES (2 * REPLICAS_MAX)

/* ---- What the master has found ---- */

/* Mapped memory before attached before the rest; equal ones in any order. */
static uint32_t distance(const struct client *client, const struct message_place *place) {
    const struct client_segment *segment = client_segment_of(client, &place->segment);

    if (segment == NULL)
        return 3;
    return segment->memory != NULL && segment->attached ? 0 : segment->attached ? 1 : 2;
}

static void sort_places(struct client *client, struct client_place *places, uint32_t count) {
    uint32_t first = count > 1 ? (uint32_t)random_below(&client->random, count) : 0;

    if (first > 0) {
        struct client_place swap = places[0];

        places[0] = places[first];
        places[first] = swap;
    }
    for (uint32_t i = 1; i < count; i++) {
        struct client_place place = places[i];
        uint32_t k = i;

        for (; k > 0 && distance(client, &places[k - 1].place) > distance(client, &place.place); k--)
            places[k] = places[k - 1];
        places[k] = place;
    }
}

/* Most objects have one replica. */
static bool has_room(struct client_item *item) {
    return item->place_count < item->place_room || item_has_room(item, CANDIDATES);
}

/* Takes the item's candidates from a list of LOCATION: of all versions, or of the newest alone. */
static int32_t locations_take(struct client *client, struct client_item *item, struct message_bytes locations,
                              bool newest) {
    struct message_location location;
    int32_t more;

    item->place_count = 0;
    while ((more = items_next_location(&locations, &location)) == 1 && (item->place_count == 0 || !newest)) {
        uint32_t first = item->place_count;
        struct message_place place;

        while ((more = items_next_place(&location.places, &place)) == 1)
            if (item->place_count < CANDIDATES && has_room(item))
                item->places[item->place_count++] = (struct client_place){.place = place, .length = location.length};
        if (more < 0)
            break;
        sort_places(client, &item->places[first], item->place_count - first);
    }
    return more < 0 || item->place_count == 0 ? MC_ERR_PROTOCOL : MC_OK;
}

static void item_asked(struct client *client, struct client_op *op, struct client_item *item, int32_t status,
                       struct message_bytes locations, const struct message_stamp *stamp) {
    uint64_t generation = item->places[0].place.generation;
    bool tried = item->tries > 0;

    if (status == MC_ERR_NOT_FOUND) {
        cache_drop(client, &item->hash);
        op_finish(op, item, MC_ERR_NOT_FOUND);
        return;
    }
    if (status == MC_OK)
        status = locations_take(client, item, locations, op->kind == CLIENT_LOCATE);
    if (status != MC_OK) {
        item->status = status;
        item->place_count = 0;
        op->failed = true;
        return;
    }
    item->next = 0;
    item->from_cache = false;
    cache_put(client, item, stamp->sequence);
    if (op->kind == CLIENT_SIZE || op->kind == CLIENT_LOCATE) {
        item->found = item->places[0].length;
        op_finish(op, item, MC_OK);
        return;
    }
    item->stage = GET_READ;
    if (tried && item->places[0].place.generation == generation)
        op->again = true;
}

void get_located(struct client *client, uint64_t now, struct sent *sent, int32_t status, const uint8_t *body,
                 size_t length) {
    struct message_located located;
    struct message_finding finding;
    struct message_stamp stamp;
    struct client_op *op = sent->op;

    if (status == MC_OK)
        status = message_unpack_located(body, length, &located);
    if (status == MC_OK)
        status = stamp_take(client, now, sent->at, located.stamp, &stamp);
    if (status == MC_OK && items_count(located.findings) != (int64_t)sent->count)
        status = MC_ERR_PROTOCOL;
    for (uint32_t i = 0; i < sent->count && status == MC_OK; i++) {
        if (items_next_finding(&located.findings, &finding) != 1)
            status = MC_ERR_PROTOCOL;
        else
            item_asked(client, op, sent->members[i].item, (int32_t)finding.status, finding.locations, &stamp);
    }
    if (status != MC_OK)
        op->failed = true;
}

static enum client_need lookup(struct client *client, uint64_t now, struct client_op *op, struct outbox *out) {
    struct bundle bundle = {.client = client,
                            .op = op,
                            .out = out,
                            .now = now,
                            .type = MESSAGE_LOOKUP,
                            .flags = op->kind == CLIENT_SIZE || op->kind == CLIENT_LOCATE ? LOOKUP_PROBE : 0};
    enum client_need need;

    if (!epoch_known(client, now, op, out, op->kind == CLIENT_LOCATE && !op->beaten, &need))
        return need;
    for (size_t i = 0; i < op->count; i++) {
        struct client_item *item = &op->items[i];

        if (item->stage != GET_ASK || !bundle_room(&bundle) ||
            !items_append(&bundle.items, item->key, item->key_length))
            continue;
        bundle_added(&bundle, item, NULL);
        client->lookups++;
    }
    return bundle_end(&bundle) > 0 ? CLIENT_SEND : op_pause(client, now, op);
}

/* ---- Choosing ---- */

/* The last candidate has failed: the master is asked again, or that is the end. */
static void candidates_end(struct client *client, struct client_op *op, struct client_item *item) {
    cache_drop(client, &item->hash);
    item->from_cache = false;
    item->stage = GET_ASK;
    op->beaten = false;
    if (++item->tries >= GET_ROUNDS)
        op_finish(op, item, item->status == MC_ERR_GUARD_MISMATCH ? MC_ERR_UNAVAILABLE : item->status);
}

static void candidate_failed(struct client *client, struct client_op *op, struct client_item *item, int32_t status) {
    item->status = status;
    if (++item->next >= item->place_count)
        candidates_end(client, op, item);
}

/* What must be done before the item can be read from its next candidate; CLIENT_READ: nothing, or it needs none. */
static enum client_need choose(struct client *client, uint64_t now, struct client_op *op, struct client_item *item,
                               struct outbox *out) {
    while (item->stage == GET_READ) {
        struct client_place *candidate = &item->places[item->next];
        uint64_t length;

        candidate->segment = client_segment_of(client, &candidate->place.segment);
        if (candidate->segment == NULL && !op->beaten) { /* a new one, then: the list will say */
            op->beaten = true;
            client->owners_known = false;
            if (beat_send(client, now, op, out))
                return CLIENT_SEND;
        }
        if (candidate->segment == NULL) {
            candidate_failed(client, op, item, MC_ERR_UNREACHABLE);
        } else if (!checked_add(candidate->length, item->key_length, &length) ||
                   !segment_has(candidate->segment, &candidate->place, length)) {
            candidate_failed(client, op, item, MC_ERR_PROTOCOL);
        } else if (candidate->length > item->length) {
            if (item->from_cache) { /* nothing has proved that it is that long still */
                cache_drop(client, &item->hash);
                item->from_cache = false;
                item->stage = GET_ASK;
                continue;
            }
            item->found = candidate->length;
            op_finish(op, item, MC_ERR_BUFFER_TOO_SMALL);
        } else if (candidate->segment->attached) {
            return CLIENT_READ;
        } else if (candidate->segment->retry_at > now) {
            candidate_failed(client, op, item, MC_ERR_UNREACHABLE);
        } else {
            op->attach = candidate->segment;
            segment_use(op->attach);
            return CLIENT_ATTACH;
        }
    }
    return CLIENT_READ;
}

/* ---- Reading ---- */

static enum client_need read_all(struct client *client, uint64_t now, struct client_op *op) {
    size_t count = 0;

    for (size_t i = 0; i < op->count; i++)
        count += op->items[i].stage == GET_READ;
    if (count == 0)
        return op->unfinished == 0 ? CLIENT_DONE : op_pause(client, now, op);
    op->reads = malloc(count * sizeof(op->reads[0]));
    if (op->reads == NULL)
        return op_pause(client, now, op);
    op->read_count = 0;
    for (size_t i = 0; i < op->count; i++) {
        struct client_item *item = &op->items[i];
        const struct client_place *candidate = &item->places[item->next];

        if (item->stage != GET_READ)
            continue;
        segment_use(candidate->segment);
        op->reads[op->read_count++] = (struct client_read){.segment = candidate->segment,
                                                           .place = candidate->place,
                                                           .length = candidate->length,
                                                           .item = item,
                                                           .status = MC_ERR_PENDING};
        item->stage = GET_READING;
    }
    return CLIENT_READ;
}

/* Failures of this client's own, which no other candidate cures. */
static bool is_final(int32_t status) {
    return status == MC_ERR_NO_MEMORY || status == MC_ERR_CANCELLED || status == MC_ERR_TOO_MANY ||
           status == MC_ERR_NOT_SUPPORTED || status == MC_ERR_INVALID_ARGUMENT || status == MC_ERR_BUFFER_TOO_SMALL ||
           status == MC_ERR_CLOSED || status == MC_ERR_FORKED;
}

static void item_read(struct client *client, struct client_op *op, const struct client_read *read) {
    struct client_item *item = read->item;

    item->stage = GET_READ;
    if (read->status == MC_OK) {
        item->found = read->length;
        if (item->from_cache) {
            client->cache_hits++;
            reads_add(client, &item->hash);
        }
        op_finish(op, item, MC_OK);
    } else if (is_final(read->status)) {
        op_finish(op, item, read->status);
    } else {
        candidate_failed(client, op, item, read->status);
    }
}

void get_read(struct client *client, uint64_t now, struct client_op *op) {
    (void)now;
    for (size_t i = 0; i < op->read_count; i++) {
        item_read(client, op, &op->reads[i]);
        segment_unuse(client, op->reads[i].segment);
    }
    free(op->reads);
    op->reads = NULL;
    op->read_count = 0;
}

enum client_need get_next(struct client *client, uint64_t now, struct client_op *op, struct outbox *out) {
    bool ask = false;

    if (op->again) { /* what was tried came again: it may be there in a while */
        op->again = false;
        op->backoff = 0;
        return op_pause(client, now, op);
    }
    for (size_t i = 0; i < op->count; i++) {
        struct client_item *item = &op->items[i];
        enum client_need need;

        if (item->stage == GET_FIND) {
            item->from_cache = cache_get(client, now, item);
            item->stage = item->from_cache ? GET_READ : GET_ASK;
            item->next = 0;
        }
        need = choose(client, now, op, item, out);
        if (need != CLIENT_READ)
            return need;
        ask = ask || item->stage == GET_ASK;
    }
    return ask ? lookup(client, now, op, out) : read_all(client, now, op);
}

void get_end(struct client_op *op, struct client_item *item) {
    if (item->stage != ITEM_DONE)
        op_finish(op, item, item->status == MC_ERR_GUARD_MISMATCH ? MC_ERR_UNAVAILABLE : item->status);
}

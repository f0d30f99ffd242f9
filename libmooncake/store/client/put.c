/* store/client/put.c - a put until it is published: slots for all items, then all writes.
 *
 * An item's places hold a use of their segments. A place without a generation is one that a slot is still wanted for:
 * the owner is chosen already, so that the slots of a batch are asked for in one letter for each owner and capacity.
 */
#include <stdlib.h>
#include <string.h>

#include "store/client/inside.h"

#define SIZE_SHARE 16u /* an owner's free space counts beside this part of its size */

static uint64_t item_capacity(const struct client_item *item) {
    uint64_t size;

    return checked_add(item->length, item->key_length, &size) ? stock_capacity(size) : UINT64_MAX;
}

static struct message_grant grant_of(const struct client_place *place) {
    return (struct message_grant){
        .slot = place->place.slot, .generation = place->place.generation, .offset = place->place.offset};
}

static void place_remove(struct client *client, struct client_item *item, uint32_t index) {
    segment_unuse(client, item->places[index].segment);
    item->place_count--;
    memmove(&item->places[index], &item->places[index + 1], (item->place_count - index) * sizeof(item->places[0]));
}

/* ---- Placing ---- */

bool op_full(const struct client_op *op, const struct client_segment *segment, uint64_t capacity) {
    for (size_t i = 0; i < op->full_count; i++)
        if (op->full[i].segment == segment && op->full[i].capacity <= capacity)
            return true;
    return false;
}

void op_add_full(struct client_op *op, const struct client_segment *segment, uint64_t capacity) {
    struct client_full *full = realloc(op->full, (op->full_count + 1) * sizeof(*full));

    if (full == NULL) { /* asked again after a pause */
        op->failed = true;
        return;
    }
    op->full = full;
    full[op->full_count++] = (struct client_full){.segment = segment, .capacity = capacity};
}

static bool usable(const struct client_op *op, const struct client_segment *segment, uint64_t capacity, uint64_t now) {
    return segment_takes(segment) && segment->retry_at <= now && capacity <= segment->size &&
           !op_full(op, segment, capacity);
}

static bool item_uses(const struct client_item *item, const struct client_segment *segment) {
    for (uint32_t i = 0; i < item->place_count; i++)
        if (item->places[i].segment == segment)
            return true;
    return false;
}

/* Is it of a process that has none of the item's places yet? */
static bool is_apart(const struct client_item *item, const struct client_segment *segment) {
    for (uint32_t i = 0; i < item->place_count; i++)
        if (strcmp(item->places[i].segment->address, segment->address) == 0)
            return false;
    return true;
}

static uint64_t weight_of(const struct client_segment *segment) {
    uint64_t weight = segment->free / SIZE_SHARE + segment->size / SIZE_SHARE / SIZE_SHARE + 1;

    return segment->attached ? weight * 2 : weight;
}

static struct client_segment *choose_preferred(struct client *client, const struct client_op *op,
                                               const struct client_item *item, uint64_t capacity, uint64_t now) {
    for (size_t i = 0; i < op->options.preferred_count; i++) {
        struct client_segment *segment = NULL;

        while ((segment = client_segments(client, segment)) != NULL)
            if (strcmp(segment->name, op->options.preferred[i]) == 0 && usable(op, segment, capacity, now) &&
                !item_uses(item, segment))
                return segment;
    }
    return NULL;
}

/* Another segment for the item: a preferred one; else one of another process than its replicas have; else one with
 * stock, for then nothing need be asked; else any. Of several, by chance, the emptier the likelier. */
static struct client_segment *choose(struct client *client, const struct client_op *op, const struct client_item *item,
                                     uint64_t capacity, uint64_t now) {
    struct client_segment *chosen = choose_preferred(client, op, item, capacity, now);
    struct client_segment *segment = NULL;
    uint32_t best = 0;
    uint64_t total = 0;

    if (chosen != NULL)
        return chosen;
    while ((segment = client_segments(client, segment)) != NULL) {
        struct stock_class *class = stock_class_of(segment, capacity, false);
        bool has = class != NULL && class->count > 0 && segment->attached;
        uint32_t rank = (is_apart(item, segment) ? 2u : 0u) + (has ? 1u : 0u);

        if (rank < best || !usable(op, segment, capacity, now) || item_uses(item, segment))
            continue;
        if (rank > best)
            total = 0;
        best = rank;
        total += weight_of(segment);
        if (random_below(&client->random, total) < weight_of(segment))
            chosen = segment;
    }
    return chosen;
}

/* Puts a slot of the stock into each place that lacks one; places whose owner can't give one are let go. */
static void places_fill(struct client *client, uint64_t now, const struct client_op *op, struct client_item *item,
                        uint64_t capacity) {
    for (uint32_t i = 0; i < item->place_count;) {
        struct client_place *place = &item->places[i];
        struct message_grant grant;

        if (place->place.generation == 0 && place->segment->attached && segment_takes(place->segment) &&
            stock_take(client, place->segment, capacity, &grant)) {
            place->place.slot = grant.slot;
            place->place.generation = grant.generation;
            place->place.offset = grant.offset;
        }
        if (place->place.generation != 0 && !place->segment->listed) { /* its owner is gone, it seems */
            grant = grant_of(place);
            stock_return(client, now, place->segment, &grant);
            place->place.generation = 0;
        }
        if (place->place.generation == 0 && !usable(op, place->segment, capacity, now))
            place_remove(client, item, i);
        else
            i++;
    }
}

static void item_place(struct client *client, uint64_t now, struct client_op *op, struct client_item *item) {
    uint64_t capacity = item_capacity(item);
    struct client_segment *segment;

    if (!item_has_room(item, op->options.replicas)) {
        op->failed = true;
        return;
    }
    places_fill(client, now, op, item, capacity);
    while (item->place_count < op->options.replicas && (segment = choose(client, op, item, capacity, now)) != NULL) {
        segment_use(segment);
        item->places[item->place_count++] =
            (struct client_place){.segment = segment, .place = {.segment = segment->id}, .status = MC_ERR_PENDING};
        places_fill(client, now, op, item, capacity);
    }
}

static struct client_place *wanting(struct client_item *item) {
    for (uint32_t i = 0; i < item->place_count; i++)
        if (item->places[i].place.generation == 0)
            return &item->places[i];
    return NULL;
}

/* No owner has a place for the item now. Will one ever? */
static void item_starves(struct client *client, uint64_t now, struct client_op *op, struct client_item *item) {
    struct client_segment *segment = NULL;
    uint64_t capacity = item_capacity(item);
    bool any = segments_take_any(client), fits = false;

    item->status = any ? MC_ERR_UNREACHABLE : MC_ERR_NO_SPACE;
    while ((segment = client_segments(client, segment)) != NULL) {
        fits = fits || (segment_takes(segment) && capacity <= segment->size);
        if (op_full(op, segment, capacity))
            item->status = MC_ERR_NO_SPACE;
    }
    if (any && !fits)
        op_finish(op, item, MC_ERR_NO_SPACE);
    else if (op->options.space_deadline != 0 && now >= op->options.space_deadline)
        op_finish(op, item, item->status);
}

/* A segment that is to be attached first, or NULL. */
static struct client_segment *unattached(struct client_op *op) {
    for (size_t i = 0; i < op->count; i++) {
        struct client_item *item = &op->items[i];

        for (uint32_t k = 0; item->stage == PUT_PLACE && k < item->place_count; k++)
            if (!item->places[k].segment->attached)
                return item->places[k].segment;
    }
    return NULL;
}

/* Asks for the slots that are wanted; true if letters went out. */
static bool put_reserve(struct client *client, uint64_t now, struct client_op *op, struct outbox *out) {
    struct client_segment *segment = NULL;

    for (size_t i = 0; i < op->count; i++) {
        struct client_item *item = &op->items[i];

        for (uint32_t k = 0; item->stage == PUT_PLACE && k < item->place_count; k++) {
            struct stock_class *class;

            if (item->places[k].place.generation != 0)
                continue;
            class = stock_class_of(item->places[k].segment, item_capacity(item), true);
            if (class != NULL)
                class->wanted++;
            else
                op->failed = true;
        }
    }
    while ((segment = client_segments(client, segment)) != NULL)
        stock_reserve(client, now, op, segment, out);
    return op->unanswered > 0;
}

/* Places what can be placed now. CLIENT_DONE: nothing is to be done for that. */
static enum client_need put_place(struct client *client, uint64_t now, struct client_op *op, struct outbox *out) {
    for (size_t i = 0; i < op->count; i++) {
        struct client_item *item = &op->items[i];

        if (item->stage != PUT_PLACE)
            continue;
        item_place(client, now, op, item);
        if (item->place_count == 0)
            item_starves(client, now, op, item);
    }
    op->attach = unattached(op);
    if (op->attach != NULL) {
        segment_use(op->attach);
        return CLIENT_ATTACH;
    }
    for (size_t i = 0; i < op->count; i++) {
        struct client_item *item = &op->items[i];

        if (item->stage == PUT_PLACE && item->place_count > 0 && wanting(item) == NULL)
            item->stage = PUT_WRITE;
    }
    return put_reserve(client, now, op, out) ? CLIENT_SEND : CLIENT_DONE;
}

/* ---- Writing ---- */

static void item_writes(struct client_op *op, struct client_item *item) {
    for (uint32_t i = 0; i < item->place_count; i++) {
        struct client_place *place = &item->places[i];

        segment_use(place->segment);
        op->writes[op->write_count++] = (struct client_write){
            .segment = place->segment,
            .place = place->place,
            .description = {.hash = item->hash, .length = item->length, .key_length = item->key_length},
            .item = item,
            .status = MC_ERR_PENDING,
        };
    }
    item->stage = PUT_WRITING;
}

/* True if there is something to be written. */
static bool put_write(struct client_op *op) {
    size_t count = 0;

    for (size_t i = 0; i < op->count; i++)
        if (op->items[i].stage == PUT_WRITE)
            count += op->items[i].place_count;
    if (count == 0)
        return false;
    op->writes = malloc(count * sizeof(op->writes[0]));
    if (op->writes == NULL)
        return false;
    op->write_count = 0;
    for (size_t i = 0; i < op->count; i++)
        if (op->items[i].stage == PUT_WRITE)
            item_writes(op, &op->items[i]);
    return true;
}

static void publish_begin(struct client *client, uint64_t now, struct client_op *op, struct client_item *item) {
    struct publication *publication = publication_new(client, op, item);

    if (publication == NULL) {
        item->status = MC_ERR_NO_MEMORY;
        put_end(client, now, op, item);
        return;
    }
    item->replicas = item->place_count;
    while (item->place_count > 0) /* they are the publication's now */
        place_remove(client, item, item->place_count - 1);
    item->stage = PUT_PUBLISH;
}

/* Bytes may still arrive where a write failed: such a slot is given up (rule 3). */
static void place_failed(struct client *client, uint64_t now, struct client_item *item, uint32_t index) {
    struct client_place *place = &item->places[index];
    struct message_grant grant = grant_of(place);

    if (MISTAKE(REFILL))
        stock_put(client, now, place->segment, item_capacity(item), &grant);
    else
        stock_return(client, now, place->segment, &grant);
    place_remove(client, item, index);
}

static bool path_failed(int32_t status) {
    return status == MC_ERR_UNREACHABLE || status == MC_ERR_CONNECTION_LOST || status == MC_ERR_STALE_PEER;
}

/* What was reserved is no longer: its segment has gone, it may be. */
static bool has_gone(int32_t status) {
    return status == MC_ERR_NOT_REGISTERED || status == MC_ERR_GUARD_MISMATCH;
}

/* Lets go of the places whose status isn't `good`; the last one's. */
static int32_t places_sift(struct client *client, uint64_t now, struct client_item *item, int32_t good) {
    int32_t failure = MC_OK;

    for (uint32_t i = 0; i < item->place_count;) {
        struct client_place *place = &item->places[i];

        if (place->status == good) {
            i++;
            continue;
        }
        failure = place->status;
        if (path_failed(failure) || has_gone(failure))
            segment_back_off(client, now, place->segment, client->options.timing.resend);
        if (has_gone(failure))
            client->owners_known = false;
        place_failed(client, now, item, i);
    }
    return failure;
}

static void item_written(struct client *client, uint64_t now, struct client_op *op, struct client_item *item) {
    int32_t failure = places_sift(client, now, item, MC_OK);

    if (item->place_count > 0) {
        publish_begin(client, now, op, item);
        return;
    }
    item->status = failure;
    if (failure == MC_ERR_TIMEOUT || failure == MC_ERR_CANCELLED || item->tries + 1 >= PUT_ATTEMPTS)
        op_finish(op, item, failure);
    else
        put_again(op, item);
}

void put_resume(struct client *client, uint64_t now, struct client_op *op, struct client_item *item) {
    int32_t failure = places_sift(client, now, item, MC_ERR_PENDING);

    if (item->place_count == 0)
        op_finish(op, item, failure != MC_OK ? failure : MC_ERR_GONE);
}

void put_written(struct client *client, uint64_t now, struct client_op *op) {
    for (size_t i = 0; i < op->write_count; i++) {
        struct client_write *write = &op->writes[i];
        struct client_item *item = write->item;

        for (uint32_t k = 0; item->stage == PUT_WRITING && k < item->place_count; k++)
            if (item->places[k].segment == write->segment &&
                item->places[k].place.generation == write->place.generation)
                item->places[k].status = write->status;
        segment_unuse(client, write->segment);
    }
    free(op->writes);
    op->writes = NULL;
    op->write_count = 0;
    for (size_t i = 0; i < op->count; i++)
        if (op->items[i].stage == PUT_WRITING)
            item_written(client, now, op, &op->items[i]);
}

/* ---- The whole ---- */

void put_again(struct client_op *op, struct client_item *item) {
    item->publication = NULL;
    if (op->kind == CLIENT_COMMIT) {
        op_finish(op, item, item->status == MC_ERR_UNAVAILABLE ? MC_ERR_GONE : item->status);
        return;
    }
    op->backoff = 0;
    op->beaten = false;
    item->tries++;
    item->stage = PUT_PLACE;
}

static bool put_publish(struct client *client, uint64_t now, struct client_op *op, struct outbox *out) {
    struct bundle bundle = {.client = client, .op = op, .out = out, .now = now, .type = MESSAGE_PUBLISH};

    for (size_t i = 0; i < op->count; i++) {
        struct client_item *item = &op->items[i];

        if (item->stage == PUT_PUBLISH && !item->publication->on_way && bundle_room(&bundle))
            publication_add(&bundle, item->publication);
    }
    return bundle_end(&bundle) > 0;
}

/* The items that have their slots are done with that; true: all are. */
static bool put_placed(struct client_op *op) {
    for (size_t i = 0; i < op->count; i++)
        if (op->items[i].stage == PUT_WRITE)
            op_finish(op, &op->items[i], MC_OK);
    return op->unfinished == 0;
}

/* What rule 4 forbids. */
static void publish_early(struct client *client, uint64_t now, struct client_op *op, struct outbox *out) {
    for (size_t i = 0; i < op->count; i++)
        if (op->items[i].stage == PUT_WRITING)
            publish_begin(client, now, op, &op->items[i]);
    put_publish(client, now, op, out);
}

enum client_need put_next(struct client *client, uint64_t now, struct client_op *op, struct outbox *out) {
    enum client_need need;

    if (!op->beaten && !segments_take_any(client)) /* there may be one by now */
        client->owners_known = false;
    if (!epoch_known(client, now, op, out, !client->owners_known, &need))
        return need;
    need = put_place(client, now, op, out);
    if (need != CLIENT_DONE)
        return need;
    if (op->kind == CLIENT_RESERVE)
        return put_placed(op) ? CLIENT_DONE : op_pause(client, now, op);
    if (put_write(op)) {
        if (MISTAKE(EARLY_PUBLISH))
            publish_early(client, now, op, out);
        return CLIENT_WRITE;
    }
    if (put_publish(client, now, op, out)) /* rule 4: all writes are done */
        return CLIENT_SEND;
    return op->unfinished == 0 ? CLIENT_DONE : op_pause(client, now, op);
}

/* Its slots go back: into stock those that nothing was written to. */
static void places_end(struct client *client, uint64_t now, struct client_item *item, bool written) {
    while (item->place_count > 0) {
        uint32_t last = item->place_count - 1;
        struct client_place *place = &item->places[last];
        struct message_grant grant = grant_of(place);

        if (grant.generation != 0 && written)
            stock_return(client, now, place->segment, &grant);
        else if (grant.generation != 0)
            stock_put(client, now, place->segment, item_capacity(item), &grant);
        place_remove(client, item, last);
    }
}

void put_end(struct client *client, uint64_t now, struct client_op *op, struct client_item *item) {
    struct publication *publication = item->publication;
    int32_t status = item->status;

    if (item->stage == ITEM_DONE)
        return;
    if (item->stage == PUT_WRITE)
        status = MC_ERR_TIMEOUT;
    places_end(client, now, item, op->kind == CLIENT_COMMIT || (item->stage != PUT_PLACE && item->stage != PUT_WRITE));
    if (publication != NULL && publication->sent > 0) { /* rule 4: it is repeated until there is a final answer */
        publication->op = NULL;
        publication->item = NULL;
        client->behind = true;
        status = MC_ERR_INDETERMINATE;
        client_due(client, now);
    } else if (publication != NULL) {
        publication_release(client, now, publication);
    }
    item->publication = NULL;
    op_finish(op, item, status);
}

void client_item_give_back(struct client *client, uint64_t now, struct client_item *item) {
    places_end(client, now, item, true);
    item_free_places(item);
}

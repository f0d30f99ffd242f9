/* store/client/client.c - the client's life, the ways in from outside, and what is due behind the scenes.
 *
 * Owns: struct client. Invariants: an operation has as many unfinished items as are in no ITEM_DONE stage (a listing
 * has one until its page is there); op->writes and op->reads are set only while they are in the caller's hands, and so is
 * op->attach; all three use their segments meanwhile.
 */
#include <stdlib.h>
#include <string.h>

#include "store/client/inside.h"

#define BACKOFF_MOST 20u /* retries */

int32_t client_new(const struct client_options *options, struct client **ret_client) {
    struct client *client = calloc(1, sizeof(*client));
    int32_t status;

    if (client == NULL)
        return MC_ERR_NO_MEMORY;
    client->options = *options;
    client->random.state = options->seed;
    client->publish_limit = LETTER_ITEMS;
    list_init(&client->sent);
    list_init(&client->segments);
    list_init(&client->publications);
    for (uint32_t i = 0; i < SEGMENT_BUCKETS; i++)
        list_init(&client->buckets[i]);
    status = cache_new(client);
    if (status != MC_OK) {
        free(client);
        return status;
    }
    *ret_client = client;
    return MC_OK;
}

struct client *client_free(struct client *client) {
    struct list *node, *after;

    if (client == NULL)
        return NULL;
    list_each (node, after, &client->sent) {
        struct sent *sent = list_entry(node, struct sent, node);

        if (sent->type == MESSAGE_RELEASE)
            stock_released(client, 0, sent, MC_ERR_GONE);
        sent_free(client, sent);
    }
    list_each (node, after, &client->publications)
        publication_free(client, list_entry(node, struct publication, node));
    list_each (node, after, &client->segments)
        segment_free(client, list_entry(node, struct client_segment, node));
    cache_free(client);
    free(client->reads);
    free(client);
    return NULL;
}

/* ---- Operations ---- */

void op_finish(struct client_op *op, struct client_item *item, int32_t status) {
    if (item->stage == ITEM_DONE)
        return;
    item->stage = ITEM_DONE;
    item->status = status;
    op->unfinished--;
}

enum client_need op_pause(struct client *client, uint64_t now, struct client_op *op) {
    uint64_t retry = client->options.timing.retry;
    uint64_t most = retry * BACKOFF_MOST;

    op->backoff = op->backoff == 0 ? retry : op->backoff * 2;
    if (op->backoff > most)
        op->backoff = most;
    op->wake = clock_after(now, op->backoff);
    if (op->wake > op->deadline)
        op->wake = op->deadline;
    op->failed = false;
    op->beaten = false;
    op->full_count = 0;
    return CLIENT_WAIT;
}

bool item_has_room(struct client_item *item, uint32_t count) {
    struct client_place *more;

    if (count <= item->place_room)
        return true;
    more = malloc(count * sizeof(*more));
    if (more == NULL)
        return false;
    memcpy(more, item->places, item->place_count * sizeof(*more));
    item_free_places(item);
    item->places = more;
    item->place_room = count;
    return true;
}

void item_free_places(struct client_item *item) {
    if (item->places != item->few)
        free(item->places);
    item->places = item->few;
    item->place_room = CLIENT_FEW_PLACES;
}

void client_item_move(struct client_item *to, struct client_item *from) {
    *to = *from;
    if (from->places == from->few)
        to->places = to->few;
}

static enum item_stage first_stage(enum client_kind kind) {
    switch (kind) {
    case CLIENT_PUT:
    case CLIENT_RESERVE:
        return PUT_PLACE;
    case CLIENT_COMMIT:
        return PUT_WRITE;
    case CLIENT_GET:
    case CLIENT_VIEW:
        return GET_FIND;
    case CLIENT_REMOVE:
        return REMOVE_ASK;
    default:
        return GET_ASK;
    }
}

static void item_begin(struct client *client, uint64_t now, struct client_op *op, struct client_item *item) {
    if (op->kind != CLIENT_COMMIT) {
        item->places = item->few;
        item->place_room = CLIENT_FEW_PLACES;
        item->place_count = 0;
        item->few[0] = (struct client_place){0};
    }
    if (item->known) {
        item->stage = ITEM_DONE;
        op->unfinished--;
        return;
    }
    item->status = MC_ERR_UNAVAILABLE;
    item->found = 0;
    item->replicas = 0;
    item->tries = 0;
    item->publication = NULL;
    item->next = 0;
    item->from_cache = false;
    item->sequence = 0;
    item->stage = first_stage(op->kind);
    if (item->key == NULL || item->key_length == 0 || item->key_length > KEY_MAX)
        op_finish(op, item, MC_ERR_INVALID_KEY);
    else
        item->hash = key_hash(item->key, item->key_length);
    if (op->kind == CLIENT_COMMIT)
        put_resume(client, now, op, item);
}

void client_begin(struct client *client, uint64_t now, struct client_op *op, enum client_kind kind,
                  struct client_item *items, size_t count, const struct client_put_options *options,
                  uint64_t deadline) {
    uint64_t cursor = op->cursor;
    uint32_t limit = op->limit;

    *op = (struct client_op){.kind = kind, .items = items, .count = count, .deadline = deadline};
    list_init(&op->sent);
    op->status = MC_ERR_UNAVAILABLE;
    if (options != NULL)
        op->options = *options;
    if (op->options.replicas == 0)
        op->options.replicas = 1;
    if (op->options.replicas > REPLICAS_MAX)
        op->options.replicas = REPLICAS_MAX;
    if (kind == CLIENT_LIST) {
        op->cursor = cursor;
        op->limit = limit;
        op->count = 0;
        op->unfinished = 1;
        return;
    }
    op->unfinished = count;
    for (size_t i = 0; i < count; i++)
        item_begin(client, now, op, &items[i]);
}

/* Takes back what was in the caller's hands. */
static void take_back(struct client *client, uint64_t now, struct client_op *op) {
    if (op->attach != NULL)
        segment_unuse(client, op->attach);
    op->attach = NULL;
    if (op->writes != NULL)
        put_written(client, now, op);
    if (op->reads != NULL)
        get_read(client, now, op);
}

/* Letters that still matter without the operation go on; the others' answers won't be known. */
static void letters_end(struct client *client, uint64_t now, struct client_op *op) {
    struct list *node, *after;

    list_each (node, after, &op->sent) {
        struct sent *sent = list_entry(node, struct sent, node);

        list_remove(&sent->node);
        sent->op = NULL;
        if (sent->type == MESSAGE_PUBLISH) {
            list_append(&client->sent, &sent->node);
            continue;
        }
        if (sent->type == MESSAGE_RESERVE)
            stock_cancel(client, now, sent);
        sent_free(client, sent);
    }
    op->unanswered = 0;
}

static void items_end(struct client *client, uint64_t now, struct client_op *op) {
    letters_end(client, now, op);
    for (size_t i = 0; i < op->count && op->unfinished > 0; i++) {
        if (op_puts(op))
            put_end(client, now, op, &op->items[i]);
        else if (op->kind == CLIENT_REMOVE)
            remove_end(client, op, &op->items[i]);
        else
            get_end(op, &op->items[i]);
    }
    op->unfinished = 0;
}

void client_end(struct client *client, uint64_t now, struct client_op *op) {
    take_back(client, now, op);
    items_end(client, now, op);
    for (size_t i = 0; i < op->count; i++)
        if (op->kind != CLIENT_RESERVE || op->items[i].status != MC_OK)
            item_free_places(&op->items[i]);
    free(op->full);
    op->full = NULL;
    op->full_count = 0;
}

enum client_need client_next(struct client *client, uint64_t now, struct client_op *op, struct outbox *out) {
    take_back(client, now, op);
    if (op->unfinished > 0 && now >= op->deadline)
        items_end(client, now, op);
    if (op->unfinished == 0 && op->unanswered == 0)
        return CLIENT_DONE;
    if (op->unanswered > 0) {
        op->wake = op->deadline;
        return CLIENT_WAIT;
    }
    if (op->failed)
        return op_pause(client, now, op);
    if (now < op->wake)
        return CLIENT_WAIT;
    op->wake = 0;
    switch (op->kind) {
    case CLIENT_PUT:
    case CLIENT_RESERVE:
    case CLIENT_COMMIT:
        return put_next(client, now, op, out);
    case CLIENT_REMOVE:
        return remove_next(client, now, op, out);
    case CLIENT_EXISTS:
        return probe_next(client, now, op, out);
    case CLIENT_LIST:
        return list_next(client, now, op, out);
    default:
        return get_next(client, now, op, out);
    }
}

void client_answer(struct client *client, uint64_t now, struct client_op *op, uint64_t tag, int32_t status,
                   uint16_t type, const uint8_t *body, size_t length) {
    struct sent *sent = sent_take(client, op, tag);

    if (sent == NULL)
        return;
    if (status > 0 || (status == MC_OK && type != sent->type + 1u))
        status = MC_ERR_PROTOCOL;
    if (status == MC_ERR_EPOCH)
        client->epoch_lost = true;
    if (MISTAKE(LEASE_RENEWED_BY_ANYTHING) && client->lease != 0)
        client->lease = clock_after(now, client->options.timing.lease);
    switch (sent->type) {
    case MESSAGE_RESERVE:
        stock_reserved(client, now, sent, status, body, length);
        break;
    case MESSAGE_RELEASE:
        stock_released(client, now, sent, status);
        break;
    case MESSAGE_PUBLISH:
        publications_answer(client, now, sent, status, body, length);
        break;
    case MESSAGE_LOOKUP:
        get_located(client, now, sent, status, body, length);
        break;
    case MESSAGE_PROBE:
        probe_answer(client, now, sent, status, body, length);
        break;
    case MESSAGE_REMOVE:
        remove_answer(client, now, sent, status, body, length);
        break;
    case MESSAGE_LIST:
        list_answer(client, now, sent, status, body, length);
        break;
    default:
        beat_answer(client, now, sent, status, body, length);
    }
    sent_free(client, sent);
    client_due(client, beat_due(client));
    client_due(client, publications_due(client));
}

/* ---- Behind the scenes ---- */

void client_step(struct client *client, uint64_t now, struct outbox *out) {
    client->wake = CLOCK_NEVER;
    stock_step(client, now, out);
    segments_step(client, now);
    publications_step(client, now, out);
    beat_step(client, now, out);
    client_due(client, beat_due(client));
    client_due(client, stock_due(client));
    client_due(client, publications_due(client));
}

uint64_t client_wake(const struct client *client) {
    return client->wake;
}

void client_retire(struct client *client, uint64_t now) {
    client->retired = true;
    client_due(client, now);
}

bool client_quiet(const struct client *client) {
    struct list *node, *after;

    list_each (node, after, &client->segments) {
        const struct client_segment *segment = list_entry(node, struct client_segment, node);

        if (!list_empty(&segment->returns) || !list_empty(&segment->reservations) || segment->returning)
            return false;
    }
    return list_empty(&client->publications) && !client->publishing && (!client->retired || client->stock_count == 0);
}

uint64_t client_epoch(const struct client *client) {
    return client->epoch;
}

struct client_count client_count(const struct client *client) {
    struct client_count count = {
        .stock = client->stock_count,
        .unsettled = client->publication_count,
        .cached = client->cache_count,
        .cache_hits = client->cache_hits,
        .lookups = client->lookups,
    };
    struct list *node, *after;

    list_each (node, after, &client->segments)
        count.returns += list_entry(node, struct client_segment, node)->return_count;
    return count;
}

/* store/client/publication.c - what is being published, from the first PUBLISH until it is settled.
 *
 * Owns: every struct publication, in the order of sequence numbers; also those of removes, which have one to be told
 * apart by, and no places. One that an operation waits for is sent by the operation; when that has its result, or has
 * ended without, it goes on here, behind the scenes: until a final answer (rule 4), until that is settled (rule 13), and
 * again under each new epoch before (rule 16).
 */
#include <stdlib.h>
#include <string.h>

#include "store/client/inside.h"

struct publication *publication_new(struct client *client, struct client_op *op, struct client_item *item) {
    struct publication *publication = calloc(1, sizeof(*publication) + item->key_length);

    if (publication == NULL)
        return NULL;
    publication->op = op;
    publication->item = item;
    publication->removal = op->kind == CLIENT_REMOVE;
    publication->flags = op->options.flags;
    publication->length = item->length;
    publication->key_length = item->key_length;
    memcpy(publication->key, item->key, item->key_length);
    for (uint32_t i = 0; i < item->place_count; i++)
        publication->places[i] = item->places[i].place;
    publication->place_count = item->place_count;
    publication->sequence = ++client->sequence;
    list_append(&client->publications, &publication->node);
    if (!publication->removal)
        client->publication_count++;
    item->publication = publication;
    item->sequence = publication->sequence;
    return publication;
}

void publication_free(struct client *client, struct publication *publication) {
    if (!publication->removal)
        client->publication_count--;
    if (publication->item != NULL)
        publication->item->publication = NULL;
    list_remove(&publication->node);
    free(publication);
}

uint64_t publication_floor(const struct client *client) {
    return list_empty(&client->publications)
               ? client->sequence + 1
               : list_entry(client->publications.next, struct publication, node)->sequence;
}

void publication_release(struct client *client, uint64_t now, struct publication *publication) {
    for (uint32_t i = 0; i < publication->place_count; i++) {
        const struct message_place *place = &publication->places[i];
        struct client_segment *segment = client_segment_of(client, &place->segment);

        if (segment != NULL)
            stock_return(
                client, now, segment,
                &(struct message_grant){.slot = place->slot, .generation = place->generation, .offset = place->offset});
    }
    publication_free(client, publication);
}

static bool add_put(struct bundle *bundle, const struct publication *publication) {
    struct message_publication message = {
        .sequence = publication->sequence,
        .flags = publication->flags,
        .version_epoch = publication->version_epoch,
        .version_counter = publication->version_counter,
        .length = publication->length,
        .key = {.data = publication->key, .length = publication->key_length},
    };
    struct items places;
    bool added = true;

    items_init(&places);
    for (uint32_t i = 0; i < publication->place_count; i++)
        added = added && items_add_place(&places, &publication->places[i]);
    message.places = items_bytes(&places);
    if (publication->first_epoch != 0 && publication->first_epoch != bundle->client->epoch)
        message.flags |= PUBLISH_AGAIN; /* rule 5 */
    added = added && items_add_publication(&bundle->items, &message);
    items_clear(&places);
    return added;
}

bool publication_add(struct bundle *bundle, struct publication *publication) {
    struct message_removal removal = {
        .sequence = publication->sequence,
        .key = {.data = publication->key, .length = publication->key_length},
    };

    if (!(publication->removal ? items_add_removal(&bundle->items, &removal) : add_put(bundle, publication)))
        return false;
    bundle_added(bundle, NULL, publication);
    return true;
}

/* ---- Answers ---- */

static void accepted(struct client *client, struct publication *publication, const struct message_verdict *verdict,
                     const struct message_stamp *stamp) {
    struct client_item *item = publication->item;

    publication->ok_epoch = stamp->epoch;
    publication->ok_sequence = stamp->sequence;
    if (verdict->version_epoch != 0) {
        publication->version_epoch = verdict->version_epoch;
        publication->version_counter = verdict->version_counter;
    }
    if (item == NULL)
        return;
    cache_drop(client, &item->hash);
    op_finish(publication->op, item, MC_OK);
    item->publication = NULL; /* it goes on behind the scenes until it is settled */
    publication->op = NULL;
    publication->item = NULL;
}

/* The slots are lost to this put. When it was sent once only, that is all that has happened. */
static void gone(struct client *client, uint64_t now, struct publication *publication) {
    struct client_op *op = publication->op;
    struct client_item *item = publication->item;
    bool unknown = publication->sent > 1 || publication->ok_epoch != 0;

    publication_release(client, now, publication);
    client->owners_known = false; /* their segment has gone, it may be */
    if (item == NULL)
        return;
    if (unknown)
        op_finish(op, item, MC_ERR_INDETERMINATE);
    else if (item->tries + 1 >= PUT_ATTEMPTS)
        op_finish(op, item, MC_ERR_GONE);
    else
        put_again(op, item);
}

/* False: that is no answer to this publication, and it is sent again. */
static bool verdict_take(struct client *client, uint64_t now, struct publication *publication,
                         const struct message_verdict *verdict, const struct message_stamp *stamp) {
    struct client_op *op = publication->op;
    struct client_item *item = publication->item;

    if (verdict->sequence != publication->sequence)
        return false;
    switch ((int32_t)verdict->status) {
    case MC_OK:
        accepted(client, publication, verdict, stamp);
        return true;
    case MC_ERR_ALREADY_EXISTS:
        publication_release(client, now, publication);
        if (item != NULL)
            op_finish(op, item, MC_ERR_ALREADY_EXISTS);
        return true;
    case MC_ERR_GONE:
        gone(client, now, publication);
        return true;
    default:
        return false;
    }
}

static void answered_behind(struct client *client, uint64_t now, int32_t status) {
    const struct store_timing *timing = &client->options.timing;
    bool soon = status == MC_ERR_EPOCH || status == MC_ERR_UNAVAILABLE;

    client->publishing = false;
    /* One that has no answer yet holds up those in the same letter: fewer at a time, then. */
    if (status == MC_OK && client->publish_limit < LETTER_ITEMS)
        client->publish_limit *= 2;
    else if (status != MC_OK && client->publish_limit > 1)
        client->publish_limit /= 2;
    client->publish_at = status == MC_OK ? 0 : clock_after(now, soon ? timing->retry * 10 : timing->resend);
    client_due(client, client->publish_at);
}

void publications_answer(struct client *client, uint64_t now, struct sent *sent, int32_t status, const uint8_t *body,
                         size_t length) {
    struct message_published published;
    struct message_verdict verdict = {0};
    struct message_stamp stamp = {0};

    if (status == MC_OK)
        status = message_unpack_published(body, length, &published);
    if (status == MC_OK)
        status = stamp_take(client, now, sent->at, published.stamp, &stamp);
    if (status == MC_OK && items_count(published.verdicts) != (int64_t)sent->count)
        status = MC_ERR_PROTOCOL;
    for (uint32_t i = 0; i < sent->count; i++)
        sent->members[i].publication->on_way = false;
    for (uint32_t i = 0; i < sent->count && (status == MC_OK || status == MC_ERR_PENDING); i++) {
        if (items_next_verdict(&published.verdicts, &verdict) != 1)
            status = MC_ERR_PROTOCOL;
        else if (!verdict_take(client, now, sent->members[i].publication, &verdict, &stamp))
            status = MC_ERR_PENDING;
    }
    client->behind = client->behind || sent->op == NULL;
    if (sent->behind)
        answered_behind(client, now, status);
    else if (sent->op == NULL)
        client_due(client, now);
    else if (status != MC_OK)
        sent->op->failed = true;
    else
        sent->op->backoff = 0;
}

/* ---- Behind the scenes ---- */

/* Rule 13: the OK is of this epoch, what was said since is not older than it, and covers it. */
static bool settled(const struct publication *publication, const struct message_stamp *stamp) {
    return publication->ok_epoch != 0 && publication->ok_epoch == stamp->epoch &&
           stamp->sequence >= publication->ok_sequence && stamp->settled >= publication->sequence;
}

/* It may be settled because an owner is gone to the master. Such an owner may still live, and then begins anew; what is
 * reserved there under its old id is nobody's any more. */
static void release_unlisted(struct client *client, uint64_t now, const struct publication *publication) {
    for (uint32_t i = 0; i < publication->place_count; i++) {
        const struct message_place *place = &publication->places[i];
        struct client_segment *segment = client_segment_of(client, &place->segment);

        if (segment != NULL && !segment->listed)
            stock_return(
                client, now, segment,
                &(struct message_grant){.slot = place->slot, .generation = place->generation, .offset = place->offset});
    }
}

void publications_settle(struct client *client, uint64_t now, const struct message_stamp *stamp) {
    struct list *node, *after;

    list_each (node, after, &client->publications) {
        struct publication *publication = list_entry(node, struct publication, node);

        if (publication->item != NULL || publication->on_way || !settled(publication, stamp))
            continue;
        release_unlisted(client, now, publication);
        publication_free(client, publication);
    }
}

/* Rule 16: without an answer, or with one of an earlier epoch only. */
static bool to_send(const struct client *client, const struct publication *publication) {
    return publication->item == NULL && !publication->on_way && publication->ok_epoch < client->epoch;
}

/* Adds those in (behind, up_to]. */
static void send_range(struct client *client, struct bundle *bundle, uint64_t behind, uint64_t up_to, uint32_t *left) {
    struct list *node, *after;

    list_each (node, after, &client->publications) {
        struct publication *publication = list_entry(node, struct publication, node);

        if (publication->sequence <= behind || publication->sequence > up_to || !to_send(client, publication))
            continue;
        if (*left == 0 || bundle->items.length >= LETTER_BYTES || !bundle_room(bundle) ||
            !publication_add(bundle, publication))
            return;
        client->publish_behind = publication->sequence;
        (*left)--;
    }
}

bool publications_need(const struct client *client, const struct client_segment *segment) {
    struct list *node, *after;

    list_each (node, after, &client->publications) {
        const struct publication *publication = list_entry(node, struct publication, node);

        for (uint32_t i = 0; i < publication->place_count; i++)
            if (message_id_equal(&publication->places[i].segment, &segment->id))
                return true;
    }
    return false;
}

void publications_step(struct client *client, uint64_t now, struct outbox *out) {
    struct bundle bundle = {.client = client, .out = out, .now = now, .type = MESSAGE_PUBLISH};
    uint32_t left = client->publish_limit;
    uint64_t behind = client->publish_behind;

    if (publications_due(client) > now)
        return;
    send_range(client, &bundle, behind, UINT64_MAX, &left);
    send_range(client, &bundle, 0, behind, &left);
    client->publishing = bundle_end(&bundle) > 0;
    if (!client->publishing)
        client->publish_at = clock_after(now, client->options.timing.resend);
}

uint64_t publications_due(struct client *client) {
    struct list *node, *after;

    if (!client->behind || client->publishing || client->epoch == 0 || client->epoch_lost ||
        client->publication_count == 0)
        return CLOCK_NEVER;
    list_each (node, after, &client->publications)
        if (to_send(client, list_entry(node, struct publication, node)))
            return client->publish_at;
    client->behind = false;
    return CLOCK_NEVER;
}

/* store/client/ask.c - removes, probes and listings: what the master alone does.
 *
 * A remove has an open sequence number (rule 5) until it is answered, and is repeated under it.
 */
#include <stdlib.h>
#include <string.h>

#include "store/client/inside.h"
#include "wire/endian.h"

#define HASH_SIZE 16u
#define PROBE_ITEMS 16384u /* in a letter */

/* ---- Removes ---- */

enum client_need remove_next(struct client *client, uint64_t now, struct client_op *op, struct outbox *out) {
    struct bundle bundle = {.client = client, .op = op, .out = out, .now = now, .type = MESSAGE_REMOVE};
    enum client_need need;

    if (!epoch_known(client, now, op, out, false, &need))
        return need;
    /* All sequence numbers are open before the first letter goes, for it says which is the lowest. */
    for (size_t i = 0; i < op->count; i++) {
        struct client_item *item = &op->items[i];

        if (item->stage == REMOVE_ASK && item->publication == NULL)
            publication_new(client, op, item);
    }
    for (size_t i = 0; i < op->count; i++) {
        struct client_item *item = &op->items[i];

        if (item->stage != REMOVE_ASK || item->publication == NULL || !bundle_room(&bundle))
            continue;
        cache_drop(client, &item->hash);
        publication_add(&bundle, item->publication);
    }
    return bundle_end(&bundle) > 0 ? CLIENT_SEND : op_pause(client, now, op);
}

static bool removed(struct client *client, struct client_op *op, struct publication *removal,
                    const struct message_verdict *verdict) {
    int32_t status = (int32_t)verdict->status;
    struct client_item *item = removal->item;

    if (verdict->sequence != removal->sequence || (status != MC_OK && status != MC_ERR_NOT_FOUND))
        return false;
    publication_free(client, removal);
    cache_drop(client, &item->hash);
    op_finish(op, item, status);
    return true;
}

void remove_answer(struct client *client, uint64_t now, struct sent *sent, int32_t status, const uint8_t *body,
                   size_t length) {
    struct message_removed answer;
    struct message_verdict verdict = {0};
    struct message_stamp stamp;

    if (status == MC_OK)
        status = message_unpack_removed(body, length, &answer);
    if (status == MC_OK)
        status = stamp_take(client, now, sent->at, answer.stamp, &stamp);
    if (status == MC_OK && items_count(answer.verdicts) != (int64_t)sent->count)
        status = MC_ERR_PROTOCOL;
    for (uint32_t i = 0; i < sent->count; i++)
        sent->members[i].publication->on_way = false;
    for (uint32_t i = 0; i < sent->count && (status == MC_OK || status == MC_ERR_PENDING); i++) {
        if (items_next_verdict(&answer.verdicts, &verdict) != 1)
            status = MC_ERR_PROTOCOL;
        else if (!removed(client, sent->op, sent->members[i].publication, &verdict))
            status = MC_ERR_PENDING;
    }
    if (status != MC_OK)
        sent->op->failed = true;
    else
        sent->op->backoff = 0;
}

void remove_end(struct client *client, struct client_op *op, struct client_item *item) {
    bool asked = item->publication != NULL && item->publication->sent > 0;

    if (item->stage == ITEM_DONE)
        return;
    if (item->publication != NULL)
        publication_free(client, item->publication);
    op_finish(op, item, asked ? MC_ERR_INDETERMINATE : MC_ERR_UNAVAILABLE);
}

/* ---- Probes ---- */

/* Sends the next items from *index on that aren't answered, and moves it behind them. False: none were left, or memory
 * is short. */
static bool probe_send(struct client *client, uint64_t now, struct client_op *op, size_t *index, struct outbox *out) {
    struct letter *letter = NULL;
    struct sent *sent;
    uint8_t *hashes;
    size_t room;

    while (*index < op->count && op->items[*index].stage != GET_ASK)
        ++*index;
    if (*index == op->count)
        return false;
    room = op->count - *index < PROBE_ITEMS ? op->count - *index : PROBE_ITEMS;
    sent = sent_new(client, now, op, MESSAGE_PROBE, (uint32_t)room);
    hashes = sent != NULL ? malloc(room * HASH_SIZE) : NULL;
    for (; hashes != NULL && *index < op->count && sent->count < room; ++*index) {
        struct client_item *item = &op->items[*index];

        if (item->stage != GET_ASK)
            continue;
        endian_put64(hashes + sent->count * HASH_SIZE, item->hash.high);
        endian_put64(hashes + sent->count * HASH_SIZE + 8, item->hash.low);
        sent->members[sent->count++].item = item;
    }
    if (hashes != NULL)
        letter = outbox_probe(out, sent->tag,
                              &(struct message_probe){.client = client->options.id,
                                                      .epoch = client->epoch,
                                                      .hashes = {.data = hashes, .length = sent->count * HASH_SIZE}});
    free(hashes);
    return sent_add(client, sent, letter);
}

enum client_need probe_next(struct client *client, uint64_t now, struct client_op *op, struct outbox *out) {
    enum client_need need;
    size_t index = 0;

    if (!epoch_known(client, now, op, out, false, &need))
        return need;
    while (index < op->count && probe_send(client, now, op, &index, out))
        ;
    return op->unanswered > 0 ? CLIENT_SEND : op_pause(client, now, op);
}

void probe_answer(struct client *client, uint64_t now, struct sent *sent, int32_t status, const uint8_t *body,
                  size_t length) {
    struct message_probed probed;
    struct message_stamp stamp;

    if (status == MC_OK)
        status = message_unpack_probed(body, length, &probed);
    if (status == MC_OK)
        status = stamp_take(client, now, sent->at, probed.stamp, &stamp);
    if (status == MC_OK && probed.found.length != sent->count)
        status = MC_ERR_PROTOCOL;
    if (status != MC_OK) {
        sent->op->failed = true;
        return;
    }
    client->lookups += sent->count;
    for (uint32_t i = 0; i < sent->count; i++) {
        struct client_item *item = sent->members[i].item;

        if (!probed.found.data[i])
            cache_drop(client, &item->hash);
        op_finish(sent->op, item, probed.found.data[i] ? MC_OK : MC_ERR_NOT_FOUND);
    }
}

/* ---- Listings ---- */

enum client_need list_next(struct client *client, uint64_t now, struct client_op *op, struct outbox *out) {
    struct sent *sent;
    enum client_need need;

    if (!epoch_known(client, now, op, out, false, &need))
        return need;
    sent = sent_new(client, now, op, MESSAGE_LIST, 0);
    if (!sent_add(client, sent,
                  sent == NULL ? NULL
                               : outbox_list(out, sent->tag,
                                             &(struct message_list){.client = client->options.id,
                                                                    .epoch = client->epoch,
                                                                    .cursor = op->cursor,
                                                                    .limit = op->limit})))
        return op_pause(client, now, op);
    return CLIENT_SEND;
}

static int32_t keys_take(struct client_op *op, struct message_bytes keys) {
    struct message_bytes key;
    int32_t more;

    while ((more = items_next(&keys, &key)) == 1) {
        if (key.length == 0 || key.length > KEY_MAX)
            more = MC_ERR_PROTOCOL;
        else if (!items_append(&op->listed, key.data, key.length))
            more = MC_ERR_NO_MEMORY;
        if (more < 0)
            break;
    }
    return more;
}

void list_answer(struct client *client, uint64_t now, struct sent *sent, int32_t status, const uint8_t *body,
                 size_t length) {
    struct message_listed listed;
    struct message_stamp stamp;
    struct client_op *op = sent->op;

    if (status == MC_OK)
        status = message_unpack_listed(body, length, &listed);
    if (status == MC_OK)
        status = stamp_take(client, now, sent->at, listed.stamp, &stamp);
    if (status == MC_OK)
        status = keys_take(op, listed.keys);
    if (status != MC_OK) {
        items_clear(&op->listed);
        op->failed = true;
        return;
    }
    op->cursor = listed.cursor;
    op->status = MC_OK;
    op->unfinished = 0;
}

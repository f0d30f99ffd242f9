/* store/client/ask.c - removes and listings: what the master alone does.
 *
 * A remove has an open sequence number (rule 5) until it is answered, and is repeated under it.
 */
#include <string.h>

#include "store/client/inside.h"

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

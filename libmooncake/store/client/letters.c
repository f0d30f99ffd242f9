/* store/client/letters.c - letters, what is known of those on their way, and what every answer of the master says.
 *
 * Owns: the records of unanswered letters, in op->sent or, where no operation waits, in client.sent; the hashes of what
 * was read by cached locations. A tag is used once, so an answer that comes late or twice finds no record.
 */
#include <stdlib.h>
#include <string.h>

#include "store/client/inside.h"
#include "wire/frame.h"

#define EPOCH_PACE 10u /* retries between signs of life while the epoch isn't known */

struct sent *sent_new(struct client *client, uint64_t now, struct client_op *op, uint16_t type, uint32_t room) {
    struct sent *sent = calloc(1, sizeof(*sent) + room * sizeof(sent->members[0]));

    if (sent == NULL)
        return NULL;
    list_init(&sent->node);
    list_init(&sent->returned);
    sent->op = op;
    sent->behind = op == NULL;
    sent->tag = ++client->tag;
    sent->at = now;
    sent->type = type;
    sent->room = room;
    return sent;
}

struct sent *sent_free(struct client *client, struct sent *sent) {
    struct list *node, *after;

    if (sent == NULL)
        return NULL;
    list_each (node, after, &sent->returned)
        free(list_entry(node, struct stocked, node));
    if (sent->segment != NULL)
        segment_unuse(client, sent->segment);
    list_remove(&sent->node);
    free(sent);
    return NULL;
}

bool sent_add(struct client *client, struct sent *sent, struct letter *letter) {
    struct client_op *op = sent == NULL ? NULL : sent->op;

    if (sent == NULL || letter == NULL) {
        if (op != NULL)
            op->failed = true;
        sent_free(client, sent);
        return false;
    }
    list_append(op != NULL ? &op->sent : &client->sent, &sent->node);
    if (op != NULL)
        op->unanswered++;
    return true;
}

static struct sent *sent_find(struct list *sent, uint64_t tag) {
    struct list *node, *after;

    list_each (node, after, sent) {
        struct sent *one = list_entry(node, struct sent, node);

        if (one->tag == tag)
            return one;
    }
    return NULL;
}

struct sent *sent_take(struct client *client, struct client_op *op, uint64_t tag) {
    struct sent *sent = op != NULL ? sent_find(&op->sent, tag) : NULL;

    if (sent == NULL)
        sent = sent_find(&client->sent, tag);
    if (sent == NULL)
        return NULL;
    list_remove(&sent->node);
    if (sent->op != NULL)
        sent->op->unanswered--;
    return sent;
}

/* ---- Lists that may need several letters ---- */

static struct letter *bundle_letter(struct bundle *bundle) {
    const struct client *client = bundle->client;
    struct message_bytes bytes = items_bytes(&bundle->items);
    uint64_t tag = bundle->sent->tag;

    if (bundle->items.full)
        return NULL;
    switch (bundle->type) {
    case MESSAGE_PUBLISH:
        return outbox_publish(bundle->out, tag,
                              &(struct message_publish){.client = client->options.id,
                                                        .epoch = client->epoch,
                                                        .floor = publication_floor(client),
                                                        .items = bytes});
    case MESSAGE_REMOVE:
        return outbox_remove(bundle->out, tag,
                             &(struct message_remove){.client = client->options.id,
                                                      .epoch = client->epoch,
                                                      .floor = publication_floor(client),
                                                      .items = bytes});
    default:
        return outbox_lookup(
            bundle->out, tag,
            &(struct message_lookup){
                .client = client->options.id, .epoch = client->epoch, .flags = bundle->flags, .keys = bytes});
    }
}

static void bundle_send(struct bundle *bundle) {
    struct sent *sent = bundle->sent;

    if (sent == NULL)
        return;
    if (sent_add(bundle->client, sent, bundle_letter(bundle))) {
        bundle->letters++;
        for (uint32_t i = 0; i < sent->count && sent->type != MESSAGE_LOOKUP; i++) {
            struct publication *publication = sent->members[i].publication;

            publication->on_way = true;
            publication->sent++;
            if (publication->first_epoch == 0)
                publication->first_epoch = bundle->client->epoch;
        }
    }
    bundle->sent = NULL;
    items_clear(&bundle->items);
}

/* A finding: its own fields, and two versions with a place for each replica; every item has its length before it. */
_Static_assert(LOOKUP_ITEMS *(12 + 2 * (4 + 28 + REPLICAS_MAX * (4 + 40))) < FRAME_MESSAGE_MAX / 8 * 7,
               "an answer holds all findings, and leaves room for the stamp");

bool bundle_room(struct bundle *bundle) {
    if (bundle->sent != NULL && (bundle->sent->count == bundle->sent->room || bundle->items.length >= LETTER_BYTES))
        bundle_send(bundle);
    if (bundle->sent == NULL) {
        size_t most = bundle->type == MESSAGE_LOOKUP ? LOOKUP_ITEMS : LETTER_ITEMS;
        size_t room = bundle->op == NULL || bundle->op->count > most ? most : bundle->op->count;

        bundle->sent = sent_new(bundle->client, bundle->now, bundle->op, bundle->type, (uint32_t)room);
        if (bundle->sent == NULL && bundle->op != NULL)
            bundle->op->failed = true;
    }
    return bundle->sent != NULL;
}

void bundle_added(struct bundle *bundle, struct client_item *item, struct publication *publication) {
    struct sent *sent = bundle->sent;

    if (item != NULL)
        sent->members[sent->count++].item = item;
    else
        sent->members[sent->count++].publication = publication;
}

uint32_t bundle_end(struct bundle *bundle) {
    bundle_send(bundle);
    return bundle->letters;
}

/* ---- What every answer says ---- */

/* Locations of an older index sequence in the segment are void (rule 11). Segments that aren't known yet begin with a
 * floor that is no lower, and nothing is cached for them before. */
static int32_t floors_take(struct client *client, struct message_bytes floors) {
    struct message_floor floor;
    int32_t more;

    while ((more = items_next_floor(&floors, &floor)) == 1) {
        struct client_segment *segment = client_segment_of(client, &floor.segment);

        if (segment != NULL && floor.sequence > segment->floor)
            segment->floor = floor.sequence;
    }
    return more;
}

/* A higher epoch voids whatever was said before (rule 11), and all that is unsettled is published again (rule 16). */
static void epoch_begin(struct client *client, uint64_t now, uint64_t epoch) {
    struct list *node, *after;

    client->epoch = epoch;
    client->lease = 0;
    client->index_sequence = 0;
    client->owners_known = false;
    client->publish_at = 0;
    client->behind = true;
    client->beat_at = 0;
    cache_empty(client);
    list_each (node, after, &client->segments)
        list_entry(node, struct client_segment, node)->floor = 0;
    client_due(client, now);
}

int32_t stamp_take(struct client *client, uint64_t now, uint64_t sent_at, struct message_bytes bytes,
                   struct message_stamp *ret_stamp) {
    struct message_stamp stamp;
    uint64_t end;

    if (message_unpack_stamp(bytes.data, bytes.length, &stamp) != MC_OK || stamp.epoch == 0 ||
        items_count(stamp.floors) < 0)
        return MC_ERR_PROTOCOL;
    *ret_stamp = stamp;
    if (stamp.epoch < client->epoch && !MISTAKE(OLD_EPOCH_BELIEVED)) /* rule 11 */
        return MC_ERR_UNAVAILABLE;
    if (stamp.epoch > client->epoch)
        epoch_begin(client, now, stamp.epoch);
    client->epoch_lost = false;
    if (floors_take(client, stamp.floors) < 0)
        return MC_ERR_PROTOCOL;
    if (stamp.sequence > client->index_sequence)
        client->index_sequence = stamp.sequence;
    /* The lease counts from when the letter was sent (rule 11). */
    end = clock_after(MISTAKE(LEASE_FROM_RECEIPT) ? now : sent_at, stamp.lease);
    end = end > client->options.timing.lease_slack ? end - client->options.timing.lease_slack : 0;
    if (end > client->lease)
        client->lease = end;
    return MC_OK;
}

/* ---- Signs of life ---- */

static uint64_t epoch_pace(const struct client *client) {
    return client->options.timing.retry * EPOCH_PACE;
}

void reads_add(struct client *client, const struct key_hash *hash) {
    if (client->reads == NULL)
        client->reads = malloc(READS_MAX * sizeof(client->reads[0]));
    if (client->reads == NULL || client->read_count == READS_MAX)
        return;
    client->reads[client->read_count++] = *hash;
    if (client->read_count == READS_DUE) {
        client->beat_at = 0;
        client_due(client, 0);
    }
}

bool beat_send(struct client *client, uint64_t now, struct client_op *op, struct outbox *out) {
    struct sent *sent = sent_new(client, now, op, MESSAGE_BEAT, 0);
    struct message_beat beat = {
        .client = client->options.id,
        .epoch = client->epoch,
        .owners_version = client->owners_known ? client->owners_version : 0,
        .reads = {.data = (const uint8_t *)client->reads,
                  .length = (uint32_t)(client->read_count * sizeof(client->reads[0]))},
    };

    if (sent != NULL)
        sent->owners_version = beat.owners_version;
    if (!sent_add(client, sent, sent == NULL ? NULL : outbox_beat(out, sent->tag, &beat))) {
        if (op != NULL)
            op->failed = true;
        return false;
    }
    client->read_count = 0;
    client->beat_sent = now;
    return true;
}

/* There is a list if it is another than the one that the client had when it asked. */
static int32_t owners_take(struct client *client, uint64_t now, const struct sent *sent,
                           const struct message_beaten *beaten) {
    int32_t status;

    if (sent->owners_version != 0 && beaten->owners_version == sent->owners_version)
        return MC_OK;
    if (client->owners_known && beaten->owners_version <= client->owners_version)
        return MC_OK; /* an older one that comes late */
    status = segments_take(client, now, beaten->owners);
    if (status == MC_OK) {
        client->owners_version = beaten->owners_version;
        client->owners_known = true;
    }
    return status;
}

void beat_answer(struct client *client, uint64_t now, struct sent *sent, int32_t status, const uint8_t *body,
                 size_t length) {
    const struct store_timing *timing = &client->options.timing;
    struct message_beaten beaten;
    struct message_stamp stamp;

    if (sent->behind)
        client->beating = false;
    if (status == MC_OK)
        status = message_unpack_beaten(body, length, &beaten);
    if (status == MC_OK)
        status = stamp_take(client, now, sent->at, beaten.stamp, &stamp);
    if (status == MC_OK)
        status = owners_take(client, now, sent, &beaten);
    if (status == MC_OK)
        publications_settle(client, now, &stamp);
    if (status != MC_OK && sent->op != NULL)
        sent->op->failed = true;
    if (status != MC_OK && sent->behind)
        client->beat_at =
            clock_after(now, client->epoch == 0 || client->epoch_lost ? epoch_pace(client) : timing->resend);
    client_due(client, beat_due(client));
}

uint64_t beat_due(const struct client *client) {
    const struct store_timing *timing = &client->options.timing;
    uint64_t due = clock_after(client->beat_sent, timing->beat);

    if (client->beating)
        return CLOCK_NEVER;
    if (client->read_count >= READS_DUE) {
        due = 0;
    } else if (client->epoch == 0 || client->epoch_lost || !client->owners_known) {
        due = client->beat_sent == 0 ? 0 : clock_after(client->beat_sent, epoch_pace(client));
    } else if (client->publication_count > 0) { /* rule 13 */
        due = clock_after(client->beat_sent, timing->settle_beat < timing->beat ? timing->settle_beat : timing->beat);
    }
    return due > client->beat_at ? due : client->beat_at;
}

void beat_step(struct client *client, uint64_t now, struct outbox *out) {
    if (beat_due(client) > now)
        return;
    client->beating = beat_send(client, now, NULL, out);
    if (!client->beating)
        client->beat_at = clock_after(now, epoch_pace(client));
}

bool epoch_known(struct client *client, uint64_t now, struct client_op *op, struct outbox *out, bool owners,
                 enum client_need *ret_need) {
    if (client->epoch != 0 && !client->epoch_lost && !owners)
        return true;
    if (op->beaten) {
        *ret_need = op_pause(client, now, op);
    } else {
        op->beaten = true;
        *ret_need = beat_send(client, now, op, out) ? CLIENT_SEND : op_pause(client, now, op);
    }
    return false;
}

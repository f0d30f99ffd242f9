/* store/client/stock.c - reserved slots: asked for, kept in stock, given back.
 *
 * Owns: the lists of a segment: stock by capacity, slots to be released, and sequence numbers without an answer.
 * Invariants: a slot in stock was never written. What was written, or might still be, goes to `returns` and is never
 * filled again (rule 3). A sequence number whose answer was lost is cancelled until that is acknowledged (rule 2).
 * Capacities are rounded up, in sixty-fourths of a power of two, so that one stock serves sizes that are nearly the same;
 * beyond STOCK_LARGEST they are exact and nothing is asked for beforehand.
 */
#include <stdlib.h>
#include <string.h>

#include "store/client/inside.h"

#define STOCK_SMALLEST 64u
#define STOCK_LARGEST (4u << 20)
#define STOCK_PARTS 64u /* classes between two powers of two, at least STOCK_SMALLEST apart */
#define REFILL_MAX 32u
#define CLASS_SHARE 8u    /* one class has this part of the stock at most … */
#define SEGMENT_SHARE 64u /* … and this part of its segment */

uint64_t stock_capacity(uint64_t size) {
    uint64_t step = STOCK_SMALLEST;
    unsigned power;

    if (size <= STOCK_SMALLEST)
        return STOCK_SMALLEST;
    if (size <= STOCK_LARGEST) {
        power = 63u - (unsigned)__builtin_clzll(size - 1);
        step = (1ull << power) / STOCK_PARTS;
        if (step < STOCK_SMALLEST)
            step = STOCK_SMALLEST;
    }
    return size > UINT64_MAX - step ? UINT64_MAX : (size + step - 1) / step * step;
}

struct stock_class *stock_class_of(struct client_segment *segment, uint64_t capacity, bool make) {
    struct stock_class *class;
    struct list *node, *after;

    list_each (node, after, &segment->stock) {
        class = list_entry(node, struct stock_class, node);
        if (class->capacity == capacity)
            return class;
    }
    class = make ? calloc(1, sizeof(*class)) : NULL;
    if (class == NULL)
        return NULL;
    class->capacity = capacity;
    list_init(&class->slots);
    list_append(&segment->stock, &class->node);
    return class;
}

static void class_free(struct stock_class *class) {
    list_remove(&class->node);
    free(class);
}

/* Takes the oldest slot out of the class, which has one. */
static struct stocked *class_take(struct client *client, struct stock_class *class) {
    struct stocked *slot = list_entry(class->slots.next, struct stocked, node);

    list_remove(&slot->node);
    class->count--;
    client->stock_count--;
    client->stock_bytes -= class->capacity;
    return slot;
}

static void class_empty(struct client *client, struct stock_class *class) {
    struct list *node, *after;

    list_each (node, after, &class->slots)
        free(list_entry(node, struct stocked, node));
    list_init(&class->slots);
    client->stock_count -= class->count;
    client->stock_bytes -= class->count * class->capacity;
    class->count = 0;
}

bool stock_take(struct client *client, struct client_segment *segment, uint64_t capacity,
                struct message_grant *ret_grant) {
    struct stock_class *class = stock_class_of(segment, capacity, false);
    struct stocked *slot;

    if (class == NULL || class->count == 0)
        return false;
    slot = class_take(client, class);
    *ret_grant = slot->grant;
    free(slot);
    return true;
}

/* Puts the slot among those to be released. */
static void give_back(struct client *client, uint64_t now, struct client_segment *segment, struct stocked *slot) {
    list_append(&segment->returns, &slot->node);
    segment->return_count++;
    client_due(client, segment->return_at > now ? segment->return_at : now);
}

void stock_return(struct client *client, uint64_t now, struct client_segment *segment,
                  const struct message_grant *grant) {
    struct stocked *slot = malloc(sizeof(*slot));

    if (slot == NULL) /* lost until this client goes */
        return;
    *slot = (struct stocked){.grant = *grant};
    give_back(client, now, segment, slot);
}

void stock_put(struct client *client, uint64_t now, struct client_segment *segment, uint64_t capacity,
               const struct message_grant *grant) {
    struct stock_class *class =
        client->retired || !segment_takes(segment) ? NULL : stock_class_of(segment, capacity, true);
    struct stocked *slot = class == NULL ? NULL : malloc(sizeof(*slot));

    if (slot == NULL) {
        stock_return(client, now, segment, grant);
        return;
    }
    *slot = (struct stocked){.grant = *grant, .capacity = capacity, .since = now};
    list_append(&class->slots, &slot->node);
    class->count++;
    client->stock_count++;
    client->stock_bytes += capacity;
    client_due(client, clock_after(now, client->options.timing.stock_age));
}

void stock_return_all(struct client *client, uint64_t now, struct client_segment *segment) {
    struct list *node, *after;

    list_each (node, after, &segment->stock) {
        struct stock_class *class = list_entry(node, struct stock_class, node);

        class->refill = 0;
        while (class->count > 0)
            give_back(client, now, segment, class_take(client, class));
    }
}

static void reservation_free(struct client_segment *segment, struct reservation *reservation) {
    if (reservation->cancelled)
        segment->return_count--;
    list_remove(&reservation->node);
    free(reservation);
}

void stock_drop(struct client *client, struct client_segment *segment) {
    struct list *node, *after;

    list_each (node, after, &segment->stock) {
        struct stock_class *class = list_entry(node, struct stock_class, node);

        class_empty(client, class);
        if (class->wanted == 0)
            class_free(class);
    }
    list_each (node, after, &segment->returns) {
        list_remove(node);
        free(list_entry(node, struct stocked, node));
        segment->return_count--;
    }
    list_each (node, after, &segment->reservations) { /* one that an operation waits for stays */
        struct reservation *reservation = list_entry(node, struct reservation, node);

        if (reservation->cancelled && !reservation->returning)
            reservation_free(segment, reservation);
    }
}

/* ---- Reserving ---- */

/* How many more than are needed now. */
static uint32_t refill(const struct client *client, const struct client_segment *segment, struct stock_class *class) {
    uint64_t all = client->options.stock_bytes;
    uint64_t limit = all > client->stock_bytes ? all - client->stock_bytes : 0;
    uint64_t most;

    if (limit > all / CLASS_SHARE)
        limit = all / CLASS_SHARE;
    if (limit > segment->size / SEGMENT_SHARE)
        limit = segment->size / SEGMENT_SHARE;
    most = limit / class->capacity;

    if (class->capacity > STOCK_LARGEST || client->retired)
        return 0;
    class->refill = class->refill == 0 ? 1 : class->refill * 2;
    if (class->refill > REFILL_MAX)
        class->refill = REFILL_MAX;
    if (class->refill > most)
        class->refill = (uint32_t)most;
    return class->refill;
}

static void reserve(struct client *client, uint64_t now, struct client_op *op, struct client_segment *segment,
                    struct stock_class *class, struct outbox *out) {
    struct reservation *reservation = calloc(1, sizeof(*reservation));
    struct sent *sent = reservation == NULL ? NULL : sent_new(client, now, op, MESSAGE_RESERVE, 0);
    uint32_t needed = class->wanted < LETTER_ITEMS ? class->wanted : LETTER_ITEMS;
    struct message_reserve message;
    struct letter *letter;

    if (sent == NULL) {
        op->failed = true;
        free(reservation);
        return;
    }
    reservation->sequence = ++segment->sequence;
    list_append(&segment->reservations, &reservation->node);
    segment_use(segment);
    sent->segment = segment;
    sent->reservation = reservation;
    sent->capacity = class->capacity;
    sent->asked = needed + refill(client, segment, class);
    message = (struct message_reserve){
        .client = client->options.id,
        .segment = segment->id,
        .sequence = reservation->sequence,
        .floor = list_entry(segment->reservations.next, struct reservation, node)->sequence,
        .capacity = class->capacity,
        .count = sent->asked,
    };
    letter = outbox_reserve(out, sent->tag, &message);
    if (letter != NULL)
        letter->to = segment->id;
    if (!sent_add(client, sent, letter))
        reservation_free(segment, reservation);
}

void stock_reserve(struct client *client, uint64_t now, struct client_op *op, struct client_segment *segment,
                   struct outbox *out) {
    struct list *node, *after;

    list_each (node, after, &segment->stock) {
        struct stock_class *class = list_entry(node, struct stock_class, node);

        if (class->wanted > 0)
            reserve(client, now, op, segment, class, out);
        class->wanted = 0;
    }
}

/* Takes the grants into stock, all or none. */
static int32_t grants_take(struct client *client, uint64_t now, const struct sent *sent, struct message_bytes grants) {
    struct message_bytes list = grants;
    struct message_grant grant;
    uint32_t count = 0;
    int32_t more;

    while ((more = items_next_grant(&list, &grant)) == 1) {
        struct message_place place = {.slot = grant.slot, .generation = grant.generation, .offset = grant.offset};

        if (++count > sent->asked || !segment_has(sent->segment, &place, sent->capacity))
            return MC_ERR_PROTOCOL;
    }
    if (more < 0 || count == 0)
        return MC_ERR_PROTOCOL;
    while (items_next_grant(&grants, &grant) == 1)
        stock_put(client, now, sent->segment, sent->capacity, &grant);
    return MC_OK;
}

void stock_cancel(struct client *client, uint64_t now, struct sent *sent) {
    if (sent->reservation == NULL)
        return;
    sent->reservation->cancelled = true;
    sent->reservation = NULL;
    sent->segment->return_count++;
    client_due(client, now);
}

void stock_reserved(struct client *client, uint64_t now, struct sent *sent, int32_t status, const uint8_t *body,
                    size_t length) {
    const struct store_timing *timing = &client->options.timing;
    struct client_segment *segment = sent->segment;
    struct message_reserved reserved;

    if (status == MC_OK)
        status = message_unpack_reserved(body, length, &reserved);
    if (status == MC_OK)
        status = grants_take(client, now, sent, reserved.grants);
    if (status == MC_OK) {
        sent->op->backoff = 0;
    } else if (status == MC_ERR_NO_SPACE) { /* final for this sequence number; let others have what isn't used */
        op_add_full(sent->op, segment, sent->capacity);
        stock_return_all(client, now, segment);
    } else if (status == MC_ERR_SEGMENT_NOT_FOUND || status == MC_ERR_GONE) { /* the owner goes by another id now */
        stock_return_all(client, now, segment);
        segment_back_off(client, now, segment, timing->resend);
        client->owners_known = false;
        stock_cancel(client, now, sent); /* it may have been granted before, and the answer is late */
        return;
    } else {
        stock_cancel(client, now, sent);
        segment_back_off(client, now, segment, status == MC_ERR_UNREACHABLE ? timing->resend : timing->retry);
        return;
    }
    reservation_free(segment, sent->reservation);
    sent->reservation = NULL;
}

/* ---- Giving back ---- */

static void release(struct client *client, uint64_t now, struct client_segment *segment, struct outbox *out) {
    struct sent *sent = sent_new(client, now, NULL, MESSAGE_RELEASE, 0);
    struct items grants, cancels;
    struct list *node, *after;
    struct letter *letter = NULL;

    items_init(&grants);
    items_init(&cancels);
    if (sent == NULL)
        goto end;
    segment_use(segment);
    sent->segment = segment;
    list_each (node, after, &segment->returns) {
        if (grants.count == LETTER_ITEMS || !items_add_grant(&grants, &list_entry(node, struct stocked, node)->grant))
            break;
        list_remove(node);
        list_append(&sent->returned, node);
    }
    list_each (node, after, &segment->reservations) {
        struct reservation *reservation = list_entry(node, struct reservation, node);

        if (!reservation->cancelled)
            continue;
        if (cancels.count == LETTER_ITEMS ||
            !items_add_cancel(&cancels, &(struct message_cancel){.sequence = reservation->sequence}))
            break;
        reservation->returning = true;
    }
    letter = outbox_release(out, sent->tag,
                            &(struct message_release){.client = client->options.id,
                                                      .segment = segment->id,
                                                      .grants = items_bytes(&grants),
                                                      .cancels = items_bytes(&cancels)});
    if (letter == NULL) {
        stock_released(client, now, sent, MC_ERR_NO_MEMORY);
    } else {
        letter->to = segment->id;
        segment->returning = true;
    }
    sent_add(client, sent, letter);
end:
    if (letter == NULL)
        segment->return_at = clock_after(now, client->options.timing.resend);
    items_clear(&grants);
    items_clear(&cancels);
}

void stock_released(struct client *client, uint64_t now, struct sent *sent, int32_t status) {
    struct client_segment *segment = sent->segment;
    bool gone = status == MC_OK || status == MC_ERR_SEGMENT_NOT_FOUND || status == MC_ERR_GONE ||
                status == MC_ERR_STALE_PEER || (!segment->listed && client->retired && status == MC_ERR_UNREACHABLE);
    struct list *node, *after;

    segment->returning = false;
    list_each (node, after, &sent->returned) {
        list_remove(node);
        if (gone) {
            free(list_entry(node, struct stocked, node));
            segment->return_count--;
        } else {
            list_append(&segment->returns, node);
        }
    }
    list_each (node, after, &segment->reservations) {
        struct reservation *reservation = list_entry(node, struct reservation, node);

        if (reservation->returning && gone)
            reservation_free(segment, reservation);
        else
            reservation->returning = false;
    }
    segment->return_at = gone ? 0 : clock_after(now, client->options.timing.resend);
    client_due(client, gone ? now : segment->return_at);
}

/* Gives back what wasn't used for a while; the next refill is smaller. */
static void stock_age(struct client *client, uint64_t now, struct client_segment *segment) {
    struct list *node, *after;

    list_each (node, after, &segment->stock) {
        struct stock_class *class = list_entry(node, struct stock_class, node);
        bool aged = false;

        while (class->count > 0) {
            uint64_t end = clock_after(list_entry(class->slots.next, struct stocked, node)->since,
                                       client->options.timing.stock_age);

            if (end > now && !client->retired) {
                client_due(client, end);
                break;
            }
            aged = true;
            give_back(client, now, segment, class_take(client, class));
        }
        if (aged)
            class->refill /= 2;
        if (class->count == 0 && class->wanted == 0 && (class->refill == 0 || !segment_takes(segment)))
            class_free(class);
    }
}

void stock_step(struct client *client, uint64_t now, struct outbox *out) {
    struct list *node, *after;

    list_each (node, after, &client->segments) {
        struct client_segment *segment = list_entry(node, struct client_segment, node);

        stock_age(client, now, segment);
        if (segment->return_count > 0 && !segment->returning && segment->return_at <= now)
            release(client, now, segment, out);
    }
}

uint64_t stock_due(const struct client *client) {
    struct list *node, *after;
    uint64_t due = CLOCK_NEVER;

    list_each (node, after, &client->segments) {
        struct client_segment *segment = list_entry(node, struct client_segment, node);

        if (segment->return_count > 0 && !segment->returning && segment->return_at < due)
            due = segment->return_at;
    }
    return due;
}

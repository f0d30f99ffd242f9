/* store/owner/serve.c - what clients ask of an owner: to attach, to reserve slots, and to take them back (rule 2 of
 * docs/store-protocol.md). Owns nothing; the owner's thread. A message is checked as a whole before it has any effect.
 */
#include <stdlib.h>
#include <string.h>

#include <mooncake/error.h>

#include "store/owner/state.h"
#include "wire/mistake.h"

#define CANCELS_MAX 4096u /* in one RELEASE: each may look at all that the client has reserved */

static bool is_zero(const struct message_id *id) {
    static const struct message_id zero;

    return message_id_equal(id, &zero);
}

/* The client's record; MC_ERR_GONE if it is proved gone. */
static int32_t get_client(struct owner *owner, const struct message_id *id, struct holder **ret_holder) {
    struct holder *holder;
    int32_t status;

    if (is_zero(id))
        return MC_ERR_PROTOCOL;
    status = holders_get(owner, id, &holder);
    if (status == MC_OK && holder->gone)
        status = MC_ERR_GONE;
    if (status == MC_OK)
        *ret_holder = holder;
    return status;
}

/* ---- ATTACH ---- */

static bool is_address(struct message_bytes bytes) {
    if (bytes.length >= MESSAGE_ADDRESS_MAX)
        return false;
    for (uint32_t i = 0; i < bytes.length; i++)
        if (bytes.data[i] <= ' ' || bytes.data[i] == 0x7f)
            return false;
    return true;
}

static int32_t attach(struct owner *owner, uint64_t tag, const uint8_t *body, size_t length, struct outbox *out) {
    const struct owner_options *options = &owner->options;
    struct message_attach message;
    struct message_attached answer;
    struct holder *holder;
    char *address;
    int32_t status = message_unpack_attach(body, length, &message);

    if (status == MC_OK && !is_address(message.address))
        status = MC_ERR_PROTOCOL;
    if (status == MC_OK && !is_zero(&message.segment) && !owner_answers_to(owner, &message.segment))
        status = MC_ERR_SEGMENT_NOT_FOUND;
    if (status == MC_OK)
        status = get_client(owner, &message.client, &holder);
    if (status != MC_OK)
        return status;
    address = calloc(1, (size_t)message.address.length + 1);
    if (address == NULL)
        return MC_ERR_NO_MEMORY;
    if (message.address.length > 0)
        memcpy(address, message.address.data, message.address.length);
    free(holder->address);
    holder->address = address;
    holders_give_pins(owner, holder);
    answer = (struct message_attached){
        .segment = *owner_segment(owner), .base = options->base_address, .size = options->size};
    if (holder->pins != NO_PINS) {
        answer.pins = options->pins_address + holder->pins * sizeof(struct pin_table);
        answer.pin_cells = PIN_CELLS;
    }
    outbox_attached(out, tag, &answer);
    return MC_OK;
}

/* ---- RESERVE ---- */

static bool add_grant(const struct owner *owner, struct items *grants, const struct record *record) {
    struct message_grant grant = {.slot = slots_offset(owner, record),
                                  .generation = slots_generation(record),
                                  .offset = extent_offset(record->extent)};

    return items_add_grant(grants, &grant);
}

/* Answers with the slots that the holder has by this sequence number, if there are `count`. */
static int32_t answer_granted(struct owner *owner, uint64_t tag, const struct holder *holder, uint64_t sequence,
                              uint64_t count, struct outbox *out) {
    struct list *node, *after, *head = (struct list *)&holder->reserved;
    struct items grants;
    int32_t status = MC_OK;

    items_init(&grants);
    list_each (node, after, head) {
        const struct record *record = list_entry(node, struct record, node);

        if (record->sequence == sequence && record->life == owner->life && !add_grant(owner, &grants, record))
            status = MC_ERR_NO_MEMORY;
    }
    if (status == MC_OK && grants.count != count)
        status = MC_ERR_NO_SPACE;
    if (status == MC_OK) {
        struct message_reserved answer = {.grants = items_bytes(&grants)};

        outbox_reserved(out, tag, &answer);
    }
    items_clear(&grants);
    return status;
}

/* Rule 2: a RESERVE is granted once, and "no space" is final for its number. */
static int32_t grant(struct owner *owner, uint64_t now, struct holder *holder, const struct message_reserve *message,
                     uint64_t *ret_granted) {
    uint64_t most = message->count < GRANTS_MAX ? message->count : GRANTS_MAX;
    uint64_t granted = 0;
    int32_t status = holder_make_room(holder);

    if (status != MC_OK)
        return status;
    if (message->sequence < holder->floor)
        return MC_ERR_NO_SPACE;
    if (owner->draining && !MISTAKE(GRANTED_WHILE_DRAINING))
        most = 0;
    while (granted < most && slots_reserve(owner, holder, message->sequence, message->capacity) != NULL)
        granted++;
    if (granted > 0)
        report_reserved(owner, message->capacity);
    else if (!owner->draining)
        report_refused(owner, now, message->capacity);
    if (granted > 0 || !MISTAKE(GRANTED_AFTER_FULL))
        holder_remember(holder, message->sequence, granted);
    *ret_granted = granted;
    return granted > 0 ? MC_OK : MC_ERR_NO_SPACE;
}

static int32_t reserve(struct owner *owner, uint64_t now, uint64_t tag, const uint8_t *body, size_t length,
                       struct outbox *out) {
    struct message_reserve message;
    struct holder *holder;
    struct seen *seen;
    uint64_t granted;
    int32_t status = message_unpack_reserve(body, length, &message);

    if (status == MC_OK && (message.count == 0 || message.capacity == 0))
        status = MC_ERR_PROTOCOL;
    if (status == MC_OK && !message_id_equal(&message.segment, owner_segment(owner)))
        status = MC_ERR_SEGMENT_NOT_FOUND;
    if (status == MC_OK)
        status = get_client(owner, &message.client, &holder);
    if (status != MC_OK)
        return status;
    holder_raise_floor(holder, message.floor);
    seen = holder_seen(holder, message.sequence);
    if (seen == NULL)
        status = grant(owner, now, holder, &message, &granted);
    else if (seen->granted == 0)
        status = MC_ERR_NO_SPACE;
    else
        granted = seen->granted;
    if (status == MC_OK)
        status = answer_granted(owner, tag, holder, message.sequence, granted, out);
    return status;
}

/* ---- RELEASE ---- */

/* Are the lists whole? */
static bool release_is_sound(const struct message_release *message) {
    struct message_bytes grants = message->grants, cancels = message->cancels;
    struct message_grant grant;
    struct message_cancel cancel;
    int64_t count = items_count(cancels);
    int32_t more;

    if (count < 0 || count > (int64_t)CANCELS_MAX)
        return false;
    while ((more = items_next_grant(&grants, &grant)) == 1)
        ;
    if (more == 0)
        while ((more = items_next_cancel(&cancels, &cancel)) == 1)
            ;
    return more == 0;
}

static void release_granted(struct owner *owner, const struct holder *holder, struct message_bytes grants) {
    struct message_grant grant;

    while (items_next_grant(&grants, &grant) == 1) {
        struct record *record = slots_find(owner, grant.slot, grant.generation);

        if (record != NULL && slots_state(record) == SLOT_RESERVED && record->holder == holder)
            slots_kill(owner, record);
    }
}

/* All that this number was granted goes, and nothing more is granted. */
static int32_t cancel_one(struct owner *owner, struct holder *holder, uint64_t life, uint64_t sequence) {
    struct list *node, *after;

    list_each (node, after, &holder->reserved) {
        struct record *record = list_entry(node, struct record, node);

        if (record->life == life && record->sequence == sequence)
            slots_kill(owner, record);
    }
    if (life != owner->life) /* nothing is granted under that id any more */
        return MC_OK;
    if (holder_make_room(holder) != MC_OK)
        return MC_ERR_NO_MEMORY;
    holder_remember(holder, sequence, 0);
    return MC_OK;
}

static int32_t release(struct owner *owner, uint64_t tag, const uint8_t *body, size_t length, struct outbox *out) {
    struct message_released answer = {0};
    struct message_release message;
    struct message_cancel cancel;
    struct holder *holder;
    uint64_t life;
    int32_t status = message_unpack_release(body, length, &message);

    if (status == MC_OK && !release_is_sound(&message))
        status = MC_ERR_PROTOCOL;
    if (status == MC_OK && !owner_had_segment(owner, &message.segment, &life))
        status = MC_ERR_SEGMENT_NOT_FOUND;
    if (status == MC_OK)
        status = get_client(owner, &message.client, &holder);
    if (status != MC_OK)
        return status;
    release_granted(owner, holder, message.grants);
    while (status == MC_OK && items_next_cancel(&message.cancels, &cancel) == 1)
        status = cancel_one(owner, holder, life, cancel.sequence);
    if (status == MC_OK)
        outbox_released(out, tag, &answer);
    return status;
}

void owner_request(struct owner *owner, uint64_t now, uint64_t tag, uint16_t type, const uint8_t *body, size_t length,
                   struct outbox *out) {
    int32_t status = MC_ERR_PROTOCOL;

    if (owner->retired)
        status = MC_ERR_SEGMENT_NOT_FOUND;
    else if (type == MESSAGE_ATTACH)
        status = attach(owner, tag, body, length, out);
    else if (type == MESSAGE_RESERVE)
        status = reserve(owner, now, tag, body, length, out);
    else if (type == MESSAGE_RELEASE)
        status = release(owner, tag, body, length, out);
    if (status != MC_OK)
        outbox_refuse(out, type, tag, status);
}

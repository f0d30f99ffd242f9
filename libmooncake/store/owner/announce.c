/* store/owner/announce.c - mounting: the owner finds out the master's epoch and announces under it, part by part, what
 * the segment holds (rules 12, 14 and 15 of docs/store-protocol.md).
 *
 * Owns: the part that is on its way. The owner's thread; a step looks at a bounded number of slots.
 * What changes between two parts needs no care: a RESERVED slot that gets its key later is published later, under this
 * epoch; PROMOTE and KILL come only from the master that the owner announces to; and a doubt that is given back is
 * found by ASK.
 */
#include <string.h>

#include <mooncake/error.h>

#include "base/clock.h"
#include "store/owner/state.h"
#include "wire/mistake.h"

#define PART_HOLDINGS 500u
#define PART_BYTES (512u << 10)
#define PART_SLOTS 16384u /* looked at */

/* The room that the largest holding may need. */
#define HOLDING_ROOM (KEY_MAX + 128u)

void announce_begin(struct owner *owner, uint64_t at) {
    struct announcement *announcement = &owner->announcement;

    announcement->mounted = announcement->confirmed = announcement->packed = announcement->last = false;
    announcement->part = 0;
    announcement->next = 0;
    items_clear(&announcement->holdings);
    announcement->first_tag = owner->next_tag;
    announcement->tag = 0;
    announcement->send_at = at;
}

/* Tries grow rarer while they fail. */
static void try_later(struct owner *owner, uint64_t now) {
    struct announcement *announcement = &owner->announcement;
    const struct store_timing *timing = &owner->options.timing;

    announcement->send_at = clock_after(now, announcement->pause);
    announcement->pause = announcement->pause < timing->resend / 2 ? 2 * announcement->pause : timing->resend;
}

/* The slot's description, if what it says lies within the extent: the holder wrote it. */
static bool describe(const struct record *record, struct slot_description *ret_described) {
    uint64_t room = extent_length(record->extent);
    struct slot_description described;

    memcpy(&described, &record->slot->described, sizeof(described));
    if (described.key_length == 0 || described.key_length > KEY_MAX || described.length > room ||
        described.key_length > room - described.length)
        return false;
    *ret_described = described;
    return true;
}

/* Is it to be announced? A LIVE slot that can't be, because its description is broken, can't be read either: it goes,
 * or nobody would ever give its space back. */
static bool is_holding(struct owner *owner, struct record *record, struct slot_description *ret_described) {
    enum slot_state state = slots_state(record);

    if (state == SLOT_RESERVED)
        return record->life == owner->life && !MISTAKE(DOUBTS_NOT_ANNOUNCED) && describe(record, ret_described);
    if (state != SLOT_LIVE)
        return false;
    if (describe(record, ret_described))
        return true;
    slots_kill(owner, record);
    return false;
}

static bool add_holding(struct owner *owner, const struct record *record, const struct slot_description *described) {
    uint64_t offset = extent_offset(record->extent);
    struct message_holding holding = {
        .state = slots_state(record),
        .slot = slots_offset(owner, record),
        .generation = slots_generation(record),
        .offset = offset,
        .length = described->length,
        .version_epoch = atomic_load_explicit(&record->slot->version_epoch, memory_order_relaxed),
        .version_counter = atomic_load_explicit(&record->slot->version_counter, memory_order_relaxed),
        .key = {.data = owner->options.base + offset + described->length, .length = described->key_length},
    };

    return items_add_holding(&owner->announcement.holdings, &holding);
}

/* Gathers the next part. Before the epoch is confirmed it is an empty one, not the last, that asks for it. False if
 * memory is short. */
static bool pack(struct owner *owner) {
    struct announcement *announcement = &owner->announcement;
    struct items *holdings = &announcement->holdings;
    size_t count = slots_count(owner);
    size_t end = count - announcement->next > PART_SLOTS ? announcement->next + PART_SLOTS : count;
    size_t next = announcement->next;
    struct slot_description described;

    items_clear(holdings);
    if (announcement->confirmed) {
        for (; next < end && holdings->count < PART_HOLDINGS && holdings->length < PART_BYTES - HOLDING_ROOM; next++) {
            struct record *record = slots_at(owner, next);

            if (is_holding(owner, record, &described) && !add_holding(owner, record, &described))
                return false;
        }
        announcement->next = next;
        announcement->last = next == count;
    }
    announcement->packed = true;
    return true;
}

void announce_step(struct owner *owner, uint64_t now, struct outbox *out) {
    struct announcement *announcement = &owner->announcement;
    struct message_mount message;

    if (announcement->mounted || now < announcement->send_at)
        return;
    if (!announcement->packed && !pack(owner)) {
        try_later(owner, now);
        return;
    }
    message = (struct message_mount){
        .segment = *owner_segment(owner),
        .epoch = owner->epoch,
        .part = announcement->part,
        .last = announcement->last,
        .address = {.data = (const uint8_t *)owner->options.address,
                    .length = (uint32_t)strlen(owner->options.address)},
        .name = {.data = (const uint8_t *)owner->options.name, .length = (uint32_t)strlen(owner->options.name)},
        .size = owner->options.size,
        .free = owner_free_bytes(owner),
        .holdings = items_bytes(&announcement->holdings),
        .state = owner->draining ? SEGMENT_DRAINS : SEGMENT_SERVES,
    };
    announcement->tag = owner->next_tag++;
    announcement->send_at = clock_after(now, owner->options.timing.resend);
    outbox_mount(out, announcement->tag, &message);
}

/* The master has the epoch of this part, and has the part. */
static void part_arrived(struct owner *owner, uint64_t now) {
    struct announcement *announcement = &owner->announcement;

    announcement->confirmed = true;
    announcement->pause = owner->options.timing.retry;
    announcement->mounted = announcement->last;
    announcement->part++;
    announcement->packed = false;
    announcement->first_tag = owner->next_tag;
    announcement->tag = 0;
    announcement->send_at = now;
    items_clear(&announcement->holdings);
    if (announcement->mounted) {
        owner->report.poll_at = now;
        owner->report.orphans_at = now;
    }
}

void announce_answered(struct owner *owner, uint64_t now, uint64_t tag, const struct message_mounted *answer) {
    struct announcement *announcement = &owner->announcement;
    uint64_t epoch = answer->epoch;

    if (announcement->mounted || tag < announcement->first_tag || epoch == 0)
        return;
    if (epoch == owner->epoch) {
        part_arrived(owner, now);
    } else if (epoch > owner->epoch || MISTAKE(OWNER_IGNORES_EPOCH)) {
        owner_adopt(owner, now, epoch);
        announcement->confirmed = true;
    }
    /* Rule 12: a lower epoch is none of ours; the next MOUNT, when this one is taken for lost, shows the master that
     * there is a higher one. */
}

void announce_failed(struct owner *owner, uint64_t now, int32_t status) {
    struct announcement *announcement = &owner->announcement;

    /* The master has another epoch, or doesn't have the parts before this one. */
    if (status == MC_ERR_EPOCH || status == MC_ERR_SEGMENT_NOT_FOUND || status == MC_ERR_PROTOCOL)
        announce_begin(owner, now);
    announcement->tag = 0;
    try_later(owner, now);
}

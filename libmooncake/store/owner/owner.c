/* store/owner/owner.c - the owner of a segment as a whole (store/owner/state.h says who keeps which part).
 *
 * Owns: copies of the texts that it was given, and its parts. One thread at a time; clients work in the segment and in
 * the pin tables meanwhile.
 */
#include "store/owner/owner.h"

#include <stdlib.h>
#include <string.h>

#include <mooncake/error.h>

#include "base/clock.h"
#include "store/owner/state.h"
#include "wire/mistake.h"

#define SEGMENT_UNIT 4096u

/* ---- Begin and end ---- */

static bool options_are_sound(const struct owner_options *options) {
    return options->base != NULL && (uintptr_t)options->base % SEGMENT_UNIT == 0 && options->size % SEGMENT_UNIT == 0 &&
           options->size >= 2 * SEGMENT_UNIT && options->size <= INT64_MAX && options->address != NULL &&
           strlen(options->address) < MESSAGE_ADDRESS_MAX && options->name != NULL &&
           strlen(options->name) < MESSAGE_NAME_MAX && (options->pins != NULL || options->pin_tables == 0);
}

/* The segment's ids, one for each life; nobody else has made them. */
static struct message_id segment_of_life(const struct owner *owner, uint64_t life) {
    struct {
        struct message_id first;
        uint64_t life;
    } seed = {.first = owner->first_segment, .life = life};
    struct message_id id = owner->first_segment;
    struct key_hash hash;

    if (life > 0) {
        hash = key_hash(&seed, sizeof(seed));
        memcpy(id.bytes, &hash, sizeof(id.bytes));
    }
    return id;
}

int32_t owner_new(const struct owner_options *options, struct owner **ret_owner) {
    struct owner *owner;
    int32_t status;

    if (!options_are_sound(options))
        return MC_ERR_INVALID_ARGUMENT;
    owner = calloc(1, sizeof(*owner));
    if (owner == NULL)
        return MC_ERR_NO_MEMORY;
    owner->options = *options;
    owner->first_segment = options->segment;
    owner->next_tag = owner->life_tag = 1;
    owner->announcement.pause = options->timing.retry;
    owner->options.address = strdup(options->address);
    owner->options.name = strdup(options->name);
    owner->space = space_new(options->size);
    status = holders_init(owner);
    if (owner->options.address == NULL || owner->options.name == NULL || owner->space == NULL)
        status = MC_ERR_NO_MEMORY;
    if (status == MC_OK)
        status = slots_init(owner);
    if (status == MC_OK)
        *ret_owner = owner;
    else
        owner_free(owner);
    return status;
}

struct owner *owner_free(struct owner *owner) {
    if (owner == NULL)
        return NULL;
    items_clear(&owner->announcement.holdings);
    items_clear(&owner->report.events);
    slots_clear(owner);
    holders_clear(owner);
    space_free(owner->space);
    free((char *)owner->options.address);
    free((char *)owner->options.name);
    free(owner);
    return NULL;
}

/* ---- Clients that go ---- */

void owner_client_gone(struct owner *owner, uint64_t now, const struct message_id *client) {
    struct holder *holder;
    struct list *node, *after;

    /* One that was never heard of is remembered too: its first message must not be a late one. */
    if (holders_get(owner, client, &holder) != MC_OK || holder->gone)
        return;
    list_each (node, after, &holder->reserved) {
        struct record *record = list_entry(node, struct record, node);

        /* Rule 17: what the present master may know of is asked for. One that has given the segment up knows nothing. */
        if (record->life != owner->life || MISTAKE(DROPPED_UNASKED))
            slots_kill(owner, record);
    }
    holders_bury(owner, holder);
    owner->report.orphans_at = now;
}

void owner_each_client(const struct owner *owner,
                       void (*visit)(void *context, const struct message_id *client, const char *address),
                       void *context) {
    struct list *node, *after;

    for (size_t i = 0; i < HOLDER_BUCKETS; i++) {
        struct list *bucket = (struct list *)&owner->holders.buckets[i];

        list_each (node, after, bucket) {
            const struct holder *holder = list_entry(node, struct holder, chain);

            if (!holder->gone)
                visit(context, &holder->id, holder->address != NULL ? holder->address : "");
        }
    }
}

/* ---- The segment's id ---- */

bool owner_had_segment(const struct owner *owner, const struct message_id *segment, uint64_t *ret_life) {
    for (uint64_t life = owner->life + 1; life-- > 0;) {
        struct message_id id = segment_of_life(owner, life);

        if (message_id_equal(&id, segment)) {
            *ret_life = life;
            return true;
        }
    }
    return false;
}

void owner_expelled(struct owner *owner, uint64_t now) {
    struct list *node, *after;

    owner->life++;
    owner->options.segment = segment_of_life(owner, owner->life);
    owner->life_tag = owner->next_tag;
    for (size_t i = 0; i < slots_count(owner); i++) {
        struct record *record = slots_at(owner, i);

        if (slots_state(record) == SLOT_LIVE || (slots_state(record) == SLOT_RESERVED && record->holder->gone))
            slots_kill(owner, record);
    }
    for (size_t i = 0; i < HOLDER_BUCKETS; i++)
        list_each (node, after, &owner->holders.buckets[i])
            holder_forget_all(list_entry(node, struct holder, chain));
    for (size_t i = 0; i < POLLS_MAX; i++)
        owner->report.polls[i].tag = 0;
    items_clear(&owner->report.events);
    announce_begin(owner, clock_after(now, owner->options.timing.retry));
}

void owner_drain(struct owner *owner) {
    owner->draining = true;   /* the next POLL says so */
    owner->report.wanted = 0; /* nobody gets it here */
}

void owner_retire(struct owner *owner) {
    owner->retired = true;
    for (size_t i = 0; i < slots_count(owner); i++) {
        struct record *record = slots_at(owner, i);

        if (slots_state(record) == SLOT_LIVE || slots_state(record) == SLOT_RESERVED)
            slots_kill(owner, record);
    }
}

void owner_adopt(struct owner *owner, uint64_t now, uint64_t epoch) {
    owner->epoch = epoch;
    owner->epoch_tag = owner->next_tag;
    items_clear(&owner->report.events); /* what an earlier master commanded is no answer to this one */
    announce_begin(owner, now);
}

/* ---- Running ---- */

void owner_step(struct owner *owner, uint64_t now, struct outbox *out) {
    if (owner->retired) /* holders may still write to what was RESERVED: it goes with the segment */
        return;
    sweep_step(owner, now);
    announce_step(owner, now, out);
    report_step(owner, now, out);
}

static void answered(struct owner *owner, uint64_t now, uint64_t tag, uint16_t type, const uint8_t *body,
                     size_t length) {
    struct message_mounted mounted;
    struct message_commands commands;

    if (type == MESSAGE_MOUNTED && message_unpack_mounted(body, length, &mounted) == MC_OK) {
        announce_answered(owner, now, tag, &mounted);
    } else if (type == MESSAGE_COMMANDS && message_unpack_commands(body, length, &commands) == MC_OK) {
        report_take(owner, now, tag, true);
        report_commands(owner, now, &commands);
    }
}

void owner_answer(struct owner *owner, uint64_t now, uint64_t tag, int32_t status, uint16_t type, const uint8_t *body,
                  size_t length) {
    /* Commands are as good when they come after the POLL was given up; but not for a segment that is no more. */
    if (owner->retired || tag < owner->life_tag || tag >= owner->next_tag)
        return;
    if (status == MC_OK)
        answered(owner, now, tag, type, body, length);
    else if (status == MC_ERR_EXPELLED && tag >= owner->epoch_tag)
        owner_expelled(owner, now);
    else if (tag == owner->announcement.tag)
        announce_failed(owner, now, status);
    else if (report_take(owner, now, tag, false))
        report_failed(owner, now, status);
}

uint64_t owner_wake(const struct owner *owner) {
    uint64_t wake = sweep_wake(owner);
    uint64_t report = report_wake(owner);

    if (owner->retired)
        return CLOCK_NEVER;
    if (!owner->announcement.mounted && owner->announcement.send_at < wake)
        wake = owner->announcement.send_at;
    return report < wake ? report : wake;
}

bool owner_mounted(const struct owner *owner) {
    return owner->announcement.mounted;
}

bool owner_drains(const struct owner *owner) {
    return owner->draining;
}

bool owner_answers_to(const struct owner *owner, const struct message_id *segment) {
    uint64_t life;

    return owner_had_segment(owner, segment, &life);
}

const struct message_id *owner_segment(const struct owner *owner) {
    return &owner->options.segment;
}

uint64_t owner_free_bytes(const struct owner *owner) {
    return owner->options.size - space_used(owner->space);
}

struct owner_usage owner_usage(const struct owner *owner) {
    return (struct owner_usage){.size = owner->options.size,
                                .used = space_used(owner->space),
                                .largest = space_largest(owner->space),
                                .live = owner->slots.live,
                                .reserved = owner->slots.reserved,
                                .dead = owner->slots.dead_count};
}

/* store/owner/report.c - what the master is told, and what it commands (rules 7, 9, 12, 15 and 17 of
 * docs/store-protocol.md).
 *
 * Owns: the events that the next POLL carries. The owner's thread.
 * An event is told once: the master repeats a command until it hears what became of it, and each time it is answered.
 * Orphans, which nobody asks for, are told again and again while they are RESERVED.
 */
#include <mooncake/error.h>

#include "base/clock.h"
#include "store/owner/state.h"
#include "wire/mistake.h"

#define EVENTS_MAX 16384u /* in one POLL: it must fit */
#define FREE_STEP 64u     /* the master hears when so much of the segment has changed hands */

static void add_event(struct owner *owner, enum message_event_kind kind, uint64_t slot, uint64_t generation) {
    struct message_event event = {.kind = (uint32_t)kind, .slot = slot, .generation = generation};

    if (owner->report.events.count < EVENTS_MAX)
        items_add_event(&owner->report.events, &event);
}

/* ---- Commands ---- */

/* Rule 9. */
static void command_kill(struct owner *owner, struct record *record) {
    if (record != NULL && (slots_state(record) == SLOT_RESERVED || slots_state(record) == SLOT_LIVE))
        slots_kill(owner, record);
}

/* Rule 7. The first version stays. */
static bool command_promote(struct owner *owner, struct record *record, const struct message_command *command) {
    if (record == NULL)
        return false;
    if (slots_state(record) == SLOT_RESERVED && record->life == owner->life && command->version_epoch != 0)
        slots_promote(owner, record, command->version_epoch, command->version_counter);
    return slots_state(record) == SLOT_LIVE;
}

/* Rule 17: the master knows nothing of this slot, and never will. */
static void command_drop(struct owner *owner, struct record *record) {
    if (record != NULL && slots_state(record) == SLOT_RESERVED && record->holder->gone)
        slots_kill(owner, record);
}

/* A command for a slot that there isn't is as one for a slot of another generation. */
static void carry_out(struct owner *owner, const struct message_command *command) {
    struct record *record = slots_find(owner, command->slot, command->generation);
    bool done;

    switch (command->kind) {
    case COMMAND_KILL:
        command_kill(owner, record);
        add_event(owner, EVENT_KILLED, command->slot, command->generation);
        break;
    case COMMAND_PROMOTE:
        done = command_promote(owner, record, command);
        add_event(owner, done ? EVENT_PROMOTED : EVENT_NOT_PROMOTED, command->slot, command->generation);
        break;
    case COMMAND_ASK: /* rule 15 */
        if (record == NULL || slots_state(record) != SLOT_RESERVED)
            add_event(owner, EVENT_NOT_RESERVED, command->slot, command->generation);
        break;
    case COMMAND_DROP:
        command_drop(owner, record);
        break;
    default: /* of a later version */
        break;
    }
}

void report_commands(struct owner *owner, uint64_t now, const struct message_commands *commands) {
    struct message_bytes list = commands->commands;
    struct message_command command;

    /* Rule 12. */
    if (commands->epoch < owner->epoch && !MISTAKE(OWNER_IGNORES_EPOCH))
        return;
    if (commands->epoch > owner->epoch)
        owner_adopt(owner, now, commands->epoch);
    while (items_next_command(&list, &command) == 1)
        carry_out(owner, &command);
}

/* ---- Polls ---- */

/* Rule 17: the slots whose holders are gone, as many as there is room for; the others come first the next time. */
static void add_orphans(struct owner *owner) {
    struct list *node, *after, *slot, *next;

    list_each (node, after, &owner->holders.orphaned) {
        struct holder *holder = list_entry(node, struct holder, node);
        struct list told;

        list_init(&told);
        list_each (slot, next, &holder->reserved) {
            struct record *record = list_entry(slot, struct record, node);

            if (owner->report.events.count >= EVENTS_MAX)
                break;
            add_event(owner, EVENT_ORPHAN, slots_offset(owner, record), slots_generation(record));
            list_remove(slot);
            list_append(&told, slot);
        }
        list_each (slot, next, &told) {
            list_remove(slot);
            list_append(&holder->reserved, slot);
        }
    }
    if (owner->report.events.count >= EVENTS_MAX && !list_empty(&owner->holders.orphaned)) {
        node = owner->holders.orphaned.next;
        list_remove(node);
        list_append(&owner->holders.orphaned, node);
    }
}

static bool orphans_due(const struct owner *owner, uint64_t now) {
    return !list_empty(&owner->holders.orphaned) && now >= owner->report.orphans_at;
}

static uint64_t wanted(const struct owner *owner, uint64_t now) {
    uint64_t bytes = owner->report.wanted;

    /* What has come free meanwhile, and waits for its holder to ask again, need not be made free again. */
    return now < owner->report.wanted_until && space_largest(owner->space) < bytes ? bytes : 0;
}

static uint32_t unanswered(const struct owner *owner) {
    uint32_t count = 0;

    for (uint32_t i = 0; i < POLLS_MAX; i++)
        count += owner->report.polls[i].tag != 0;
    return count;
}

static bool has_news(const struct owner *owner, uint64_t now) {
    const struct report *report = &owner->report;
    uint64_t free_bytes = owner_free_bytes(owner);
    uint64_t change = free_bytes > report->told_free ? free_bytes - report->told_free : report->told_free - free_bytes;

    return report->events.count > 0 || orphans_due(owner, now) || wanted(owner, now) > report->told_wanted ||
           owner->draining != report->told_draining || change > owner->options.size / FREE_STEP;
}

static uint64_t given_up_after(const struct owner *owner) {
    return 3 * owner->options.timing.poll + owner->options.timing.resend;
}

static void send(struct owner *owner, uint64_t now, struct outbox *out) {
    struct report *report = &owner->report;
    struct message_poll message = {.segment = *owner_segment(owner), .epoch = owner->epoch};

    if (orphans_due(owner, now)) {
        add_orphans(owner);
        report->orphans_at = clock_after(now, owner->options.timing.resend);
    }
    message.free = report->told_free = owner_free_bytes(owner);
    message.wanted = report->told_wanted = wanted(owner, now);
    report->told_draining = owner->draining;
    message.state = owner->draining ? SEGMENT_DRAINS : SEGMENT_SERVES;
    message.events = items_bytes(&report->events);
    for (uint32_t i = 0; i < POLLS_MAX; i++)
        if (report->polls[i].tag == 0) {
            report->polls[i].tag = owner->next_tag++;
            report->polls[i].sent = now;
            outbox_poll(out, report->polls[i].tag, &message);
            break;
        }
    items_clear(&report->events);
}

/* One POLL is always with the master, for it to answer with commands when it has some; another goes when there is
 * something to tell. */
void report_step(struct owner *owner, uint64_t now, struct outbox *out) {
    struct report *report = &owner->report;
    uint32_t waiting;

    for (uint32_t i = 0; i < POLLS_MAX; i++)
        if (report->polls[i].tag != 0 && now >= clock_after(report->polls[i].sent, given_up_after(owner)))
            report->polls[i].tag = 0;
    if (now >= report->wanted_until)
        report->wanted = report->told_wanted = 0;
    waiting = unanswered(owner);
    if (!owner->announcement.mounted || waiting == POLLS_MAX)
        return;
    if ((now >= report->poll_at && waiting == 0) ||
        ((now >= report->poll_at || report->pause == 0) && has_news(owner, now)))
        send(owner, now, out);
}

/* The pause between tries that fail. */
static uint64_t longer(uint64_t pause, const struct store_timing *timing) {
    if (pause == 0)
        return timing->retry;
    return pause < timing->resend / 2 ? 2 * pause : timing->resend;
}

bool report_take(struct owner *owner, uint64_t now, uint64_t tag, bool answered) {
    struct report *report = &owner->report;
    const struct store_timing *timing = &owner->options.timing;

    for (uint32_t i = 0; i < POLLS_MAX; i++)
        if (tag != 0 && report->polls[i].tag == tag) {
            report->polls[i].tag = 0;
            if (answered) {
                /* A master that doesn't wait isn't asked all the time. */
                report->pause = 0;
                report->poll_at = clock_after(report->polls[i].sent, timing->retry);
            } else {
                report->pause = longer(report->pause, timing);
                report->poll_at = clock_after(now, report->pause);
            }
            return true;
        }
    return false;
}

void report_failed(struct owner *owner, uint64_t now, int32_t status) {
    if (status != MC_ERR_EPOCH && status != MC_ERR_SEGMENT_NOT_FOUND && status != MC_ERR_UNAVAILABLE)
        return;
    if (owner->announcement.mounted)
        announce_begin(owner, clock_after(now, owner->report.pause));
}

static uint64_t later(uint64_t one, uint64_t other) {
    return one > other ? one : other;
}

uint64_t report_wake(const struct owner *owner) {
    const struct report *report = &owner->report;
    uint64_t wake = CLOCK_NEVER, soonest;
    uint32_t waiting = unanswered(owner);

    for (uint32_t i = 0; i < POLLS_MAX; i++)
        if (report->polls[i].tag != 0 && clock_after(report->polls[i].sent, given_up_after(owner)) < wake)
            wake = clock_after(report->polls[i].sent, given_up_after(owner));
    if (!owner->announcement.mounted || waiting == POLLS_MAX)
        return wake;
    if (waiting == 0 && report->poll_at < wake)
        wake = report->poll_at;
    soonest = report->pause == 0 ? 0 : report->poll_at;
    if (has_news(owner, 0) && soonest < wake)
        wake = soonest;
    if (!list_empty(&owner->holders.orphaned) && later(report->orphans_at, soonest) < wake)
        wake = later(report->orphans_at, soonest);
    return wake;
}

/* ---- What couldn't be reserved ---- */

void report_refused(struct owner *owner, uint64_t now, uint64_t capacity) {
    struct report *report = &owner->report;

    /* What is too large for the segment itself isn't wanted: nothing that goes would make room for it. */
    if (capacity > owner->options.size - owner->slots.page_count * owner->slots.page_size)
        return;
    if (now >= report->wanted_until)
        report->wanted = report->told_wanted = 0;
    if (capacity > report->wanted)
        report->wanted = capacity;
    report->wanted_until = clock_after(now, owner->options.timing.poll);
}

void report_reserved(struct owner *owner, uint64_t capacity) {
    if (capacity >= owner->report.wanted)
        owner->report.wanted = owner->report.told_wanted = 0;
}

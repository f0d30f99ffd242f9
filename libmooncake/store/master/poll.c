/* store/master/poll.c - an owner says what has happened, and is told what to do (rules 7, 9, 15, 17).
 *
 * Commands wait in their member's lists: `fresh` were never sent, `sent` are sent again after `resend`, until an event
 * answers them. A POLL is answered at once when there is something to say that somebody waits for; promotions, which
 * nobody does, are collected for a moment after the last answer, so that an owner isn't woken for each put. Else the
 * POLL waits, one for each member.
 */
#include "store/master/inside.h"

#include "base/clock.h"

#define COMMANDS_MAX 2000u

static bool add_command(struct items *list, uint32_t kind, uint64_t slot, uint64_t generation, struct version version) {
    struct message_command command = {.kind = kind,
                                      .slot = slot,
                                      .generation = generation,
                                      .version_epoch = version.epoch,
                                      .version_counter = version.counter};

    return items_add_command(list, &command);
}

static void add_claim(struct items *list, uint64_t now, struct claim *claim) {
    struct version none = {0};

    switch (claim->kind) {
    case CLAIM_REPLICA:
        add_command(list, COMMAND_PROMOTE, claim->slot, claim->generation, claim->record->version);
        break;
    case CLAIM_KILL:
        add_command(list, COMMAND_KILL, claim->slot, claim->generation, claim->version);
        break;
    case CLAIM_DOUBT:
        add_command(list, COMMAND_ASK, claim->slot, claim->generation, none);
        break;
    case CLAIM_REFUSED:
        break;
    }
    claim->sent = now;
    list_remove(&claim->command);
    list_append(&claim->member->sent, &claim->command);
}

/* What is due now, up to a limit. */
static void collect(struct master *master, uint64_t now, struct member *member, struct items *list) {
    struct version none = {0};
    struct claim *claim;

    for (uint32_t n = 0; n < member->drop_count; n++)
        add_command(list, COMMAND_DROP, member->drops[n].slot, member->drops[n].generation, none);
    member->drop_count = 0;
    while (list->count < COMMANDS_MAX && !list_empty(&member->fresh))
        add_claim(list, now, list_entry(member->fresh.next, struct claim, command));
    while (list->count < COMMANDS_MAX && !list_empty(&member->sent)) {
        claim = list_entry(member->sent.next, struct claim, command);
        if (clock_after(claim->sent, master->options.timing.resend) > now || claim->sent == now)
            break;
        add_claim(list, now, claim);
    }
}

static int32_t answer(struct master *master, const struct items *list, uint64_t tag, struct outbox *out) {
    struct message_commands commands = {.epoch = master->epoch};

    if (list != NULL && list->full)
        return MC_ERR_NO_MEMORY;
    if (list != NULL)
        commands.commands = items_bytes(list);
    return master_sent(outbox_commands(out, tag, &commands), list);
}

static bool resend_due(const struct master *master, uint64_t now, const struct member *member) {
    return !list_empty(&member->sent) && clock_after(list_entry(member->sent.next, struct claim, command)->sent,
                                                     master->options.timing.resend) <= now;
}

/* Is there time until more has come together? */
static bool may_wait(const struct master *master, uint64_t now, const struct member *member) {
    const struct store_timing *timing = &master->options.timing;

    return !member->gone && !member->hurry && member->drop_count == 0 && master_leads(master, now) &&
           clock_after(member->told, timing->promote) > now && clock_after(member->poll_since, timing->poll) > now &&
           !resend_due(master, now, member);
}

static void answer_waiting(struct master *master, uint64_t now, struct member *member, struct outbox *out) {
    int32_t status = MC_OK;

    list_remove(&member->callable);
    if (may_wait(master, now, member))
        return;
    member->polling = false;
    member->hurry = false;
    member->told = now;
    items_reuse(&master->list);
    if (member->gone)
        status = MC_ERR_EXPELLED;
    else if (!master_leads(master, now))
        status = MC_ERR_UNAVAILABLE;
    else
        collect(master, now, member, &master->list);
    if (status == MC_OK)
        status = answer(master, &master->list, member->poll_tag, out);
    if (status != MC_OK)
        outbox_refuse(out, MESSAGE_POLL, member->poll_tag, status);
}

void member_call(struct master *master, uint64_t now, struct outbox *out) {
    while (!list_empty(&master->callable))
        answer_waiting(master, now, list_entry(master->callable.next, struct member, callable), out);
}

static void event_happened(struct master *master, struct call *call, struct member *member,
                           const struct message_event *event) {
    struct claim *claim;

    if (event->kind == EVENT_ORPHAN) {
        doubt_orphan(master, member, event->slot, event->generation);
        return;
    }
    claim = claim_find(member, event->generation);
    if (claim == NULL || claim->slot != event->slot)
        return;
    if (event->kind == EVENT_KILLED && claim->kind == CLAIM_KILL)
        kill_end(master, claim);
    else if (event->kind == EVENT_PROMOTED && claim->kind == CLAIM_REPLICA)
        record_promoted(master, call->now, claim, true);
    else if (event->kind == EVENT_NOT_PROMOTED && claim->kind == CLAIM_REPLICA)
        record_promoted(master, call->now, claim, false);
    else if (event->kind == EVENT_NOT_RESERVED && claim->kind == CLAIM_DOUBT)
        doubt_end(master, claim);
}

static int32_t check_events(struct message_bytes list) {
    struct message_event event;
    int32_t more;

    while ((more = items_next_event(&list, &event)) == 1)
        if (event.kind < EVENT_KILLED || event.kind > EVENT_ORPHAN)
            return MC_ERR_PROTOCOL;
    return more < 0 ? MC_ERR_PROTOCOL : MC_OK;
}

/* Clients choose owners by what is free there: they are told when it has changed much. */
static void take_free(struct master *master, struct member *member, uint64_t free) {
    uint64_t change = free > member->told_free ? free - member->told_free : member->told_free - free;

    member->free = free;
    if (change > member->size / 16) {
        member->told_free = free;
        member_owners_changed(master);
    }
}

static void take_news(struct master *master, struct call *call, struct member *member,
                      const struct message_poll *poll) {
    struct message_bytes list = poll->events;
    struct message_event event;

    take_free(master, member, poll->free);
    if (poll->state != SEGMENT_SERVES && !member->drains) { /* and never serves again: an older POLL may come late */
        member->drains = true;
        member_owners_changed(master);
    }
    member->killed = 0;
    while (items_next_event(&list, &event) == 1)
        event_happened(master, call, member, &event);
    evict_judge(master, member, poll->wanted);
}

/* The owner has asked again, so nobody waits for the earlier answer. */
static void replace_waiting(struct master *master, struct member *member, struct outbox *out) {
    if (!member->polling)
        return;
    member->polling = false;
    list_remove(&member->callable);
    if (answer(master, NULL, member->poll_tag, out) != MC_OK)
        outbox_refuse(out, MESSAGE_POLL, member->poll_tag, MC_ERR_NO_MEMORY);
}

static bool has_due(const struct master *master, uint64_t now, const struct member *member) {
    if (member->drop_count > 0 || !list_empty(&member->fresh))
        return true;
    return resend_due(master, now, member);
}

int32_t master_poll(struct master *master, struct call *call) {
    struct message_poll poll;
    struct member *member;
    int32_t status;

    if (message_unpack_poll(call->body, call->length, &poll) != MC_OK || check_events(poll.events) != MC_OK)
        return MC_ERR_PROTOCOL;
    status = master_heard(master, poll.epoch);
    if (status != MC_OK)
        return status;
    member = member_find(master, &poll.segment);
    if (member == NULL)
        return MC_ERR_SEGMENT_NOT_FOUND;
    if (member->gone)
        return MC_ERR_EXPELLED;
    member->seen = call->now;
    replace_waiting(master, member, call->out);
    if (poll.epoch != master->epoch)
        return answer(master, NULL, call->tag, call->out);
    if (!member->announced && member->next_part == 0)
        return MC_ERR_SEGMENT_NOT_FOUND; /* it has to announce */
    if (poll.free > member->size)
        return MC_ERR_PROTOCOL;
    take_news(master, call, member, &poll);
    member->polling = true;
    member->poll_tag = call->tag;
    member->poll_since = call->now;
    if (has_due(master, call->now, member))
        member_callable(master, member);
    return MC_OK; /* member_call answers, at the end of this call or later */
}

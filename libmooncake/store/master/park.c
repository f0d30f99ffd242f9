/* store/master/park.c - requests that have no answer yet.
 *
 * A request that can't be decided waits at the first key that holds it up, and the whole of it is run again when
 * something changes there; answers that are already decided are remembered by the guest, so nothing happens twice. All
 * that has become ready in a call is run at its end, or in the next: a bounded number at a time, in the order of
 * arrival.
 */
#include "store/master/inside.h"

#include <stdlib.h>
#include <string.h>

#define PARKED_PER_GUEST 1024u
#define RUNS_PER_CALL 4096u

int32_t park_block(struct call *call, struct entry *entry) {
    if (call->blocker == NULL) {
        call->blocker = entry;
        call->changed = false;
        entry->uses++;
    }
    return CALL_WAITS;
}

void park_free(struct master *master, struct parked *parked) {
    struct entry *entry;

    if (parked == NULL)
        return;
    entry = parked->entry;
    list_remove(&parked->place);
    if (parked->guest != NULL) {
        list_remove(&parked->mine);
        parked->guest->parked_count--;
    }
    table_remove(&master->tags, &parked->node);
    master->counts.waiting--;
    free(parked);
    if (entry != NULL)
        entry_settle(master, entry);
}

static void charge(struct parked *parked, struct guest *guest) {
    parked->guest = guest;
    list_append(&guest->parked, &parked->mine);
    guest->parked_count++;
}

static struct parked *copy(struct master *master, uint64_t tag, uint16_t type, const uint8_t *body, size_t length) {
    struct parked *parked = malloc(sizeof(*parked) + length);

    if (parked == NULL)
        return NULL;
    *parked = (struct parked){.node = {.hash = table_hash(tag)}, .tag = tag, .type = type, .length = (uint32_t)length};
    if (length > 0)
        memcpy(parked->body, body, length);
    list_init(&parked->place);
    list_init(&parked->mine);
    if (!table_insert(&master->tags, &parked->node)) {
        free(parked);
        return NULL;
    }
    master->counts.waiting++;
    return parked;
}

void park_poll(struct master *master, uint64_t tag) {
    struct parked *parked = copy(master, tag, MESSAGE_POLL, NULL, 0);

    if (parked != NULL)
        list_append(&master->ready, &parked->place);
}

/* A client that asks for more than is kept has long forgotten the first. */
static void make_room(struct master *master, struct call *call) {
    struct parked *oldest;

    if (call->guest->parked_count < PARKED_PER_GUEST)
        return;
    oldest = list_entry(call->guest->parked.next, struct parked, mine);
    outbox_refuse(call->out, oldest->type, oldest->tag, MC_ERR_UNAVAILABLE);
    park_free(master, oldest);
}

/* Somebody waits until what is pending is promoted: its owners are told at once. */
static void hurry(struct master *master, const struct entry *entry) {
    struct list *node, *after;

    if (entry->pending == NULL)
        return;
    list_each (node, after, &entry->pending->replicas) {
        struct member *member = list_entry(node, struct claim, sibling)->member;

        member->hurry = true;
        member_callable(master, member);
    }
}

void park_keep(struct master *master, struct call *call) {
    struct entry *entry = call->blocker;
    struct parked *parked = call->kept;

    if (parked == NULL) {
        make_room(master, call);
        parked = copy(master, call->tag, call->type, call->body, call->length);
    }
    if (parked != NULL && parked->guest == NULL)
        charge(parked, call->guest);
    if (parked == NULL) {
        outbox_refuse(call->out, call->type, call->tag, MC_ERR_NO_MEMORY);
    } else if (call->changed) {
        list_append(&master->ready, &parked->place);
    } else {
        parked->entry = entry;
        list_append(&entry->parked, &parked->place);
        hurry(master, entry);
    }
    call->kept = NULL;
}

void park_run(struct master *master, uint64_t now, struct outbox *out) {
    for (uint32_t left = RUNS_PER_CALL; left > 0 && !list_empty(&master->ready); left--) {
        struct parked *parked = list_entry(master->ready.next, struct parked, place);
        struct call call = {.now = now,
                            .tag = parked->tag,
                            .type = parked->type,
                            .body = parked->body,
                            .length = parked->length,
                            .out = out,
                            .kept = parked};

        list_remove(&parked->place);
        call_run(master, &call);
    }
}

void park_forget(struct master *master, uint64_t tag) {
    uint64_t hash = table_hash(tag);
    struct table_node *node = table_chain(&master->tags, hash), *next;

    for (; node != NULL; node = next) {
        struct parked *parked = table_entry(node, struct parked, node);

        next = node->next;
        if (parked->tag == tag)
            park_free(master, parked);
    }
}

static void wake_guest(struct master *master, struct guest *guest) {
    struct list *node, *after;

    list_each (node, after, &guest->parked) {
        struct parked *parked = list_entry(node, struct parked, mine);

        list_remove(&parked->mine);
        list_remove(&parked->place);
        parked->guest = NULL;
        parked->entry = NULL;
        list_append(&master->ready, &parked->place);
    }
    guest->parked_count = 0;
}

void park_wake_all(struct master *master) {
    struct list *node, *after;

    list_each (node, after, &master->guest_list)
        wake_guest(master, list_entry(node, struct guest, all));
}

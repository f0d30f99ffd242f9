/* store/master/record.c - the versions of objects: promoted, replaced, killed replica by replica.
 *
 * A record is its entry's current or pending one, and has at least one replica; it is freed with the last. A pending
 * one becomes current when all PROMOTEs are answered and one has succeeded (rule 7). Replicas that are promoted are in
 * their members' books.
 */
#include "store/master/inside.h"

#include <stdlib.h>

#include "base/clock.h"
#include "wire/mistake.h"

struct record *record_new(struct entry *entry, struct version version, uint64_t length) {
    struct record *record = calloc(1, sizeof(*record));

    if (record == NULL)
        return NULL;
    record->entry = entry;
    record->version = version;
    record->length = length;
    list_init(&record->replicas);
    list_init(&record->pin);
    return record;
}

static bool is_key(const struct entry *entry) {
    return entry->current != NULL || entry->pending != NULL;
}

static void set(struct master *master, struct entry *entry, struct record **place, struct record *record) {
    bool was = is_key(entry);

    *place = record;
    if (is_key(entry) && !was)
        master->counts.keys++;
    else if (!is_key(entry) && was)
        master->counts.keys--;
}

void record_set_current(struct master *master, struct entry *entry, struct record *record) {
    set(master, entry, &entry->current, record);
}

void record_set_pending(struct master *master, struct entry *entry, struct record *record) {
    set(master, entry, &entry->pending, record);
}

static void enter_book(struct master *master, struct claim *claim) {
    const struct policy_news news = {.key = claim->entry->node.hash, .last = claim->record->last};

    claim->promoted = true;
    claim->book.tier = claim->record->tier;
    master->policy->insert(claim->member->book, &claim->book, &news);
}

void record_add(struct master *master, struct record *record, struct claim *claim, bool promoted) {
    uint64_t bytes = record->length + record->entry->key_length;
    uint64_t units = bytes / 64 + (bytes % 64 != 0);

    claim->kind = CLAIM_REPLICA;
    claim->record = record;
    claim->entry = record->entry;
    claim->book = (struct policy_entry){.charge = units > UINT32_MAX ? UINT32_MAX : (uint32_t)units};
    list_init(&claim->book.node);
    list_append(&record->replicas, &claim->sibling);
    record->count++;
    if (promoted) {
        enter_book(master, claim);
    } else {
        record->unanswered++;
        claim_tell(master, claim);
    }
}

static void leave(struct master *master, struct claim *claim) {
    struct record *record = claim->record;

    list_remove(&claim->sibling);
    list_remove(&claim->command);
    record->count--;
    if (claim->promoted)
        master->policy->remove(claim->member->book, &claim->book);
    else
        record->unanswered--;
    claim->record = NULL;
}

static void detach(struct master *master, struct record *record) {
    struct entry *entry = record->entry;

    if (entry->current == record)
        record_set_current(master, entry, NULL);
    else if (entry->pending == record)
        record_set_pending(master, entry, NULL);
}

static void record_free(struct record *record) {
    list_remove(&record->pin);
    free(record);
}

void record_kill(struct master *master, uint64_t now, struct record *record) {
    struct entry *entry = record->entry;

    detach(master, record);
    while (!list_empty(&record->replicas)) {
        struct claim *claim = list_entry(record->replicas.next, struct claim, sibling);

        leave(master, claim);
        kill_begin(master, now, claim, record->version);
    }
    record_free(record);
    entry_wake(master, entry);
}

/* Rule 8: the old is killed after the new is promoted. What a late owner has announced meanwhile may be newer. */
static void commit(struct master *master, uint64_t now, struct entry *entry) {
    struct record *old = entry->current, *record = entry->pending;

    master->sequence++;
    record->again = false;
    if (old != NULL && version_less(record->version, old->version)) {
        record_kill(master, now, record);
        return;
    }
    record_set_current(master, entry, record);
    record_set_pending(master, entry, NULL);
    if (old != NULL) {
        /* It is no entry's any more, so that it is not taken for the current one. */
        record_kill(master, now, old);
    }
    entry_wake(master, entry);
}

/* A replica has left the record. */
static void lessen(struct master *master, uint64_t now, struct record *record) {
    struct entry *entry = record->entry;

    if (record->count == 0) {
        detach(master, record);
        record_free(record);
        entry_wake(master, entry);
    } else if (entry->pending == record && record->unanswered == 0) {
        commit(master, now, entry);
    }
}

void record_kill_replica(struct master *master, uint64_t now, struct claim *claim) {
    struct record *record = claim->record;

    leave(master, claim);
    kill_begin(master, now, claim, record->version);
    lessen(master, now, record);
}

void record_promoted(struct master *master, uint64_t now, struct claim *claim, bool done) {
    struct record *record = claim->record;
    struct entry *entry = record->entry;

    if (claim->promoted)
        return;
    claim_settle(claim);
    entry->uses++;
    if (done) {
        list_remove(&claim->command);
        record->unanswered--;
        enter_book(master, claim);
        if (entry->pending == record && record->unanswered == 0)
            commit(master, now, entry);
    } else {
        leave(master, claim);
        claim_refuse(claim);
        lessen(master, now, record);
        entry_wake(master, entry);
    }
    entry->uses--;
    entry_settle(master, entry);
}

void record_touch(struct master *master, struct record *record) {
    struct list *node, *after;

    list_each (node, after, &record->replicas) {
        struct claim *claim = list_entry(node, struct claim, sibling);

        if (claim->promoted)
            master->policy->touch(claim->member->book, &claim->book);
    }
}

static void unpin(struct master *master, struct record *record) {
    struct list *node, *after;

    record->tier = POLICY_PLAIN;
    list_each (node, after, &record->replicas) {
        struct claim *claim = list_entry(node, struct claim, sibling);

        if (claim->promoted)
            master->policy->move(claim->member->book, &claim->book, POLICY_PLAIN);
    }
}

void record_end_pins(struct master *master, uint64_t now, uint32_t count) {
    for (; count > 0 && !list_empty(&master->pins); count--) {
        struct record *record = list_entry(master->pins.next, struct record, pin);

        if (clock_after(record->pinned, master->options.soft_pin_ttl) > now)
            break;
        list_remove(&record->pin);
        unpin(master, record);
    }
}

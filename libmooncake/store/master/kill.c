/* store/master/kill.c - kills: from the first KILL to the owner's answer, or to the end of the owner (rules 9, 11).
 *
 * A kill that isn't answered for `kill_wait`, or whose owner is gone, is waited out: the floor of its segment rises,
 * and a lease later nobody may use the location any more. It stays listed, and the owner is told again and again, until it
 * answers or is gone. One that is waited out holds nothing up: it leaves its entry.
 */
#include "store/master/inside.h"

#include "base/clock.h"
#include "wire/mistake.h"

#define KILLS_PER_STEP 1024u

static uint64_t bytes(const struct claim *claim) {
    return (uint64_t)claim->book.charge * 64;
}

void kill_begin(struct master *master, uint64_t now, struct claim *claim, struct version version) {
    struct entry *entry = claim->entry;

    claim->kind = CLAIM_KILL;
    claim->version = version;
    claim->promoted = false;
    claim->floored = false;
    claim->since = now;
    list_append(&entry->kills, &claim->sibling);
    list_append(&master->young, &claim->due);
    master->sequence++;
    master->counts.kills++;
    claim->member->killing += bytes(claim);
    entry_entomb(master, entry, version);
    if (claim->member->gone)
        kill_floor(master, now, claim);
    else
        claim_tell(master, claim);
}

void kill_end(struct master *master, struct claim *claim) {
    struct entry *entry = claim->entry;

    master->counts.kills--;
    claim->member->killing -= bytes(claim);
    claim->member->killed += bytes(claim);
    claim_free(claim);
    if (entry == NULL)
        return;
    entry_wake(master, entry);
    entry_settle(master, entry);
}

void kill_floor(struct master *master, uint64_t now, struct claim *claim) {
    list_remove(&claim->due);
    list_append(&master->waiting, &claim->due);
    claim->floored = true;
    claim->since = now;
    claim->member->floor = ++master->sequence;
    master->floors_stale = true;
}

/* A lease has passed since the floor rose. */
static void waited_out(struct master *master, struct claim *claim) {
    struct entry *entry = claim->entry;

    if (claim->member->gone || MISTAKE(KILLS_DROPPED)) {
        kill_end(master, claim);
        return;
    }
    list_remove(&claim->due);
    list_remove(&claim->sibling);
    claim->entry = NULL;
    entry_wake(master, entry);
    entry_settle(master, entry);
}

static struct claim *first_due(struct list *queue, uint64_t now, uint64_t wait) {
    struct claim *claim = list_empty(queue) ? NULL : list_entry(queue->next, struct claim, due);

    return claim != NULL && clock_after(claim->since, wait) <= now ? claim : NULL;
}

void kill_step(struct master *master, uint64_t now) {
    struct claim *claim;
    uint32_t left = KILLS_PER_STEP;

    for (; left > 0 && (claim = first_due(&master->young, now, master->options.timing.kill_wait)) != NULL; left--)
        kill_floor(master, now, claim);
    for (; left > 0 && (claim = first_due(&master->waiting, now, master->options.timing.lease)) != NULL; left--)
        waited_out(master, claim);
}

bool kill_older(const struct entry *entry, struct version version) {
    struct list *node, *after;

    list_each (node, after, &entry->kills)
        if (version_less(list_entry(node, struct claim, sibling)->version, version))
            return true;
    return false;
}

/* store/master/evict.c - which objects are given up when a segment gets full.
 *
 * What an owner reports makes a debt: so many bytes are to be freed there. The policy's victims are killed, a bounded
 * number at a time, until it is paid; bytes that are being killed already count.
 */
#include "store/master/inside.h"

#define VICTIMS_PER_STEP 256u

static uint64_t thousandths(uint64_t size, uint64_t part) {
    return size / 1000 * part + size % 1000 * part / 1000;
}

void evict_judge(struct master *master, struct member *member, uint64_t wanted) {
    uint64_t high = master->options.high_watermark;
    uint64_t low_free = high >= 1000 ? 0 : thousandths(member->size, 1000 - high);
    uint64_t target = low_free + thousandths(member->size, master->options.eviction);
    uint64_t coming = member->free + member->killing + member->killed;
    uint64_t debt = 0;

    if (coming < low_free)
        debt = target - coming;
    if (wanted > member->size)
        wanted = member->size;
    if (wanted > 0 && member->killing < 2 * wanted && 2 * wanted - member->killing > debt)
        debt = 2 * wanted - member->killing;
    member->debt = member->drains ? 0 : debt; /* one that drains needs no room */
}

/* Gives up one object of the member; false if there is none that may go. */
static bool evict_one(struct master *master, uint64_t now, struct member *member) {
    enum policy_tier highest = master->options.keep_soft_pinned ? POLICY_PLAIN : POLICY_SOFT_PINNED;
    struct policy_entry *victim = master->policy->victim(member->book, highest);
    struct claim *claim;
    struct entry *entry;
    uint64_t bytes;

    if (victim == NULL)
        return false;
    claim = list_entry(victim, struct claim, book);
    entry = claim->entry;
    bytes = (uint64_t)claim->book.charge * 64;
    master->policy->evict(member->book, victim, entry->node.hash);
    record_kill_replica(master, now, claim);
    entry_settle(master, entry);
    member->debt = bytes < member->debt ? member->debt - bytes : 0;
    master->counts.evicted++;
    return true;
}

void evict_step(struct master *master, uint64_t now) {
    uint32_t left = VICTIMS_PER_STEP;
    struct list *node, *after;

    list_each (node, after, &master->members) {
        struct member *member = list_entry(node, struct member, all);

        for (; left > 0 && member->debt > 0; left--)
            if (!evict_one(master, now, member))
                member->debt = 0;
    }
}

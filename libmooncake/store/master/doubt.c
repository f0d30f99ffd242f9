/* store/master/doubt.c - RESERVED slots whose fate an earlier epoch has left open (rule 15), and slots whose holder is
 * proved gone (rule 17).
 *
 * While a key has a doubt, nothing is decided about it. The owner is asked until it says that the slot is no longer
 * RESERVED; or the holder publishes the slot, or is proved gone.
 */
#include "store/master/inside.h"

#include <stdlib.h>

#define DROPS_MAX 1024u

int32_t doubt_begin(struct master *master, struct member *member, struct entry *entry,
                    const struct message_place *place) {
    struct claim *claim = claim_new(member, entry, place);

    if (claim == NULL)
        return MC_ERR_NO_MEMORY;
    claim->kind = CLAIM_DOUBT;
    list_append(&entry->doubts, &claim->sibling);
    master->counts.doubts++;
    claim_tell(master, claim);
    return MC_OK;
}

void doubt_end(struct master *master, struct claim *claim) {
    struct entry *entry = claim->entry;

    master->counts.doubts--;
    claim_free(claim);
    entry_wake(master, entry);
    entry_settle(master, entry);
}

/* What doesn't fit is asked for again by the owner. */
static void drop(struct master *master, struct member *member, uint64_t slot, uint64_t generation) {
    if (member->drops == NULL)
        member->drops = malloc(DROPS_MAX * sizeof(*member->drops));
    if (member->drops == NULL || member->drop_count == DROPS_MAX)
        return;
    member->drops[member->drop_count++] = (struct drop){.slot = slot, .generation = generation};
    member_callable(master, member);
}

void doubt_orphan(struct master *master, struct member *member, uint64_t slot, uint64_t generation) {
    struct claim *claim = claim_find(member, generation);
    struct message_place place = {.segment = member->id, .slot = slot, .generation = generation};

    if (!member->announced)
        return;
    if (claim != NULL && (claim->slot != slot || claim->kind == CLAIM_REPLICA || claim->kind == CLAIM_KILL))
        return;
    if (claim != NULL && claim->kind == CLAIM_DOUBT) {
        doubt_end(master, claim);
        claim = NULL;
    }
    if (claim == NULL && (claim = claim_new(member, NULL, &place)) == NULL)
        return; /* not dropped before it is refused; the owner asks again */
    claim_refuse(claim);
    drop(master, member, slot, generation);
}

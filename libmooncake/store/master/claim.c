/* store/master/claim.c - what the master knows of single generations of slots.
 *
 * Owns the claims; each is in its member's table until the member is gone. A generation has one claim at most, so that
 * events, and publications of it, find what it is.
 */
#include "store/master/inside.h"

#include <stdlib.h>

struct claim *claim_find(const struct member *member, uint64_t generation) {
    uint64_t hash = table_hash(generation);
    struct table_node *node = table_chain(&member->claims, hash);

    for (; node != NULL; node = node->next)
        if (node->hash == hash && table_entry(node, struct claim, node)->generation == generation)
            return table_entry(node, struct claim, node);
    return NULL;
}

struct claim *claim_new(struct member *member, struct entry *entry, const struct message_place *place) {
    struct claim *claim = calloc(1, sizeof(*claim));

    if (claim == NULL)
        return NULL;
    claim->node.hash = table_hash(place->generation);
    claim->member = member;
    claim->entry = entry;
    claim->slot = place->slot;
    claim->generation = place->generation;
    claim->offset = place->offset;
    claim->kind = CLAIM_REFUSED;
    list_init(&claim->command);
    list_init(&claim->sibling);
    list_init(&claim->due);
    list_init(&claim->book.node);
    if (!table_insert(&member->claims, &claim->node)) {
        free(claim);
        return NULL;
    }
    claim->listed = true;
    return claim;
}

void claim_settle(struct claim *claim) {
    if (claim->unsettled != NULL)
        unsettled_drop(claim->unsettled);
    claim->unsettled = NULL;
}

static void unlist(struct claim *claim) {
    if (claim->listed)
        table_remove(&claim->member->claims, &claim->node);
    claim->listed = false;
}

void claim_free(struct claim *claim) {
    claim_settle(claim);
    unlist(claim);
    list_remove(&claim->command);
    list_remove(&claim->sibling);
    list_remove(&claim->due);
    free(claim);
}

void claim_tell(struct master *master, struct claim *claim) {
    if (claim->member->gone)
        return;
    list_append(&claim->member->fresh, &claim->command);
    if (claim->kind != CLAIM_REPLICA || claim->record->entry->current != NULL)
        claim->member->hurry = true;
    member_callable(master, claim->member);
}

void claim_refuse(struct claim *claim) {
    claim->kind = CLAIM_REFUSED;
    claim->entry = NULL;
}

void claim_bury(struct master *master, uint64_t now, struct claim *claim) {
    unlist(claim);
    switch (claim->kind) {
    case CLAIM_REPLICA:
        record_kill_replica(master, now, claim);
        if (claim->member->dead)
            kill_end(master, claim);
        break;
    case CLAIM_KILL:
        list_remove(&claim->command);
        if (claim->entry == NULL || claim->member->dead)
            kill_end(master, claim); /* waited out before, or DEAD */
        else if (!claim->floored)
            kill_floor(master, now, claim);
        break;
    case CLAIM_DOUBT:
        doubt_end(master, claim);
        break;
    case CLAIM_REFUSED:
        claim_free(claim);
        break;
    }
}

/* store/master/member.c - the owners' segments: how they come and go.
 *
 * Owns the members. One that is gone keeps its id, so that it never comes back in this epoch, and its floor, which
 * clients must go on hearing; its claims are looked after a few at a time.
 */
#include "store/master/inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define CLAIMS_PER_STEP 512u
#define BUCKETS_PER_STEP 4096u

static uint64_t id_hash(const struct message_id *id) {
    uint64_t half[2];

    memcpy(half, id->bytes, sizeof(half));
    return table_hash(half[0] ^ table_hash(half[1]));
}

struct member *member_find(const struct master *master, const struct message_id *id) {
    uint64_t hash = id_hash(id);
    struct table_node *node = table_chain(&master->by_id, hash);

    for (; node != NULL; node = node->next)
        if (node->hash == hash && message_id_equal(&table_entry(node, struct member, node)->id, id))
            return table_entry(node, struct member, node);
    return NULL;
}

struct member *member_new(struct master *master, uint64_t now, const struct message_id *id) {
    struct member *member = calloc(1, sizeof(*member));

    if (member == NULL)
        return NULL;
    member->id = *id;
    member->node.hash = id_hash(id);
    member->seen = now;
    list_init(&member->draining);
    list_init(&member->fresh);
    list_init(&member->sent);
    list_init(&member->callable);
    member->book = master->policy->open();
    if (member->book == NULL || !table_insert(&master->by_id, &member->node)) {
        if (member->book != NULL)
            master->policy->close(member->book);
        free(member);
        return NULL;
    }
    list_append(&master->members, &member->all);
    master->member_count++;
    return member;
}

/* Clients will be sent the list anew. */
void member_owners_changed(struct master *master) {
    master->owners_version++;
}

void member_expel(struct master *master, uint64_t now, struct member *member) {
    if (member->gone)
        return;
    member->gone = true;
    list_remove(&member->all);
    list_append(&master->gone, &member->all);
    list_append(&master->draining, &member->draining);
    master->member_count--;
    if (member->first && !member->announced)
        master->unannounced--;
    member->drop_count = 0;
    member->debt = 0;
    member_owners_changed(master);
    member_callable(master, member);
    if (master->options.members_changed != NULL)
        master->options.members_changed(master->options.context, master);
    master_look_around(master, now);
}

void member_callable(struct master *master, struct member *member) {
    if (member->polling && list_empty(&member->callable))
        list_append(&master->callable, &member->callable);
}

/* What a member that is gone held: a few claims at a time become kills that must be waited out. */
static void drain(struct master *master, uint64_t now) {
    uint32_t claims = CLAIMS_PER_STEP, buckets = BUCKETS_PER_STEP;

    while (claims > 0 && buckets > 0 && !list_empty(&master->draining)) {
        struct member *member = list_entry(master->draining.next, struct member, draining);
        struct table_node *node = table_pop(&member->claims, &buckets);

        if (node != NULL) {
            struct claim *claim = table_entry(node, struct claim, node);

            claim->listed = false;
            claim_bury(master, now, claim);
            claims--;
        } else if (member->claims.count == 0) {
            list_remove(&member->draining);
            table_clear(&member->claims);
            master->policy->close(member->book);
            member->book = NULL;
        }
    }
}

void member_step(struct master *master, uint64_t now) {
    struct list *node, *after;

    list_each (node, after, &master->members) {
        struct member *member = list_entry(node, struct member, all);
        const struct store_timing *timing = &master->options.timing;

        if (clock_after(member->seen, timing->owner_ttl) <= now) {
            member_expel(master, now, member);
            continue;
        }
        if (member->polling && clock_after(member->poll_since, timing->poll) <= now)
            member_callable(master, member);
        if (!list_empty(&member->fresh) && clock_after(member->told, timing->promote) <= now)
            member_callable(master, member);
        if (!list_empty(&member->sent) &&
            clock_after(list_entry(member->sent.next, struct claim, command)->sent, timing->resend) <= now)
            member_callable(master, member);
    }
    drain(master, now);
}

uint64_t member_wake(const struct master *master) {
    uint64_t wake = list_empty(&master->draining) ? CLOCK_NEVER : 0;
    const struct store_timing *timing = &master->options.timing;
    struct list *node, *after;

    list_each (node, after, &master->members) {
        const struct member *member = list_entry(node, struct member, all);
        uint64_t due = clock_after(member->seen, timing->owner_ttl);

        if (member->debt > 0 && master->serving)
            return 0;
        if (member->polling && clock_after(member->poll_since, timing->poll) < due)
            due = clock_after(member->poll_since, timing->poll);
        if (member->polling && !list_empty(&member->fresh) && clock_after(member->told, timing->promote) < due)
            due = clock_after(member->told, timing->promote);
        if (member->polling && !list_empty(&member->sent)) {
            uint64_t sent = list_entry(member->sent.next, struct claim, command)->sent;

            if (clock_after(sent, timing->resend) < due)
                due = clock_after(sent, timing->resend);
        }
        if (due < wake)
            wake = due;
    }
    return wake;
}

static void member_free(struct master *master, struct member *member) {
    struct table_node *node;
    uint32_t budget = UINT32_MAX;

    if (member->polling)
        park_poll(master, member->poll_tag);
    while ((node = table_pop(&member->claims, &budget)) != NULL) {
        free(table_entry(node, struct claim, node));
        budget = UINT32_MAX;
    }
    table_clear(&member->claims);
    if (member->book != NULL)
        master->policy->close(member->book);
    free(member->drops);
    free(member->address);
    free(member->name);
    free(member);
}

/* Kills of members that are gone are in no table. */
static void free_unlisted(struct list *queue) {
    struct list *node, *after;

    list_each (node, after, queue) {
        struct claim *claim = list_entry(node, struct claim, due);

        list_remove(&claim->due);
        if (!claim->listed)
            free(claim);
    }
}

static void clear_list(struct master *master, struct list *members) {
    struct list *node, *after;

    list_each (node, after, members)
        member_free(master, list_entry(node, struct member, all));
    list_init(members);
}

/* All members and claims, with the whole epoch. */
void member_clear(struct master *master) {
    free_unlisted(&master->young);
    free_unlisted(&master->waiting);
    clear_list(master, &master->members);
    clear_list(master, &master->gone);
    table_clear(&master->by_id);
    list_init(&master->draining);
    list_init(&master->callable);
    master->member_count = 0;
}

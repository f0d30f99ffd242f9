/* store/master/mount.c - an owner announces what its segment holds (rule 14), or takes the segment away.
 *
 * Parts may come twice, and an announcement may begin anew: what is known already is passed over. What an announcement
 * says is believed until the last part was there; from then on the master knows better.
 */
#include "store/master/inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

#define GENERATION_MAX (UINT64_MAX >> 2)

static bool valid(const struct message_holding *holding, uint64_t size) {
    uint64_t bytes;

    return (holding->state == SLOT_LIVE || holding->state == SLOT_RESERVED) && holding->generation > 0 &&
           holding->generation <= GENERATION_MAX && holding->key.length >= 1 && holding->key.length <= KEY_MAX &&
           checked_within(holding->slot, sizeof(struct slot), 0, size) && holding->slot % sizeof(struct slot) == 0 &&
           checked_add(holding->length, holding->key.length, &bytes) &&
           checked_within(holding->offset, bytes, 0, size) &&
           (holding->state != SLOT_LIVE || holding->version_epoch > 0);
}

static bool has_nul(struct message_bytes text) {
    return text.length > 0 && memchr(text.data, '\0', text.length) != NULL;
}

/* Looks at all of it before anything is done. A version of this epoch, or a later one, can't be known before the
 * announcement has ended: another master has led under it. */
static int32_t check(struct master *master, const struct message_mount *mount) {
    struct message_bytes list = mount->holdings;
    struct message_holding holding;
    int32_t more;

    if (mount->address.length >= MESSAGE_ADDRESS_MAX || mount->name.length >= MESSAGE_NAME_MAX ||
        mount->free > mount->size || has_nul(mount->address) || has_nul(mount->name))
        return MC_ERR_PROTOCOL;
    while ((more = items_next_holding(&list, &holding)) == 1) {
        if (!valid(&holding, mount->size))
            return MC_ERR_PROTOCOL;
        if (holding.state == SLOT_LIVE && holding.version_epoch >= master->epoch)
            return master_heard(master,
                                holding.version_epoch == master->epoch ? master->epoch + 1 : holding.version_epoch);
    }
    return more < 0 ? MC_ERR_PROTOCOL : MC_OK;
}

/* An announced version finds its place: the highest wins, and loses itself to what was removed (rule 14). */
static int32_t announce_live(struct master *master, struct call *call, struct entry *entry, struct claim *claim,
                             const struct message_holding *holding) {
    struct version version = {holding->version_epoch, holding->version_counter};
    struct record *current = entry->current, *same = NULL, *record;

    if (current != NULL && version_equal(current->version, version))
        same = current;
    else if (entry->pending != NULL && version_equal(entry->pending->version, version))
        same = entry->pending;
    if (same != NULL && same->length == holding->length && same->count < REPLICAS_MAX &&
        !version_less(version, entry->tombstone)) {
        record_add(master, same, claim, true);
        return MC_OK;
    }
    claim->book.charge = (uint32_t)(holding->length / 64 < UINT32_MAX ? holding->length / 64 + 1 : UINT32_MAX);
    if (version_less(version, entry->tombstone) || same != NULL ||
        (current != NULL && version_less(version, current->version))) {
        kill_begin(master, call->now, claim, version);
        return MC_OK;
    }
    record = record_new(entry, version, holding->length);
    if (record == NULL) {
        claim_free(claim);
        return MC_ERR_NO_MEMORY;
    }
    if (current != NULL)
        record_kill(master, call->now, current);
    record_add(master, record, claim, true);
    record_set_current(master, entry, record);
    return MC_OK;
}

static int32_t announce(struct master *master, struct call *call, struct member *member,
                        const struct message_holding *holding) {
    struct message_place place = {
        .segment = member->id, .slot = holding->slot, .generation = holding->generation, .offset = holding->offset};
    struct claim *claim = claim_find(member, holding->generation);
    struct entry *entry;
    int32_t status;

    if (claim != NULL)
        return MC_OK;
    entry = index_obtain(master, holding->key.data, holding->key.length);
    if (entry == NULL)
        return MC_ERR_NO_MEMORY;
    entry->uses++;
    entry_bury(master, call->now, entry);
    if (holding->state == SLOT_RESERVED) {
        status = doubt_begin(master, member, entry, &place);
    } else {
        claim = claim_new(member, entry, &place);
        status = claim == NULL ? MC_ERR_NO_MEMORY : announce_live(master, call, entry, claim, holding);
    }
    entry_wake(master, entry);
    entry->uses--;
    entry_settle(master, entry);
    return status;
}

static int32_t replace_text(char **text, struct message_bytes bytes) {
    char *copy = malloc((size_t)bytes.length + 1);

    if (copy == NULL)
        return MC_ERR_NO_MEMORY;
    if (bytes.length > 0)
        memcpy(copy, bytes.data, bytes.length);
    copy[bytes.length] = '\0';
    free(*text);
    *text = copy;
    return MC_OK;
}

/* Part 0: the member is there from now on, and the list of members is kept before the answer is sent. */
static int32_t begin(struct master *master, struct call *call, const struct message_mount *mount,
                     struct member **ret_member) {
    struct member *member = *ret_member;

    if (member == NULL) {
        member = member_new(master, call->now, &mount->segment);
        if (member == NULL)
            return MC_ERR_NO_MEMORY;
        *ret_member = member;
        if (master->options.members_changed != NULL)
            master->options.members_changed(master->options.context, master);
    }
    if (replace_text(&member->address, mount->address) != MC_OK || replace_text(&member->name, mount->name) != MC_OK)
        return MC_ERR_NO_MEMORY;
    member->size = mount->size;
    member->drains = mount->state != SEGMENT_SERVES;
    member->free = member->told_free = mount->free;
    return MC_OK;
}

static void end(struct master *master, struct call *call, struct member *member) {
    member->announced = true;
    if (member->first)
        master->unannounced--;
    member_owners_changed(master);
    evict_judge(master, member, 0);
    master_look_around(master, call->now);
}

/* One part of an announcement under this epoch. */
static int32_t take_part(struct master *master, struct call *call, const struct message_mount *mount,
                         struct member *member) {
    struct message_bytes list = mount->holdings;
    struct message_holding holding;
    int32_t status = check(master, mount);

    if (status != MC_OK)
        return status;
    if (mount->part > (member == NULL ? 0 : member->next_part))
        return MC_ERR_PROTOCOL;
    if (mount->part == 0 && (status = begin(master, call, mount, &member)) != MC_OK)
        return status;
    if (mount->size != member->size)
        return MC_ERR_PROTOCOL;
    /* What it holds was given up in an earlier epoch, whose members are known; or may have been removed long ago, and
     * nobody remembers (rule 14). */
    if (mount->holdings.length > 0 && !member->first && (master->had_members || !master->graves)) {
        member_expel(master, call->now, member);
        return MC_ERR_EXPELLED;
    }
    while (status == MC_OK && items_next_holding(&list, &holding) == 1)
        status = announce(master, call, member, &holding);
    if (status != MC_OK)
        return status;
    member->next_part = mount->part + 1;
    if (mount->last != 0)
        end(master, call, member);
    return MC_OK;
}

int32_t master_mount(struct master *master, struct call *call) {
    struct message_mounted answer = {.epoch = master->epoch};
    struct message_mount mount;
    struct member *member;
    int32_t status;

    if (message_unpack_mount(call->body, call->length, &mount) != MC_OK)
        return MC_ERR_PROTOCOL;
    status = master_heard(master, mount.epoch);
    if (status != MC_OK)
        return status;
    member = member_find(master, &mount.segment);
    if (member != NULL && member->gone)
        return MC_ERR_EXPELLED;
    if (member != NULL)
        member->seen = call->now;
    if (mount.epoch == master->epoch && (member == NULL || !member->announced)) {
        status = take_part(master, call, &mount, member);
        if (status != MC_OK)
            return status;
    }
    return master_sent(outbox_mounted(call->out, call->tag, &answer), NULL);
}

int32_t master_unmount(struct master *master, struct call *call) {
    struct message_unmounted answer = {0};
    struct message_unmount unmount;
    struct member *member;
    int32_t status;

    if (message_unpack_unmount(call->body, call->length, &unmount) != MC_OK)
        return MC_ERR_PROTOCOL;
    status = master_heard(master, unmount.epoch);
    if (status != MC_OK)
        return status;
    member = member_find(master, &unmount.segment);
    if (member != NULL && !member->gone)
        member->dead = true;
    if (member != NULL)
        member_expel(master, call->now, member);
    return master_sent(outbox_unmounted(call->out, call->tag, &answer), NULL);
}

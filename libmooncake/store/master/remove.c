/* store/master/remove.c - a client removes keys (rule 9).
 *
 * The entry goes at once, and its copies are killed; the answer waits until all of them, older ones too, are DEAD or
 * waited out. A removal has a version, so that what it has removed can be told from what comes later.
 */
#include "store/master/inside.h"

#include "wire/mistake.h"

static void kill_copies(struct master *master, struct call *call, struct entry *entry, struct answer *answer) {
    answer->state = ANSWER_WAITS;
    answer->version = master_next_version(master);
    answer->status = entry->current != NULL || entry->pending != NULL ? MC_OK : MC_ERR_NOT_FOUND;
    entry_entomb(master, entry, answer->version);
    if (entry->current != NULL)
        record_kill(master, call->now, entry->current);
    if (entry->pending != NULL)
        record_kill(master, call->now, entry->pending);
}

static int32_t remove_from(struct master *master, struct call *call, struct entry *entry, struct answer *answer) {
    entry_bury(master, call->now, entry);
    if (answer->state == ANSWER_NEW || MISTAKE(NO_DEDUPE)) {
        if (!list_empty(&entry->doubts))
            return park_block(call, entry); /* rule 15 */
        kill_copies(master, call, entry, answer);
    }
    if (kill_older(entry, answer->version))
        return park_block(call, entry);
    answer->state = ANSWER_FINAL;
    return MC_OK;
}

/* One removal: MC_OK when its answer is final, CALL_WAITS, or why the request fails. */
static int32_t remove_one(struct master *master, struct call *call, const struct message_removal *removal,
                          struct answer **ret_answer) {
    struct answer *answer = guest_answer(call->guest, removal->sequence, MESSAGE_REMOVE);
    struct entry *entry;
    int32_t status;

    if (answer == NULL)
        return MC_ERR_NO_MEMORY;
    if (answer->type != MESSAGE_REMOVE)
        return MC_ERR_PROTOCOL;
    *ret_answer = answer;
    if (answer->state == ANSWER_FINAL && !MISTAKE(NO_DEDUPE))
        return MC_OK;
    entry = index_obtain(master, removal->key.data, removal->key.length);
    if (entry == NULL)
        return MC_ERR_NO_MEMORY;
    entry->uses++;
    status = remove_from(master, call, entry, answer);
    entry->uses--;
    entry_settle(master, entry);
    return status;
}

static int32_t check(struct message_bytes list) {
    struct message_removal removal;
    int32_t more;

    while ((more = items_next_removal(&list, &removal)) == 1)
        if (removal.key.length < 1 || removal.key.length > KEY_MAX || removal.sequence == 0)
            return MC_ERR_PROTOCOL;
    return more;
}

static int32_t remove_all(struct master *master, struct call *call, struct message_bytes list) {
    struct message_removal removal;
    int32_t result = MC_OK, status;
    uint32_t removed = 0;

    items_reuse(&master->list);
    while (items_next_removal(&list, &removal) == 1) {
        struct message_verdict verdict = {.sequence = removal.sequence, .status = (uint32_t)MC_ERR_NOT_FOUND};
        struct answer *answer = NULL;

        /* Below the floor its client knows the answer already. */
        if (removal.sequence >= call->guest->floor || MISTAKE(NO_DEDUPE)) {
            status = remove_one(master, call, &removal, &answer);
            if (status < 0)
                return status;
            if (status == CALL_WAITS)
                result = CALL_WAITS;
            verdict.status = (uint32_t)answer->status;
            verdict.version_epoch = answer->version.epoch;
            verdict.version_counter = answer->version.counter;
            removed += answer->status == MC_OK;
        }
        items_add_verdict(&master->list, &verdict);
    }
    if (result == MC_OK)
        master->counts.total.removed += removed;
    return result;
}

int32_t master_remove(struct master *master, struct call *call) {
    struct message_remove remove;
    struct message_removed removed = {0};
    int32_t status;

    if (message_unpack_remove(call->body, call->length, &remove) != MC_OK || check(remove.items) != MC_OK)
        return MC_ERR_PROTOCOL;
    status = master_enter(master, call, &remove.client, remove.epoch);
    if (status != MC_OK)
        return status;
    if (remove.epoch != master->epoch)
        return MC_ERR_EPOCH;
    guest_raise_floor(call->guest, remove.floor);
    status = remove_all(master, call, remove.items);
    if (status != MC_OK)
        return status;
    if (master->list.full || !master_stamp(master, call, &removed.stamp))
        return MC_ERR_NO_MEMORY;
    removed.verdicts = items_bytes(&master->list);
    return master_sent(outbox_removed(call->out, call->tag, &removed), &master->list);
}

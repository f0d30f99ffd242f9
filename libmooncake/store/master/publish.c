/* store/master/publish.c - a holder publishes what it has written (rules 5, 6, 8, 15, 16).
 *
 * Each publication is looked at against what is known of its slots: an answer given before is given again; slots that
 * are killed or refused are gone; a publication that is there already is the same one; else the key decides. What can't
 * be decided now waits at the key, and the whole request is run again when that changes.
 */
#include "store/master/inside.h"

#include <stdlib.h>

#include "base/checked.h"
#include "wire/mistake.h"

#define GENERATION_MAX (UINT64_MAX >> 2)

/* What a slot that is published is to the master. */
enum standing { GONE, UNANNOUNCED, UNKNOWN, DOUBTED, KILLED, REFUSED, PENDING, CURRENT };

struct publication {
    struct message_publication message;
    struct version version; /* of one that had an OK before; 0: none */
    bool last;              /* of its batch */
    struct guest *guest;
    struct answer *answer;
    struct entry *entry;
    uint32_t count;
    struct site {
        struct message_place place;
        struct member *member;
        struct claim *claim;
        enum standing standing;
    } sites[REPLICAS_MAX];
    uint32_t standings[CURRENT + 1]; /* how many there are of each */
};

static bool is_upsert(const struct publication *publication) {
    return (publication->message.flags & PUBLISH_UPSERT) != 0;
}

/* Was it never accepted before, as far as its holder knows? */
static bool is_fresh(const struct publication *publication) {
    return publication->version.epoch == 0 || MISTAKE(NEW_VERSION_AGAIN);
}

/* ---- What its slots are ---- */

static bool within(const struct publication *publication, const struct message_place *place, uint64_t size) {
    uint64_t bytes;

    return place->generation > 0 && place->generation <= GENERATION_MAX &&
           checked_add(publication->message.length, publication->message.key.length, &bytes) &&
           checked_within(place->offset, bytes, 0, size) && checked_within(place->slot, sizeof(struct slot), 0, size);
}

static enum standing stand(const struct publication *publication, const struct site *site) {
    const struct claim *claim = site->claim;

    if (claim == NULL)
        return UNKNOWN;
    if (claim->slot != site->place.slot)
        return GONE;
    switch (claim->kind) {
    case CLAIM_KILL:
        return KILLED;
    case CLAIM_REFUSED:
        return REFUSED;
    case CLAIM_DOUBT:
        return claim->entry == publication->entry ? DOUBTED : GONE;
    case CLAIM_REPLICA:
        break;
    }
    if (claim->entry != publication->entry)
        return GONE;
    return claim->record == publication->entry->pending ? PENDING : CURRENT;
}

static bool named_before(const struct publication *publication, uint32_t n) {
    const struct message_place *place = &publication->sites[n].place;

    for (uint32_t before = 0; before < n; before++)
        if (message_id_equal(&publication->sites[before].place.segment, &place->segment) &&
            publication->sites[before].place.generation == place->generation)
            return true;
    return false;
}

static void survey(struct master *master, struct publication *publication) {
    for (uint32_t n = 0; n < publication->count; n++) {
        struct site *site = &publication->sites[n];

        site->member = member_find(master, &site->place.segment);
        site->claim = NULL;
        if (site->member == NULL || site->member->gone || named_before(publication, n)) {
            site->standing = GONE;
        } else if (!site->member->announced) {
            site->standing = UNANNOUNCED;
        } else if (!within(publication, &site->place, site->member->size)) {
            site->standing = GONE;
        } else {
            site->claim = claim_find(site->member, site->place.generation);
            if (MISTAKE(PUBLISH_AFTER_DROP) && site->claim != NULL && site->claim->kind == CLAIM_REFUSED) {
                claim_free(site->claim);
                site->claim = NULL;
            }
            site->standing = stand(publication, site);
        }
        publication->standings[site->standing]++;
    }
}

/* The holder has spoken: what it publishes for the first time is in doubt no more, whatever becomes of it. */
static void end_doubts(struct master *master, struct publication *publication) {
    for (uint32_t n = 0; n < publication->count; n++) {
        struct site *site = &publication->sites[n];

        if (site->standing != DOUBTED)
            continue;
        doubt_end(master, site->claim);
        site->claim = NULL;
        site->standing = UNKNOWN;
        publication->standings[DOUBTED]--;
        publication->standings[UNKNOWN]++;
    }
}

/* ---- Answers ---- */

static int32_t finish(struct publication *publication, int32_t status, struct version version) {
    struct guest *guest = publication->guest;

    publication->answer->state = ANSWER_FINAL;
    publication->answer->status = status;
    publication->answer->version = version;
    if (status == MC_OK && publication->message.sequence > guest->last)
        guest->last = publication->message.sequence;
    return MC_OK;
}

static int32_t finish_without(struct publication *publication, int32_t status) {
    return finish(publication, status, (struct version){0});
}

static int32_t wait(struct call *call, struct publication *publication) {
    return park_block(call, publication->entry);
}

/* ---- Taking slots ---- */

/* Claims for all slots that are free or in doubt, and what is unsettled by them, before anything is changed. The doubts
 * stay what they are as yet. */
static int32_t claim_sites(struct publication *publication, struct claim **claims, uint32_t *ret_count) {
    struct unsettled *unsettled = NULL;
    uint32_t count = 0, made = 0;

    for (uint32_t n = 0; n < publication->count; n++) {
        struct site *site = &publication->sites[n];

        if (site->standing != UNKNOWN && site->standing != DOUBTED)
            continue;
        claims[count++] =
            site->standing == DOUBTED ? site->claim : claim_new(site->member, publication->entry, &site->place);
        made += claims[count - 1] != NULL;
    }
    if (made == count && count > 0)
        unsettled = guest_unsettled(publication->guest, publication->message.sequence);
    if (made < count || (count > 0 && unsettled == NULL)) {
        for (uint32_t n = 0; n < count; n++)
            if (claims[n] != NULL && claims[n]->kind == CLAIM_REFUSED)
                claim_free(claims[n]);
        return MC_ERR_NO_MEMORY;
    }
    for (uint32_t n = 0; n < count; n++) {
        claims[n]->unsettled = unsettled;
        unsettled->open++;
    }
    *ret_count = count;
    return MC_OK;
}

/* A doubt ends by becoming something else; a claim just made becomes that too. */
static void release(struct master *master, struct claim *claim, const struct publication *publication) {
    if (claim->kind == CLAIM_DOUBT)
        master->counts.doubts--;
    list_remove(&claim->sibling);
    list_remove(&claim->command);
    for (uint32_t n = 0; n < publication->count; n++)
        if (publication->sites[n].member == claim->member &&
            publication->sites[n].place.generation == claim->generation)
            claim->offset = publication->sites[n].place.offset;
}

/* The object is superseded or removed already: its slots are killed (rule 16). */
static int32_t lose(struct master *master, struct call *call, struct publication *publication) {
    struct claim *claims[REPLICAS_MAX];
    uint32_t count;
    int32_t status = claim_sites(publication, claims, &count);

    if (status != MC_OK)
        return status;
    for (uint32_t n = 0; n < count; n++) {
        release(master, claims[n], publication);
        kill_begin(master, call->now, claims[n], publication->version);
    }
    entry_wake(master, publication->entry);
    return finish_without(publication, MC_ERR_GONE);
}

/* Replicas of a version that is there already. */
static int32_t join(struct master *master, struct call *call, struct publication *publication) {
    struct record *current = publication->entry->current;
    struct claim *claims[REPLICAS_MAX];
    uint32_t count;
    int32_t status;

    if (current->length != publication->message.length ||
        current->count + publication->standings[UNKNOWN] + publication->standings[DOUBTED] > REPLICAS_MAX)
        return lose(master, call, publication);
    status = claim_sites(publication, claims, &count);
    if (status != MC_OK)
        return status;
    for (uint32_t n = 0; n < count; n++) {
        release(master, claims[n], publication);
        record_add(master, current, claims[n], false);
    }
    if (count > 0) {
        master->sequence++; /* what was said to be settled before is older than this OK (rule 13) */
        entry_wake(master, publication->entry);
    }
    if (kill_older(publication->entry, current->version))
        return wait(call, publication);
    return finish(publication, MC_OK, current->version);
}

static void pin(struct master *master, uint64_t now, struct record *record, uint32_t flags) {
    record->tier = (flags & PUBLISH_HARD_PIN) != 0   ? POLICY_HARD_PINNED
                   : (flags & PUBLISH_SOFT_PIN) != 0 ? POLICY_SOFT_PINNED
                                                     : POLICY_PLAIN;
    record->pinned = now;
    if (record->tier == POLICY_SOFT_PINNED && master->options.soft_pin_ttl > 0)
        list_append(&master->pins, &record->pin);
}

/* Rule 6: inserted, and answered at once; unless it takes something's place (rule 8), or an earlier epoch may have
 * accepted it (rule 16). */
static int32_t accept(struct master *master, struct call *call, struct publication *publication,
                      struct version version) {
    struct entry *entry = publication->entry;
    struct record *record = record_new(entry, version, publication->message.length);
    struct claim *claims[REPLICAS_MAX];
    uint32_t count;
    int32_t status = record == NULL ? MC_ERR_NO_MEMORY : claim_sites(publication, claims, &count);

    if (status != MC_OK) {
        free(record);
        return status;
    }
    if (MISTAKE(OLD_KILLED_FIRST) && is_upsert(publication) && entry->current != NULL)
        record_kill(master, call->now, entry->current);
    master->sequence++;
    pin(master, call->now, record, publication->message.flags);
    record->again = (publication->message.flags & PUBLISH_AGAIN) != 0;
    record->last = publication->last;
    for (uint32_t n = 0; n < count; n++) {
        release(master, claims[n], publication);
        record_add(master, record, claims[n], false);
    }
    record_set_pending(master, entry, record);
    entry_wake(master, entry);
    if (!is_upsert(publication) && !record->again)
        return finish(publication, MC_OK, version);
    publication->answer->state = ANSWER_WAITS;
    publication->answer->version = version;
    return wait(call, publication);
}

/* ---- Decisions ---- */

/* Accepted before: answered when it is promoted, and what is older is DEAD or waited out. */
static int32_t await(struct call *call, struct publication *publication) {
    struct version version = publication->answer->version;
    const uint32_t *standings = publication->standings;

    if (standings[PENDING] > 0)
        return wait(call, publication);
    /* One that was accepted, and is killed by what came later, has been: it is told so when what it replaced is gone. */
    if (standings[CURRENT] == 0 && standings[UNKNOWN] == 0 && standings[KILLED] == 0)
        return finish_without(publication, MC_ERR_GONE);
    if (kill_older(publication->entry, version))
        return wait(call, publication);
    return finish(publication, MC_OK, version); /* perhaps overwritten or removed since */
}

static int32_t decide_fresh(struct master *master, struct call *call, struct publication *publication) {
    struct entry *entry = publication->entry;
    struct version all = {UINT64_MAX, UINT64_MAX};

    if (!is_upsert(publication) && entry->current != NULL)
        return finish_without(publication, MC_ERR_ALREADY_EXISTS);
    if (!list_empty(&entry->doubts))
        return wait(call, publication); /* rule 15 */
    if (kill_older(entry, all) && !MISTAKE(PUT_DURING_KILL))
        return wait(call, publication); /* rule 6 */
    return accept(master, call, publication, master_next_version(master));
}

/* Rule 16: it keeps its version, passes over others' doubts, and loses to tombstones and higher versions. */
static int32_t decide_again(struct master *master, struct call *call, struct publication *publication) {
    struct entry *entry = publication->entry;
    struct version all = {UINT64_MAX, UINT64_MAX};

    if (version_less(publication->version, entry->tombstone) ||
        (entry->current != NULL && version_less(publication->version, entry->current->version)))
        return lose(master, call, publication);
    if (kill_older(entry, all) && !MISTAKE(PUT_DURING_KILL))
        return wait(call, publication);
    return accept(master, call, publication, publication->version);
}

static bool is_version_of(const struct publication *publication, const struct record *record) {
    return record != NULL && publication->version.epoch != 0 && version_equal(record->version, publication->version);
}

static int32_t decide(struct master *master, struct call *call, struct publication *publication) {
    const uint32_t *standings = publication->standings;
    struct entry *entry = publication->entry;

    if (standings[UNANNOUNCED] > 0)
        return MC_ERR_UNAVAILABLE;
    if (publication->version.epoch >= master->epoch)
        return finish_without(publication, MC_ERR_GONE); /* of an epoch that has ended, it says */
    if (publication->version.epoch == 0)
        end_doubts(master, publication);
    /* Of several replicas those that are left will do, unless it is not known what became of the others. */
    if ((is_fresh(publication) && standings[KILLED] + standings[REFUSED] > 0) ||
        standings[UNKNOWN] + standings[DOUBTED] + standings[PENDING] + standings[CURRENT] == 0) {
        end_doubts(master, publication);
        return finish_without(publication, MC_ERR_GONE);
    }
    if (standings[PENDING] > 0 || is_version_of(publication, entry->pending))
        return wait(call, publication);
    if (entry->pending != NULL) {
        if (is_fresh(publication) && !is_upsert(publication) && !entry->pending->again)
            return finish_without(publication, MC_ERR_ALREADY_EXISTS);
        return wait(call, publication);
    }
    if (standings[CURRENT] > 0 || is_version_of(publication, entry->current))
        return join(master, call, publication);
    return is_fresh(publication) ? decide_fresh(master, call, publication) : decide_again(master, call, publication);
}

static bool is_final(const struct answer *answer) {
    return answer->state == ANSWER_FINAL && !MISTAKE(NO_DEDUPE);
}

/* One publication: MC_OK when its answer is final, CALL_WAITS, or why the request fails. */
static int32_t publish_one(struct master *master, struct call *call, struct publication *publication) {
    const struct message_bytes *key = &publication->message.key;
    struct entry *entry;
    int32_t status;

    publication->answer = guest_answer(publication->guest, publication->message.sequence, MESSAGE_PUBLISH);
    if (publication->answer == NULL)
        return MC_ERR_NO_MEMORY;
    if (publication->answer->type != MESSAGE_PUBLISH)
        return MC_ERR_PROTOCOL;
    if (is_final(publication->answer))
        return MC_OK;
    entry = publication->entry = index_obtain(master, key->data, key->length);
    if (entry == NULL)
        return MC_ERR_NO_MEMORY;
    entry->uses++;
    entry_bury(master, call->now, entry);
    survey(master, publication);
    if (publication->answer->state == ANSWER_WAITS && !MISTAKE(NO_DEDUPE))
        status = await(call, publication);
    else
        status = decide(master, call, publication);
    entry->uses--;
    entry_settle(master, entry);
    return status;
}

/* ---- The request ---- */

static int32_t take_places(struct publication *publication) {
    struct message_bytes list = publication->message.places;
    struct message_place place;
    int32_t more;

    publication->count = 0;
    while ((more = items_next_place(&list, &place)) == 1) {
        if (publication->count == REPLICAS_MAX)
            return MC_ERR_PROTOCOL;
        publication->sites[publication->count++].place = place;
    }
    return more < 0 || publication->count == 0 ? MC_ERR_PROTOCOL : MC_OK;
}

/* The next publication of the list: 1, or 0 at its end, or MC_ERR_PROTOCOL. */
static int32_t next(struct message_bytes *list, struct publication *ret_publication) {
    const struct message_publication *message = &ret_publication->message;
    int32_t more;

    *ret_publication = (struct publication){0};
    more = items_next_publication(list, &ret_publication->message);
    if (more != 1)
        return more;
    ret_publication->version = (struct version){message->version_epoch, message->version_counter};
    if (message->key.length < 1 || message->key.length > KEY_MAX || message->sequence == 0)
        return MC_ERR_PROTOCOL;
    return take_places(ret_publication) == MC_OK ? 1 : MC_ERR_PROTOCOL;
}

static int32_t check(struct message_bytes list) {
    struct publication publication;
    int32_t more;

    while ((more = next(&list, &publication)) == 1)
        ;
    return more;
}

/* `answer` NULL: below the floor, so its client knows already. */
static void add_verdict(struct items *list, uint64_t sequence, const struct answer *answer) {
    struct message_verdict verdict = {.sequence = sequence, .status = (uint32_t)MC_ERR_GONE};

    if (answer != NULL) {
        verdict.status = (uint32_t)answer->status;
        verdict.version_epoch = answer->version.epoch;
        verdict.version_counter = answer->version.counter;
    }
    items_add_verdict(list, &verdict);
}

static int32_t publish_all(struct master *master, struct call *call, struct message_bytes list) {
    int32_t result = MC_OK, status;
    struct publication publication;
    uint32_t put = 0;

    items_reuse(&master->list);
    while (next(&list, &publication) == 1) {
        publication.guest = call->guest;
        publication.last = list.length == 0;
        if (publication.message.sequence < call->guest->floor && !MISTAKE(NO_DEDUPE)) {
            add_verdict(&master->list, publication.message.sequence, NULL);
            continue;
        }
        status = publish_one(master, call, &publication);
        if (status < 0)
            return status;
        if (status == CALL_WAITS) {
            result = CALL_WAITS;
            continue;
        }
        add_verdict(&master->list, publication.message.sequence, publication.answer);
        put += publication.answer->status == MC_OK;
    }
    if (result == MC_OK)
        master->counts.total.put += put;
    return result;
}

int32_t master_publish(struct master *master, struct call *call) {
    struct message_publish publish;
    struct message_published published = {0};
    int32_t status;

    if (message_unpack_publish(call->body, call->length, &publish) != MC_OK || check(publish.items) != MC_OK)
        return MC_ERR_PROTOCOL;
    status = master_enter(master, call, &publish.client, publish.epoch);
    if (status != MC_OK)
        return status;
    if (publish.epoch != master->epoch)
        return MC_ERR_EPOCH;
    guest_raise_floor(call->guest, publish.floor);
    status = publish_all(master, call, publish.items);
    if (status != MC_OK)
        return status;
    if (master->list.full || !master_stamp(master, call, &published.stamp))
        return MC_ERR_NO_MEMORY;
    published.verdicts = items_bytes(&master->list);
    return master_sent(outbox_published(call->out, call->tag, &published), &master->list);
}

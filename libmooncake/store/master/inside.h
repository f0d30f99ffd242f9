/* store/master/inside.h - what the files of the master share: its structs, and who may do what to them.
 *
 *   entry   one key with everything that the master knows of it; freed when nothing is left
 *   record  one version of an object, current or pending (not promoted yet): one or more replicas
 *   claim   one generation of a slot: a replica, a kill, a doubt, or refused. A replica becomes a kill in place, so
 *           that what must be killed never waits for memory
 *   member  an owner's segment; gone ones are kept, for their ids and floors, as long as the epoch lasts
 *   guest   a client: its floor, the answers it was given, and what it has published that isn't settled
 *   parked  a request that has no answer yet, with a copy of its body
 *
 * Nothing here is thread-safe; nothing reads a clock.
 */
#ifndef MC_STORE_MASTER_INSIDE_H
#define MC_STORE_MASTER_INSIDE_H

#include <mooncake/error.h>

#include "base/list.h"
#include "store/master/master.h"
#include "store/master/policy.h"
#include "store/master/table.h"

#define SHARD_BITS 6u
#define SHARDS (1u << SHARD_BITS)

struct version {
    uint64_t epoch;
    uint64_t counter;
};

static inline bool version_less(struct version one, struct version other) {
    return one.epoch != other.epoch ? one.epoch < other.epoch : one.counter < other.counter;
}

static inline bool version_equal(struct version one, struct version other) {
    return one.epoch == other.epoch && one.counter == other.counter;
}

/* ---- What the index consists of ---- */

struct record {
    struct entry *entry;
    struct version version;
    uint64_t length;
    struct list replicas; /* claims */
    uint32_t count;
    uint32_t unanswered; /* PROMOTEs (rule 7) */
    uint32_t tier;       /* enum policy_tier */
    bool last;           /* of its batch, as it was put */
    bool again;      /* first sent under an earlier epoch and not promoted since: nothing is decided by it (rule 16) */
    struct list pin; /* among the soft pins that end, oldest first */
    uint64_t pinned; /* when */
};

enum claim_kind { CLAIM_REPLICA, CLAIM_KILL, CLAIM_DOUBT, CLAIM_REFUSED };

struct claim {
    struct table_node node; /* in member->claims, unless the member is gone and this was looked after */
    struct member *member;
    struct entry *entry;   /* NULL: a kill that is waited out, or a refused slot */
    struct record *record; /* of a replica */
    uint64_t slot;
    uint64_t generation;
    uint64_t offset;
    enum claim_kind kind;
    bool listed;                 /* in member->claims */
    bool promoted;               /* a replica: LIVE */
    bool floored;                /* a kill: being waited out */
    struct version version;      /* a kill's */
    struct unsettled *unsettled; /* the publication that isn't settled before this is; or NULL */
    struct list command;         /* in member->fresh or ->sent: the owner is told, until it answers */
    uint64_t sent;               /* when it was told last */
    struct list sibling;         /* in record->replicas, entry->kills or entry->doubts */
    struct list due;             /* a kill: in master->young or ->waiting */
    uint64_t since;              /* … when it began */
    struct policy_entry book;    /* a promoted replica: in its member's */
};

struct entry {
    struct table_node node; /* by hash.high, in its shard */
    uint64_t hash_low;
    struct record *current;
    struct record *pending;
    struct list kills;        /* that are neither acknowledged nor waited out */
    struct list doubts;       /* rule 15 */
    struct list parked;       /* requests that wait for a change here */
    struct version tombstone; /* what is older must not come back (rule 14); 0: none */
    struct list grave;        /* in master->tombstones */
    uint32_t uses;            /* by calls that are running: not freed */
    uint32_t key_length;
    uint8_t key[];
};

/* ---- Members ---- */

struct drop {
    uint64_t slot;
    uint64_t generation;
};

struct member {
    struct table_node node; /* by id */
    struct message_id id;
    struct list all;      /* in master->members, or in ->gone */
    struct list draining; /* gone, with claims still */
    bool gone;
    bool dead; /* gone, and every slot of it was DEAD before: nothing need be waited out */
    bool announced;
    bool drains; /* nothing new comes into it (SEGMENT_DRAINS) */
    bool first;  /* one of those that the epoch began with */
    uint32_t next_part;
    char *address;
    char *name;
    uint64_t size;
    uint64_t free;       /* as it said last */
    uint64_t told_free;  /* … when clients were told last */
    uint64_t seen;       /* its last sign of life */
    uint64_t floor;      /* locations of an older sequence are void (rule 11); 0: none */
    struct table claims; /* by generation */
    struct list fresh;   /* claims that the owner must be told of */
    struct list sent;    /* … and was, oldest first, but hasn't answered */
    struct drop *drops;  /* DROPs to be sent; the owner asks again for those that get lost */
    uint32_t drop_count;
    struct policy_book *book;
    uint64_t killing; /* bytes under kills */
    uint64_t killed;  /* … acknowledged with the last POLL: perhaps not in `free` yet */
    uint64_t debt;    /* bytes to be evicted */
    bool polling;     /* a POLL waits */
    uint64_t poll_tag;
    uint64_t poll_since;
    uint64_t told;        /* when the last commands went */
    bool hurry;           /* somebody waits for what the next ones bring about */
    struct list callable; /* in master->callable: the POLL has something to take along */
};

/* ---- Clients ---- */

enum answer_state { ANSWER_NEW, ANSWER_WAITS, ANSWER_FINAL };

struct answer {
    struct table_node node; /* in guest->answers, by sequence */
    struct list order;      /* in guest->answered */
    uint64_t sequence;
    struct version version;
    int32_t status;
    uint16_t type; /* of the request */
    enum answer_state state;
};

struct unsettled {
    struct list node; /* in guest->unsettled, by sequence */
    uint64_t sequence;
    uint32_t open; /* claims that aren't settled */
};

struct guest {
    struct table_node node; /* by id */
    struct list all;
    struct message_id id;
    uint64_t floor; /* what is below is never asked for again */
    uint64_t last;  /* the highest accepted sequence */
    struct list unsettled;
    struct table answers;
    struct list answered; /* as they came */
    struct list parked;   /* oldest first */
    uint32_t parked_count;
};

struct parked {
    struct table_node node; /* in master->tags */
    struct list place;      /* in entry->parked or master->ready */
    struct list mine;       /* in guest->parked */
    struct guest *guest;    /* NULL: of an epoch that has ended */
    struct entry *entry;    /* NULL: ready */
    uint64_t tag;
    uint16_t type;
    uint32_t length;
    uint8_t body[];
};

/* ---- The master ---- */

struct master {
    struct master_options options;
    const struct policy_ops *policy;
    uint64_t epoch; /* 0: doesn't lead */
    uint64_t until;
    uint64_t grace_end; /* when announcements aren't waited for any more */
    uint64_t higher;    /* the highest epoch heard of */
    bool had_members;   /* the epoch began with some */
    bool lapsed;        /* `until` has passed, and all that waited was told */
    bool serving;
    bool graves;       /* tombstones are kept (rule 14) */
    uint64_t counter;  /* of versions */
    uint64_t sequence; /* of the index: grows with every change that clients may need to know the order of */
    struct table shards[SHARDS];
    struct table by_id;  /* members */
    struct list members; /* that are not gone */
    struct list gone;
    struct list draining;
    struct list callable;
    uint32_t member_count;
    uint32_t unannounced; /* of the first */
    uint64_t owners_version;
    struct table guests;
    struct list guest_list;
    struct list young;      /* kills, by age */
    struct list waiting;    /* kills that are waited out, by age */
    struct list tombstones; /* entries */
    struct list pins;       /* records with a soft pin that ends, by age */
    struct list ready;      /* parked requests to be run again */
    struct table tags;      /* parked requests */
    struct call *running;
    struct items floors; /* as stamps carry them */
    bool floors_stale;
    struct items places; /* kept for their memory */
    struct items locations;
    struct items list;
    struct items stamp;
    struct master_count counts;
};

/* One run of a request. */
struct call {
    uint64_t now;
    uint64_t tag;
    uint16_t type;
    const uint8_t *body;
    size_t length;
    struct outbox *out;
    struct guest *guest;   /* of a client's request */
    struct entry *blocker; /* the first key that it waits for */
    bool changed;          /* … which has changed since */
    struct parked *kept;   /* where it was parked before */
};

/* What a handler returns, beside MC_OK (it has answered) and negative statuses: the call waits for call->blocker. */
#define CALL_WAITS 1

/* master.c */
bool master_leads(const struct master *master, uint64_t now);
struct version master_next_version(struct master *master);
/* Notes an epoch that somebody has shown. MC_ERR_UNAVAILABLE where it is above this master's. */
int32_t master_heard(struct master *master, uint64_t epoch);
/* What each client's request begins with: sets call->guest. */
int32_t master_enter(struct master *master, struct call *call, const struct message_id *client, uint64_t epoch);
/* The stamp of an answer to this call, packed; false if memory is short. */
bool master_stamp(struct master *master, const struct call *call, struct message_bytes *ret_stamp);
/* A handler's end: MC_OK where the letter was written, else why not. */
int32_t master_sent(const struct letter *letter, const struct items *list);
void items_reuse(struct items *items);
/* Notes what may have ended: waiting for announcements, and the need of tombstones. */
void master_look_around(struct master *master, uint64_t now);

/* index.c */
struct entry *index_find(const struct master *master, const void *key, uint32_t length);
struct entry *index_find_hash(const struct master *master, const struct key_hash *hash);
/* Has the processor fetch what index_find_hash looks at first; and then what it looks at next. */
void index_fetch(const struct master *master, uint64_t high);
void index_fetch_entry(const struct master *master, uint64_t high);
/* Found or made; NULL if memory is short. What is made and stays empty goes with entry_settle. */
struct entry *index_obtain(struct master *master, const void *key, uint32_t length);
/* Frees the entry if nothing is left of it. */
void entry_settle(struct master *master, struct entry *entry);
/* Replicas on members that are gone become kills. */
void entry_bury(struct master *master, uint64_t now, struct entry *entry);
/* Something has changed: requests that wait here are run again. */
void entry_wake(struct master *master, struct entry *entry);
/* No version older than this may come back. */
void entry_entomb(struct master *master, struct entry *entry, struct version version);
/* Forgets up to `count` tombstones that aren't needed any more. */
void index_forget_tombstones(struct master *master, uint32_t count);
void index_clear(struct master *master);
void index_init(struct master *master);

/* record.c */
struct record *record_new(struct entry *entry, struct version version, uint64_t length);
void record_set_current(struct master *master, struct entry *entry, struct record *record);
void record_set_pending(struct master *master, struct entry *entry, struct record *record);
/* The claim, of no record, becomes a replica: promoted, or to be. */
void record_add(struct master *master, struct record *record, struct claim *claim, bool promoted);
/* PROMOTE's answer (rule 7). */
void record_promoted(struct master *master, uint64_t now, struct claim *claim, bool done);
/* The whole record goes, and is freed; its replicas become kills. */
void record_kill(struct master *master, uint64_t now, struct record *record);
/* One replica goes. */
void record_kill_replica(struct master *master, uint64_t now, struct claim *claim);
/* It was read. */
void record_touch(struct master *master, struct record *record);
void record_end_pins(struct master *master, uint64_t now, uint32_t count);

/* claim.c */
struct claim *claim_find(const struct member *member, uint64_t generation);
/* Of no kind yet; NULL if memory is short. */
struct claim *claim_new(struct member *member, struct entry *entry, const struct message_place *place);
/* Off every list, settled, and freed. */
void claim_free(struct claim *claim);
/* The owner will be told. */
void claim_tell(struct master *master, struct claim *claim);
void claim_settle(struct claim *claim);
/* The member is gone: a replica becomes a kill, kills are waited out at once, doubts end. */
void claim_bury(struct master *master, uint64_t now, struct claim *claim);
/* Slots that are never accepted any more in this epoch (rules 7, 17). */
void claim_refuse(struct claim *claim);

/* kill.c */
/* The claim, of no kind, becomes a kill (rule 9). */
void kill_begin(struct master *master, uint64_t now, struct claim *claim, struct version version);
/* Acknowledged, or the owner is gone and the lease waited out. */
void kill_end(struct master *master, struct claim *claim);
void kill_floor(struct master *master, uint64_t now, struct claim *claim);
void kill_step(struct master *master, uint64_t now);
/* Is a kill of a version below this one outstanding? */
bool kill_older(const struct entry *entry, struct version version);

/* doubt.c */
int32_t doubt_begin(struct master *master, struct member *member, struct entry *entry,
                    const struct message_place *place);
void doubt_end(struct master *master, struct claim *claim);
void doubt_orphan(struct master *master, struct member *member, uint64_t slot, uint64_t generation);

/* guest.c */
struct guest *guest_obtain(struct master *master, const struct message_id *id);
void guest_raise_floor(struct guest *guest, uint64_t floor);
/* The answer to this sequence; a new one if there is none; NULL if memory is short. */
struct answer *guest_answer(struct guest *guest, uint64_t sequence, uint16_t type);
struct unsettled *guest_unsettled(struct guest *guest, uint64_t sequence); /* NULL if memory is short */
void unsettled_drop(struct unsettled *unsettled);                          /* one claim less */
uint64_t guest_settled(const struct guest *guest);
void guest_clear(struct master *master);

/* member.c */
struct member *member_find(const struct master *master, const struct message_id *id);
struct member *member_new(struct master *master, uint64_t now, const struct message_id *id);
void member_expel(struct master *master, uint64_t now, struct member *member);
void member_callable(struct master *master, struct member *member);
void member_step(struct master *master, uint64_t now);
/* Answers POLLs that have something to take along. */
void member_call(struct master *master, uint64_t now, struct outbox *out);
uint64_t member_wake(const struct master *master);
void member_clear(struct master *master);
void member_owners_changed(struct master *master);

/* mount.c, poll.c, publish.c, remove.c, lookup.c, list.c: handlers */
int32_t master_mount(struct master *master, struct call *call);
int32_t master_unmount(struct master *master, struct call *call);
int32_t master_poll(struct master *master, struct call *call);
int32_t master_publish(struct master *master, struct call *call);
int32_t master_remove(struct master *master, struct call *call);
int32_t master_lookup(struct master *master, struct call *call);
int32_t master_probe(struct master *master, struct call *call);
int32_t master_list(struct master *master, struct call *call);
int32_t master_beat(struct master *master, struct call *call);

/* park.c */
/* The call waits for a change of this key; returns CALL_WAITS. */
int32_t park_block(struct call *call, struct entry *entry);
/* Keeps a call that waits, or answers that it can't. */
void park_keep(struct master *master, struct call *call);
void park_free(struct master *master, struct parked *parked);
/* Runs again what has become ready, a bounded number. */
void park_run(struct master *master, uint64_t now, struct outbox *out);
/* A POLL that waited in an epoch that has ended: it will be answered. */
void park_poll(struct master *master, uint64_t tag);
void park_forget(struct master *master, uint64_t tag);
/* Everything that waits is to be run again: it will find out. */
void park_wake_all(struct master *master);
/* master.c: runs one call and answers it, unless it waits. */
void call_run(struct master *master, struct call *call);

/* evict.c */
void evict_judge(struct master *master, struct member *member, uint64_t wanted);
void evict_step(struct master *master, uint64_t now);

#endif

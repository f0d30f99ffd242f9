/* store/owner/state.h - what the files of the owner share: its state, and who keeps which part of it.
 *
 * slots.c    slots and their words, the one way to change them
 * holders.c  clients: their reservations, their pin tables, which of them are gone
 * serve.c    requests of clients
 * sweep.c    DEAD slots back to FREE
 * announce.c mounting
 * report.c   events to the master, its commands
 * owner.c    the whole
 */
#ifndef MC_STORE_OWNER_STATE_H
#define MC_STORE_OWNER_STATE_H

#include "base/list.h"
#include "store/owner/owner.h"
#include "store/owner/space.h"
#include "wire/items.h"

#define NO_PINS UINT32_MAX
#define GRANTS_MAX 1024u   /* slots of one reservation; more are asked for in vain */
#define HOLDERS_MAX 65536u /* clients at a time */
#define HOLDER_BUCKETS 1024u

/* ---- Slots ---- */

/* What only the owner knows of a slot. The word in the segment is a copy of the one here: clients can write there, and
 * must not be able to confuse the owner. */
struct record {
    struct list node;  /* FREE: in slots.free; RESERVED: in its holder's; DEAD: in slots.dead; LIVE: alone */
    struct slot *slot; /* in the segment */
    uint64_t word;
    struct extent *extent; /* NULL when FREE */
    struct holder *holder; /* of a RESERVED slot */
    uint64_t sequence;     /* of its RESERVE */
    uint64_t life;         /* of the segment's id under which it was reserved */
};

struct slots {
    uint64_t page_size;
    uint32_t *page_at; /* by offset / page_size: 0 for payload, else the number of the page of slots, from 1 */
    struct record **pages;
    size_t page_count;
    size_t page_capacity;
    uint64_t next_generation;
    struct list free;
    struct list dead;
    uint64_t live, reserved, dead_count;
};

int32_t slots_init(struct owner *owner);
void slots_clear(struct owner *owner);

/* The number of slots that there are, in use or not; and each by its number. */
size_t slots_count(const struct owner *owner);
struct record *slots_at(const struct owner *owner, size_t number);

/* The slot at this offset in the segment while it has this generation, FREE or not; else NULL. */
struct record *slots_find(const struct owner *owner, uint64_t offset, uint64_t generation);

uint64_t slots_offset(const struct owner *owner, const struct record *record);
enum slot_state slots_state(const struct record *record);
uint64_t slots_generation(const struct record *record);

/* A slot of a new generation with `capacity` bytes, RESERVED for the holder; NULL if there is no space. */
struct record *slots_reserve(struct owner *owner, struct holder *holder, uint64_t sequence, uint64_t capacity);

/* RESERVED to LIVE. */
void slots_promote(struct owner *owner, struct record *record, uint64_t version_epoch, uint64_t version_counter);

/* RESERVED or LIVE to DEAD. */
void slots_kill(struct owner *owner, struct record *record);

/* DEAD to FREE, and its space is given back. */
void slots_release(struct owner *owner, struct record *record);

/* ---- Clients ---- */

/* A RESERVE that was answered: with so many slots, or (0) that there is no space, or it was cancelled. */
struct seen {
    uint64_t sequence;
    uint64_t granted;
};

struct holder {
    struct list chain; /* of its bucket */
    struct list node;  /* in orphaned when gone with RESERVED slots, in graves when gone without; else alone */
    struct message_id id;
    char *address; /* NULL before it attached */
    uint32_t pins; /* the number of its table, or NO_PINS */
    bool gone;
    struct list reserved;
    /* Reservations under the segment's present id. All below `floor` are refused. */
    uint64_t floor;
    struct seen *seen; /* by sequence */
    size_t seen_count;
    size_t seen_capacity;
};

struct holders {
    struct list buckets[HOLDER_BUCKETS];
    struct list orphaned;
    struct list graves; /* the oldest first */
    size_t count;
    size_t grave_count;
    struct holder **tables; /* by pin table; NULL: the table is free */
};

int32_t holders_init(struct owner *owner);
void holders_clear(struct owner *owner);
struct holder *holders_find(const struct owner *owner, const struct message_id *id);

/* Finds or makes it. MC_ERR_NO_MEMORY, MC_ERR_TOO_MANY. */
int32_t holders_get(struct owner *owner, const struct message_id *id, struct holder **ret_holder);

/* Gives the client a pin table if it has none and one is free. */
void holders_give_pins(struct owner *owner, struct holder *holder);

/* Proved gone. Its pins count no more. */
void holders_bury(struct owner *owner, struct holder *holder);

/* One of its RESERVED slots is no longer: one that is gone may now have none left. */
void holders_slot_left(struct owner *owner, struct holder *holder);

/* Room to remember one more reservation. MC_ERR_NO_MEMORY. */
int32_t holder_make_room(struct holder *holder);
struct seen *holder_seen(struct holder *holder, uint64_t sequence);

/* There is room. Of too many, the lowest are forgotten and refused from then on. */
void holder_remember(struct holder *holder, uint64_t sequence, uint64_t granted);
void holder_raise_floor(struct holder *holder, uint64_t floor);
void holder_forget_all(struct holder *holder);

/* ---- The master's side ---- */

struct announcement {
    bool mounted;
    bool confirmed; /* the master has the epoch that the owner knows: it can be announced under it */
    uint32_t part;
    bool last;             /* this part is */
    bool packed;           /* `holdings` is this part */
    struct items holdings; /* the same again until it is answered */
    size_t next;           /* slot behind this part */
    uint64_t first_tag;    /* of the requests that this part was sent with */
    uint64_t tag;          /* the last of them; 0: none */
    uint64_t send_at;
    uint64_t pause; /* between tries, growing */
};

void announce_begin(struct owner *owner, uint64_t at);
void announce_step(struct owner *owner, uint64_t now, struct outbox *out);
void announce_answered(struct owner *owner, uint64_t now, uint64_t tag, const struct message_mounted *answer);
void announce_failed(struct owner *owner, uint64_t now, int32_t status);

#define POLLS_MAX 2u /* unanswered ones */

struct report {
    struct items events;
    struct {
        uint64_t tag; /* 0: none */
        uint64_t sent;
    } polls[POLLS_MAX];
    uint64_t poll_at; /* not earlier, when nothing has happened */
    uint64_t pause;
    uint64_t orphans_at; /* when those of clients gone are told again */
    uint64_t wanted;     /* bytes that couldn't be reserved; 0: none */
    uint64_t wanted_until;
    uint64_t told_wanted, told_free;
    bool told_draining;
};

void report_step(struct owner *owner, uint64_t now, struct outbox *out);
void report_commands(struct owner *owner, uint64_t now, const struct message_commands *commands);
void report_failed(struct owner *owner, uint64_t now, int32_t status);
uint64_t report_wake(const struct owner *owner);

/* Takes the poll with this tag off the list of unanswered ones. */
bool report_take(struct owner *owner, uint64_t now, uint64_t tag, bool answered);
void report_refused(struct owner *owner, uint64_t now, uint64_t capacity);
void report_reserved(struct owner *owner, uint64_t capacity);

/* ---- The whole ---- */

struct owner {
    struct owner_options options; /* with copies of the texts */
    struct message_id first_segment;
    bool draining;
    bool retired;
    uint64_t life;  /* how often it was expelled: the segment's id is made of it */
    uint64_t epoch; /* the highest that was heard of; 0 before */
    uint64_t next_tag;
    uint64_t epoch_tag; /* requests with lower ones were made under a lower epoch: an expulsion that answers them counts
                         * no more (rule 12) */
    uint64_t life_tag;  /* requests with lower ones named an earlier segment id */
    struct space *space;
    struct slots slots;
    struct holders holders;
    struct announcement announcement;
    struct report report;
    uint64_t sweep_at;
    uint64_t sweep_pause;
};

/* Is this one of the ids that the segment has had: *ret_life says which. */
bool owner_had_segment(const struct owner *owner, const struct message_id *segment, uint64_t *ret_life);

/* The master has given the segment up. */
void owner_expelled(struct owner *owner, uint64_t now);

/* A higher epoch was heard of: it is announced under it. */
void owner_adopt(struct owner *owner, uint64_t now, uint64_t epoch);

uint64_t owner_free_bytes(const struct owner *owner);

void sweep_step(struct owner *owner, uint64_t now);
uint64_t sweep_wake(const struct owner *owner);

#endif

/* store/master/master.h - the master: the index of objects, and the policies; no memory of the pool.
 *
 * A state machine without I/O: no clock, no socket, no thread, no lock. Its caller gives it the time and the requests,
 * sends the answers that it puts into outboxes, and calls it from one thread at a time. A request that can't be
 * answered yet is kept and run again when its key changes; the answer may come from any later call.
 *
 * Rules of docs/store-protocol.md kept here: 5, 6 (publish, put), 7 (promote), 8 (upsert), 9 (remove, evict), 11
 * (floors and waiting out), 12 (leadership), 13 (settled), 14 and 15 (new epoch, doubts), 16 (re-publication), 17
 * (orphans).
 */
#ifndef MC_STORE_MASTER_MASTER_H
#define MC_STORE_MASTER_MASTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/outbox.h"
#include "wire/slot.h"
#include "wire/timing.h"

struct master;

struct master_options {
    struct store_timing timing;
    const char *policy;      /* of eviction: "hazard" or "lru"; NULL: the first */
    uint32_t high_watermark; /* thousandths of a segment: fuller, and victims are named … */
    uint32_t eviction;       /* … until so many thousandths are free beyond it */
    bool keep_soft_pinned;   /* soft pins are evicted last; with this, never */
    uint64_t soft_pin_ttl;   /* ns from publication; 0: for ever */
    /* The list of members has changed and must be kept, before the answer that this call makes is sent. May be NULL. */
    void (*members_changed)(void *context, struct master *master);
    void *context;
};

int32_t master_new(const struct master_options *options, struct master **ret_master);
struct master *master_free(struct master *master); /* NULL is fine; returns NULL */

/* Leads under `epoch`, until `until` (CLOCK_NEVER: for ever). With a new epoch it begins with an empty index, and
 * serves when all `members` have announced what they hold, or after the grace time; with no members and no `grace`, at
 * once. With the epoch that it has, only `until` counts. */
void master_lead(struct master *master, uint64_t now, uint64_t epoch, uint64_t until, const struct message_id *members,
                 size_t count, bool grace);

/* Leads no more, and forgets everything. */
void master_step_down(struct master *master);

uint64_t master_epoch(const struct master *master); /* 0: doesn't lead */
bool master_serves(const struct master *master, uint64_t now);

/* The highest epoch that an owner or client has shown, if it is above this master's; else 0. A master that hears of one
 * has been replaced, or was begun anew without its state: it must lead with a higher one, or not at all. */
uint64_t master_higher_epoch(const struct master *master);

/* A request of a client or an owner. The answer has the same tag, and comes in this or a later call. MC_ERR_UNAVAILABLE
 * when not leading or not serving yet, MC_ERR_EPOCH where the request names another one, MC_ERR_PROTOCOL. */
void master_request(struct master *master, uint64_t now, uint64_t tag, uint16_t type, const uint8_t *body,
                    size_t length, struct outbox *out);

/* Nobody waits for the answer with this tag any more. */
void master_forget(struct master *master, uint64_t tag);

/* Does what is due: sends commands again, waits leases out, evicts, expels owners that were silent too long, cleans up
 * after them, all a bounded piece at a time. */
void master_step(struct master *master, uint64_t now, struct outbox *out);

/* When master_step has something to do, if nothing happens before. */
uint64_t master_wake(const struct master *master);

/* The member is gone (proved, or given up): what it holds is lost. */
void master_expel(struct master *master, uint64_t now, const struct message_id *segment);

/* Stores the members' segments, at most `capacity`; how many there are. */
size_t master_members(const struct master *master, struct message_id *members, size_t capacity);

/* What was done since the master was made, under all its epochs, in keys. */
struct master_total {
    uint64_t looked_up; /* asked for by readers … */
    uint64_t found;     /* … and there */
    uint64_t probed;    /* whether they exist … */
    uint64_t present;   /* … and they do */
    uint64_t read;      /* by locations that clients had already, as they report */
    uint64_t put;       /* published, and accepted */
    uint64_t removed;
};

struct master_count {
    uint64_t keys;
    uint64_t kills;   /* not yet acknowledged */
    uint64_t doubts;  /* RESERVED slots of an earlier epoch that aren't settled */
    uint64_t waiting; /* requests without an answer */
    uint64_t evicted; /* replicas, ever */
    uint64_t members;
    uint64_t clients;
    struct master_total total;
};

struct master_count master_count(const struct master *master);

#endif

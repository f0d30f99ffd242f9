/* store/owner/owner.h - the owner of a segment: it alone allocates in it and changes its slots' words.
 *
 * A state machine without I/O: no clock, no socket, no thread, no lock. Its caller gives it the time and the messages,
 * sends what it puts into outboxes, and calls it from one thread at a time. The segment's memory and the pin tables are
 * plain memory that others read and write one-sidedly meanwhile.
 *
 * Rules of docs/store-protocol.md kept here: 1 (words), 2 (reservations), 7 and 9 (PROMOTE, KILL), 12 (lower epochs are
 * refused), 14 (announcement), 15 (ASK), 17 (orphans and DROP).
 */
#ifndef MC_STORE_OWNER_OWNER_H
#define MC_STORE_OWNER_OWNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/outbox.h"
#include "wire/slot.h"
#include "wire/timing.h"

struct owner;

struct owner_options {
    uint8_t *base;             /* the segment: page-aligned; outlives the owner */
    uint64_t size;             /* a multiple of 4096 */
    struct message_id segment; /* random */
    const char *address;       /* where the segment's process listens; copied */
    const char *name;          /* that people give the segment; copied */
    struct pin_table *pins;    /* zeroed, one for each client that may view; outlives the owner */
    uint32_t pin_tables;
    uint64_t pins_address; /* what clients know pins[0] by */
    uint64_t base_address; /* and the segment */
    uint64_t generation;   /* the first one; 0: 1 */
    struct store_timing timing;
    /* Is a guarded remote operation on this slot under way, that may have found the word good before it was changed? */
    bool (*in_flight)(void *context, const struct slot *slot);
    void *context;
};

/* MC_ERR_NO_MEMORY, MC_ERR_INVALID_ARGUMENT (a segment too small to hold anything). */
int32_t owner_new(const struct owner_options *options, struct owner **ret_owner);
struct owner *owner_free(struct owner *owner); /* NULL is fine; returns NULL */

/* A client's ATTACH, RESERVE or RELEASE: puts the answer, with the same tag, into `out`. MC_ERR_SEGMENT_NOT_FOUND where
 * the message names another segment, MC_ERR_NO_SPACE, MC_ERR_PROTOCOL, MC_ERR_GONE (a client proved gone). */
void owner_request(struct owner *owner, uint64_t now, uint64_t tag, uint16_t type, const uint8_t *body, size_t length,
                   struct outbox *out);

/* Proof that the client can't write any more: its process has ended and its connections are closed and drained. */
void owner_client_gone(struct owner *owner, uint64_t now, const struct message_id *client);

/* Calls `visit` for each client that is known and not proved gone, with the address it attached from. */
void owner_each_client(const struct owner *owner,
                       void (*visit)(void *context, const struct message_id *client, const char *address),
                       void *context);

/* Does what is due: reclaims DEAD slots (all that can be), and puts requests to the master into `out`: MOUNT until it
 * is mounted, then POLL with what has happened, at once when something has. At most two are unanswered at a time. */
void owner_step(struct owner *owner, uint64_t now, struct outbox *out);

/* The master's answer to the request with this tag, or that it is lost (a negative status). Commands in it are carried
 * out. */
void owner_answer(struct owner *owner, uint64_t now, uint64_t tag, int32_t status, uint16_t type, const uint8_t *body,
                  size_t length);

/* Nothing is granted any more; what is there, and was granted before, stays until the segment goes. There is no way
 * back. */
void owner_drain(struct owner *owner);

/* The segment is about to go: whatever it holds is DEAD from now on, nothing is granted, and the master isn't asked any
 * more. What follows is UNMOUNT, which says just that, and is the caller's to send. */
void owner_retire(struct owner *owner);

/* When owner_step has something to do, if nothing happens before. */
uint64_t owner_wake(const struct owner *owner);

bool owner_mounted(const struct owner *owner);

bool owner_drains(const struct owner *owner);

/* The segment's id: it changes when the master has expelled the owner, which then kills all that is LIVE and begins
 * anew (RESERVED slots stay until they are released, or their holders are gone). */
const struct message_id *owner_segment(const struct owner *owner);

/* Has the segment this id, or had it before? */
bool owner_answers_to(const struct owner *owner, const struct message_id *segment);

struct owner_usage {
    uint64_t size;    /* of the segment */
    uint64_t used;    /* bytes of extents and slot pages, rounding included */
    uint64_t largest; /* hole */
    uint64_t live;    /* slots by state */
    uint64_t reserved;
    uint64_t dead; /* waiting for pins, or for what is in flight */
};

struct owner_usage owner_usage(const struct owner *owner);

#endif

/* net/inflight.h - the requests of a connection that are waiting for a reply, by the ids that they were sent with.
 *
 * An id is a slot number (low 32 bits) with a generation above, never 0, so a reply finds its request by index, and a
 * reply to something else is noticed. A request that is given up leaves its slot taken until its reply has come.
 * Belongs to one lane, and is guarded by its lock.
 */
#ifndef MC_NET_INFLIGHT_H
#define MC_NET_INFLIGHT_H

#include <stdbool.h>
#include <stdint.h>

struct inflight_slot {
    uint64_t id;
    void *request;  /* NULL: given up */
    uint64_t bytes; /* that the reply will have */
    uint32_t next_free;
    bool used;
};

struct inflight {
    struct inflight_slot *slots;
    uint32_t count;
    uint32_t free;    /* the first free slot */
    uint32_t awaited; /* slots in use: replies that are still to come */
    uint64_t bytes;   /* of those replies */
};

void inflight_init(struct inflight *inflight);
void inflight_destroy(struct inflight *inflight);

/* Takes a slot for the request, whose reply will have `bytes`, and stores its id. False if memory is short, or 2^24 are in flight. */
bool inflight_add(struct inflight *inflight, void *request, uint64_t bytes, uint64_t *ret_id);

/* The slot that the id names while it is taken, else NULL. Good until the next inflight_add. */
struct inflight_slot *inflight_find(struct inflight *inflight, uint64_t id);

/* The reply has come: the id is never used again. */
void inflight_release(struct inflight *inflight, struct inflight_slot *slot);

/* No reply will come any more. */
void inflight_release_all(struct inflight *inflight);

#endif

/* transfer/request.h - one request of a batch: its peer, its path, its slices, and its one terminal state.
 *
 * A request owns references on its peer and on its local region's registration, the latter until it is terminal.
 * Its slices end on any thread, maybe with a lane's lock held; whoever ends the last one calls `ended`.
 */
#ifndef MC_TRANSFER_REQUEST_H
#define MC_TRANSFER_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <mooncake/transfer.h>

#include "transfer/peer.h"

struct request {
    struct mc_request wanted;     /* a copy: the caller's array is read once */
    struct peer *peer;            /* a reference */
    const struct peer_link *link; /* NULL for a request of no bytes */
    uint64_t start;               /* clock_now's time, or 0: nobody wants to know how long it takes */
    void *pin;                    /* of the local range */
    struct slice *slices;
    uint32_t slice_count;
    uint64_t slice_size; /* of all but the last */
    atomic_uint left;    /* slices that haven't ended */
    atomic_int status;   /* MC_ERR_PENDING, or of the first slice that failed; final in a terminal state */
    atomic_uint state;   /* MC_STATE_* */
    _Atomic uint64_t bytes;
    atomic_bool indeterminate;
    uint32_t checksum; /* in the state COMPLETED, if it is wanted */
    void *owner;
    void (*ended)(struct request *request, int32_t status);
};

/* Checks the request and finds its peer and its path; says how many slices it needs in slice_count. The request is
 * zeroed memory before; request_release undoes it, also on failure. `registered`: the local range must
 * be. `index` is for the words. Within an engine call. */
int32_t request_prepare(struct request *request, const struct mc_request *wanted, size_t index, bool registered,
                        struct engine *engine, struct mc_error *error);

/* The same with the peer at hand, whatever wanted->peer says. */
int32_t request_prepare_for(struct request *request, struct peer *peer, const struct mc_request *wanted, size_t index,
                            bool registered, struct mc_error *error);

/* Cuts it into its slices, slice_count in number, zeroed before, which stay in place until the request is released. */
void request_cut(struct request *request, struct slice *slices);

void request_release(struct request *request);

/* Does a thread of ours move its bytes? */
bool request_steps(const struct request *request);

/* Moves the next piece of one that steps. MC_ERR_PENDING while there is more, else what request_stepped is to be told,
 * which ends it. */
int32_t request_step(struct request *request);
void request_stepped(struct request *request, int32_t status);

/* May the request be moved together with `first` and those between, which have `bytes`? */
bool request_may_group(const struct request *first, const struct request *request, uint64_t bytes);

/* Moves `count` whole requests (2 to TRANSPORT_GROUP) that request_may_group has put together, and ends them. */
void request_step_group(struct request *requests, size_t count);

/* Ends one without slices. */
void request_end(struct request *request);

void request_status(const struct request *request, struct mc_request_status *ret_status);

/* Which request it is, on which path, and why it did not complete. */
void request_explain(const struct request *request, size_t index, struct mc_error *error);

#endif

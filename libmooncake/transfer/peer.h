/* transfer/peer.h - an engine's view of one peer incarnation: a channel, and a link for each transport that leads
 * there.
 *
 * Threads: any. A peer is counted; batches keep it alive after its id was closed. When its engine closes, it is shut
 * down, and whatever refers to it later finds nothing to use.
 */
#ifndef MC_TRANSFER_PEER_H
#define MC_TRANSFER_PEER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/object.h"
#include "transfer/engine.h"
#include "transfer/metrics.h"
#include "transports/transport.h"

struct peer_link {
    const struct transport_ops *ops;
    struct transport_link *link; /* NULL: no such path */
    struct link_metrics *metrics;
    atomic_bool told; /* that it has stopped working */
    char reason[TRANSPORT_REASON_MAX];
};

/* What a notification says; as for mc_peer_notify. */
struct notice {
    const void *name;
    size_t name_length;
    const void *message;
    size_t message_length;
};

struct peer {
    struct object object;
    struct list node;                          /* in engine->peers */
    struct engine *engine;                     /* a reference */
    struct channel *channel;                   /* NULL once it is shut down */
    char address[ADDRESS_TEXT_MAX];            /* as it was opened */
    struct metrics_peer *metrics;              /* the engine's */
    struct peer_link links[ENGINE_TRANSPORTS]; /* cheapest first */
};

/* Connects, for at most `timeout` ns, and some more for the way into a peer on the same host. Within an engine call. */
int32_t peer_open(struct engine *engine, const char *address, uint64_t timeout, struct peer **ret_peer,
                  struct mc_error *error);

/* Ends links and channel; for the engine's close, when no call is in progress. */
void peer_shutdown(struct peer *peer);

struct peer *peer_of(struct object *object);

/* The cheapest link that can carry the slice; NULL if none can. */
const struct peer_link *peer_choose(struct peer *peer, const struct slice *slice);

/* A pointer through which the peer's registered memory at [address, address + length) is read and, with `access` so,
 * written like the process's own, until `*ret_hold` is dropped (ref_drop): also after the peer has died or was closed.
 * What is there by then is the caller's to check. Within an engine call; waits a moment for the peer. MC_ERR_NOT_SUPPORTED
 * where no path maps (the range may also not be registered, or not with these rights), MC_ERR_NO_MEMORY. */
int32_t peer_map(struct peer *peer, uint64_t address, uint64_t length, uint32_t access, void **ret_memory,
                 struct ref **ret_hold);

/* As the public calls, within an engine call. */
int32_t peer_probe(struct peer *peer, uint64_t deadline, struct mc_error *error);
int32_t peer_notify(struct peer *peer, const struct notice *notice, uint64_t deadline, struct mc_error *error);
int64_t peer_explain(const struct peer *peer, char *text, size_t size);

/* MC_ERR_INVALID_ARGUMENT, MC_ERR_TOO_LARGE. */
int32_t notice_check(const struct notice *notice, struct mc_error *error);

/* The message NOTIFY that carries it from this engine, for free(); NULL if memory is short. */
uint8_t *notice_pack(const struct notice *notice, const struct engine *sender, uint32_t *ret_length);

#endif

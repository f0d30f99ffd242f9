/* transfer/engine.h - an engine: the loop, the server, the registry, the transports, and who uses them.
 *
 * Every call that uses an engine is between engine_enter and engine_leave, and close waits for those that are inside:
 * that takes no lock. `lock` guards the state and the lists. The struct itself lives as long as something refers to it.
 */
#ifndef MC_TRANSFER_ENGINE_H
#define MC_TRANSFER_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <mooncake/transfer.h>

#include "base/list.h"
#include "base/object.h"
#include "base/writer.h"
#include "os/address.h"
#include "transfer/notifications.h"
#include "transfer/registry.h"
#include "transports/transport.h"

#define ENGINE_TRANSPORTS 3u
#define ENGINE_SHUT ((uint32_t)1 << 31) /* nobody may enter */

struct engine_transport {
    const struct transport_ops *ops;
    struct transport *transport; /* NULL: not used */
    char reason[TRANSPORT_REASON_MAX];
};

struct engine {
    struct object object;
    pthread_mutex_t lock;
    pthread_cond_t quiet; /* nobody is inside any more */
    enum engine_state { ENGINE_OPEN, ENGINE_CLOSING, ENGINE_CLOSED } state;
    _Atomic uint32_t inside; /* calls in progress, and ENGINE_SHUT */
    bool used;               /* by what is built on it, which must end before the engine does */
    struct list peers;
    struct list batches;
    struct identity identity;
    struct auth *auth;
    struct loop *loop;
    struct server *server;
    struct registry *registry;
    struct notifications *notifications;
    struct naming *naming;
    char *topology; /* the matrix, as JSON */
    struct metrics *metrics;
    struct transport_host host;
    struct engine_transport transports[ENGINE_TRANSPORTS]; /* cheapest first */
    uint64_t connect_timeout;
    uint64_t transfer_timeout;
    uint64_t busy_poll; /* ns */
    uint32_t lanes;
    char address[ADDRESS_TEXT_MAX];
};

/* `options` is complete (of today's size) and its struct_size checked. */
int32_t engine_open(const struct mc_engine_options *options, struct engine **ret_engine, struct mc_error *error);

/* As mc_engine_close. */
int32_t engine_close(struct engine *engine);

struct engine *engine_of(struct object *object);

/* As mc_engine_metrics, within an engine call; the format must be one. */
void engine_metrics(struct engine *engine, uint32_t format, struct writer *writer);

/* MC_OK, after which engine_leave must follow; MC_ERR_CLOSED. */
int32_t engine_enter(struct engine *engine);

/* For what must work after the close too: waits while the engine is being closed. True: entered, as above. False: it is
 * closed, and everything of it has ended. */
bool engine_enter_or_closed(struct engine *engine);
void engine_leave(struct engine *engine);

/* Is somebody waiting for this call to end? */
static inline bool engine_is_closing(const struct engine *engine) {
    return (atomic_load_explicit(&engine->inside, memory_order_relaxed) & ENGINE_SHUT) != 0;
}

/* Takes the engine for the one thing that may be built on it, and gives it back: meanwhile it answers MC_ERR_BUSY to
 * being closed. MC_ERR_BUSY, MC_ERR_CLOSED. */
int32_t engine_use(struct engine *engine);
void engine_unuse(struct engine *engine);

/* ---- For what is built on engines. All within an engine call, or on the loop's thread while the engine serves. ---- */

/* Has the calls of a channel, which was greeted and is nobody's peer, take the best way there is: through shared memory,
 * if the other end is on this host. Waits for it a moment, so not on the loop's thread. */
void engine_speed_up(struct engine *engine, struct channel *channel);

/* Is a guarded transfer by a peer under way that may have found this 8-byte word of the engine's registered memory
 * equal to its guard value? To be asked by whoever has changed the word: after false, none that began before the change
 * goes on. True may also mean that another one is under way. Any thread. */
bool engine_in_flight(struct engine *engine, const void *guard);

/* From now on `lost` is called on the loop's thread whenever the last connection of a client (an incarnation) has
 * ended, of any kind: it must not wait. NULL: nobody is told, and on return nobody is being told. No more once the
 * engine closes. */
void engine_watch_clients(struct engine *engine, void (*lost)(void *context, const uint8_t incarnation[16]),
                          void *context);

/* How many connections of any kind a client has. Any thread. */
uint32_t engine_client_count(struct engine *engine, const uint8_t incarnation[16]);

/* As gone_prove of net/gone.h, for `timeout` ns at most. Any thread but the loop's. */
bool engine_prove_gone(struct engine *engine, const char *address, const uint8_t incarnation[16], uint64_t timeout);

#endif

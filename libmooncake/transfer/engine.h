/* transfer/engine.h - an engine: the loop, the server, the registry, the transports, and who uses them.
 *
 * Every call that uses an engine is between engine_enter and engine_leave, and close waits for those that are inside.
 * `lock` guards the state and the lists. The struct itself lives as long as something refers to it.
 */
#ifndef MC_TRANSFER_ENGINE_H
#define MC_TRANSFER_ENGINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <mooncake/transfer.h>

#include "base/list.h"
#include "base/object.h"
#include "os/address.h"
#include "transfer/notifications.h"
#include "transfer/registry.h"
#include "transports/transport.h"

#define ENGINE_TRANSPORTS 3u

struct engine_transport {
    const struct transport_ops *ops;
    struct transport *transport; /* NULL: not used */
    char reason[TRANSPORT_REASON_MAX];
};

struct engine {
    struct object object;
    pthread_mutex_t lock;
    pthread_cond_t quiet; /* calls has become 0 */
    enum engine_state { ENGINE_OPEN, ENGINE_CLOSING, ENGINE_CLOSED } state;
    uint32_t calls;
    struct list peers;
    struct list batches;
    struct identity identity;
    struct auth *auth;
    struct loop *loop;
    struct server *server;
    struct registry *registry;
    struct notifications *notifications;
    struct transport_host host;
    struct engine_transport transports[ENGINE_TRANSPORTS]; /* cheapest first */
    uint64_t connect_timeout;
    uint64_t transfer_timeout;
    uint32_t lanes;
    char address[ADDRESS_TEXT_MAX];
};

/* `options` is complete (of today's size) and its struct_size checked. */
int32_t engine_open(const struct mc_engine_options *options, struct engine **ret_engine, struct mc_error *error);

/* As mc_engine_close. */
int32_t engine_close(struct engine *engine);

struct engine *engine_of(struct object *object);

/* MC_OK, after which engine_leave must follow; MC_ERR_CLOSED. */
int32_t engine_enter(struct engine *engine);

/* For what must work after the close too: waits while the engine is being closed. True: entered, as above. False: it is
 * closed, and everything of it has ended. */
bool engine_enter_or_closed(struct engine *engine);
void engine_leave(struct engine *engine);

#endif

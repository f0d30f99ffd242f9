/* store/store.h - an open store: the roles that this process has in it, and the calls that are in progress.
 *
 * Every call is between store_enter and store_leave; close waits for those that are inside.
 */
#ifndef MC_STORE_STORE_H
#define MC_STORE_STORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <mooncake/store.h>

#include "base/list.h"
#include "base/object.h"
#include "store/client_side.h"
#include "store/tenant.h"
#include "store/view.h"

struct store {
    struct object object;
    struct store_engine *engine; /* a reference, until closed */
    struct chores *chores;
    struct master_service *master; /* NULL: elsewhere */
    struct master_link *link;
    struct owners owners; /* its segments; open while owners.engine isn't NULL */
    struct client_side client;
    bool has_client;
    bool verify;
    struct tenant tenant;
    uint64_t timeout;
    uint64_t space_timeout; /* of puts that have none of their own */
    pthread_mutex_t lock;
    pthread_cond_t quiet; /* calls has become 0 */
    enum store_state { STORE_OPEN, STORE_CLOSING, STORE_CLOSED } state;
    uint32_t calls;
    struct chores *workers; /* of asynchronous calls; made with the first */
    uint32_t submitted;     /* that haven't completed */
    struct list puts;       /* in steps (put_session.c), that were begun and not ended */
};

/* `options` is complete (of today's size); `given` is the engine behind options->engine, or NULL. As mc_store_open. */
int32_t store_open(const struct mc_store_options *options, struct engine *given, struct store **ret_store,
                   struct mc_error *error);

/* As mc_store_close. */
int32_t store_close(struct store *store);

struct store *store_of(struct object *object);

/* MC_OK, after which store_leave must follow; MC_ERR_CLOSED. */
int32_t store_enter(struct store *store);
void store_leave(struct store *store);

#endif

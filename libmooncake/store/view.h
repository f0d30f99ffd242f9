/* store/view.h - objects on loan: pinned where they are, or in a private copy.
 *
 * A view keeps what it needs: the attachment (mapped memory outlives its owner) and the store's engine, whose
 * connections are what keeps the owner from taking this process for gone.
 *
 * Threads: any.
 */
#ifndef MC_STORE_VIEW_H
#define MC_STORE_VIEW_H

#include <stdbool.h>

#include "base/object.h"
#include "store/attachment.h"
#include "store/client/client.h"

/* An engine as stores and views use it: counted, and closed with the last one if it is the store's own. */
struct store_engine {
    struct ref ref;
    struct engine *engine;   /* a reference */
    bool own;                /* it is the store's, and closed with the last view */
    _Atomic uint64_t viewed; /* bytes of all views */
    uint64_t view_bytes;     /* at most */
};

/* With a user's engine: MC_ERR_BUSY if a store is open on it already, MC_ERR_CLOSED. */
int32_t store_engine_new(struct engine *engine, bool own, uint64_t view_bytes, struct store_engine **ret_engine);

struct view {
    struct object object;
    struct store_engine *engine;   /* a reference */
    struct attachment *attachment; /* a reference; NULL: a copy */
    int cell;
    void *copy; /* malloc'd */
    const void *data;
    uint64_t length;
};

struct view *view_of(struct object *object);

/* Pins what is to be read, and looks at it (rule 10). MC_ERR_GUARD_MISMATCH; MC_ERR_NOT_SUPPORTED: it can't be pinned,
 * and must be copied; MC_ERR_TOO_MANY. */
int32_t view_pin(struct store_engine *engine, const struct client_read *read, bool verify, struct view **ret_view);

/* Memory for a copy of `length` bytes: data is to be filled in. MC_ERR_TOO_MANY, MC_ERR_NO_MEMORY. */
int32_t view_copy(struct store_engine *engine, uint64_t length, struct view **ret_view);

#endif

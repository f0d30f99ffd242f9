/* transfer/batch.h - requests that were submitted together, from validation to their terminal states.
 *
 * A batch owns its requests and slices. Lane callbacks end slices; `copying` serializes the threads that move bytes
 * themselves. Nothing touches a batch once its event is set, so whoever frees it waits for that.
 */
#ifndef MC_TRANSFER_BATCH_H
#define MC_TRANSFER_BATCH_H

#include <mooncake/transfer.h>

#include "base/object.h"
#include "transfer/engine.h"
#include "transfer/notices.h"
#include "transfer/queue.h"

struct batch;

struct batch_options {
    uint64_t timeout; /* not 0 */
    uint64_t user_data;
    struct queue *queue;         /* NULL: none */
    bool unregistered;           /* local memory needn't be registered: for paths that don't care */
    bool attended;               /* the caller waits for it next, and drives: no timer, nothing for the loop to do */
    const struct notice *notify; /* NULL: nobody is told */
};

/* Checks all requests and finds their paths; within an engine call. Nothing has begun. */
int32_t batch_prepare(struct engine *engine, const struct mc_request *requests, size_t count, size_t stride,
                      const struct batch_options *options, struct batch **ret_batch, struct mc_error *error);

/* The batch whose place in engine->batches is `node`. */
struct batch *batch_at(struct list *node);

struct object *batch_object(struct batch *batch);
struct batch *batch_of(struct object *object);
struct engine *batch_engine(struct batch *batch);

/* Sends it on its way; `id` is what its completion shows. Within an engine call. */
void batch_begin(struct batch *batch, uint64_t id);

bool batch_is_done(const struct batch *batch);

/* Is it done, or shows all requests as terminal, so that it will be in a moment? */
bool batch_may_retire(const struct batch *batch);

/* The status of a batch that is done; MC_ERR_PENDING before. */
int32_t batch_outcome(struct batch *batch);

/* Drives until done or `deadline`. Within an engine call. */
int32_t batch_wait(struct batch *batch, uint64_t deadline);

/* Ends what isn't terminal with `status`; the batch is done on return. Within an engine call, or by the engine's close.
 */
void batch_stop(struct batch *batch, int32_t status);

/* By the engine's close, when no call is in progress: stops it and takes it off the loop and the engine's list; its
 * owner still has it. */
void batch_abandon(struct batch *batch);

/* Takes the batch out of its engine's and its queue's books, and drops a reference. It must be done or about to (batch_may_retire), or never begun.
 * Within an engine call, or when the engine is closed. */
void batch_retire(struct batch *batch);

/* Says in *error which request of a batch that is done did not complete, and why. */
void batch_explain(const struct batch *batch, struct mc_error *error);

size_t batch_count(const struct batch *batch);
void batch_status(const struct batch *batch, size_t index, struct mc_request_status *ret_status);

#endif

/* api/handles.h - from what users hold to what it stands for, and back.
 *
 * Each `_begin` that returns MC_OK has taken a reference on the object and entered its engine; the matching `_end`
 * gives both back.
 */
#ifndef MC_API_HANDLES_H
#define MC_API_HANDLES_H

#include <stddef.h>

#include <mooncake/error.h>
#include <mooncake/store.h>

#include "store/store.h"
#include "transfer/batch.h"
#include "transfer/engine.h"
#include "transfer/peer.h"
#include "transfer/queue.h"

int32_t engine_call_begin(mc_engine *handle, struct engine **ret_engine, struct mc_error *error);
void engine_call_end(struct engine *engine);

int32_t peer_call_begin(uint64_t id, struct peer **ret_peer, struct mc_error *error);
void peer_call_end(struct peer *peer);

/* Also works on a batch whose engine is closed: *ret_open says whether it was entered. */
int32_t batch_call_begin(uint64_t id, struct batch **ret_batch, bool *ret_open);
void batch_call_end(struct batch *batch, bool open);

int32_t store_call_begin(mc_store *handle, struct store **ret_store, struct mc_error *error);
void store_call_end(struct store *store);

int32_t queue_call_begin(mc_queue *handle, struct queue **ret_queue);
void queue_call_end(struct queue *queue);

/* Copies an option struct of the caller's size into one of today's: what the caller doesn't know is zero, and what we
 * don't know must be. `minimum`: its size in the first release. MC_ERR_INVALID_ARGUMENT. */
int32_t options_take(void *options, size_t size, size_t minimum, const void *given, struct mc_error *error);

#endif

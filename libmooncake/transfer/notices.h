/* transfer/notices.h - the notifications that a batch sends to its peers when all its requests have completed.
 *
 * They are made before anything begins, so that nothing can be short later, and sent by the loop. `ended` is called
 * once, after notices_send, when all have been delivered or one has failed and no other is under way: from the loop's
 * thread, or that of whoever sends or stops, maybe with a lane's lock held.
 *
 * Threads: any; stopping is one at a time, and freeing comes after `ended`, or without notices_send.
 */
#ifndef MC_TRANSFER_NOTICES_H
#define MC_TRANSFER_NOTICES_H

#include <stdbool.h>
#include <stdint.h>

#include "transfer/peer.h"

struct notices;

/* For peers of the engine, none yet. NULL if memory is short. */
struct notices *notices_new(struct engine *engine, const struct notice *notice,
                            void (*ended)(void *context, int32_t status), void *context);

/* Adds a peer, once, which the caller keeps until the notices are freed. False if memory is short. */
bool notices_add(struct notices *notices, struct peer *peer);

void notices_send(struct notices *notices);

/* Ends those that haven't arrived with `status`. On return `ended` was called if they had been sent; if they are sent
 * later, it's called at once. */
void notices_stop(struct notices *notices, int32_t status);

/* After `ended`, or when they are never sent: the loop's thread has nothing to do with them any more, and may end before
 * they are freed. NULL is fine. */
void notices_leave_loop(struct notices *notices);

/* Once they have left a loop on which they were sent. NULL is fine; returns NULL. */
struct notices *notices_free(struct notices *notices);

#endif

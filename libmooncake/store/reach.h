/* store/reach.h - the segments that a client reaches: private to client_side.c.
 *
 * Threads: any, but for what is said.
 */
#ifndef MC_STORE_REACH_H
#define MC_STORE_REACH_H

#include "store/client_side.h"

/* The segment's attachment with a reference; NULL if it was never attached. */
struct attachment *reach_take(struct client_side *side, const struct message_id *id);

/* Reaches the segment, for the first time or again, and tells the core how that went; waits until `deadline` at most. */
void reach_attach(struct client_side *side, const struct message_id *id, const char *address, uint64_t deadline);

/* The core's `detach`: with the lock held. The attachment is dropped later, from where no lock is held. */
void reach_detach(void *context, struct client_segment *segment);

/* Drops what the core has let go. On the loop's thread, or when nobody uses the client any more. */
void reach_drop(struct client_side *side);

/* The chore that touches mapped memory, piece by piece: the copies to come then meet no page faults. */
void reach_touch(struct chore *chore);

#endif

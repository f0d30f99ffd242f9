/* store/master_link.h - the way to the master, inside this process or elsewhere.
 *
 * A link to another process connects anew by itself, also to a master that was restarted; meanwhile requests fail at
 * once, and whoever asks tries again.
 *
 * Threads: any.
 */
#ifndef MC_STORE_MASTER_LINK_H
#define MC_STORE_MASTER_LINK_H

#include <stdint.h>

#include "store/chores.h"
#include "store/errand.h"
#include "store/master_service.h"

struct master_link;

/* To a master in this process, which outlives the link. */
int32_t master_link_inside(struct master_service *service, struct master_link **ret_link);

/* To the one at `address`; connects, and waits for that until `deadline`. MC_ERR_ADDRESS, MC_ERR_UNREACHABLE,
 * MC_ERR_AUTHENTICATION, … with words. */
int32_t master_link_open(struct engine *engine, struct chores *chores, const char *address, uint64_t deadline,
                         struct master_link **ret_link, struct mc_error *error);

bool master_link_is_inside(const struct master_link *link);

/* Nobody else uses the link any more, its errands are done, and the chores are stopped. NULL is fine; returns NULL. */
struct master_link *master_link_close(struct master_link *link);

/* Ends the waiting of this process's threads with MC_ERR_CLOSED; the link stays usable. */
void master_link_interrupt(struct master_link *link);

/* Ends everything in flight with MC_ERR_CLOSED; nothing new begins. */
void master_link_break(struct master_link *link);

/* As master_service_call and master_service_begin; also what lanes answer. */
int32_t master_link_call(struct master_link *link, const struct letter *request, uint64_t deadline,
                         struct letter **ret_answer);
void master_link_begin(struct master_link *link, struct errand *errand);

/* In the place of errand_end. */
void master_link_end(struct master_link *link, struct errand *errand);

#endif

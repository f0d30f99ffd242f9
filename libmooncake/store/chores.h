/* store/chores.h - a thread for what may wait: connecting, proofs of death, faulting memory in, asynchronous calls.
 *
 * Threads: any. A chore runs once for each time it was posted.
 */
#ifndef MC_STORE_CHORES_H
#define MC_STORE_CHORES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct chores;

/* Embedded in its owner; posted again only after it began to run (or it is a no-op). */
struct chore {
    struct list node;
    bool queued;
    void (*run)(struct chore *chore);
};

static inline void chore_init(struct chore *chore, void (*run)(struct chore *chore)) {
    list_init(&chore->node);
    chore->queued = false;
    chore->run = run;
}

/* Starts `threads` threads, whose names begin with `name`. MC_ERR_SYSTEM, MC_ERR_NO_MEMORY. */
int32_t chores_start(const char *name, uint32_t threads, struct chores **ret_chores);

/* Waits for the chore that runs, and drops those that don't yet; posting does nothing from then on. NULL is fine. */
void chores_stop(struct chores *chores);

/* Stops them if need be, and frees them: nobody posts any more. NULL is fine; returns NULL. */
struct chores *chores_free(struct chores *chores);

void chores_post(struct chores *chores, struct chore *chore);

/* Takes a chore back that was posted and hasn't begun. On the one thread of the chores: so it isn't running, either. */
void chores_withdraw(struct chores *chores, struct chore *chore);

#endif

/* store/tender.h - looks after a core behind the scenes: steps it when something is due, carries its letters, and brings
 * it the answers. All on the engine's loop.
 *
 * The core's owner gives the functions, which take the core's lock themselves; none is called with a lock held.
 */
#ifndef MC_STORE_TENDER_H
#define MC_STORE_TENDER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "os/loop.h"
#include "store/errand.h"
#include "transfer/engine.h"

struct tender;

struct tender_ops {
    /* The core's step; letters go to `out`. Returns when it is due again. */
    uint64_t (*step)(void *context, uint64_t now, struct outbox *out);
    /* Begins, or fails, an errand. */
    void (*send)(void *context, struct errand *errand);
    /* The errand is done: its answer, or its absence, for the core. Calls errand_end or the like. */
    void (*answered)(void *context, uint64_t now, struct errand *errand);
};

struct tender {
    const struct tender_ops *ops;
    void *context;
    struct engine *engine;
    struct loop_task task;
    struct loop_timer timer;
    _Atomic uint64_t armed; /* when the core is stepped next */
    pthread_mutex_t lock;   /* of `finished` */
    struct list finished;   /* errands that are done */
    struct list active;     /* on their way; the loop's thread alone */
    bool stopping;          /* the loop's thread alone */
};

/* Begins to look after the core. */
void tender_start(struct tender *tender, struct engine *engine, const struct tender_ops *ops, void *context);

/* Something has happened: step soon. Any thread, also under the core's lock. */
void tender_kick(struct tender *tender);

/* The core is due at `when`: step it then, or sooner. Costs nothing where that is known. */
void tender_wake(struct tender *tender, uint64_t when);

/* Ends all errands and looks after it no more. Not on the loop's thread. */
void tender_stop(struct tender *tender);

#endif

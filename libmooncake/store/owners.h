/* store/owners.h - the segments of a store: they come and go while it is open, each with an owner of its own.
 *
 * Peers ask the engine; which owner is meant, their message says.
 *
 * Threads: any.
 */
#ifndef MC_STORE_OWNERS_H
#define MC_STORE_OWNERS_H

#include <pthread.h>

#include "store/owner_service.h"

#define OWNERS_SERVICES 3u
#define SEGMENT_MIN 65536u  /* bytes */
#define SEGMENT_ID_TEXT 37u /* a segment's id in words, with its NUL: 01234567-89ab-cdef-0123-456789abcdef */

struct owners {
    struct engine *engine;
    struct chores *chores;
    struct master_link *link;
    /* A segment is no more: nothing of this process need keep it. On the chores' thread. */
    void (*gone)(void *context, const struct message_id *segment);
    void *context;
    pthread_mutex_t lock;
    pthread_cond_t left; /* a segment has */
    struct list mounts;  /* the oldest first */
    uint64_t serial;     /* of the last one */
    struct service services[OWNERS_SERVICES];
    int32_t added; /* of the services: MC_OK, or why they aren't there */
};

/* `engine`, `chores`, `link` and what is to be called are set. MC_ERR_BUSY: the engine has other owners. */
int32_t owners_open(struct owners *owners, struct mc_error *error);

/* Proves nothing any more, and hears of no clients: to be called before the chores are stopped. */
void owners_stop(struct owners *owners);

/* The master link is broken, and the chores are stopped. Not on the loop's thread. */
void owners_close(struct owners *owners);

/* Adds a segment, and waits until it is part of the pool. MC_ERR_UNAVAILABLE: it isn't by `deadline`, and goes again. */
int32_t owners_mount(struct owners *owners, const struct segment_source *source, const char *name, uint64_t deadline,
                     struct message_id *ret_segment, struct mc_error *error);

/* Lets the segment drain for so long, and go then. Without a grace it waits until it has gone. MC_ERR_SEGMENT_NOT_FOUND;
 * MC_ERR_TIMEOUT: it goes after `deadline`. */
int32_t owners_unmount(struct owners *owners, const struct message_id *segment, uint64_t grace, uint64_t deadline,
                       struct mc_error *error);

/* Tells the master that all go, and waits at most until `deadline`. */
void owners_leave(struct owners *owners, uint64_t deadline);

/* The owner that has or had a segment of this id, with a reference; NULL. All zero: the oldest. */
struct owner_service *owners_find(struct owners *owners, const struct message_id *segment);

/* Calls `visit` for each that isn't closed, the oldest first, with a lock held. */
void owners_each(struct owners *owners, void (*visit)(void *context, const struct owner_description *description),
                 void *context);

/* May there be such a segment? MC_ERR_INVALID_ARGUMENT, with words. */
int32_t segment_check(const struct segment_source *source, const char *name, struct mc_error *error);

void segment_id_print(const struct message_id *id, char text[SEGMENT_ID_TEXT]);
bool segment_id_scan(const char *text, struct message_id *ret_id);

#endif

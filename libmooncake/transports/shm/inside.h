/* transports/shm/inside.h - a guest, for the files that are it: guest.c, reach.c and move.c. */
#ifndef MC_TRANSPORTS_SHM_INSIDE_H
#define MC_TRANSPORTS_SHM_INSIDE_H

#include <pthread.h>

#include "transports/shm/direct.h"
#include "transports/shm/guest.h"
#include "transports/shm/regions.h"

/* Whose answer is owed, or what is to be asked for. */
struct shm_wanted {
    uint32_t slot;
    uint64_t key;
    uint64_t number;
    uint64_t size;
    bool writable;
};

struct shm_guest {
    struct shm_regions regions;
    struct shm_counters *counters;
    struct shm_direct direct;
    atomic_bool dead;
    atomic_bool late;     /* an answer is owed for some time */
    pthread_mutex_t lock; /* of the regions, but for looking up */
    struct loop *loop;
    struct loop_watch watch;
    pthread_cond_t asked; /* `asking` has become false */
    bool asking;          /* with the lock held */
    bool owes;            /* the answer for `owed` hasn't come; both are the asker's */
    struct shm_wanted owed;
    const struct shm_page *page;
};

/* Learns what has changed in the region page. Takes the lock. */
static inline void shm_guest_refresh(struct shm_guest *guest) {
    pthread_mutex_lock(&guest->lock);
    shm_regions_refresh(&guest->regions);
    pthread_mutex_unlock(&guest->lock);
}

static inline uint32_t shm_right_for(const struct slice *slice) {
    return slice->opcode == MC_READ ? MC_REMOTE_READ : MC_REMOTE_WRITE;
}

#endif

/* store/owner_service.h - an owner at work: its core, the lock around it, its memory, and its conversation with the
 * master.
 *
 * Threads: any. Peers are served on the engine's loop, as is what falls due.
 */
#ifndef MC_STORE_OWNER_SERVICE_H
#define MC_STORE_OWNER_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "store/chores.h"
#include "store/master_link.h"
#include "store/owner/owner.h"

/* The segment and the pin tables; counted, since views in this process outlive the owner. */
struct segment_memory {
    struct ref ref;
    struct engine *engine;
    uint64_t ids[2]; /* of the two allocations */
    uint8_t *base;
    uint64_t size;
    struct pin_table *pins;
    uint32_t pin_tables;
    bool registered[2];
};

struct owner_service;

struct owner_service_options {
    struct engine *engine; /* outlives the service */
    struct chores *chores;
    struct master_link *link;
    const char *name; /* of the segment; NULL: the engine's address */
    uint64_t size;    /* rounded up to whole pages */
    struct store_timing timing;
};

/* MC_ERR_NO_MEMORY, MC_ERR_SYSTEM, … with words. */
int32_t owner_service_open(const struct owner_service_options *options, struct owner_service **ret_service,
                           struct mc_error *error);

/* Tells the master that the segment goes away, waiting at most until `deadline` for its answer. */
void owner_service_leave(struct owner_service *service, uint64_t deadline);

/* Proves nothing any more: to be called before the chores are stopped. NULL is fine. */
void owner_service_stop(struct owner_service *service);

/* The master link is broken, and the chores are stopped. Not on the loop's thread. NULL is fine; returns NULL. */
struct owner_service *owner_service_close(struct owner_service *service);

/* A request of this process's own client: the answer's letter is the caller's to free. The status is the owner's. */
int32_t owner_service_call(struct owner_service *service, const struct letter *request, struct letter **ret_answer);

/* The memory, without a reference. */
struct segment_memory *owner_service_memory(struct owner_service *service);

bool owner_service_mounted(struct owner_service *service);
struct owner_usage owner_service_usage(struct owner_service *service);

#endif

/* store/owner_service.h - an owner at work: its core, the lock around it, its memory, and its conversation with the
 * master.
 *
 * Counted: attachments of this process keep it. Once closed, it answers that the segment isn't there.
 *
 * Threads: any. What falls due is done on the engine's loop.
 */
#ifndef MC_STORE_OWNER_SERVICE_H
#define MC_STORE_OWNER_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "store/chores.h"
#include "store/master_link.h"
#include "store/owner/owner.h"
#include "store/segment_memory.h"

struct owner_service;

struct owner_service_options {
    struct engine *engine; /* outlives the service */
    struct chores *chores;
    struct master_link *link;
    struct chore *end; /* posted when the time of owner_service_drain has come */
    const char *name;  /* of the segment, shorter than MESSAGE_NAME_MAX; NULL: the engine's address */
    struct segment_source source;
    struct store_timing timing;
};

/* With one reference. MC_ERR_NO_MEMORY, MC_ERR_SYSTEM, … with words. */
int32_t owner_service_open(const struct owner_service_options *options, struct owner_service **ret_service,
                           struct mc_error *error);

void owner_service_take(struct owner_service *service);
void owner_service_drop(struct owner_service *service);

/* Nothing is granted any more; at `ends_at` options->end is posted. An earlier time counts. */
void owner_service_drain(struct owner_service *service, uint64_t ends_at);

/* Ends what the segment holds, and tells the master that it goes away, waiting at most until `deadline` for its answer. */
int32_t owner_service_leave(struct owner_service *service, uint64_t deadline);

/* Proves nothing any more: to be called before the chores are stopped. */
void owner_service_stop(struct owner_service *service);

/* The master has answered UNMOUNT or the link is broken; on the thread of the chores, or when they are stopped. */
void owner_service_close(struct owner_service *service);

/* A client that this owner knows may be gone: finds out. */
void owner_service_suspect(struct owner_service *service);

/* A request of a client: the answer's letter is the caller's to free. The status is the owner's. */
int32_t owner_service_call(struct owner_service *service, uint16_t type, const uint8_t *body, uint32_t length,
                           struct letter **ret_answer);

/* A reference to the memory; NULL: closed. */
struct segment_memory *owner_service_take_memory(struct owner_service *service);

/* Has its segment this id, or had it before? */
bool owner_service_answers_to(struct owner_service *service, const struct message_id *segment);

bool owner_service_mounted(struct owner_service *service);

struct owner_description {
    struct message_id segment;
    char name[MESSAGE_NAME_MAX];
    struct owner_usage usage;
    bool mounted;
    bool drains;
};

/* False: closed. */
bool owner_service_describe(struct owner_service *service, struct owner_description *ret_description);

#endif

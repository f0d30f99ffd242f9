/* store/master_service.h - a master at work: its core, the lock around it, and those who wait for its answers.
 *
 * It serves peers on an engine's listener, and callers of its own process. The core runs on whichever thread brings a
 * request, under the lock; what falls due, on the engine's loop.
 */
#ifndef MC_STORE_MASTER_SERVICE_H
#define MC_STORE_MASTER_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "store/errand.h"
#include "store/master/master.h"
#include "transfer/engine.h"

struct master_service;

struct master_service_options {
    struct engine *engine;      /* outlives the service */
    struct master_options core; /* members_changed and context are the service's */
    const char *state_file;     /* where epoch and members are kept; NULL: nowhere */
    bool alone;                 /* an empty state is the truth: nobody is waited for but the members in it */
};

/* MC_ERR_SYSTEM, MC_ERR_INVALID_ARGUMENT (a state file that isn't one), MC_ERR_NO_MEMORY. */
int32_t master_service_open(const struct master_service_options *options, struct master_service **ret_service,
                            struct mc_error *error);

/* Answers all who wait, and whoever asks from now on, with MC_ERR_CLOSED. */
void master_service_shut(struct master_service *service);

/* Answers those of this process who wait with MC_ERR_CLOSED, and no others. */
void master_service_interrupt(struct master_service *service);

/* As master_service_shut, and frees it. Not on the loop's thread. NULL is fine; returns NULL. */
struct master_service *master_service_close(struct master_service *service);

/* Refuses new requests with MC_ERR_UNAVAILABLE; how many still wait for an answer, owners' POLLs left
 * aside. */
uint64_t master_service_drain(struct master_service *service);

bool master_service_serves(struct master_service *service);
struct master_count master_service_count(struct master_service *service);

/* How often a request of this type came, from peers and from this process, and was answered by a status that isn't
 * MC_OK. */
struct master_traffic {
    uint64_t requests;
    uint64_t failures;
};

struct master_traffic master_service_traffic(struct master_service *service, uint16_t type);

/* Calls `look` with the core, under the service's lock, if it serves; whether it does. For store/master/describe.h:
 * `look` must be short. */
bool master_service_look(struct master_service *service, void (*look)(void *context, const struct master *core),
                         void *context);

/* Asks for this process, and waits until `deadline`. The answer's letter is the caller's to free; MC_ERR_TIMEOUT,
 * MC_ERR_CLOSED, or what the master says. */
int32_t master_service_call(struct master_service *service, const struct letter *request, uint64_t deadline,
                            struct letter **ret_answer);

/* The same without waiting. `done` is called under the service's lock. */
void master_service_begin(struct master_service *service, struct errand *errand);

#endif

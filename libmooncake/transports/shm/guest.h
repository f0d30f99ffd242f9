/* transports/shm/guest.h - the side that reaches a peer's memory and copies. */
#ifndef MC_TRANSPORTS_SHM_GUEST_H
#define MC_TRANSPORTS_SHM_GUEST_H

#include "transports/transport.h"

struct shm_guest;

/* Asks the peer for an invitation over the channel and proves to be on the same host by following it.
 * MC_ERR_NOT_SUPPORTED with a reason if the peer can't be reached so. */
int32_t shm_guest_open(const struct transport_host *host, struct channel *channel, struct shm_guest **ret_guest,
                       char reason[TRANSPORT_REASON_MAX]);

/* Has the channel call through a ring, if the peer gives one; before any other use of the guest. */
void shm_guest_control(struct shm_guest *guest, struct channel *channel);

void shm_guest_close(struct shm_guest *guest);

/* As transport_ops. */
const char *shm_guest_trouble(struct shm_guest *guest);
void shm_guest_explain(struct shm_guest *guest, struct writer *writer);
bool shm_guest_reach(struct shm_guest *guest, const struct slice *slice);
int32_t shm_guest_map(struct shm_guest *guest, uint64_t address, uint64_t length, uint32_t access, void **ret_memory,
                      struct ref **ret_hold);
int32_t shm_guest_step(struct shm_guest *guest, struct slice *slice);
void shm_guest_step_group(struct shm_guest *guest, struct slice *const *slices, size_t count, int32_t *ret_statuses);

#endif

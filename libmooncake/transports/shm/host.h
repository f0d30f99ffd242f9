/* transports/shm/host.h - the side whose memory is reached: region page, invitations, guests. */
#ifndef MC_TRANSPORTS_SHM_HOST_H
#define MC_TRANSPORTS_SHM_HOST_H

#include "transports/transport.h"

struct shm_host;

/* Makes the region page and the UNIX listener, and serves INVITE. MC_ERR_NOT_SUPPORTED with a reason. */
int32_t shm_host_open(const struct transport_host *host, struct shm_host **ret_shm, char reason[TRANSPORT_REASON_MAX]);

/* On the loop's thread: no new guests, and those there are are sent away. */
void shm_host_stop(struct shm_host *shm);
void shm_host_close(struct shm_host *shm);

/* As transport_ops. Any thread, one at a time for the same region. */
void shm_host_publish(struct shm_host *shm, struct region *region);
int32_t shm_host_withdraw(struct shm_host *shm, struct region *region, uint64_t deadline);
bool shm_host_in_flight(struct shm_host *shm, const void *guard);

#endif

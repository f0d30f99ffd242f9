/* transports/shm/enter.h - how a guest gets in: an invitation, shown at the peer's UNIX socket. */
#ifndef MC_TRANSPORTS_SHM_ENTER_H
#define MC_TRANSPORTS_SHM_ENTER_H

#include "transports/shm/page.h"
#include "transports/transport.h"

struct shm_entry {
    int fd; /* the socket, for socket_close */
    const struct shm_page *page;
    struct shm_counters *counters;
};

/* Asks the peer for an invitation over the channel, and proves to be on the same host by following it; again if others
 * are in the way. Waits 2 s at most, and no longer than connecting may take. MC_ERR_NOT_SUPPORTED with a reason. */
int32_t shm_enter(const struct transport_host *host, struct channel *channel, struct shm_entry *ret_entry,
                  char reason[TRANSPORT_REASON_MAX]);

/* Waits for a packet of that kind, with at most `capacity` descriptors, which are the caller's. False with errno:
 * ETIMEDOUT at the deadline, ECONNRESET at the end, EPROTO for another packet. */
bool shm_receive(int fd, enum shm_kind kind, uint64_t deadline, struct shm_packet *ret_packet, int *fds,
                 size_t capacity, size_t *ret_count);

#endif

/* transports/shm/control.h - how a connection's frames get into shared memory: a ring, for a guest that asks. */
#ifndef MC_TRANSPORTS_SHM_CONTROL_H
#define MC_TRANSPORTS_SHM_CONTROL_H

#include "transports/shm/guest.h"
#include "transports/transport.h"

/* Host, on the loop's thread: makes a ring for that client and sends its descriptors, or why there is none. False: the
 * packet didn't leave. */
bool shm_control_give(int fd, struct server *server, const uint8_t client[16]);

/* Guest: asks for a ring, and has the channel call through it. Before anything else is asked on the socket. False if
 * the socket is of no more use: no answer within a second, or nonsense. */
bool shm_control_take(int fd, struct channel *channel);

/* Enters for a ring only, and leaves. Without one, the channel stays as it is. */
void shm_control_open(const struct transport_host *host, struct channel *channel);

#endif

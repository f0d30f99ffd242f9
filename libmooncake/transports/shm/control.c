/* transports/shm/control.c - how a connection's frames get into shared memory.
 *
 * Owns nothing: the ring is the server's at one end, the channel's at the other, and outlives the UNIX socket on which
 * it was asked for.
 */
#include "transports/shm/control.h"

#include <errno.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/ring.h"
#include "os/fork.h"
#include "os/memfd.h"
#include "os/socket.h"
#include "transports/shm/enter.h"

#define RING_TIME CLOCK_SECOND

bool shm_control_give(int fd, struct server *server, const uint8_t client[16]) {
    struct shm_packet reply = {.kind = SHM_RINGED};
    int fds[2] = {-1, -1};
    struct ring *ring = ring_make(&fds[0], &fds[1]);
    bool sent;

    reply.status = ring != NULL ? server_adopt(server, client, ring) : MC_ERR_NO_MEMORY;
    if (reply.status != MC_OK)
        ring_close(ring);
    /* If it doesn't leave, the session ends with the last descriptor of the guest's end of the bell. */
    sent = socket_send_fds(fd, &reply, sizeof(reply), fds, reply.status == MC_OK ? 2 : 0) > 0;
    fork_close(fds[0]);
    fork_close(fds[1]);
    return sent;
}

bool shm_control_take(int fd, struct channel *channel) {
    struct shm_packet packet = {.kind = SHM_RING}, answer;
    struct ring *ring = NULL;
    int fds[2] = {-1, -1};
    size_t count = 0;

    if (socket_send_fds(fd, &packet, sizeof(packet), NULL, 0) < 0 ||
        !shm_receive(fd, SHM_RINGED, clock_after(clock_now(), RING_TIME), &answer, fds, 2, &count))
        return false;
    if (answer.status == MC_OK && count == 2) {
        ring = ring_map(fds[0], fds[1]);
        fds[1] = -1;
    }
    fork_close(fds[0]);
    fork_close(fds[1]);
    if (ring != NULL)
        channel_adopt(channel, ring);
    else
        log_debug("no ring from a peer on this host: status %d", answer.status);
    return true;
}

void shm_control_open(const struct transport_host *host, struct channel *channel) {
    char reason[TRANSPORT_REASON_MAX];
    struct shm_entry entry;

    if (shm_enter(host, channel, &entry, reason) != MC_OK) {
        log_debug("no ring: %s", reason);
        return;
    }
    (void)shm_control_take(entry.fd, channel);
    memfd_unmap((void *)(uintptr_t)entry.page, memfd_round(sizeof(*entry.page)));
    memfd_unmap(entry.counters, memfd_round(sizeof(*entry.counters)));
    socket_close(entry.fd);
}

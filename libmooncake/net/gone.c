/* net/gone.c - proof that an engine incarnation no longer exists.
 *
 * The kernel closes the listener of a process after its last thread has ended, and an engine that is closed does so
 * after all that it had under way: a refused connection says that nothing of it goes on. An engine that answers instead is asked for an incarnation that nobody has: it shows
 * its own in its HELLO, and refuses as it does whoever is wrong.
 */
#include "net/gone.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "os/address.h"
#include "os/socket.h"

#define ADDRESSES_MAX 16u /* of a name; with more, none is proved */

/* False at the deadline. */
static bool wait_for(int fd, short events, uint64_t deadline) {
    struct pollfd polled = {.fd = fd, .events = events};
    int ready;

    do
        ready = poll(&polled, 1, clock_poll_ms(deadline, clock_now(), -1));
    while (ready < 0 && errno == EINTR);
    return ready > 0;
}

/* Is it another engine that listens at the connection's other end? */
static bool is_another(const struct identity *self, int fd, const uint8_t incarnation[16], uint64_t deadline) {
    struct handshake handshake;
    uint8_t nobody[16];
    int32_t status;

    if (auth_random(nobody, sizeof(nobody)) != MC_OK || handshake_begin(&handshake, self, AUTH_CLIENT, nobody) != MC_OK)
        return false;
    while ((status = handshake_step(&handshake, fd)) == MC_ERR_PENDING)
        if (!wait_for(fd, handshake_sending(&handshake) ? POLLOUT : POLLIN, deadline))
            return false;
    return status == MC_ERR_STALE_PEER && memcmp(handshake.other.incarnation, incarnation, 16) != 0;
}

static bool prove_at(const struct identity *self, const struct address *address, const uint8_t incarnation[16],
                     uint64_t deadline) {
    struct mc_error error = MC_ERROR_INIT;
    bool gone = false;
    int fd, reason;

    if (socket_connect(address, &fd, &error) != MC_OK)
        return error.system_errno == ECONNREFUSED;
    if (wait_for(fd, POLLOUT, deadline)) {
        reason = socket_error(fd);
        gone = reason == ECONNREFUSED || (reason == 0 && is_another(self, fd, incarnation, deadline));
    }
    socket_close(fd);
    return gone;
}

bool gone_prove(const struct identity *self, const char *address, const uint8_t incarnation[16], uint64_t deadline) {
    struct address addresses[ADDRESSES_MAX];
    struct address_text parts;
    size_t count = 0;

    if (address_parse(address, &parts, NULL) != MC_OK || parts.port <= 0 ||
        address_resolve(parts.host, (uint16_t)parts.port, addresses, ADDRESSES_MAX, &count, NULL) != MC_OK)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!prove_at(self, &addresses[i], incarnation, deadline))
            return false;
    return count < ADDRESSES_MAX;
}

/* transports/shm/enter.c - how a guest gets in: an invitation, shown at the peer's UNIX socket.
 *
 * Owns nothing: what it gets is the caller's. Any thread; it waits.
 *
 * When many come at once, an invitation may be refused, replaced by a newer one of the same engine, or the socket's
 * queue be full: all that passes, so the whole is tried anew after a pause. What doesn't pass is told at once.
 */
#include "transports/shm/enter.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"
#include "os/fork.h"
#include "os/memfd.h"
#include "os/socket.h"
#include "wire/message.h"

#define ENTER_TIME (2 * CLOCK_SECOND)
#define FIRST_PAUSE CLOCK_MILLISECOND
#define LONGEST_PAUSE (32 * CLOCK_MILLISECOND)

bool shm_receive(int fd, enum shm_kind kind, uint64_t deadline, struct shm_packet *ret_packet, int *fds,
                 size_t capacity, size_t *ret_count) {
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    ptrdiff_t got = -1;

    while (got < 0) {
        if (poll(&polled, 1, clock_poll_ms(deadline, clock_now(), -1)) == 0) {
            errno = ETIMEDOUT;
            return false;
        }
        got = socket_receive_fds(fd, ret_packet, sizeof(*ret_packet), fds, capacity, ret_count);
        if (got < 0 && errno != EAGAIN && errno != EINTR)
            return false;
    }
    if (got == (ptrdiff_t)sizeof(*ret_packet) && ret_packet->kind == (uint32_t)kind)
        return true;
    while (*ret_count > 0)
        fork_close(fds[--*ret_count]);
    errno = got == 0 ? ECONNRESET : EPROTO;
    return false;
}

static int32_t invite(struct channel *channel, uint64_t deadline, char name[64],
                      struct message_invitation *ret_invitation) {
    uint8_t reply[512];
    uint32_t length = 0;
    int32_t status = channel_call(channel, MESSAGE_INVITE, NULL, 0, deadline, reply, sizeof(reply), &length);

    if (status == MC_OK)
        status = message_unpack_invitation(reply, length, ret_invitation);
    if (status == MC_OK && (ret_invitation->name.length == 0 || ret_invitation->name.length > 63))
        status = MC_ERR_PROTOCOL;
    if (status != MC_OK)
        return status;
    memcpy(name, ret_invitation->name.data, ret_invitation->name.length);
    name[ret_invitation->name.length] = '\0';
    return MC_OK;
}

/* Maps the two pages that came with a WELCOME. */
static bool take_pages(const int fds[2], struct shm_entry *entry) {
    void *page = NULL, *counters = NULL;

    if (memfd_map(fds[0], 0, memfd_round(sizeof(struct shm_page)), false, &page) == 0 &&
        ((const struct shm_page *)page)->magic == SHM_MAGIC &&
        memfd_map(fds[1], 0, memfd_round(sizeof(struct shm_counters)), true, &counters) == 0) {
        entry->page = page;
        entry->counters = counters;
        return true;
    }
    memfd_unmap(page, memfd_round(sizeof(struct shm_page)));
    return false;
}

/* Shows the token at the UNIX socket, and takes the two pages. False with a reason. */
static bool say_hello(struct shm_entry *entry, const struct message_invitation *invitation, uint64_t deadline,
                      char reason[TRANSPORT_REASON_MAX], bool *ret_passes) {
    struct shm_packet hello = {.kind = SHM_HELLO}, welcome;
    uint32_t user;
    size_t count = 0;
    int fds[2];
    bool good;

    memcpy(hello.token, invitation->token.bytes, 16);
    if (socket_peer_user(entry->fd, &user) != 0 || user != geteuid()) {
        text_copy(reason, TRANSPORT_REASON_MAX, "the peer runs as another user");
        return false;
    }
    if (socket_send_fds(entry->fd, &hello, sizeof(hello), NULL, 0) < 0 ||
        !shm_receive(entry->fd, SHM_WELCOME, deadline, &welcome, fds, 2, &count)) {
        *ret_passes = errno == ECONNRESET || errno == EPIPE;
        snprintf(reason, TRANSPORT_REASON_MAX, "the peer's UNIX socket doesn't answer: %s", strerror(errno));
        return false;
    }
    good = welcome.status == MC_OK && memcmp(welcome.token, invitation->answer.bytes, 16) == 0 && count == 2 &&
           take_pages(fds, entry);
    while (count > 0)
        fork_close(fds[--count]);
    if (!good && welcome.status != MC_OK)
        snprintf(reason, TRANSPORT_REASON_MAX, "the peer lets nobody in: %s", status_text(welcome.status));
    else if (!good)
        text_copy(reason, TRANSPORT_REASON_MAX, "the peer's answer on the UNIX socket is not the one it announced");
    return good;
}

/* One attempt. False with a reason, and whether that may pass. */
static bool attempt(struct channel *channel, uint64_t deadline, struct shm_entry *ret_entry,
                    char reason[TRANSPORT_REASON_MAX], bool *ret_passes) {
    struct message_invitation invitation;
    struct shm_entry entry = {.fd = -1};
    char name[64];
    int32_t status = invite(channel, deadline, name, &invitation);

    *ret_passes = status == MC_ERR_TOO_MANY;
    if (status != MC_OK) {
        snprintf(reason, TRANSPORT_REASON_MAX, "the peer gives no invitation: %s",
                 status == MC_ERR_BUSY ? "it has as many guests as it can" : status_text(status));
        return false;
    }
    entry.fd = socket_unix_connect(name);
    if (entry.fd < 0 && errno == ECONNREFUSED) {
        text_copy(reason, TRANSPORT_REASON_MAX, "the peer is on another host, or in another network namespace");
        return false;
    }
    if (entry.fd < 0) {
        *ret_passes = errno == EAGAIN;
        snprintf(reason, TRANSPORT_REASON_MAX, "no connection to the peer's UNIX socket: %s",
                 errno == EAGAIN ? "too many wait there" : strerror(errno));
        return false;
    }
    if (!say_hello(&entry, &invitation, deadline, reason, ret_passes)) {
        socket_close(entry.fd);
        return false;
    }
    *ret_entry = entry;
    return true;
}

/* Between half of `pause` and all of it, so that those who met don't meet again. */
static void rest(uint64_t pause) {
    uint64_t length = pause / 2 + clock_now() % (pause / 2);
    struct timespec time = {.tv_sec = 0, .tv_nsec = (long)length};

    nanosleep(&time, NULL);
}

int32_t shm_enter(const struct transport_host *host, struct channel *channel, struct shm_entry *ret_entry,
                  char reason[TRANSPORT_REASON_MAX]) {
    uint64_t limit = host->connect_timeout < ENTER_TIME ? host->connect_timeout : ENTER_TIME;
    uint64_t deadline = clock_after(clock_now(), limit);
    uint64_t pause = FIRST_PAUSE;
    char words[TRANSPORT_REASON_MAX];
    bool passes;

    while (!attempt(channel, deadline, ret_entry, words, &passes)) {
        if (!passes || clock_after(clock_now(), pause) >= deadline) {
            text_copy(reason, TRANSPORT_REASON_MAX, words);
            return MC_ERR_NOT_SUPPORTED;
        }
        rest(pause);
        pause = pause * 2 < LONGEST_PAUSE ? pause * 2 : LONGEST_PAUSE;
    }
    return MC_OK;
}

/* os/socket.c - makes stream sockets over TCP, and packet sockets in the abstract UNIX namespace.
 *
 * Owns nothing; descriptors are the caller's, and end by socket_close. Any thread.
 *
 * Invariant: every descriptor made here is non-blocking, close-on-exec and marked for closing in children, with no fork
 * between the first and the last.
 */
#include "os/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/status.h"
#include "os/fork.h"

#define FDS_MAX 4
#define FDS_OF_A_PACKET 253 /* the kernel's limit */

#if !defined(SO_PASSRIGHTS) && defined(SO_ZEROCOPY) && SO_ZEROCOPY == 60 /* where the generic numbers are used */
#define SO_PASSRIGHTS 83
#endif

#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif
#define RESEND_MS 1000 /* the least that the kernel takes */

static int make(int family, int type) {
    int fd;

    fork_pause();
    fd = socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    fork_close_in_child_paused(fd);
    fork_resume();
    return fd;
}

static int set_option(int fd, int level, int option, int value) {
    return setsockopt(fd, level, option, &value, sizeof(value));
}

/* "can't listen on 1.2.3.4:5: Address already in use" */
static int32_t fail(struct mc_error *error, const char *what, const struct address *address, int reason) {
    char text[ADDRESS_TEXT_MAX];

    address_format(address, text);
    return status_set(error, MC_ERR_SYSTEM, reason, "can't %s %s: %m", what, text);
}

int32_t socket_listen(const struct address *address, int backlog, int *ret_fd, struct address *ret_bound,
                      struct mc_error *error) {
    struct address bound = {.length = sizeof(bound.storage)};
    const struct sockaddr *name = (const struct sockaddr *)&address->storage;
    int fd = make(name->sa_family, SOCK_STREAM);

    if (fd < 0)
        goto fail;
    if (set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1) < 0)
        goto fail;
    if (name->sa_family == AF_INET6 && set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, !address_is_any(address)) < 0)
        goto fail;
    if (bind(fd, name, address->length) < 0 || listen(fd, backlog) < 0 ||
        getsockname(fd, (struct sockaddr *)&bound.storage, &bound.length) < 0)
        goto fail;
    *ret_fd = fd;
    *ret_bound = bound;
    return MC_OK;

fail:
    (void)fail(error, "listen on", address, errno);
    (void)socket_close(fd);
    return MC_ERR_SYSTEM;
}

/* Do both ends have the same address? */
static bool stays_on_host(int fd, const struct sockaddr_storage *peer) {
    struct sockaddr_storage own = {.ss_family = AF_UNSPEC};
    socklen_t length = sizeof(own);

    if (getsockname(fd, (struct sockaddr *)&own, &length) < 0 || own.ss_family != peer->ss_family)
        return false;
    if (own.ss_family == AF_INET)
        return ((const struct sockaddr_in *)(const void *)&own)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)(const void *)peer)->sin_addr.s_addr;
    return own.ss_family == AF_INET6 &&
           memcmp(&((const struct sockaddr_in6 *)(const void *)&own)->sin6_addr,
                  &((const struct sockaddr_in6 *)(const void *)peer)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

/* For a stream socket whose both ends are known. A congestion control that paces (bbr is the default of some hosts)
 * halves the speed of a connection that leaves no host, where there is nothing to pace for. */
static void tune(int fd, const struct sockaddr_storage *peer) {
    static const char *const unpaced[] = {"cubic", "reno"};

    (void)set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    /* Without it (before Linux 6.15) a network that was silent for long is tried again after as long once more, however
     * early it is back. */
    (void)set_option(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, RESEND_MS);
    for (size_t i = 0; i < sizeof(unpaced) / sizeof(unpaced[0]) && stays_on_host(fd, peer); i++)
        if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, unpaced[i], (socklen_t)strlen(unpaced[i])) == 0)
            break;
}

int32_t socket_connect(const struct address *address, int *ret_fd, struct mc_error *error) {
    const struct sockaddr *name = (const struct sockaddr *)&address->storage;
    int fd = make(name->sa_family, SOCK_STREAM);

    if (fd < 0 || (connect(fd, name, address->length) < 0 && errno != EINPROGRESS && errno != EINTR)) {
        (void)fail(error, "connect to", address, errno);
        (void)socket_close(fd);
        return MC_ERR_SYSTEM;
    }
    tune(fd, &address->storage);
    *ret_fd = fd;
    return MC_OK;
}

int socket_accept(int listener) {
    struct sockaddr_storage peer = {.ss_family = AF_UNSPEC};
    socklen_t length;
    int fd;

    do { /* a connection that died in the queue is no reason to stop */
        length = sizeof(peer);
        fork_pause();
        fd = accept4(listener, (struct sockaddr *)&peer, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        fork_close_in_child_paused(fd);
        fork_resume();
    } while (fd < 0 && (errno == EINTR || errno == ECONNABORTED || errno == EPROTO));
    if (fd >= 0 && (peer.ss_family == AF_INET || peer.ss_family == AF_INET6))
        tune(fd, &peer);
    return fd;
}

int socket_error(int fd) {
    int error = 0;
    socklen_t length = sizeof(error);

    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0 ? errno : error;
}

/* The abstract address is a NUL, then the name without one. */
static int unix_address(const char *name, struct sockaddr_un *ret_address, socklen_t *ret_length) {
    size_t length = strlen(name);

    if (length == 0 || length > sizeof(ret_address->sun_path) - 1) {
        errno = length == 0 ? EINVAL : ENAMETOOLONG;
        return -1;
    }
    memset(ret_address, 0, sizeof(*ret_address));
    ret_address->sun_family = AF_UNIX;
    memcpy(ret_address->sun_path + 1, name, length);
    *ret_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    return 0;
}

int socket_unix_listen(const char *name, int backlog) {
    struct sockaddr_un address;
    socklen_t length;
    int fd;

    if (unix_address(name, &address, &length) < 0)
        return -1;
    fd = make(AF_UNIX, SOCK_SEQPACKET);
    if (fd >= 0 && (bind(fd, (struct sockaddr *)&address, length) < 0 || listen(fd, backlog) < 0))
        return socket_close(fd);
    return fd;
}

int socket_unix_connect(const char *name) {
    struct sockaddr_un address;
    socklen_t length;
    int fd;

    if (unix_address(name, &address, &length) < 0)
        return -1;
    fd = make(AF_UNIX, SOCK_SEQPACKET);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, length) < 0)
        return socket_close(fd);
    return fd;
}

void socket_refuse_fds(int fd) {
#ifdef SO_PASSRIGHTS
    int off = 0;

    (void)setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off)); /* an older kernel doesn't know it */
#else
    (void)fd;
#endif
}

int socket_unix_pair(int ret_fds[2]) {
    int result;

    fork_pause();
    result = socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ret_fds);
    if (result == 0) {
        fork_close_in_child_paused(ret_fds[0]);
        fork_close_in_child_paused(ret_fds[1]);
    }
    fork_resume();
    if (result == 0) {
        socket_refuse_fds(ret_fds[0]);
        socket_refuse_fds(ret_fds[1]);
    }
    return result;
}

ptrdiff_t socket_send_fds(int fd, const void *packet, size_t length, const int *fds, size_t count) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec part = {.iov_base = (void *)(uintptr_t)packet, .iov_len = length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t sent;

    if (length == 0 || count > FDS_MAX) { /* an empty packet would read as the end of the stream */
        errno = EINVAL;
        return -1;
    }
    if (count > 0) {
        struct cmsghdr *header = &control.align;

        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, count * sizeof(int));
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    }
    do
        sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent;
}

/* Collects the descriptors that came with a packet, and marks them. Call with fork paused. */
static size_t take_fds(struct msghdr *message, int fds[FDS_OF_A_PACKET]) {
    size_t count = 0;

    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL; header = CMSG_NXTHDR(message, header)) {
        size_t here;

        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        here = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here && count < FDS_OF_A_PACKET; i++, count++) {
            memcpy(&fds[count], CMSG_DATA(header) + i * sizeof(int), sizeof(int));
            fork_close_in_child_paused(fds[count]);
        }
    }
    return count;
}

ptrdiff_t socket_receive_fds(int fd, void *packet, size_t length, int *fds, size_t capacity, size_t *ret_count) {
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(FDS_OF_A_PACKET * sizeof(int))];
    } control;
    int taken[FDS_OF_A_PACKET];
    struct iovec part = {.iov_base = packet, .iov_len = length};
    struct msghdr message;
    size_t count = 0;
    ssize_t received;

    do {
        message = (struct msghdr){
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
        fork_pause();
        received = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (received >= 0)
            count = take_fds(&message, taken);
        fork_resume();
    } while (received < 0 && errno == EINTR);
    if (received < 0)
        return -1;
    if (count > capacity || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        while (count > 0)
            (void)socket_close(taken[--count]);
        errno = EPROTO;
        return -1;
    }
    if (count > 0)
        memcpy(fds, taken, count * sizeof(*fds));
    *ret_count = count;
    return received;
}

int socket_peer_user(int fd, uint32_t *ret_uid) {
    struct ucred credentials;
    socklen_t length = sizeof(credentials);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) < 0)
        return -1;
    *ret_uid = credentials.uid;
    return 0;
}

int socket_close(int fd) {
    fork_close(fd);
    return -1;
}

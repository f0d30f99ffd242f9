/* net/stream.c - a socket or a ring behind the same calls. Two kinds are few enough for an `if`.
 *
 * One part is moved by the simpler system call, which whoever busy-polls makes a few hundred thousand times a second.
 */
#include "net/stream.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "net/ring.h"
#include "os/socket.h"

struct stream stream_of_ring(struct ring *ring) {
    return (struct stream){.fd = ring_bell(ring), .ring = ring};
}

int64_t stream_send(const struct stream *stream, const struct iovec *parts, int count) {
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)count};
    ssize_t sent;

    if (stream->ring != NULL)
        return ring_send(stream->ring, parts, count);
    do
        sent = count == 1 ? send(stream->fd, parts[0].iov_base, parts[0].iov_len, MSG_NOSIGNAL | MSG_DONTWAIT)
                          : sendmsg(stream->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent;
}

int64_t stream_receive(const struct stream *stream, const struct iovec *parts, int count) {
    ssize_t got;

    if (stream->ring != NULL)
        return ring_receive(stream->ring, parts, count);
    do
        got = count == 1 ? recv(stream->fd, parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT)
                         : readv(stream->fd, parts, count);
    while (got < 0 && errno == EINTR);
    return got;
}

bool stream_peek(const struct stream *stream, bool receiving, bool sending) {
    return stream->ring != NULL && ring_peek(stream->ring, receiving, sending);
}

bool stream_sleep(const struct stream *stream, bool receiving, bool sending) {
    return stream->ring == NULL || ring_sleep(stream->ring, receiving, sending);
}

void stream_heed(const struct stream *stream) {
    if (stream->ring != NULL)
        ring_heed(stream->ring);
}

/* A ring's bell is always heard, and rings for place, too. */
uint32_t stream_events(const struct stream *stream, bool receiving, bool sending) {
    if (stream->ring != NULL)
        return receiving || sending ? (uint32_t)EPOLLIN : 0u;
    return (receiving ? (uint32_t)EPOLLIN : 0u) | (sending ? (uint32_t)EPOLLOUT : 0u);
}

void stream_shutdown(const struct stream *stream) {
    if (stream->fd >= 0)
        (void)shutdown(stream->fd, SHUT_RDWR);
}

void stream_close(struct stream *stream) {
    if (stream->ring != NULL)
        stream->ring = ring_close(stream->ring);
    else
        socket_close(stream->fd);
    stream->fd = -1;
}

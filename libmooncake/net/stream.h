/* net/stream.h - bytes in both directions, in order: a socket, or rings in shared memory. Nothing here waits.
 *
 * A stream has one descriptor, for poll and epoll: after stream_sleep it is readable when something has come, or when
 * the peer has gone; and then stream_heed is called before anything else. Not thread-safe.
 */
#ifndef MC_NET_STREAM_H
#define MC_NET_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct ring;

struct stream {
    int fd;            /* -1: none */
    struct ring *ring; /* NULL: `fd` is a socket */
};

static inline struct stream stream_of_socket(int fd) {
    return (struct stream){.fd = fd};
}

/* The ring is the stream's from now on. */
struct stream stream_of_ring(struct ring *ring);

/* Moves bytes from or to up to `count` parts, and says how many: 0 at the end of the stream (receive only); or -1 with
 * errno: EAGAIN, ECONNRESET, EPROTO (what the ring says makes no sense), …. Fewer bytes than were asked for: there are
 * no more now. */
int64_t stream_send(const struct stream *stream, const struct iovec *parts, int count);
int64_t stream_receive(const struct stream *stream, const struct iovec *parts, int count);

/* Can be looked at without a system call? */
static inline bool stream_in_memory(const struct stream *stream) {
    return stream->ring != NULL;
}

/* By a look at memory alone: is there something to receive, or place to send to, as it is wanted? A socket: false. */
bool stream_peek(const struct stream *stream, bool receiving, bool sending);

/* Nobody looks from now on: the descriptor becomes ready when there is something. False if there is by now; then it
 * needn't. A socket's always does. */
bool stream_sleep(const struct stream *stream, bool receiving, bool sending);

/* The descriptor was ready. */
void stream_heed(const struct stream *stream);

/* What to wait for on the descriptor to receive and to send, as poll and epoll both name it. */
uint32_t stream_events(const struct stream *stream, bool receiving, bool sending);

/* Ends it, for both sides; receiving answers 0, and the descriptor is ready. */
void stream_shutdown(const struct stream *stream);

/* Gives back what it has. One that is down is fine. */
void stream_close(struct stream *stream);

#endif

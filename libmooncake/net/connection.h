/* net/connection.h - frames over a stream, in both directions.
 *
 * Owns: the queue of outgoing frames and the read-ahead buffer; the stream belongs to whoever made it. Payloads are
 * sent straight from their source and received straight into their destination. Not thread-safe: one lock or one thread
 * of the owner guards it.
 */
#ifndef MC_NET_CONNECTION_H
#define MC_NET_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "net/stream.h"
#include "wire/frame.h"

#define CONNECTION_BUFFER 32768u

struct connection;

/* A frame on its way out; embedded in its owner and queued until its last byte is handed to the kernel. */
struct outgoing {
    struct list node; /* alone when not queued */
    const uint8_t *payload;
    uint32_t length; /* of the payload */
    uint32_t sent;   /* of header and payload together */
    bool unsealed;   /* the header lacks the payload's checksum */
    uint8_t header[FRAME_SIZE];
    /* Called when the last byte is handed over (the frame is unqueued, and may be freed or queued again); may be NULL.
     */
    void (*done)(struct connection *connection, struct outgoing *out);
};

/* Where a payload goes: its first `length` bytes to `bytes`, the rest nowhere. Their CRC-32C is added to *sum piece by
 * piece, while they are in the cache; NULL: it isn't. */
struct sink {
    uint8_t *bytes;
    uint32_t length;
    uint32_t *sum;
};

/* What the owner does with frames; a status other than MC_OK makes connection_receive return it. */
struct connection_ops {
    /* A header has come; says where its payload goes. */
    int32_t (*begin)(struct connection *connection, const struct frame *frame, struct sink *ret_sink);
    /* Its payload is complete. */
    int32_t (*end)(struct connection *connection);
};

/* In one direction: complete frames, and bytes. */
struct progress {
    uint64_t frames;
    uint64_t bytes;
};

struct connection {
    const struct connection_ops *ops;
    struct list out;
    struct sink sink;     /* what is left of it */
    uint32_t payload;     /* bytes of the current frame's payload that haven't come */
    bool large;           /* the current payload is worth a system call of its own */
    bool within;          /* after a header, before the end of its payload */
    struct stream stream; /* its descriptor is -1 when down */
    uint32_t start;       /* buffer[start, end) is received and not looked at */
    uint32_t end;
    struct progress received; /* what has ever come */
    struct progress sent;     /* what was ever handed to the kernel */
    uint8_t buffer[CONNECTION_BUFFER];
};

/* Begins on a connected stream, with an empty queue. */
void connection_init(struct connection *connection, const struct connection_ops *ops, struct stream stream);

/* Packs the header and queues the frame behind the others; payload_length bytes at `payload` stay the caller's and
 * untouched until done. With FRAME_FLAG_CHECKSUM the payload's checksum is taken when it is about to be sent, and is
 * still in the cache then; frame->payload_crc doesn't count. */
void connection_queue(struct connection *connection, struct outgoing *out, const struct frame *frame,
                      const void *payload);

/* Sends as much as the stream takes, and no more than about 4 MiB, so that others get their turn. MC_OK (also when it
 * takes no more), MC_ERR_CONNECTION_LOST. */
int32_t connection_send(struct connection *connection);

/* Receives what is there, and no more than about `budget` bytes. MC_OK, MC_ERR_CONNECTION_LOST, MC_ERR_PROTOCOL or what
 * ops returned. */
int32_t connection_receive(struct connection *connection, uint64_t budget);

/* Sends the rest of the current payload nowhere; the sink is not touched any more. */
void connection_skip_payload(struct connection *connection);

/* Takes a frame out of the queue, so that its payload isn't read any more. One that is partly sent goes on from a
 * private copy. MC_ERR_NO_MEMORY if that copy can't be made: then only breaking the connection makes the payload quiet.
 */
int32_t connection_withdraw(struct connection *connection, struct outgoing *out);

/* Drops all that is queued without calling done, and frees private copies. The owners of the frames are told by the
 * owner. */
void connection_clear(struct connection *connection);

/* A frame, or part of its header, has come and isn't complete. */
static inline bool connection_receiving(const struct connection *connection) {
    return connection->within || connection->end > connection->start;
}

static inline bool connection_sending(const struct connection *connection) {
    return !list_empty(&connection->out);
}

#endif

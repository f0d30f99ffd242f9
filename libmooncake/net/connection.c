/* net/connection.c - frames over a stream.
 *
 * Sending gathers many frames into one system call; receiving reads small frames through a buffer, and payloads
 * straight into place, with the buffer behind them for whatever follows in the same call.
 */
#include "net/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include <mooncake/error.h>

#include "base/crc32c.h"

#define GATHER 256 /* a system call has its price, and the kernel takes 1024 */
#define SEND_BUDGET (4u << 20)
#define SUM_AHEAD (256u << 10) /* of payloads whose checksum is taken, before they are sent */
#define SUM_PIECE (128u << 10) /* of a payload that is summed, received at a time: it stays in the cache until then */
#define LARGE_PAYLOAD 8192u    /* from here on, copying it out of the buffer costs more than a system call */

/* The rest of a frame whose owner is gone. */
struct leftover {
    struct outgoing out;
    uint8_t payload[];
};

void connection_init(struct connection *connection, const struct connection_ops *ops, struct stream stream) {
    connection->ops = ops;
    list_init(&connection->out);
    connection->sink = (struct sink){0};
    connection->payload = 0;
    connection->large = connection->within = false;
    connection->stream = stream;
    connection->start = connection->end = 0;
    connection->received = connection->sent = (struct progress){0, 0};
}

void connection_queue(struct connection *connection, struct outgoing *out, const struct frame *frame,
                      const void *payload) {
    frame_pack(frame, out->header);
    out->payload = payload;
    out->length = frame->payload;
    out->sent = 0;
    out->unsealed = (frame->flags & FRAME_FLAG_CHECKSUM) != 0 && frame->payload > 0;
    list_append(&connection->out, &out->node);
}

/* Points `vector` at what is unsent of the first frames in the queue; stores the number of bytes. */
static int gather(struct connection *connection, struct iovec vector[GATHER], size_t *ret_bytes) {
    struct list *node, *after;
    size_t bytes = 0;
    int used = 0;

    list_each (node, after, &connection->out) {
        struct outgoing *out = list_entry(node, struct outgoing, node);
        uint32_t begun = out->sent > FRAME_SIZE ? out->sent - FRAME_SIZE : 0;

        if (used + 2 > GATHER || (out->unsealed && bytes >= SUM_AHEAD))
            break;
        if (out->unsealed)
            frame_seal(out->header, crc32c(0, out->payload, out->length));
        out->unsealed = false;
        if (out->sent < FRAME_SIZE)
            vector[used++] = (struct iovec){out->header + out->sent, FRAME_SIZE - out->sent};
        if (begun < out->length)
            vector[used++] = (struct iovec){(void *)(uintptr_t)(out->payload + begun), out->length - begun};
        bytes += FRAME_SIZE + out->length - out->sent;
    }
    *ret_bytes = bytes;
    return used;
}

/* Counts `bytes` as sent, and finishes the frames that they complete. */
static void advance(struct connection *connection, size_t bytes) {
    connection->sent.bytes += bytes;
    while (bytes > 0) {
        struct outgoing *out = list_entry(connection->out.next, struct outgoing, node);
        size_t left = (size_t)FRAME_SIZE + out->length - out->sent;

        if (bytes < left) {
            out->sent += (uint32_t)bytes;
            return;
        }
        bytes -= left;
        out->sent += (uint32_t)left;
        list_remove(&out->node);
        connection->sent.frames++;
        if (out->done != NULL)
            out->done(connection, out);
    }
}

/* What errno means after a call of the stream. */
static int32_t failure(void) {
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return MC_OK;
    return errno == EPROTO ? MC_ERR_PROTOCOL : MC_ERR_CONNECTION_LOST;
}

int32_t connection_send(struct connection *connection) {
    uint64_t limit = connection->sent.bytes + SEND_BUDGET;

    while (!list_empty(&connection->out) && connection->sent.bytes < limit) {
        struct iovec vector[GATHER];
        size_t bytes;
        int used = gather(connection, vector, &bytes);
        int64_t sent = stream_send(&connection->stream, vector, used);

        if (sent < 0)
            return failure();
        advance(connection, (size_t)sent);
        if ((size_t)sent < bytes)
            break;
    }
    return MC_OK;
}

/* Takes `count` received bytes off the current payload; those that were for the sink are already there. */
static void consume_payload(struct connection *connection, uint32_t count) {
    uint32_t placed = count < connection->sink.length ? count : connection->sink.length;

    if (placed > 0 && connection->sink.sum != NULL)
        *connection->sink.sum = crc32c(*connection->sink.sum, connection->sink.bytes, placed);
    connection->payload -= count;
    connection->sink.length -= placed;
    if (connection->sink.bytes != NULL)
        connection->sink.bytes += placed;
}

/* Moves what the buffer has of the current payload into place. */
static void take_buffered_payload(struct connection *connection) {
    uint32_t count = connection->end - connection->start;
    uint32_t placed;

    if (count > connection->payload)
        count = connection->payload;
    placed = count < connection->sink.length ? count : connection->sink.length;
    if (placed > 0)
        memcpy(connection->sink.bytes, connection->buffer + connection->start, placed);
    consume_payload(connection, count);
    connection->start += count;
}

/* Looks at all complete headers and payloads in the buffer. */
static int32_t digest(struct connection *connection) {
    int32_t status = MC_OK;

    while (status == MC_OK) {
        struct frame frame;

        if (!connection->within) {
            if (connection->end - connection->start < FRAME_SIZE)
                return MC_OK;
            status = frame_unpack(connection->buffer + connection->start, &frame);
            if (status != MC_OK)
                return status;
            connection->start += FRAME_SIZE;
            connection->payload = frame.payload;
            connection->large = frame.payload >= LARGE_PAYLOAD;
            connection->sink = (struct sink){0};
            connection->within = true;
            status = connection->ops->begin(connection, &frame, &connection->sink);
            if (status != MC_OK)
                return status;
        }
        take_buffered_payload(connection);
        if (connection->payload > 0)
            return MC_OK;
        connection->within = false;
        connection->sink = (struct sink){0};
        connection->received.frames++;
        status = connection->ops->end(connection);
    }
    return status;
}

/* Prepares one receive: the sink's rest first (or a piece of it), then the buffer, which has nothing but part of a
 * header. Behind a large payload comes the next header and no more, since what follows that is likely to be large, too.
 */
static int prepare(struct connection *connection, struct iovec vector[2], size_t *ret_direct) {
    int used = 0;
    uint32_t kept = connection->end - connection->start;

    *ret_direct = 0;
    if (kept > 0)
        memmove(connection->buffer, connection->buffer + connection->start, kept);
    connection->start = 0;
    connection->end = kept;
    if (connection->within && connection->sink.length > 0) {
        *ret_direct = connection->sink.length < connection->payload ? connection->sink.length : connection->payload;
        if (connection->sink.sum != NULL && *ret_direct > SUM_PIECE) {
            *ret_direct = SUM_PIECE;
            vector[0] = (struct iovec){connection->sink.bytes, SUM_PIECE};
            return 1;
        }
        vector[used++] = (struct iovec){connection->sink.bytes, *ret_direct};
    }
    vector[used++] = (struct iovec){connection->buffer + kept,
                                    *ret_direct > 0 && connection->large ? FRAME_SIZE : CONNECTION_BUFFER - kept};
    return used;
}

int32_t connection_receive(struct connection *connection, uint64_t budget) {
    uint64_t limit = connection->received.bytes + budget;

    while (connection->received.bytes < limit) {
        struct iovec vector[2];
        size_t direct, asked;
        int used = prepare(connection, vector, &direct);
        int64_t got = stream_receive(&connection->stream, vector, used);
        int32_t status;

        if (got < 0)
            return failure();
        if (got == 0)
            return MC_ERR_CONNECTION_LOST;
        asked = used == 1 ? vector[0].iov_len : direct + vector[1].iov_len;
        connection->received.bytes += (uint64_t)got;
        if ((size_t)got < direct)
            direct = (size_t)got;
        consume_payload(connection, (uint32_t)direct);
        connection->end += (uint32_t)((size_t)got - direct);
        status = digest(connection);
        if (status != MC_OK)
            return status;
        if ((size_t)got < asked)
            return MC_OK; /* the stream is empty: no second call to learn it */
    }
    return MC_OK;
}

void connection_skip_payload(struct connection *connection) {
    connection->sink = (struct sink){0};
}

static void free_leftover(struct connection *connection, struct outgoing *out) {
    (void)connection;
    free(list_entry(out, struct leftover, out));
}

int32_t connection_withdraw(struct connection *connection, struct outgoing *out) {
    struct leftover *copy;

    (void)connection;
    if (list_empty(&out->node))
        return MC_OK;
    if (out->sent > 0) {
        copy = malloc(sizeof(*copy) + out->length);
        if (copy == NULL)
            return MC_ERR_NO_MEMORY;
        copy->out = *out;
        copy->out.payload = copy->payload;
        copy->out.done = free_leftover;
        if (out->length > 0)
            memcpy(copy->payload, out->payload, out->length);
        list_insert_before(&out->node, &copy->out.node);
    }
    list_remove(&out->node);
    return MC_OK;
}

void connection_clear(struct connection *connection) {
    struct list *node, *after;

    list_each (node, after, &connection->out) {
        struct outgoing *out = list_entry(node, struct outgoing, node);

        list_remove(node);
        if (out->done == free_leftover)
            free_leftover(connection, out);
    }
    connection_skip_payload(connection);
}

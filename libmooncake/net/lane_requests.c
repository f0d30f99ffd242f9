/* net/lane_requests.c - the requests of a lane: told to the peer, answered by it, and ended.
 *
 * Everything with the lane's lock held.
 */
#include "net/lane_inside.h"

#include <mooncake/error.h>

#define READ_WINDOW (16u << 20) /* bytes that the peer is asked for at a time */

/* What a request counts for when a lane is chosen. */
uint64_t lane_weigh(const struct lane_request *request) {
    return FRAME_SIZE + request->frame.length;
}

/* The request is terminal. It may not be touched afterwards. */
void lane_end_request(struct lane *lane, struct lane_request *request, int32_t status) {
    list_remove(&request->node);
    lane->outstanding -= lane_weigh(request);
    request->done(request, status);
}

void lane_end_list(struct lane *lane, struct list *requests, int32_t status) {
    struct list *node, *after;

    list_each (node, after, requests)
        lane_end_request(lane, list_entry(node, struct lane_request, node), status);
}

/* Is it a reply that the request may get? A READ is answered with all its bytes, in the first of two replies if it is
 * guarded. */
static bool reply_fits(const struct lane_request *request, const struct frame *frame) {
    bool second = request->reply_length > 0;
    uint32_t flags = 0;
    uint64_t payload = 0;

    if (frame->type != (request->frame.type | FRAME_REPLY) || !request->begun || frame->status > 0)
        return false;
    if (request->frame.type >= FRAME_CALL)
        return frame->flags == 0 && (frame->payload == 0 || frame->status == MC_OK);
    if (request->frame.type == FRAME_READ && frame->status == MC_OK && !second) {
        flags = (request->frame.flags & FRAME_FLAG_CHECKSUM) |
                ((request->frame.flags & FRAME_FLAG_GUARD) != 0 ? FRAME_FLAG_MORE : 0u);
        payload = request->frame.length;
    }
    return (frame->flags & ~flags) == 0 && frame->payload == payload;
}

static int32_t reply_begin(struct connection *connection, const struct frame *frame, struct sink *ret_sink) {
    struct lane *lane = list_entry(connection, struct lane, connection);
    struct inflight_slot *slot = inflight_find(&lane->inflight, frame->id);
    struct lane_request *request;

    if (slot == NULL || (frame->type & FRAME_REPLY) == 0)
        return MC_ERR_PROTOCOL;
    lane->current = frame->id;
    lane->reply = *frame;
    request = slot->request;
    if (request == NULL)
        return MC_OK;
    /* Nobody can answer what isn't sent to its last byte. */
    if (!reply_fits(request, frame) || !list_empty(&request->out.node))
        return MC_ERR_PROTOCOL;
    if (frame->payload > 0) {
        ret_sink->bytes = request->reply;
        ret_sink->length = frame->payload < request->reply_capacity ? frame->payload : request->reply_capacity;
        request->reply_length = ret_sink->length;
        lane->sum = 0;
        if ((frame->flags & FRAME_FLAG_CHECKSUM) != 0)
            ret_sink->sum = &lane->sum;
    }
    return MC_OK;
}

/* The payload of the current reply is complete. */
static int32_t check_payload(const struct lane *lane, const struct lane_request *request) {
    const struct frame *reply = &lane->reply;

    if (request->frame.type != FRAME_READ || (request->frame.flags & FRAME_FLAG_CHECKSUM) == 0 || reply->payload == 0)
        return MC_OK;
    return (reply->flags & FRAME_FLAG_CHECKSUM) != 0 && lane->sum == reply->payload_crc ? MC_OK
                                                                                        : MC_ERR_CHECKSUM_MISMATCH;
}

/* Hands a request to the connection. */
static void tell(struct lane *lane, struct lane_request *request) {
    struct frame frame = request->frame;

    frame.id = request->id;
    request->begun = true;
    connection_queue(&lane->connection, &request->out, &frame, request->payload);
}

/* Hands over the requests that wait, in their order, as far as the window for READs goes: what the peer was told it
 * sends, also after it was given up. The connection is up. */
void lane_tell_waiting(struct lane *lane) {
    struct list *node, *after;

    list_each (node, after, &lane->waiting) {
        struct lane_request *request = list_entry(node, struct lane_request, node);
        uint64_t bytes = request->frame.type == FRAME_READ ? request->frame.length : 0;

        if (bytes > 0 && lane->inflight.bytes > 0 && lane->inflight.bytes + bytes > READ_WINDOW)
            return;
        if (!inflight_add(&lane->inflight, request, bytes, &request->id)) {
            lane_end_request(lane, request, MC_ERR_NO_MEMORY);
            continue;
        }
        list_remove(node);
        list_append(&lane->told, node);
        tell(lane, request);
    }
}

static int32_t reply_end(struct connection *connection) {
    struct lane *lane = list_entry(connection, struct lane, connection);
    struct inflight_slot *slot = inflight_find(&lane->inflight, lane->current);
    struct lane_request *request;
    bool more = (lane->reply.flags & FRAME_FLAG_MORE) != 0;
    int32_t status = lane->reply.status;

    if (slot == NULL)
        return MC_ERR_PROTOCOL;
    request = slot->request;
    if (request != NULL && status == MC_OK)
        status = check_payload(lane, request);
    if (more && status == MC_OK)
        return MC_OK;
    if (more) { /* it has failed already; what follows goes nowhere */
        slot->request = NULL;
    } else {
        inflight_release(&lane->inflight, slot);
    }
    if (request != NULL)
        lane_end_request(lane, request, status);
    lane_tell_waiting(lane);
    return MC_OK;
}

const struct connection_ops lane_reply_ops = {reply_begin, reply_end};

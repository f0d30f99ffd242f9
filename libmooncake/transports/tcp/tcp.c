/* transports/tcp/tcp.c - one-sided reads and writes over the lanes of a channel: the path that always exists.
 *
 * A slice is one frame. Small slices of a group stay together on one lane, so that they leave in one system call;
 * large ones are spread over all lanes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "transports/tcp/target.h"
#include "transports/transport.h"

/* Bytes that go to one lane before the next is chosen: a batch of small requests costs least on one lane. */
#define LANE_SHARE (1u << 20)

struct transport {
    const struct transport_host *host;
    struct tcp_target target;
};

struct transport_link {
    struct transport *transport;
    struct channel *channel;
};

static int32_t tcp_open(const struct transport_host *host, struct transport **ret_transport,
                        char reason[TRANSPORT_REASON_MAX]) {
    struct transport *transport = calloc(1, sizeof(*transport));

    (void)reason;
    if (transport == NULL)
        return MC_ERR_NO_MEMORY;
    transport->host = host;
    tcp_target_serve(&transport->target, host);
    *ret_transport = transport;
    return MC_OK;
}

static void tcp_close(struct transport *transport) {
    free(transport);
}

static bool tcp_in_flight(struct transport *transport, const void *guard) {
    return guard_in_flight(&transport->target.guards, guard);
}

static int32_t tcp_connect(struct transport *transport, struct channel *channel, struct transport_link **ret_link,
                           char reason[TRANSPORT_REASON_MAX]) {
    struct transport_link *link = malloc(sizeof(*link));

    (void)reason;
    if (link == NULL)
        return MC_ERR_NO_MEMORY;
    link->transport = transport;
    link->channel = channel;
    *ret_link = link;
    return MC_OK;
}

static void tcp_disconnect(struct transport_link *link) {
    free(link);
}

/* With these the target refuses before it has touched anything. */
static bool is_refusal(int32_t status) {
    return status == MC_ERR_NOT_REGISTERED || status == MC_ERR_ACCESS_DENIED || status == MC_ERR_INVALID_ARGUMENT ||
           status == MC_ERR_NOT_SUPPORTED;
}

static void wire_done(struct lane_request *wire, int32_t status) {
    struct slice *slice = list_entry(wire, struct slice, wire);

    slice->indeterminate = slice->opcode == MC_WRITE && wire->begun && !is_refusal(status);
    slice->done(slice, status);
}

static void prepare(const struct transport_host *host, struct slice *slice) {
    struct lane_request *wire = &slice->wire;

    wire->frame = (struct frame){
        .type = slice->opcode == MC_READ ? FRAME_READ : FRAME_WRITE,
        .flags = (uint16_t)((slice->guarded ? FRAME_FLAG_GUARD : 0u) | (host->checksum ? FRAME_FLAG_CHECKSUM : 0u)),
        .address = slice->remote,
        .length = slice->length,
        .guard_address = slice->guard_address,
        .guard_value = slice->guard_value,
        .payload = slice->opcode == MC_WRITE ? (uint32_t)slice->length : 0,
    };
    wire->payload = slice->local;
    wire->reply = slice->local;
    wire->reply_capacity = slice->opcode == MC_READ ? (uint32_t)slice->length : 0;
    wire->done = wire_done;
}

/* The lane with the least to do. */
static size_t least_loaded(const uint64_t *loads, size_t count) {
    size_t least = 0;

    for (size_t i = 1; i < count; i++)
        if (loads[i] < loads[least])
            least = i;
    return least;
}

static void tcp_submit(struct transport_link *link, struct list *slices, bool attended) {
    struct lane *lanes[CHANNEL_LANES_MAX];
    struct list requests[CHANNEL_LANES_MAX];
    uint64_t loads[CHANNEL_LANES_MAX], share = LANE_SHARE;
    size_t count = channel_lanes(link->channel, lanes), at = 0;

    do { /* a channel has at least one lane */
        list_init(&requests[at]);
        loads[at] = lane_outstanding(lanes[at]);
    } while (++at < count);
    while (!list_empty(slices)) {
        struct slice *slice = list_entry(slices->next, struct slice, node);

        if (share >= LANE_SHARE) {
            at = least_loaded(loads, count);
            share = 0;
        }
        list_remove(&slice->node);
        prepare(link->transport->host, slice);
        slice->lane = lanes[at];
        list_append(&requests[at], &slice->wire.node);
        share += slice->length;
        loads[at] += slice->length;
    }
    for (size_t i = 0; i < count; i++)
        if (!list_empty(&requests[i]))
            lane_submit(lanes[i], &requests[i], attended);
}

/* Those of one lane together, since each time its lock may take a while. */
static void tcp_cancel(struct slice *const *slices, size_t count, int32_t status) {
    struct lane_request *requests[TRANSPORT_CANCEL_MAX];
    struct lane *lane;
    uintptr_t before = 0;

    do {
        size_t used = 0;

        /* The lanes in the order of their addresses, so that each comes up once. */
        lane = NULL;
        for (size_t i = 0; i < count; i++)
            if ((uintptr_t)slices[i]->lane > before && (lane == NULL || (uintptr_t)slices[i]->lane < (uintptr_t)lane))
                lane = slices[i]->lane;
        for (size_t i = 0; i < count && lane != NULL; i++)
            if (slices[i]->lane == lane)
                requests[used++] = &slices[i]->wire;
        if (lane != NULL)
            lane_cancel(lane, requests, used, status);
        before = (uintptr_t)lane;
    } while (lane != NULL);
}

static const char *tcp_unavailable(void) {
    return NULL;
}

/* The next request connects again all the same: no other path is left. */
static const char *tcp_trouble(struct transport_link *link) {
    int32_t status = channel_failure(link->channel);

    return status != MC_OK ? status_text(status) : NULL;
}

const struct transport_ops transport_tcp = {
    .name = "tcp",
    .cost = 100,
    .sliced = true,
    .unavailable = tcp_unavailable,
    .open = tcp_open,
    .close = tcp_close,
    .in_flight = tcp_in_flight,
    .connect = tcp_connect,
    .disconnect = tcp_disconnect,
    .trouble = tcp_trouble,
    .submit = tcp_submit,
    .cancel = tcp_cancel,
};

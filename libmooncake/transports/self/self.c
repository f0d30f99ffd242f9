/* transports/self/self.c - the path from an engine to itself: a copy in the calling thread.
 *
 * Holds nothing but a pointer to its host. Rights are checked as for any peer.
 */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "transports/guard.h"
#include "transports/transport.h"

struct transport {
    const struct transport_host *host;
};

struct transport_link {
    const struct transport_host *host;
};

static int32_t self_open(const struct transport_host *host, struct transport **ret_transport,
                         char reason[TRANSPORT_REASON_MAX]) {
    struct transport *transport = malloc(sizeof(*transport));

    (void)reason;
    if (transport == NULL)
        return MC_ERR_NO_MEMORY;
    transport->host = host;
    *ret_transport = transport;
    return MC_OK;
}

static void self_close(struct transport *transport) {
    free(transport);
}

static int32_t self_connect(struct transport *transport, struct channel *channel, struct transport_link **ret_link,
                            char reason[TRANSPORT_REASON_MAX]) {
    struct transport_link *link;

    if (memcmp(channel_incarnation(channel), transport->host->self->incarnation, 16) != 0) {
        text_copy(reason, TRANSPORT_REASON_MAX, "the peer is another engine");
        return MC_ERR_NOT_SUPPORTED;
    }
    link = malloc(sizeof(*link));
    if (link == NULL)
        return MC_ERR_NO_MEMORY;
    link->host = transport->host;
    *ret_link = link;
    return MC_OK;
}

static void self_disconnect(struct transport_link *link) {
    free(link);
}

static int32_t self_step(struct transport_link *link, struct slice *slice) {
    const struct transport_host *host = link->host;
    uint64_t left = slice->length - slice->moved;
    uint64_t piece = left < TRANSPORT_PIECE ? left : TRANSPORT_PIECE;
    void *remote = (void *)(uintptr_t)(slice->remote + slice->moved);
    void *pin;
    int32_t status;

    status = host->pin(host->context, slice->remote, slice->length,
                       slice->opcode == MC_READ ? MC_REMOTE_READ : MC_REMOTE_WRITE, &pin);
    if (status != MC_OK)
        return status;
    if (slice->guarded && slice->moved == 0)
        status = guard_check(host, slice->guard_address, slice->guard_value);
    if (status == MC_OK) {
        slice->indeterminate = slice->opcode == MC_WRITE;
        if (slice->opcode == MC_READ)
            memmove(slice->local + slice->moved, remote, piece);
        else
            memmove(remote, slice->local + slice->moved, piece);
        slice->moved += piece;
        if (slice->moved < slice->length)
            status = MC_ERR_PENDING;
        else if (slice->guarded)
            status = guard_check(host, slice->guard_address, slice->guard_value);
    }
    host->unpin(host->context, pin);
    return status;
}

static const char *self_unavailable(void) {
    return NULL;
}

const struct transport_ops transport_self = {
    .name = "self",
    .cost = 0,
    .unavailable = self_unavailable,
    .open = self_open,
    .close = self_close,
    .connect = self_connect,
    .disconnect = self_disconnect,
    .step = self_step,
};

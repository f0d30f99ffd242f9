/* transports/self/self.c - the path from an engine to itself: a copy in the calling thread.
 *
 * Holds nothing but a pointer to its host, and counts what is in flight. Rights are checked as for any peer. A guard is
 * looked at before each piece, so that between two of them nothing is in flight.
 */
#include <stdlib.h>
#include <string.h>

#include "base/copy.h"
#include "base/crc32c.h"
#include "base/text.h"
#include "transports/guard.h"
#include "transports/transport.h"

struct transport {
    const struct transport_host *host;
    struct guard_table guards;
};

struct transport_link {
    struct transport *transport;
};

static int32_t self_open(const struct transport_host *host, struct transport **ret_transport,
                         char reason[TRANSPORT_REASON_MAX]) {
    struct transport *transport = calloc(1, sizeof(*transport));

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
    link->transport = transport;
    *ret_link = link;
    return MC_OK;
}

static void self_disconnect(struct transport_link *link) {
    free(link);
}

static bool self_in_flight(struct transport *transport, const void *guard) {
    return guard_in_flight(&transport->guards, guard);
}

static void drop_hold(struct ref *hold) {
    free(hold);
}

/* The memory is the process's own: the hold holds nothing. */
static int32_t self_map(struct transport_link *link, uint64_t address, uint64_t length, uint32_t access,
                        void **ret_memory, struct ref **ret_hold) {
    const struct transport_host *host = link->transport->host;
    struct ref *hold;
    void *pin;

    if (host->pin(host->context, address, length, access, &pin) != MC_OK)
        return MC_ERR_NOT_SUPPORTED;
    host->unpin(host->context, pin);
    hold = malloc(sizeof(*hold));
    if (hold == NULL)
        return MC_ERR_NO_MEMORY;
    ref_init(hold, drop_hold);
    *ret_memory = (void *)(uintptr_t)address;
    *ret_hold = hold;
    return MC_OK;
}

/* Copies the next piece. Where the target begins within the source, the last piece comes first, or the first would
 * overwrite what is yet to be read. */
static void copy(struct slice *slice, uint8_t *to, const uint8_t *from, uint64_t piece) {
    uintptr_t one = (uintptr_t)to, other = (uintptr_t)from;
    bool upwards = one > other && one - other < slice->length;
    uint64_t at = upwards ? slice->length - slice->moved - piece : slice->moved;

    if (upwards && slice->summed && slice->moved == 0)
        slice->checksum = crc32c(0, from, slice->length);
    if (upwards || (one <= other && other - one < piece)) {
        if (!upwards && slice->summed)
            slice->checksum = crc32c(slice->checksum, from + at, piece);
        memmove(to + at, from + at, piece);
    } else if (slice->summed) {
        slice->checksum = copy_bytes_crc32c(slice->checksum, to + at, from + at, piece);
    } else {
        copy_bytes(to + at, from + at, piece);
    }
    slice->moved += piece;
}

static int32_t self_step(struct transport_link *link, struct slice *slice) {
    struct guard_table *guards = &link->transport->guards;
    const struct transport_host *host = link->transport->host;
    uint64_t left = slice->length - slice->moved;
    uint64_t piece = left < TRANSPORT_PIECE ? left : TRANSPORT_PIECE;
    uint8_t *remote = (uint8_t *)(uintptr_t)slice->remote;
    void *pin;
    int32_t status;

    status = host->pin(host->context, slice->remote, slice->length,
                       slice->opcode == MC_READ ? MC_REMOTE_READ : MC_REMOTE_WRITE, &pin);
    if (status != MC_OK)
        return status;
    if (slice->guarded) {
        guard_enter(guards, slice->guard_address);
        status = guard_check(host, slice->guard_address, slice->guard_value);
    }
    if (status == MC_OK) {
        slice->indeterminate = slice->opcode == MC_WRITE;
        if (slice->opcode == MC_READ)
            copy(slice, slice->local, remote, piece);
        else
            copy(slice, remote, slice->local, piece);
        if (slice->moved < slice->length)
            status = MC_ERR_PENDING;
        else if (slice->guarded)
            status = guard_check(host, slice->guard_address, slice->guard_value);
    }
    if (slice->guarded)
        guard_leave(guards, slice->guard_address);
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
    .in_flight = self_in_flight,
    .map = self_map,
    .step = self_step,
};

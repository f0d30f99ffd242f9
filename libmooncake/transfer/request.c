/* transfer/request.c - one request of a batch.
 *
 * Invariants: `left` counts the slices that haven't ended; the state is set once, after the local range is unpinned,
 * and before `ended` is called.
 */
#include "transfer/request.h"

#include <inttypes.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/crc32c_join.h"
#include "base/status.h"

#define SUMMED_SLICE (256u << 10) /* with checksums; half of a second-level cache */

/* ---- Ends ---- */

static uint32_t state_of(int32_t status) {
    switch (status) {
    case MC_OK:
        return MC_STATE_COMPLETED;
    case MC_ERR_TIMEOUT:
        return MC_STATE_TIMEOUT;
    case MC_ERR_CANCELLED:
        return MC_STATE_CANCELLED;
    default:
        return MC_STATE_FAILED;
    }
}

static void unpin(struct request *request) {
    if (request->pin != NULL)
        registry_unpin(request->pin);
    request->pin = NULL;
}

/* Of all bytes, from those of the slices. */
static uint32_t checksum_of(const struct request *request) {
    uint32_t checksum = 0;

    for (uint32_t i = 0; i < request->slice_count; i++)
        checksum = crc32c_join(checksum, request->slices[i].checksum, request->slices[i].length);
    return checksum;
}

/* The last slice has ended: the buffer is quiet, and the request terminal. */
void request_end(struct request *request) {
    int pending = MC_ERR_PENDING;
    int32_t status;

    atomic_compare_exchange_strong(&request->status, &pending, MC_OK);
    status = atomic_load(&request->status);
    if (status == MC_OK && (request->wanted.flags & MC_REQUEST_CHECKSUM) != 0)
        request->checksum = checksum_of(request);
    unpin(request);
    /* Slices that completed stand beside those that didn't. */
    if (status != MC_OK && request->wanted.opcode == MC_WRITE && atomic_load(&request->bytes) > 0)
        atomic_store(&request->indeterminate, true);
    if (request->link != NULL)
        metrics_ended(request->link->metrics, request->wanted.opcode, request->wanted.length,
                      atomic_load(&request->bytes), status, request->start);
    atomic_store(&request->state, state_of(status));
    request->ended(request, status);
}

/* A slice has ended: nothing touches its part of the buffer any more. */
static void slice_done(struct slice *slice, int32_t status) {
    struct request *request = slice->owner;

    if (status == MC_OK) {
        if (slice->summed && slice->lane != NULL)
            slice->checksum = crc32c(0, slice->local, slice->length);
        atomic_fetch_add(&request->bytes, slice->length - slice->moved);
    } else {
        int pending = MC_ERR_PENDING;

        atomic_compare_exchange_strong(&request->status, &pending, status);
        if (slice->indeterminate)
            atomic_store(&request->indeterminate, true);
    }
    if (atomic_fetch_sub(&request->left, 1) == 1)
        request_end(request);
}

/* ---- Preparing ---- */

static int32_t check(const struct mc_request *wanted, size_t index, struct mc_error *error) {
    uint64_t end;

    if (wanted->opcode != MC_READ && wanted->opcode != MC_WRITE)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "request %zu: no opcode %u", index, wanted->opcode);
    if ((wanted->flags & ~(MC_REQUEST_GUARD | MC_REQUEST_CHECKSUM)) != 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "request %zu: unknown flags 0x%x", index, wanted->flags);
    if (!checked_add(wanted->remote, wanted->length, &end) ||
        !checked_add((uint64_t)(uintptr_t)wanted->local, wanted->length, &end))
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "request %zu: a range of %" PRIu64 " bytes wraps around",
                          index, wanted->length);
    if ((wanted->flags & MC_REQUEST_GUARD) != 0 && wanted->guard_address % sizeof(uint64_t) != 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "request %zu: the guard is not 8-aligned", index);
    return MC_OK;
}

/* One part of the request, as a slice that was zeroed. */
static void make_slice(struct request *request, uint64_t offset, uint64_t length, struct slice *slice) {
    const struct mc_request *wanted = &request->wanted;

    slice->local = (uint8_t *)wanted->local + offset;
    slice->remote = wanted->remote + offset;
    slice->length = length;
    slice->guard_address = wanted->guard_address;
    slice->guard_value = wanted->guard_value;
    slice->opcode = wanted->opcode;
    slice->guarded = (wanted->flags & MC_REQUEST_GUARD) != 0;
    slice->summed = (wanted->flags & MC_REQUEST_CHECKSUM) != 0;
    slice->owner = request;
    slice->done = slice_done;
}

/* The cheapest link that can carry it. */
static int32_t choose_link(struct request *request, size_t index, struct mc_error *error) {
    struct peer *peer = request->peer;
    struct slice slice; /* only what a link looks at before it begins */
    int32_t status;

    make_slice(request, 0, request->wanted.length, &slice);
    request->link = peer_choose(peer, &slice);
    if (request->link != NULL)
        return MC_OK;
    /* Is the peer gone, or is it that nothing leads there? */
    status = peer_probe(peer, clock_after(clock_now(), peer->engine->connect_timeout), error);
    if (status != MC_OK)
        return status;
    return status_set(error, MC_ERR_NOT_SUPPORTED, 0,
                      "request %zu: no permitted path leads to 0x%" PRIx64 " + %" PRIu64 " of the peer", index,
                      request->wanted.remote, request->wanted.length);
}

/* Bytes that travel as one frame. With checksums no more than stays in the cache between summing and sending: and while
 * one end sums a frame, another is on its way. */
static uint64_t slice_size(const struct transport_host *host) {
    return host->checksum && SUMMED_SLICE < host->slice ? SUMMED_SLICE : host->slice;
}

int32_t request_prepare_for(struct request *request, struct peer *peer, const struct mc_request *wanted, size_t index,
                            bool registered, struct mc_error *error) {
    uint64_t slices;
    int32_t status;

    ref_take(&peer->object.ref);
    request->peer = peer;
    request->wanted = *wanted;
    wanted = &request->wanted;
    atomic_init(&request->status, MC_ERR_PENDING);
    atomic_init(&request->state, MC_STATE_PENDING);
    status = check(wanted, index, error);
    if (status != MC_OK || wanted->length == 0)
        return status;
    if (registered)
        status =
            registry_pin(peer->engine->registry, (uint64_t)(uintptr_t)wanted->local, wanted->length, 0, &request->pin);
    if (status != MC_OK)
        return status_set(error, status, 0, "request %zu: the local range %p + %" PRIu64 " is not registered", index,
                          wanted->local, wanted->length);
    status = choose_link(request, index, error);
    if (status != MC_OK)
        return status;
    request->slice_size = request->link->ops->sliced ? slice_size(&peer->engine->host) : wanted->length;
    slices = (wanted->length - 1) / request->slice_size + 1;
    if (slices > UINT32_MAX / 2)
        return status_set(error, MC_ERR_TOO_LARGE, 0, "request %zu: %" PRIu64 " bytes are too many", index,
                          wanted->length);
    request->slice_count = (uint32_t)slices;
    return MC_OK;
}

int32_t request_prepare(struct request *request, const struct mc_request *wanted, size_t index, bool registered,
                        struct engine *engine, struct mc_error *error) {
    struct mc_request copy = *wanted; /* the caller's array is read once */
    struct object *object;
    int32_t status = object_acquire(copy.peer, OBJECT_PEER, &object);

    if (status != MC_OK)
        return status_set(error, status, 0, "request %zu: the peer was closed, or never opened", index);
    if (peer_of(object)->engine != engine)
        status = status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "request %zu: the peer is another engine's", index);
    else
        status = request_prepare_for(request, peer_of(object), &copy, index, registered, error);
    ref_drop(&object->ref);
    return status;
}

void request_cut(struct request *request, struct slice *slices) {
    uint64_t length = request->wanted.length;
    uint64_t size = request->slice_size;

    request->slices = slices;
    atomic_init(&request->left, request->slice_count);
    for (uint32_t i = 0; i < request->slice_count; i++)
        make_slice(request, i * size, length - i * size < size ? length - i * size : size, &slices[i]);
}

void request_release(struct request *request) {
    unpin(request);
    if (request->peer != NULL)
        ref_drop(&request->peer->object.ref);
    request->peer = NULL;
}

/* ---- Moving ---- */

bool request_steps(const struct request *request) {
    return request->link != NULL && request->link->ops->step != NULL;
}

int32_t request_step(struct request *request) {
    int32_t status = request->link->ops->step(request->link->link, request->slices);

    atomic_store_explicit(&request->bytes, request->slices->moved, memory_order_relaxed);
    return status;
}

bool request_may_group(const struct request *first, const struct request *request, uint64_t bytes) {
    return request->link == first->link && request->link->ops->step_group != NULL && request->slices->moved == 0 &&
           request->wanted.length <= TRANSPORT_PIECE - bytes;
}

void request_step_group(struct request *requests, size_t count) {
    struct slice *slices[TRANSPORT_GROUP];
    int32_t statuses[TRANSPORT_GROUP];
    size_t used = 0;

    do /* the compiler is to see that there is at least one */
        slices[used] = requests[used].slices;
    while (++used < count);
    requests->link->ops->step_group(requests->link->link, slices, count, statuses);
    for (size_t i = 0; i < count; i++) {
        while (statuses[i] == MC_ERR_PENDING)
            statuses[i] = request_step(&requests[i]);
        atomic_store_explicit(&requests[i].bytes, slices[i]->moved, memory_order_relaxed);
        request_stepped(&requests[i], statuses[i]);
    }
}

void request_stepped(struct request *request, int32_t status) {
    slice_done(request->slices, status);
}

/* ---- Telling ---- */

void request_status(const struct request *request, struct mc_request_status *ret_status) {
    uint32_t state = atomic_load(&request->state);

    *ret_status = (struct mc_request_status){
        .state = state,
        .status = state == MC_STATE_PENDING ? MC_ERR_PENDING : atomic_load(&request->status),
        .bytes = atomic_load(&request->bytes),
        .flags = state != MC_STATE_PENDING && atomic_load(&request->indeterminate) ? MC_STATUS_INDETERMINATE : 0,
        .checksum = state == MC_STATE_COMPLETED ? request->checksum : 0,
    };
}

void request_explain(const struct request *request, size_t index, struct mc_error *error) {
    int32_t status = atomic_load(&request->status);
    const char *why = status_text(status);

    if (status == MC_ERR_NOT_REGISTERED)
        why = "the peer has not registered this range";
    status_set(error, status, 0, "request %zu, %s of %" PRIu64 " bytes at 0x%" PRIx64 " of %s by %s: %s", index,
               request->wanted.opcode == MC_READ ? "READ" : "WRITE", request->wanted.length, request->wanted.remote,
               request->peer->address, request->link->ops->name, why);
}

/* api/batch.c - the public calls of transfer.h on batches, and the blocking ones. */
#include <string.h>

#include <mooncake/transfer.h>

#include "api/handles.h"
#include "base/clock.h"
#include "base/status.h"
#include "transfer/direct.h"

#define REQUESTS_MAX (1u << 20)
#define OPTIONS_1_0 sizeof(struct mc_batch_options) /* the size in 1.0 */

static int32_t check_requests(const struct mc_request *requests, size_t count, size_t stride, struct mc_error *error) {
    if (requests == NULL || count == 0 || count > REQUESTS_MAX)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "a batch has 1 to %u requests, not %zu", REQUESTS_MAX,
                          requests == NULL ? (size_t)0 : count);
    if (stride < sizeof(*requests) || stride % sizeof(uint64_t) != 0 || stride > SIZE_MAX / count)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "the stride is %zu: at least %zu, and a multiple of 8",
                          stride, sizeof(*requests));
    return MC_OK;
}

static int32_t submit(struct engine *engine, const struct mc_request *requests, size_t count, size_t stride,
                      const struct batch_options *options, uint64_t *ret_batch, struct mc_error *error) {
    struct batch *batch;
    uint64_t id;
    int32_t status = batch_prepare(engine, requests, count, stride, options, &batch, error);

    if (status != MC_OK)
        return status;
    status = object_publish(batch_object(batch), &id);
    if (status != MC_OK) {
        batch_retire(batch);
        return status_set(error, status, 0, "too many objects");
    }
    *ret_batch = id;
    batch_begin(batch, id);
    ref_drop(&batch_object(batch)->ref);
    return MC_OK;
}

/* What the options say of the notification. */
static int32_t take_notice(const struct mc_batch_options *options, struct notice *ret_notice, struct mc_error *error) {
    *ret_notice = (struct notice){options->notify_name, options->notify_name_length, options->notify_message,
                                  options->notify_message_length};
    if ((options->flags & MC_BATCH_NOTIFY) == 0 && (ret_notice->name != NULL || ret_notice->message != NULL ||
                                                    ret_notice->name_length > 0 || ret_notice->message_length > 0))
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "a notification is given without MC_BATCH_NOTIFY");
    return notice_check(ret_notice, error);
}

int32_t mc_batch_submit(mc_engine *handle, const struct mc_request *requests, size_t count, size_t stride,
                        const struct mc_batch_options *options, uint64_t *ret_batch, struct mc_error *error) {
    struct mc_batch_options taken;
    struct batch_options inner = {0};
    struct notice notice;
    struct engine *engine;
    int32_t status = check_requests(requests, count, stride, error);

    if (ret_batch == NULL)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "ret_batch is NULL");
    if (status == MC_OK)
        status = options_take(&taken, sizeof(taken), OPTIONS_1_0, options, error);
    if (status != MC_OK)
        return status;
    if ((taken.flags & ~(MC_BATCH_DRIVEN | MC_BATCH_NOTIFY)) != 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "unknown flags 0x%x", taken.flags);
    status = take_notice(&taken, &notice, error);
    if (status != MC_OK)
        return status;
    status = engine_call_begin(handle, &engine, error);
    if (status != MC_OK)
        return status;
    inner.timeout = taken.timeout_ns > 0 ? taken.timeout_ns : engine->transfer_timeout;
    inner.user_data = taken.user_data;
    inner.attended = (taken.flags & MC_BATCH_DRIVEN) != 0;
    inner.notify = (taken.flags & MC_BATCH_NOTIFY) != 0 ? &notice : NULL;
    if (taken.queue != NULL) {
        status = queue_call_begin(taken.queue, &inner.queue);
        if (status != MC_OK)
            status_set(error, status, 0, "queue handle: %s", status_text(status));
    }
    if (status == MC_OK)
        status = submit(engine, requests, count, stride, &inner, ret_batch, error);
    if (inner.queue != NULL)
        queue_call_end(inner.queue);
    engine_call_end(engine);
    return status;
}

int32_t mc_batch_wait(uint64_t id, uint64_t timeout_ns) {
    struct batch *batch;
    bool open;
    int32_t status = batch_call_begin(id, &batch, &open);

    if (status != MC_OK)
        return status;
    status = open ? batch_wait(batch, clock_after(clock_now(), timeout_ns)) : batch_outcome(batch);
    batch_call_end(batch, open);
    return status;
}

int32_t mc_batch_status(uint64_t id, size_t first, struct mc_request_status *statuses, size_t count, size_t stride) {
    struct batch *batch;
    bool open;
    int32_t status;

    if (statuses == NULL || stride < sizeof(*statuses) || stride % sizeof(uint64_t) != 0)
        return MC_ERR_INVALID_ARGUMENT;
    status = batch_call_begin(id, &batch, &open);
    if (status != MC_OK)
        return status;
    if (first > batch_count(batch) || count > batch_count(batch) - first)
        status = MC_ERR_INVALID_ARGUMENT;
    for (size_t i = 0; status == MC_OK && i < count; i++)
        batch_status(batch, first + i, (struct mc_request_status *)(void *)((char *)statuses + i * stride));
    batch_call_end(batch, open);
    return status;
}

int32_t mc_batch_explain(uint64_t id, struct mc_error *error) {
    struct batch *batch;
    bool open;
    int32_t status = batch_call_begin(id, &batch, &open);

    if (status != MC_OK)
        return status_set(error, status, 0, "batch handle: %s", status_text(status));
    status = batch_outcome(batch);
    if (status == MC_ERR_PENDING)
        status_set(error, status, 0, "the batch is not finished yet");
    else if (status != MC_OK)
        batch_explain(batch, error);
    batch_call_end(batch, open);
    return status;
}

int32_t mc_batch_cancel(uint64_t id) {
    struct batch *batch;
    bool open;
    int32_t status = batch_call_begin(id, &batch, &open);

    if (status != MC_OK)
        return status;
    if (open && !batch_is_done(batch))
        batch_stop(batch, MC_ERR_CANCELLED);
    batch_call_end(batch, open);
    return MC_OK;
}

int32_t mc_batch_free(uint64_t id) {
    struct batch *batch;
    struct object *object;
    bool open;
    int32_t status = batch_call_begin(id, &batch, &open);

    if (status != MC_OK)
        return status;
    if (!batch_may_retire(batch))
        status = MC_ERR_BUSY;
    else
        status = object_withdraw(id, OBJECT_BATCH, &object); /* of two racing callers one gets it */
    if (status == MC_OK)
        batch_retire(batch);
    batch_call_end(batch, open);
    return status;
}

/* ---- Blocking calls ---- */

/* Runs the requests to their end in the calling thread. */
static int32_t transfer(struct engine *engine, const struct mc_request *requests, size_t count, size_t stride,
                        uint64_t timeout_ns, struct mc_error *error) {
    struct batch_options options = {
        .timeout = timeout_ns > 0 ? timeout_ns : engine->transfer_timeout,
        .attended = true,
    };
    struct batch *batch;
    int32_t status = batch_prepare(engine, requests, count, stride, &options, &batch, error);

    if (status != MC_OK)
        return status;
    batch_begin(batch, 0);
    status = batch_wait(batch, CLOCK_NEVER);
    if (status != MC_OK)
        batch_explain(batch, error);
    batch_retire(batch);
    return status;
}

/* One request, of the peer. Within an engine call. */
static int32_t transfer_to(struct peer *peer, const struct mc_request *request, uint64_t timeout_ns,
                           struct mc_error *error) {
    uint64_t timeout = timeout_ns > 0 ? timeout_ns : peer->engine->transfer_timeout;
    int32_t status;

    if (direct_run(peer, request, timeout, &status, error))
        return status;
    return transfer(peer->engine, request, 1, sizeof(*request), timeout, error);
}

/* One request of a peer that must be the engine's. Within an engine call. */
static int32_t transfer_single(struct engine *engine, const struct mc_request *request, uint64_t timeout_ns,
                               struct mc_error *error) {
    struct object *object;
    int32_t status = object_acquire(request->peer, OBJECT_PEER, &object);

    if (status != MC_OK)
        return status_set(error, status, 0, "request 0: the peer was closed, or never opened");
    if (peer_of(object)->engine == engine)
        status = transfer_to(peer_of(object), request, timeout_ns, error);
    else
        status = status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "request 0: the peer is another engine's");
    ref_drop(&object->ref);
    return status;
}

int32_t mc_engine_transfer(mc_engine *handle, const struct mc_request *requests, size_t count, size_t stride,
                           uint64_t timeout_ns, struct mc_error *error) {
    struct mc_request single;
    struct engine *engine;
    int32_t status = check_requests(requests, count, stride, error);

    if (status == MC_OK)
        status = engine_call_begin(handle, &engine, error);
    if (status != MC_OK)
        return status;
    if (count == 1) {
        single = *requests; /* the caller's array is read once */
        status = transfer_single(engine, &single, timeout_ns, error);
    } else {
        status = transfer(engine, requests, count, stride, timeout_ns, error);
    }
    engine_call_end(engine);
    return status;
}

static int32_t transfer_one(uint64_t id, uint32_t opcode, void *local, uint64_t remote, uint64_t length,
                            uint64_t timeout_ns, struct mc_error *error) {
    struct mc_request request = {.peer = id, .opcode = opcode, .local = local, .remote = remote, .length = length};
    struct peer *peer;
    int32_t status = peer_call_begin(id, &peer, error);

    if (status != MC_OK)
        return status;
    status = transfer_to(peer, &request, timeout_ns, error);
    peer_call_end(peer);
    return status;
}

int32_t mc_peer_read(uint64_t peer, void *local, uint64_t remote, uint64_t length, uint64_t timeout_ns,
                     struct mc_error *error) {
    return transfer_one(peer, MC_READ, local, remote, length, timeout_ns, error);
}

int32_t mc_peer_write(uint64_t peer, const void *local, uint64_t remote, uint64_t length, uint64_t timeout_ns,
                      struct mc_error *error) {
    return transfer_one(peer, MC_WRITE, (void *)(uintptr_t)local, remote, length, timeout_ns, error);
}

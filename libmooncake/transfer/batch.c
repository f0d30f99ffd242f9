/* transfer/batch.c - requests that were submitted together.
 *
 * Each request has one link and one or more slices. Slices of links that step are moved by whoever holds `copying`: the
 * submitter for a while, then a waiting caller or the loop. All others end by callbacks of their lanes, under the
 * lane's lock. Invariants: request.left counts its slices that haven't ended; batch.pending the requests that aren't
 * terminal. Whoever takes `pending` to 0 pushes the completion and sets `done`, last: from then on only the batch's
 * owner touches it.
 */
#include "transfer/batch.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/status.h"
#include "os/event.h"
#include "transfer/peer.h"

#define INLINE_COPY_TIME (5 * CLOCK_MILLISECOND) /* that a submission may spend on copying */
#define LOOP_COPY_TIME (2 * CLOCK_MILLISECOND)   /* before the loop looks after others */

struct request {
    struct batch *batch;
    struct peer *peer; /* a reference */
    const struct peer_link *link;
    struct slice *slices;
    uint32_t slice_count;
    atomic_uint left;
    uint64_t length;
    void *pin;         /* of the local range */
    atomic_int status; /* MC_ERR_PENDING, or of the first slice that failed */
    _Atomic uint64_t bytes;
    atomic_bool indeterminate;
    atomic_uint state;
};

struct batch {
    struct object object;
    struct engine *engine; /* a reference */
    struct list node;      /* in engine->batches, once begun */
    struct queue_entry completion;
    struct queue *queue; /* bound */
    bool attended;
    bool begun;
    uint64_t deadline;
    struct loop_timer timer;
    struct loop_task task;
    pthread_mutex_t copying;
    uint32_t next;   /* requests before it have no bytes left to step; with `copying` held */
    atomic_int stop; /* the status to end with, or MC_OK */
    atomic_uint pending;
    atomic_uint failed;
    atomic_int first_failure; /* the status of the first request (in time) that did not complete */
    struct event done;
    struct lane *lanes[LANES_DRIVEN_MAX]; /* that carry slices; set before `begun` */
    size_t lane_count;                    /* LANES_DRIVEN_MAX + 1: too many to drive */
    struct slice *slices;
    uint32_t count;
    struct request requests[];
};

struct batch *batch_at(struct list *node) {
    return list_entry(node, struct batch, node);
}

struct batch *batch_of(struct object *object) {
    return list_entry(object, struct batch, object);
}

struct object *batch_object(struct batch *batch) {
    return &batch->object;
}

struct engine *batch_engine(struct batch *batch) {
    return batch->engine;
}

size_t batch_count(const struct batch *batch) {
    return batch->count;
}

/* ---- Ends ---- */

static void batch_end(struct batch *batch) {
    batch->completion.completion.status = atomic_load(&batch->first_failure);
    batch->completion.completion.failed = atomic_load(&batch->failed);
    if (batch->queue != NULL)
        queue_push(batch->queue, &batch->completion);
    event_set(&batch->done);
}

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

/* The last slice has ended: the buffer is quiet, and the request terminal. */
static void request_end(struct request *request) {
    struct batch *batch = request->batch;
    int expected = MC_ERR_PENDING;
    int32_t status;

    atomic_compare_exchange_strong(&request->status, &expected, MC_OK);
    status = atomic_load(&request->status);
    if (request->pin != NULL)
        registry_unpin(request->pin);
    request->pin = NULL;
    if (status != MC_OK) {
        int none = MC_OK;

        /* Slices that completed stand beside those that didn't. */
        if (request->slice_count > 0 && request->slices[0].opcode == MC_WRITE && atomic_load(&request->bytes) > 0)
            atomic_store(&request->indeterminate, true);
        atomic_compare_exchange_strong(&batch->first_failure, &none, status);
        atomic_fetch_add(&batch->failed, 1);
    }
    atomic_store(&request->state, state_of(status));
    if (atomic_fetch_sub(&batch->pending, 1) == 1)
        batch_end(batch);
}

/* A slice has ended: nothing touches its part of the buffer any more. Any thread, maybe with a lane's lock held. */
static void slice_done(struct slice *slice, int32_t status) {
    struct request *request = slice->owner;

    if (status == MC_OK) {
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

static void destroy(struct ref *ref) {
    struct batch *batch = list_entry(ref, struct batch, object.ref);

    for (uint32_t i = 0; i < batch->count; i++) {
        if (batch->requests[i].pin != NULL)
            registry_unpin(batch->requests[i].pin);
        if (batch->requests[i].peer != NULL)
            ref_drop(&batch->requests[i].peer->object.ref);
    }
    event_destroy(&batch->done);
    pthread_mutex_destroy(&batch->copying);
    ref_drop(&batch->engine->object.ref);
    free(batch->slices);
    free(batch);
}

static int32_t check_request(const struct mc_request *wanted, size_t index, struct mc_error *error) {
    uint64_t end;

    if (wanted->opcode != MC_READ && wanted->opcode != MC_WRITE)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "request %zu: no opcode %u", index, wanted->opcode);
    if ((wanted->flags & ~MC_REQUEST_GUARD) != 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "request %zu: unknown flags 0x%x", index, wanted->flags);
    if (!checked_add(wanted->remote, wanted->length, &end) ||
        !checked_add((uint64_t)(uintptr_t)wanted->local, wanted->length, &end))
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "request %zu: a range of %" PRIu64 " bytes wraps around",
                          index, wanted->length);
    if ((wanted->flags & MC_REQUEST_GUARD) != 0 && wanted->guard_address % sizeof(uint64_t) != 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "request %zu: the guard is not 8-aligned", index);
    return MC_OK;
}

/* The whole request as one slice, for choosing its path and for links that step. */
static struct slice whole(const struct mc_request *wanted, struct request *request) {
    return (struct slice){
        .local = wanted->local,
        .remote = wanted->remote,
        .length = wanted->length,
        .guard_address = wanted->guard_address,
        .guard_value = wanted->guard_value,
        .opcode = wanted->opcode,
        .guarded = (wanted->flags & MC_REQUEST_GUARD) != 0,
        .owner = request,
        .done = slice_done,
    };
}

/* Finds the peer and the path, and pins the local range. */
static int32_t prepare_request(struct batch *batch, const struct mc_request *wanted, size_t index,
                               struct mc_error *error) {
    struct request *request = &batch->requests[index];
    struct slice slice = whole(wanted, request);
    struct object *object;
    uint64_t slices;
    int32_t status = check_request(wanted, index, error);

    if (status != MC_OK)
        return status;
    request->batch = batch;
    request->length = wanted->length;
    atomic_init(&request->status, MC_ERR_PENDING);
    atomic_init(&request->state, MC_STATE_PENDING);
    status = object_acquire(wanted->peer, OBJECT_PEER, &object);
    if (status != MC_OK)
        return status_set(error, status, 0, "request %zu: no such peer", index);
    request->peer = peer_of(object);
    if (request->peer->engine != batch->engine)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "request %zu: the peer is another engine's", index);
    if (wanted->length == 0)
        return MC_OK;
    status =
        registry_pin(batch->engine->registry, (uint64_t)(uintptr_t)wanted->local, wanted->length, 0, &request->pin);
    if (status != MC_OK)
        return status_set(error, status, 0, "request %zu: the local range %p + %" PRIu64 " is not registered", index,
                          wanted->local, wanted->length);
    request->link = peer_choose(request->peer, &slice);
    if (request->link == NULL) {
        /* Is it gone? */
        status = peer_probe(request->peer, clock_after(clock_now(), batch->engine->connect_timeout), error);
        if (status != MC_OK)
            return status;
        return status_set(error, MC_ERR_NOT_SUPPORTED, 0,
                          "request %zu: no permitted path leads to 0x%" PRIx64 " + %" PRIu64 " of the peer", index,
                          wanted->remote, wanted->length);
    }
    slices = request->link->ops->sliced ? (wanted->length - 1) / batch->engine->host.slice + 1 : 1;
    if (slices > UINT32_MAX / 2)
        return status_set(error, MC_ERR_TOO_LARGE, 0, "request %zu: %" PRIu64 " bytes are too many", index,
                          wanted->length);
    request->slice_count = (uint32_t)slices;
    return MC_OK;
}

/* Cuts the request into its slices, which are at `slices`. */
static void fill_slices(const struct batch *batch, const struct mc_request *wanted, struct request *request,
                        struct slice *slices) {
    uint64_t size = request->link->ops->sliced ? batch->engine->host.slice : request->length;

    request->slices = slices;
    atomic_init(&request->left, request->slice_count);
    for (uint32_t i = 0; i < request->slice_count; i++) {
        uint64_t offset = i * size;

        slices[i] = whole(wanted, request);
        slices[i].local += offset;
        slices[i].remote += offset;
        slices[i].length = request->length - offset < size ? request->length - offset : size;
    }
}

static void on_task(struct loop_task *task);
static void on_timer(struct loop_timer *timer, uint64_t now);

static struct batch *batch_new(struct engine *engine, size_t count, const struct batch_options *options) {
    struct batch *batch = calloc(1, sizeof(*batch) + count * sizeof(batch->requests[0]));

    if (batch == NULL)
        return NULL;
    object_init(&batch->object, OBJECT_BATCH, destroy);
    ref_take(&engine->object.ref);
    batch->engine = engine;
    batch->attended = options->attended;
    batch->completion.completion.user_data = options->user_data;
    batch->deadline = clock_after(clock_now(), options->timeout);
    batch->task.run = on_task;
    batch->count = (uint32_t)count;
    list_init(&batch->node);
    list_init(&batch->task.node);
    list_init(&batch->completion.node);
    loop_timer_init(&batch->timer, on_timer);
    pthread_mutex_init(&batch->copying, NULL);
    event_init(&batch->done);
    atomic_init(&batch->pending, (uint32_t)count);
    return batch;
}

static const struct mc_request *request_at(const struct mc_request *requests, size_t index, size_t stride) {
    return (const struct mc_request *)(const void *)((const char *)requests + index * stride);
}

/* Makes the slices of all requests, `total` in number. False if memory is short. */
static bool make_slices(struct batch *batch, const struct mc_request *requests, size_t stride, uint64_t total) {
    struct slice *next = calloc(total, sizeof(*next));

    if (next == NULL)
        return false;
    batch->slices = next;
    for (uint32_t i = 0; i < batch->count; i++) {
        if (batch->requests[i].slice_count > 0)
            fill_slices(batch, request_at(requests, i, stride), &batch->requests[i], next);
        next += batch->requests[i].slice_count;
    }
    return true;
}

int32_t batch_prepare(struct engine *engine, const struct mc_request *requests, size_t count, size_t stride,
                      const struct batch_options *options, struct batch **ret_batch, struct mc_error *error) {
    struct batch *batch = batch_new(engine, count, options);
    uint64_t slices = 0;
    int32_t status = MC_OK;

    if (batch == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "no memory for %zu requests", count);
    for (size_t i = 0; i < count && status == MC_OK; i++) {
        status = prepare_request(batch, request_at(requests, i, stride), i, error);
        slices += batch->requests[i].slice_count;
    }
    if (status == MC_OK && slices > 0 && !make_slices(batch, requests, stride, slices))
        status = status_set(error, MC_ERR_NO_MEMORY, 0, "no memory for %" PRIu64 " slices", slices);
    if (status == MC_OK && options->queue != NULL) {
        status = queue_bind(options->queue);
        if (status == MC_OK)
            batch->queue = options->queue;
        else
            status_set(error, status, 0, "the queue is closed");
    }
    if (status != MC_OK) {
        ref_drop(&batch->object.ref);
        return status;
    }
    *ret_batch = batch;
    return MC_OK;
}

/* ---- Moving bytes ---- */

static bool steps(const struct request *request) {
    return request->link != NULL && request->link->ops->step != NULL;
}

/* Moves bytes until there are none left to step (true), `until` has come, or the batch is stopped. With `copying` held.
 */
static bool copy_some(struct batch *batch, uint64_t until) {
    uint64_t since_look = 0;

    for (; batch->next < batch->count; batch->next++) {
        struct request *request = &batch->requests[batch->next];
        struct slice *slice = request->slices;
        int32_t status = MC_ERR_PENDING;

        while (steps(request) && status == MC_ERR_PENDING) {
            uint64_t before = slice->moved;

            if (atomic_load_explicit(&batch->stop, memory_order_relaxed) != MC_OK)
                return false;
            if (since_look >= TRANSPORT_PIECE) {
                since_look = 0;
                if (clock_now() >= until)
                    return false;
            }
            status = request->link->ops->step(request->link->link, slice);
            since_look += slice->moved - before;
            atomic_store_explicit(&request->bytes, slice->moved, memory_order_relaxed);
        }
        if (steps(request))
            slice_done(slice, status);
    }
    return true;
}

static void on_task(struct loop_task *task) {
    struct batch *batch = list_entry(task, struct batch, task);
    bool finished;

    if (pthread_mutex_trylock(&batch->copying) != 0)
        return; /* somebody else goes on with it, and posts again if it leaves */
    finished = copy_some(batch, clock_after(clock_now(), LOOP_COPY_TIME));
    pthread_mutex_unlock(&batch->copying);
    if (!finished && atomic_load(&batch->stop) == MC_OK)
        loop_post(batch->engine->loop, task);
}

static void on_timer(struct loop_timer *timer, uint64_t now) {
    (void)now;
    batch_stop(list_entry(timer, struct batch, timer), MC_ERR_TIMEOUT);
}

/* Remembers the lanes that carry the request, so that a waiting caller can drive them. */
static void note_lanes(struct batch *batch, const struct request *request) {
    for (uint32_t i = 0; i < request->slice_count && batch->lane_count <= LANES_DRIVEN_MAX; i++) {
        struct lane *lane = request->slices[i].lane;
        size_t known = 0;

        while (known < batch->lane_count && batch->lanes[known] != lane)
            known++;
        if (known < batch->lane_count)
            continue;
        if (known < LANES_DRIVEN_MAX)
            batch->lanes[known] = lane;
        batch->lane_count++;
    }
}

/* Hands the slices of all requests that don't step to their links, those of neighbours with the same link together. */
static void submit_slices(struct batch *batch) {
    struct list slices;

    list_init(&slices);
    for (uint32_t i = 0; i < batch->count; i++) {
        const struct peer_link *link = batch->requests[i].link;

        if (link == NULL || link->ops->step != NULL)
            continue;
        for (uint32_t j = 0; j < batch->requests[i].slice_count; j++)
            list_append(&slices, &batch->requests[i].slices[j].node);
        if (i + 1 == batch->count || batch->requests[i + 1].link != link)
            link->ops->submit(link->link, &slices, batch->attended);
    }
    for (uint32_t i = 0; i < batch->count; i++)
        if (batch->requests[i].link != NULL && batch->requests[i].link->ops->step == NULL)
            note_lanes(batch, &batch->requests[i]);
}

/* Lanes that nobody will drive are the loop's. */
static void leave_lanes(struct batch *batch) {
    for (uint32_t i = 0; i < batch->count; i++)
        for (uint32_t j = 0; j < batch->requests[i].slice_count; j++)
            if (batch->requests[i].slices[j].lane != NULL)
                lane_leave(batch->requests[i].slices[j].lane);
}

void batch_begin(struct batch *batch, uint64_t id) {
    struct engine *engine = batch->engine;
    bool copied;

    batch->completion.completion.batch = id;
    pthread_mutex_lock(&batch->copying);
    batch->begun = true;
    /* One is held back, so that the batch can't be done while it is being begun. */
    atomic_fetch_add(&batch->pending, 1);
    submit_slices(batch);
    for (uint32_t i = 0; i < batch->count; i++)
        if (batch->requests[i].slice_count == 0)
            request_end(&batch->requests[i]);
    if (batch->attended && batch->lane_count > LANES_DRIVEN_MAX)
        leave_lanes(batch);
    copied = batch->attended || copy_some(batch, clock_after(clock_now(), INLINE_COPY_TIME));
    pthread_mutex_unlock(&batch->copying); /* closing takes it with the engine's lock held */
    pthread_mutex_lock(&engine->lock);
    list_append(&engine->batches, &batch->node);
    pthread_mutex_unlock(&engine->lock);
    if (!copied)
        loop_post(engine->loop, &batch->task);
    if (!batch->attended && atomic_load(&batch->pending) > 1)
        loop_timer_set(engine->loop, &batch->timer, batch->deadline);
    if (atomic_fetch_sub(&batch->pending, 1) == 1)
        batch_end(batch);
}

void batch_stop(struct batch *batch, int32_t status) {
    int none = MC_OK;

    atomic_compare_exchange_strong(&batch->stop, &none, status);
    status = atomic_load(&batch->stop);
    pthread_mutex_lock(&batch->copying);
    for (; batch->next < batch->count; batch->next++)
        if (steps(&batch->requests[batch->next]))
            slice_done(batch->requests[batch->next].slices, status);
    for (uint32_t i = 0; i < batch->count; i++) {
        struct request *request = &batch->requests[i];

        for (uint32_t j = 0; j < request->slice_count && !steps(request); j++)
            request->link->ops->cancel(&request->slices[j], status);
    }
    pthread_mutex_unlock(&batch->copying);
    event_wait(&batch->done, CLOCK_NEVER);
}

bool batch_is_done(const struct batch *batch) {
    return atomic_load(&batch->pending) == 0;
}

int32_t batch_outcome(struct batch *batch) {
    return batch_is_done(batch) ? atomic_load(&batch->first_failure) : MC_ERR_PENDING;
}

/* Moves bytes in this thread, if it is the one to do it. Leaves the rest to the loop. */
static void copy_until(struct batch *batch, uint64_t until) {
    bool finished;

    if (pthread_mutex_trylock(&batch->copying) != 0)
        return;
    finished = copy_some(batch, until);
    pthread_mutex_unlock(&batch->copying);
    if (!finished && !batch->attended && atomic_load(&batch->stop) == MC_OK)
        loop_post(batch->engine->loop, &batch->task);
}

int32_t batch_wait(struct batch *batch, uint64_t deadline) {
    uint64_t until = deadline < batch->deadline ? deadline : batch->deadline;

    while (!batch_is_done(batch)) {
        if (clock_now() < until)
            copy_until(batch, until);
        if (!batch_is_done(batch) && clock_now() < until)
            lanes_drive(batch->lanes, batch->lane_count, &batch->done, until);
        if (!batch_is_done(batch) && clock_now() >= batch->deadline)
            batch_stop(batch, MC_ERR_TIMEOUT);
        else if (clock_now() >= deadline)
            break;
    }
    return batch_outcome(batch);
}

void batch_abandon(struct batch *batch) {
    struct engine *engine = batch->engine;

    batch_stop(batch, MC_ERR_CANCELLED);
    list_remove(&batch->node);
    loop_timer_cancel_sync(engine->loop, &batch->timer);
    loop_unpost_sync(engine->loop, &batch->task);
}

void batch_retire(struct batch *batch) {
    struct engine *engine = batch->engine;

    if (batch->begun)
        event_wait(&batch->done, CLOCK_NEVER); /* whoever ended it has left it */
    pthread_mutex_lock(&engine->lock);
    list_remove(&batch->node);
    pthread_mutex_unlock(&engine->lock);
    if (engine->loop != NULL && !batch->attended) {
        loop_timer_cancel_sync(engine->loop, &batch->timer);
        loop_unpost_sync(engine->loop, &batch->task);
    }
    if (batch->queue != NULL)
        queue_unbind(batch->queue, &batch->completion);
    ref_drop(&batch->object.ref);
}

void batch_explain(const struct batch *batch, struct mc_error *error) {
    for (uint32_t i = 0; i < batch->count; i++) {
        const struct request *request = &batch->requests[i];
        int32_t status = atomic_load(&request->status);

        if (status == MC_OK || request->slice_count == 0)
            continue;
        status_set(error, status, 0, "request %u, %s of %" PRIu64 " bytes at 0x%" PRIx64 " of %s by %s: %s", i,
                   request->slices[0].opcode == MC_READ ? "READ" : "WRITE", request->length, request->slices[0].remote,
                   request->peer->address, request->link->ops->name, status_text(status));
        return;
    }
}

void batch_status(const struct batch *batch, size_t index, struct mc_request_status *ret_status) {
    const struct request *request = &batch->requests[index];
    uint32_t state = atomic_load(&request->state);

    *ret_status = (struct mc_request_status){
        .state = state,
        .status = state == MC_STATE_PENDING ? MC_ERR_PENDING : atomic_load(&request->status),
        .bytes = atomic_load(&request->bytes),
        .flags = state != MC_STATE_PENDING && atomic_load(&request->indeterminate) ? MC_STATUS_INDETERMINATE : 0,
    };
}

/* transfer/batch.c - requests that were submitted together.
 *
 * Each request has one link and one or more slices. Slices of links that step are moved by whoever holds `copying`: the
 * submitter for a while, then a waiting caller or the loop. All others end by callbacks of their lanes, under the
 * lane's lock.
 *
 * Invariants: `pending` counts the requests that aren't terminal. Whoever takes `pending` to 0 ends the batch, or sends
 * the notices, which end it. The end is: `over`, the completion's push, and `done`, last: from then on only the batch's
 * owner touches it.
 */
#include "transfer/batch.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "os/event.h"
#include "transfer/request.h"

#define INLINE_COPY_TIME (5 * CLOCK_MILLISECOND) /* that a submission may spend on copying */
#define STEP_COST 1024u                          /* bytes for which a step counts that moves few or none */
#define GLANCE (20 * CLOCK_MILLISECOND)          /* before who waits for another's copying looks whether it goes on */
#define LOOP_COPY_TIME (2 * CLOCK_MILLISECOND)   /* before the loop looks after others */

struct batch {
    struct object object;
    struct engine *engine; /* a reference */
    struct list node;      /* in engine->batches, once begun */
    struct queue_entry completion;
    struct queue *queue; /* bound */
    bool attended;
    bool begun;
    uint64_t start;
    uint64_t deadline;
    struct loop_timer timer;
    struct loop_task task;
    pthread_mutex_t copying;
    uint32_t next;   /* requests before it have no bytes left to step; with `copying` held */
    atomic_int stop; /* the status to end with, or MC_OK */
    atomic_uint pending;
    atomic_uint failed;
    atomic_int first_failure;      /* the status of the first request, in time, that did not complete */
    _Atomic uint32_t first_failed; /* which one it is */
    struct notices *notices;       /* NULL: none */
    atomic_bool over;
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
    atomic_store(&batch->over, true);
    if (batch->queue != NULL)
        queue_push(batch->queue, &batch->completion);
    event_set(&batch->done);
}

/* All peers know, or one can't be told. */
static void notices_ended(void *context, int32_t status) {
    struct batch *batch = context;

    if (status != MC_OK) {
        atomic_store(&batch->first_failure, status);
        atomic_store(&batch->first_failed, batch->count);
    }
    batch_end(batch);
}

/* All requests are terminal. */
static void requests_over(struct batch *batch) {
    if (batch->notices != NULL && atomic_load(&batch->first_failure) == MC_OK)
        notices_send(batch->notices);
    else
        batch_end(batch);
}

/* A request is terminal. */
static void request_ended(struct request *request, int32_t status) {
    struct batch *batch = request->owner;

    if (status != MC_OK) {
        int none = MC_OK;

        if (atomic_compare_exchange_strong(&batch->first_failure, &none, status))
            atomic_store(&batch->first_failed, (uint32_t)(request - batch->requests));
        atomic_fetch_add(&batch->failed, 1);
    }
    if (atomic_fetch_sub(&batch->pending, 1) == 1)
        requests_over(batch);
}

/* ---- Preparing ---- */

static void destroy(struct ref *ref) {
    struct batch *batch = list_entry(ref, struct batch, object.ref);

    for (uint32_t i = 0; i < batch->count; i++)
        request_release(&batch->requests[i]);
    notices_free(batch->notices);
    event_destroy(&batch->done);
    pthread_mutex_destroy(&batch->copying);
    ref_drop(&batch->engine->object.ref);
    free(batch->slices);
    free(batch);
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
    batch->start = clock_now();
    batch->deadline = clock_after(batch->start, options->timeout);
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

static bool make_notices(struct batch *batch, const struct notice *notice) {
    batch->notices = notices_new(batch->engine, notice, notices_ended, batch);
    if (batch->notices == NULL)
        return false;
    for (uint32_t i = 0; i < batch->count; i++)
        if (!notices_add(batch->notices, batch->requests[i].peer))
            return false;
    return true;
}

/* Makes the slices of all requests, `total` in number. False if memory is short. */
static bool make_slices(struct batch *batch, uint64_t total) {
    struct slice *next = calloc(total, sizeof(*next));

    if (next == NULL)
        return false;
    batch->slices = next;
    for (uint32_t i = 0; i < batch->count; i++) {
        request_cut(&batch->requests[i], next);
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
        struct request *request = &batch->requests[i];

        request->owner = batch;
        request->ended = request_ended;
        request->start = batch->start;
        status = request_prepare(request, request_at(requests, i, stride), i, !options->unregistered, engine, error);
        slices += request->slice_count;
    }
    if (status == MC_OK && slices > 0 && !make_slices(batch, slices))
        status = status_set(error, MC_ERR_NO_MEMORY, 0, "no memory for %" PRIu64 " slices", slices);
    if (status == MC_OK && options->notify != NULL && !make_notices(batch, options->notify))
        status = status_set(error, MC_ERR_NO_MEMORY, 0, "no memory for the notifications");
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

/* How many requests from `next` on go together. */
static uint32_t group_size(const struct batch *batch) {
    const struct request *first = &batch->requests[batch->next];
    uint64_t bytes = 0;
    uint32_t count = 0;

    while (batch->next + count < batch->count && count < TRANSPORT_GROUP &&
           request_may_group(first, &first[count], bytes))
        bytes += first[count++].wanted.length;
    return count;
}

/* Moves the next piece of the next request, or the next requests wholly if they are small; how many bytes. */
static uint64_t copy_next(struct batch *batch) {
    struct request *request = &batch->requests[batch->next];
    uint32_t count = group_size(batch);
    uint64_t before = request->slices->moved;
    int32_t status;

    if (count > 1) {
        request_step_group(request, count);
        batch->next += count;
        return TRANSPORT_PIECE;
    }
    status = request_step(request);
    before = request->slices->moved - before;
    if (status != MC_ERR_PENDING) {
        request_stepped(request, status);
        batch->next++;
    }
    return before + STEP_COST;
}

/* Moves bytes until there are none left to step (true), `until` has come, or the batch is stopped. With `copying` held.
 */
static bool copy_some(struct batch *batch, uint64_t until) {
    uint64_t since_look = 0;

    while (batch->next < batch->count) {
        if (!request_steps(&batch->requests[batch->next])) {
            batch->next++;
            continue;
        }
        if (atomic_load_explicit(&batch->stop, memory_order_relaxed) != MC_OK)
            return false;
        if (since_look >= TRANSPORT_PIECE) {
            since_look = 0;
            if (clock_now() >= until)
                return false;
        }
        since_look += copy_next(batch);
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

        if (link == NULL || request_steps(&batch->requests[i]))
            continue;
        for (uint32_t j = 0; j < batch->requests[i].slice_count; j++)
            list_append(&slices, &batch->requests[i].slices[j].node);
        if (i + 1 == batch->count || batch->requests[i + 1].link != link)
            link->ops->submit(link->link, &slices, batch->attended);
    }
    for (uint32_t i = 0; i < batch->count; i++)
        if (!request_steps(&batch->requests[i]))
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
    if (!batch->attended && (batch->notices != NULL || atomic_load(&batch->pending) > 1))
        loop_timer_set(engine->loop, &batch->timer, batch->deadline);
    if (atomic_fetch_sub(&batch->pending, 1) == 1)
        requests_over(batch);
}

/* Ends all slices that don't step, many at a time. */
static void cancel_slices(struct batch *batch, int32_t status) {
    const struct transport_ops *ops = NULL;
    struct slice *slices[TRANSPORT_CANCEL_MAX];
    size_t used = 0;

    for (uint32_t i = 0; i < batch->count; i++) {
        const struct request *request = &batch->requests[i];

        for (uint32_t j = 0; j < request->slice_count && !request_steps(request); j++) {
            if (used == TRANSPORT_CANCEL_MAX || (used > 0 && request->link->ops != ops)) {
                ops->cancel(slices, used, status);
                used = 0;
            }
            ops = request->link->ops;
            slices[used++] = &request->slices[j];
        }
    }
    if (used > 0)
        ops->cancel(slices, used, status);
}

void batch_stop(struct batch *batch, int32_t status) {
    int none = MC_OK;

    atomic_compare_exchange_strong(&batch->stop, &none, status);
    status = atomic_load(&batch->stop);
    pthread_mutex_lock(&batch->copying);
    for (; batch->next < batch->count; batch->next++)
        if (request_steps(&batch->requests[batch->next]))
            request_stepped(&batch->requests[batch->next], status);
    cancel_slices(batch, status);
    if (batch->notices != NULL)
        notices_stop(batch->notices, status);
    pthread_mutex_unlock(&batch->copying);
    event_wait(&batch->done, CLOCK_NEVER);
}

bool batch_is_done(const struct batch *batch) {
    return atomic_load(&batch->over);
}

bool batch_may_retire(const struct batch *batch) {
    if (batch_is_done(batch))
        return true;
    if (batch->notices != NULL)
        return false;
    for (uint32_t i = 0; i < batch->count; i++)
        if (atomic_load(&batch->requests[i].state) == MC_STATE_PENDING)
            return false;
    return true;
}

int32_t batch_outcome(struct batch *batch) {
    return batch_is_done(batch) ? atomic_load(&batch->first_failure) : MC_ERR_PENDING;
}

/* Moves bytes in this thread until `until`, and leaves the rest to the loop or the next waiter. False if another thread
 * is at it, now. */
static bool copy_until(struct batch *batch, uint64_t until) {
    bool finished;

    if (pthread_mutex_trylock(&batch->copying) != 0)
        return false;
    finished = copy_some(batch, until);
    pthread_mutex_unlock(&batch->copying);
    if (!finished && !batch->attended && atomic_load(&batch->stop) == MC_OK)
        loop_post(batch->engine->loop, &batch->task);
    return true;
}

int32_t batch_wait(struct batch *batch, uint64_t deadline) {
    uint64_t until = deadline < batch->deadline ? deadline : batch->deadline;

    while (!batch_is_done(batch)) {
        uint64_t now = clock_now();

        /* Whoever moves the bytes now may leave before they are all moved. */
        if (now < until && !copy_until(batch, until))
            event_wait(&batch->done, clock_after(now, GLANCE) < until ? clock_after(now, GLANCE) : until);
        else if (!batch_is_done(batch) && clock_now() < until)
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
    notices_leave_loop(batch->notices);
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
    if (engine->loop != NULL)
        notices_leave_loop(batch->notices);
    if (batch->queue != NULL)
        queue_unbind(batch->queue, &batch->completion);
    ref_drop(&batch->object.ref);
}

void batch_explain(const struct batch *batch, struct mc_error *error) {
    uint32_t index = atomic_load(&batch->first_failed);
    int32_t status = atomic_load(&batch->first_failure);

    if (index < batch->count)
        request_explain(&batch->requests[index], index, error);
    else
        status_set(error, status, 0, "all requests completed, but the notification didn't: %s", status_text(status));
}

void batch_status(const struct batch *batch, size_t index, struct mc_request_status *ret_status) {
    request_status(&batch->requests[index], ret_status);
}

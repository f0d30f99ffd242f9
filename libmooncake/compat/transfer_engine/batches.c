/* compat/transfer_engine/batches.c - batches that are submitted to in several calls.
 *
 * Owns the batches. Each submission is a batch of the library; its tasks are numbered on from those before it. What is
 * submitted with a notification hasn't ended before the notification has arrived: so whoever has seen all its tasks end
 * can free it.
 *
 * Threads: any. A batch's `lock` guards its submissions, and is held over mc_batch_submit, which copies for a few
 * milliseconds at most. The engine's lock may be taken within it, and the table's within that.
 */
#include <stdlib.h>
#include <string.h>

#include "compat/words.h"

#include "compat/transfer_engine/inside.h"

#define TASKS_MAX ((size_t)1 << 20)
#define REQUESTS_NEAR 64u           /* as many are put together on the stack */
#define DRIVE_TIME UINT64_C(5000)   /* nanoseconds for which a call may move the bytes that it asks for */
#define GLANCE UINT64_C(1000000)    /* for a batch to end whose request has failed, so that it has words for that */
#define MOMENT UINT64_C(1000000000) /* that a batch may take to end when its requests have: far more than it does */

_Static_assert(MC_STATE_CANCELLED == STATUS_CANCELED && MC_STATE_COMPLETED == STATUS_COMPLETED &&
                   MC_STATE_TIMEOUT == STATUS_TIMEOUT && MC_STATE_FAILED == STATUS_FAILED && MC_READ == OPCODE_READ &&
                   MC_WRITE == OPCODE_WRITE,
               "the numbers are the reference's");

struct submission {
    uint64_t batch; /* of the library */
    size_t first;   /* its first task */
    bool notifies;
    bool told; /* that one of its tasks has failed */
};

struct batch {
    struct token_object token;
    struct engine *engine; /* a reference */
    uint64_t number;
    size_t capacity;
    struct batch *next, **link; /* in the engine's list, with its lock */
    pthread_mutex_t lock;
    size_t tasks;
    struct submission *submissions;
    size_t count, room;
    size_t asked; /* 1 + the task that was asked for last; 0: none */
};

static void destroy(struct token_object *object) {
    struct batch *batch = (struct batch *)object;

    pthread_mutex_lock(&batch->engine->lock);
    if (batch->link != NULL) {
        *batch->link = batch->next;
        if (batch->next != NULL)
            batch->next->link = batch->link;
    }
    pthread_mutex_unlock(&batch->engine->lock);
    token_drop(&batch->engine->token);
    pthread_mutex_destroy(&batch->lock);
    free(batch->submissions);
    free(batch);
}

static uint64_t make(struct engine *engine, size_t capacity) {
    struct batch *batch = calloc(1, sizeof(*batch));
    uint64_t number;

    if (batch == NULL)
        return 0;
    token_init(&batch->token, TOKEN_BATCH, destroy);
    token_hold(&engine->token);
    batch->engine = engine;
    batch->capacity = capacity;
    pthread_mutex_init(&batch->lock, NULL);
    pthread_mutex_lock(&engine->lock);
    if (!engine->ended)
        batch->number = token_publish(&batch->token);
    number = batch->number;
    if (number != 0) {
        batch->next = engine->batches;
        batch->link = &engine->batches;
        if (batch->next != NULL)
            batch->next->link = &batch->next;
        engine->batches = batch;
    }
    pthread_mutex_unlock(&engine->lock);
    token_drop(&batch->token);
    return number;
}

batch_id_t allocateBatchID(transfer_engine_t handle, size_t size) {
    struct engine *engine = engine_enter(handle, __func__);
    uint64_t number = 0;

    if (engine == NULL)
        return INVALID_BATCH;
    if (size <= TASKS_MAX)
        number = make(engine, size);
    engine_leave(engine);
    if (number != 0)
        return number;
    words_warn("%s: %zu tasks: a batch has at most %zu, and there are at most 16777216 batches", __func__, size,
               TASKS_MAX);
    return INVALID_BATCH;
}

/* The engine's batch of that number, with a reference; NULL, with words. */
static struct batch *enter(struct engine *engine, uint64_t number, const char *what) {
    struct batch *batch = (struct batch *)token_acquire(number, TOKEN_BATCH);

    if (batch != NULL && batch->engine == engine)
        return batch;
    if (batch != NULL)
        token_drop(&batch->token);
    words_warn("%s: no batch 0x%llx in this engine: it was freed, or never there", what, (unsigned long long)number);
    return NULL;
}

/* ---- Submitting ---- */

static int32_t translate(struct engine *engine, const transfer_request_t *entries, size_t n,
                         struct mc_request *requests, struct mc_error *error) {
    uint64_t peer = 0;

    for (size_t i = 0; i < n; i++) {
        const transfer_request_t *entry = &entries[i];

        if (entry->opcode != OPCODE_READ && entry->opcode != OPCODE_WRITE)
            return result_words(error, MC_ERR_INVALID_ARGUMENT, "entry %zu: no opcode %d", i, entry->opcode);
        if (i == 0 || entry->target_id != entries[i - 1].target_id) {
            int32_t status = segment_peer(engine, entry->target_id, &peer, error);

            if (status != MC_OK)
                return status;
        }
        requests[i] = (struct mc_request){.peer = peer,
                                          .opcode = (uint32_t)entry->opcode,
                                          .local = entry->source,
                                          .remote = entry->target_offset,
                                          .length = entry->length};
    }
    return MC_OK;
}

/* Room for one more submission; with the batch's lock held. */
static bool make_room(struct batch *batch) {
    size_t room = batch->room == 0 ? 1 : batch->room * 2;
    struct submission *grown;

    if (batch->count < batch->room)
        return true;
    grown = realloc(batch->submissions, room * sizeof(*grown));
    if (grown == NULL)
        return false;
    batch->submissions = grown;
    batch->room = room;
    return true;
}

/* With the batch's lock held. */
static int32_t too_many(const struct batch *batch, size_t n, struct mc_error *error) {
    return result_words(error, MC_ERR_TOO_MANY, "%zu tasks are more than the batch takes: it has %zu of %zu", n,
                        batch->tasks, batch->capacity);
}

static int32_t submit_requests(struct batch *batch, const struct mc_request *requests, size_t n,
                               const struct mc_batch_options *options, struct mc_error *error) {
    struct submission submission = {.notifies = (options->flags & MC_BATCH_NOTIFY) != 0};
    int32_t status;

    pthread_mutex_lock(&batch->lock);
    submission.first = batch->tasks;
    if (n > batch->capacity - batch->tasks)
        status = too_many(batch, n, error);
    else if (!make_room(batch))
        status = MC_ERR_NO_MEMORY;
    else
        status =
            mc_batch_submit(batch->engine->engine, requests, n, sizeof(requests[0]), options, &submission.batch, error);
    if (status == MC_OK) {
        batch->submissions[batch->count++] = submission;
        batch->tasks += n;
    }
    pthread_mutex_unlock(&batch->lock);
    return status;
}

static int32_t submit_entries(struct batch *batch, const transfer_request_t *entries, size_t n,
                              const struct mc_batch_options *options, struct mc_error *error) {
    struct mc_request near_by[REQUESTS_NEAR];
    struct mc_request *requests = near_by;
    int32_t status;

    if (n > TASKS_MAX)
        return result_words(error, MC_ERR_TOO_MANY, "%zu tasks are more than a batch can have", n);
    if (n > REQUESTS_NEAR)
        requests = malloc(n * sizeof(*requests)); /* n is at most TASKS_MAX */
    if (requests == NULL)
        return MC_ERR_NO_MEMORY;
    status = translate(batch->engine, entries, n, requests, error);
    if (status == MC_OK)
        status = submit_requests(batch, requests, n, options, error);
    if (requests != near_by)
        free(requests);
    return status;
}

static int submit(transfer_engine_t handle, uint64_t number, const transfer_request_t *entries, size_t n,
                  const struct mc_batch_options *options, const char *what) {
    struct engine *engine = engine_enter(handle, what);
    struct mc_error error = MC_ERROR_INIT;
    int32_t status = MC_ERR_INVALID_ARGUMENT;
    struct batch *batch;

    if (engine == NULL)
        return result_of_batch(MC_ERR_INVALID_HANDLE);
    batch = enter(engine, number, what);
    if (batch == NULL)
        status = MC_ERR_INVALID_HANDLE;
    else if (n == 0 && options->flags == 0)
        status = MC_OK;
    else if (entries != NULL && n > 0)
        status = submit_entries(batch, entries, n, options, &error);
    if (batch != NULL && status != MC_OK)
        (void)result_say(what, status, &error);
    if (batch != NULL)
        token_drop(&batch->token);
    engine_leave(engine);
    return result_of_batch(status);
}

int submitTransfer(transfer_engine_t handle, batch_id_t number, transfer_request_t *entries, size_t n) {
    const struct mc_batch_options options = {.struct_size = sizeof(options)};

    return submit(handle, number, entries, n, &options, __func__);
}

int submitTransferWithNotify(transfer_engine_t handle, batch_id_t number, transfer_request_t *entries, size_t n,
                             notify_msg_t notify) {
    struct mc_batch_options options = {.struct_size = sizeof(options), .flags = MC_BATCH_NOTIFY};

    if (notify.name == NULL || notify.msg == NULL) {
        (void)result_say(__func__, MC_ERR_INVALID_ARGUMENT, NULL);
        return result_of_batch(MC_ERR_INVALID_ARGUMENT);
    }
    options.notify_name = notify.name;
    options.notify_name_length = strlen(notify.name);
    options.notify_message = notify.msg;
    options.notify_message_length = strlen(notify.msg);
    return submit(handle, number, entries, n, &options, __func__);
}

/* ---- What has become of it ---- */

/* The submission that a task belongs to; with the lock held, and the task is there. */
static struct submission *submission_of(const struct batch *batch, size_t task) {
    size_t low = 0, high = batch->count;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (batch->submissions[middle].first <= task)
            low = middle;
        else
            high = middle;
    }
    return &batch->submissions[low];
}

/* The task behind its last one; with the lock held. */
static size_t end_of(const struct batch *batch, const struct submission *submission) {
    return submission + 1 < batch->submissions + batch->count ? submission[1].first : batch->tasks;
}

/* The state of a task of a submission, in the words of the library; a status. */
static int32_t look(const struct submission *submission, size_t task, struct mc_request_status *request) {
    int32_t status = mc_batch_status(submission->batch, task - submission->first, request, 1, sizeof(*request));

    if (status == MC_OK && submission->notifies && request->state == MC_STATE_COMPLETED) {
        int32_t told = mc_batch_wait(submission->batch, 0);

        if (told == MC_ERR_PENDING)
            request->state = MC_STATE_PENDING;
        else if (told != MC_OK)
            request->state = MC_STATE_FAILED;
    }
    return status;
}

/* Says why tasks of a submission have failed, once: the library has words for the first of them when all have ended. */
static void tell(const struct submission *submission, size_t end, size_t task, int32_t status) {
    struct mc_error error = MC_ERROR_INIT;

    (void)mc_batch_wait(submission->batch, GLANCE);
    (void)mc_batch_explain(submission->batch, &error);
    if (error.code == MC_OK || error.code == MC_ERR_PENDING)
        words_warn("getTransferStatus: task %zu: %s", task, mc_status_text(status));
    else if (end - submission->first == 1)
        words_warn("getTransferStatus: task %zu: %s", task, error.message);
    else
        words_warn("getTransferStatus: tasks %zu to %zu: %s", submission->first, end - 1, error.message);
}

/* Has no failure of the task's submission been told yet? From now on it has. */
static bool is_news(struct batch *batch, size_t task) {
    bool news = false;

    pthread_mutex_lock(&batch->lock);
    if (task < batch->tasks) { /* else it has been freed meanwhile */
        struct submission *submission = submission_of(batch, task);

        news = !submission->told;
        submission->told = true;
    }
    pthread_mutex_unlock(&batch->lock);
    return news;
}

/* Whoever asks for the same task again has nothing else to do, and helps. */
static int32_t task_status(struct batch *batch, size_t task, transfer_status_t *out, struct mc_error *error) {
    struct mc_request_status request = {0};
    struct submission submission;
    int32_t status;
    size_t end;
    bool again;

    pthread_mutex_lock(&batch->lock);
    if (task >= batch->tasks) {
        end = batch->tasks;
        pthread_mutex_unlock(&batch->lock);
        return result_words(error, MC_ERR_INVALID_ARGUMENT, "no task %zu: the batch has %zu", task, end);
    }
    submission = *submission_of(batch, task);
    end = end_of(batch, submission_of(batch, task));
    again = batch->asked == task + 1;
    batch->asked = task + 1;
    pthread_mutex_unlock(&batch->lock);
    status = look(&submission, task, &request);
    if (status == MC_OK && request.state == MC_STATE_PENDING && again) {
        (void)mc_batch_wait(submission.batch, DRIVE_TIME);
        status = look(&submission, task, &request);
    }
    if (status == MC_OK && request.state != MC_STATE_PENDING && request.state != MC_STATE_COMPLETED &&
        is_news(batch, task))
        tell(&submission, end, task, request.status);
    if (status == MC_OK) {
        out->status = request.state == MC_STATE_PENDING ? STATUS_WAITING : (int)request.state;
        out->transferred_bytes = request.bytes;
    }
    return status;
}

int getTransferStatus(transfer_engine_t handle, batch_id_t number, size_t task, transfer_status_t *out) {
    struct engine *engine = engine_enter(handle, __func__);
    struct mc_error error = MC_ERROR_INIT;
    int32_t status = MC_ERR_INVALID_HANDLE;
    struct batch *batch;

    if (engine == NULL)
        return result_of_batch(MC_ERR_INVALID_HANDLE);
    batch = enter(engine, number, __func__);
    if (batch != NULL) {
        status = out == NULL ? MC_ERR_INVALID_ARGUMENT : task_status(batch, task, out, &error);
        if (status != MC_OK)
            (void)result_say(__func__, status, &error);
        token_drop(&batch->token);
    }
    engine_leave(engine);
    return result_of_batch(status);
}

/* ---- Freeing ---- */

/* Has a submission ended, with all that can be seen of it? A batch of the library ends a moment after its last request
 * has, and whoever has seen that one end may free it. */
static bool is_over(const struct batch *batch, size_t index) {
    const struct submission *submission = &batch->submissions[index];
    size_t end = end_of(batch, submission);

    if (mc_batch_wait(submission->batch, 0) != MC_ERR_PENDING)
        return true;
    for (size_t task = submission->first; task < end; task++) {
        struct mc_request_status request = {0};

        if (look(submission, task, &request) != MC_OK || request.state == MC_STATE_PENDING)
            return false;
    }
    return mc_batch_wait(submission->batch, MOMENT) != MC_ERR_PENDING;
}

/* Frees the library's batches, if all have ended; with the lock held. */
static int32_t free_submissions(struct batch *batch) {
    for (size_t i = 0; i < batch->count; i++)
        if (!is_over(batch, i))
            return MC_ERR_BUSY;
    for (size_t i = 0; i < batch->count; i++)
        (void)mc_batch_free(batch->submissions[i].batch);
    batch->count = 0;
    batch->tasks = batch->capacity = 0; /* for who still has it in a call */
    return MC_OK;
}

int freeBatchID(transfer_engine_t handle, batch_id_t number) {
    struct engine *engine = engine_enter(handle, __func__);
    int32_t status = MC_ERR_INVALID_HANDLE;
    struct token_object *withdrawn = NULL;
    struct batch *batch;

    if (engine == NULL)
        return result_of_batch(MC_ERR_INVALID_HANDLE);
    batch = enter(engine, number, __func__);
    if (batch != NULL) {
        pthread_mutex_lock(&batch->lock);
        status = free_submissions(batch);
        if (status == MC_OK)
            withdrawn = token_withdraw(number, TOKEN_BATCH);
        pthread_mutex_unlock(&batch->lock);
        if (status == MC_OK && withdrawn == NULL)
            status = MC_ERR_INVALID_HANDLE; /* another thread has freed it */
        if (withdrawn != NULL)
            token_drop(withdrawn);
        token_drop(&batch->token);
    }
    engine_leave(engine);
    return result_of_batch(status);
}

/* One of the batches that are there, with the reference of the table; NULL: there are none. */
static struct token_object *withdraw_one(struct engine *engine) {
    struct token_object *object = NULL;

    pthread_mutex_lock(&engine->lock);
    for (struct batch *batch = engine->batches; batch != NULL && object == NULL; batch = batch->next)
        object = token_withdraw(batch->number, TOKEN_BATCH);
    pthread_mutex_unlock(&engine->lock);
    return object;
}

void batches_free(struct engine *engine) {
    struct token_object *object;

    while ((object = withdraw_one(engine)) != NULL) {
        struct batch *batch = (struct batch *)object;

        pthread_mutex_lock(&batch->lock);
        for (size_t i = 0; i < batch->count; i++)
            (void)mc_batch_cancel(batch->submissions[i].batch);
        (void)free_submissions(batch);
        pthread_mutex_unlock(&batch->lock);
        token_drop(object);
    }
}

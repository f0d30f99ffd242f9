/* transfer/notices.c - the notifications that a batch sends when its requests have completed.
 *
 * Invariants: `state` changes with the lock held. The loop's task alone begins calls, and is not running any more when
 * notices_stop looks at which have begun. `left` counts the calls that haven't ended; who takes it to 0 calls `ended`,
 * last.
 */
#include "transfer/notices.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "wire/message.h"

struct sending {
    struct channel_call call;
    struct notices *notices;
    struct peer *peer;
    bool begun;
};

struct notices {
    pthread_mutex_t lock;
    enum { NOTICES_READY, NOTICES_SENT, NOTICES_STOPPED } state;
    int32_t stop_status;
    struct loop *loop;
    struct loop_task task;
    void (*ended)(void *context, int32_t status);
    void *context;
    uint8_t *body;
    uint32_t body_length;
    atomic_uint left;
    atomic_int status; /* of the first that failed */
    size_t count;
    size_t capacity;
    struct sending *sendings; /* one for each peer; in place once they are sent */
};

static void one_ended(struct notices *notices, int32_t status) {
    int none = MC_OK;

    atomic_compare_exchange_strong(&notices->status, &none, status);
    if (atomic_fetch_sub(&notices->left, 1) == 1)
        notices->ended(notices->context, atomic_load(&notices->status));
}

static void call_done(struct channel_call *call, int32_t status) {
    struct sending *sending = list_entry(call, struct sending, call);

    metrics_notified(sending->peer->metrics, status);
    one_ended(sending->notices, status);
}

/* On the loop's thread. What has ended may be freed: after the last call has begun nothing is touched. */
static void send_all(struct loop_task *task) {
    struct notices *notices = list_entry(task, struct notices, task);
    size_t count = notices->count;

    for (size_t i = 0; i < count; i++) {
        struct sending *sending = &notices->sendings[i];

        sending->begun = true;
        channel_begin(sending->peer->channel, &sending->call, MESSAGE_NOTIFY, notices->body, notices->body_length, NULL,
                      0);
    }
}

struct notices *notices_new(struct engine *engine, const struct notice *notice,
                            void (*ended)(void *context, int32_t status), void *context) {
    struct notices *notices = calloc(1, sizeof(*notices));

    if (notices == NULL)
        return NULL;
    notices->body = notice_pack(notice, engine, &notices->body_length);
    if (notices->body == NULL) {
        free(notices);
        return NULL;
    }
    pthread_mutex_init(&notices->lock, NULL);
    notices->loop = engine->loop;
    notices->task.run = send_all;
    list_init(&notices->task.node);
    notices->ended = ended;
    notices->context = context;
    return notices;
}

bool notices_add(struct notices *notices, struct peer *peer) {
    for (size_t i = 0; i < notices->count; i++)
        if (notices->sendings[i].peer == peer)
            return true;
    if (notices->count == notices->capacity) {
        size_t capacity = notices->capacity * 2 + 1;
        struct sending *sendings = realloc(notices->sendings, capacity * sizeof(*sendings));

        if (sendings == NULL)
            return false;
        notices->sendings = sendings;
        notices->capacity = capacity;
    }
    notices->sendings[notices->count] = (struct sending){.notices = notices, .peer = peer, .call.done = call_done};
    notices->count++;
    return true;
}

void notices_send(struct notices *notices) {
    int32_t status = MC_OK;

    atomic_store(&notices->left, (unsigned)notices->count);
    pthread_mutex_lock(&notices->lock);
    if (notices->state == NOTICES_STOPPED)
        status = notices->stop_status;
    else
        notices->state = NOTICES_SENT;
    if (status == MC_OK)
        loop_post(notices->loop, &notices->task);
    pthread_mutex_unlock(&notices->lock);
    if (status != MC_OK)
        notices->ended(notices->context, status);
}

void notices_stop(struct notices *notices, int32_t status) {
    size_t count = notices->count;
    bool sent;

    pthread_mutex_lock(&notices->lock);
    sent = notices->state == NOTICES_SENT;
    notices->state = NOTICES_STOPPED;
    notices->stop_status = status;
    pthread_mutex_unlock(&notices->lock);
    if (!sent)
        return;
    loop_unpost_sync(notices->loop, &notices->task);
    for (size_t i = 0; i < count; i++) {
        struct sending *sending = &notices->sendings[i];

        if (sending->begun)
            channel_cancel(&sending->call, status);
        else
            call_done(&sending->call, status);
    }
}

void notices_leave_loop(struct notices *notices) {
    if (notices != NULL)
        loop_unpost_sync(notices->loop, &notices->task);
}

struct notices *notices_free(struct notices *notices) {
    if (notices == NULL)
        return NULL;
    pthread_mutex_destroy(&notices->lock);
    free(notices->sendings);
    free(notices->body);
    free(notices);
    return NULL;
}

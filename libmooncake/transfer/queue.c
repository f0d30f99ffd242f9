/* transfer/queue.c - a list of what has finished, and a descriptor that is readable while it isn't empty.
 *
 * `lock` guards both.
 */
#include "transfer/queue.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "os/flag.h"
#include "os/fork.h"
#include "os/thread.h"

struct queue {
    struct object object;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct list entries;
    uint32_t bound;
    bool closed;
    int fd;
};

static void destroy(struct ref *ref) {
    struct queue *queue = list_entry(ref, struct queue, object.ref);

    fork_close(queue->fd);
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->lock);
    free(queue);
}

int32_t queue_new(struct queue **ret_queue, struct mc_error *error) {
    struct queue *queue = calloc(1, sizeof(*queue));

    if (queue == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    queue->fd = flag_open();
    if (queue->fd < 0) {
        int reason = errno;

        free(queue);
        return status_set(error, MC_ERR_SYSTEM, reason, "no descriptor: %s", strerror(reason));
    }
    object_init(&queue->object, OBJECT_QUEUE, destroy);
    pthread_mutex_init(&queue->lock, NULL);
    thread_cond_init(&queue->changed);
    list_init(&queue->entries);
    *ret_queue = queue;
    return MC_OK;
}

struct object *queue_object(struct queue *queue) {
    return &queue->object;
}

struct queue *queue_of(struct object *object) {
    return list_entry(object, struct queue, object);
}

int32_t queue_bind(struct queue *queue) {
    int32_t status = MC_OK;

    pthread_mutex_lock(&queue->lock);
    if (queue->closed)
        status = MC_ERR_CLOSED;
    else
        queue->bound++;
    pthread_mutex_unlock(&queue->lock);
    if (status == MC_OK)
        ref_take(&queue->object.ref);
    return status;
}

void queue_unbind(struct queue *queue, struct queue_entry *entry) {
    pthread_mutex_lock(&queue->lock);
    if (!list_empty(&entry->node)) {
        list_remove(&entry->node);
        if (list_empty(&queue->entries))
            flag_lower(queue->fd);
    }
    queue->bound--;
    pthread_mutex_unlock(&queue->lock);
    ref_drop(&queue->object.ref);
}

void queue_push(struct queue *queue, struct queue_entry *entry) {
    pthread_mutex_lock(&queue->lock);
    if (list_empty(&queue->entries))
        flag_raise(queue->fd);
    list_append(&queue->entries, &entry->node);
    pthread_cond_signal(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

int queue_fd(const struct queue *queue) {
    return queue->fd;
}

int64_t queue_reap(struct queue *queue, struct mc_completion *completions, size_t capacity, size_t stride,
                   uint64_t deadline) {
    size_t taken = 0;
    int waited = 0;
    bool closed;

    pthread_mutex_lock(&queue->lock);
    while (list_empty(&queue->entries) && !queue->closed && waited != ETIMEDOUT)
        waited = thread_cond_wait(&queue->changed, &queue->lock, deadline);
    while (taken < capacity && !list_empty(&queue->entries)) {
        struct queue_entry *entry = list_entry(queue->entries.next, struct queue_entry, node);

        list_remove(&entry->node);
        memcpy((char *)completions + taken++ * stride, &entry->completion, sizeof(entry->completion));
    }
    if (taken > 0 && list_empty(&queue->entries))
        flag_lower(queue->fd);
    closed = queue->closed;
    pthread_mutex_unlock(&queue->lock);
    return taken > 0 ? (int64_t)taken : closed ? MC_ERR_CLOSED : MC_ERR_PENDING;
}

int32_t queue_close(struct queue *queue) {
    int32_t status = MC_OK;

    pthread_mutex_lock(&queue->lock);
    if (queue->bound > 0)
        status = MC_ERR_BUSY;
    else
        queue->closed = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    return status;
}

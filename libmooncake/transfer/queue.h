/* transfer/queue.h - completion queues.
 *
 * A queue owns a descriptor and the list of finished batches that nobody has reaped.
 *
 * Threads: any.
 */
#ifndef MC_TRANSFER_QUEUE_H
#define MC_TRANSFER_QUEUE_H

#include <mooncake/queue.h>

#include "base/list.h"
#include "base/object.h"

struct queue;

/* A finished batch's place in its queue; embedded in the batch. */
struct queue_entry {
    struct list node; /* alone when not queued */
    struct mc_completion completion;
};

int32_t queue_new(struct queue **ret_queue, struct mc_error *error);
struct object *queue_object(struct queue *queue);
struct queue *queue_of(struct object *object);

/* Binds one more batch; MC_ERR_CLOSED if the queue is closed. Each bind takes a reference, given back by unbind, which
 * also unqueues the entry. */
int32_t queue_bind(struct queue *queue);
void queue_unbind(struct queue *queue, struct queue_entry *entry);

void queue_push(struct queue *queue, struct queue_entry *entry);

/* As the public calls. */
int queue_fd(const struct queue *queue);
int64_t queue_reap(struct queue *queue, struct mc_completion *completions, size_t capacity, size_t stride,
                   uint64_t deadline);

/* Refuses with MC_ERR_BUSY while batches are bound; else nothing can be bound any more. */
int32_t queue_close(struct queue *queue);

#endif

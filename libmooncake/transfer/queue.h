/* transfer/queue.h - completion queues.
 *
 * A queue owns a descriptor and the list of what has finished and nobody has reaped: batches, and whatever else is
 * bound. Each owner of an entry binds it before it begins, pushes it at most once, when it has ended, and unbinds it when
 * nobody can reap it any more or needs to. An entry may be pushed with locks held: the queue's own is a leaf.
 *
 * Threads: any.
 */
#ifndef MC_TRANSFER_QUEUE_H
#define MC_TRANSFER_QUEUE_H

#include <mooncake/queue.h>

#include "base/list.h"
#include "base/object.h"

struct queue;

/* The place in its queue of something that finishes; embedded in it, with a node that is alone (list_init). */
struct queue_entry {
    struct list node;                /* alone when not queued */
    struct mc_completion completion; /* filled before the push; copied by whoever reaps */
};

int32_t queue_new(struct queue **ret_queue, struct mc_error *error);
struct object *queue_object(struct queue *queue);
struct queue *queue_of(struct object *object);

/* Binds one more entry; MC_ERR_CLOSED if the queue is closed. Each bind takes a reference, given back by unbind, which
 * also unqueues the entry. */
int32_t queue_bind(struct queue *queue);
void queue_unbind(struct queue *queue, struct queue_entry *entry);

void queue_push(struct queue *queue, struct queue_entry *entry);

/* As the public calls. */
int queue_fd(const struct queue *queue);
int64_t queue_reap(struct queue *queue, struct mc_completion *completions, size_t capacity, size_t stride,
                   uint64_t deadline);

/* Refuses with MC_ERR_BUSY while entries are bound; else nothing can be bound any more. */
int32_t queue_close(struct queue *queue);

#endif

/* mooncake/queue.h - completion queues: one pollable descriptor for many batches and store operations, reaped in groups.
 *
 * What was submitted with a queue appears in it once, when it has ended wholly, and stays there until it is reaped or
 * freed. A queue holds any number of completions and loses none.
 */
#ifndef MOONCAKE_QUEUE_H
#define MOONCAKE_QUEUE_H

#include <mooncake/error.h>
#include <mooncake/types.h>

/* What mc_queue_reap says of one finished batch, or store operation. It lives until mc_batch_free, mc_operation_free. */
struct mc_completion {
    uint64_t batch;     /* its id */
    uint64_t user_data; /* as given at submission */
    int32_t status;     /* MC_OK if all requests completed, else the status of the first that did not */
    uint32_t failed;    /* how many requests, or items, did not complete */
};

MC_BEGIN_DECLS

/* Opens a queue and stores its handle in *ret_queue. */
MC_API int32_t mc_queue_open(mc_queue **ret_queue, struct mc_error *error);

/* MC_ERR_BUSY while batches or store operations that are bound to the queue exist. */
MC_API int32_t mc_queue_close(mc_queue *queue);

/* The queue's descriptor, or a negative status. Readable while a completion waits; belongs to the queue: poll it, never
 * read or close it. */
MC_API int32_t mc_queue_fd(mc_queue *queue);

/* Takes up to `capacity` completions, oldest first, into an array of elements `stride` bytes apart, and waits at most
 * `timeout_ns` for the first. Returns how many were taken (at least 1), MC_ERR_PENDING if none came in time, or another
 * negative status. */
MC_API int64_t mc_queue_reap(mc_queue *queue, struct mc_completion *completions, size_t capacity, size_t stride,
                             uint64_t timeout_ns);

MC_END_DECLS

#endif

/* api/queue.c - the public calls of queue.h. */
#include <mooncake/queue.h>

#include "api/handles.h"
#include "base/clock.h"
#include "base/status.h"

int32_t mc_queue_open(mc_queue **ret_queue, struct mc_error *error) {
    struct queue *queue;
    uint64_t id;
    int32_t status;

    if (ret_queue == NULL)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "ret_queue is NULL");
    status = queue_new(&queue, error);
    if (status != MC_OK)
        return status;
    status = object_publish(queue_object(queue), &id);
    if (status == MC_OK)
        *ret_queue = (mc_queue *)(uintptr_t)id;
    else
        status_set(error, status, 0, "too many objects");
    queue_call_end(queue);
    return status;
}

int32_t mc_queue_close(mc_queue *handle) {
    struct queue *queue;
    struct object *withdrawn;
    int32_t status = queue_call_begin(handle, &queue);

    if (status != MC_OK)
        return status;
    status = queue_close(queue);
    if (status == MC_OK) {
        status = object_withdraw((uint64_t)(uintptr_t)handle, OBJECT_QUEUE, &withdrawn);
        if (status == MC_OK)
            ref_drop(&withdrawn->ref);
    }
    queue_call_end(queue);
    return status;
}

int32_t mc_queue_fd(mc_queue *handle) {
    struct queue *queue;
    int32_t result = queue_call_begin(handle, &queue);

    if (result != MC_OK)
        return result;
    result = queue_fd(queue);
    queue_call_end(queue);
    return result;
}

int64_t mc_queue_reap(mc_queue *handle, struct mc_completion *completions, size_t capacity, size_t stride,
                      uint64_t timeout_ns) {
    struct queue *queue;
    int64_t result;

    if (completions == NULL || capacity == 0 || stride < sizeof(*completions) || stride % sizeof(uint64_t) != 0)
        return MC_ERR_INVALID_ARGUMENT;
    result = queue_call_begin(handle, &queue);
    if (result != MC_OK)
        return result;
    result = queue_reap(queue, completions, capacity, stride, clock_after(clock_now(), timeout_ns));
    queue_call_end(queue);
    return result;
}

/* store/submit.c - asynchronous operations.
 *
 * An operation is an object with an id. Until it has completed it counts as a call of the store, so that closing waits
 * for it; its place in the queue it keeps until it is freed.
 */
#include "store/submit.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define WORKERS 2u
#define SUBMITTED_MAX 65536u

struct submitted {
    struct object object;
    struct store *store; /* a reference */
    struct queue *queue; /* bound */
    struct queue_entry completion;
    struct chore chore;
    struct operation operation;
    pthread_mutex_t lock; /* of `done` and the place in the queue */
    bool done;
};

static struct submitted *submitted_of(struct object *object) {
    return list_entry(object, struct submitted, object);
}

static void release_queue(struct submitted *submitted) {
    if (submitted->queue != NULL)
        queue_unbind(submitted->queue, &submitted->completion);
    submitted->queue = NULL;
}

static void destroy(struct ref *ref) {
    struct submitted *submitted = list_entry(ref, struct submitted, object.ref);

    release_queue(submitted);
    pthread_mutex_destroy(&submitted->lock);
    ref_drop(&submitted->store->object.ref);
    free(submitted);
}

/* Counts one less. */
static void count_out(struct store *store) {
    pthread_mutex_lock(&store->lock);
    store->submitted--;
    pthread_mutex_unlock(&store->lock);
    store_leave(store);
}

static void work(struct chore *chore) {
    struct submitted *submitted = list_entry(chore, struct submitted, chore);
    struct mc_completion *completion = &submitted->completion.completion;
    struct store *store = submitted->store;

    completion->status = operation_run(store, &submitted->operation, &completion->failed, NULL);
    pthread_mutex_lock(&submitted->lock);
    queue_push(submitted->queue, &submitted->completion);
    submitted->done = true;
    pthread_mutex_unlock(&submitted->lock);
    ref_take(&store->object.ref); /* the operation's own may go with it */
    ref_drop(&submitted->object.ref);
    count_out(store);
    ref_drop(&store->object.ref);
}

/* Counts one more, and starts the threads with the first. count_out must follow. */
static int32_t count_in(struct store *store) {
    int32_t status = store_enter(store);

    if (status != MC_OK)
        return status;
    pthread_mutex_lock(&store->lock);
    if (store->submitted >= SUBMITTED_MAX)
        status = MC_ERR_TOO_MANY;
    else if (store->workers == NULL)
        status = chores_start("mc-store-call", WORKERS, &store->workers);
    if (status == MC_OK)
        store->submitted++;
    pthread_mutex_unlock(&store->lock);
    if (status != MC_OK)
        store_leave(store);
    return status;
}

int32_t submit_operation(struct store *store, const struct operation *operation, struct queue *queue,
                         uint64_t user_data, uint64_t *ret_id, struct mc_error *error) {
    struct submitted *submitted = calloc(1, sizeof(*submitted));
    int32_t status = submitted != NULL ? MC_OK : MC_ERR_NO_MEMORY;
    uint64_t id;

    if (status != MC_OK)
        return status_set(error, status, 0, "out of memory");
    object_init(&submitted->object, OBJECT_OPERATION, destroy);
    ref_take(&store->object.ref);
    submitted->store = store;
    submitted->operation = *operation;
    submitted->completion.completion.user_data = user_data;
    list_init(&submitted->completion.node);
    pthread_mutex_init(&submitted->lock, NULL);
    chore_init(&submitted->chore, work);
    status = queue_bind(queue);
    if (status == MC_OK)
        submitted->queue = queue;
    if (status == MC_OK)
        status = count_in(store);
    if (status == MC_OK) {
        status = object_publish(&submitted->object, &id);
        if (status != MC_OK)
            count_out(store);
    }
    if (status != MC_OK) {
        ref_drop(&submitted->object.ref);
        return status_set(error, status, 0, "%s", status_text(status));
    }
    submitted->completion.completion.batch = id;
    *ret_id = id;
    chores_post(store->workers, &submitted->chore);
    return MC_OK;
}

int32_t submit_free(uint64_t id) {
    struct object *object, *withdrawn;
    int32_t status = object_acquire(id, OBJECT_OPERATION, &object);

    if (status != MC_OK)
        return status;
    /* The queue may be closed as soon as this returns, whoever else still holds the object. */
    pthread_mutex_lock(&submitted_of(object)->lock);
    if (!submitted_of(object)->done)
        status = MC_ERR_BUSY;
    else if ((status = object_withdraw(id, OBJECT_OPERATION, &withdrawn)) == MC_OK)
        release_queue(submitted_of(object));
    pthread_mutex_unlock(&submitted_of(object)->lock);
    if (status == MC_OK)
        ref_drop(&withdrawn->ref);
    ref_drop(&object->ref);
    return status;
}

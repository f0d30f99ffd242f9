/* api/objects.c - the public calls of store.h on objects, single and in batches: they check, and run one operation. */
#include <stdlib.h>
#include <string.h>

#include <mooncake/store.h>

#include "api/handles.h"
#include "api/store_checks.h"
#include "base/clock.h"
#include "base/status.h"
#include "store/locate.h"
#include "store/submit.h"
#include "store/view.h"

#define OPERATION_1_0 (offsetof(struct mc_store_operation, reserved) + sizeof(uint32_t)) /* the size in 1.0 */
#define GET_FLAGS MC_GET_RANGES
#define LIST_MAX 65536u

/* ---- Checks ---- */

/* Are the columns there that the kind needs? */
static int32_t check_columns(const struct operation *operation, struct mc_error *error) {
    bool puts = operation->kind == MC_STORE_PUT, gets = operation->kind == MC_STORE_GET;

    if (operation->pieces != NULL || operation->piece_counts != NULL)
        return check_pieces(operation->pieces, operation->piece_counts, operation->keys.count, error);
    if ((puts && operation->values == NULL) || (gets && operation->buffers == NULL) ||
        ((puts || gets) && operation->lengths == NULL))
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "values, buffers or lengths are NULL");
    return MC_OK;
}

static int32_t check_results(const struct operation *operation, struct mc_error *error) {
    bool lengths =
        operation->kind == MC_STORE_GET || operation->kind == MC_STORE_VIEW || operation->kind == MC_STORE_SIZE;

    if (lengths ? operation->found == NULL : operation->statuses == NULL)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "there is no place for the results");
    if (operation->kind == MC_STORE_VIEW && (operation->views == NULL || operation->data == NULL))
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "there is no place for the views");
    return MC_OK;
}

/* Fills in what is the same for all. */
static int32_t prepare(struct operation *operation, const struct mc_put_options *put, const struct mc_keys *keys,
                       struct mc_error *error) {
    int32_t status = keys != NULL ? MC_OK : status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "keys is NULL");

    if (status == MC_OK) {
        operation->keys = *keys;
        status = check_put_options(&operation->put, put, error);
    }
    if (status == MC_OK)
        status = check_keys(keys, error);
    if (status == MC_OK)
        status = check_columns(operation, error);
    if (status == MC_OK)
        status = check_results(operation, error);
    return status;
}

/* A time-out of its own bounds a put's wait for space, too. */
static void set_deadlines(struct operation *operation, const struct store *store, uint64_t timeout) {
    operation->deadline = call_deadline(store, timeout);
    operation->space_deadline = timeout > 0 ? operation->deadline : clock_after(clock_now(), store->space_timeout);
}

/* Checks the operation and runs it to its end. */
static int32_t run(mc_store *handle, struct operation *operation, const struct mc_put_options *put,
                   const struct mc_keys *keys, uint64_t timeout, struct mc_error *error) {
    struct store *store;
    uint32_t failed;
    int32_t status = prepare(operation, put, keys, error);

    if (status != MC_OK)
        return status;
    status = store_call_begin(handle, &store, error);
    if (status != MC_OK)
        return status;
    set_deadlines(operation, store, operation->kind == MC_STORE_PUT ? operation->put.timeout_ns : timeout);
    status = operation_run(store, operation, &failed, error);
    store_call_end(store);
    return status;
}

/* ---- Batches ---- */

int32_t mc_store_put_batch(mc_store *store, const struct mc_keys *keys, const void *const *values,
                           const uint64_t *lengths, const struct mc_put_options *options, int32_t *ret_statuses,
                           struct mc_error *error) {
    struct operation operation = {.kind = MC_STORE_PUT, .values = values, .lengths = lengths, .statuses = ret_statuses};

    return run(store, &operation, options, keys, 0, error);
}

int32_t mc_store_get_batch(mc_store *store, const struct mc_keys *keys, void *const *buffers,
                           const uint64_t *capacities, uint64_t timeout_ns, int64_t *ret_lengths,
                           struct mc_error *error) {
    struct operation operation = {
        .kind = MC_STORE_GET, .buffers = buffers, .lengths = capacities, .found = ret_lengths};

    return run(store, &operation, NULL, keys, timeout_ns, error);
}

int32_t mc_store_put_pieces(mc_store *store, const struct mc_keys *keys, const struct mc_piece *pieces,
                            const uint32_t *counts, const struct mc_put_options *options, int32_t *ret_statuses,
                            struct mc_error *error) {
    struct operation operation = {
        .kind = MC_STORE_PUT, .pieces = pieces, .piece_counts = counts, .statuses = ret_statuses};

    return run(store, &operation, options, keys, 0, error);
}

static int32_t check_get_flags(uint32_t flags, struct mc_error *error) {
    return (flags & ~GET_FLAGS) == 0 ? MC_OK
                                     : status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "unknown flags 0x%x", flags);
}

int32_t mc_store_get_pieces(mc_store *store, const struct mc_keys *keys, const struct mc_piece *pieces,
                            const uint32_t *counts, uint32_t flags, uint64_t timeout_ns, int64_t *ret_lengths,
                            struct mc_error *error) {
    struct operation operation = {.kind = MC_STORE_GET,
                                  .pieces = pieces,
                                  .piece_counts = counts,
                                  .ranges = (flags & MC_GET_RANGES) != 0,
                                  .found = ret_lengths};
    int32_t status = check_get_flags(flags, error);

    return status != MC_OK ? status : run(store, &operation, NULL, keys, timeout_ns, error);
}

int32_t mc_store_view_batch(mc_store *store, const struct mc_keys *keys, uint64_t timeout_ns, uint64_t *ret_views,
                            const void **ret_data, int64_t *ret_lengths, struct mc_error *error) {
    struct operation operation = {.kind = MC_STORE_VIEW, .found = ret_lengths, .views = ret_views, .data = ret_data};

    return run(store, &operation, NULL, keys, timeout_ns, error);
}

int32_t mc_store_size_batch(mc_store *store, const struct mc_keys *keys, uint64_t timeout_ns, int64_t *ret_lengths,
                            struct mc_error *error) {
    struct operation operation = {.kind = MC_STORE_SIZE, .found = ret_lengths};

    return run(store, &operation, NULL, keys, timeout_ns, error);
}

int32_t mc_store_exists_batch(mc_store *store, const struct mc_keys *keys, uint64_t timeout_ns, int32_t *ret_found,
                              struct mc_error *error) {
    struct operation operation = {.kind = MC_STORE_EXISTS, .statuses = ret_found};

    return run(store, &operation, NULL, keys, timeout_ns, error);
}

int32_t mc_store_remove_batch(mc_store *store, const struct mc_keys *keys, uint64_t timeout_ns, int32_t *ret_statuses,
                              struct mc_error *error) {
    struct operation operation = {.kind = MC_STORE_REMOVE, .statuses = ret_statuses};

    return run(store, &operation, NULL, keys, timeout_ns, error);
}

/* ---- One object: a batch of one ---- */

/* A batch of one key; it points to itself. */
struct one_key {
    uint32_t length;
    struct mc_keys keys;
};

static int32_t one_key(const void *key, size_t length, struct one_key *ret_one, struct mc_error *error) {
    if (key == NULL || length == 0 || length > MC_KEY_MAX)
        return status_set(error, MC_ERR_INVALID_KEY, 0, "a key has 1 to %u bytes, not %zu", MC_KEY_MAX,
                          key == NULL ? (size_t)0 : length);
    ret_one->length = (uint32_t)length;
    ret_one->keys = (struct mc_keys){.bytes = key, .lengths = &ret_one->length, .count = 1};
    return MC_OK;
}

static int32_t put_one(mc_store *store, const void *key, size_t key_length, const void *value, uint64_t length,
                       const struct mc_put_options *options, bool upsert, struct mc_error *error) {
    struct mc_put_options taken;
    struct one_key one;
    int32_t status = one_key(key, key_length, &one, error), item;

    if (status == MC_OK)
        status = check_put_options(&taken, options, error);
    if (status == MC_OK && (taken.flags & MC_PUT_UPSERT) != 0)
        status = status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "MC_PUT_UPSERT is for batches: call mc_store_upsert");
    if (status != MC_OK)
        return status;
    if (upsert)
        taken.flags |= MC_PUT_UPSERT;
    taken.struct_size = sizeof(taken);
    return mc_store_put_batch(store, &one.keys, &value, &length, &taken, &item, error);
}

int32_t mc_store_put(mc_store *store, const void *key, size_t key_length, const void *value, uint64_t length,
                     const struct mc_put_options *options, struct mc_error *error) {
    return put_one(store, key, key_length, value, length, options, false, error);
}

int32_t mc_store_upsert(mc_store *store, const void *key, size_t key_length, const void *value, uint64_t length,
                        const struct mc_put_options *options, struct mc_error *error) {
    return put_one(store, key, key_length, value, length, options, true, error);
}

int64_t mc_store_get(mc_store *store, const void *key, size_t key_length, void *buffer, uint64_t capacity,
                     uint64_t timeout_ns, struct mc_error *error) {
    struct one_key one;
    int64_t length;
    int32_t status = one_key(key, key_length, &one, error);

    if (status == MC_OK)
        status = mc_store_get_batch(store, &one.keys, &buffer, &capacity, timeout_ns, &length, error);
    return status != MC_OK ? status : length;
}

int64_t mc_store_view(mc_store *store, const void *key, size_t key_length, uint64_t timeout_ns, uint64_t *ret_view,
                      const void **ret_data, struct mc_error *error) {
    struct one_key one;
    int64_t length;
    int32_t status = one_key(key, key_length, &one, error);

    if (status == MC_OK)
        status = mc_store_view_batch(store, &one.keys, timeout_ns, ret_view, ret_data, &length, error);
    return status != MC_OK ? status : length;
}

int32_t mc_view_release(uint64_t view) {
    struct object *object;
    int32_t status = object_withdraw(view, OBJECT_VIEW, &object);

    if (status == MC_OK)
        ref_drop(&object->ref);
    return status;
}

int64_t mc_store_size(mc_store *store, const void *key, size_t key_length, uint64_t timeout_ns,
                      struct mc_error *error) {
    struct one_key one;
    int64_t length;
    int32_t status = one_key(key, key_length, &one, error);

    if (status == MC_OK)
        status = mc_store_size_batch(store, &one.keys, timeout_ns, &length, error);
    return status != MC_OK ? status : length;
}

int32_t mc_store_exists(mc_store *store, const void *key, size_t key_length, uint64_t timeout_ns,
                        struct mc_error *error) {
    struct one_key one;
    int32_t status = one_key(key, key_length, &one, error), found;

    if (status == MC_OK)
        status = mc_store_exists_batch(store, &one.keys, timeout_ns, &found, error);
    return status != MC_OK ? status : found;
}

int32_t mc_store_remove(mc_store *store, const void *key, size_t key_length, uint64_t timeout_ns,
                        struct mc_error *error) {
    struct one_key one;
    int32_t status = one_key(key, key_length, &one, error), item;

    return status != MC_OK ? status : mc_store_remove_batch(store, &one.keys, timeout_ns, &item, error);
}

/* ---- Replicas ---- */

int32_t mc_store_replicas(mc_store *handle, const struct mc_keys *keys, uint64_t timeout_ns,
                          struct mc_replica *ret_replicas, uint32_t capacity, size_t stride, int32_t *ret_counts,
                          struct mc_error *error) {
    struct store *store;
    int32_t status =
        keys != NULL ? check_keys(keys, error) : status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "keys is NULL");

    if (status == MC_OK && (ret_replicas == NULL || ret_counts == NULL || capacity > MC_REPLICAS_MAX ||
                            stride < sizeof(struct mc_replica) || stride % sizeof(uint64_t) != 0))
        status = status_set(error, MC_ERR_INVALID_ARGUMENT, 0,
                            "there is no place for replicas and counts, or for more than %u", MC_REPLICAS_MAX);
    if (status == MC_OK)
        status = store_call_begin(handle, &store, error);
    if (status != MC_OK)
        return status;
    status = locate_replicas(store, keys, call_deadline(store, timeout_ns), ret_replicas, capacity, stride, ret_counts,
                             error);
    store_call_end(store);
    return status;
}

/* ---- Listing ---- */

/* The page, its lengths and its keys are one piece of memory. */
static struct mc_page *page_new(const struct items *items) {
    struct message_bytes list = items_bytes(items), key;
    size_t total = items->length - (size_t)items->count * sizeof(uint32_t); /* without the lengths in between */
    struct mc_page *page = malloc(sizeof(*page) + items->count * sizeof(uint32_t) + total);
    uint32_t *lengths;
    uint8_t *bytes;

    if (page == NULL)
        return NULL;
    lengths = (uint32_t *)(void *)(page + 1);
    bytes = (uint8_t *)(lengths + items->count);
    *page = (struct mc_page){.bytes = bytes, .lengths = lengths};
    while (items_next(&list, &key) == 1) {
        lengths[page->count++] = key.length;
        if (key.length > 0)
            memcpy(bytes, key.data, key.length);
        bytes += key.length;
    }
    return page;
}

int32_t mc_store_list(mc_store *handle, uint64_t *cursor, uint32_t limit, uint64_t timeout_ns,
                      struct mc_page **ret_page, struct mc_error *error) {
    struct mc_page *page;
    struct store *store;
    struct items keys;
    uint64_t next;
    int32_t status;

    if (cursor == NULL || ret_page == NULL || limit == 0 || limit > LIST_MAX)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "a page has a cursor, a place and 1 to %u keys", LIST_MAX);
    status = store_call_begin(handle, &store, error);
    if (status != MC_OK)
        return status;
    next = *cursor;
    status = operation_list(store, &next, limit, call_deadline(store, timeout_ns), &keys, error);
    store_call_end(store);
    if (status != MC_OK)
        return status;
    page = page_new(&keys);
    items_clear(&keys);
    if (page == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    *cursor = next;
    *ret_page = page;
    return MC_OK;
}

void mc_page_free(struct mc_page *page) {
    free(page);
}

int64_t mc_store_remove_all(mc_store *handle, uint64_t timeout_ns, struct mc_error *error) {
    struct store *store;
    int64_t removed;
    int32_t status = store_call_begin(handle, &store, error);

    if (status != MC_OK)
        return status;
    removed = operation_remove_all(store, NULL, call_deadline(store, timeout_ns), error);
    store_call_end(store);
    return removed;
}

int64_t mc_store_remove_matching(mc_store *handle, const char *text, size_t length, uint64_t timeout_ns,
                                 struct mc_error *error) {
    struct pattern *pattern;
    struct store *store;
    int64_t removed;
    int32_t status;

    if (text == NULL)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "the pattern is NULL");
    status = pattern_new(text, length, &pattern, error);
    if (status != MC_OK)
        return status;
    removed = store_call_begin(handle, &store, error);
    if (removed == MC_OK) {
        removed = operation_remove_all(store, pattern, call_deadline(store, timeout_ns), error);
        store_call_end(store);
    }
    pattern_free(pattern);
    return removed;
}

/* ---- Asynchronous calls ---- */

static int32_t check_submitted(const struct mc_store_operation *taken, struct mc_error *error) {
    if (taken->kind < MC_STORE_PUT || taken->kind > MC_STORE_REMOVE)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "no kind of operation %u", taken->kind);
    if (taken->reserved != 0 || (taken->flags != 0 && taken->kind != MC_STORE_GET))
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "flags or reserved are not zero");
    if (taken->flags != 0 && taken->pieces == NULL)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "ranges are of pieces");
    return check_get_flags(taken->flags, error);
}

int32_t mc_store_submit(mc_store *handle, const struct mc_store_operation *given, mc_queue *queue_handle,
                        uint64_t user_data, uint64_t *ret_operation, struct mc_error *error) {
    struct mc_store_operation taken;
    struct operation operation;
    struct queue *queue;
    struct store *store;
    int32_t status;
    bool moves;

    if (given == NULL || ret_operation == NULL)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "operation or ret_operation is NULL");
    status = options_take(&taken, sizeof(taken), OPERATION_1_0, given, error);
    if (status != MC_OK)
        return status;
    status = check_submitted(&taken, error);
    if (status != MC_OK)
        return status;
    moves = taken.kind == MC_STORE_PUT || taken.kind == MC_STORE_GET;
    operation = (struct operation){
        .kind = taken.kind,
        .values = taken.kind == MC_STORE_PUT ? taken.values : NULL,
        .buffers = taken.kind == MC_STORE_GET ? taken.buffers : NULL,
        .lengths = moves ? taken.lengths : NULL,
        .statuses = taken.statuses,
        .found = taken.found,
        .pieces = moves ? taken.pieces : NULL,
        .piece_counts = moves ? taken.piece_counts : NULL,
        .ranges = (taken.flags & MC_GET_RANGES) != 0,
        .views = taken.views,
        .data = taken.data,
    };
    status = prepare(&operation, taken.put, &taken.keys, error);
    if (status == MC_OK && operation.put.timeout_ns != 0)
        status = status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "the time-out is the operation's, not its put options'");
    if (status != MC_OK)
        return status;
    status = queue_call_begin(queue_handle, &queue);
    if (status != MC_OK)
        return status_set(error, status, 0, "queue handle: %s", status_text(status));
    status = store_call_begin(handle, &store, error);
    if (status == MC_OK) {
        set_deadlines(&operation, store, taken.timeout_ns);
        status = submit_operation(store, &operation, queue, user_data, ret_operation, error);
        store_call_end(store);
    }
    queue_call_end(queue);
    return status;
}

int32_t mc_operation_free(uint64_t operation) {
    return submit_free(operation);
}

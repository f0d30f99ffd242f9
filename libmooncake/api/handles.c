/* api/handles.c - handles are ids in the table of base/object.h; a pointer handle is such an id, too. */
#include "api/handles.h"

#include <string.h>

#include "base/status.h"

static int32_t acquire(uint64_t id, enum object_kind kind, struct object **ret_object, const char *what,
                       struct mc_error *error) {
    int32_t status = object_acquire(id, kind, ret_object);

    if (status != MC_OK)
        status_set(error, status, 0, "%s handle: %s", what, status_text(status));
    return status;
}

int32_t engine_call_begin(mc_engine *handle, struct engine **ret_engine, struct mc_error *error) {
    struct object *object;
    int32_t status = acquire((uint64_t)(uintptr_t)handle, OBJECT_ENGINE, &object, "engine", error);

    if (status != MC_OK)
        return status;
    status = engine_enter(engine_of(object));
    if (status != MC_OK) {
        ref_drop(&object->ref);
        return status_set(error, status, 0, "the engine is being closed");
    }
    *ret_engine = engine_of(object);
    return MC_OK;
}

void engine_call_end(struct engine *engine) {
    engine_leave(engine);
    ref_drop(&engine->object.ref);
}

int32_t peer_call_begin(uint64_t id, struct peer **ret_peer, struct mc_error *error) {
    struct object *object;
    struct engine *engine;
    int32_t status = acquire(id, OBJECT_PEER, &object, "peer", error);

    if (status != MC_OK)
        return status;
    engine = peer_of(object)->engine;
    ref_take(&engine->object.ref);
    if (engine_enter_or_closed(engine)) {
        *ret_peer = peer_of(object);
        return MC_OK;
    }
    ref_drop(&object->ref);
    ref_drop(&engine->object.ref);
    return status_set(error, MC_ERR_CLOSED, 0, "the peer's engine is closed");
}

void peer_call_end(struct peer *peer) {
    struct engine *engine = peer->engine;

    ref_drop(&peer->object.ref);
    engine_call_end(engine);
}

int32_t batch_call_begin(uint64_t id, struct batch **ret_batch, bool *ret_open) {
    struct object *object;
    int32_t status = object_acquire(id, OBJECT_BATCH, &object);

    if (status != MC_OK)
        return status;
    *ret_batch = batch_of(object);
    ref_take(&batch_engine(*ret_batch)->object.ref);
    *ret_open = engine_enter_or_closed(batch_engine(*ret_batch));
    return MC_OK;
}

void batch_call_end(struct batch *batch, bool open) {
    struct engine *engine = batch_engine(batch);

    ref_drop(&batch_object(batch)->ref);
    if (open)
        engine_leave(engine);
    ref_drop(&engine->object.ref);
}

int32_t store_call_begin(mc_store *handle, struct store **ret_store, struct mc_error *error) {
    struct object *object;
    int32_t status = acquire((uint64_t)(uintptr_t)handle, OBJECT_STORE, &object, "store", error);

    if (status != MC_OK)
        return status;
    status = store_enter(store_of(object));
    if (status != MC_OK) {
        ref_drop(&object->ref);
        return status_set(error, status, 0, "the store is being closed");
    }
    *ret_store = store_of(object);
    return MC_OK;
}

void store_call_end(struct store *store) {
    store_leave(store);
    ref_drop(&store->object.ref);
}

int32_t queue_call_begin(mc_queue *handle, struct queue **ret_queue) {
    struct object *object;
    int32_t status = object_acquire((uint64_t)(uintptr_t)handle, OBJECT_QUEUE, &object);

    if (status == MC_OK)
        *ret_queue = queue_of(object);
    return status;
}

void queue_call_end(struct queue *queue) {
    ref_drop(&queue_object(queue)->ref);
}

int32_t options_take(void *options, size_t size, size_t minimum, const void *given, struct mc_error *error) {
    const uint8_t *bytes = given;
    uint32_t given_size;

    memset(options, 0, size);
    if (given == NULL)
        return MC_OK;
    memcpy(&given_size, given, sizeof(given_size));
    if (given_size < minimum || given_size > 65536)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "struct_size is %u, and must be at least %zu", given_size,
                          minimum);
    for (size_t i = size; i < given_size; i++)
        if (bytes[i] != 0)
            return status_set(error, MC_ERR_INVALID_ARGUMENT, 0,
                              "the options use fields that this library (%zu bytes of %u) doesn't know", size,
                              given_size);
    memcpy(options, given, given_size < size ? given_size : size);
    return MC_OK;
}

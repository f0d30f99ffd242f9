/* api/store.c - the public calls of store.h: they check and call inward. */
#include <stdlib.h>
#include <string.h>

#include <mooncake/store.h>

#include "api/handles.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/writer.h"
#include "store/tell.h"
#include "transfer/registry.h"

#define OPTIONS_1_0 (offsetof(struct mc_store_options, tenant) + sizeof(char *)) /* the size in 1.0 */
#define ENGINE_OPTIONS_1_0 sizeof(struct mc_engine_options)
#define STORE_FLAGS (MC_STORE_STORED_KEYS | MC_STORE_VERIFY | MC_STORE_EMBEDDED)
#define UNREGISTER_TIME CLOCK_SECOND

int32_t mc_store_open(const struct mc_store_options *options, mc_store **ret_store, struct mc_error *error) {
    struct mc_engine_options engine_options;
    struct mc_store_options taken;
    struct engine *engine = NULL;
    struct store *store;
    uint64_t id;
    int32_t status;

    if (ret_store == NULL)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "ret_store is NULL");
    status = options_take(&taken, sizeof(taken), OPTIONS_1_0, options, error);
    if (status == MC_OK && taken.engine_options != NULL) {
        status = options_take(&engine_options, sizeof(engine_options), ENGINE_OPTIONS_1_0, taken.engine_options, error);
        taken.engine_options = &engine_options;
    }
    if (status != MC_OK)
        return status;
    if (taken.engine_options != NULL && (engine_options.flags & ~MC_ENGINE_CHECKSUM) != 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "unknown flags 0x%x of the engine", engine_options.flags);
    if ((taken.flags & ~STORE_FLAGS) != 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "unknown flags 0x%x", taken.flags);
    if (taken.engine != NULL && taken.engine_options != NULL)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "an open engine takes no engine_options");
    if (taken.engine != NULL)
        status = engine_call_begin(taken.engine, &engine, error);
    if (status != MC_OK)
        return status;
    status = store_open(&taken, engine, &store, error);
    if (engine != NULL)
        engine_call_end(engine);
    if (status != MC_OK)
        return status;
    status = object_publish(&store->object, &id);
    if (status == MC_OK)
        *ret_store = (mc_store *)(uintptr_t)id;
    else
        (void)store_close(store);
    ref_drop(&store->object.ref);
    return status == MC_OK ? MC_OK : status_set(error, status, 0, "too many objects");
}

int32_t mc_store_close(mc_store *handle) {
    uint64_t id = (uint64_t)(uintptr_t)handle;
    struct object *object, *withdrawn;
    int32_t status = object_acquire(id, OBJECT_STORE, &object);

    if (status != MC_OK)
        return status;
    status = store_close(store_of(object));
    if (status == MC_OK && object_withdraw(id, OBJECT_STORE, &withdrawn) == MC_OK)
        ref_drop(&withdrawn->ref);
    ref_drop(&object->ref);
    return status;
}

int64_t mc_store_address(mc_store *handle, char *text, size_t size) {
    struct store *store;
    struct writer writer;
    int32_t status;

    if (text == NULL && size > 0)
        return MC_ERR_INVALID_ARGUMENT;
    status = store_call_begin(handle, &store, NULL);
    if (status != MC_OK)
        return status;
    writer_init(&writer, text, size);
    writer_print(&writer, "%s", store->engine->engine->address);
    store_call_end(store);
    return (int64_t)writer.length;
}

int32_t mc_store_health(mc_store *handle) {
    struct store *store;
    int32_t status = store_call_begin(handle, &store, NULL);

    if (status != MC_OK)
        return status;
    status = store_health(store);
    store_call_end(store);
    return status;
}

int64_t mc_store_stats(mc_store *handle, char *text, size_t size) {
    struct store *store;
    int64_t length;
    int32_t status;

    if (text == NULL && size > 0)
        return MC_ERR_INVALID_ARGUMENT;
    status = store_call_begin(handle, &store, NULL);
    if (status != MC_OK)
        return status;
    length = store_stats(store, text, size);
    store_call_end(store);
    return length;
}

int32_t mc_store_register(mc_store *handle, void *address, uint64_t length, struct mc_error *error) {
    struct store *store;
    int32_t status = store_call_begin(handle, &store, error);

    if (status != MC_OK)
        return status;
    status = registry_add(store->engine->engine->registry, (uint64_t)(uintptr_t)address, length, "*", 0, error);
    store_call_end(store);
    return status;
}

int32_t mc_store_unregister(mc_store *handle, void *address, struct mc_error *error) {
    struct store *store;
    int32_t status = store_call_begin(handle, &store, error);

    if (status != MC_OK)
        return status;
    status = registry_remove(store->engine->engine->registry, (uint64_t)(uintptr_t)address,
                             clock_after(clock_now(), UNREGISTER_TIME), error);
    store_call_end(store);
    return status;
}

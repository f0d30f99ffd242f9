/* compat/transfer_engine/memory.c - registering memory.
 *
 * The library counts equal registrations; the reference refuses them, and its programs, which don't look, unregister
 * once before they free the memory. So the shim keeps the set of addresses at which registered ranges begin. An address
 * is in the set from before it is registered until after it was unregistered.
 *
 * Owns each engine's set, with the engine's lock. Threads: any.
 */
#include <search.h>
#include <stdlib.h>

#include "compat/words.h"

#include "compat/transfer_engine/inside.h"

static int compare(const void *a, const void *b) {
    return (uintptr_t)a < (uintptr_t)b ? -1 : (uintptr_t)a > (uintptr_t)b;
}

/* MC_ERR_OVERLAP, with words, if it is in the set already. */
static int32_t remember(struct engine *engine, void *address, struct mc_error *error) {
    int32_t status = MC_OK;

    pthread_mutex_lock(&engine->lock);
    if (tfind(address, &engine->regions, compare) != NULL)
        status = result_words(error, MC_ERR_OVERLAP, "memory that begins at %p is registered already", address);
    else if (tsearch(address, &engine->regions, compare) == NULL)
        status = MC_ERR_NO_MEMORY;
    pthread_mutex_unlock(&engine->lock);
    return status;
}

static void forget(struct engine *engine, const void *address) {
    pthread_mutex_lock(&engine->lock);
    (void)tdelete(address, &engine->regions, compare);
    pthread_mutex_unlock(&engine->lock);
}

static void leave_alone(void *address) {
    (void)address; /* the memory is its owner's */
}

void memory_forget(struct engine *engine) {
    tdestroy(engine->regions, leave_alone);
    engine->regions = NULL;
}

static int add(struct engine *engine, void *address, size_t length, const char *location, uint32_t rights) {
    struct mc_error error = MC_ERROR_INIT;
    int32_t status = address == NULL ? MC_ERR_INVALID_ARGUMENT : remember(engine, address, &error);

    if (status == MC_OK) {
        if (location == NULL || location[0] == '\0')
            location = "*";
        status = mc_engine_register(engine->engine, address, length, location, rights, &error);
        if (status != MC_OK)
            forget(engine, address);
    }
    return status == MC_OK ? 0 : result_say("registerLocalMemory", status, &error);
}

static int take(struct engine *engine, void *address) {
    struct mc_error error = MC_ERROR_INIT;
    int32_t status = mc_engine_unregister(engine->engine, address, &error);

    if (status != MC_OK)
        return result_say("unregisterLocalMemory", status, &error);
    forget(engine, address);
    return 0;
}

int registerLocalMemory(transfer_engine_t handle, void *addr, size_t length, const char *location,
                        int remote_accessible) {
    struct engine *engine = engine_enter(handle, __func__);
    int result;

    if (engine == NULL)
        return result_of(MC_ERR_INVALID_HANDLE);
    result = add(engine, addr, length, location, remote_accessible ? MC_REMOTE_READ | MC_REMOTE_WRITE : 0);
    engine_leave(engine);
    return result;
}

int unregisterLocalMemory(transfer_engine_t handle, void *addr) {
    struct engine *engine = engine_enter(handle, __func__);
    int result;

    if (engine == NULL)
        return result_of(MC_ERR_INVALID_HANDLE);
    result = take(engine, addr);
    engine_leave(engine);
    return result;
}

int registerLocalMemoryBatch(transfer_engine_t handle, buffer_entry_t *list, size_t n, const char *location) {
    struct engine *engine = engine_enter(handle, __func__);
    size_t done = 0;
    int result = 0;

    if (engine == NULL)
        return result_of(MC_ERR_INVALID_HANDLE);
    if (list == NULL && n > 0) {
        result = result_say(__func__, MC_ERR_INVALID_ARGUMENT, NULL);
        n = 0;
    }
    for (; result == 0 && done < n; done++)
        result = add(engine, list[done].addr, list[done].length, location, MC_REMOTE_READ | MC_REMOTE_WRITE);
    if (result != 0 && done > 0)
        for (done--; done > 0; done--) /* the last one is what failed */
            (void)take(engine, list[done - 1].addr);
    engine_leave(engine);
    return result;
}

int unregisterLocalMemoryBatch(transfer_engine_t handle, void **list, size_t n) {
    struct engine *engine = engine_enter(handle, __func__);
    int result = 0;

    if (engine == NULL)
        return result_of(MC_ERR_INVALID_HANDLE);
    if (list == NULL && n > 0) {
        result = result_say(__func__, MC_ERR_INVALID_ARGUMENT, NULL);
        n = 0;
    }
    for (size_t i = 0; i < n; i++) {
        int one = take(engine, list[i]);

        if (result == 0)
            result = one;
    }
    engine_leave(engine);
    return result;
}

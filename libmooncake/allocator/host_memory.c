/* allocator/host_memory.c - a list of sealed memfds.
 *
 * Owns: the list, under `lock`, which is held over fork. A memory object owns its descriptor and mapping; it is freed
 * when its id is, which needs that nobody holds it.
 */
#include "allocator/host_memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/list.h"
#include "base/object.h"
#include "base/status.h"
#include "os/fork.h"
#include "os/memfd.h"

struct host_memory {
    struct object object;
    struct list node; /* in `memories` */
    void *address;
    uint64_t size;
    uint32_t holds; /* with the lock held */
    int fd;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list memories = {&memories, &memories};
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void hold_lock_over_fork(void) {
    fork_hold(&lock);
}

static void destroy(struct ref *ref) {
    struct host_memory *memory = list_entry(ref, struct host_memory, object.ref);

    memfd_unmap(memory->address, memory->size);
    fork_close(memory->fd);
    free(memory);
}

static int32_t make(uint64_t size, bool pages, uint64_t *ret_id, void **ret_address, struct mc_error *error) {
    size_t rounded = size <= SIZE_MAX ? memfd_round(size) : 0;
    struct host_memory *memory;
    int32_t status;

    if (size == 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "no memory of 0 bytes");
    if (rounded == 0)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "%llu bytes are more than there can be",
                          (unsigned long long)size);
    memory = calloc(1, sizeof(*memory));
    if (memory == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    if ((pages ? memfd_make : memfd_reserve)("mooncake", rounded, &memory->fd, &memory->address) != 0) {
        int reason = errno;

        free(memory);
        return status_set(error, reason == ENOMEM || reason == EINVAL ? MC_ERR_NO_MEMORY : MC_ERR_SYSTEM, reason,
                          "no shared memory of %llu bytes: %s", (unsigned long long)size, strerror(reason));
    }
    object_init(&memory->object, OBJECT_MEMORY, destroy);
    memory->size = rounded;
    (void)pthread_once(&once, hold_lock_over_fork);
    pthread_mutex_lock(&lock);
    list_append(&memories, &memory->node);
    pthread_mutex_unlock(&lock);
    *ret_address = memory->address;
    status = object_publish(&memory->object, ret_id);
    if (status != MC_OK) {
        pthread_mutex_lock(&lock);
        list_remove(&memory->node);
        pthread_mutex_unlock(&lock);
        *ret_address = NULL;
        status_set(error, status, 0, "too many allocations");
    }
    ref_drop(&memory->object.ref);
    return status;
}

int32_t host_memory_alloc(uint64_t size, uint64_t *ret_id, void **ret_address, struct mc_error *error) {
    return make(size, true, ret_id, ret_address, error);
}

int32_t host_memory_reserve(uint64_t size, uint64_t *ret_id, void **ret_address, struct mc_error *error) {
    return make(size, false, ret_id, ret_address, error);
}

int32_t host_memory_fault_in(void *address, uint64_t length) {
    struct host_memory *memory = host_memory_hold((uint64_t)(uintptr_t)address, length);
    int result;

    if (memory == NULL)
        return MC_ERR_INVALID_ARGUMENT;
    result = memfd_fault_in(memory->fd, memory->address, (size_t)((char *)address - (char *)memory->address), length);
    host_memory_release(memory);
    return result == 0 ? MC_OK : MC_ERR_NO_MEMORY;
}

int32_t host_memory_free(uint64_t id) {
    struct object *object;
    struct host_memory *memory;
    int32_t status = object_acquire(id, OBJECT_MEMORY, &object);

    if (status != MC_OK)
        return status;
    memory = list_entry(object, struct host_memory, object);
    pthread_mutex_lock(&lock);
    if (memory->holds > 0)
        status = MC_ERR_BUSY;
    else
        list_remove(&memory->node); /* nobody can hold it from now on */
    pthread_mutex_unlock(&lock);
    if (status == MC_OK) {
        struct object *withdrawn;

        status = object_withdraw(id, OBJECT_MEMORY, &withdrawn);
        if (status == MC_OK)
            ref_drop(&withdrawn->ref);
    }
    ref_drop(&object->ref);
    return status;
}

struct host_memory *host_memory_hold(uint64_t address, uint64_t length) {
    struct host_memory *found = NULL;
    struct list *node, *after;

    pthread_mutex_lock(&lock);
    list_each (node, after, &memories) {
        struct host_memory *memory = list_entry(node, struct host_memory, node);

        if (memory->object.process == object_process() &&
            checked_within(address, length, (uint64_t)(uintptr_t)memory->address, memory->size)) {
            memory->holds++;
            found = memory;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void host_memory_release(struct host_memory *memory) {
    if (memory == NULL)
        return;
    pthread_mutex_lock(&lock);
    memory->holds--;
    pthread_mutex_unlock(&lock);
}

uint64_t host_memory_base(const struct host_memory *memory) {
    return (uint64_t)(uintptr_t)memory->address;
}

uint64_t host_memory_size(const struct host_memory *memory) {
    return memory->size;
}

int host_memory_fd(const struct host_memory *memory) {
    return memory->fd;
}

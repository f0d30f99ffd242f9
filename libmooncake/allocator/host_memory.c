/* allocator/host_memory.c - a table of sealed memfds.
 *
 * Owns: the table, by address, under `lock`, which is held over fork. A memory object owns its descriptor and mapping;
 * it is freed when its id is, which needs that nobody holds it. Those of a parent process stay in its child's table, as
 * they stay mapped there; so the ranges in it never overlap.
 */
#include "allocator/host_memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
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
    void *address;
    uint64_t size;
    uint32_t holds; /* with the lock held */
    int fd;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct host_memory **table;
static size_t count, room;
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

/* ---- The table. With the lock held. ---- */

/* How many begin at or below the address. */
static size_t upper_bound(uint64_t address) {
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if ((uint64_t)(uintptr_t)table[middle]->address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool insert(struct host_memory *memory) {
    size_t place = upper_bound((uint64_t)(uintptr_t)memory->address);

    if (count == room) {
        size_t larger = room > 0 ? 2 * room : 16;
        struct host_memory **grown = realloc(table, larger * sizeof(struct host_memory *));

        if (grown == NULL)
            return false;
        table = grown;
        room = larger;
    }
    memmove(table + place + 1, table + place, (count - place) * sizeof(struct host_memory *));
    table[place] = memory;
    count++;
    return true;
}

static void erase(const struct host_memory *memory) {
    size_t place = upper_bound((uint64_t)(uintptr_t)memory->address);

    if (place == 0 || table[place - 1] != memory) /* already, by another who frees it */
        return;
    count--;
    memmove(table + place - 1, table + place, (count - place + 1) * sizeof(struct host_memory *));
}

/* ---- Allocating ---- */

/* Why memfd_make_of has failed. */
static int32_t explain(const struct memfd_kind *kind, uint64_t size, int reason, struct mc_error *error) {
    unsigned long long bytes = size;
    char where[40] = "";

    if (kind->bound)
        (void)snprintf(where, sizeof(where), " on NUMA node %u", kind->node);
    if (reason == ENODEV)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "there is no NUMA node %u with memory", kind->node);
    if (reason == EPERM && kind->bound)
        return status_set(error, MC_ERR_NOT_SUPPORTED, reason, "memory can't be bound to a NUMA node here (mbind): %s",
                          strerror(reason));
    if (reason == EOPNOTSUPP && kind->huge)
        return status_set(error, MC_ERR_NOT_SUPPORTED, 0, "this system has no huge pages");
    if (reason == ENOMEM && kind->huge)
        return status_set(error, MC_ERR_NO_MEMORY, reason,
                          "too few huge pages%s for %llu bytes: %llu of %zu KiB are free%s; "
                          "/proc/sys/vm/nr_hugepages reserves them",
                          where, bytes, (unsigned long long)memfd_huge_pages_free(), memfd_huge_page_size() / 1024,
                          kind->bound ? " in all" : "");
    if (reason == ENOMEM && kind->bound)
        return status_set(error, MC_ERR_NO_MEMORY, reason, "NUMA node %u has no %llu bytes of shared memory free",
                          kind->node, bytes);
    return status_set(error, reason == ENOMEM || reason == EINVAL ? MC_ERR_NO_MEMORY : MC_ERR_SYSTEM, reason,
                      "no shared memory of %llu bytes: %s", bytes, strerror(reason));
}

static int32_t publish(struct host_memory *memory, uint64_t *ret_id, void **ret_address, struct mc_error *error) {
    void *address = memory->address;
    int32_t status = MC_OK;

    (void)pthread_once(&once, hold_lock_over_fork);
    pthread_mutex_lock(&lock);
    if (!insert(memory))
        status = status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    pthread_mutex_unlock(&lock);
    if (status != MC_OK)
        return status;
    status = object_publish(&memory->object, ret_id);
    if (status == MC_OK) {
        *ret_address = address;
        return MC_OK;
    }
    pthread_mutex_lock(&lock);
    erase(memory);
    pthread_mutex_unlock(&lock);
    return status_set(error, status, 0, "too many allocations");
}

static int32_t make(const struct memfd_kind *kind, uint64_t size, bool pages, uint64_t *ret_id, void **ret_address,
                    struct mc_error *error) {
    size_t page = kind->huge ? memfd_huge_page_size() : memfd_page_size();
    size_t rounded = size <= SIZE_MAX && page > 0 ? memfd_round_to(size, page) : 0;
    struct host_memory *memory;
    int32_t status;

    if (size == 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "no memory of 0 bytes");
    if (page == 0)
        return explain(kind, size, EOPNOTSUPP, error);
    if (rounded == 0)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "%llu bytes are more than there can be",
                          (unsigned long long)size);
    memory = calloc(1, sizeof(*memory));
    if (memory == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    if ((pages ? memfd_make_of(kind, "mooncake", rounded, &memory->fd, &memory->address)
               : memfd_reserve("mooncake", rounded, &memory->fd, &memory->address)) != 0) {
        int reason = errno;

        free(memory);
        return explain(kind, size, reason, error);
    }
    object_init(&memory->object, OBJECT_MEMORY, destroy);
    memory->size = rounded;
    status = publish(memory, ret_id, ret_address, error);
    ref_drop(&memory->object.ref);
    return status;
}

int32_t host_memory_alloc_of(const struct memfd_kind *kind, uint64_t size, uint64_t *ret_id, void **ret_address,
                             struct mc_error *error) {
    return make(kind, size, true, ret_id, ret_address, error);
}

int32_t host_memory_alloc(uint64_t size, uint64_t *ret_id, void **ret_address, struct mc_error *error) {
    return make(&(struct memfd_kind){0}, size, true, ret_id, ret_address, error);
}

int32_t host_memory_reserve(uint64_t size, uint64_t *ret_id, void **ret_address, struct mc_error *error) {
    return make(&(struct memfd_kind){0}, size, false, ret_id, ret_address, error);
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
        erase(memory); /* nobody can hold it from now on */
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
    size_t place;

    pthread_mutex_lock(&lock);
    place = upper_bound(address);
    if (place > 0 && table[place - 1]->object.process == object_process() &&
        checked_within(address, length, (uint64_t)(uintptr_t)table[place - 1]->address, table[place - 1]->size)) {
        found = table[place - 1];
        found->holds++;
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

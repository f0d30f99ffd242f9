/* transfer/registry.c - a sorted array of regions under a read-write lock, so that looking one up is a binary search.
 *
 * A region is CLOSING while it waits for its pins and peers to end: it can't be pinned any more, and still takes its
 * range.
 *
 * Invariants: ranges in the array never overlap; base + length never wraps.
 */
#include "transfer/registry.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "allocator/host_memory.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"
#include "os/memfd.h"

#define LOCATION_MAX 64

struct entry {
    struct region region;
    char location[LOCATION_MAX];
    uint64_t count; /* registrations */
    bool closing;
    atomic_uint pins;
    struct host_memory *memory; /* NULL: not from mc_memory_alloc */
};

struct registry {
    pthread_mutex_t changes; /* taken first: so no region is seen by a remover before it is published */
    pthread_rwlock_t lock;
    const struct registry_ops *ops;
    void *context;
    struct entry **entries; /* by base */
    size_t count;
    size_t capacity;
};

struct registry *registry_new(const struct registry_ops *ops, void *context) {
    struct registry *registry = calloc(1, sizeof(*registry));

    if (registry == NULL)
        return NULL;
    pthread_mutex_init(&registry->changes, NULL);
    pthread_rwlock_init(&registry->lock, NULL);
    registry->ops = ops;
    registry->context = context;
    return registry;
}

static void entry_free(struct entry *entry) {
    host_memory_release(entry->memory);
    free(entry);
}

struct registry *registry_free(struct registry *registry) {
    if (registry == NULL)
        return NULL;
    for (size_t i = 0; i < registry->count; i++)
        entry_free(registry->entries[i]);
    free(registry->entries);
    pthread_rwlock_destroy(&registry->lock);
    pthread_mutex_destroy(&registry->changes);
    free(registry);
    return NULL;
}

/* How many entries begin at or below `address`. With the lock held. */
static size_t upper_bound(const struct registry *registry, uint64_t address) {
    size_t low = 0, high = registry->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (registry->entries[middle]->region.base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The entry that overlaps [address, address + length), else NULL. With the lock held. */
static struct entry *find_overlap(const struct registry *registry, uint64_t address, uint64_t length) {
    size_t next = upper_bound(registry, address);

    if (next > 0) {
        struct entry *before = registry->entries[next - 1];

        if (address - before->region.base < before->region.length)
            return before;
    }
    if (next < registry->count && registry->entries[next]->region.base - address < length)
        return registry->entries[next];
    return NULL;
}

/* The entry that begins at `address`, else NULL. With the lock held. */
static struct entry *find_base(const struct registry *registry, uint64_t address) {
    size_t next = upper_bound(registry, address);

    return next > 0 && registry->entries[next - 1]->region.base == address ? registry->entries[next - 1] : NULL;
}

/* With the lock held for writing. */
static int32_t insert(struct registry *registry, struct entry *entry) {
    size_t place = upper_bound(registry, entry->region.base);

    if (registry->count == registry->capacity) {
        size_t capacity = registry->capacity == 0 ? 16 : registry->capacity * 2;
        struct entry **entries = realloc(registry->entries, capacity * sizeof(*entries));

        if (entries == NULL)
            return MC_ERR_NO_MEMORY;
        registry->entries = entries;
        registry->capacity = capacity;
    }
    memmove(registry->entries + place + 1, registry->entries + place,
            (registry->count - place) * sizeof(registry->entries[0]));
    registry->entries[place] = entry;
    registry->count++;
    return MC_OK;
}

/* With the lock held for writing. */
static void erase(struct registry *registry, const struct entry *entry) {
    size_t place = upper_bound(registry, entry->region.base) - 1;

    registry->count--;
    memmove(registry->entries + place, registry->entries + place + 1,
            (registry->count - place) * sizeof(registry->entries[0]));
}

static int32_t check_range(uint64_t address, uint64_t length, struct mc_error *error) {
    size_t page = memfd_page_size();
    uint64_t first = address - address % page;
    uint64_t end;

    if (address == 0 || length == 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "a region needs an address and a length");
    if (!checked_add(address, length, &end) || end - first > SIZE_MAX - page)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "the range 0x%" PRIx64 " + %" PRIu64 " wraps around",
                          address, length);
    /* MS_ASYNC does nothing but say whether all pages are mapped. */
    if (msync((void *)(uintptr_t)first, (size_t)(end - first), MS_ASYNC) != 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, errno,
                          "the range 0x%" PRIx64 " + %" PRIu64 " is not mapped in this process", address, length);
    return MC_OK;
}

static struct entry *entry_new(uint64_t address, uint64_t length, const char *location, uint32_t access) {
    struct entry *entry = calloc(1, sizeof(*entry));

    if (entry == NULL)
        return NULL;
    entry->region = (struct region){.base = address, .length = length, .access = access, .memory_fd = -1};
    text_copy(entry->location, sizeof(entry->location), location);
    entry->count = 1;
    entry->memory = host_memory_hold(address, length);
    if (entry->memory != NULL) {
        entry->region.memory_fd = host_memory_fd(entry->memory);
        entry->region.memory_offset = address - host_memory_base(entry->memory);
        entry->region.memory_size = host_memory_size(entry->memory);
    }
    return entry;
}

int32_t registry_add(struct registry *registry, uint64_t address, uint64_t length, const char *location,
                     uint32_t access, struct mc_error *error) {
    struct entry *entry, *there;
    int32_t status = check_range(address, length, error);

    if (status != MC_OK)
        return status;
    if (strlen(location) >= LOCATION_MAX)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "a location has at most %d bytes", LOCATION_MAX - 1);
    entry = entry_new(address, length, location, access);
    if (entry == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    pthread_mutex_lock(&registry->changes);
    pthread_rwlock_wrlock(&registry->lock);
    there = find_overlap(registry, address, length);
    if (there == NULL) {
        status = insert(registry, entry);
        if (status != MC_OK)
            status_set(error, status, 0, "out of memory");
    } else if (there->region.base != address || there->region.length != length || there->region.access != access ||
               strcmp(there->location, location) != 0) {
        status = status_set(error, MC_ERR_OVERLAP, 0,
                            "0x%" PRIx64 " + %" PRIu64 " overlaps the region 0x%" PRIx64 " + %" PRIu64, address, length,
                            there->region.base, there->region.length);
    } else if (there->closing) {
        status = status_set(error, MC_ERR_BUSY, 0, "the region is being unregistered");
    } else {
        there->count++;
    }
    pthread_rwlock_unlock(&registry->lock);
    if (status == MC_OK && there == NULL)
        registry->ops->publish(registry->context, &entry->region);
    else
        entry_free(entry);
    pthread_mutex_unlock(&registry->changes);
    return status;
}

/* Waits until nobody has the entry pinned; false at the deadline. */
static bool wait_for_pins(const struct entry *entry, uint64_t deadline) {
    static const struct timespec pause = {.tv_nsec = 50000};

    while (atomic_load(&entry->pins) != 0) {
        if (clock_now() >= deadline)
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

int32_t registry_remove(struct registry *registry, uint64_t address, uint64_t deadline, struct mc_error *error) {
    struct entry *entry;
    int32_t status = MC_OK;
    bool last = false;

    pthread_mutex_lock(&registry->changes);
    pthread_rwlock_wrlock(&registry->lock);
    entry = find_base(registry, address);
    if (entry == NULL)
        status = status_set(error, MC_ERR_NOT_REGISTERED, 0, "no region begins at 0x%" PRIx64, address);
    else if (entry->closing)
        status = status_set(error, MC_ERR_BUSY, 0, "the region is being unregistered by another thread");
    else if (entry->count > 1)
        entry->count--;
    else
        last = entry->closing = true;
    pthread_rwlock_unlock(&registry->lock);
    pthread_mutex_unlock(&registry->changes);
    if (!last)
        return status;

    status = registry->ops->withdraw(registry->context, &entry->region, deadline);
    if (status == MC_OK && !wait_for_pins(entry, deadline)) {
        registry->ops->publish(registry->context, &entry->region);
        status = MC_ERR_BUSY;
    }
    pthread_rwlock_wrlock(&registry->lock);
    entry->closing = false;
    if (status == MC_OK)
        erase(registry, entry);
    pthread_rwlock_unlock(&registry->lock);
    if (status == MC_OK)
        entry_free(entry);
    else
        status_set(error, status, 0, "transfers on the region did not end in time");
    return status;
}

int32_t registry_withdraw_all(struct registry *registry, uint64_t deadline) {
    int32_t status = MC_OK;
    size_t done = 0;

    /* The engine lets no other call in meanwhile, so the array doesn't change. */
    while (done < registry->count && status == MC_OK) {
        status = registry->ops->withdraw(registry->context, &registry->entries[done]->region, deadline);
        if (status == MC_OK)
            done++;
    }
    while (status != MC_OK && done > 0)
        registry->ops->publish(registry->context, &registry->entries[--done]->region);
    return status;
}

int32_t registry_pin(struct registry *registry, uint64_t address, uint64_t length, uint32_t access, void **ret_pin) {
    struct entry *entry = NULL;
    int32_t status = MC_OK;
    size_t next;

    pthread_rwlock_rdlock(&registry->lock);
    next = upper_bound(registry, address);
    if (next > 0)
        entry = registry->entries[next - 1];
    if (entry == NULL || entry->closing || !checked_within(address, length, entry->region.base, entry->region.length)) {
        status = MC_ERR_NOT_REGISTERED;
    } else if ((entry->region.access & access) != access) {
        status = MC_ERR_ACCESS_DENIED;
    } else {
        atomic_fetch_add(&entry->pins, 1);
        *ret_pin = entry;
    }
    pthread_rwlock_unlock(&registry->lock);
    return status;
}

void registry_unpin(void *pin) {
    struct entry *entry = pin;

    atomic_fetch_sub(&entry->pins, 1);
}

/* transfer/registry.c - the registered regions, in a map that is looked at without a lock.
 *
 * Who pins a region counts himself in it first, and then looks whether the map still is what it was: so whoever takes a
 * region away, or begins to, changes the map first and then waits for the pins. Memory of entries is used again for
 * entries only, and freed with the registry, because who looks may hold one that is gone.
 *
 * A region is CLOSING while it waits for its pins and peers to end: it can't be pinned any more, and still takes its
 * range.
 *
 * Invariants: ranges in the map never overlap; base + length never wraps.
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
#include "base/list.h"
#include "os/memfd.h"
#include "transfer/region_map.h"

#define LOCATION_MAX 64

struct entry {
    struct region_node node;
    struct region region;
    char location[LOCATION_MAX];
    uint64_t count; /* registrations */
    atomic_bool closing;
    atomic_uint pins;
    struct host_memory *memory; /* NULL: not from mc_memory_alloc */
    struct entry *next_free;
    struct entry *next_made;
};

struct registry {
    pthread_mutex_t changes; /* also over publishing: so no region is seen by a remover before it is published */
    const struct registry_ops *ops;
    void *context;
    struct region_map map;
    struct entry *free;
    struct entry *made; /* all that there are */
    uint64_t regions, bytes;
};

struct registry *registry_new(const struct registry_ops *ops, void *context) {
    struct registry *registry = calloc(1, sizeof(*registry));

    if (registry == NULL)
        return NULL;
    pthread_mutex_init(&registry->changes, NULL);
    region_map_init(&registry->map);
    registry->ops = ops;
    registry->context = context;
    return registry;
}

struct registry *registry_free(struct registry *registry) {
    if (registry == NULL)
        return NULL;
    for (struct entry *entry = registry->made, *next; entry != NULL; entry = next) {
        next = entry->next_made;
        host_memory_release(entry->memory);
        free(entry);
    }
    pthread_mutex_destroy(&registry->changes);
    free(registry);
    return NULL;
}

static struct entry *entry_of(struct region_node *node) {
    return node == NULL ? NULL : list_entry(node, struct entry, node);
}

/* The entry that overlaps [address, address + length), else NULL. With the lock held. */
static struct entry *find_overlap(const struct registry *registry, uint64_t address, uint64_t length) {
    struct entry *before = entry_of(region_map_floor(&registry->map, address));
    struct entry *after = entry_of(region_map_next(before != NULL ? &before->node : &registry->map.head));

    if (before != NULL && address - before->region.base < before->region.length)
        return before;
    return after != NULL && after->region.base - address < length ? after : NULL;
}

/* The entry that begins at `address`, else NULL. With the lock held. */
static struct entry *find_base(const struct registry *registry, uint64_t address) {
    struct entry *entry = entry_of(region_map_floor(&registry->map, address));

    return entry != NULL && entry->region.base == address ? entry : NULL;
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

/* An entry that is in no use; NULL if memory is short. With the lock held. */
static struct entry *entry_take(struct registry *registry) {
    struct entry *entry = registry->free;

    if (entry != NULL) {
        registry->free = entry->next_free;
        return entry;
    }
    entry = calloc(1, sizeof(*entry));
    if (entry == NULL)
        return NULL;
    entry->next_made = registry->made;
    registry->made = entry;
    return entry;
}

/* With the lock held. */
static void entry_give_back(struct registry *registry, struct entry *entry) {
    host_memory_release(entry->memory);
    entry->memory = NULL;
    entry->next_free = registry->free;
    registry->free = entry;
}

/* Within a change of the map: what an older look at it has found here isn't believed. */
static void entry_fill(struct entry *entry, uint64_t address, uint64_t length, const char *location, uint32_t access) {
    entry->region = (struct region){.base = address, .length = length, .access = access, .memory_fd = -1};
    text_copy(entry->location, sizeof(entry->location), location);
    entry->count = 1;
    atomic_store(&entry->closing, false);
    entry->memory = host_memory_hold(address, length);
    if (entry->memory != NULL) {
        entry->region.memory_fd = host_memory_fd(entry->memory);
        entry->region.memory_offset = address - host_memory_base(entry->memory);
        entry->region.memory_size = host_memory_size(entry->memory);
    }
}

/* Puts a new region in. With the lock held. */
static int32_t add(struct registry *registry, uint64_t address, uint64_t length, const char *location, uint32_t access,
                   struct mc_error *error) {
    struct entry *entry = entry_take(registry);

    if (entry == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    region_map_begin(&registry->map);
    entry_fill(entry, address, length, location, access);
    region_map_insert(&registry->map, &entry->node, address);
    region_map_end(&registry->map);
    registry->regions++;
    registry->bytes += length;
    registry->ops->publish(registry->context, &entry->region);
    return MC_OK;
}

/* Registers a region once more that is there, or refuses. With the lock held. */
static int32_t add_again(struct entry *there, uint64_t address, uint64_t length, const char *location, uint32_t access,
                         struct mc_error *error) {
    if (there->region.base != address || there->region.length != length || there->region.access != access ||
        strcmp(there->location, location) != 0)
        return status_set(error, MC_ERR_OVERLAP, 0,
                          "0x%" PRIx64 " + %" PRIu64 " overlaps the region 0x%" PRIx64 " + %" PRIu64, address, length,
                          there->region.base, there->region.length);
    if (atomic_load(&there->closing))
        return status_set(error, MC_ERR_BUSY, 0, "the region is being unregistered");
    there->count++;
    return MC_OK;
}

int32_t registry_add(struct registry *registry, uint64_t address, uint64_t length, const char *location,
                     uint32_t access, struct mc_error *error) {
    struct entry *there;
    int32_t status = check_range(address, length, error);

    if (status != MC_OK)
        return status;
    if (strlen(location) >= LOCATION_MAX)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "a location has at most %d bytes", LOCATION_MAX - 1);
    pthread_mutex_lock(&registry->changes);
    there = find_overlap(registry, address, length);
    status = there == NULL ? add(registry, address, length, location, access, error)
                           : add_again(there, address, length, location, access, error);
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

/* From now on nobody pins it any more; or again. With the lock held. */
static void set_closing(struct registry *registry, struct entry *entry, bool closing) {
    region_map_begin(&registry->map);
    atomic_store(&entry->closing, closing);
    region_map_end(&registry->map);
}

/* Takes one registration off; stores the entry, closing, if it was the last one, else NULL. */
static int32_t begin_removing(struct registry *registry, uint64_t address, struct entry **ret_last,
                              struct mc_error *error) {
    struct entry *entry;
    int32_t status = MC_OK;

    *ret_last = NULL;
    pthread_mutex_lock(&registry->changes);
    entry = find_base(registry, address);
    if (entry == NULL) {
        status = status_set(error, MC_ERR_NOT_REGISTERED, 0, "no region begins at 0x%" PRIx64, address);
    } else if (atomic_load(&entry->closing)) {
        status = status_set(error, MC_ERR_BUSY, 0, "the region is being unregistered by another thread");
    } else if (entry->count > 1) {
        entry->count--;
    } else {
        set_closing(registry, entry, true);
        *ret_last = entry;
    }
    pthread_mutex_unlock(&registry->changes);
    return status;
}

int32_t registry_remove(struct registry *registry, uint64_t address, uint64_t deadline, struct mc_error *error) {
    struct entry *entry;
    int32_t status = begin_removing(registry, address, &entry, error);

    if (entry == NULL)
        return status;
    status = registry->ops->withdraw(registry->context, &entry->region, deadline);
    if (status == MC_OK && !wait_for_pins(entry, deadline)) {
        registry->ops->publish(registry->context, &entry->region);
        status = MC_ERR_BUSY;
    }
    pthread_mutex_lock(&registry->changes);
    if (status == MC_OK) {
        region_map_begin(&registry->map);
        region_map_erase(&registry->map, &entry->node);
        region_map_end(&registry->map);
        registry->regions--;
        registry->bytes -= entry->region.length;
        entry_give_back(registry, entry);
    } else {
        set_closing(registry, entry, false);
    }
    pthread_mutex_unlock(&registry->changes);
    return status == MC_OK ? MC_OK : status_set(error, status, 0, "transfers on the region did not end in time");
}

int32_t registry_withdraw_all(struct registry *registry, uint64_t deadline) {
    /* The engine lets no other call in meanwhile, so the map doesn't change. */
    struct entry *entry = entry_of(region_map_next(&registry->map.head)), *stop;
    int32_t status = MC_OK;

    while (entry != NULL && status == MC_OK) {
        status = registry->ops->withdraw(registry->context, &entry->region, deadline);
        if (status == MC_OK)
            entry = entry_of(region_map_next(&entry->node));
    }
    stop = entry;
    entry = entry_of(region_map_next(&registry->map.head));
    for (; status != MC_OK && entry != stop; entry = entry_of(region_map_next(&entry->node)))
        registry->ops->publish(registry->context, &entry->region);
    return status;
}

void registry_count(struct registry *registry, uint64_t *ret_regions, uint64_t *ret_bytes) {
    pthread_mutex_lock(&registry->changes);
    *ret_regions = registry->regions;
    *ret_bytes = registry->bytes;
    pthread_mutex_unlock(&registry->changes);
}

/* Whether the pinned entry will do. */
static int32_t judge(const struct entry *entry, uint64_t address, uint64_t length, uint32_t access) {
    if (atomic_load(&entry->closing) || !checked_within(address, length, entry->region.base, entry->region.length))
        return MC_ERR_NOT_REGISTERED;
    return (entry->region.access & access) == access ? MC_OK : MC_ERR_ACCESS_DENIED;
}

int32_t registry_pin(struct registry *registry, uint64_t address, uint64_t length, uint32_t access, void **ret_pin) {
    struct entry *entry;
    uint64_t sequence;
    int32_t status;
    bool holds;

    do {
        sequence = region_map_look(&registry->map);
        entry = entry_of(region_map_floor(&registry->map, address));
        if (entry != NULL)
            atomic_fetch_add(&entry->pins, 1);
        holds = region_map_holds(&registry->map, sequence);
        if (!holds && entry != NULL)
            registry_unpin(entry);
    } while (!holds);
    status = entry == NULL ? MC_ERR_NOT_REGISTERED : judge(entry, address, length, access);
    if (status == MC_OK)
        *ret_pin = entry;
    else if (entry != NULL)
        registry_unpin(entry);
    return status;
}

void registry_unpin(void *pin) {
    struct entry *entry = pin;

    atomic_fetch_sub(&entry->pins, 1);
}

/* transports/shm/slots.c - the region page as its host sees it.
 *
 * Owns the page, and for each slot that was ever used which region it describes. Free slots are a chain through those.
 * A tree finds the region of an address; another one numbers the memfds in which regions lie: a number ends with the
 * last region there, so a descriptor that comes again later has another one.
 *
 * Invariants: slots from `used` on were never used, and those before it have their pages. Published regions don't
 * overlap, which is the registry's doing.
 */
#include "transports/shm/slots.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "net/auth.h"
#include "os/fork.h"
#include "os/memfd.h"

#define SLOTS_AT_ONCE 1024u /* that get their pages */
#define NONE UINT32_MAX

/* A memfd with regions in it. */
struct memory {
    int fd;
    uint64_t number;
    uint32_t regions;
};

struct place {
    struct region *region; /* NULL: free */
    struct memory *memory; /* NULL: ordinary memory */
    uint32_t next_free;
};

struct shm_slots {
    struct shm_page *page;
    int fd;
    int fd_read_only;
    uint8_t proof[16]; /* in ordinary memory, for guests to find */
    struct place *places;
    uint32_t capacity; /* of places */
    uint32_t used;
    uint32_t ready; /* slots that have their pages */
    uint32_t first_free;
    void *regions;  /* the tree of them, by address */
    void *memories; /* the tree of them, by descriptor */
    uint64_t last_number;
};

/* ---- The trees ---- */

/* Ranges that overlap are equal: so a range of 8 bytes finds the region in which it lies. */
static int by_range(const void *a, const void *b) {
    const struct region *one = a, *other = b;

    if (one->base < other->base)
        return other->base - one->base >= one->length ? -1 : 0;
    return one->base - other->base >= other->length ? 1 : 0;
}

static int by_fd(const void *a, const void *b) {
    const struct memory *one = a, *other = b;

    return one->fd < other->fd ? -1 : one->fd > other->fd;
}

/* The memory of that descriptor, with one more region in it. NULL: no memory. */
static struct memory *take_memory(struct shm_slots *slots, int fd) {
    struct memory wanted = {.fd = fd}, *memory;
    struct memory **found = tfind(&wanted, &slots->memories, by_fd);

    if (found != NULL) {
        (*found)->regions++;
        return *found;
    }
    memory = malloc(sizeof(*memory));
    if (memory == NULL)
        return NULL;
    *memory = (struct memory){.fd = fd, .number = slots->last_number + 1, .regions = 1};
    if (tsearch(memory, &slots->memories, by_fd) == NULL) {
        free(memory);
        return NULL;
    }
    slots->last_number++;
    return memory;
}

static void drop_memory(struct shm_slots *slots, struct memory *memory) {
    if (memory == NULL || --memory->regions > 0)
        return;
    tdelete(memory, &slots->memories, by_fd);
    free(memory);
}

/* ---- Free slots ---- */

/* Makes place for one more slot. */
static bool grow(struct shm_slots *slots) {
    if (slots->used == SHM_SLOTS)
        return false;
    if (slots->used == slots->capacity) {
        uint32_t capacity = slots->capacity == 0 ? 64 : slots->capacity * 2;
        struct place *places = realloc(slots->places, capacity * sizeof(*places));

        if (places == NULL)
            return false;
        slots->places = places;
        slots->capacity = capacity;
    }
    if (slots->used == slots->ready) {
        size_t page = memfd_page_size();
        size_t first = offsetof(struct shm_page, slots) + slots->ready * sizeof(struct shm_slot);
        size_t end = memfd_round(first + SLOTS_AT_ONCE * sizeof(struct shm_slot));

        first -= first % page;
        if (end > memfd_round(sizeof(struct shm_page)))
            end = memfd_round(sizeof(struct shm_page));
        if (memfd_fault_in(slots->fd, slots->page, first, end - first) != 0)
            return false;
        slots->ready += SLOTS_AT_ONCE;
    }
    return true;
}

/* A slot that is free, or NONE. */
static uint32_t take_slot(struct shm_slots *slots) {
    uint32_t slot = slots->first_free;

    if (slot != NONE) {
        slots->first_free = slots->places[slot].next_free;
        return slot;
    }
    if (!grow(slots))
        return NONE;
    slot = slots->used++;
    slots->places[slot] = (struct place){.next_free = NONE};
    atomic_store(&slots->page->slots_used, slots->used);
    return slot;
}

static void give_slot(struct shm_slots *slots, uint32_t slot) {
    slots->places[slot] = (struct place){.next_free = slots->first_free};
    slots->first_free = slot;
}

/* ---- Regions ---- */

void shm_slots_set_state(struct shm_slots *slots, uint32_t slot, enum shm_state state) {
    _Atomic uint64_t *key = &slots->page->slots[slot].key;
    uint64_t now = atomic_load(key);

    atomic_store(key, now - now % SHM_STATES + (uint64_t)state);
}

void shm_slots_note(struct shm_slots *slots, uint32_t slot) {
    uint64_t changes = atomic_load(&slots->page->changes);

    atomic_store(&slots->page->log[changes % SHM_LOG], slot);
    atomic_store(&slots->page->changes, changes + 1);
}

void shm_slots_open(struct shm_slots *slots, struct region *region) {
    struct memory *memory = NULL;
    struct shm_slot *slot;
    uint32_t index;

    region->page_slot = SHM_SLOTS;
    if (region->memory_fd >= 0) {
        memory = take_memory(slots, region->memory_fd);
        if (memory == NULL)
            return;
    }
    index = take_slot(slots);
    if (index == NONE) {
        drop_memory(slots, memory);
        return;
    }
    if (tsearch(region, &slots->regions, by_range) == NULL) {
        give_slot(slots, index);
        drop_memory(slots, memory);
        return;
    }
    slots->places[index] = (struct place){.region = region, .memory = memory, .next_free = NONE};
    region->page_slot = index;
    slot = &slots->page->slots[index];
    slot->base = region->base;
    slot->length = region->length;
    slot->memory = memory != NULL ? memory->number : 0;
    slot->memory_offset = memory != NULL ? region->memory_offset : 0;
    slot->memory_size = memory != NULL ? region->memory_size : 0;
    slot->access = region->access;
    atomic_fetch_add(&slot->key, SHM_STATES); /* a new generation, still FREE */
    shm_slots_set_state(slots, index, SHM_OPEN);
    shm_slots_note(slots, index);
}

void shm_slots_close(struct shm_slots *slots, struct region *region) {
    uint32_t index = region->page_slot;

    shm_slots_set_state(slots, index, SHM_FREE);
    tdelete(region, &slots->regions, by_range);
    drop_memory(slots, slots->places[index].memory);
    give_slot(slots, index);
    region->page_slot = SHM_SLOTS;
    shm_slots_note(slots, index);
}

uint32_t shm_slots_find(const struct shm_slots *slots, uint64_t address) {
    const struct region wanted = {.base = address, .length = sizeof(uint64_t)};
    const struct region *const *found = tfind(&wanted, &slots->regions, by_range);

    if (found == NULL || !checked_within(address, sizeof(uint64_t), (*found)->base, (*found)->length))
        return SHM_SLOTS;
    return (*found)->page_slot;
}

const struct region *shm_slots_region(const struct shm_slots *slots, uint32_t slot, uint64_t key) {
    if (slot >= slots->used || atomic_load(&slots->page->slots[slot].key) != key)
        return NULL;
    return slots->places[slot].region;
}

/* ---- The page ---- */

int shm_slots_new(struct shm_slots **ret_slots) {
    struct shm_slots *slots = calloc(1, sizeof(*slots));
    void *page;

    if (slots == NULL)
        return -1;
    slots->fd = slots->fd_read_only = -1;
    slots->first_free = NONE;
    if (auth_random(slots->proof, sizeof(slots->proof)) != MC_OK) {
        shm_slots_free(slots);
        errno = EIO;
        return -1;
    }
    if (memfd_reserve("mooncake-regions", memfd_round(sizeof(struct shm_page)), &slots->fd, &page) == 0) {
        slots->page = page;
        slots->page->magic = SHM_MAGIC;
        slots->page->proof_address = (uint64_t)(uintptr_t)slots->proof;
        memcpy(slots->page->proof, slots->proof, sizeof(slots->proof));
        slots->fd_read_only = memfd_read_only(slots->fd);
    }
    if (slots->fd_read_only < 0) {
        int saved = errno;

        shm_slots_free(slots);
        errno = saved;
        return -1;
    }
    *ret_slots = slots;
    return 0;
}

/* For tdestroy: regions are the registry's. */
static void keep(void *region) {
    (void)region;
}

struct shm_slots *shm_slots_free(struct shm_slots *slots) {
    if (slots == NULL)
        return NULL;
    tdestroy(slots->regions, keep);
    tdestroy(slots->memories, free);
    if (slots->page != NULL)
        memfd_unmap(slots->page, memfd_round(sizeof(*slots->page)));
    fork_close(slots->fd);
    fork_close(slots->fd_read_only);
    free(slots->places);
    free(slots);
    return NULL;
}

int shm_slots_fd(const struct shm_slots *slots) {
    return slots->fd_read_only;
}

/* transports/shm/regions.c - the peer's regions as a guest knows them.
 *
 * A snapshot is a sorted array of chunks, each a sorted array of regions. Both are immutable once published: a refresh
 * makes new ones of the chunks that change, and of the array, and publishes that. What it takes out is freed when nobody
 * can be looking at it any more: when each counter of those inside has been seen at zero since. Whoever comes in later
 * finds the new snapshot. So that they do become zero under steady use, those who come are counted by phase, and the
 * phase changes when the other one's counters have been at zero.
 *
 * What the page says is the peer's word only: the ranges and numbers are checked here, the rest by the kernel.
 *
 * Invariant: no two regions of a snapshot begin at the same address.
 */
#include "transports/shm/regions.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include <mooncake/error.h>

#include "base/checked.h"
#include "os/memfd.h"

#define CHUNK_MAX 256u

struct item {
    uint64_t base;
    struct shm_region *region;
};

struct chunk {
    struct shm_grave grave;
    uint64_t batch; /* in which it was made, and may be changed */
    uint32_t count; /* at least 1 once published */
    uint32_t capacity;
    struct item entries[];
};

struct part {
    uint64_t base; /* of its first region */
    struct chunk *chunk;
};

struct shm_snapshot {
    struct shm_grave grave;
    size_t count;
    size_t capacity;
    struct part parts[];
};

/* ---- Looking up ---- */

_Atomic uint32_t *shm_regions_enter(struct shm_regions *regions) {
    /* Threads have their descriptors far apart. */
    uint32_t stripe = (uint32_t)(((uint64_t)pthread_self() >> 6) * 0x9e3779b97f4a7c15ull >> 61) % SHM_STRIPES;
    _Atomic uint32_t *inside = &regions->stripes[atomic_load(&regions->phase) % 2][stripe].inside;

    atomic_fetch_add(inside, 1);
    return inside;
}

/* How many parts begin at or below the address. */
static size_t find_part(const struct shm_snapshot *snapshot, uint64_t address) {
    size_t low = 0, high = snapshot->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (snapshot->parts[middle].base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* How many regions of the chunk begin at or below the address. */
static uint32_t find_entry(const struct chunk *chunk, uint64_t address) {
    uint32_t low = 0, high = chunk->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (chunk->entries[middle].base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct shm_region *shm_regions_find(const struct shm_regions *regions, uint64_t address, uint64_t length,
                                    uint32_t access) {
    const struct shm_snapshot *snapshot = atomic_load(&regions->snapshot);
    size_t part = find_part(snapshot, address);
    struct shm_region *region;
    const struct chunk *chunk;

    if (part == 0)
        return NULL;
    chunk = snapshot->parts[part - 1].chunk;
    region = chunk->entries[find_entry(chunk, address) - 1].region;
    if (!checked_within(address, length, region->base, region->length) || (region->access & access) != access)
        return NULL;
    return region;
}

void shm_regions_each(const struct shm_regions *regions, void (*visit)(void *context, const struct shm_region *region),
                      void *context) {
    const struct shm_snapshot *snapshot = atomic_load(&regions->snapshot);

    for (size_t i = 0; i < snapshot->count; i++)
        for (uint32_t j = 0; j < snapshot->parts[i].chunk->count; j++)
            visit(context, snapshot->parts[i].chunk->entries[j].region);
}

/* ---- Memories ---- */

static int by_number(const void *a, const void *b) {
    const struct shm_memory *one = a, *other = b;

    if (one->number != other->number)
        return one->number < other->number ? -1 : 1;
    return one->writable - other->writable;
}

static void memory_destroy(struct ref *ref) {
    struct shm_memory *memory = list_entry(ref, struct shm_memory, ref);

    memfd_unmap(memory->address, memory->size);
    free(memory);
}

static struct shm_memory *find_memory(const struct shm_regions *regions, uint64_t number, bool writable) {
    const struct shm_memory wanted = {.number = number, .writable = writable};
    struct shm_memory **found = tfind(&wanted, &regions->memories, by_number);

    return found == NULL ? NULL : *found;
}

struct shm_memory *shm_regions_memory(const struct shm_regions *regions, uint64_t number, uint64_t size,
                                      bool writable) {
    struct shm_memory *memory = find_memory(regions, number, true);

    if (memory == NULL && !writable)
        memory = find_memory(regions, number, false);
    return memory != NULL && memory->size == size ? memory : NULL;
}

struct shm_memory *shm_regions_add_memory(struct shm_regions *regions, uint64_t number, uint64_t size, bool writable,
                                          void *address) {
    struct shm_memory *memory = malloc(sizeof(*memory));

    if (memory != NULL) {
        *memory = (struct shm_memory){.number = number, .size = size, .writable = writable, .address = address};
        ref_init(&memory->ref, memory_destroy);
        if (find_memory(regions, number, writable) == NULL && /* else it is another size's, which is a lie */
            tsearch(memory, &regions->memories, by_number) != NULL)
            return memory;
    }
    free(memory);
    memfd_unmap(address, size);
    return NULL;
}

void shm_regions_use_memory(struct shm_region *region, struct shm_memory *memory) {
    memory->regions++;
    region->memory = memory;
    atomic_store(&region->at, memory->address + region->memory_offset);
}

void shm_regions_drop_memory(struct shm_regions *regions, struct shm_memory *memory) {
    if (memory->regions > 0)
        return;
    tdelete(memory, &regions->memories, by_number);
    ref_drop(&memory->ref);
}

/* ---- Ends ---- */

static void retire(struct shm_regions *regions, struct shm_grave *grave) {
    list_append(&regions->retired, &grave->node);
}

static void region_free(struct shm_regions *regions, struct shm_region *region) {
    if (region->memory != NULL) {
        region->memory->regions--;
        shm_regions_drop_memory(regions, region->memory);
    }
    free(region);
}

static void bury(struct shm_regions *regions, struct list *graves) {
    struct list *node, *after;

    list_each (node, after, graves) {
        struct shm_grave *grave = list_entry(node, struct shm_grave, node);

        if (grave->is_region)
            region_free(regions, list_entry(grave, struct shm_region, grave));
        else
            free(grave);
    }
    list_init(graves);
}

/* Has each counter of the phase been at zero since `waiting` was taken out? */
static bool is_quiet(struct shm_regions *regions, unsigned phase) {
    bool quiet = true;

    for (size_t i = 0; i < SHM_STRIPES; i++) {
        if (!regions->empty[phase][i])
            regions->empty[phase][i] = atomic_load(&regions->stripes[phase][i].inside) == 0;
        quiet = quiet && regions->empty[phase][i];
    }
    return quiet;
}

/* Frees what it may. */
static void settle(struct shm_regions *regions) {
    bool free_now = true;

    while (free_now && !(list_empty(&regions->waiting) && list_empty(&regions->retired))) {
        unsigned phase = atomic_load(&regions->phase);
        bool quiet, other_quiet;

        if (list_empty(&regions->waiting)) {
            regions->waiting = regions->retired;
            regions->waiting.next->prev = regions->waiting.prev->next = &regions->waiting;
            list_init(&regions->retired);
            memset(regions->empty, 0, sizeof(regions->empty));
        }
        quiet = is_quiet(regions, phase);
        other_quiet = is_quiet(regions, 1 - phase);
        free_now = quiet && other_quiet;
        if (free_now)
            bury(regions, &regions->waiting);
        else if (other_quiet)
            atomic_store(&regions->phase, 1 - phase);
    }
    atomic_store(&regions->unsettled, !free_now);
}

/* ---- Drafts of the next snapshot ---- */

static struct chunk *chunk_new(const struct shm_regions *regions, uint32_t room) {
    uint32_t capacity = room + room / 2 + 4 < CHUNK_MAX ? room + room / 2 + 4 : CHUNK_MAX;
    struct chunk *chunk = calloc(1, sizeof(*chunk) + capacity * sizeof(chunk->entries[0]));

    if (chunk == NULL)
        return NULL;
    chunk->batch = regions->batch;
    chunk->capacity = capacity;
    return chunk;
}

/* A snapshot with the parts of another one, and room for more. */
static struct shm_snapshot *snapshot_copy(const struct shm_snapshot *old) {
    size_t count = old == NULL ? 0 : old->count;
    size_t capacity = count + count / 4 + 2;
    struct shm_snapshot *draft = calloc(1, sizeof(*draft) + capacity * sizeof(draft->parts[0]));

    if (draft == NULL)
        return NULL;
    draft->count = count;
    draft->capacity = capacity;
    if (count > 0)
        memcpy(draft->parts, old->parts, count * sizeof(draft->parts[0]));
    return draft;
}

/* Puts a chunk before the part, in a draft that may move. */
static bool add_part(struct shm_snapshot **draft, size_t part, struct chunk *chunk) {
    struct shm_snapshot *wider = *draft;

    if (wider->count == wider->capacity) {
        wider = snapshot_copy(*draft);
        if (wider == NULL)
            return false;
        free(*draft);
        *draft = wider;
    }
    memmove(&wider->parts[part + 1], &wider->parts[part], (wider->count - part) * sizeof(wider->parts[0]));
    wider->parts[part] = (struct part){chunk->entries[0].base, chunk};
    wider->count++;
    return true;
}

/* The part's chunk, with room for one more unless it is full, and changeable. NULL: no memory. */
static struct chunk *own_chunk(struct shm_regions *regions, struct shm_snapshot *draft, size_t part) {
    struct chunk *old = draft->parts[part].chunk, *chunk;

    if (old->batch == regions->batch && (old->count < old->capacity || old->capacity == CHUNK_MAX))
        return old;
    chunk = chunk_new(regions, old->count + 1);
    if (chunk == NULL)
        return NULL;
    memcpy(chunk->entries, old->entries, old->count * sizeof(old->entries[0]));
    chunk->count = old->count;
    draft->parts[part].chunk = chunk;
    if (old->batch == regions->batch)
        free(old);
    else
        retire(regions, &old->grave);
    return chunk;
}

/* Moves the upper half of a full chunk into one of its own. */
static bool split(struct shm_regions *regions, struct shm_snapshot **draft, size_t part) {
    struct chunk *lower = (*draft)->parts[part].chunk;
    struct chunk *upper = chunk_new(regions, CHUNK_MAX);
    uint32_t half = lower->count / 2;

    if (upper == NULL)
        return false;
    upper->count = lower->count - half;
    memcpy(upper->entries, lower->entries + half, upper->count * sizeof(upper->entries[0]));
    if (!add_part(draft, part + 1, upper)) {
        free(upper);
        return false;
    }
    lower->count = half;
    return true;
}

static struct chunk *first_chunk(struct shm_regions *regions, struct shm_snapshot **draft, struct item entry) {
    struct chunk *chunk = chunk_new(regions, 1);

    if (chunk == NULL)
        return NULL;
    chunk->entries[0] = entry; /* add_part wants to know the base */
    if (add_part(draft, 0, chunk))
        return chunk;
    free(chunk);
    return NULL;
}

/* MC_OK; MC_ERR_OVERLAP if another region begins there, MC_ERR_NO_MEMORY. */
static int32_t draft_insert(struct shm_regions *regions, struct shm_snapshot **draft, struct shm_region *region) {
    struct item entry = {region->base, region};
    size_t part = find_part(*draft, region->base);
    struct chunk *chunk;
    uint32_t place;

    part -= part > 0;
    if ((*draft)->count == 0)
        chunk = first_chunk(regions, draft, entry);
    else
        chunk = own_chunk(regions, *draft, part);
    if (chunk == NULL)
        return MC_ERR_NO_MEMORY;
    if (chunk->count == CHUNK_MAX) {
        if (!split(regions, draft, part))
            return MC_ERR_NO_MEMORY;
        part += region->base >= (*draft)->parts[part + 1].base;
        chunk = (*draft)->parts[part].chunk;
    }
    place = find_entry(chunk, region->base);
    if (place > 0 && chunk->entries[place - 1].base == region->base)
        return MC_ERR_OVERLAP;
    memmove(&chunk->entries[place + 1], &chunk->entries[place], (chunk->count - place) * sizeof(entry));
    chunk->entries[place] = entry;
    chunk->count++;
    (*draft)->parts[part].base = chunk->entries[0].base;
    return MC_OK;
}

/* Takes a region out that is there. False: no memory. */
static bool draft_remove(struct shm_regions *regions, struct shm_snapshot *draft, const struct shm_region *region) {
    size_t part = find_part(draft, region->base);
    struct chunk *chunk;
    uint32_t place;

    if (part-- == 0 || part >= draft->count) /* never: it is there */
        return true;
    chunk = own_chunk(regions, draft, part);
    if (chunk == NULL)
        return false;
    place = find_entry(chunk, region->base) - 1;
    chunk->count--;
    memmove(&chunk->entries[place], &chunk->entries[place + 1], (chunk->count - place) * sizeof(chunk->entries[0]));
    if (chunk->count > 0) {
        draft->parts[part].base = chunk->entries[0].base;
        return true;
    }
    free(chunk);
    draft->count--;
    memmove(&draft->parts[part], &draft->parts[part + 1], (draft->count - part) * sizeof(draft->parts[0]));
    return true;
}

/* ---- Reading the page ---- */

/* What one slot says now. NULL if it isn't open, or what it says makes no sense, with MC_OK; or MC_ERR_NO_MEMORY. */
static struct shm_region *read_slot(const struct shm_regions *regions, uint32_t index, int32_t *ret_status) {
    const struct shm_slot *slot = &regions->page->slots[index];
    uint64_t key = atomic_load(&slot->key), end;
    struct shm_region *region;

    *ret_status = MC_OK;
    if (key % SHM_STATES != SHM_OPEN)
        return NULL;
    region = calloc(1, sizeof(*region));
    if (region == NULL) {
        *ret_status = MC_ERR_NO_MEMORY;
        return NULL;
    }
    region->grave.is_region = true;
    region->key = key;
    region->base = slot->base;
    region->length = slot->length;
    region->number = slot->memory;
    region->memory_offset = slot->memory_offset;
    region->memory_size = slot->memory_size;
    region->access = (uint32_t)slot->access;
    region->slot = index;
    if (atomic_load(&slot->key) == key && region->length > 0 && checked_add(region->base, region->length - 1, &end) &&
        (region->number == 0 ||
         (region->memory_size <= SIZE_MAX &&
          checked_within(region->memory_offset, region->length, 0, region->memory_size) &&
          (region->memory_offset - region->base) % sizeof(uint64_t) == 0))) /* an aligned guard stays so when mapped */
        return region;
    free(region);
    return NULL;
}

/* Is it the region that was read? One that is CLOSING may be open again: it keeps what is mapped. */
static bool is_same(const struct shm_region *region, uint64_t key) {
    return region->key / SHM_STATES == key / SHM_STATES && key % SHM_STATES != SHM_FREE;
}

/* Makes by_slot as long as that. */
static bool grow_by_slot(struct shm_regions *regions, size_t size) {
    struct shm_region **wider;
    size_t capacity = regions->by_slot_size;

    if (size <= capacity)
        return true;
    capacity = size + size / 4 + 16;
    wider = realloc(regions->by_slot, capacity * sizeof(struct shm_region *));
    if (wider == NULL)
        return false;
    memset(wider + regions->by_slot_size, 0, (capacity - regions->by_slot_size) * sizeof(struct shm_region *));
    regions->by_slot = wider;
    regions->by_slot_size = capacity;
    return true;
}

/* Takes the slot's region out if it is there no more. */
static bool forget(struct shm_regions *regions, struct shm_snapshot **draft, uint32_t slot) {
    struct shm_region *region = regions->by_slot[slot];

    if (region == NULL || is_same(region, atomic_load(&regions->page->slots[slot].key)))
        return true;
    if (!draft_remove(regions, *draft, region))
        return false;
    regions->by_slot[slot] = NULL;
    retire(regions, &region->grave);
    return true;
}

/* Takes the slot's region in if it is new. One that begins where another does is passed over: either it is a lie, or
 * the other has gone meanwhile, and both slots have changed again. */
static bool learn(struct shm_regions *regions, struct shm_snapshot **draft, uint32_t slot) {
    struct shm_region *region;
    int32_t status;

    if (regions->by_slot[slot] != NULL)
        return true;
    region = read_slot(regions, slot, &status);
    if (region == NULL)
        return status == MC_OK;
    status = draft_insert(regions, draft, region);
    if (status == MC_OK)
        regions->by_slot[slot] = region;
    else
        free(region);
    return status != MC_ERR_NO_MEMORY;
}

/* The slots that have changed since the last time up to change `until`, from the ring; NULL (and 0) if it doesn't
 * reach so far back, or without memory. */
static uint32_t *read_log(const struct shm_regions *regions, uint64_t until, size_t *ret_count) {
    const struct shm_page *page = regions->page;
    uint64_t seen = regions->seen, count = until - seen;
    uint32_t *slots;

    *ret_count = 0;
    if (count == 0 || count >= SHM_LOG)
        return NULL;
    slots = malloc(count * sizeof(*slots));
    if (slots == NULL)
        return NULL;
    for (uint64_t i = 0; i < count; i++)
        slots[i] = atomic_load(&page->log[(seen + i) % SHM_LOG]) % SHM_SLOTS;
    if (atomic_load(&page->changes) - seen >= SHM_LOG) {
        free(slots);
        return NULL;
    }
    *ret_count = count;
    return slots;
}

void shm_regions_refresh(struct shm_regions *regions) {
    struct shm_snapshot *old = atomic_load(&regions->snapshot), *draft;
    uint64_t changes = atomic_load(&regions->page->changes);
    uint32_t used = atomic_load(&regions->page->slots_used);
    bool complete = true;
    uint32_t *slots;
    size_t count;

    if (changes == regions->seen) {
        settle(regions);
        return;
    }
    draft = snapshot_copy(old);
    if (draft == NULL)
        return;
    regions->batch++;
    slots = read_log(regions, changes, &count);
    if (slots == NULL)
        count = used < SHM_SLOTS ? used : SHM_SLOTS;
    for (size_t i = 0; i < count; i++) {
        uint32_t slot = slots == NULL ? (uint32_t)i : slots[i];

        complete = grow_by_slot(regions, slot + 1) && forget(regions, &draft, slot) && complete;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t slot = slots == NULL ? (uint32_t)i : slots[i];

        complete = slot < regions->by_slot_size && learn(regions, &draft, slot) && complete;
    }
    free(slots);
    atomic_store(&regions->snapshot, draft);
    retire(regions, &old->grave);
    if (complete)
        atomic_store(&regions->seen, changes);
    settle(regions);
}

struct shm_region *shm_regions_at(const struct shm_regions *regions, uint32_t slot, uint64_t key) {
    struct shm_region *region = slot < regions->by_slot_size ? regions->by_slot[slot] : NULL;

    return region != NULL && region->key == key ? region : NULL;
}

/* ---- Beginning and end ---- */

int32_t shm_regions_init(struct shm_regions *regions, const struct shm_page *page) {
    struct shm_snapshot *none = snapshot_copy(NULL);

    memset(regions, 0, sizeof(*regions));
    regions->page = page;
    atomic_init(&regions->snapshot, none);
    list_init(&regions->waiting);
    list_init(&regions->retired);
    return none != NULL ? MC_OK : MC_ERR_NO_MEMORY;
}

void shm_regions_destroy(struct shm_regions *regions) {
    struct shm_snapshot *snapshot = atomic_load(&regions->snapshot);

    bury(regions, &regions->waiting);
    bury(regions, &regions->retired);
    for (size_t i = 0; i < regions->by_slot_size; i++)
        if (regions->by_slot[i] != NULL)
            region_free(regions, regions->by_slot[i]);
    for (size_t i = 0; snapshot != NULL && i < snapshot->count; i++)
        free(snapshot->parts[i].chunk);
    free(snapshot);
    free(regions->by_slot);
}

/* transports/shm/regions.h - the peer's regions as a guest knows them: looked up without a lock.
 *
 * What is looked up stays between shm_regions_enter and shm_regions_leave, which any thread may be in for as long as it
 * likes. All else is for one thread at a time.
 */
#ifndef MC_TRANSPORTS_SHM_REGIONS_H
#define MC_TRANSPORTS_SHM_REGIONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/ref.h"
#include "transports/shm/page.h"

#define SHM_STRIPES 8u /* a power of two */

/* A memfd of the peer, mapped as a whole. Holds on it may outlive the guest. */
struct shm_memory {
    struct ref ref;
    uint64_t number;
    uint64_t size;
    bool writable;
    uint8_t *address;
    uint32_t regions; /* that use it */
};

struct shm_grave {
    struct list node;
    bool is_region;
};

enum shm_directly { SHM_DIRECT_UNKNOWN, SHM_DIRECT_GOOD, SHM_DIRECT_REFUSED };

/* One region of the peer. Immutable but for what says where it is. */
struct shm_region {
    struct shm_grave grave;
    uint64_t key;
    uint64_t base;
    uint64_t length;
    uint64_t number; /* of its memory; 0: ordinary memory */
    uint64_t memory_offset;
    uint64_t memory_size;
    uint32_t access;
    uint32_t slot;
    _Atomic(uint8_t *) at;     /* the region here; NULL until it is mapped */
    atomic_bool refused;       /* it can't be mapped: not asked again */
    atomic_int direct;         /* by process_vm */
    struct shm_memory *memory; /* counted there; NULL until it is mapped */
};

struct shm_snapshot;

struct shm_stripe {
    _Alignas(64) _Atomic uint32_t inside;
};

struct shm_regions {
    struct shm_stripe stripes[2][SHM_STRIPES]; /* who is inside, by the phase in which they came */
    const struct shm_page *page;
    _Atomic(struct shm_snapshot *) snapshot;
    _Atomic uint64_t seen; /* page->changes that the snapshot knows */
    atomic_bool unsettled; /* something waits to be freed */
    atomic_uint phase;
    bool empty[2][SHM_STRIPES];  /* seen so since what is in `waiting` was taken out */
    struct list waiting;         /* graves */
    struct list retired;         /* graves, later than those */
    uint64_t batch;              /* counts refreshes */
    struct shm_region **by_slot; /* the same regions */
    size_t by_slot_size;
    void *memories; /* the tree of them */
};

/* MC_ERR_NO_MEMORY, to be destroyed all the same. The page stays the caller's, and in place until the end. */
int32_t shm_regions_init(struct shm_regions *regions, const struct shm_page *page);
void shm_regions_destroy(struct shm_regions *regions);

_Atomic uint32_t *shm_regions_enter(struct shm_regions *regions);

static inline void shm_regions_leave(_Atomic uint32_t *inside) {
    atomic_fetch_sub(inside, 1);
}

/* The region that contains [address, address + length) with these rights, else NULL. Inside. */
struct shm_region *shm_regions_find(const struct shm_regions *regions, uint64_t address, uint64_t length,
                                    uint32_t access);

/* Is the region, which was found, still open? Inside. */
static inline bool shm_regions_open(const struct shm_regions *regions, const struct shm_region *region) {
    return atomic_load(&regions->page->slots[region->slot].key) == region->key;
}

/* Would a refresh do anything? Any thread. */
static inline bool shm_regions_stale(const struct shm_regions *regions) {
    return atomic_load(&regions->seen) != atomic_load(&regions->page->changes) ||
           atomic_load_explicit(&regions->unsettled, memory_order_relaxed);
}

/* ---- One thread at a time ---- */

/* Learns what has changed, at a cost in proportion to it, and frees what nobody can be looking at any more. */
void shm_regions_refresh(struct shm_regions *regions);

/* The region in that slot if it has that key; else NULL. */
struct shm_region *shm_regions_at(const struct shm_regions *regions, uint32_t slot, uint64_t key);

/* Calls for each region, by address. */
void shm_regions_each(const struct shm_regions *regions, void (*visit)(void *context, const struct shm_region *region),
                      void *context);

/* The memory that is mapped, and writable if wanted; NULL if it isn't. */
struct shm_memory *shm_regions_memory(const struct shm_regions *regions, uint64_t number, uint64_t size, bool writable);

/* Takes over a mapping; NULL without memory, then it is unmapped. Once added, a region uses it, or it is dropped. */
struct shm_memory *shm_regions_add_memory(struct shm_regions *regions, uint64_t number, uint64_t size, bool writable,
                                          void *address);
void shm_regions_use_memory(struct shm_region *region, struct shm_memory *memory);
void shm_regions_drop_memory(struct shm_regions *regions, struct shm_memory *memory);

#endif

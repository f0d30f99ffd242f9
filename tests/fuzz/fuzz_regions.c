/* fuzz_regions.c - a region page whose host may write anything, as a guest reads it.
 *
 * The input is a list of steps of 12 bytes each: what, which slot, a number. They change the page, refresh what the guest
 * knows, look addresses up, and give memory to what was found. Whatever the page says, what is found lies within one
 * region, inside memory of the size that it claims; regions come in the order of their addresses; and all is freed.
 */
#include "fuzz.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include <mooncake/transfer.h>

#include "base/checked.h"
#include "os/memfd.h"
#include "transports/shm/regions.h"
#include "wire/endian.h"

#define STEP_SIZE 12u
#define STEPS_MAX 4096u
#define MAPPED_MAX (1u << 20) /* larger memories aren't mapped here */

static struct shm_page *page; /* one for all inputs; `touched` slots are in use */
static uint32_t touched[STEPS_MAX];
static size_t touched_count;

struct visit {
    uint64_t last;
    size_t count;
};

static void check_order(void *context, const struct shm_region *region) {
    struct visit *visit = context;
    uint64_t end;

    REQUIRE(visit->count == 0 || region->base > visit->last);
    REQUIRE(region->length > 0 && checked_add(region->base, region->length - 1, &end));
    REQUIRE(region->slot < SHM_SLOTS);
    visit->last = region->base;
    visit->count++;
}

static void look_up(struct shm_regions *regions, uint64_t address, uint64_t length) {
    _Atomic uint32_t *inside = shm_regions_enter(regions);
    struct shm_region *region = shm_regions_find(regions, address, length, length % 4);
    uint8_t *at;

    if (region != NULL) {
        REQUIRE(checked_within(address, length, region->base, region->length));
        REQUIRE((region->access & length % 4) == length % 4);
        (void)shm_regions_open(regions, region);
        at = atomic_load(&region->at);
        if (at != NULL && length > 0) { /* the address sanitizer looks, too */
            REQUIRE(at >= region->memory->address);
            REQUIRE((uint64_t)(at - region->memory->address) + region->length <= region->memory->size);
            at[address - region->base] = 1;
            at[address - region->base + (length - 1)] = 1;
        }
    }
    shm_regions_leave(inside);
}

/* As the guest does when the answer with the descriptor has come. */
static void map_slot(struct shm_regions *regions, uint32_t slot, uint64_t key) {
    struct shm_region *region = shm_regions_at(regions, slot, key);
    struct shm_memory *memory;
    void *bytes;
    bool writable;

    if (region == NULL || region->number == 0 || region->memory != NULL || region->memory_size > MAPPED_MAX)
        return;
    writable = (region->access & MC_REMOTE_WRITE) != 0;
    memory = shm_regions_memory(regions, region->number, region->memory_size, writable);
    if (memory == NULL) {
        bytes =
            mmap(NULL, memfd_round(region->memory_size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        REQUIRE(bytes != MAP_FAILED);
        memory = shm_regions_add_memory(regions, region->number, region->memory_size, writable, bytes);
    }
    if (memory != NULL)
        shm_regions_use_memory(region, memory);
}

static void set_field(struct shm_slot *slot, uint32_t field, uint64_t value) {
    _Atomic uint64_t *fields[] = {&slot->key,           &slot->base,        &slot->length, &slot->memory,
                                  &slot->memory_offset, &slot->memory_size, &slot->access};

    atomic_store(fields[field % 7], value);
}

static void step(struct shm_regions *regions, const uint8_t *bytes) {
    uint32_t slot = (uint32_t)(bytes[1] | bytes[2] << 8 | bytes[3] << 16) % SHM_SLOTS;
    uint64_t value = endian_get64(bytes + 4), changes = atomic_load(&page->changes);
    struct visit visit = {0};

    switch (bytes[0] % 16) {
    case 7: /* a change as an honest host notes it */
        atomic_store(&page->log[changes % SHM_LOG], slot);
        atomic_store(&page->changes, changes + 1);
        break;
    case 8:
        atomic_store(&page->changes, value);
        break;
    case 9:
        atomic_store(&page->log[slot % SHM_LOG], (uint32_t)value);
        break;
    case 10:
        atomic_store(&page->slots_used, (uint32_t)value % 4096); /* all of them take too long here */
        break;
    case 11:
    case 12:
        shm_regions_refresh(regions);
        shm_regions_each(regions, check_order, &visit);
        break;
    case 13:
        map_slot(regions, slot, atomic_load(&page->slots[slot].key));
        break;
    case 14:
        look_up(regions, value, slot);
        break;
    case 15:
        look_up(regions, atomic_load(&page->slots[slot].base) + value % 64, value / 64);
        break;
    default:
        touched[touched_count++] = slot;
        set_field(&page->slots[slot], bytes[0], value);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct shm_regions regions;

    if (page == NULL) {
        page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        REQUIRE(page != MAP_FAILED);
    }
    atomic_store(&page->changes, 0);
    atomic_store(&page->slots_used, 0);
    memset(page->log, 0, sizeof(page->log));
    REQUIRE(shm_regions_init(&regions, page) == MC_OK);
    touched_count = 0;
    for (size_t i = 0; i < STEPS_MAX && size >= STEP_SIZE; i++, data += STEP_SIZE, size -= STEP_SIZE)
        step(&regions, data);
    shm_regions_refresh(&regions);
    shm_regions_destroy(&regions);
    while (touched_count > 0)
        memset(&page->slots[touched[--touched_count]], 0, sizeof(page->slots[0]));
    return 0;
}

/* test_shm_regions.c - what a guest makes of a region page: the right region at each address, at a cost in proportion to
 * what has changed, whatever the page says, and nothing taken away from under those who look.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include <mooncake/error.h>
#include <mooncake/transfer.h>

#include "os/memfd.h"
#include "os/thread.h"
#include "transports/shm/regions.h"

#define ALL (MC_REMOTE_READ | MC_REMOTE_WRITE)
#define MANY 20000u
#define STEP 64u /* bytes from one of the many to the next */

struct desk {
    struct shm_page *page;
    struct shm_regions *regions;
};

static int open_desk(void **state) {
    struct desk *desk = calloc(1, sizeof(*desk));
    void *page = mmap(NULL, sizeof(struct shm_page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_non_null(desk);
    assert_true(page != MAP_FAILED);
    desk->page = page;
    desk->regions = aligned_alloc(_Alignof(struct shm_regions), sizeof(*desk->regions));
    assert_non_null(desk->regions);
    assert_int_equal(shm_regions_init(desk->regions, desk->page), MC_OK);
    *state = desk;
    return 0;
}

static int close_desk(void **state) {
    struct desk *desk = *state;

    shm_regions_destroy(desk->regions);
    munmap(desk->page, sizeof(*desk->page));
    free(desk->regions);
    free(desk);
    return 0;
}

/* ---- The host's part ---- */

static void note(struct desk *desk, uint32_t slot) {
    desk->page->log[desk->page->changes % SHM_LOG] = slot;
    desk->page->changes++;
}

static struct shm_slot *open_slot(struct desk *desk, uint32_t index, uint64_t base, uint64_t length) {
    struct shm_slot *slot = &desk->page->slots[index];

    slot->base = base;
    slot->length = length;
    slot->access = ALL;
    slot->key += SHM_STATES + SHM_OPEN;
    if (desk->page->slots_used <= index)
        desk->page->slots_used = index + 1;
    note(desk, index);
    return slot;
}

static void close_slot(struct desk *desk, uint32_t index) {
    desk->page->slots[index].key -= SHM_OPEN;
    note(desk, index);
}

/* ---- The guest's ---- */

/* The slot that is found, or -1. */
static int64_t found(struct desk *desk, uint64_t address, uint64_t length, uint32_t access) {
    _Atomic uint32_t *inside = shm_regions_enter(desk->regions);
    struct shm_region *region = shm_regions_find(desk->regions, address, length, access);
    int64_t slot = region == NULL ? -1 : (int64_t)region->slot;

    shm_regions_leave(inside);
    return slot;
}

static void regions_are_found_by_the_ranges_within_them(void **state) {
    struct desk *desk = *state;

    assert_int_equal(found(desk, 1000, 1, 0), -1);
    open_slot(desk, 7, 1000, 100)->access = MC_REMOTE_READ;
    open_slot(desk, 3, 2000, 50);
    open_slot(desk, 5, UINT64_MAX - 99, 100); /* to the very end */
    assert_true(shm_regions_stale(desk->regions));
    shm_regions_refresh(desk->regions);
    assert_false(shm_regions_stale(desk->regions));
    assert_int_equal(found(desk, 999, 1, 0), -1);
    assert_int_equal(found(desk, 1000, 100, MC_REMOTE_READ), 7);
    assert_int_equal(found(desk, 1099, 1, MC_REMOTE_READ), 7);
    assert_int_equal(found(desk, 1099, 2, MC_REMOTE_READ), -1);
    assert_int_equal(found(desk, 1000, 1, ALL), -1);
    assert_int_equal(found(desk, 2000, 50, ALL), 3);
    assert_int_equal(found(desk, 2000, UINT64_MAX, ALL), -1);
    assert_int_equal(found(desk, UINT64_MAX - 99, 100, ALL), 5);
    assert_int_equal(found(desk, UINT64_MAX, 1, ALL), 5);
    close_slot(desk, 3);
    shm_regions_refresh(desk->regions);
    assert_int_equal(found(desk, 2000, 50, ALL), -1);
    assert_int_equal(found(desk, 1000, 100, MC_REMOTE_READ), 7);
}

/* Slot i, in an order that looks like none, has the i-th place or none. */
static void check_all(struct desk *desk, const bool *open) {
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t place = (uint32_t)((uint64_t)i * 7919 % MANY);

        assert_int_equal(found(desk, (uint64_t)(place + 1) * STEP + 8, STEP - 8, ALL), open[i] ? (int64_t)i : -1);
    }
}

static void many_regions_come_and_go_few_and_all_at_a_time(void **state) {
    struct desk *desk = *state;
    bool *open = calloc(MANY, sizeof(*open));
    uint64_t seed = 1;

    assert_non_null(open);
    for (uint32_t i = 0; i < MANY; i++) { /* far beyond the ring: all slots are read */
        open_slot(desk, i, (i * 7919ull % MANY + 1) * STEP, STEP);
        open[i] = true;
    }
    shm_regions_refresh(desk->regions);
    check_all(desk, open);
    for (int round = 0; round < 60; round++) { /* by the ring, some of them twice */
        for (int change = 0; change < (round % 3 + 1) * 500; change++) {
            uint32_t slot = (uint32_t)((seed = seed * 6364136223846793005ull + 1442695040888963407ull) >> 33) % MANY;

            if (open[slot])
                close_slot(desk, slot);
            else
                open_slot(desk, slot, (slot * 7919ull % MANY + 1) * STEP, STEP);
            open[slot] = !open[slot];
        }
        shm_regions_refresh(desk->regions);
    }
    check_all(desk, open);
    for (uint32_t i = 0; i < MANY; i++)
        if (open[i])
            close_slot(desk, i);
    memset(open, 0, MANY * sizeof(*open));
    shm_regions_refresh(desk->regions);
    check_all(desk, open);
    free(open);
}

/* A slot that isn't in the ring isn't read: that is what makes it cheap. */
static void only_what_the_ring_names_is_read(void **state) {
    struct desk *desk = *state;

    open_slot(desk, 0, 1000, 10);
    shm_regions_refresh(desk->regions);
    open_slot(desk, 1, 2000, 10);
    desk->page->log[1] = 0;
    shm_regions_refresh(desk->regions);
    assert_int_equal(found(desk, 2000, 10, ALL), -1);
    for (uint32_t i = 0; i < SHM_LOG; i++)
        note(desk, 0);
    shm_regions_refresh(desk->regions);
    assert_int_equal(found(desk, 2000, 10, ALL), 1);
}

/* A region that moves to another slot, or an address that gets another region, between two looks. */
static void an_address_may_go_from_slot_to_slot(void **state) {
    struct desk *desk = *state;

    open_slot(desk, 0, 1000, 10);
    open_slot(desk, 9, 5000, 10);
    shm_regions_refresh(desk->regions);
    close_slot(desk, 9);
    close_slot(desk, 0);
    open_slot(desk, 9, 1000, 20);
    open_slot(desk, 0, 5000, 10);
    shm_regions_refresh(desk->regions);
    assert_int_equal(found(desk, 1000, 20, ALL), 9);
    assert_int_equal(found(desk, 5000, 10, ALL), 0);
}

/* ---- Lies ---- */

static void slots_that_make_no_sense_are_passed_over(void **state) {
    static const struct {
        uint64_t base, length, memory, offset, size;
    } lies[] = {
        {1 << 20, 0, 0, 0, 0},
        {1 << 20, UINT64_MAX, 0, 0, 0},
        {UINT64_MAX, 2, 0, 0, 0},
        {1 << 20, 4096, 1, 0, 4095},
        {1 << 20, 4096, 1, UINT64_MAX - 7, 4096},
        {1 << 20, 4096, 1, 8192, 8192},
        {1 << 20, 4096, 1, 4, 8192},
        {1 << 20, 4096, 1, 0, 0},
    };
    struct desk *desk = *state;

    for (uint32_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        struct shm_slot *slot = open_slot(desk, i, lies[i].base, lies[i].length);

        slot->memory = lies[i].memory;
        slot->memory_offset = lies[i].offset;
        slot->memory_size = lies[i].size;
    }
    open_slot(desk, 100, 1000, 10);
    shm_regions_refresh(desk->regions);
    assert_int_equal(found(desk, 1 << 20, 1, 0), -1);
    assert_int_equal(found(desk, UINT64_MAX, 1, 0), -1);
    assert_int_equal(found(desk, 1000, 10, ALL), 100);
}

static void a_page_that_lies_harms_nobody(void **state) {
    struct desk *desk = *state;

    open_slot(desk, 0, 1000, 1000);
    open_slot(desk, 1, 1000, 10); /* at the same place */
    open_slot(desk, 2, 1500, 5);  /* within another */
    shm_regions_refresh(desk->regions);
    assert_int_equal(found(desk, 1000, 1000, ALL), 0);
    assert_int_equal(found(desk, 1500, 5, ALL), 2);
    desk->page->slots_used = UINT32_MAX;
    desk->page->changes = 3; /* as before */
    desk->page->changes += SHM_LOG * 1000ull;
    shm_regions_refresh(desk->regions);
    desk->page->changes -= 5; /* never backwards */
    shm_regions_refresh(desk->regions);
    for (uint32_t i = 0; i < SHM_LOG; i++)
        desk->page->log[i] = UINT32_MAX - i;
    desk->page->changes += 10;
    shm_regions_refresh(desk->regions);
    desk->page->slots[0].key = 0;
    desk->page->slots[1].key += 5 * SHM_STATES;
    desk->page->changes += SHM_LOG;
    shm_regions_refresh(desk->regions);
    assert_int_equal(found(desk, 1000, 10, ALL), 1);
}

/* ---- Who is inside ---- */

static void what_was_found_stays_while_somebody_is_inside(void **state) {
    struct desk *desk = *state;
    _Atomic uint32_t *inside, *later;
    const struct shm_region *region;

    open_slot(desk, 0, 1000, 10);
    shm_regions_refresh(desk->regions);
    inside = shm_regions_enter(desk->regions);
    region = shm_regions_find(desk->regions, 1000, 10, ALL);
    assert_non_null(region);
    assert_true(shm_regions_open(desk->regions, region));
    close_slot(desk, 0);
    assert_false(shm_regions_open(desk->regions, region));
    shm_regions_refresh(desk->regions);
    assert_true(shm_regions_stale(desk->regions)); /* it waits to be freed */
    assert_int_equal(region->base, 1000);          /* which it isn't yet, as the address sanitizer knows */
    later = shm_regions_enter(desk->regions);
    assert_true(later != inside); /* of the next phase */
    assert_null(shm_regions_find(desk->regions, 1000, 10, ALL));
    shm_regions_leave(inside);
    shm_regions_refresh(desk->regions);
    assert_false(shm_regions_stale(desk->regions)); /* those who came later hold nothing up */
    shm_regions_leave(later);
}

static void a_memory_is_shared_by_its_regions_and_unmapped_after_the_last(void **state) {
    struct desk *desk = *state;
    size_t size = memfd_page_size();
    void *address = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct shm_memory *memory;
    struct shm_region *region;
    _Atomic uint32_t *inside;
    unsigned char there;

    assert_true(address != MAP_FAILED);
    for (uint32_t i = 0; i < 2; i++) {
        struct shm_slot *slot = open_slot(desk, i, 4096 + i * 64, 64);

        slot->memory = 5;
        slot->memory_offset = i * 64;
        slot->memory_size = size;
    }
    shm_regions_refresh(desk->regions);
    assert_null(shm_regions_memory(desk->regions, 5, size, false));
    memory = shm_regions_add_memory(desk->regions, 5, size, false, address);
    assert_non_null(memory);
    assert_ptr_equal(shm_regions_memory(desk->regions, 5, size, false), memory);
    assert_null(shm_regions_memory(desk->regions, 5, size, true));
    assert_null(shm_regions_memory(desk->regions, 5, 2 * size, false));
    assert_null(shm_regions_memory(desk->regions, 6, size, false));
    for (uint32_t i = 0; i < 2; i++) {
        region = shm_regions_at(desk->regions, i, SHM_STATES + SHM_OPEN);
        assert_non_null(region);
        shm_regions_use_memory(region, memory);
        assert_ptr_equal(region->at, (uint8_t *)address + i * 64);
    }
    close_slot(desk, 0);
    shm_regions_refresh(desk->regions);
    assert_ptr_equal(shm_regions_memory(desk->regions, 5, size, false), memory);
    inside = shm_regions_enter(desk->regions);
    close_slot(desk, 1);
    shm_regions_refresh(desk->regions);
    assert_int_equal(mincore(address, size, &there), 0);
    shm_regions_leave(inside);
    shm_regions_refresh(desk->regions);
    assert_int_equal(mincore(address, size, &there), -1);
}

/* ---- Races ---- */

struct race {
    struct desk *desk;
    atomic_bool stop;
    atomic_int found;
};

static void *look_all_the_time(void *context) {
    struct race *race = context;
    uint64_t address = 0;

    while (!race->stop) {
        _Atomic uint32_t *inside = shm_regions_enter(race->desk->regions);
        const struct shm_region *region;

        address = (address + 7919) % (1000 * STEP);
        region = shm_regions_find(race->desk->regions, address, 1, ALL);
        if (region != NULL && (address < region->base || address - region->base >= STEP || region->length != STEP))
            abort();
        if (region != NULL)
            race->found++;
        shm_regions_leave(inside);
    }
    return NULL;
}

static void those_who_look_never_see_what_was_freed(void **state) {
    struct desk *desk = *state;
    struct race race = {.desk = desk};
    pthread_t threads[3];
    bool open[1000] = {false};
    uint64_t seed = 5;

    for (int i = 0; i < 3; i++)
        assert_int_equal(thread_start(&threads[i], "looker", look_all_the_time, &race), 0);
    for (int i = 0; i < 3000 || race.found < 1000; i++) {
        uint32_t slot = (uint32_t)((seed = seed * 6364136223846793005ull + 1442695040888963407ull) >> 33) % 1000;

        if (open[slot])
            close_slot(desk, slot);
        else
            open_slot(desk, slot, slot * STEP, STEP);
        open[slot] = !open[slot];
        shm_regions_refresh(desk->regions);
    }
    race.stop = true;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    while (shm_regions_stale(desk->regions))
        shm_regions_refresh(desk->regions);
}

#define test_of(function) cmocka_unit_test_setup_teardown(function, open_desk, close_desk)

int main(void) {
    const struct CMUnitTest tests[] = {
        test_of(regions_are_found_by_the_ranges_within_them),
        test_of(many_regions_come_and_go_few_and_all_at_a_time),
        test_of(only_what_the_ring_names_is_read),
        test_of(an_address_may_go_from_slot_to_slot),
        test_of(slots_that_make_no_sense_are_passed_over),
        test_of(a_page_that_lies_harms_nobody),
        test_of(what_was_found_stays_while_somebody_is_inside),
        test_of(a_memory_is_shared_by_its_regions_and_unmapped_after_the_last),
        test_of(those_who_look_never_see_what_was_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

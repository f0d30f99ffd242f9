/* test_registry.c - one answer for every overlap, rights are kept, and nothing that is pinned goes away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "allocator/host_memory.h"
#include "base/clock.h"
#include "os/thread.h"
#include "transfer/registry.h"

#define ALL (MC_REMOTE_READ | MC_REMOTE_WRITE)
#define SIZE (1u << 20)

/* The engine's transports, as the registry sees them. */
struct transports {
    atomic_int published, withdrawn;
    int32_t refusal;      /* what withdraw says */
    uint64_t refuse_base; /* of this region only; 0: of all */
};

struct world {
    struct transports transports;
    struct registry *registry;
    uint64_t base; /* SIZE bytes that are mapped */
};

static void publish(void *context, struct region *region) {
    struct transports *transports = context;

    assert_true(region->length > 0);
    transports->published++;
}

static int32_t withdraw(void *context, struct region *region, uint64_t deadline) {
    struct transports *transports = context;

    (void)deadline;
    if (transports->refusal != MC_OK && (transports->refuse_base == 0 || transports->refuse_base == region->base))
        return transports->refusal;
    transports->withdrawn++;
    return MC_OK;
}

static const struct registry_ops ops = {publish, withdraw};

static int open_world(void **state) {
    struct world *world = calloc(1, sizeof(*world));
    void *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_non_null(world);
    assert_true(memory != MAP_FAILED);
    world->base = (uint64_t)(uintptr_t)memory;
    world->registry = registry_new(&ops, &world->transports);
    assert_non_null(world->registry);
    *state = world;
    return 0;
}

static int close_world(void **state) {
    struct world *world = *state;

    assert_null(registry_free(world->registry));
    munmap((void *)(uintptr_t)world->base, SIZE);
    free(world);
    return 0;
}

static int32_t add(struct world *world, uint64_t offset, uint64_t length) {
    return registry_add(world->registry, world->base + offset, length, "cpu:0", ALL, NULL);
}

static int32_t removed(struct world *world, uint64_t offset) {
    return registry_remove(world->registry, world->base + offset, 0, NULL);
}

static int32_t pinnable(struct world *world, uint64_t offset, uint64_t length, uint32_t access) {
    void *pin = NULL;
    int32_t status = registry_pin(world->registry, world->base + offset, length, access, &pin);

    if (status == MC_OK)
        registry_unpin(pin);
    else
        assert_null(pin);
    return status;
}

static void every_overlap_but_the_same_range_is_refused(void **state) {
    /* Around the region [1000, 2000). */
    static const uint64_t overlaps[][2] = {{999, 2},     {999, 1000},  {999, 1001}, {999, 1002}, {1000, 1}, {1000, 999},
                                           {1000, 1001}, {1001, 1},    {1001, 998}, {1001, 999}, {1001, 2}, {1999, 1},
                                           {1999, 2},    {1500, 5000}, {0, 1001},   {0, 1 << 19}};
    static const uint64_t beside[][2] = {{999, 1}, {0, 999}, {2000, 1}, {2001, 10}};
    struct world *world = *state;

    assert_int_equal(add(world, 1000, 1000), MC_OK);
    for (size_t i = 0; i < sizeof(overlaps) / sizeof(overlaps[0]); i++) {
        struct mc_error error = {.struct_size = sizeof(error)};

        assert_int_equal(
            registry_add(world->registry, world->base + overlaps[i][0], overlaps[i][1], "cpu:0", ALL, &error),
            MC_ERR_OVERLAP);
        assert_int_equal(error.code, MC_ERR_OVERLAP);
    }
    assert_int_equal(world->transports.published, 1);
    for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++)
        assert_int_equal(add(world, beside[i][0], beside[i][1]), MC_OK);
    /* Between two regions, and across several. */
    assert_int_equal(add(world, 2001, 9), MC_ERR_OVERLAP);
    assert_int_equal(add(world, 0, SIZE), MC_ERR_OVERLAP);
    assert_int_equal(world->transports.published, 5);
}

static void the_same_range_with_other_rights_or_location_is_an_overlap(void **state) {
    struct world *world = *state;

    assert_int_equal(add(world, 0, 100), MC_OK);
    assert_int_equal(registry_add(world->registry, world->base, 100, "cpu:0", MC_REMOTE_READ, NULL), MC_ERR_OVERLAP);
    assert_int_equal(registry_add(world->registry, world->base, 100, "cpu:1", ALL, NULL), MC_ERR_OVERLAP);
    assert_int_equal(registry_add(world->registry, world->base, 100, "*", ALL, NULL), MC_ERR_OVERLAP);
}

static void a_region_ends_with_its_last_registration(void **state) {
    struct world *world = *state;

    for (int i = 0; i < 3; i++)
        assert_int_equal(add(world, 64, 100), MC_OK);
    assert_int_equal(world->transports.published, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(removed(world, 64), MC_OK);
        assert_int_equal(world->transports.withdrawn, 0);
        assert_int_equal(pinnable(world, 64, 100, ALL), MC_OK);
    }
    assert_int_equal(removed(world, 64), MC_OK);
    assert_int_equal(world->transports.withdrawn, 1);
    assert_int_equal(pinnable(world, 64, 1, ALL), MC_ERR_NOT_REGISTERED);
    assert_int_equal(removed(world, 64), MC_ERR_NOT_REGISTERED);
    assert_int_equal(add(world, 60, 30), MC_OK);
}

static void only_a_regions_beginning_ends_it(void **state) {
    struct world *world = *state;

    assert_int_equal(add(world, 64, 100), MC_OK);
    assert_int_equal(removed(world, 63), MC_ERR_NOT_REGISTERED);
    assert_int_equal(removed(world, 65), MC_ERR_NOT_REGISTERED);
    assert_int_equal(removed(world, 164), MC_ERR_NOT_REGISTERED);
    assert_int_equal(removed(world, 64), MC_OK);
}

static void what_is_no_mapped_range_is_refused(void **state) {
    struct world *world = *state;
    char location[65];

    memset(location, 'x', 64);
    location[64] = '\0';
    assert_int_equal(registry_add(world->registry, 0, 10, "*", ALL, NULL), MC_ERR_INVALID_ARGUMENT);
    assert_int_equal(add(world, 0, 0), MC_ERR_INVALID_ARGUMENT);
    assert_int_equal(add(world, 1, UINT64_MAX), MC_ERR_INVALID_ARGUMENT);
    assert_int_equal(add(world, 0, UINT64_MAX / 2), MC_ERR_INVALID_ARGUMENT);
    assert_int_equal(registry_add(world->registry, UINT64_MAX, 1, "*", ALL, NULL), MC_ERR_INVALID_ARGUMENT);
    assert_int_equal(registry_add(world->registry, UINT64_MAX - 4096, 4096, "*", ALL, NULL), MC_ERR_INVALID_ARGUMENT);
    assert_int_equal(registry_add(world->registry, 4096, 1, "*", ALL, NULL), MC_ERR_INVALID_ARGUMENT);
    assert_int_equal(registry_add(world->registry, world->base, 10, location, ALL, NULL), MC_ERR_INVALID_ARGUMENT);
    location[63] = '\0';
    assert_int_equal(registry_add(world->registry, world->base, 10, location, ALL, NULL), MC_OK);
    assert_int_equal(world->transports.published, 1);
}

static void a_pin_needs_the_whole_range_in_one_region(void **state) {
    struct world *world = *state;

    assert_int_equal(pinnable(world, 0, 1, ALL), MC_ERR_NOT_REGISTERED);
    assert_int_equal(add(world, 100, 100), MC_OK);
    assert_int_equal(add(world, 200, 100), MC_OK);
    assert_int_equal(pinnable(world, 100, 100, ALL), MC_OK);
    assert_int_equal(pinnable(world, 150, 50, ALL), MC_OK);
    assert_int_equal(pinnable(world, 299, 1, ALL), MC_OK);
    assert_int_equal(pinnable(world, 300, 0, ALL), MC_OK);
    assert_int_equal(pinnable(world, 99, 1, ALL), MC_ERR_NOT_REGISTERED);
    assert_int_equal(pinnable(world, 99, 2, ALL), MC_ERR_NOT_REGISTERED);
    assert_int_equal(pinnable(world, 199, 2, ALL), MC_ERR_NOT_REGISTERED);
    assert_int_equal(pinnable(world, 299, 2, ALL), MC_ERR_NOT_REGISTERED);
    assert_int_equal(pinnable(world, 100, UINT64_MAX, ALL), MC_ERR_NOT_REGISTERED);
    assert_int_equal(pinnable(world, 150, UINT64_MAX - world->base, ALL), MC_ERR_NOT_REGISTERED);
}

static void a_pin_needs_all_the_rights_that_it_asks_for(void **state) {
    static const uint32_t rights[] = {0, MC_REMOTE_READ, MC_REMOTE_WRITE, ALL};
    struct world *world = *state;

    for (uint64_t has = 0; has < 4; has++) {
        assert_int_equal(registry_add(world->registry, world->base + has * 64, 64, "cpu:0", rights[has], NULL), MC_OK);
        for (int asks = 0; asks < 4; asks++)
            assert_int_equal(pinnable(world, has * 64, 64, rights[asks]),
                             (rights[asks] & ~rights[has]) == 0 ? MC_OK : MC_ERR_ACCESS_DENIED);
    }
}

static void a_pinned_region_is_busy_and_stays(void **state) {
    struct world *world = *state;
    void *pins[2];

    assert_int_equal(add(world, 0, 100), MC_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(registry_pin(world->registry, world->base, 10, ALL, &pins[i]), MC_OK);
    assert_int_equal(removed(world, 0), MC_ERR_BUSY);
    registry_unpin(pins[0]);
    assert_int_equal(removed(world, 0), MC_ERR_BUSY);
    assert_int_equal(world->transports.published, 1 + 2); /* again after each refusal */
    assert_int_equal(pinnable(world, 0, 100, ALL), MC_OK);
    registry_unpin(pins[1]);
    assert_int_equal(removed(world, 0), MC_OK);
}

static void a_region_that_transports_use_stays(void **state) {
    struct world *world = *state;

    assert_int_equal(add(world, 0, 100), MC_OK);
    world->transports.refusal = MC_ERR_BUSY;
    assert_int_equal(removed(world, 0), MC_ERR_BUSY);
    assert_int_equal(pinnable(world, 0, 100, ALL), MC_OK);
    assert_int_equal(add(world, 0, 100), MC_OK);
    assert_int_equal(removed(world, 0), MC_OK);
    world->transports.refusal = MC_OK;
    assert_int_equal(removed(world, 0), MC_OK);
}

static void withdrawing_all_is_all_or_nothing(void **state) {
    struct world *world = *state;

    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(add(world, i * 64, 64), MC_OK);
    world->transports.refusal = MC_ERR_BUSY;
    world->transports.refuse_base = world->base + 5 * 64;
    assert_int_equal(registry_withdraw_all(world->registry, 0), MC_ERR_BUSY);
    assert_int_equal(world->transports.withdrawn, 5);
    assert_int_equal(world->transports.published, 10 + 5);
    world->transports.refusal = MC_OK;
    assert_int_equal(registry_withdraw_all(world->registry, 0), MC_OK);
    assert_int_equal(world->transports.withdrawn, 5 + 10);
}

static void allocated_memory_is_known_and_held_while_it_is_registered(void **state) {
    struct world *world = *state;
    uint64_t id;
    void *address;

    assert_int_equal(host_memory_alloc(100000, &id, &address, NULL), MC_OK);
    assert_int_equal(registry_add(world->registry, (uint64_t)(uintptr_t)address + 8, 1000, "cpu:0", ALL, NULL), MC_OK);
    assert_int_equal(host_memory_free(id), MC_ERR_BUSY);
    /* A second registration must not hold it a second time. */
    assert_int_equal(registry_add(world->registry, (uint64_t)(uintptr_t)address + 8, 1000, "cpu:0", ALL, NULL), MC_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(registry_remove(world->registry, (uint64_t)(uintptr_t)address + 8, 0, NULL), MC_OK);
    assert_int_equal(host_memory_free(id), MC_OK);
}

static void a_hundred_thousand_regions_are_found_each(void **state) {
    struct world *world = *state;

    for (uint64_t i = 0; i < 100000; i++)
        assert_int_equal(add(world, i * 10, 8), MC_OK);
    for (uint64_t i = 0; i < 100000; i += 7) {
        assert_int_equal(pinnable(world, i * 10, 8, ALL), MC_OK);
        assert_int_equal(pinnable(world, i * 10 + 1, 8, ALL), MC_ERR_NOT_REGISTERED);
        assert_int_equal(pinnable(world, i * 10 + 9, 1, ALL), MC_ERR_NOT_REGISTERED);
    }
    /* Out and in again in an order that is neither up nor down. */
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(removed(world, i * 7919 % 100000 * 10), MC_OK);
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_equal(pinnable(world, i * 7919 % 100000 * 10, 8, ALL), MC_ERR_NOT_REGISTERED);
    for (uint64_t i = 999; i > 0; i--)
        assert_int_equal(add(world, i * 7919 % 100000 * 10, 8), MC_OK);
    for (uint64_t i = 1; i < 1000; i++)
        assert_int_equal(pinnable(world, i * 7919 % 100000 * 10, 8, ALL), MC_OK);
}

/* ---- Races ---- */

struct hammer {
    struct world *world;
    atomic_bool stop;
    atomic_int added, pinned;
};

static void *add_and_remove(void *context) {
    struct hammer *hammer = context;

    for (int i = 0; i < 300; i++) {
        int32_t status = add(hammer->world, 0, 4096);

        if (status == MC_OK) {
            hammer->added++;
            while ((status = registry_remove(hammer->world->registry, hammer->world->base,
                                             clock_after(clock_now(), CLOCK_SECOND), NULL)) == MC_ERR_BUSY)
                continue;
            if (status != MC_OK)
                abort(); /* its own registration was there to be removed */
        } else if (status != MC_ERR_BUSY) {
            abort();
        }
    }
    return NULL;
}

static void *pin_and_unpin(void *context) {
    struct hammer *hammer = context;

    while (!hammer->stop) {
        void *pin;

        if (registry_pin(hammer->world->registry, hammer->world->base + 8, 8, ALL, &pin) == MC_OK) {
            hammer->pinned++;
            registry_unpin(pin);
        }
    }
    return NULL;
}

static void racing_threads_leave_the_count_right(void **state) {
    struct world *world = *state;
    struct hammer hammer = {.world = world};
    pthread_t threads[3], pinner;

    assert_int_equal(thread_start(&pinner, "pinner", pin_and_unpin, &hammer), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(thread_start(&threads[i], "adder", add_and_remove, &hammer), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    hammer.stop = true;
    pthread_join(pinner, NULL);
    assert_true(hammer.added > 0);
    assert_int_equal(removed(world, 0), MC_ERR_NOT_REGISTERED);
}

static void *overlap(void *context) {
    struct hammer *hammer = context;

    for (uint64_t i = 0; i < 1000; i++)
        if (add(hammer->world, i * 64, 64 + (i + (uint64_t)(uintptr_t)&i) % 2) == MC_OK)
            hammer->added++;
    return NULL;
}

static void of_racing_overlaps_only_those_beside_each_other_stay(void **state) {
    struct world *world = *state;
    struct hammer hammer = {.world = world};
    pthread_t threads[3];
    int found = 0;

    for (int i = 0; i < 3; i++)
        assert_int_equal(thread_start(&threads[i], "overlap", overlap, &hammer), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    for (uint64_t i = 0; i < 1000; i++)
        while (removed(world, i * 64) == MC_OK)
            found++;
    assert_int_equal(found, hammer.added);
    assert_int_equal(world->transports.published, world->transports.withdrawn);
}

#define test_of(function) cmocka_unit_test_setup_teardown(function, open_world, close_world)

int main(void) {
    const struct CMUnitTest tests[] = {
        test_of(every_overlap_but_the_same_range_is_refused),
        test_of(the_same_range_with_other_rights_or_location_is_an_overlap),
        test_of(a_region_ends_with_its_last_registration),
        test_of(only_a_regions_beginning_ends_it),
        test_of(what_is_no_mapped_range_is_refused),
        test_of(a_pin_needs_the_whole_range_in_one_region),
        test_of(a_pin_needs_all_the_rights_that_it_asks_for),
        test_of(a_pinned_region_is_busy_and_stays),
        test_of(a_region_that_transports_use_stays),
        test_of(withdrawing_all_is_all_or_nothing),
        test_of(allocated_memory_is_known_and_held_while_it_is_registered),
        test_of(a_hundred_thousand_regions_are_found_each),
        test_of(racing_threads_leave_the_count_right),
        test_of(of_racing_overlaps_only_those_beside_each_other_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_shm.c - a guest copies what its host has published, with the rights given, and nothing after it was withdrawn. */
#include "shm_world.h"

#define PIECES 3

static void a_guest_reads_and_writes_in_pieces(void **state) {
    struct world *world = *state;
    uint8_t *local = malloc(LENGTH);
    struct slice slice;
    int steps;

    assert_non_null(local);
    for (size_t i = 0; i < LENGTH; i++)
        world->memory[4096 + i] = (uint8_t)(i * 7 + i / 256);
    slice = slice_at(world, MC_READ, 4096, local, LENGTH);
    assert_true(shm_guest_reach(world->guest, &slice));
    assert_int_equal(copy(world->guest, &slice, &steps), MC_OK);
    assert_int_equal(steps, PIECES);
    assert_memory_equal(local, world->memory + 4096, LENGTH);
    assert_false(slice.indeterminate);
    memset(local, 0x77, LENGTH);
    slice = slice_at(world, MC_WRITE, 4096, local, LENGTH);
    assert_int_equal(copy(world->guest, &slice, &steps), MC_OK);
    assert_int_equal(steps, PIECES);
    assert_memory_equal(local, world->memory + 4096, LENGTH);
    assert_int_equal(world->memory[4095], 0);
    assert_int_equal(world->memory[4096 + LENGTH], 0);
    free(local);
}

static void only_ranges_within_one_published_region_are_reached(void **state) {
    struct world *world = *state;
    struct region next = region_of(world, 4096 + LENGTH, 100, ALL);
    struct region own = region_of(world, 0, 4096, ALL);

    own.access = 0; /* nobody else's */
    shm_host_publish(world->shm, &next);
    shm_host_publish(world->shm, &own);
    assert_true(reached(world, MC_READ, 4096, LENGTH));
    assert_true(reached(world, MC_READ, 4096 + LENGTH, 100));
    assert_true(reached(world, MC_READ, 4096 + LENGTH - 1, 1));
    assert_false(reached(world, MC_READ, 4095, 1));
    assert_false(reached(world, MC_READ, 4095, 2));
    assert_false(reached(world, MC_READ, 4096 + LENGTH - 1, 2));
    assert_false(reached(world, MC_READ, 4096 + LENGTH, 101));
    assert_false(reached(world, MC_READ, 4096, UINT64_MAX));
    assert_int_equal(shm_host_withdraw(world->shm, &own, 0), MC_OK);
    assert_int_equal(shm_host_withdraw(world->shm, &next, 0), MC_OK);
}

static void a_guest_has_the_rights_that_the_region_has(void **state) {
    static const uint32_t rights[] = {0, MC_REMOTE_READ, MC_REMOTE_WRITE, ALL};
    struct world *world = *state;
    uint8_t local[8] = {0};

    assert_int_equal(shm_host_withdraw(world->shm, &world->region, 0), MC_OK);
    for (int i = 0; i < 4; i++) {
        struct region region = region_of(world, 0, 4096, rights[i]);
        struct slice slice;
        int steps;

        shm_host_publish(world->shm, &region);
        assert_int_equal(reached(world, MC_READ, 0, 8), (rights[i] & MC_REMOTE_READ) != 0);
        assert_int_equal(reached(world, MC_WRITE, 0, 8), (rights[i] & MC_REMOTE_WRITE) != 0);
        slice = slice_at(world, MC_WRITE, 0, local, 8);
        assert_int_equal(copy(world->guest, &slice, &steps) == MC_OK, (rights[i] & MC_REMOTE_WRITE) != 0);
        slice = slice_at(world, MC_READ, 0, local, 8);
        assert_int_equal(copy(world->guest, &slice, &steps) == MC_OK, (rights[i] & MC_REMOTE_READ) != 0);
        assert_int_equal(shm_host_withdraw(world->shm, &region, 0), MC_OK);
    }
}

static void a_withdrawn_region_is_gone_and_one_published_again_is_there(void **state) {
    struct world *world = *state;
    uint8_t local[8] = {0};
    int steps;

    for (int i = 0; i < 3; i++) {
        struct slice slice = slice_at(world, MC_WRITE, 4096, local, 8);

        assert_int_equal(copy(world->guest, &slice, &steps), MC_OK);
        assert_int_equal(shm_host_withdraw(world->shm, &world->region, 0), MC_OK);
        slice = slice_at(world, MC_WRITE, 4096, local, 8);
        assert_false(shm_guest_reach(world->guest, &slice));
        assert_int_equal(copy(world->guest, &slice, &steps), MC_ERR_NOT_REGISTERED);
        assert_false(slice.indeterminate);
        shm_host_publish(world->shm, &world->region);
    }
}

static void regions_beyond_the_pages_slots_are_left_to_others(void **state) {
    struct world *world = *state;
    struct region *regions = calloc(SHM_SLOTS, sizeof(*regions));

    assert_non_null(regions);
    for (uint32_t i = 0; i < SHM_SLOTS; i++) { /* with the world's own one more than there are slots */
        regions[i] = region_of(world, 4096 + LENGTH + i * 2, 2, ALL);
        shm_host_publish(world->shm, &regions[i]);
    }
    assert_true(reached(world, MC_READ, 4096 + LENGTH + (SHM_SLOTS - 2) * 2, 2));
    assert_false(reached(world, MC_READ, 4096 + LENGTH + (SHM_SLOTS - 1) * 2, 2));
    for (uint32_t i = 0; i < SHM_SLOTS; i++)
        assert_int_equal(shm_host_withdraw(world->shm, &regions[i], 0), MC_OK);
    free(regions);
}

static void a_copy_never_asks_for_memory_only_reach_does(void **state) {
    struct world *world = *state;
    uint8_t local[8];
    struct slice slice = slice_at(world, MC_READ, 4096, local, 8);

    assert_int_equal(shm_guest_step(world->guest, &slice), MC_ERR_NOT_REGISTERED);
    assert_true(shm_guest_reach(world->guest, &slice));
    assert_int_equal(shm_guest_step(world->guest, &slice), MC_OK);
}

/* ---- Guards ---- */

static void a_guard_is_compared_before_and_after(void **state) {
    struct world *world = *state;
    uint8_t local[8] = {1, 2, 3};
    struct slice slice = slice_at(world, MC_WRITE, 4096 + 64, local, 8);
    int steps;

    slice.guarded = true;
    slice.guard_address = (uint64_t)(uintptr_t)world->memory + 4096;
    slice.guard_value = 42;
    assert_true(shm_guest_reach(world->guest, &slice));
    assert_int_equal(copy(world->guest, &slice, &steps), MC_ERR_GUARD_MISMATCH);
    assert_int_equal(world->memory[4096 + 64], 0);
    world->memory[4096] = 42;
    slice.moved = 0;
    assert_int_equal(copy(world->guest, &slice, &steps), MC_OK);
    assert_memory_equal(world->memory + 4096 + 64, local, 8);
    /* The copy itself changes it. */
    slice.remote = slice.guard_address;
    slice.moved = 0;
    assert_int_equal(copy(world->guest, &slice, &steps), MC_ERR_GUARD_MISMATCH);
    slice.guard_address += 4;
    assert_false(shm_guest_reach(world->guest, &slice));
    slice.guard_address = (uint64_t)(uintptr_t)world->memory;
    assert_false(shm_guest_reach(world->guest, &slice));
}

/* Whoever has changed the word needn't fear the pieces that are still to come. */
static void a_guard_is_looked_at_before_each_piece(void **state) {
    struct world *world = *state;
    uint8_t *local = calloc(1, LENGTH);
    struct slice slice = slice_at(world, MC_WRITE, 4096 + 64, local, LENGTH - 64);

    assert_non_null(local);
    slice.guarded = true;
    slice.guard_address = (uint64_t)(uintptr_t)world->memory + 4096;
    assert_true(shm_guest_reach(world->guest, &slice));
    assert_int_equal(shm_guest_step(world->guest, &slice), MC_ERR_PENDING);
    assert_false(shm_host_in_flight(world->shm, world->memory + 4096));
    world->memory[4096] = 1;
    memset(local, 1, LENGTH);
    assert_int_equal(shm_guest_step(world->guest, &slice), MC_ERR_GUARD_MISMATCH);
    assert_int_equal(slice.moved, TRANSPORT_PIECE);
    assert_int_equal(world->memory[4096 + 64 + TRANSPORT_PIECE], 0);
    free(local);
}

/* ---- Races ---- */

#define WITHDRAWN 0xdd /* what the memory holds when nobody may look */

struct hammer {
    struct world *world;
    atomic_bool stop;
    atomic_int copied;
};

static void *copy_all_the_time(void *context) {
    struct hammer *hammer = context;
    uint8_t local[4096];

    while (!hammer->stop) {
        struct slice slice = slice_at(hammer->world, MC_READ, 4096, local, sizeof(local));
        int steps;
        int32_t status = copy(hammer->world->guest, &slice, &steps);

        /* All of it from while the region was published. */
        if (status == MC_OK && memchr(local, WITHDRAWN, sizeof(local)) != NULL)
            abort();
        if (status == MC_OK)
            hammer->copied++;
        else if (status != MC_ERR_NOT_REGISTERED)
            abort();
    }
    return NULL;
}

static void regions_come_and_go_under_copies(void **state) {
    struct world *world = *state;
    struct hammer hammer = {.world = world};
    pthread_t threads[2];

    for (int i = 0; i < 2; i++)
        assert_int_equal(thread_start(&threads[i], "copier", copy_all_the_time, &hammer), 0);
    for (int i = 0; i < 100; i++) {
        int before = hammer.copied;
        uint64_t deadline = clock_after(clock_now(), PEER_PATIENCE);

        assert_int_equal(shm_host_withdraw(world->shm, &world->region, deadline), MC_OK);
        memset(world->memory + 4096, WITHDRAWN, 4096);
        sched_yield();
        memset(world->memory + 4096, 0, 4096);
        shm_host_publish(world->shm, &world->region);
        while (hammer.copied == before && clock_now() < deadline)
            sched_yield();
        assert_true(hammer.copied > before);
    }
    hammer.stop = true;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_of(a_guest_reads_and_writes_in_pieces),
        test_of(only_ranges_within_one_published_region_are_reached),
        test_of(a_guest_has_the_rights_that_the_region_has),
        test_of(a_withdrawn_region_is_gone_and_one_published_again_is_there),
        test_of(regions_beyond_the_pages_slots_are_left_to_others),
        test_of(a_copy_never_asks_for_memory_only_reach_does),
        test_of(a_guard_is_compared_before_and_after),
        test_of(a_guard_is_looked_at_before_each_piece),
        test_of(regions_come_and_go_under_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

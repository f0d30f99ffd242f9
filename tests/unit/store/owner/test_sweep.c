/* test_sweep.c - what was DEAD is FREE again when no pin names it and nothing is in flight on it, and not before. */
#include "world.h"

static void step(struct world *world) {
    world->now = owner_wake(world->owner) > world->now ? owner_wake(world->owner) : world->now;
    owner_step(world->owner, world->now, &world->out);
    outbox_clear(&world->out);
}

static void begin(struct world *world, struct message_grant *grant) {
    world_init(world);
    assert_int_equal(attach(world, 1, "host:2", NULL), MC_OK);
    assert_int_equal(attach(world, 2, "host:3", NULL), MC_OK);
    assert_int_equal(reserve_one(world, 1, 1, 1000, grant), MC_OK);
    assert_int_equal(release_one(world, 1, grant), MC_OK);
}

static void a_dead_slot_is_freed_at_the_next_step(void **state) {
    struct world world;
    struct message_grant grant;

    (void)state;
    begin(&world, &grant);
    assert_true(owner_wake(world.owner) <= world.now);
    assert_int_equal(owner_usage(world.owner).dead, 1);
    owner_step(world.owner, world.now, &world.out);
    assert_word(&world, &grant, SLOT_FREE);
    assert_int_equal(owner_usage(world.owner).dead, 0);
    assert_int_equal(owner_usage(world.owner).used, 4096);
    world_clear(&world);
}

static void a_pin_of_any_client_keeps_the_generation_it_names(void **state) {
    struct world world;
    struct message_grant grant;

    (void)state;
    begin(&world, &grant);
    world.pins[1].cells[PIN_CELLS - 1] = grant.generation;
    world.pins[0].cells[0] = grant.generation + 1;
    for (int i = 0; i < 10; i++)
        step(&world);
    assert_word(&world, &grant, SLOT_DEAD);
    assert_int_equal(owner_usage(world.owner).used, 4096 + 1024);
    world.pins[1].cells[PIN_CELLS - 1] = 0;
    for (int i = 0; i < 10; i++)
        step(&world);
    assert_word(&world, &grant, SLOT_FREE);
    world_clear(&world);
}

static void pins_of_a_client_that_is_gone_keep_nothing(void **state) {
    struct world world;
    struct message_grant grant;
    struct message_id client = id_of(2);

    (void)state;
    begin(&world, &grant);
    world.pins[1].cells[3] = grant.generation;
    step(&world);
    assert_word(&world, &grant, SLOT_DEAD);
    owner_client_gone(world.owner, world.now, &client);
    owner_step(world.owner, world.now, &world.out);
    assert_word(&world, &grant, SLOT_FREE);
    world_clear(&world);
}

static void what_is_in_flight_keeps_the_slot(void **state) {
    struct world world;
    struct message_grant grant;

    (void)state;
    begin(&world, &grant);
    world.in_flight = slot_of(&world, &grant);
    for (int i = 0; i < 10; i++)
        step(&world);
    assert_word(&world, &grant, SLOT_DEAD);
    world.in_flight = NULL;
    for (int i = 0; i < 10; i++)
        step(&world);
    assert_word(&world, &grant, SLOT_FREE);
    world_clear(&world);
}

static void looks_grow_rarer_while_nothing_changes(void **state) {
    struct world world;
    struct message_grant grant, other;
    uint64_t looks = 0, end;

    (void)state;
    begin(&world, &grant);
    world.pins[0].cells[0] = grant.generation;
    for (end = world.now + CLOCK_SECOND; world.now < end; looks++)
        step(&world);
    assert_in_range(looks, 10, 50);
    /* Another slot doesn't wait for the next look. */
    assert_int_equal(reserve_one(&world, 1, 2, 1000, &other), MC_OK);
    assert_int_equal(release_one(&world, 1, &other), MC_OK);
    owner_step(world.owner, world.now, &world.out);
    assert_word(&world, &other, SLOT_FREE);
    assert_word(&world, &grant, SLOT_DEAD);
    world_clear(&world);
}

static void a_scribbled_word_confuses_nobody_but_its_readers(void **state) {
    struct world world;
    struct message_grant grant, other;

    (void)state;
    begin(&world, &grant);
    assert_int_equal(reserve_one(&world, 1, 2, 1000, &other), MC_OK);
    for (uint64_t slot = 0; slot < 4096; slot += sizeof(struct slot))
        memset(world.memory + slot, 0xff, sizeof(struct slot));
    step(&world);
    assert_word(&world, &grant, SLOT_FREE);
    assert_int_equal(release_one(&world, 1, &other), MC_OK);
    assert_word(&world, &other, SLOT_DEAD);
    step(&world);
    assert_int_equal(owner_usage(world.owner).used, 4096);
    world_clear(&world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dead_slot_is_freed_at_the_next_step),
        cmocka_unit_test(a_pin_of_any_client_keeps_the_generation_it_names),
        cmocka_unit_test(pins_of_a_client_that_is_gone_keep_nothing),
        cmocka_unit_test(what_is_in_flight_keeps_the_slot),
        cmocka_unit_test(looks_grow_rarer_while_nothing_changes),
        cmocka_unit_test(a_scribbled_word_confuses_nobody_but_its_readers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

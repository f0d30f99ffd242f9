/* test_serve.c - slots are reserved once for each number, and come back by RELEASE, CANCEL, or not at all. */
#include "world.h"

static void a_reserved_slot_is_empty_and_names_its_extent(void **state) {
    struct world world;
    struct message_grant grant;

    (void)state;
    world_init(&world);
    assert_int_equal(reserve_one(&world, 1, 1, 1000, &grant), MC_OK);
    assert_word(&world, &grant, SLOT_RESERVED);
    assert_int_not_equal(grant.generation, 0);
    assert_int_equal(slot_of(&world, &grant)->offset, grant.offset);
    assert_int_equal(slot_of(&world, &grant)->described.key_length, 0);
    assert_int_equal(slot_of(&world, &grant)->version_epoch, 0);
    assert_true(grant.offset + 1000 <= world.size);
    world_clear(&world);
}

static void a_repeated_reserve_gets_the_same_slots(void **state) {
    const uint32_t count = 5;
    struct world world;
    struct message_grant first[5], second[5];
    uint32_t granted = 0;

    (void)state;
    world_init(&world);
    assert_int_equal(reserve_from(&world, 1, owner_segment(world.owner), 7, 7, 100, count, first, &granted), MC_OK);
    assert_int_equal(granted, count);
    granted = 0;
    assert_int_equal(reserve_from(&world, 1, owner_segment(world.owner), 7, 7, 100, count, second, &granted), MC_OK);
    assert_int_equal(granted, count);
    for (uint32_t i = 0; i < count; i++)
        assert_true(first[i].slot == second[i].slot && first[i].generation == second[i].generation &&
                    first[i].offset == second[i].offset);
    assert_int_equal(owner_usage(world.owner).reserved, count);
    world_clear(&world);
}

static void a_repeated_reserve_gets_nothing_once_one_of_its_slots_is_used(void **state) {
    struct world world;
    struct message_grant grants[2];

    (void)state;
    world_init(&world);
    assert_int_equal(reserve_from(&world, 1, owner_segment(world.owner), 7, 7, 100, 2, grants, NULL), MC_OK);
    assert_int_equal(release_one(&world, 1, &grants[0]), MC_OK);
    assert_int_equal(reserve_from(&world, 1, owner_segment(world.owner), 7, 7, 100, 2, grants, NULL), MC_ERR_NO_SPACE);
    assert_int_equal(owner_usage(world.owner).reserved, 1);
    world_clear(&world);
}

static void as_many_as_fit_are_granted(void **state) {
    struct world world;
    struct message_grant grants[100];
    uint32_t granted = 0;

    (void)state;
    world_init(&world);
    assert_int_equal(reserve_from(&world, 1, owner_segment(world.owner), 1, 0, WORLD_SIZE / 8, 100, grants, &granted),
                     MC_OK);
    assert_int_equal(granted, 7); /* a page of slots takes the room of the eighth */
    world_clear(&world);
}

static void no_space_is_final_for_its_number(void **state) {
    struct world world;
    struct message_grant grant, other;

    (void)state;
    world_init(&world);
    assert_int_equal(reserve_one(&world, 1, 1, WORLD_SIZE / 2, &grant), MC_OK);
    assert_int_equal(reserve_one(&world, 1, 2, WORLD_SIZE / 2, &other), MC_ERR_NO_SPACE);
    assert_int_equal(release_one(&world, 1, &grant), MC_OK);
    owner_step(world.owner, world.now, &world.out);
    outbox_clear(&world.out);
    assert_int_equal(owner_usage(world.owner).reserved, 0);
    assert_int_equal(reserve_one(&world, 1, 2, WORLD_SIZE / 2, &other), MC_ERR_NO_SPACE);
    assert_int_equal(reserve_one(&world, 1, 3, WORLD_SIZE / 2, &other), MC_OK);
    world_clear(&world);
}

static void a_cancelled_number_gives_its_slots_back_and_gets_no_others(void **state) {
    struct world world;
    struct message_grant grant;

    (void)state;
    world_init(&world);
    assert_int_equal(reserve_one(&world, 1, 1, 100, &grant), MC_OK);
    assert_int_equal(cancel_one(&world, 1, 1), MC_OK);
    assert_word(&world, &grant, SLOT_DEAD);
    assert_int_equal(reserve_one(&world, 1, 1, 100, &grant), MC_ERR_NO_SPACE);
    assert_int_equal(cancel_one(&world, 1, 2), MC_OK);
    assert_int_equal(reserve_one(&world, 1, 2, 100, &grant), MC_ERR_NO_SPACE);
    assert_int_equal(cancel_one(&world, 1, 2), MC_OK);
    world_clear(&world);
}

static void numbers_below_the_floor_are_refused(void **state) {
    struct world world;
    struct message_grant grant;

    (void)state;
    world_init(&world);
    assert_int_equal(reserve_from(&world, 1, owner_segment(world.owner), 10, 9, 100, 1, &grant, NULL), MC_OK);
    assert_int_equal(reserve_one(&world, 1, 8, 100, &grant), MC_ERR_NO_SPACE);
    assert_int_equal(reserve_one(&world, 1, 9, 100, &grant), MC_OK);
    world_clear(&world);
}

static void clients_count_on_their_own(void **state) {
    struct world world;
    struct message_grant one, other;

    (void)state;
    world_init(&world);
    assert_int_equal(reserve_one(&world, 1, 1, 100, &one), MC_OK);
    assert_int_equal(reserve_one(&world, 2, 1, 100, &other), MC_OK);
    assert_true(one.slot != other.slot && one.generation != other.generation && one.offset != other.offset);
    assert_int_equal(release_one(&world, 2, &one), MC_OK); /* not its own: no effect */
    assert_word(&world, &one, SLOT_RESERVED);
    assert_int_equal(release_one(&world, 1, &one), MC_OK);
    assert_word(&world, &one, SLOT_DEAD);
    assert_int_equal(release_one(&world, 1, &one), MC_OK);
    world_clear(&world);
}

static void another_segment_is_not_found(void **state) {
    struct world world;
    struct message_id other = id_of(9);
    struct message_grant grant;

    (void)state;
    world_init(&world);
    assert_int_equal(reserve_from(&world, 1, &other, 1, 0, 100, 1, &grant, NULL), MC_ERR_SEGMENT_NOT_FOUND);
    assert_int_equal(reserve_one(&world, 1, 1, 100, &grant), MC_OK);
    assert_int_equal(release_from(&world, 1, &other, &grant, NULL), MC_ERR_SEGMENT_NOT_FOUND);
    assert_word(&world, &grant, SLOT_RESERVED);
    world_clear(&world);
}

static void a_client_that_is_gone_gets_nothing_any_more(void **state) {
    struct world world;
    struct message_id client = id_of(1), unheard = id_of(2);
    struct message_grant grant;

    (void)state;
    world_init(&world);
    assert_int_equal(attach(&world, 1, "host:2", NULL), MC_OK);
    owner_client_gone(world.owner, world.now, &client);
    owner_client_gone(world.owner, world.now, &client);
    assert_int_equal(reserve_one(&world, 1, 1, 100, &grant), MC_ERR_GONE);
    assert_int_equal(cancel_one(&world, 1, 1), MC_ERR_GONE);
    assert_int_equal(attach(&world, 1, "host:2", NULL), MC_ERR_GONE);
    owner_client_gone(world.owner, world.now, &unheard);
    assert_int_equal(reserve_one(&world, 2, 1, 100, &grant), MC_ERR_GONE);
    world_clear(&world);
}

/* Remembers who was visited. */
static void note(void *context, const struct message_id *client, const char *address) {
    char *seen = context;
    size_t length = strlen(seen);

    seen[length] = (char)('0' + client->bytes[0]);
    strcpy(seen + length + 1, address);
}

static void attached_clients_have_pin_tables_as_long_as_there_are_some(void **state) {
    struct world world;
    struct message_id first = id_of(1);
    struct message_attached attached;
    struct message_grant grant;
    char seen[64] = "";

    (void)state;
    world_init(&world);
    assert_int_equal(attach(&world, 1, "host:2", &attached), MC_OK);
    assert_memory_equal(&attached.segment, owner_segment(world.owner), sizeof(attached.segment));
    assert_int_equal(attached.base, 0x4000000);
    assert_int_equal(attached.size, WORLD_SIZE);
    assert_int_equal(attached.pins, 0x100000);
    assert_int_equal(attached.pin_cells, PIN_CELLS);
    assert_int_equal(attach(&world, 2, "host:3", &attached), MC_OK);
    assert_int_equal(attached.pins, 0x100000 + sizeof(struct pin_table));
    assert_int_equal(attach(&world, 2, "host:4", &attached), MC_OK);
    assert_int_equal(attached.pins, 0x100000 + sizeof(struct pin_table));
    assert_int_equal(attach(&world, 3, "host:5", &attached), MC_OK);
    assert_int_equal(attached.pins, 0);
    world.pins[0].cells[5] = 99;
    owner_client_gone(world.owner, world.now, &first);
    assert_int_equal(world.pins[0].cells[5], 0);
    owner_each_client(world.owner, note, seen);
    assert_non_null(strstr(seen, "2host:4"));
    assert_non_null(strstr(seen, "3host:5")); /* who has neither a table nor a slot is known all the same */
    assert_null(strstr(seen, "1host:2"));
    assert_int_equal(attach(&world, 3, "host:5", &attached), MC_OK);
    assert_int_equal(attached.pins, 0x100000);
    assert_int_equal(reserve_one(&world, 4, 1, 100, &grant), MC_OK);
    seen[0] = '\0';
    owner_each_client(world.owner, note, seen);
    assert_non_null(strstr(seen, "3host:5"));
    assert_non_null(strstr(seen, "4"));
    world_clear(&world);
}

static void pages_of_slots_are_added_when_needed_and_stay(void **state) {
    struct world world;
    struct message_grant grants[200];
    uint64_t before;
    uint32_t granted = 0;

    (void)state;
    world_init(&world);
    before = owner_usage(world.owner).used;
    assert_int_equal(before, 4096);
    assert_int_equal(reserve_from(&world, 1, owner_segment(world.owner), 1, 0, 64, 200, grants, &granted), MC_OK);
    assert_int_equal(granted, 200);
    for (uint32_t i = 0; i < granted; i++)
        assert_int_equal(release_one(&world, 1, &grants[i]), MC_OK);
    owner_step(world.owner, world.now, &world.out);
    assert_int_equal(owner_usage(world.owner).used, 4 * 4096);
    assert_int_equal(owner_usage(world.owner).dead, 0);
    world_clear(&world);
}

static void a_segment_needs_room_and_sound_options(void **state) {
    struct owner_options options = {.size = 8192, .address = "host:1", .name = "s", .timing = STORE_TIMING_DEFAULT};
    struct owner *owner = NULL;
    uint8_t *memory = aligned_alloc(4096, 8192);

    (void)state;
    options.base = memory;
    options.size = 4096;
    assert_int_equal(owner_new(&options, &owner), MC_ERR_INVALID_ARGUMENT);
    options.size = 8000;
    assert_int_equal(owner_new(&options, &owner), MC_ERR_INVALID_ARGUMENT);
    options.size = 8192;
    options.base = memory + 64;
    assert_int_equal(owner_new(&options, &owner), MC_ERR_INVALID_ARGUMENT);
    assert_null(owner);
    options.base = memory;
    assert_int_equal(owner_new(&options, &owner), MC_OK);
    assert_null(owner_free(owner));
    assert_null(owner_free(NULL));
    free(memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reserved_slot_is_empty_and_names_its_extent),
        cmocka_unit_test(a_repeated_reserve_gets_the_same_slots),
        cmocka_unit_test(a_repeated_reserve_gets_nothing_once_one_of_its_slots_is_used),
        cmocka_unit_test(as_many_as_fit_are_granted),
        cmocka_unit_test(no_space_is_final_for_its_number),
        cmocka_unit_test(a_cancelled_number_gives_its_slots_back_and_gets_no_others),
        cmocka_unit_test(numbers_below_the_floor_are_refused),
        cmocka_unit_test(clients_count_on_their_own),
        cmocka_unit_test(another_segment_is_not_found),
        cmocka_unit_test(a_client_that_is_gone_gets_nothing_any_more),
        cmocka_unit_test(attached_clients_have_pin_tables_as_long_as_there_are_some),
        cmocka_unit_test(pages_of_slots_are_added_when_needed_and_stay),
        cmocka_unit_test(a_segment_needs_room_and_sound_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

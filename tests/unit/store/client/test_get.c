/* test_get.c - gets, sizes and probes of the client core: candidates, the cache and its lease. */
#include "world.h"

static void put(struct world *world, const char *key, uint32_t replicas) {
    struct client_put_options options = {.replicas = replicas};
    struct client_item item = item_of(key, "value");

    world_run(world, CLIENT_PUT, &item, 1, &options);
    assert_int_equal(item.status, MC_OK);
}

static void a_get_looks_up_and_reads(void **state) {
    struct world *world = *state;
    struct client_item item = item_of("key", NULL);

    put(world, "key", 1);
    world_run(world, CLIENT_GET, &item, 1, NULL);
    assert_int_equal(item.status, MC_OK);
    assert_int_equal(item.found, 5);
    assert_int_equal(world->letters[MESSAGE_LOOKUP], 1);
    assert_int_equal(world->stages, 1);
    assert_int_equal(world->reads, 1);
    assert_int_equal(world->lookup_flags, 0);
}

static void what_is_not_there_is_not_found(void **state) {
    struct world *world = *state;

    assert_int_equal(world_one(world, CLIENT_GET, "no", NULL, 0), MC_ERR_NOT_FOUND);
    assert_int_equal(world->reads, 0);
}

static void a_cached_location_needs_no_letter(void **state) {
    struct world *world = *state;

    put(world, "key", 1);
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
    assert_int_equal(world_one(world, CLIENT_VIEW, "key", NULL, 0), MC_OK);
    assert_int_equal(world->stages, 0);
    assert_int_equal(world->reads, 1);
    assert_int_equal(client_count(world->client).cache_hits, 1);
}

static void no_location_is_used_after_its_lease(void **state) {
    struct world *world = *state;

    put(world, "key", 1);
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
    world->now += 5 * CLOCK_SECOND - 51 * MS;
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
    assert_int_equal(world->stages, 0);
    world->now += 2 * MS;
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
    assert_int_equal(world->stages, 1);
}

static bool answer_after_four_seconds(struct world *world, struct client_op *op, const struct letter *letter) {
    (void)op;
    if (letter->type == MESSAGE_LOOKUP)
        world->now += 4 * CLOCK_SECOND;
    return false;
}

static void the_lease_counts_from_when_the_question_was_sent(void **state) {
    struct world *world = *state;

    put(world, "key", 1);
    world->watch = answer_after_four_seconds;
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
    world->watch = NULL;
    world->now += CLOCK_SECOND;
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
    assert_int_equal(world->stages, 1); /* rule 11 */
}

static void a_failure_renews_no_lease(void **state) {
    struct world *world = *state;

    put(world, "key", 1);
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
    world->refuse[MESSAGE_BEAT] = MC_ERR_UNAVAILABLE;
    world->refusals[MESSAGE_BEAT] = UINT32_MAX;
    world->now += 4 * CLOCK_SECOND;
    world_pass(world, CLOCK_SECOND);
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
    assert_int_equal(world->letters[MESSAGE_LOOKUP], 1);
}

static void locations_below_the_floor_are_dropped(void **state) {
    struct world *world = *state;
    struct message_floor floor;

    put(world, "key", 1);
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
    floor = (struct message_floor){.segment = world->objects[0].places[0].segment, .sequence = world->sequence + 1};
    items_add_floor(&world->floors, &floor);
    world->sequence++;
    assert_int_equal(world_one(world, CLIENT_EXISTS, "x", NULL, 0), MC_ERR_NOT_FOUND); /* brings the floor */
    world->sequence--;
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
    assert_int_equal(world->letters[MESSAGE_LOOKUP], 1); /* rule 11 */
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
    assert_int_equal(world->letters[MESSAGE_LOOKUP], 1); /* an answer that is older than the floor isn't kept */
    world->sequence++;
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
    assert_int_equal(world->letters[MESSAGE_LOOKUP], 0);
}

static void a_new_epoch_empties_the_cache(void **state) {
    struct world *world = *state;

    put(world, "key", 1);
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
    assert_int_equal(client_count(world->client).cached, 1);
    world->epoch = 6;
    world->owners_version++;
    world_pass(world, 2 * CLOCK_SECOND);
    assert_int_equal(client_count(world->client).cached, 0);
    world->epoch = 5;
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_ERR_UNAVAILABLE); /* lower ones are ignored */
    assert_int_equal(world->reads, 0);
    assert_int_equal(client_epoch(world->client), 6);
}

static void the_cache_is_bounded(void **state) {
    struct world *world = *state;

    for (uint32_t i = 0; i < 100; i++) {
        char key[8];

        snprintf(key, sizeof(key), "k%u", i);
        put(world, key, 1);
        assert_int_equal(world_one(world, CLIENT_GET, key, NULL, 0), MC_OK);
    }
    assert_int_equal(client_count(world->client).cached, 64);
    assert_int_equal(world_one(world, CLIENT_GET, "k99", NULL, 0), MC_OK);
    assert_int_equal(world->letters[MESSAGE_LOOKUP], 0);
    assert_int_equal(world_one(world, CLIENT_GET, "k0", NULL, 0), MC_OK);
    assert_int_equal(world->letters[MESSAGE_LOOKUP], 1);
}

static void a_stale_location_is_dropped_and_looked_up_again(void **state) {
    struct world *world = *state;
    struct client_item item = item_of("key", NULL);
    enum client_need need;

    put(world, "key", 1);
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
    world->objects[0].places[0].generation += 1000;
    world_forget(world);
    world_begin(world, &world->op, CLIENT_GET, &item, 1, NULL);
    while ((need = world_next(world, &world->op)) != CLIENT_DONE)
        if (need == CLIENT_READ && world->op.reads[0].place.generation < 1000)
            world->op.reads[0].status = MC_ERR_GUARD_MISMATCH;
    client_end(world->client, world->now, &world->op);
    assert_int_equal(item.status, MC_OK);
    assert_int_equal(world->reads, 2);
    assert_int_equal(world->letters[MESSAGE_LOOKUP], 1);
    assert_int_equal(world->waits, 0);
}

static void the_next_replica_is_read_when_one_fails(void **state) {
    struct world *world = *state;
    struct client_item item = item_of("key", NULL);
    enum client_need need;

    put(world, "key", 2);
    world_forget(world);
    world_begin(world, &world->op, CLIENT_GET, &item, 1, NULL);
    while ((need = world_next(world, &world->op)) != CLIENT_DONE)
        if (need == CLIENT_READ && world->reads == 1)
            world->op.reads[0].status = MC_ERR_CHECKSUM_MISMATCH;
    client_end(world->client, world->now, &world->op);
    assert_int_equal(item.status, MC_OK);
    assert_int_equal(world->reads, 2);
    assert_int_equal(world->letters[MESSAGE_LOOKUP], 1);
}

static void a_get_gives_up_after_four_rounds(void **state) {
    struct world *world = *state;

    put(world, "key", 1);
    world->read_status = MC_ERR_GUARD_MISMATCH;
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_ERR_UNAVAILABLE);
    assert_int_equal(world->reads, 4);
    assert_int_equal(world->waits, 3); /* the same locations came again */
    world->read_status = MC_ERR_CHECKSUM_MISMATCH;
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_ERR_CHECKSUM_MISMATCH);
}

static void mapped_memory_is_read_first(void **state) {
    struct world *world = *state;
    struct client_segment *segment = NULL;

    put(world, "key", 2);
    while ((segment = client_segments(world->client, segment)) != NULL)
        if (owner_of(&segment->id) == 1)
            segment->memory = calloc(1, 64);
    for (uint32_t i = 0; i < 8; i++) {
        struct client_item item = item_of("key", NULL);

        world_begin(world, &world->op, CLIENT_GET, &item, 1, NULL);
        while (world_next(world, &world->op) != CLIENT_READ)
            ;
        assert_int_equal(owner_of(&world->op.reads[0].segment->id), 1);
        client_end(world->client, world->now, &world->op);
    }
    while ((segment = client_segments(world->client, segment)) != NULL)
        free(segment->memory);
}

static bool found(struct world *world, const char *key, uint64_t capacity, struct client_hit *ret_hit) {
    struct key_hash hash = key_hash(key, strlen(key));

    return client_find(world->client, world->now, &hash, (uint32_t)strlen(key), capacity, ret_hit);
}

static void what_is_known_and_mapped_is_found_without_an_operation(void **state) {
    struct world *world = *state;
    struct client_segment *segment;
    struct client_hit hit;
    uint8_t memory[64];

    put(world, "key", 1);
    assert_false(found(world, "key", 4096, &hit)); /* not known */
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
    assert_false(found(world, "key", 4096, &hit)); /* not mapped */
    segment = client_segment_of(world->client, &world->objects[0].places[0].segment);
    segment->memory = memory;
    assert_true(found(world, "key", 4096, &hit));
    assert_ptr_equal(hit.segment, segment);
    assert_ptr_equal(hit.memory, memory);
    assert_int_equal(hit.place.generation, world->objects[0].places[0].generation);
    assert_int_equal(hit.length, world->objects[0].length);
    assert_int_equal(client_count(world->client).cache_hits, 1);
    assert_true(found(world, "key", hit.length, &hit));
    assert_false(found(world, "key", hit.length - 1, &hit)); /* its size must be told, and be the master's word */
    assert_false(found(world, "other", 4096, &hit));
    segment->attached = false;
    assert_false(found(world, "key", 4096, &hit));
    segment->attached = true;
    segment->floor = UINT64_MAX; /* rule 11 */
    assert_false(found(world, "key", 4096, &hit));
    segment->floor = 0;
    world->now += 5 * CLOCK_SECOND - 51 * MS;
    assert_true(found(world, "key", 4096, &hit));
    world->now += 2 * MS; /* the lease has ended */
    assert_false(found(world, "key", 4096, &hit));
    segment->memory = NULL;
}

static void an_item_that_is_known_already_needs_nothing(void **state) {
    struct world *world = *state;
    struct client_item items[2] = {item_of("key", NULL), item_of("key", NULL)};

    put(world, "key", 1);
    items[0].known = true;
    items[0].found = 77;
    items[0].status = MC_OK;
    world_run(world, CLIENT_GET, items, 2, NULL);
    assert_int_equal(world->reads, 1);
    assert_int_equal(items[0].found, 77);
    assert_int_equal(items[1].status, MC_OK);
    items[1].known = true;
    world_run(world, CLIENT_GET, items, 2, NULL);
    assert_int_equal(world->reads, 0);
}

static void a_value_larger_than_wanted_says_its_size(void **state) {
    struct world *world = *state;
    struct client_item item = item_of("key", NULL);

    put(world, "key", 1);
    item.length = 4;
    world_run(world, CLIENT_GET, &item, 1, NULL);
    assert_int_equal(item.status, MC_ERR_BUFFER_TOO_SMALL);
    assert_int_equal(item.found, 5);
    assert_int_equal(world->reads, 0);
    world->objects[0].length = 3; /* another value by now: the cached size is not the last word */
    world_run(world, CLIENT_GET, &item, 1, NULL);
    assert_int_equal(item.status, MC_OK);
    assert_int_equal(item.found, 3);
}

static void a_segment_that_is_not_known_has_the_list_fetched_once(void **state) {
    struct world *world = *state;

    put(world, "key", 1);
    world->objects[0].places[0].segment = id_of(2);
    world->owners = 3;
    world->owners_version++;
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
    assert_int_equal(world->letters[MESSAGE_BEAT], 1);
    assert_int_equal(world->attaches, 1);
    world->objects[0].places[0].segment = id_of(200);
    world->objects[0].places[0].generation++;
    world->now += 10 * CLOCK_SECOND;
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_ERR_UNREACHABLE);
    assert_true(world->letters[MESSAGE_BEAT] <= 4);
}

static void a_segment_that_cannot_be_attached_is_left_alone_for_a_while(void **state) {
    struct world *world = *state;

    put(world, "key", 1);
    world->objects[0].places[0].segment = id_of(2);
    world->owners = 3;
    world->owners_version++;
    world->unreachable = true;
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_ERR_UNREACHABLE);
    assert_int_equal(world->attaches, 1);
    world->unreachable = false;
    world->now += CLOCK_SECOND;
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
}

static void a_batch_of_gets_takes_as_many_stages_as_one(void **state) {
    struct world *world = *state;
    struct client_item items[60];
    char keys[60][8];

    for (uint32_t i = 0; i < 60; i++) {
        snprintf(keys[i], sizeof(keys[i]), "k%u", i);
        if (i % 3 != 0)
            put(world, keys[i], 1);
        items[i] = item_of(keys[i], NULL);
    }
    world_run(world, CLIENT_GET, items, 60, NULL);
    for (uint32_t i = 0; i < 60; i++)
        assert_int_equal(items[i].status, i % 3 != 0 ? MC_OK : MC_ERR_NOT_FOUND);
    assert_int_equal(world->stages, 1);
    assert_int_equal(world->read_stages, 1);
    assert_int_equal(world->reads, 40);
}

static void a_lookup_asks_for_no_more_keys_than_its_answer_has_room_for(void **state) {
    enum { KEYS = 2500 };
    struct world *world = *state;
    struct client_item *items = calloc(KEYS, sizeof(*items));
    char(*keys)[8] = calloc(KEYS, sizeof(*keys));

    assert_non_null(items);
    assert_non_null(keys);
    for (uint32_t i = 0; i < KEYS; i++) {
        snprintf(keys[i], sizeof(keys[i]), "k%u", i);
        items[i] = item_of(keys[i], NULL);
    }
    put(world, "key", 1); /* the epoch is known from here on */
    world_run(world, CLIENT_SIZE, items, KEYS, NULL);
    for (uint32_t i = 0; i < KEYS; i++)
        assert_int_equal(items[i].status, MC_ERR_NOT_FOUND);
    assert_int_equal(world->letters[MESSAGE_LOOKUP], 3); /* 1,024 findings with all replicas of two versions fit */
    assert_int_equal(world->stages, 1);
    free(items);
    free(keys);
}

static void sizes_and_probes_read_nothing_and_are_no_use(void **state) {
    struct world *world = *state;
    struct client_item item = item_of("key", NULL);

    put(world, "key", 1);
    world_run(world, CLIENT_SIZE, &item, 1, NULL);
    assert_int_equal(item.status, MC_OK);
    assert_int_equal(item.found, 5);
    assert_int_equal(world->lookup_flags, LOOKUP_PROBE);
    assert_int_equal(world_one(world, CLIENT_EXISTS, "key", NULL, 0), MC_OK);
    assert_int_equal(world->letters[MESSAGE_PROBE], 1);
    assert_int_equal(world->letters[MESSAGE_LOOKUP], 0);
    assert_int_equal(world_one(world, CLIENT_EXISTS, "no", NULL, 0), MC_ERR_NOT_FOUND);
    assert_int_equal(world->reads, 0);
}

static uint32_t reported;

static bool count_reads(struct world *world, struct client_op *op, const struct letter *letter) {
    struct message_beat beat;

    (void)world;
    (void)op;
    if (letter->type == MESSAGE_BEAT && message_unpack_beat(letter->body, letter->length, &beat) == MC_OK)
        reported += beat.reads.length / (uint32_t)sizeof(struct key_hash);
    return false;
}

static void cached_reads_are_reported(void **state) {
    struct world *world = *state;

    put(world, "key", 1);
    reported = 0;
    world->watch = count_reads;
    world->settled = 1;
    for (uint32_t i = 0; i < 11; i++)
        assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
    world_pass(world, CLOCK_SECOND);
    assert_int_equal(reported, 10);
    for (uint32_t i = 0; i < 1024; i++)
        assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_OK);
    world_pass(world, 0); /* so many are reported at once */
    assert_true(reported >= 1033);
}

static void an_owner_that_is_not_listed_any_more_is_detached_in_the_end(void **state) {
    struct world *world = *state;

    put(world, "key", 2);
    world->settled = 1;
    world->owners = 1;
    world->owners_version++;
    world_pass(world, 2 * CLOCK_SECOND);
    assert_int_equal(world->detached, 0);
    world_pass(world, 30 * CLOCK_SECOND);
    assert_int_equal(world->detached, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        WORLD_TEST(a_get_looks_up_and_reads),
        WORLD_TEST(what_is_not_there_is_not_found),
        WORLD_TEST(a_cached_location_needs_no_letter),
        WORLD_TEST(no_location_is_used_after_its_lease),
        WORLD_TEST(the_lease_counts_from_when_the_question_was_sent),
        WORLD_TEST(a_failure_renews_no_lease),
        WORLD_TEST(locations_below_the_floor_are_dropped),
        WORLD_TEST(a_new_epoch_empties_the_cache),
        WORLD_TEST(the_cache_is_bounded),
        WORLD_TEST(a_stale_location_is_dropped_and_looked_up_again),
        WORLD_TEST(the_next_replica_is_read_when_one_fails),
        WORLD_TEST(a_get_gives_up_after_four_rounds),
        WORLD_TEST(mapped_memory_is_read_first),
        WORLD_TEST(what_is_known_and_mapped_is_found_without_an_operation),
        WORLD_TEST(an_item_that_is_known_already_needs_nothing),
        WORLD_TEST(a_value_larger_than_wanted_says_its_size),
        WORLD_TEST(a_segment_that_is_not_known_has_the_list_fetched_once),
        WORLD_TEST(a_segment_that_cannot_be_attached_is_left_alone_for_a_while),
        WORLD_TEST(a_batch_of_gets_takes_as_many_stages_as_one),
        WORLD_TEST(a_lookup_asks_for_no_more_keys_than_its_answer_has_room_for),
        WORLD_TEST(sizes_and_probes_read_nothing_and_are_no_use),
        WORLD_TEST(cached_reads_are_reported),
        WORLD_TEST(an_owner_that_is_not_listed_any_more_is_detached_in_the_end),
    };

    return cmocka_run_group_tests_name("store-client-get", tests, NULL, NULL);
}

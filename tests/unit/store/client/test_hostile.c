/* test_hostile.c - answers that no honest master or owner gives: a status each, and nothing is lost or believed. */
#include "world.h"

static struct random chance;

/* Answers with bytes of any kind, under the right type. */
static bool garbage(struct world *world, struct client_op *op, const struct letter *letter) {
    size_t length = random_below(&chance, 200);
    uint8_t *body = malloc(length + 1);

    for (size_t i = 0; i < length; i++)
        body[i] = random_below(&chance, 3) == 0 ? (uint8_t)random_next(&chance) : 0;
    client_answer(world->client, world->now, op, letter->tag, MC_OK, (uint16_t)(letter->type + 1u), body, length);
    free(body);
    return true;
}

static bool sometimes_garbage(struct world *world, struct client_op *op, const struct letter *letter) {
    return random_below(&chance, 2) == 0 && garbage(world, op, letter);
}

static void an_operation_on(struct world *world, enum client_kind kind, const char *key) {
    struct client_item items[2] = {item_of(key, kind == CLIENT_PUT ? "value" : NULL), item_of("other", "value")};

    world_run(world, kind, items, 2, NULL);
    assert_true(items[0].status <= 0 && items[0].status != MC_ERR_PENDING);
    assert_true(items[1].status <= 0 && items[1].status != MC_ERR_PENDING);
    items_clear(&world->op.listed);
}

static void garbage_breaks_nothing(void **state) {
    struct world *world = *state;

    chance.state = 7;
    for (uint32_t i = 0; i < 60; i++) {
        char key[8];

        snprintf(key, sizeof(key), "k%u", i);
        world->watch = i < 5 ? garbage : sometimes_garbage;
        an_operation_on(world, (enum client_kind)random_below(&chance, CLIENT_LIST), key);
        world_pass(world, CLOCK_SECOND);
    }
    world->watch = NULL;
    world->epoch = UINT64_MAX; /* no garbage has said a higher one */
    world->owners_version = UINT64_MAX;
    assert_int_equal(world_one(world, CLIENT_PUT, "last", "value", 0), MC_OK);
    assert_int_equal(world_one(world, CLIENT_GET, "last", NULL, 0), MC_OK);
}

static void a_wrong_byte_in_each_answer_breaks_nothing(void **state) {
    struct world *world = *state;

    chance.state = 11;
    world->flip = &chance;
    for (uint32_t i = 0; i < 200; i++) {
        char key[8];

        snprintf(key, sizeof(key), "k%u", i % 20);
        world->epoch++; /* what was said about higher ones is soon outdone */
        world->owners_version++;
        an_operation_on(world, (enum client_kind)random_below(&chance, CLIENT_LIST), key);
        world_pass(world, CLOCK_SECOND);
    }
}

static bool of_another_type(struct world *world, struct client_op *op, const struct letter *letter) {
    if (letter->type != MESSAGE_PUBLISH)
        return false;
    world->watch = NULL;
    client_answer(world->client, world->now, op, letter->tag, MC_OK, MESSAGE_REMOVED, NULL, 0);
    return true;
}

static void an_answer_of_another_type_is_none(void **state) {
    struct world *world = *state;

    world->watch = of_another_type;
    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_OK);
    assert_int_equal(world->letters[MESSAGE_PUBLISH], 2);
}

static bool too_few_verdicts(struct world *world, struct client_op *op, const struct letter *letter) {
    struct message_published published = {.stamp = world_stamp(world)};
    struct message_verdict verdict = {.sequence = 1, .status = MC_OK, .version_epoch = 5, .version_counter = 1};
    struct items verdicts;

    if (letter->type != MESSAGE_PUBLISH)
        return false;
    items_init(&verdicts);
    for (uint32_t i = 0; i < (world->letters[MESSAGE_PUBLISH] == 1 ? 1u : 3u); i++)
        items_add_verdict(&verdicts, &verdict);
    published.verdicts = items_bytes(&verdicts);
    WORLD_ANSWER(world, op, letter, published, &published);
    items_clear(&verdicts);
    if (world->letters[MESSAGE_PUBLISH] == 2)
        world->watch = NULL;
    return true;
}

static void verdicts_of_a_wrong_number_are_none(void **state) {
    struct world *world = *state;
    struct client_item items[2] = {item_of("a", "value"), item_of("b", "value")};

    world->watch = too_few_verdicts;
    world_run(world, CLIENT_PUT, items, 2, NULL);
    assert_int_equal(items[0].status, MC_OK);
    assert_int_equal(items[1].status, MC_OK);
    assert_int_equal(world->letters[MESSAGE_PUBLISH], 3);
}

static struct message_verdict wrong_verdict;

static bool one_wrong_verdict(struct world *world, struct client_op *op, const struct letter *letter) {
    struct message_published published = {.stamp = world_stamp(world)};
    struct items verdicts;

    if (letter->type != MESSAGE_PUBLISH)
        return false;
    world->watch = NULL;
    items_init(&verdicts);
    items_add_verdict(&verdicts, &wrong_verdict);
    published.verdicts = items_bytes(&verdicts);
    WORLD_ANSWER(world, op, letter, published, &published);
    items_clear(&verdicts);
    return true;
}

static void a_verdict_on_another_publication_is_none(void **state) {
    struct world *world = *state;

    wrong_verdict = (struct message_verdict){.sequence = 2, .status = MC_OK, .version_epoch = 5};
    world->watch = one_wrong_verdict;
    assert_int_equal(world_one(world, CLIENT_PUT, "a", "value", 0), MC_OK);
    assert_int_equal(world->letters[MESSAGE_PUBLISH], 2);
    wrong_verdict = (struct message_verdict){.sequence = 2, .status = (uint32_t)MC_ERR_SYSTEM};
    world->watch = one_wrong_verdict;
    assert_int_equal(world_one(world, CLIENT_PUT, "b", "value", 0), MC_OK);
    assert_int_equal(world->letters[MESSAGE_PUBLISH], 2);
}

static void locations_outside_the_segment_are_not_read(void **state) {
    struct world *world = *state;
    const struct message_place wrong[] = {
        {.slot = SEGMENT_SIZE, .generation = 1, .offset = 4096},
        {.slot = 32, .generation = 1, .offset = 4096},
        {.slot = UINT64_MAX - 63, .generation = 1, .offset = 4096},
        {.slot = 0, .generation = 0, .offset = 4096},
        {.slot = 0, .generation = UINT64_MAX, .offset = 4096},
        {.slot = 0, .generation = 1, .offset = UINT64_MAX},
        {.slot = 0, .generation = 1, .offset = SEGMENT_SIZE - 5 - 2},
    };

    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_OK);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct message_id segment = world->objects[0].places[0].segment;

        world->objects[0].places[0] = wrong[i];
        world->objects[0].places[0].segment = segment;
        assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_ERR_PROTOCOL);
        assert_int_equal(world->reads, 0);
    }
    world->objects[0].places[0].offset = 4096;
    world->objects[0].places[0].generation = 1;
    world->objects[0].length = UINT64_MAX;
    assert_int_equal(world_one(world, CLIENT_GET, "key", NULL, 0), MC_ERR_PROTOCOL);
}

static struct message_grant wrong_grant;
static uint32_t grant_count;

static bool wrong_grants(struct world *world, struct client_op *op, const struct letter *letter) {
    struct message_reserved reserved = {0};
    struct items grants;

    if (letter->type != MESSAGE_RESERVE)
        return false;
    world->watch = NULL;
    items_init(&grants);
    for (uint32_t i = 0; i < grant_count; i++)
        items_add_grant(&grants, &wrong_grant);
    reserved.grants = items_bytes(&grants);
    WORLD_ANSWER(world, op, letter, reserved, &reserved);
    items_clear(&grants);
    return true;
}

static void grants_outside_the_segment_are_cancelled(void **state) {
    struct world *world = *state;
    const struct message_grant wrong[] = {
        {.slot = SEGMENT_SIZE - 32, .generation = 1, .offset = 4096},
        {.slot = 0, .generation = 1, .offset = SEGMENT_SIZE - 63},
        {.slot = 0, .generation = 0, .offset = 4096},
        {.slot = 0, .generation = 1, .offset = 4096},
        {.slot = 0, .generation = 1, .offset = 4096},
    };
    const uint32_t counts[] = {1, 1, 1, 0, 5000}; /* the last two: none, and more than asked for */

    for (uint32_t i = 0; i < 5; i++) {
        char key[8];

        snprintf(key, sizeof(key), "k%u", i);
        wrong_grant = wrong[i];
        grant_count = counts[i];
        world->watch = wrong_grants;
        assert_int_equal(world_one(world, CLIENT_PUT, key, "value", 0), MC_OK);
        assert_null(world->watch);
        assert_int_equal(client_count(world->client).returns, 1);
        world->settled = i + 1;
        world_pass(world, 4 * CLOCK_SECOND); /* no stock is left */
        assert_int_equal(world->cancelled, i + 1);
    }
}

static bool wrong_owners(struct world *world, struct client_op *op, const struct letter *letter) {
    struct message_beaten beaten = {.stamp = world_stamp(world), .owners_version = 3};
    struct message_owner owner = {.segment = id_of(9), .size = 4096};
    uint8_t name[MESSAGE_NAME_MAX];
    struct items owners;

    if (letter->type != MESSAGE_BEAT)
        return false;
    memset(name, 'n', sizeof(name));
    items_init(&owners);
    owner.name = (struct message_bytes){name, sizeof(name)};
    items_add_owner(&owners, &owner); /* its name is too long */
    owner.name.length = 5;
    owner.size = 0;
    items_add_owner(&owners, &owner); /* it has no space */
    owner.size = 4096;
    owner.address = (struct message_bytes){(const uint8_t *)"a\0b", 3};
    items_add_owner(&owners, &owner); /* no text */
    beaten.owners = items_bytes(&owners);
    WORLD_ANSWER(world, op, letter, beaten, &beaten);
    items_clear(&owners);
    return true;
}

static void owners_that_cannot_be_are_left_out(void **state) {
    struct world *world = *state;

    world->watch = wrong_owners;
    assert_int_equal(world_one(world, CLIENT_PUT, "key", "value", 0), MC_ERR_NO_SPACE);
    assert_null(client_segments(world->client, NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        WORLD_TEST(garbage_breaks_nothing),
        WORLD_TEST(a_wrong_byte_in_each_answer_breaks_nothing),
        WORLD_TEST(an_answer_of_another_type_is_none),
        WORLD_TEST(verdicts_of_a_wrong_number_are_none),
        WORLD_TEST(a_verdict_on_another_publication_is_none),
        WORLD_TEST(locations_outside_the_segment_are_not_read),
        WORLD_TEST(grants_outside_the_segment_are_cancelled),
        WORLD_TEST(owners_that_cannot_be_are_left_out),
    };

    return cmocka_run_group_tests_name("store-client-hostile", tests, NULL, NULL);
}

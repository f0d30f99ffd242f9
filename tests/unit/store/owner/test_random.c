/* test_random.c - whatever clients, masters and strangers say, no two slots share space, and all of it comes back. */
#include "world.h"

#include "base/random.h"

#define CLIENTS 4u
#define HELD 400u

struct game {
    struct world world;
    struct random random;
    struct message_grant grants[HELD]; /* that weren't FREE when last looked at */
    uint64_t capacities[HELD];
    uint32_t count;
    uint64_t sequences[CLIENTS + 1];
    uint64_t epoch;
    uint8_t first_client; /* those that came before are gone */
};

static uint64_t below(struct game *game, uint64_t bound) {
    return random_below(&game->random, bound);
}

static uint8_t some_client(struct game *game) {
    return (uint8_t)(game->first_client + below(game, CLIENTS));
}

static struct message_grant *some_grant(struct game *game) {
    return game->count > 0 ? &game->grants[below(game, game->count)] : NULL;
}

/* Extents of slots in use lie within the segment, in no page of slots, and apart. Found by walking what was granted:
 * the words say which of it is in use. */
static void check(struct game *game) {
    static uint8_t map[WORLD_SIZE / 64];
    struct owner_usage usage = owner_usage(game->world.owner);
    uint64_t live = 0, reserved = 0, dead = 0;

    memset(map, 0, sizeof(map));
    for (uint32_t i = 0; i < game->count; i++) {
        const struct message_grant *grant = &game->grants[i];
        uint64_t word = slot_of(&game->world, grant)->word;

        map[grant->slot / 4096 * 64] |= 2; /* a page of slots begins here */
        if (slot_word_generation(word) != grant->generation || slot_word_state(word) == SLOT_FREE)
            continue;
        live += slot_word_state(word) == SLOT_LIVE;
        reserved += slot_word_state(word) == SLOT_RESERVED;
        dead += slot_word_state(word) == SLOT_DEAD;
        assert_true(grant->offset + game->capacities[i] <= WORLD_SIZE);
        for (uint64_t unit = grant->offset / 64; unit * 64 < grant->offset + game->capacities[i]; unit++) {
            assert_int_equal(map[unit] & 1, 0);
            map[unit] |= 1;
        }
    }
    for (uint32_t i = 0; i < WORLD_SIZE / 64; i++)
        if ((map[i / 64 * 64] & 2) != 0)
            assert_int_equal(map[i] & 1, 0);
    assert_int_equal(usage.live, live);
    assert_int_equal(usage.reserved, reserved);
    assert_int_equal(usage.dead, dead);
    assert_true(usage.used <= usage.size && usage.largest <= usage.size - usage.used);
}

/* Payload of one slot in the bytes of another would show here. */
static void fill(struct game *game, const struct message_grant *grant, uint64_t capacity) {
    memset(game->world.memory + grant->offset, (int)grant->generation, capacity);
    if (below(game, 2) == 0)
        slot_of(&game->world, grant)->described = (struct slot_description){
            .length = below(game, 2 * capacity), .key_length = (uint32_t)below(game, 2 * capacity)};
}

/* Drops what is FREE from the list. */
static void tidy(struct game *game) {
    uint32_t kept = 0;

    for (uint32_t i = 0; i < game->count; i++) {
        uint64_t word = slot_of(&game->world, &game->grants[i])->word;

        if (slot_word_generation(word) == game->grants[i].generation && slot_word_state(word) != SLOT_FREE) {
            game->capacities[kept] = game->capacities[i];
            game->grants[kept++] = game->grants[i];
        }
    }
    game->count = kept;
}

static void act_reserve(struct game *game) {
    uint8_t client = some_client(game);
    uint64_t capacity = 1 + below(game, 1ull << below(game, 15));
    uint32_t count = (uint32_t)(1 + below(game, 8)), granted = 0;
    struct message_grant grants[8];

    tidy(game);
    if (game->count + count > HELD)
        return;
    if (reserve_from(&game->world, client, owner_segment(game->world.owner), ++game->sequences[client % CLIENTS], 0,
                     capacity, count, grants, &granted) != MC_OK)
        return;
    for (uint32_t i = 0; i < granted; i++) {
        game->capacities[game->count] = capacity;
        game->grants[game->count++] = grants[i];
        fill(game, &grants[i], capacity);
    }
}

static void act_release(struct game *game) {
    struct message_grant *grant = some_grant(game);
    uint64_t sequence = below(game, game->sequences[0] + 2);

    if (grant != NULL)
        release_from(&game->world, some_client(game), owner_segment(game->world.owner), grant,
                     below(game, 8) == 0 ? &sequence : NULL);
}

static void act_gone(struct game *game) {
    struct message_id client = id_of(game->first_client);

    if (below(game, 10) != 0 || game->first_client > 200)
        return;
    game->first_client++;
    owner_client_gone(game->world.owner, game->world.now, &client);
}

static void act_pin(struct game *game) {
    struct message_grant *grant = some_grant(game);
    uint8_t client = some_client(game);
    struct message_attached attached;

    if (attach(&game->world, client, "host:2", &attached) == MC_OK && attached.pins != 0)
        game->world.pins[(attached.pins - 0x100000) / sizeof(struct pin_table)].cells[below(game, 8)] =
            grant != NULL && below(game, 2) == 0 ? grant->generation : 0;
}

/* Some commands, right and wrong, in the name of an epoch that is or was. */
static void answer_with_commands(struct game *game, uint64_t tag) {
    struct message_command commands[8];
    size_t count = below(game, 9);

    for (size_t i = 0; i < count; i++) {
        struct message_grant *grant = some_grant(game);

        commands[i] = (struct message_command){.kind = (uint32_t)below(game, 6),
                                               .slot = grant != NULL ? grant->slot : random_next(&game->random),
                                               .generation = grant != NULL ? grant->generation : 0,
                                               .version_epoch = below(game, 3),
                                               .version_counter = 1};
        if (below(game, 20) == 0)
            commands[i].slot = random_next(&game->random);
    }
    answer_poll(&game->world, tag, game->epoch - below(game, 2), commands, count);
}

static void act_step(struct game *game) {
    static const int32_t failures[] = {MC_ERR_TIMEOUT, MC_ERR_EPOCH, MC_ERR_UNAVAILABLE, MC_ERR_EXPELLED,
                                       MC_ERR_SEGMENT_NOT_FOUND};
    struct letter *letter;

    game->world.now += below(game, 200) * MS;
    owner_step(game->world.owner, game->world.now, &game->world.out);
    while ((letter = outbox_take(&game->world.out)) != NULL) {
        uint64_t luck = below(game, 40);

        if (luck == 0)
            game->epoch++;
        if (luck < 5)
            fail_request(&game->world, letter->tag, failures[luck]);
        else if (letter->type == MESSAGE_MOUNT)
            answer_mount(&game->world, letter->tag, game->epoch);
        else
            answer_with_commands(game, letter->tag);
        free(letter);
    }
}

/* All clients go, the master drops their slots and kills the rest. */
static void end(struct game *game) {
    struct world *world = &game->world;

    for (uint8_t client = game->first_client; client < game->first_client + CLIENTS; client++) {
        struct message_id id = id_of(client);

        owner_client_gone(world->owner, world->now, &id);
    }
    for (int turn = 0; turn < 200; turn++) {
        struct letter *letter;

        world->now += 500 * MS;
        owner_step(world->owner, world->now, &world->out);
        while ((letter = outbox_take(&world->out)) != NULL) {
            struct message_command commands[2 * HELD];
            size_t count = 0;

            for (uint32_t i = 0; i < game->count; i++)
                commands[count++] = (struct message_command){.kind = i % 2 == 0 ? COMMAND_DROP : COMMAND_KILL,
                                                             .slot = game->grants[i].slot,
                                                             .generation = game->grants[i].generation};
            for (uint32_t i = 0; i < game->count && turn > 20; i++)
                commands[count++] = (struct message_command){
                    .kind = COMMAND_KILL, .slot = game->grants[i].slot, .generation = game->grants[i].generation};
            if (letter->type == MESSAGE_MOUNT)
                answer_mount(world, letter->tag, game->epoch);
            else
                answer_poll(world, letter->tag, game->epoch, commands, count);
            free(letter);
        }
        tidy(game);
    }
}

static void nothing_is_shared_and_all_space_comes_back(void **state) {
    static void (*const acts[])(struct game *) = {act_reserve, act_reserve, act_release, act_gone, act_pin, act_step};

    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        static struct game game;
        struct owner_usage usage;

        game = (struct game){.random = {.state = seed}, .epoch = 5, .first_client = 1};
        world_init(&game.world);
        for (int turn = 0; turn < 1000; turn++) {
            acts[below(&game, sizeof(acts) / sizeof(acts[0]))](&game);
            check(&game);
        }
        end(&game);
        check(&game);
        usage = owner_usage(game.world.owner);
        assert_int_equal(usage.live + usage.reserved + usage.dead, 0);
        assert_int_equal(usage.used % 4096, 0); /* pages of slots */
        assert_in_range(usage.used, 4096, 20 * 4096);
        world_clear(&game.world);
    }
}

/* ---- Strangers ---- */

static void garbage_gets_a_status_and_changes_nothing(void **state) {
    static const uint16_t types[] = {MESSAGE_ATTACH, MESSAGE_RESERVE, MESSAGE_RELEASE, MESSAGE_PUBLISH, 0xffff, 0};
    struct world world;
    struct random random = {.state = 3};
    struct message_grant grant;

    (void)state;
    world_init(&world);
    assert_int_equal(reserve_one(&world, 1, 1, 100, &grant), MC_OK);
    for (int turn = 0; turn < 20000; turn++) {
        size_t length = (size_t)random_below(&random, 200);
        uint8_t *body = malloc(length > 0 ? length : 1);
        struct letter *answer;

        for (size_t i = 0; i < length; i++)
            body[i] = (uint8_t)(random_below(&random, 3) == 0 ? random_next(&random) : 0);
        owner_request(world.owner, world.now, 5, types[random_below(&random, 6)], body, length, &world.out);
        answer = outbox_take(&world.out);
        assert_non_null(answer);
        assert_int_equal(answer->tag, 5);
        free(answer);
        free(body);
    }
    assert_int_equal(owner_usage(world.owner).reserved, 1);
    assert_word(&world, &grant, SLOT_RESERVED);
    world_clear(&world);
}

static void absurd_numbers_get_a_status(void **state) {
    static struct message_grant grants[1024];
    struct world world;
    struct message_id zero = {{0}};
    struct message_reserve message;
    struct letter *answer;
    uint32_t granted;

    (void)state;
    world_init(&world);
    message = (struct message_reserve){
        .client = id_of(1), .segment = *owner_segment(world.owner), .sequence = 1, .capacity = 1, .count = 0};
    answer = WORLD_ASK(&world, RESERVE, reserve, &message);
    assert_int_equal(answer->status, MC_ERR_PROTOCOL);
    free(answer);
    message.count = 1;
    message.client = zero;
    answer = WORLD_ASK(&world, RESERVE, reserve, &message);
    assert_int_equal(answer->status, MC_ERR_PROTOCOL);
    free(answer);
    assert_int_equal(reserve_one(&world, 1, 1, 0, grants), MC_ERR_PROTOCOL);
    assert_int_equal(reserve_one(&world, 1, 2, UINT64_MAX, grants), MC_ERR_NO_SPACE);
    assert_int_equal(reserve_one(&world, 1, UINT64_MAX, 64, grants), MC_OK);
    assert_int_equal(reserve_from(&world, 1, owner_segment(world.owner), 3, 0, 1, UINT32_MAX, grants, &granted), MC_OK);
    assert_int_equal(granted, 1024);
    assert_int_equal(attach(&world, 1, "a b", NULL), MC_ERR_PROTOCOL);
    {
        char address[MESSAGE_ADDRESS_MAX + 1];

        memset(address, 'a', sizeof(address));
        address[MESSAGE_ADDRESS_MAX] = '\0';
        assert_int_equal(attach(&world, 1, address, NULL), MC_ERR_PROTOCOL);
        address[MESSAGE_ADDRESS_MAX - 1] = '\0';
        assert_int_equal(attach(&world, 1, address, NULL), MC_OK);
    }
    world_clear(&world);
}

static void invented_slots_name_nothing(void **state) {
    static const uint64_t offsets[] = {UINT64_MAX, UINT64_MAX - 63, WORLD_SIZE, WORLD_SIZE - 64, 1, 63, 4096, 64};
    struct world world;

    (void)state;
    world_init(&world);
    mount(&world, 3, NULL);
    for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++)
        for (uint64_t generation = 0; generation < 2; generation++) {
            struct message_grant grant = {.slot = offsets[i], .generation = generation - 1};

            assert_int_equal(release_one(&world, 1, &grant), MC_OK);
            assert_int_equal(command(&world, 3, COMMAND_KILL, &grant, 1), EVENT_KILLED);
            assert_int_equal(command(&world, 3, COMMAND_PROMOTE, &grant, 1), EVENT_NOT_PROMOTED);
            assert_int_equal(command(&world, 3, COMMAND_ASK, &grant, 1), EVENT_NOT_RESERVED);
            assert_int_equal(command(&world, 3, COMMAND_DROP, &grant, 1), 0);
            assert_int_equal(command(&world, 3, (enum message_command_kind)77, &grant, 1), 0);
        }
    /* A slot that was never used has generation 0, and is FREE. */
    assert_int_equal(command(&world, 3, COMMAND_KILL, &(struct message_grant){.slot = 0}, 1), EVENT_KILLED);
    assert_int_equal(owner_usage(world.owner).dead, 0);
    world_clear(&world);
}

static void a_client_with_endless_numbers_costs_bounded_memory(void **state) {
    struct world world;
    struct message_grant grant;

    (void)state;
    world_init(&world);
    for (uint64_t sequence = 1; sequence < 20000; sequence++)
        assert_int_equal(cancel_one(&world, 1, sequence), MC_OK);
    assert_int_equal(reserve_one(&world, 1, 1, 64, &grant), MC_ERR_NO_SPACE);
    assert_int_equal(reserve_one(&world, 1, 19999, 64, &grant), MC_ERR_NO_SPACE);
    assert_int_equal(reserve_one(&world, 1, 20000, 64, &grant), MC_OK);
    world_clear(&world);
}

static void answers_of_a_broken_master_change_nothing(void **state) {
    struct world world;
    struct random random = {.state = 4};
    struct message_grant grant;

    (void)state;
    world_init(&world);
    assert_int_equal(reserve_one(&world, 1, 1, 100, &grant), MC_OK);
    mount(&world, 3, NULL);
    for (int turn = 0; turn < 5000; turn++) {
        uint8_t body[40];
        size_t length = (size_t)random_below(&random, 8); /* too short for an epoch of its own */
        uint16_t type = random_below(&random, 2) == 0 ? MESSAGE_COMMANDS : MESSAGE_MOUNTED;

        for (size_t i = 0; i < length; i++)
            body[i] = (uint8_t)random_next(&random);
        owner_answer(world.owner, world.now, random_below(&random, 10), MC_OK, type, body, length);
    }
    assert_true(owner_mounted(world.owner));
    assert_word(&world, &grant, SLOT_RESERVED);
    world_clear(&world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_shared_and_all_space_comes_back),
        cmocka_unit_test(garbage_gets_a_status_and_changes_nothing),
        cmocka_unit_test(absurd_numbers_get_a_status),
        cmocka_unit_test(invented_slots_name_nothing),
        cmocka_unit_test(a_client_with_endless_numbers_costs_bounded_memory),
        cmocka_unit_test(answers_of_a_broken_master_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

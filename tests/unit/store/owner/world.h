/* world.h - an owner over plain memory, with the test as its clients and its master. */
#ifndef TESTS_STORE_OWNER_WORLD_H
#define TESTS_STORE_OWNER_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "base/clock.h"
#include "store/owner/owner.h"

#define WORLD_SIZE (256u << 10)
#define WORLD_TABLES 2u
#define WORLD_MESSAGE (64u << 10) /* enough for what tests send */
#define MS CLOCK_MILLISECOND

struct world {
    uint8_t *memory;
    uint64_t size;
    struct pin_table *pins;
    struct owner *owner;
    struct outbox out;
    uint64_t now;
    uint64_t tag;
    const struct slot *in_flight;
};

static inline struct message_id id_of(uint8_t number) {
    struct message_id id = {{number, 0xab, number}};

    return id;
}

static inline bool world_in_flight(void *context, const struct slot *slot) {
    return ((struct world *)context)->in_flight == slot;
}

static inline void world_init_sized(struct world *world, uint64_t size) {
    struct owner_options options = {.size = size,
                                    .segment = id_of(0x77),
                                    .address = "host:1",
                                    .name = "segment",
                                    .pin_tables = WORLD_TABLES,
                                    .pins_address = 0x100000,
                                    .base_address = 0x4000000,
                                    .timing = STORE_TIMING_DEFAULT,
                                    .in_flight = world_in_flight,
                                    .context = world};

    *world = (struct world){.size = size, .now = 100 * CLOCK_SECOND};
    options.base = world->memory = aligned_alloc(4096, size);
    options.pins = world->pins = calloc(WORLD_TABLES, sizeof(struct pin_table));
    assert_non_null(world->memory);
    assert_non_null(world->pins);
    memset(world->memory, 0, size);
    outbox_init(&world->out);
    assert_int_equal(owner_new(&options, &world->owner), MC_OK);
}

static inline void world_init(struct world *world) {
    world_init_sized(world, WORLD_SIZE);
}

static inline void world_clear(struct world *world) {
    owner_free(world->owner);
    outbox_clear(&world->out);
    free(world->memory);
    free(world->pins);
}

/* Packs and sends a message to the owner as a client's, and checks the answer's head; the caller frees the answer. */
#define WORLD_ASK(world, NAME, name, message)                                                                 \
    __extension__({                                                                                           \
        uint8_t *packed_ = malloc(WORLD_MESSAGE);                                                             \
        int64_t length_ = message_pack_##name((message), packed_, WORLD_MESSAGE);                             \
        assert_true(length_ >= 0);                                                                            \
        owner_request((world)->owner, (world)->now, ++(world)->tag, MESSAGE_##NAME, packed_, (size_t)length_, \
                      &(world)->out);                                                                         \
        free(packed_);                                                                                        \
        struct letter *answer_ = outbox_take(&(world)->out);                                                  \
        assert_non_null(answer_);                                                                             \
        assert_int_equal(answer_->tag, (world)->tag);                                                         \
        assert_int_equal(answer_->type, MESSAGE_##NAME + 1);                                                  \
        assert_true(answer_->status == MC_OK || answer_->length == 0);                                        \
        answer_;                                                                                              \
    })

static inline struct slot *slot_of(const struct world *world, const struct message_grant *grant) {
    return (struct slot *)(void *)(world->memory + grant->slot);
}

static inline void assert_word(const struct world *world, const struct message_grant *grant, enum slot_state state) {
    assert_int_equal(atomic_load(&slot_of(world, grant)->word), slot_word(grant->generation, state));
}

static inline int32_t reserve_from(struct world *world, uint8_t client, const struct message_id *segment,
                                   uint64_t sequence, uint64_t floor, uint64_t capacity, uint32_t count,
                                   struct message_grant *grants, uint32_t *ret_granted) {
    struct message_reserve message = {.client = id_of(client),
                                      .segment = *segment,
                                      .sequence = sequence,
                                      .floor = floor,
                                      .capacity = capacity,
                                      .count = count};
    struct letter *answer = WORLD_ASK(world, RESERVE, reserve, &message);
    int32_t status = answer->status;

    if (status == MC_OK) {
        struct message_reserved reserved;
        uint32_t granted = 0;

        assert_int_equal(message_unpack_reserved(answer->body, answer->length, &reserved), MC_OK);
        while (items_next_grant(&reserved.grants, &grants[granted]) == 1)
            granted++;
        assert_in_range(granted, 1, count);
        if (ret_granted != NULL)
            *ret_granted = granted;
    }
    free(answer);
    return status;
}

/* One slot, or a status. */
static inline int32_t reserve_one(struct world *world, uint8_t client, uint64_t sequence, uint64_t capacity,
                                  struct message_grant *grant) {
    return reserve_from(world, client, owner_segment(world->owner), sequence, 0, capacity, 1, grant, NULL);
}

static inline int32_t release_from(struct world *world, uint8_t client, const struct message_id *segment,
                                   const struct message_grant *grant, const uint64_t *sequence) {
    struct items grants, cancels;
    struct message_release message = {.client = id_of(client), .segment = *segment};
    struct letter *answer;
    int32_t status;

    items_init(&grants);
    items_init(&cancels);
    if (grant != NULL)
        assert_true(items_add_grant(&grants, grant));
    if (sequence != NULL)
        assert_true(items_add_cancel(&cancels, &(struct message_cancel){.sequence = *sequence}));
    message.grants = items_bytes(&grants);
    message.cancels = items_bytes(&cancels);
    answer = WORLD_ASK(world, RELEASE, release, &message);
    status = answer->status;
    free(answer);
    items_clear(&grants);
    items_clear(&cancels);
    return status;
}

static inline int32_t release_one(struct world *world, uint8_t client, const struct message_grant *grant) {
    return release_from(world, client, owner_segment(world->owner), grant, NULL);
}

static inline int32_t cancel_one(struct world *world, uint8_t client, uint64_t sequence) {
    return release_from(world, client, owner_segment(world->owner), NULL, &sequence);
}

static inline int32_t attach(struct world *world, uint8_t client, const char *address,
                             struct message_attached *ret_attached) {
    struct message_attach message = {
        .client = id_of(client), .address = {.data = (const uint8_t *)address, .length = (uint32_t)strlen(address)}};
    struct letter *answer = WORLD_ASK(world, ATTACH, attach, &message);
    int32_t status = answer->status;

    if (status == MC_OK && ret_attached != NULL)
        assert_int_equal(message_unpack_attached(answer->body, answer->length, ret_attached), MC_OK);
    free(answer);
    return status;
}

/* What the holder does: payload and key, then the description. */
static inline void write_object(struct world *world, const struct message_grant *grant, const char *key,
                                uint64_t length) {
    struct slot *slot = slot_of(world, grant);
    size_t key_length = strlen(key);

    memset(world->memory + grant->offset, key[0], length);
    memcpy(world->memory + grant->offset + length, key, key_length);
    slot->described = (struct slot_description){
        .hash = key_hash(key, key_length), .length = length, .key_length = (uint32_t)key_length};
}

/* ---- The master ---- */

/* Lets the owner work, and takes the oldest letter of this type to the master; the others are lost. NULL: none. */
static inline struct letter *step_for(struct world *world, uint16_t type) {
    struct letter *letter, *found = NULL;

    owner_step(world->owner, world->now, &world->out);
    while ((letter = outbox_take(&world->out)) != NULL)
        if (found == NULL && letter->type == type)
            found = letter;
        else
            free(letter);
    return found;
}

static inline void fail_request(struct world *world, uint64_t tag, int32_t status) {
    owner_answer(world->owner, world->now, tag, status, 0, NULL, 0);
}

static inline void answer_mount(struct world *world, uint64_t tag, uint64_t epoch) {
    struct message_mounted message = {.epoch = epoch};
    uint8_t packed[64];
    int64_t length = message_pack_mounted(&message, packed, sizeof(packed));

    owner_answer(world->owner, world->now, tag, MC_OK, MESSAGE_MOUNTED, packed, (size_t)length);
}

static inline void answer_poll(struct world *world, uint64_t tag, uint64_t epoch,
                               const struct message_command *commands, size_t count) {
    struct message_commands message = {.epoch = epoch};
    struct items items;
    uint8_t *packed = malloc(WORLD_MESSAGE);
    int64_t length;

    items_init(&items);
    for (size_t i = 0; i < count; i++)
        assert_true(items_add_command(&items, &commands[i]));
    message.commands = items_bytes(&items);
    length = message_pack_commands(&message, packed, WORLD_MESSAGE);
    owner_answer(world->owner, world->now, tag, MC_OK, MESSAGE_COMMANDS, packed, (size_t)length);
    items_clear(&items);
    free(packed);
}

/* Answers MOUNTs with this epoch until the owner is mounted; the holdings announced in the last announcement are
 * appended to `holdings`, if it isn't NULL, as records whose keys are copies to be freed. Returns how many. */
static inline size_t mount(struct world *world, uint64_t epoch, struct message_holding *holdings) {
    size_t count = 0;
    uint32_t expected = 0;

    for (int turn = 0; turn < 1000 && !owner_mounted(world->owner); turn++) {
        struct letter *letter = step_for(world, MESSAGE_MOUNT);
        struct message_mount message;
        struct message_holding holding;

        if (letter == NULL) {
            world->now = owner_wake(world->owner);
            continue;
        }
        assert_int_equal(message_unpack_mount(letter->body, letter->length, &message), MC_OK);
        assert_memory_equal(&message.segment, owner_segment(world->owner), sizeof(message.segment));
        expected = message.part == 0 ? 0 : expected;
        assert_int_equal(message.part, expected);
        expected++;
        while (message.epoch == epoch && items_next_holding(&message.holdings, &holding) == 1) {
            if (holdings != NULL) {
                uint8_t *key = malloc(holding.key.length);

                memcpy(key, holding.key.data, holding.key.length);
                holdings[count] = holding;
                holdings[count].key.data = key;
            }
            count++;
        }
        answer_mount(world, letter->tag, epoch);
        free(letter);
    }
    assert_true(owner_mounted(world->owner));
    return count;
}

/* The next POLL; the test fails if there is none now. */
static inline struct letter *poll_now(struct world *world, struct message_poll *ret_poll) {
    struct letter *letter = step_for(world, MESSAGE_POLL);

    assert_non_null(letter);
    assert_int_equal(message_unpack_poll(letter->body, letter->length, ret_poll), MC_OK);
    return letter;
}

/* Has the owner carry out a command under this epoch, and returns the kind of the event about that slot that it then
 * tells; 0: none. There must be nothing else to tell. */
static inline uint32_t command(struct world *world, uint64_t epoch, enum message_command_kind kind,
                               const struct message_grant *grant, uint64_t version_counter) {
    struct message_command order = {.kind = (uint32_t)kind,
                                    .slot = grant->slot,
                                    .generation = grant->generation,
                                    .version_epoch = epoch,
                                    .version_counter = version_counter};
    struct message_event event = {0};
    struct message_poll poll;
    struct letter *letter;

    world->now += 10 * MS;
    letter = poll_now(world, &poll);
    answer_poll(world, letter->tag, epoch, &order, 1);
    free(letter);
    world->now += 10 * MS;
    letter = poll_now(world, &poll);
    if (items_next_event(&poll.events, &event) == 1) {
        assert_int_equal(event.slot, grant->slot);
        assert_int_equal(event.generation, grant->generation);
    }
    answer_poll(world, letter->tag, epoch, NULL, 0);
    free(letter);
    return event.kind;
}

#endif

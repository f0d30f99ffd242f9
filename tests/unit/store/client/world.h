/* world.h - a client core with the test as its master, its owners and its I/O.
 *
 * world_run carries an operation to its end and counts what that took. How letters are answered is set by members; each
 * letter is also shown to `watch` first, which may answer it itself.
 */
#ifndef TESTS_STORE_CLIENT_WORLD_H
#define TESTS_STORE_CLIENT_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "base/clock.h"
#include "base/random.h"
#include "store/client/client.h"
#include "wire/endian.h"

#define MS CLOCK_MILLISECOND
#define OWNERS_MAX 4u
#define TYPES 32u
#define OBJECTS_MAX 8192u
#define SEGMENT_SIZE (64u << 20)

struct object {
    struct key_hash hash;
    uint64_t length;
    uint32_t count;
    struct message_place places[REPLICAS_MAX];
    bool there;
};

struct world {
    struct client *client;
    struct outbox out;
    uint64_t now;
    struct client_op op;
    uint32_t probe_short; /* answers to PROBE lack so many bytes */

    /* The master. */
    uint64_t epoch, sequence, settled, lease, owners_version, versions;
    struct items floors;
    struct object *objects;
    uint32_t object_count;
    int32_t verdict; /* of each publication */

    /* The owners. */
    uint32_t owners;
    bool full[OWNERS_MAX];
    bool drains[OWNERS_MAX];
    bool together;     /* all owners are of one process, but for the last */
    uint64_t granted;  /* slots, ever; generations and slots follow from it */
    uint64_t released; /* slots */
    uint64_t cancelled;

    /* The I/O. */
    int32_t write_status, read_status;
    bool unreachable;         /* attaching fails */
    int32_t refuse[TYPES];    /* letters of this type fail with this status … */
    uint32_t refusals[TYPES]; /* … so many times */
    bool (*watch)(struct world *world, struct client_op *op, const struct letter *letter);

    struct random *flip; /* one byte of each answer is changed */

    /* What was seen. */
    uint32_t letters[TYPES];
    uint32_t stages, attaches, writes, reads, waits, write_stages, read_stages, detached;
    uint64_t asked;                       /* slots asked for last */
    struct message_publication published; /* the last one; its bytes are gone */
    uint64_t publish_floor;
    uint32_t lookup_flags;
};

static inline struct message_id id_of(uint32_t number) {
    struct message_id id = {{(uint8_t)(number + 1), 0xab, 0xcd}};

    return id;
}

static inline uint32_t owner_of(const struct message_id *id) {
    return id->bytes[0] - 1u;
}

static inline struct message_bytes world_stamp(struct world *world) {
    static uint8_t bytes[4096];
    struct message_stamp stamp = {.epoch = world->epoch,
                                  .lease = world->lease,
                                  .sequence = world->sequence,
                                  .settled = world->settled,
                                  .floors = items_bytes(&world->floors)};
    int64_t size = message_pack_stamp(&stamp, bytes, sizeof(bytes));

    assert_true(size > 0);
    return (struct message_bytes){.data = bytes, .length = (uint32_t)size};
}

/* Answers a letter with a message; a copy without anything behind it shows the address sanitizer each byte too much. */
#define WORLD_ANSWER(world, op, letter, name, message)                                                            \
    do {                                                                                                          \
        int64_t size_ = message_pack_##name((message), NULL, 0);                                                  \
        uint8_t *body_ = malloc(size_ > 0 ? (size_t)size_ : 1);                                                   \
        assert_true(size_ >= 0);                                                                                  \
        message_pack_##name((message), body_, (size_t)size_);                                                     \
        if ((world)->flip != NULL && size_ > 0)                                                                   \
            body_[random_below((world)->flip, (uint64_t)size_)] = (uint8_t)random_next((world)->flip);            \
        client_answer((world)->client, (world)->now, (op), (letter)->tag, MC_OK, (uint16_t)((letter)->type + 1u), \
                      body_, (size_t)size_);                                                                      \
        free(body_);                                                                                              \
    } while (0)

static inline void world_refuse(struct world *world, struct client_op *op, const struct letter *letter,
                                int32_t status) {
    client_answer(world->client, world->now, op, letter->tag, status, (uint16_t)(letter->type + 1u), NULL, 0);
}

/* ---- The owners ---- */

static inline void world_reserve(struct world *world, struct client_op *op, const struct letter *letter) {
    struct message_reserved reserved = {0};
    struct message_reserve reserve;
    struct items grants;

    items_init(&grants);
    assert_int_equal(message_unpack_reserve(letter->body, letter->length, &reserve), MC_OK);
    assert_true(message_id_equal(&reserve.segment, &letter->to));
    world->asked = reserve.count;
    if (world->full[owner_of(&letter->to)]) {
        world_refuse(world, op, letter, MC_ERR_NO_SPACE);
        return;
    }
    for (uint32_t i = 0; i < reserve.count; i++) {
        struct message_grant grant = {.slot = (world->granted % 4096) * 64, .generation = world->granted + 1};

        grant.offset = (1u << 20) + (world->granted * 64) % (8u << 20);
        world->granted++;
        items_add_grant(&grants, &grant);
    }
    reserved.grants = items_bytes(&grants);
    WORLD_ANSWER(world, op, letter, reserved, &reserved);
    items_clear(&grants);
}

static inline void world_release(struct world *world, struct client_op *op, const struct letter *letter) {
    struct message_released released = {0};
    struct message_release release;

    assert_int_equal(message_unpack_release(letter->body, letter->length, &release), MC_OK);
    world->released += (uint64_t)items_count(release.grants);
    world->cancelled += (uint64_t)items_count(release.cancels);
    WORLD_ANSWER(world, op, letter, released, &released);
}

/* ---- The master ---- */

static inline void world_beat(struct world *world, struct client_op *op, const struct letter *letter) {
    struct message_beaten beaten = {.owners_version = world->owners_version};
    struct message_beat beat;
    struct items owners;

    items_init(&owners);
    assert_int_equal(message_unpack_beat(letter->body, letter->length, &beat), MC_OK);
    for (uint32_t i = 0; i < world->owners && beat.owners_version != world->owners_version; i++) {
        char name[16];
        struct message_owner owner = {.segment = id_of(i), .size = SEGMENT_SIZE, .free = SEGMENT_SIZE / 2};

        owner.state = world->drains[i] ? SEGMENT_DRAINS : SEGMENT_SERVES;

        snprintf(name, sizeof(name), "owner%u", i);
        owner.address = owner.name = (struct message_bytes){(const uint8_t *)name, (uint32_t)strlen(name)};
        if (world->together && i + 1 < world->owners)
            owner.address = (struct message_bytes){(const uint8_t *)"together", 8};
        items_add_owner(&owners, &owner);
    }
    beaten.stamp = world_stamp(world);
    beaten.owners = items_bytes(&owners);
    WORLD_ANSWER(world, op, letter, beaten, &beaten);
    items_clear(&owners);
}

static inline struct object *world_object(struct world *world, struct message_bytes key, bool make) {
    struct key_hash hash = key_hash(key.data, key.length);

    for (uint32_t i = 0; i < world->object_count; i++)
        if (key_hash_equal(&world->objects[i].hash, &hash))
            return &world->objects[i];
    if (!make)
        return NULL;
    assert_true(world->object_count < OBJECTS_MAX);
    world->objects[world->object_count] = (struct object){.hash = hash};
    return &world->objects[world->object_count++];
}

static inline void world_publish(struct world *world, struct client_op *op, const struct letter *letter) {
    struct message_published published = {0};
    struct message_publication publication;
    struct message_publish publish;
    struct items verdicts;

    items_init(&verdicts);
    assert_int_equal(message_unpack_publish(letter->body, letter->length, &publish), MC_OK);
    world->publish_floor = publish.floor;
    if (publish.epoch != world->epoch) {
        world_refuse(world, op, letter, MC_ERR_EPOCH);
        return;
    }
    while (items_next_publication(&publish.items, &publication) == 1) {
        struct message_verdict verdict = {.sequence = publication.sequence, .status = (uint32_t)world->verdict};
        struct object *object = world_object(world, publication.key, true);

        world->published = publication;
        verdict.version_epoch = publication.version_epoch != 0 ? publication.version_epoch : world->epoch;
        verdict.version_counter = publication.version_epoch != 0 ? publication.version_counter : ++world->versions;
        if (world->verdict == MC_OK) {
            object->there = true;
            object->length = publication.length;
            object->count = 0;
            while (items_next_place(&publication.places, &object->places[object->count]) == 1)
                object->count++;
        }
        items_add_verdict(&verdicts, &verdict);
    }
    world->sequence++;
    published.stamp = world_stamp(world);
    published.verdicts = items_bytes(&verdicts);
    WORLD_ANSWER(world, op, letter, published, &published);
    items_clear(&verdicts);
}

static inline void world_finding(struct items *findings, const struct object *object) {
    struct message_finding finding = {.status = (uint32_t)MC_ERR_NOT_FOUND};
    struct items locations, places;

    items_init(&locations);
    items_init(&places);
    if (object != NULL && object->there) {
        struct message_location location = {.version_epoch = 1, .version_counter = 1, .length = object->length};

        for (uint32_t i = 0; i < object->count; i++)
            items_add_place(&places, &object->places[i]);
        location.places = items_bytes(&places);
        items_add_location(&locations, &location);
        finding.status = MC_OK;
        finding.locations = items_bytes(&locations);
    }
    items_add_finding(findings, &finding);
    items_clear(&places);
    items_clear(&locations);
}

static inline void world_lookup(struct world *world, struct client_op *op, const struct letter *letter) {
    struct message_located located = {0};
    struct message_lookup lookup;
    struct message_bytes key;
    struct items findings;

    items_init(&findings);
    assert_int_equal(message_unpack_lookup(letter->body, letter->length, &lookup), MC_OK);
    world->lookup_flags = lookup.flags;
    while (items_next(&lookup.keys, &key) == 1)
        world_finding(&findings, world_object(world, key, false));
    located.stamp = world_stamp(world);
    located.findings = items_bytes(&findings);
    WORLD_ANSWER(world, op, letter, located, &located);
    items_clear(&findings);
}

static inline void world_probe(struct world *world, struct client_op *op, const struct letter *letter) {
    struct message_probed probed = {0};
    struct message_probe probe;
    uint8_t *found;

    assert_int_equal(message_unpack_probe(letter->body, letter->length, &probe), MC_OK);
    assert_int_equal(probe.hashes.length % 16, 0);
    found = calloc(1, probe.hashes.length / 16);
    assert_non_null(found);
    for (uint32_t i = 0; i < probe.hashes.length / 16; i++)
        for (uint32_t k = 0; k < world->object_count; k++)
            if (world->objects[k].hash.high == endian_get64(probe.hashes.data + 16 * i) &&
                world->objects[k].hash.low == endian_get64(probe.hashes.data + 16 * i + 8))
                found[i] = world->objects[k].there;
    probed.stamp = world_stamp(world);
    probed.found = (struct message_bytes){.data = found, .length = probe.hashes.length / 16 - world->probe_short};
    WORLD_ANSWER(world, op, letter, probed, &probed);
    free(found);
}

static inline void world_remove(struct world *world, struct client_op *op, const struct letter *letter) {
    struct message_removed removed = {0};
    struct message_removal removal;
    struct message_remove remove;
    struct items verdicts;

    items_init(&verdicts);
    assert_int_equal(message_unpack_remove(letter->body, letter->length, &remove), MC_OK);
    while (items_next_removal(&remove.items, &removal) == 1) {
        struct object *object = world_object(world, removal.key, false);
        struct message_verdict verdict = {.sequence = removal.sequence, .status = (uint32_t)MC_ERR_NOT_FOUND};

        if (object != NULL && object->there)
            verdict.status = MC_OK;
        if (object != NULL)
            object->there = false;
        items_add_verdict(&verdicts, &verdict);
    }
    world->sequence++;
    removed.stamp = world_stamp(world);
    removed.verdicts = items_bytes(&verdicts);
    WORLD_ANSWER(world, op, letter, removed, &removed);
    items_clear(&verdicts);
}

static inline void world_list(struct world *world, struct client_op *op, const struct letter *letter) {
    struct message_listed listed = {.cursor = 7};
    struct items keys;

    items_init(&keys);
    items_append(&keys, "one", 3);
    items_append(&keys, "two", 3);
    listed.stamp = world_stamp(world);
    listed.keys = items_bytes(&keys);
    WORLD_ANSWER(world, op, letter, listed, &listed);
    items_clear(&keys);
}

/* ---- Running ---- */

/* Answers a letter as it is due. */
static inline void world_serve(struct world *world, struct client_op *op, const struct letter *letter) {
    static void (*const serve[TYPES])(struct world *, struct client_op *, const struct letter *) = {
        [MESSAGE_RESERVE] = world_reserve, [MESSAGE_RELEASE] = world_release, [MESSAGE_BEAT] = world_beat,
        [MESSAGE_PUBLISH] = world_publish, [MESSAGE_LOOKUP] = world_lookup,   [MESSAGE_REMOVE] = world_remove,
        [MESSAGE_LIST] = world_list,       [MESSAGE_PROBE] = world_probe,
    };

    assert_true(letter->type < TYPES && serve[letter->type] != NULL);
    world->letters[letter->type]++;
    if (world->watch != NULL && world->watch(world, op, letter))
        return;
    if (world->refusals[letter->type] > 0) {
        world->refusals[letter->type]--;
        world_refuse(world, op, letter, world->refuse[letter->type]);
        return;
    }
    serve[letter->type](world, op, letter);
}

static inline void world_serve_all(struct world *world, struct client_op *op) {
    struct letter *letter;

    while ((letter = outbox_take(&world->out)) != NULL) {
        world_serve(world, op, letter);
        free(letter);
    }
}

/* Carries out the next thing that the operation needs; the answers to its letters, too. */
static inline enum client_need world_next(struct world *world, struct client_op *op) {
    enum client_need need = client_next(world->client, world->now, op, &world->out);

    switch (need) {
    case CLIENT_SEND:
        world->stages++;
        assert_false(list_empty(&world->out.letters));
        world_serve_all(world, op);
        break;
    case CLIENT_ATTACH:
        world->attaches++;
        if (world->unreachable)
            client_unreachable(world->client, world->now, op->attach);
        else
            client_attached(world->client, world->now, op->attach);
        break;
    case CLIENT_WRITE:
        world->write_stages++;
        world->writes += (uint32_t)op->write_count;
        for (size_t i = 0; i < op->write_count; i++)
            op->writes[i].status = world->write_status;
        break;
    case CLIENT_READ:
        world->read_stages++;
        world->reads += (uint32_t)op->read_count;
        for (size_t i = 0; i < op->read_count; i++)
            op->reads[i].status = world->read_status;
        break;
    case CLIENT_WAIT:
        world->waits++;
        if (op->wake > world->now)
            world->now = op->wake;
        break;
    default:
        break;
    }
    return need;
}

static inline void world_begin(struct world *world, struct client_op *op, enum client_kind kind,
                               struct client_item *items, size_t count, const struct client_put_options *options) {
    client_begin(world->client, world->now, op, kind, items, count, options,
                 clock_after(world->now, 10 * CLOCK_SECOND));
}

static inline void world_forget(struct world *world) {
    memset(world->letters, 0, sizeof(world->letters));
    world->stages = world->attaches = world->writes = world->reads = world->waits = 0;
    world->write_stages = world->read_stages = 0;
}

/* A whole operation; what it took is counted anew. */
static inline void world_run(struct world *world, enum client_kind kind, struct client_item *items, size_t count,
                             const struct client_put_options *options) {
    world_forget(world);
    world_begin(world, &world->op, kind, items, count, options);
    while (world_next(world, &world->op) != CLIENT_DONE)
        ;
    client_end(world->client, world->now, &world->op);
}

/* What goes on behind the scenes for so long. */
static inline void world_pass(struct world *world, uint64_t span) {
    uint64_t end = world->now + span;

    for (uint32_t i = 0; client_wake(world->client) <= end; i++) {
        assert_true(i < 100000);
        if (client_wake(world->client) > world->now)
            world->now = client_wake(world->client);
        client_step(world->client, world->now, &world->out);
        world_serve_all(world, NULL);
    }
    world->now = end;
}

static inline struct client_item item_of(const char *key, const char *value) {
    return (struct client_item){.key = key,
                                .key_length = (uint32_t)strlen(key),
                                .value = value,
                                .length = value == NULL ? 4096 : strlen(value)};
}

static inline int32_t world_one(struct world *world, enum client_kind kind, const char *key, const char *value,
                                uint32_t flags) {
    struct client_item item = item_of(key, value);
    struct client_put_options options = {.flags = flags, .replicas = 1};

    world_run(world, kind, &item, 1, &options);
    return item.status;
}

static inline void world_detach(void *context, struct client_segment *segment) {
    (void)segment;
    ((struct world *)context)->detached++;
}

static inline void world_init(struct world *world, uint32_t owners) {
    struct client_options options = {.id = id_of(99),
                                     .timing = STORE_TIMING_DEFAULT,
                                     .seed = 1,
                                     .stock_bytes = 8u << 20,
                                     .cached = 64,
                                     .detach = world_detach,
                                     .context = world};

    *world = (struct world){.now = 100 * CLOCK_SECOND,
                            .epoch = 5,
                            .sequence = 10,
                            .lease = 5 * CLOCK_SECOND,
                            .owners_version = 3,
                            .owners = owners};
    outbox_init(&world->out);
    items_init(&world->floors);
    world->objects = calloc(OBJECTS_MAX, sizeof(struct object));
    assert_non_null(world->objects);
    assert_int_equal(client_new(&options, &world->client), MC_OK);
}

static inline void world_clear(struct world *world) {
    client_free(world->client);
    outbox_clear(&world->out);
    items_clear(&world->floors);
    free(world->objects);
}

static inline int world_set_up(void **state) {
    *state = malloc(sizeof(struct world));
    assert_non_null(*state);
    world_init(*state, 2);
    return 0;
}

static inline int world_tear_down(void **state) {
    world_clear(*state);
    free(*state);
    return 0;
}

#define WORLD_TEST(name) cmocka_unit_test_setup_teardown(name, world_set_up, world_tear_down)

#endif

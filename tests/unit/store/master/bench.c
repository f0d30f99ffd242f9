/* tests/unit/store/master/bench.c - see bench.h. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/endian.h"

static uint8_t kept[1u << 20];

static void members_changed(void *context, struct master *master) {
    (void)master;
    ((struct bench *)context)->changes++;
}

struct bench *bench_open(const struct bench_options *options) {
    struct bench *bench = calloc(1, sizeof(*bench));
    struct master_options all = {.timing = STORE_TIMING_DEFAULT,
                                 .policy = "lru",
                                 .high_watermark = 950,
                                 .eviction = 50,
                                 .members_changed = members_changed,
                                 .context = bench};

    assert_non_null(bench);
    all.timing.promote = 0;
    if (options != NULL) {
        all.timing = options->timing;
        all.high_watermark = options->high_watermark;
        all.eviction = options->eviction;
        all.keep_soft_pinned = options->keep_soft_pinned;
        all.soft_pin_ttl = options->soft_pin_ttl;
    }
    outbox_init(&bench->out);
    bench->now = 1000 * MS;
    bench->epoch = EPOCH;
    assert_int_equal(master_new(&all, &bench->master), MC_OK);
    return bench;
}

void bench_close(struct bench *bench) {
    master_free(bench->master);
    outbox_clear(&bench->out);
    free(bench);
}

struct bench *bench_serving(uint32_t owners) {
    struct bench *bench = bench_open(NULL);

    master_lead(bench->master, bench->now, EPOCH, UINT64_MAX, NULL, 0, false);
    for (uint32_t owner = 1; owner <= owners; owner++)
        assert_int_equal(bench_mount(bench, owner, NULL, 0), MC_OK);
    return bench;
}

struct message_id bench_owner(uint32_t owner) {
    return (struct message_id){.bytes = {'o', (uint8_t)owner, (uint8_t)(owner >> 8)}};
}

struct message_id bench_client(uint32_t client) {
    return (struct message_id){.bytes = {'c', (uint8_t)client}};
}

struct message_place bench_place(uint32_t owner, uint64_t generation) {
    return (struct message_place){
        .segment = bench_owner(owner), .slot = generation * 64, .generation = generation, .offset = generation * 4096};
}

uint64_t bench_send(struct bench *bench, uint16_t type, const void *body, size_t length) {
    uint64_t tag = ++bench->tag;
    uint8_t *copy = malloc(length == 0 ? 1 : length); /* so that a sanitizer sees what is read behind it */

    assert_non_null(copy);
    if (length > 0)
        memcpy(copy, body, length);
    master_request(bench->master, bench->now, tag, type, copy, length, &bench->out);
    free(copy);
    return tag;
}

#define RECORD(NAME, name, fields)
#define MESSAGE(NAME, name, number, fields)                                                 \
    uint64_t bench_send_##name(struct bench *bench, const struct message_##name *message) { \
        static uint8_t body[1u << 20];                                                      \
        int64_t size = message_pack_##name(message, body, sizeof(body));                    \
                                                                                            \
        assert_true(size >= 0);                                                             \
        return bench_send(bench, (number), body, (size_t)size);                             \
    }
#include "wire/messages.def"
#undef MESSAGE
#undef RECORD

struct letter *bench_take(struct bench *bench, uint64_t tag) {
    struct list *node, *after;

    list_each (node, after, &bench->out.letters) {
        struct letter *letter = list_entry(node, struct letter, node);

        if (letter->tag == tag) {
            list_remove(&letter->node);
            return letter;
        }
    }
    return NULL;
}

int32_t bench_status(struct bench *bench, uint64_t tag) {
    struct letter *letter = bench_take(bench, tag);
    int32_t status = letter == NULL ? SILENT : letter->status;

    free(letter);
    return status;
}

uint64_t bench_publish(struct bench *bench, uint32_t client, uint64_t sequence, const char *key, uint32_t flags,
                       uint64_t version_epoch, uint64_t version_counter, const struct message_place *places,
                       uint32_t count) {
    struct message_publish publish = {
        .client = bench_client(client), .epoch = bench->epoch, .floor = bench->floors[client % 8]};
    struct message_publication item = {.sequence = sequence,
                                       .flags = flags,
                                       .version_epoch = version_epoch,
                                       .version_counter = version_counter,
                                       .length = 1000,
                                       .key = {(const uint8_t *)key, (uint32_t)strlen(key)}};
    struct items list, items;
    uint64_t tag;

    items_init(&list);
    items_init(&items);
    for (uint32_t n = 0; n < count; n++)
        assert_true(items_add_place(&list, &places[n]));
    item.places = items_bytes(&list);
    assert_true(items_add_publication(&items, &item));
    publish.items = items_bytes(&items);
    tag = bench_send_publish(bench, &publish);
    items_clear(&list);
    items_clear(&items);
    return tag;
}

uint64_t bench_put(struct bench *bench, uint32_t client, uint64_t sequence, const char *key, uint32_t flags,
                   uint32_t owner, uint64_t generation) {
    struct message_place place = bench_place(owner, generation);

    return bench_publish(bench, client, sequence, key, flags, 0, 0, &place, 1);
}

uint64_t bench_remove(struct bench *bench, uint32_t client, uint64_t sequence, const char *key) {
    struct message_remove remove = {
        .client = bench_client(client), .epoch = bench->epoch, .floor = bench->floors[client % 8]};
    struct message_removal item = {.sequence = sequence, .key = {(const uint8_t *)key, (uint32_t)strlen(key)}};
    struct items items;
    uint64_t tag;

    items_init(&items);
    assert_true(items_add_removal(&items, &item));
    remove.items = items_bytes(&items);
    tag = bench_send_remove(bench, &remove);
    items_clear(&items);
    return tag;
}

int32_t bench_verdict(struct bench *bench, uint64_t tag, struct message_verdict *ret_verdict) {
    struct letter *letter = bench_take(bench, tag);
    struct message_published published;
    struct message_verdict verdict;
    int32_t status;

    if (letter == NULL)
        return SILENT;
    status = letter->status;
    if (status == MC_OK) {
        assert_int_equal(message_unpack_published(letter->body, letter->length, &published), MC_OK);
        assert_int_equal(items_count(published.verdicts), 1);
        assert_int_equal(items_next_verdict(&published.verdicts, &verdict), 1);
        status = (int32_t)verdict.status;
        if (ret_verdict != NULL)
            *ret_verdict = verdict;
    }
    free(letter);
    return status;
}

static int32_t read_places(struct message_bytes locations, struct message_place *ret_places) {
    struct message_location location;
    struct message_place place;
    int32_t count = 0;

    while (items_next_location(&locations, &location) == 1)
        while (items_next_place(&location.places, &place) == 1) {
            if (ret_places != NULL)
                ret_places[count] = place;
            count++;
        }
    return count;
}

int32_t bench_lookup(struct bench *bench, const char *key, uint32_t flags, struct message_place *ret_places) {
    struct message_lookup lookup = {.client = bench_client(99), .epoch = bench->epoch, .flags = flags};
    struct message_located located;
    struct message_finding finding;
    struct letter *letter;
    struct items keys;
    int32_t result;

    items_init(&keys);
    assert_true(items_append(&keys, key, (uint32_t)strlen(key)));
    lookup.keys = items_bytes(&keys);
    letter = bench_take(bench, bench_send_lookup(bench, &lookup));
    items_clear(&keys);
    if (letter == NULL)
        return SILENT;
    result = letter->status;
    if (result == MC_OK) {
        assert_int_equal(message_unpack_located(letter->body, letter->length, &located), MC_OK);
        assert_int_equal(items_next_finding(&located.findings, &finding), 1);
        result = (int32_t)finding.status;
        if (result == MC_OK)
            result = read_places(finding.locations, ret_places);
    }
    free(letter);
    assert_int_equal(bench_probe(bench, key), result == MC_ERR_NOT_FOUND ? 0 : result > 0 ? 1 : result);
    return result;
}

int32_t bench_probe(struct bench *bench, const char *key) {
    struct message_probe probe = {.client = bench_client(99), .epoch = bench->epoch};
    struct key_hash hash = key_hash(key, strlen(key));
    struct message_probed probed;
    struct letter *letter;
    uint8_t bytes[16];
    int32_t result;

    endian_put64(bytes, hash.high);
    endian_put64(bytes + 8, hash.low);
    probe.hashes = (struct message_bytes){.data = bytes, .length = sizeof(bytes)};
    letter = bench_take(bench, bench_send_probe(bench, &probe));
    if (letter == NULL)
        return SILENT;
    result = letter->status;
    if (result == MC_OK) {
        assert_int_equal(message_unpack_probed(letter->body, letter->length, &probed), MC_OK);
        assert_int_equal(probed.found.length, 1);
        result = probed.found.data[0];
    }
    free(letter);
    return result;
}

struct message_stamp bench_beat(struct bench *bench, uint32_t client) {
    struct message_beat beat = {.client = bench_client(client), .epoch = bench->epoch};
    struct letter *letter = bench_take(bench, bench_send_beat(bench, &beat));
    struct message_beaten beaten;
    struct message_stamp stamp;

    assert_non_null(letter);
    assert_int_equal(letter->status, MC_OK);
    memcpy(kept, letter->body, letter->length);
    assert_int_equal(message_unpack_beaten(kept, letter->length, &beaten), MC_OK);
    assert_int_equal(message_unpack_stamp(beaten.stamp.data, beaten.stamp.length, &stamp), MC_OK);
    free(letter);
    return stamp;
}

uint64_t bench_floor(const struct message_stamp *stamp, uint32_t owner) {
    struct message_id id = bench_owner(owner);
    struct message_bytes list = stamp->floors;
    struct message_floor floor;

    while (items_next_floor(&list, &floor) == 1)
        if (message_id_equal(&floor.segment, &id))
            return floor.sequence;
    return 0;
}

int32_t bench_mount(struct bench *bench, uint32_t owner, const struct bench_holding *holdings, uint32_t count) {
    struct message_mount mount = {.segment = bench_owner(owner),
                                  .epoch = bench->epoch,
                                  .last = 1,
                                  .address = {(const uint8_t *)"host:1", 6},
                                  .name = {(const uint8_t *)"host", 4},
                                  .size = SEGMENT_SIZE,
                                  .free = SEGMENT_SIZE};
    struct items items;
    int32_t status;

    items_init(&items);
    for (uint32_t n = 0; n < count; n++) {
        struct message_place place = bench_place(owner, holdings[n].generation);
        struct message_holding holding = {.state = holdings[n].state,
                                          .slot = place.slot,
                                          .generation = place.generation,
                                          .offset = place.offset,
                                          .length = 1000,
                                          .version_epoch = holdings[n].version_epoch,
                                          .version_counter = holdings[n].version_counter,
                                          .key = {(const uint8_t *)holdings[n].key, (uint32_t)strlen(holdings[n].key)}};

        assert_true(items_add_holding(&items, &holding));
    }
    mount.holdings = items_bytes(&items);
    status = bench_status(bench, bench_send_mount(bench, &mount));
    items_clear(&items);
    return status;
}

uint64_t bench_poll_full(struct bench *bench, uint32_t owner, uint32_t kind, uint64_t generation, uint64_t free,
                         uint64_t wanted) {
    struct message_poll poll = {.segment = bench_owner(owner), .epoch = bench->epoch, .free = free, .wanted = wanted};
    struct message_event event = {.kind = kind, .slot = generation * 64, .generation = generation};
    struct items events;
    uint64_t tag;

    items_init(&events);
    if (kind != 0)
        assert_true(items_add_event(&events, &event));
    poll.events = items_bytes(&events);
    tag = bench_send_poll(bench, &poll);
    items_clear(&events);
    return tag;
}

uint64_t bench_poll(struct bench *bench, uint32_t owner, uint32_t kind, uint64_t generation) {
    return bench_poll_full(bench, owner, kind, generation, SEGMENT_SIZE, 0);
}

int bench_commands(struct bench *bench, uint64_t tag, struct message_command *commands, int capacity) {
    struct letter *letter = bench_take(bench, tag);
    struct message_commands answer;
    struct message_command command;
    int count = 0;

    if (letter == NULL)
        return -1;
    if (letter->status != MC_OK) {
        free(letter);
        return -2;
    }
    assert_int_equal(message_unpack_commands(letter->body, letter->length, &answer), MC_OK);
    while (items_next_command(&answer.commands, &command) == 1) {
        if (count < capacity)
            commands[count] = command;
        count++;
    }
    free(letter);
    return count;
}

int bench_obey(struct bench *bench, uint32_t owner) {
    static struct message_command commands[4096];
    struct message_poll poll = {.segment = bench_owner(owner), .epoch = bench->epoch, .free = SEGMENT_SIZE};
    int total = 0, count;
    uint64_t tag;

    for (;;) {
        struct items events;

        tag = bench_send_poll(bench, &poll);
        if (poll.events.data != NULL)
            free((void *)(uintptr_t)poll.events.data);
        poll.events = (struct message_bytes){0};
        count = bench_commands(bench, tag, commands, 4096);
        if (count <= 0)
            break;
        total += count;
        items_init(&events);
        for (int n = 0; n < count; n++) {
            static const uint32_t answers[] = {0, EVENT_KILLED, EVENT_PROMOTED, EVENT_NOT_RESERVED, 0};
            struct message_event event = {
                .kind = answers[commands[n].kind], .slot = commands[n].slot, .generation = commands[n].generation};

            if (event.kind != 0)
                assert_true(items_add_event(&events, &event));
        }
        poll.events = items_bytes(&events);
    }
    master_forget(bench->master, tag);
    return total;
}

void bench_step(struct bench *bench) {
    master_step(bench->master, bench->now, &bench->out);
}

void bench_advance(struct bench *bench, uint64_t duration) {
    uint64_t end = bench->now + duration;
    uint32_t steps = 0;

    for (;;) {
        uint64_t wake = master_wake(bench->master);

        if (wake > end)
            break;
        if (wake > bench->now)
            bench->now = wake;
        bench_step(bench);
        assert_true(++steps < 1000000);
    }
    bench->now = end;
}

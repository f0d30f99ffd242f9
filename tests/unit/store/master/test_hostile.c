/* Messages that nobody should send, and orders in which nobody should send them: a status, and nothing worse. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "wire/frame.h"

static const char *const keys[] = {"a", "b", "c", "d", "e"};

static const uint16_t types[] = {MESSAGE_PUBLISH, MESSAGE_LOOKUP, MESSAGE_REMOVE, MESSAGE_LIST,
                                 MESSAGE_BEAT,    MESSAGE_MOUNT,  MESSAGE_POLL,   MESSAGE_UNMOUNT};

static void bytes_at_random_are_refused_or_answered(void **state) {
    struct bench *bench = bench_serving(2);
    struct random random = {.state = 4};
    uint8_t body[300];

    (void)state;
    for (uint32_t round = 0; round < 20000; round++) {
        size_t length = random_below(&random, sizeof(body));

        for (size_t n = 0; n < length; n++)
            body[n] = random_below(&random, 3) == 0 ? (uint8_t)random_next(&random) : (uint8_t)random_below(&random, 4);
        bench_send(bench, round % 50 == 0 ? (uint16_t)random_below(&random, 65536) : types[round % 8], body, length);
        outbox_clear(&bench->out);
    }
    bench_close(bench);
}

/* A PUBLISH with two replicas, cut after each of its bytes. */
static void a_message_cut_anywhere_changes_nothing_that_it_doesnt_say(void **state) {
    struct bench *bench = bench_serving(1);
    struct message_place places[2] = {bench_place(1, 5), bench_place(1, 6)};
    struct message_publish publish = {.client = bench_client(1), .epoch = EPOCH};
    struct message_publication item = {.sequence = 1, .length = 10, .key = {(const uint8_t *)"k", 1}};
    struct items list, items;
    uint8_t body[1024];
    int64_t size;

    (void)state;
    items_init(&list);
    items_init(&items);
    items_add_place(&list, &places[0]);
    items_add_place(&list, &places[1]);
    item.places = items_bytes(&list);
    items_add_publication(&items, &item);
    publish.items = items_bytes(&items);
    size = message_pack_publish(&publish, body, sizeof(body));
    for (int64_t length = 0; length < size; length++) {
        int32_t status = bench_status(bench, bench_send(bench, MESSAGE_PUBLISH, body, (size_t)length));

        /* A body may end between two fields: that is an older peer's. */
        assert_true(status == MC_ERR_PROTOCOL || status == MC_ERR_EPOCH || status == MC_OK);
        assert_int_equal(master_count(bench->master).keys, 0);
    }
    assert_int_equal(bench_status(bench, bench_send(bench, MESSAGE_PUBLISH, body, (size_t)size)), MC_OK);
    assert_int_equal(master_count(bench->master).keys, 1);
    items_clear(&list);
    items_clear(&items);
    bench_close(bench);
}

static int32_t publish_key(struct bench *bench, uint64_t sequence, const char *key, uint32_t places) {
    struct message_place list[REPLICAS_MAX + 1];

    for (uint32_t n = 0; n < REPLICAS_MAX + 1; n++)
        list[n] = bench_place(1, 10 + n);
    return bench_status(bench, bench_publish(bench, 1, sequence, key, 0, 0, 0, list, places));
}

static void publications_that_cant_be_are_refused_whole(void **state) {
    struct bench *bench = bench_serving(1);
    static char key[KEY_MAX + 2];

    (void)state;
    memset(key, 'x', KEY_MAX + 1);
    assert_int_equal(publish_key(bench, 1, key, 1), MC_ERR_PROTOCOL);
    assert_int_equal(publish_key(bench, 1, "", 1), MC_ERR_PROTOCOL);
    assert_int_equal(publish_key(bench, 1, "k", 0), MC_ERR_PROTOCOL);
    assert_int_equal(publish_key(bench, 1, "k", REPLICAS_MAX + 1), MC_ERR_PROTOCOL);
    assert_int_equal(publish_key(bench, 0, "k", 1), MC_ERR_PROTOCOL);
    assert_int_equal(master_count(bench->master).keys, 0);
    key[KEY_MAX] = '\0';
    assert_int_equal(publish_key(bench, 1, key, REPLICAS_MAX), MC_OK);
    assert_int_equal(master_count(bench->master).keys, 1);
    bench_close(bench);
}

static void a_place_outside_its_segment_or_twice_is_no_place(void **state) {
    struct bench *bench = bench_serving(1);
    struct message_place place = bench_place(1, 5), twice[2] = {bench_place(1, 9), bench_place(1, 9)};

    (void)state;
    place.offset = SEGMENT_SIZE - 100;
    assert_int_equal(bench_verdict(bench, bench_publish(bench, 1, 1, "k", 0, 0, 0, &place, 1), NULL), MC_ERR_GONE);
    place.offset = UINT64_MAX - 10;
    assert_int_equal(bench_verdict(bench, bench_publish(bench, 1, 2, "k", 0, 0, 0, &place, 1), NULL), MC_ERR_GONE);
    place = bench_place(1, 5);
    place.slot = SEGMENT_SIZE;
    assert_int_equal(bench_verdict(bench, bench_publish(bench, 1, 3, "k", 0, 0, 0, &place, 1), NULL), MC_ERR_GONE);
    place = bench_place(1, 0);
    assert_int_equal(bench_verdict(bench, bench_publish(bench, 1, 4, "k", 0, 0, 0, &place, 1), NULL), MC_ERR_GONE);
    assert_int_equal(bench_verdict(bench, bench_publish(bench, 1, 5, "k", 0, 0, 0, twice, 2), NULL), MC_OK);
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), 1);
    bench_close(bench);
}

static void a_slot_that_is_one_keys_is_not_anothers(void **state) {
    struct bench *bench = bench_serving(1);

    (void)state;
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 1, "k", 0, 1, 5), NULL), MC_OK);
    assert_int_equal(bench_verdict(bench, bench_put(bench, 2, 1, "other", 0, 1, 5), NULL), MC_ERR_GONE);
    assert_int_equal(bench_lookup(bench, "other", 0, NULL), MC_ERR_NOT_FOUND);
    bench_close(bench);
}

static void one_number_for_a_put_and_a_removal_is_refused(void **state) {
    struct bench *bench = bench_serving(1);

    (void)state;
    assert_int_equal(bench_verdict(bench, bench_put(bench, 1, 1, "k", 0, 1, 5), NULL), MC_OK);
    assert_int_equal(bench_verdict(bench, bench_remove(bench, 1, 1, "k"), NULL), MC_ERR_PROTOCOL);
    assert_int_equal(bench_lookup(bench, "k", 0, NULL), 1);
    bench_close(bench);
}

static void a_version_of_this_epoch_or_later_cant_be_published_again(void **state) {
    struct bench *bench = bench_serving(1);
    struct message_place place = bench_place(1, 5);

    (void)state;
    assert_int_equal(bench_verdict(bench, bench_publish(bench, 1, 1, "k", 0, EPOCH, 99, &place, 1), NULL), MC_ERR_GONE);
    assert_int_equal(bench_verdict(bench, bench_publish(bench, 1, 2, "k", 0, UINT64_MAX, 1, &place, 1), NULL),
                     MC_ERR_GONE);
    bench_close(bench);
}

static void holdings_that_cant_be_are_refused(void **state) {
    struct bench *bench = bench_serving(0);
    struct bench_holding bad_state = {SLOT_DEAD, 5, 1, 1, "k"}, no_version = {SLOT_LIVE, 5, 0, 0, "k"},
                         no_key = {SLOT_LIVE, 5, 1, 1, ""}, no_generation = {SLOT_LIVE, 0, 1, 1, "k"},
                         outside = {SLOT_LIVE, SEGMENT_SIZE, 1, 1, "k"};

    (void)state;
    assert_int_equal(bench_mount(bench, 1, &bad_state, 1), MC_ERR_PROTOCOL);
    assert_int_equal(bench_mount(bench, 1, &no_version, 1), MC_ERR_PROTOCOL);
    assert_int_equal(bench_mount(bench, 1, &no_key, 1), MC_ERR_PROTOCOL);
    assert_int_equal(bench_mount(bench, 1, &no_generation, 1), MC_ERR_PROTOCOL);
    assert_int_equal(bench_mount(bench, 1, &outside, 1), MC_ERR_PROTOCOL);
    assert_int_equal(master_count(bench->master).members, 0);
    bench_close(bench);
}

static void requests_that_wait_are_bounded_for_each_client(void **state) {
    struct bench *bench = bench_serving(1);
    uint64_t first, second, last = 0;

    (void)state;
    bench_put(bench, 1, 1, "k", 0, 1, 5);
    first = bench_put(bench, 2, 1, "k", PUBLISH_UPSERT, 1, 6);
    second = bench_put(bench, 2, 2, "k", PUBLISH_UPSERT, 1, 7);
    for (uint32_t n = 0; n < 1023; n++)
        last = bench_put(bench, 2, 3 + n, "k", PUBLISH_UPSERT, 1, 8 + n);
    assert_int_equal(bench_verdict(bench, first, NULL), MC_ERR_UNAVAILABLE);
    assert_int_equal(bench_verdict(bench, second, NULL), SILENT);
    assert_int_equal(bench_verdict(bench, last, NULL), SILENT);
    assert_int_equal(master_count(bench->master).waiting, 1024);
    bench_close(bench);
}

static void orphans_without_end_are_dropped_a_bounded_number_at_a_time(void **state) {
    struct bench *bench = bench_serving(1);
    struct message_poll poll = {.segment = bench_owner(1), .epoch = EPOCH, .free = SEGMENT_SIZE};
    struct items events;
    int count;

    (void)state;
    items_init(&events);
    for (uint64_t n = 1; n <= 5000; n++) {
        struct message_event event = {.kind = EVENT_ORPHAN, .slot = n * 64, .generation = n};

        assert_true(items_add_event(&events, &event));
    }
    poll.events = items_bytes(&events);
    count = bench_commands(bench, bench_send_poll(bench, &poll), NULL, 0);
    assert_true(count > 0 && count <= 2000);
    items_clear(&events);
    bench_close(bench);
}

/* ---- Any order of well-formed messages ---- */

static uint32_t below(struct random *random, uint32_t bound) {
    return (uint32_t)random_below(random, bound);
}

static void publish_something(struct bench *bench, struct random *random) {
    struct message_place places[3];
    uint32_t count = 1 + below(random, 3), flags = below(random, 16);
    uint64_t again = below(random, 4) == 0 ? bench->epoch - 1 : 0;

    for (uint32_t n = 0; n < count; n++)
        places[n] = bench_place(1 + below(random, 4), 1 + below(random, 60));
    bench_publish(bench, 1 + below(random, 3), 1 + below(random, 200), keys[below(random, 5)], flags, again,
                  again == 0 ? 0 : 1 + below(random, 6), places, count);
}

static void mount_something(struct bench *bench, struct random *random) {
    struct bench_holding holdings[6];
    uint32_t count = below(random, 7);

    for (uint32_t n = 0; n < count; n++)
        holdings[n] = (struct bench_holding){.state = below(random, 2) == 0 ? SLOT_LIVE : SLOT_RESERVED,
                                             .generation = 1 + below(random, 60),
                                             .version_epoch = bench->epoch - 1 - below(random, 2),
                                             .version_counter = 1 + below(random, 6),
                                             .key = keys[below(random, 5)]};
    bench_mount(bench, 1 + below(random, 6), holdings, count);
}

static void new_epoch(struct bench *bench, struct random *random) {
    struct message_id members[8];
    size_t count = master_members(bench->master, members, 8);

    bench->epoch++;
    master_lead(bench->master, bench->now, bench->epoch, bench->now + below(random, 20000) * MS, members,
                count < 8 ? count : 8, below(random, 2) == 0);
}

/* Some of what the master wants, if it talks to this owner at all. */
static void obey_in_part(struct bench *bench, struct random *random, uint32_t owner) {
    static const uint32_t answers[] = {0, EVENT_KILLED, EVENT_PROMOTED, EVENT_NOT_RESERVED, 0};
    struct message_command commands[64];
    int count = bench_commands(bench, bench_poll(bench, owner, 0, 0), commands, 64);

    for (int n = 0; n < count && n < 64; n++)
        if (below(random, 4) > 0)
            bench_poll(bench, owner, answers[commands[n].kind], commands[n].generation);
}

static void do_something(struct bench *bench, struct random *random) {
    uint32_t owner = 1 + below(random, 5);
    struct message_id id = bench_owner(owner);
    uint32_t choice = below(random, 1000);

    if (choice < 300)
        publish_something(bench, random);
    else if (choice < 400)
        bench_remove(bench, 1 + below(random, 3), 200 + below(random, 200), keys[below(random, 5)]);
    else if (choice < 500)
        bench_lookup(bench, keys[below(random, 5)], below(random, 2), NULL);
    else if (choice < 700)
        bench_poll_full(bench, owner, below(random, 6), 1 + below(random, 60), below(random, 1u << 30),
                        below(random, 3) == 0 ? 10000 : 0);
    else if (choice < 800)
        obey_in_part(bench, random, owner);
    else if (choice < 900)
        mount_something(bench, random);
    else if (choice < 980)
        bench_advance(bench, below(random, 3000) * MS);
    else if (choice < 985)
        master_forget(bench->master, 1 + below(random, (uint32_t)bench->tag + 1));
    else if (choice < 988)
        master_expel(bench->master, bench->now, &id);
    else if (choice < 991)
        new_epoch(bench, random);
    else if (choice < 996)
        bench->floors[below(random, 8)] += below(random, 30);
    else
        master_lead(bench->master, bench->now, bench->epoch, bench->now + 20000 * MS, NULL, 0, false);
}

/* Owners that do what they are told, and time: then nothing waits any more. */
static void calm_down(struct bench *bench) {
    master_lead(bench->master, bench->now, bench->epoch, UINT64_MAX, NULL, 0, false);
    for (uint32_t n = 0; n < 100; n++) {
        for (uint32_t owner = 1; owner <= 6; owner++)
            bench_obey(bench, owner);
        bench_advance(bench, 200 * MS);
        outbox_clear(&bench->out);
    }
    assert_true(master_serves(bench->master, bench->now));
    assert_int_equal(master_count(bench->master).kills, 0);
    assert_int_equal(master_count(bench->master).doubts, 0);
    assert_int_equal(master_count(bench->master).waiting, 0);
    for (uint32_t client = 1; client <= 3; client++)
        assert_true(bench_beat(bench, client).settled <= 200);
}

static void whatever_comes_the_master_stays_whole_and_comes_to_rest(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct random random = {.state = seed};
        struct bench *bench = bench_serving(3);

        for (uint32_t n = 0; n < 2000; n++) {
            do_something(bench, &random);
            if (below(&random, 4) == 0)
                bench_step(bench);
            outbox_clear(&bench->out);
        }
        calm_down(bench);
        bench->epoch++;
        master_lead(bench->master, bench->now, bench->epoch, UINT64_MAX, NULL, 0, false);
        bench_step(bench);
        assert_int_equal(master_count(bench->master).keys, 0);
        assert_int_equal(master_wake(bench->master), UINT64_MAX);
        bench_close(bench);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_at_random_are_refused_or_answered),
        cmocka_unit_test(a_message_cut_anywhere_changes_nothing_that_it_doesnt_say),
        cmocka_unit_test(publications_that_cant_be_are_refused_whole),
        cmocka_unit_test(a_place_outside_its_segment_or_twice_is_no_place),
        cmocka_unit_test(a_slot_that_is_one_keys_is_not_anothers),
        cmocka_unit_test(one_number_for_a_put_and_a_removal_is_refused),
        cmocka_unit_test(a_version_of_this_epoch_or_later_cant_be_published_again),
        cmocka_unit_test(holdings_that_cant_be_are_refused),
        cmocka_unit_test(requests_that_wait_are_bounded_for_each_client),
        cmocka_unit_test(orphans_without_end_are_dropped_a_bounded_number_at_a_time),
        cmocka_unit_test(whatever_comes_the_master_stays_whole_and_comes_to_rest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

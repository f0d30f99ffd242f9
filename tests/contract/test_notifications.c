/* test_notifications.c - what one engine tells another arrives whole and in order, whether or not anybody polls. */
#include "contract.h"

#include <poll.h>
#include <stdatomic.h>

static int32_t tell(const struct pair *pair, const void *name, size_t name_length, const void *message, size_t length) {
    return mc_peer_notify(pair->peer, name, name_length, message, length, 10 * SECOND, contract_error());
}

static struct mc_notification *taken(mc_engine *engine) {
    struct mc_notification *got = NULL;

    OK(mc_engine_receive(engine, 10 * SECOND, &got));
    assert_non_null(got);
    return got;
}

static void assert_bytes(const char *bytes, size_t length, const void *wanted, size_t wanted_length) {
    assert_int_equal(length, wanted_length);
    if (wanted_length > 0)
        assert_same(bytes, wanted, length);
    assert_int_equal(bytes[length], '\0');
}

/* Fault 18. */
static void notifications_arrive_in_order_without_polling(void **state) {
    const struct pair *pair = *state;
    char address[ADDRESS_TEXT];

    contract_address(pair->here, address);
    for (uint32_t i = 0; i < 1000; i++)
        OK(tell(pair, "count", 5, &i, sizeof(i)));
    for (uint32_t i = 0; i < 1000; i++) {
        struct mc_notification *got = NULL;

        OK(mc_engine_receive(pair->there, 0, &got)); /* it is there since notify has returned */
        assert_bytes(got->name, got->name_length, "count", 5);
        assert_bytes(got->message, got->message_length, &i, sizeof(i));
        assert_bytes(got->sender, got->sender_length, address, strlen(address));
        mc_notification_free(got);
    }
}

/* Fault 18. */
static void bytes_and_lengths_are_kept(void **state) {
    const struct pair *pair = *state;
    static const struct {
        const char *name, *message;
        size_t name_length, message_length;
    } told[] = {
        {"n", "a\0b", 1, 3},
        {"", "", 0, 0},
        {NULL, NULL, 0, 0},
        {"\0\0\0", "\0", 3, 1},
        {"a\0name", "", 6, 0},
        {"", "only", 0, 4},
        {"\xff\xfe", "\n\r\x80", 2, 3},
    };

    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        struct mc_notification *got;

        OK(tell(pair, told[i].name, told[i].name_length, told[i].message, told[i].message_length));
        got = taken(pair->there);
        assert_bytes(got->name, got->name_length, told[i].name, told[i].name_length);
        assert_bytes(got->message, got->message_length, told[i].message, told[i].message_length);
        mc_notification_free(got);
    }
}

static void the_largest_is_delivered_and_a_larger_one_refused(void **state) {
    const struct pair *pair = *state;
    char *bytes = malloc(MC_NOTIFICATION_MAX + 1);
    static const size_t names[] = {0, 1, 100, MC_NOTIFICATION_MAX};

    assert_non_null(bytes);
    fill(bytes, MC_NOTIFICATION_MAX + 1, 1);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct mc_error *error = contract_error();
        struct mc_notification *got;

        OK(tell(pair, bytes, names[i], bytes, MC_NOTIFICATION_MAX - names[i]));
        got = taken(pair->there);
        assert_bytes(got->name, got->name_length, bytes, names[i]);
        assert_bytes(got->message, got->message_length, bytes, MC_NOTIFICATION_MAX - names[i]);
        mc_notification_free(got);
        IS(MC_ERR_TOO_LARGE,
           mc_peer_notify(pair->peer, bytes, names[i], bytes, MC_NOTIFICATION_MAX - names[i] + 1, SECOND, error));
        assert_true(error->message[0] != '\0');
    }
    IS(MC_ERR_TOO_LARGE, tell(pair, bytes, SIZE_MAX, bytes, SIZE_MAX));
    IS(MC_ERR_TOO_LARGE, tell(pair, bytes, 1, bytes, SIZE_MAX));
    free(bytes);
}

static void a_full_queue_refuses_and_keeps_what_it_accepted(void **state) {
    const struct pair *pair = *state;
    const struct mc_engine_options options = {.struct_size = sizeof(options), .notifications = 10};
    struct mc_notification *got = NULL;
    mc_engine *small;
    uint64_t peer;

    OK(mc_engine_open(&options, &small, contract_error()));
    peer = contract_peer(pair->here, small);
    for (uint32_t i = 0; i < 10; i++)
        OK(mc_peer_notify(peer, "n", 1, &i, sizeof(i), SECOND, contract_error()));
    for (int i = 0; i < 3; i++) {
        struct mc_error *error = contract_error();

        IS(MC_ERR_QUEUE_FULL, mc_peer_notify(peer, "n", 1, "x", 1, SECOND, error));
        assert_true(error->message[0] != '\0');
    }
    for (uint32_t i = 0; i < 10; i++) {
        got = taken(small);
        assert_bytes(got->message, got->message_length, &i, sizeof(i));
        mc_notification_free(got);
        if (i == 0)
            OK(mc_peer_notify(peer, "n", 1, "last", 4, SECOND, contract_error()));
    }
    got = taken(small);
    assert_bytes(got->message, got->message_length, "last", 4);
    mc_notification_free(got);
    IS(MC_ERR_PENDING, mc_engine_receive(small, 0, &got));
    IS(MC_ERR_PENDING, mc_engine_receive(small, MILLISECOND, &got));
    OK(mc_peer_close(peer));
    OK(mc_engine_close(small));
}

static bool readable(int fd, int timeout_ms) {
    struct pollfd polled = {.fd = fd, .events = POLLIN};

    assert_true(fd >= 0);
    return poll(&polled, 1, timeout_ms) == 1;
}

static void the_descriptor_is_readable_exactly_while_a_notification_waits(void **state) {
    const struct pair *pair = *state;
    int fd = mc_engine_notification_fd(pair->there);

    for (int i = 0; i < 3; i++) {
        assert_false(readable(fd, 0));
        OK(tell(pair, "one", 3, NULL, 0));
        OK(tell(pair, "two", 3, NULL, 0));
        assert_true(readable(fd, 10000));
        mc_notification_free(taken(pair->there));
        assert_true(readable(fd, 0));
        mc_notification_free(taken(pair->there));
    }
    assert_false(readable(fd, 0));
    IS(fd, mc_engine_notification_fd(pair->there));
}

static void *receive_one(void *context) {
    struct worker *worker = context;
    struct mc_notification *got = NULL;

    EXPECT(worker, mc_engine_receive(worker->pair->there, MC_FOREVER, &got) == MC_OK);
    if (got != NULL) {
        EXPECT(worker, got->message_length == 1);
        atomic_fetch_or((atomic_uint *)worker->context, 1u << got->message[0]);
    }
    mc_notification_free(got);
    return NULL;
}

static void waiting_receivers_are_woken_each_by_one(void **state) {
    const struct pair *pair = *state;
    struct worker workers[8];
    atomic_uint seen = 0;

    for (size_t i = 0; i < 8; i++) {
        workers[i] = (struct worker){.pair = pair, .index = i, .context = &seen};
        worker_start(&workers[i], receive_one);
    }
    for (char i = 0; i < 8; i++)
        OK(tell(pair, "wake", 4, &i, 1));
    for (size_t i = 0; i < 8; i++)
        worker_join(&workers[i]);
    assert_int_equal(atomic_load(&seen), 0xff);
}

static void *tell_a_hundred(void *context) {
    struct worker *worker = context;

    for (uint32_t i = 0; i < 100; i++) {
        uint32_t words[2] = {(uint32_t)worker->index, i};

        EXPECT(worker, mc_peer_notify(worker->pair->peer, NULL, 0, words, sizeof(words), 30 * SECOND, NULL) == MC_OK);
    }
    return NULL;
}

static void nothing_is_lost_of_what_many_threads_tell(void **state) {
    const struct pair *pair = *state;
    uint32_t next[8] = {0};

    contract_run(pair, 8, tell_a_hundred, NULL);
    for (size_t i = 0; i < 800; i++) {
        struct mc_notification *got = taken(pair->there);
        uint32_t words[2];

        assert_int_equal(got->message_length, sizeof(words));
        memcpy(words, got->message, sizeof(words));
        assert_int_equal(words[1], next[words[0]]++);
        mc_notification_free(got);
    }
}

static void a_notification_outlives_its_engine_and_null_is_freed(void **state) {
    struct pair *pair = *state;
    struct mc_notification *got;

    OK(tell(pair, "name", 4, "message", 7));
    got = taken(pair->there);
    contract_close_engines(pair);
    assert_bytes(got->message, got->message_length, "message", 7);
    mc_notification_free(got);
    mc_notification_free(NULL);
}

static const struct CMUnitTest tests[] = {
    CONTRACT_TEST(notifications_arrive_in_order_without_polling),
    CONTRACT_TEST(bytes_and_lengths_are_kept),
    CONTRACT_TEST(the_largest_is_delivered_and_a_larger_one_refused),
    CONTRACT_TEST(a_full_queue_refuses_and_keeps_what_it_accepted),
    CONTRACT_TEST(the_descriptor_is_readable_exactly_while_a_notification_waits),
    CONTRACT_TEST(waiting_receivers_are_woken_each_by_one),
    CONTRACT_TEST(nothing_is_lost_of_what_many_threads_tell),
    CONTRACT_TEST(a_notification_outlives_its_engine_and_null_is_freed),
};

CONTRACT_PART(contract_notifications, tests);

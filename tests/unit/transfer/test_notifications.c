/* test_notifications.c - what a peer tells comes out byte by byte, in order, once; the queue is bounded and says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "../net/peer.h"
#include "transfer/notifications.h"
#include "wire/message.h"

#define CAPACITY 4

struct world {
    struct loop *loop;
    struct identity self;
    struct server *server;
    struct notifications *notifications;
    int client;
};

static int open_world(void **state) {
    static const uint8_t client_id[16] = {1};
    struct world *world = calloc(1, sizeof(*world));
    struct address address = peer_loopback();
    struct server_options options;
    int32_t status = 1;

    assert_non_null(world);
    assert_int_equal(loop_start(&world->loop), MC_OK);
    options = (struct server_options){.loop = world->loop, .self = &world->self, .sessions = 10, .backlog = 10};
    assert_int_equal(server_open(&options, &world->server), MC_OK);
    world->notifications = notifications_new(CAPACITY);
    assert_non_null(world->notifications);
    notifications_serve(world->notifications, world->server);
    assert_int_equal(server_listen(world->server, &address, &address, NULL), MC_OK);
    world->client = peer_connect(&address);
    assert_true(peer_greet_as_client(world->client, client_id, NULL, &status));
    assert_int_equal(status, MC_OK);
    *state = world;
    return 0;
}

static void close_server(void *context) {
    struct world *world = context;

    world->server = server_close(world->server);
}

static int close_world(void **state) {
    struct world *world = *state;

    loop_run(world->loop, close_server, world);
    loop_stop(world->loop);
    assert_null(notifications_free(world->notifications));
    socket_close(world->client);
    free(world);
    return 0;
}

/* Sends NOTIFY with a body of any kind, and returns what it is answered. */
static int32_t tell_body(struct world *world, const uint8_t *body, uint32_t length) {
    struct frame request = {.type = FRAME_CALL + MESSAGE_NOTIFY, .id = 9, .payload = length}, reply;

    assert_true(peer_send_frame(world->client, &request, body));
    assert_true(peer_receive_frame(world->client, &reply, NULL, 0));
    assert_int_equal(reply.id, 9);
    return reply.status;
}

static int32_t tell(struct world *world, const char *sender, const void *name, size_t name_length, const void *text,
                    size_t text_length) {
    static uint8_t body[200000];
    struct message_notify message = {
        .sender = {(const uint8_t *)sender, (uint32_t)strlen(sender)},
        .name = {name, (uint32_t)name_length},
        .message = {text, (uint32_t)text_length},
    };
    int64_t length = message_pack_notify(&message, body, sizeof(body));

    assert_true(length > 0);
    return tell_body(world, body, (uint32_t)length);
}

static struct mc_notification *take(struct world *world) {
    struct mc_notification *notification = NULL;

    assert_int_equal(notifications_take(world->notifications, clock_now(), &notification), MC_OK);
    return notification;
}

static void assert_none(struct world *world) {
    struct mc_notification *notification = NULL;

    assert_int_equal(notifications_take(world->notifications, clock_now(), &notification), MC_ERR_PENDING);
    assert_null(notification);
}

static void what_is_told_comes_out_byte_by_byte(void **state) {
    struct mc_notification *notification;

    assert_none(*state);
    assert_int_equal(tell(*state, "10.0.0.1:77", "na\0me", 5, "\0\xff\n", 3), MC_OK);
    notification = take(*state);
    assert_int_equal(notification->sender_length, 11);
    assert_string_equal(notification->sender, "10.0.0.1:77");
    assert_int_equal(notification->name_length, 5);
    assert_memory_equal(notification->name, "na\0me", 6); /* with a NUL behind it */
    assert_int_equal(notification->message_length, 3);
    assert_memory_equal(notification->message, "\0\xff\n", 4);
    free(notification);
    assert_none(*state);
}

static void empty_fields_and_an_empty_body_are_empty_strings(void **state) {
    struct mc_notification *notification;

    for (int i = 0; i < 2; i++) {
        assert_int_equal(i == 0 ? tell(*state, "", "", 0, "", 0) : tell_body(*state, NULL, 0), MC_OK);
        notification = take(*state);
        assert_int_equal(notification->sender_length + notification->name_length + notification->message_length, 0);
        assert_string_equal(notification->sender, "");
        assert_string_equal(notification->name, "");
        assert_string_equal(notification->message, "");
        free(notification);
    }
}

static void a_full_queue_says_so_and_has_room_again_when_one_is_taken(void **state) {
    struct mc_notification *notification;
    char name = 'a';

    for (int i = 0; i < CAPACITY; i++, name++)
        assert_int_equal(tell(*state, "x", &name, 1, "", 0), MC_OK);
    assert_int_equal(tell(*state, "x", "lost", 4, "", 0), MC_ERR_QUEUE_FULL);
    notification = take(*state);
    assert_string_equal(notification->name, "a");
    free(notification);
    assert_int_equal(tell(*state, "x", &name, 1, "", 0), MC_OK);
    assert_int_equal(tell(*state, "x", "lost", 4, "", 0), MC_ERR_QUEUE_FULL);
    for (char expected = 'b'; expected <= name; expected++) {
        notification = take(*state);
        assert_int_equal(notification->name[0], expected);
        free(notification);
    }
    assert_none(*state);
}

static void what_is_too_large_is_refused(void **state) {
    static char text[MC_NOTIFICATION_MAX + 1];
    char sender[289];
    struct mc_notification *notification;

    memset(sender, 's', 288);
    sender[288] = '\0';
    assert_int_equal(tell(*state, "x", "", 0, text, MC_NOTIFICATION_MAX + 1), MC_ERR_TOO_LARGE);
    assert_int_equal(tell(*state, "x", "n", 1, text, MC_NOTIFICATION_MAX), MC_ERR_TOO_LARGE);
    assert_int_equal(tell(*state, sender, "", 0, "", 0), MC_ERR_TOO_LARGE);
    assert_none(*state);
    sender[287] = '\0';
    assert_int_equal(tell(*state, sender, "n", 1, text, MC_NOTIFICATION_MAX - 1), MC_OK);
    notification = take(*state);
    assert_int_equal(notification->message_length, MC_NOTIFICATION_MAX - 1);
    assert_int_equal(notification->sender_length, 287);
    free(notification);
}

static void a_body_that_ends_within_a_field_is_refused(void **state) {
    static const uint8_t cut[] = {5, 0, 0, 0, 'a', 'b'}, wrapping[] = {0xff, 0xff, 0xff, 0xff, 'a'};

    assert_int_equal(tell_body(*state, cut, sizeof(cut)), MC_ERR_PROTOCOL);
    assert_int_equal(tell_body(*state, wrapping, sizeof(wrapping)), MC_ERR_PROTOCOL);
    assert_none(*state);
    assert_int_equal(tell(*state, "x", "n", 1, "", 0), MC_OK);
    free(take(*state));
}

static void what_nobody_took_goes_with_the_queue(void **state) {
    assert_int_equal(tell(*state, "x", "n", 1, "m", 1), MC_OK);
}

struct waiter {
    struct world *world;
    int32_t status;
    struct mc_notification *notification;
};

static void *wait_for_one(void *context) {
    struct waiter *waiter = context;

    waiter->status = notifications_take(waiter->world->notifications, clock_after(clock_now(), PEER_PATIENCE),
                                        &waiter->notification);
    return NULL;
}

static void each_notification_wakes_one_who_waits(void **state) {
    struct waiter waiters[3];
    pthread_t threads[3];

    for (int i = 0; i < 3; i++) {
        waiters[i] = (struct waiter){.world = *state};
        assert_int_equal(thread_start(&threads[i], "waiter", wait_for_one, &waiters[i]), 0);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(tell(*state, "x", "n", 1, "m", 1), MC_OK);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(waiters[i].status, MC_OK);
        free(waiters[i].notification);
    }
    assert_none(*state);
}

static void closing_wakes_those_who_wait_and_opening_again_undoes_it(void **state) {
    struct world *world = *state;
    struct waiter waiter = {.world = world};
    struct mc_notification *notification = NULL;
    pthread_t thread;

    assert_int_equal(thread_start(&thread, "waiter", wait_for_one, &waiter), 0);
    notifications_close(world->notifications, true);
    pthread_join(thread, NULL);
    assert_int_equal(waiter.status, MC_ERR_CLOSED);
    assert_int_equal(notifications_take(world->notifications, CLOCK_NEVER, &notification), MC_ERR_CLOSED);
    notifications_close(world->notifications, false);
    assert_none(world);
    assert_int_equal(tell(world, "x", "n", 1, "m", 1), MC_OK);
    free(take(world));
}

#define test_of(function) cmocka_unit_test_setup_teardown(function, open_world, close_world)

int main(void) {
    const struct CMUnitTest tests[] = {
        test_of(what_is_told_comes_out_byte_by_byte),
        test_of(empty_fields_and_an_empty_body_are_empty_strings),
        test_of(a_full_queue_says_so_and_has_room_again_when_one_is_taken),
        test_of(what_is_too_large_is_refused),
        test_of(a_body_that_ends_within_a_field_is_refused),
        test_of(what_nobody_took_goes_with_the_queue),
        test_of(each_notification_wakes_one_who_waits),
        test_of(closing_wakes_those_who_wait_and_opening_again_undoes_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

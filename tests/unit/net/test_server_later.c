/* test_server_later.c - a service may answer when it likes, and come and go; and the server knows which clients are there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "net/server.h"
#include "peer.h"
#include "wire/message.h"

#define LATER (FRAME_CALL + 100)   /* kept until the test answers */
#define AT_ONCE (FRAME_CALL + 102) /* finished within serve, which then says that it is pending */
#define KEPT_MAX 8192

static const uint8_t client_id[16] = {0xc1}, other_id[16] = {0xc2};

struct world {
    struct loop *loop;
    struct identity self;
    struct server *server;
    struct address address;
    struct service later, at_once;
    int client;
    struct gate served, ended, lost;
    /* On the loop's thread. */
    struct exchange *kept[KEPT_MAX]; /* NULL: finished, or ended */
    int count;
    bool entangled; /* the end of one finishes all others */
    uint8_t last_lost[16];
};

static void finish_all(void *context) {
    struct world *world = context;

    for (int i = 0; i < world->count; i++) {
        uint8_t *body = world->kept[i] != NULL ? exchange_reply_body(world->kept[i], 4) : NULL;

        if (body == NULL)
            continue;
        memcpy(body, "late", 4);
        exchange_finish(world->kept[i], MC_OK);
        world->kept[i] = NULL;
    }
}

static void begin(struct exchange *exchange) {
    exchange_take_body(exchange);
}

static int32_t keep(struct exchange *exchange) {
    struct world *world = exchange->service->context;

    if (world->count == KEPT_MAX)
        abort();
    exchange->pin = &world->kept[world->count];
    world->kept[world->count++] = exchange;
    gate_step(&world->served);
    return MC_ERR_PENDING;
}

static int32_t answer_at_once(struct exchange *exchange) {
    memcpy(exchange_reply_body(exchange, 4), "soon", 4);
    exchange_finish(exchange, MC_OK);
    exchange_finish(exchange, MC_ERR_INTERNAL); /* once is enough */
    return MC_ERR_PENDING;
}

static void ended(struct exchange *exchange) {
    struct world *world = exchange->service->context;

    if (exchange->pin != NULL)
        *(struct exchange **)exchange->pin = NULL;
    if (world->entangled)
        finish_all(world);
    gate_step(&world->ended);
}

static void add_services(void *context) {
    struct world *world = context;

    if (server_add(world->server, &world->later) != MC_OK || server_add(world->server, &world->at_once) != MC_OK)
        abort();
}

static void lost(void *context, const uint8_t incarnation[16]) {
    struct world *world = context;

    memcpy(world->last_lost, incarnation, 16);
    gate_step(&world->lost);
}

static int client_of(struct world *world, const uint8_t id[16]) {
    int fd = peer_connect(&world->address);
    int32_t status = 1;

    assert_true(peer_greet_as_client(fd, id, NULL, &status));
    assert_int_equal(status, MC_OK);
    return fd;
}

static int open_world(void **state) {
    struct world *world = calloc(1, sizeof(*world));
    struct address any = peer_loopback();
    struct server_options options;

    assert_non_null(world);
    assert_int_equal(loop_start(&world->loop), MC_OK);
    memset(world->self.incarnation, 0x5e, 16);
    options = (struct server_options){.loop = world->loop, .self = &world->self, .sessions = 100, .backlog = 64};
    assert_int_equal(server_open(&options, &world->server), MC_OK);
    gate_init(&world->served);
    gate_init(&world->ended);
    gate_init(&world->lost);
    world->later = (struct service){.type = LATER, .context = world, .begin = begin, .serve = keep, .ended = ended};
    world->at_once =
        (struct service){.type = AT_ONCE, .context = world, .begin = begin, .serve = answer_at_once, .ended = ended};
    add_services(world);
    clients_watch(server_clients(world->server), lost, world);
    assert_int_equal(server_listen(world->server, &any, &world->address, NULL), MC_OK);
    world->client = client_of(world, client_id);
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
    socket_close(world->client);
    for (int i = 0; i < world->count; i++)
        assert_null(world->kept[i]);
    assert_true(gate_count(&world->ended) >= gate_count(&world->served)); /* whatever began has ended */
    gate_destroy(&world->served);
    gate_destroy(&world->ended);
    gate_destroy(&world->lost);
    free(world);
    return 0;
}

static void send_request(int fd, uint16_t type, uint64_t id) {
    assert_true(peer_send_frame(fd, &(struct frame){.type = type, .id = id}, NULL));
}

/* The next reply is to `id`, with that status and body. */
static void assert_reply(int fd, uint64_t id, int32_t status, const char *body) {
    struct frame reply;
    char place[16];

    assert_true(peer_receive_frame(fd, &reply, place, sizeof(place)));
    assert_int_equal(reply.id, id);
    assert_int_equal(reply.status, status);
    assert_int_equal(reply.payload, strlen(body));
    assert_memory_equal(place, body, strlen(body));
}

/* ---- Replies that come later ---- */

static void a_reply_may_come_after_a_thousand_others(void **state) {
    struct world *world = *state;

    send_request(world->client, LATER, 7);
    for (uint64_t i = 0; i < 1000; i++)
        send_request(world->client, FRAME_CALL + MESSAGE_PING, 100 + i);
    for (uint64_t i = 0; i < 1000; i++)
        assert_reply(world->client, 100 + i, MC_OK, "");
    assert_int_equal(gate_count(&world->ended), 0);
    loop_run(world->loop, finish_all, world);
    assert_reply(world->client, 7, MC_OK, "late");
    gate_await(&world->ended, 1);
}

static void an_exchange_may_be_finished_before_serve_says_that_it_is_pending(void **state) {
    struct world *world = *state;

    for (uint64_t i = 0; i < 10; i++) {
        send_request(world->client, AT_ONCE, i);
        assert_reply(world->client, i, MC_OK, "soon");
    }
    gate_await(&world->ended, 10);
}

static void a_session_that_dies_ends_what_is_pending(void **state) {
    struct world *world = *state;

    for (uint64_t i = 0; i < 20; i++)
        send_request(world->client, LATER, i);
    gate_await(&world->served, 20);
    world->client = socket_close(world->client);
    gate_await(&world->ended, 20);
    loop_run(world->loop, finish_all, world); /* finds none */
    assert_int_equal(gate_count(&world->ended), 20);
}

static void the_end_of_an_exchange_may_finish_others_of_the_same_session(void **state) {
    struct world *world = *state;

    world->entangled = true;
    for (uint64_t i = 0; i < 20; i++)
        send_request(world->client, LATER, i);
    gate_await(&world->served, 20);
    world->client = socket_close(world->client);
    gate_await(&world->ended, 20);
    world->client = client_of(world, client_id);
    for (uint64_t i = 0; i < 20; i++)
        send_request(world->client, i == 0 ? AT_ONCE : LATER, i);
    gate_await(&world->served, 39);
    loop_run(world->loop, finish_all, world);
    for (uint64_t i = 0; i < 20; i++)
        assert_reply(world->client, i, MC_OK, i == 0 ? "soon" : "late");
    gate_await(&world->ended, 40);
}

static void fill_up(struct world *world) {
    for (uint64_t i = 0; i < 4096; i++)
        send_request(world->client, LATER, i);
    gate_await(&world->served, 4096);
    loop_flush(world->loop);
}

static void a_client_may_have_only_so_many_pending_and_goes_on_when_they_are_answered(void **state) {
    struct world *world = *state;

    fill_up(world);
    send_request(world->client, LATER, 5000);
    loop_flush(world->loop);
    assert_int_equal(gate_count(&world->served), 4096);
    loop_run(world->loop, finish_all, world);
    for (uint64_t i = 0; i < 4096; i++)
        assert_reply(world->client, i, MC_OK, "late");
    gate_await(&world->served, 4097);
    loop_run(world->loop, finish_all, world);
    assert_reply(world->client, 5000, MC_OK, "late");
}

static void the_end_of_a_client_is_seen_however_many_it_has_pending(void **state) {
    struct world *world = *state;

    fill_up(world);
    world->client = socket_close(world->client);
    gate_await(&world->ended, 4096);
    gate_await(&world->lost, 1);
}

/* ---- Services that come and go ---- */

static void remove_later(void *context) {
    struct world *world = context;

    server_remove(world->server, &world->later);
    for (int i = 0; i < world->count; i++)
        if (world->kept[i] != NULL)
            abort();
}

static void a_service_that_is_removed_has_ended_and_its_requests_are_answered(void **state) {
    struct world *world = *state;
    uint8_t header[FRAME_SIZE];
    int within = client_of(world, client_id);

    send_request(world->client, LATER, 1);
    send_request(world->client, AT_ONCE, 2);
    frame_pack(&(struct frame){.type = LATER, .id = 3, .payload = 100}, header);
    assert_true(peer_send(within, header, sizeof(header)));
    assert_true(peer_send(within, header, 50)); /* half of its payload */
    assert_reply(world->client, 2, MC_OK, "soon");
    gate_await(&world->served, 1);
    loop_flush(world->loop);
    loop_run(world->loop, remove_later, world);
    gate_await(&world->ended, 3);
    assert_reply(world->client, 1, MC_ERR_CLOSED, "");
    assert_true(peer_send(within, header, 50));
    assert_reply(within, 3, MC_ERR_CLOSED, "");
    send_request(within, LATER, 4);
    assert_reply(within, 4, MC_ERR_NOT_SUPPORTED, "");
    send_request(world->client, AT_ONCE, 5);
    assert_reply(world->client, 5, MC_OK, "soon");
    close(within);
}

static void add_later(void *context) {
    struct world *world = context;

    if (server_add(world->server, &world->later) != MC_OK)
        abort();
}

static void a_service_may_be_added_again(void **state) {
    struct world *world = *state;

    for (uint64_t i = 0; i < 10; i++) {
        loop_run(world->loop, remove_later, world);
        loop_run(world->loop, remove_later, world); /* one that isn't there */
        loop_run(world->loop, add_later, world);
        send_request(world->client, LATER, i);
        gate_await(&world->served, (int)i + 1);
        loop_run(world->loop, finish_all, world);
        assert_reply(world->client, i, MC_OK, "late");
    }
}

static void add_many(void *context) {
    static struct service many[64];
    struct world *world = context;
    int32_t status = MC_OK;
    uint16_t added = 0;

    if (server_add(world->server, &world->later) != MC_ERR_BUSY)
        abort();
    while (status == MC_OK) {
        many[added] = (struct service){.type = (uint16_t)(FRAME_CALL + 1000 + added), .begin = begin};
        status = server_add(world->server, &many[added]);
        if (status == MC_OK)
            added++;
    }
    if (status != MC_ERR_TOO_MANY || added < 20)
        abort();
}

static void a_type_has_one_service_and_their_number_ends(void **state) {
    struct world *world = *state;

    loop_run(world->loop, add_many, world);
}

/* ---- Clients ---- */

static uint32_t count(struct world *world, const uint8_t id[16]) {
    return clients_count(server_clients(world->server), id);
}

static void the_last_connection_of_a_client_is_its_end(void **state) {
    struct world *world = *state;
    int others[3], stranger = peer_connect(&world->address);
    int32_t status;

    for (int i = 0; i < 3; i++)
        others[i] = client_of(world, other_id);
    send_request(others[2], FRAME_CALL + MESSAGE_PING, 1);
    assert_reply(others[2], 1, MC_OK, "");
    assert_int_equal(count(world, other_id), 3);
    assert_int_equal(count(world, client_id), 1);
    /* Who doesn't get in isn't there. */
    assert_true(peer_greet_as_client(stranger, other_id, client_id, &status));
    assert_int_equal(status, MC_ERR_STALE_PEER);
    assert_true(peer_ended(stranger));
    close(stranger);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(shutdown(others[i], SHUT_WR), 0);
        assert_true(peer_ended(others[i]));
        close(others[i]);
    }
    loop_flush(world->loop);
    assert_int_equal(gate_count(&world->lost), 0);
    assert_int_equal(count(world, other_id), 1);
    close(others[2]);
    gate_await(&world->lost, 1);
    assert_memory_equal(world->last_lost, other_id, 16);
    assert_int_equal(count(world, other_id), 0);
    assert_int_equal(count(world, client_id), 1);
    close(client_of(world, other_id));
    gate_await(&world->lost, 2); /* each time anew */
}

static void exchanges_have_ended_when_a_client_is_lost(void **state) {
    struct world *world = *state;

    for (int round = 1; round <= 50; round++) {
        for (uint64_t i = 0; i < 5; i++)
            send_request(world->client, LATER, i);
        close(world->client);
        gate_await(&world->lost, round);
        assert_int_equal(gate_count(&world->ended), gate_count(&world->served));
        world->client = client_of(world, client_id);
    }
}

static void a_server_that_closes_tells_nobody_of_its_clients(void **state) {
    struct world *world = *state;

    loop_run(world->loop, close_server, world);
    assert_int_equal(gate_count(&world->lost), 0);
}

#define test_of(function) cmocka_unit_test_setup_teardown(function, open_world, close_world)

int main(void) {
    const struct CMUnitTest tests[] = {
        test_of(a_reply_may_come_after_a_thousand_others),
        test_of(an_exchange_may_be_finished_before_serve_says_that_it_is_pending),
        test_of(a_session_that_dies_ends_what_is_pending),
        test_of(the_end_of_an_exchange_may_finish_others_of_the_same_session),
        test_of(a_client_may_have_only_so_many_pending_and_goes_on_when_they_are_answered),
        test_of(the_end_of_a_client_is_seen_however_many_it_has_pending),
        test_of(a_service_that_is_removed_has_ended_and_its_requests_are_answered),
        test_of(a_service_may_be_added_again),
        test_of(a_type_has_one_service_and_their_number_ends),
        test_of(the_last_connection_of_a_client_is_its_end),
        test_of(exchanges_have_ended_when_a_client_is_lost),
        test_of(a_server_that_closes_tells_nobody_of_its_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

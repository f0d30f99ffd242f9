/* test_server.c - every request is answered once, and every service gets back what it gave, whatever the client does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
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

#define ECHO (FRAME_CALL + 100)   /* answers with the body */
#define FAIL (FRAME_CALL + 102)   /* fails at begin with MC_ERR_BUSY */
#define BIG (FRAME_CALL + 104)    /* answers with `length` bytes */
#define REFUSE (FRAME_CALL + 106) /* serve says MC_ERR_ACCESS_DENIED, with a payload all the same */
#define SERVICES 5

static const uint8_t client_id[16] = {0xc1};
static uint8_t big[1 << 20];

struct world;

/* A service that notes what is called of it. Counters are changed on the loop's thread. */
struct probe {
    struct service service;
    struct world *world;
    struct gate begun, served, more, ended;
};

struct world {
    struct loop *loop;
    struct identity self;
    struct server *server;
    struct address address;
    struct probe probes[SERVICES];
    int client;
    int32_t second; /* what `more` says */
};

/* How far an exchange has come, kept in its pin. Stops the program where the order is broken. */
struct steps {
    bool served, more;
};

static struct probe *probe_of(struct exchange *exchange) {
    return exchange->service->context;
}

static void begin(struct exchange *exchange) {
    if (memcmp(exchange->client, client_id, 16) != 0)
        abort();
    exchange->pin = calloc(1, sizeof(struct steps));
    if (exchange->request.type == FAIL)
        exchange->status = MC_ERR_BUSY;
    else
        exchange_take_body(exchange);
    gate_step(&probe_of(exchange)->begun);
}

static int32_t serve(struct exchange *exchange) {
    struct steps *steps = exchange->pin;
    uint32_t length = exchange->request.payload;
    uint8_t *body;

    if (steps == NULL || steps->served)
        abort();
    steps->served = true;
    gate_step(&probe_of(exchange)->served);
    switch (exchange->request.type) {
    case ECHO: {
        uint8_t copy[256];

        memcpy(copy, exchange->body != NULL ? exchange->body : copy, length);
        body = exchange_reply_body(exchange, length);
        memcpy(body, copy, length);
        return MC_OK;
    }
    case FRAME_READ:
        exchange->reply.flags = FRAME_FLAG_MORE; /* fallthrough */
    case BIG:
    case REFUSE:
        exchange->reply_payload = big;
        exchange->reply.payload = (uint32_t)exchange->request.length;
        return exchange->request.type == REFUSE ? MC_ERR_ACCESS_DENIED : MC_OK;
    default:
        abort();
    }
}

static int32_t more(struct exchange *exchange) {
    struct steps *steps = exchange->pin;

    if (!steps->served || steps->more)
        abort();
    steps->more = true;
    gate_step(&probe_of(exchange)->more);
    return probe_of(exchange)->world->second;
}

static void ended(struct exchange *exchange) {
    if (exchange->pin == NULL)
        abort();
    free(exchange->pin); /* twice would be noticed by the sanitizer, too */
    exchange->pin = NULL;
    gate_step(&probe_of(exchange)->ended);
}

static int open_world_of(void **state, uint32_t sessions) {
    static const uint16_t types[SERVICES] = {ECHO, FAIL, BIG, REFUSE, FRAME_READ};
    struct world *world = calloc(1, sizeof(*world));
    struct address any = peer_loopback();
    struct server_options options;

    assert_non_null(world);
    assert_int_equal(loop_start(&world->loop), MC_OK);
    memset(world->self.incarnation, 0x5e, 16);
    options = (struct server_options){.loop = world->loop, .self = &world->self, .sessions = sessions, .backlog = 64};
    assert_int_equal(server_open(&options, &world->server), MC_OK);
    for (int i = 0; i < SERVICES; i++) {
        struct probe *probe = &world->probes[i];

        gate_init(&probe->begun);
        gate_init(&probe->served);
        gate_init(&probe->more);
        gate_init(&probe->ended);
        probe->world = world;
        probe->service = (struct service){.type = types[i],
                                          .flags = types[i] == FRAME_READ ? FRAME_FLAG_GUARD : 0,
                                          .context = probe,
                                          .begin = begin,
                                          .serve = serve,
                                          .more = more,
                                          .ended = ended};
        server_add(world->server, &probe->service);
    }
    assert_int_equal(server_listen(world->server, &any, &world->address, NULL), MC_OK);
    world->client = -1;
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
    for (int i = 0; i < SERVICES; i++) {
        /* Whatever began has ended. */
        assert_int_equal(gate_count(&world->probes[i].begun), gate_count(&world->probes[i].ended));
        gate_destroy(&world->probes[i].begun);
        gate_destroy(&world->probes[i].served);
        gate_destroy(&world->probes[i].more);
        gate_destroy(&world->probes[i].ended);
    }
    free(world);
    return 0;
}

static int client_of(struct world *world) {
    int fd = peer_connect(&world->address);
    int32_t status = 1;

    assert_true(peer_greet_as_client(fd, client_id, NULL, &status));
    assert_int_equal(status, MC_OK);
    return fd;
}

static int open_world(void **state) {
    open_world_of(state, 1000);
    ((struct world *)*state)->client = client_of(*state);
    return 0;
}

static struct probe *probe_for(struct world *world, uint16_t type) {
    for (int i = 0; i < SERVICES; i++)
        if (world->probes[i].service.type == type)
            return &world->probes[i];
    abort();
}

static void assert_probe(struct world *world, uint16_t type, int begun, int served, int mored, int ended_count) {
    struct probe *probe = probe_for(world, type);

    gate_await(&probe->ended, ended_count);
    assert_int_equal(gate_count(&probe->begun), begun);
    assert_int_equal(gate_count(&probe->served), served);
    assert_int_equal(gate_count(&probe->more), mored);
    assert_int_equal(gate_count(&probe->ended), ended_count);
}

static struct frame ask(int fd, struct frame request, const void *payload, void *reply, size_t capacity) {
    struct frame answer;

    assert_true(peer_send_frame(fd, &request, payload));
    assert_true(peer_receive_frame(fd, &answer, reply, capacity));
    assert_int_equal(answer.id, request.id);
    assert_int_equal(answer.type, request.type | FRAME_REPLY);
    return answer;
}

static void assert_alive(int fd) {
    struct frame answer = ask(fd, (struct frame){.type = FRAME_CALL + MESSAGE_PING, .id = 77}, NULL, NULL, 0);

    assert_int_equal(answer.status, MC_OK);
    assert_int_equal(answer.payload, 0);
}

/* ---- Requests and replies ---- */

static void a_ping_is_answered_whatever_it_carries(void **state) {
    struct world *world = *state;
    struct frame ping = {.type = FRAME_CALL + MESSAGE_PING, .id = 5, .payload = 9};

    assert_alive(world->client);
    assert_int_equal(ask(world->client, ping, "of 1.0.99", NULL, 0).status, MC_OK);
    assert_alive(world->client);
}

static void an_unknown_type_is_answered_and_its_payload_skipped(void **state) {
    struct world *world = *state;
    static const uint16_t types[] = {0, 3, FRAME_CALL + 1, FRAME_CALL + 999, 0x7fff};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        struct frame request = {.type = types[i], .id = i, .payload = 100000};

        assert_int_equal(ask(world->client, request, big, NULL, 0).status, MC_ERR_NOT_SUPPORTED);
        assert_alive(world->client);
    }
}

static void an_unknown_flag_is_answered_and_no_service_bothered(void **state) {
    struct world *world = *state;
    struct frame request = {.type = ECHO, .flags = 0x80, .payload = 100};

    assert_int_equal(ask(world->client, request, big, NULL, 0).status, MC_ERR_NOT_SUPPORTED);
    request = (struct frame){.type = FRAME_READ, .flags = FRAME_FLAG_GUARD | FRAME_FLAG_MORE};
    assert_int_equal(ask(world->client, request, NULL, NULL, 0).status, MC_ERR_NOT_SUPPORTED);
    assert_alive(world->client);
    assert_probe(world, ECHO, 0, 0, 0, 0);
    assert_probe(world, FRAME_READ, 0, 0, 0, 0);
}

static void a_service_gets_the_body_and_its_reply_comes_back(void **state) {
    struct world *world = *state;
    uint8_t answer[256];
    struct frame reply;

    for (uint32_t length = 0; length <= 256; length += 32) {
        memset(answer, 0, sizeof(answer));
        memset(big, (int)length / 32 + 1, 256);
        reply = ask(world->client, (struct frame){.type = ECHO, .id = length, .payload = length}, big, answer, 256);
        assert_int_equal(reply.status, MC_OK);
        assert_int_equal(reply.payload, length);
        assert_memory_equal(answer, big, length);
    }
    assert_probe(world, ECHO, 9, 9, 0, 9);
}

static void a_service_that_fails_at_the_header_is_not_served_and_ends(void **state) {
    struct world *world = *state;

    assert_int_equal(ask(world->client, (struct frame){.type = FAIL, .payload = 50000}, big, NULL, 0).status,
                     MC_ERR_BUSY);
    assert_alive(world->client);
    assert_probe(world, FAIL, 1, 0, 0, 1);
}

static void a_reply_that_refuses_has_no_payload(void **state) {
    struct world *world = *state;
    struct frame reply = ask(world->client, (struct frame){.type = REFUSE, .length = 100}, NULL, NULL, 0);

    assert_int_equal(reply.status, MC_ERR_ACCESS_DENIED);
    assert_int_equal(reply.payload, 0);
    assert_probe(world, REFUSE, 1, 1, 0, 1);
}

static void a_second_reply_says_what_is_true_when_the_first_has_left(void **state) {
    struct world *world = *state;
    static uint8_t place[100000];
    struct frame reply;

    for (int i = 0; i < 2; i++) {
        world->second = i == 0 ? MC_OK : MC_ERR_GUARD_MISMATCH;
        reply = ask(world->client, (struct frame){.type = FRAME_READ, .id = 3, .length = sizeof(place)}, NULL, place,
                    sizeof(place));
        assert_int_equal(reply.status, MC_OK);
        assert_int_equal(reply.flags, FRAME_FLAG_MORE);
        assert_int_equal(reply.payload, sizeof(place));
        assert_true(peer_receive_frame(world->client, &reply, NULL, 0));
        assert_int_equal(reply.id, 3);
        assert_int_equal(reply.flags, 0);
        assert_int_equal(reply.status, world->second);
    }
    assert_probe(world, FRAME_READ, 2, 2, 2, 2);
}

static void requests_that_come_together_are_all_answered_in_order(void **state) {
    struct world *world = *state;
    static uint8_t bytes[1000][FRAME_SIZE];

    for (uint64_t i = 0; i < 1000; i++)
        frame_pack(&(struct frame){.type = i % 2 == 0 ? FRAME_CALL : ECHO, .id = i}, bytes[i]);
    assert_true(peer_send(world->client, bytes, sizeof(bytes)));
    for (uint64_t i = 0; i < 1000; i++) {
        struct frame reply;

        assert_true(peer_receive_frame(world->client, &reply, NULL, 0));
        assert_int_equal(reply.id, i);
        assert_int_equal(reply.status, MC_OK);
    }
}

/* ---- Clients that go in the middle ---- */

static void leave(struct world *world) {
    world->client = socket_close(world->client);
}

static void a_client_that_goes_within_a_payload_ends_its_exchange(void **state) {
    struct world *world = *state;
    uint8_t header[FRAME_SIZE];

    frame_pack(&(struct frame){.type = ECHO, .payload = 100}, header);
    assert_true(peer_send(world->client, header, FRAME_SIZE));
    assert_true(peer_send(world->client, big, 50));
    gate_await(&probe_for(world, ECHO)->begun, 1);
    leave(world);
    assert_probe(world, ECHO, 1, 0, 0, 1);
    loop_flush(world->loop);
    assert_int_equal(server_count(world->server).broken, 1);
}

static void a_client_that_goes_before_its_replies_ends_its_exchanges(void **state) {
    struct world *world = *state;

    for (int i = 0; i < 40; i++)
        assert_true(peer_send_frame(world->client, &(struct frame){.type = BIG, .length = sizeof(big)}, NULL));
    gate_await(&probe_for(world, BIG)->served, 40);
    assert_true(gate_count(&probe_for(world, BIG)->ended) < 40);
    leave(world);
    assert_probe(world, BIG, 40, 40, 0, 40);
}

static void a_client_that_goes_before_a_second_reply_ends_its_exchange_without(void **state) {
    struct world *world = *state;
    int mored;

    for (int i = 0; i < 40; i++)
        assert_true(peer_send_frame(world->client, &(struct frame){.type = FRAME_READ, .length = sizeof(big)}, NULL));
    gate_await(&probe_for(world, FRAME_READ)->served, 40);
    mored = gate_count(&probe_for(world, FRAME_READ)->more);
    assert_true(mored < 40);
    leave(world);
    assert_probe(world, FRAME_READ, 40, 40, mored, 40);
}

static void a_server_that_closes_ends_all_exchanges(void **state) {
    struct world *world = *state;

    for (int i = 0; i < 40; i++)
        assert_true(peer_send_frame(world->client, &(struct frame){.type = BIG, .length = sizeof(big)}, NULL));
    gate_await(&probe_for(world, BIG)->served, 40);
    loop_run(world->loop, close_server, world);
    assert_probe(world, BIG, 40, 40, 0, 40);
    assert_true(peer_ended(world->client));
}

static void a_client_that_closes_between_frames_broke_nothing(void **state) {
    struct world *world = *state;
    struct server_counters counters;

    assert_alive(world->client);
    assert_int_equal(shutdown(world->client, SHUT_WR), 0);
    assert_true(peer_ended(world->client));
    loop_flush(world->loop);
    counters = server_count(world->server);
    assert_int_equal(counters.accepted, 1);
    assert_int_equal(counters.refused, 0);
    assert_int_equal(counters.broken, 0);
}

/* ---- Clients that misbehave ---- */

static void assert_thrown_out(struct world *world, const void *bytes, size_t length) {
    uint64_t broken = server_count(world->server).broken;
    int fd = client_of(world);

    assert_true(peer_send(fd, bytes, length));
    assert_true(peer_ended(fd));
    loop_flush(world->loop);
    assert_int_equal(server_count(world->server).broken, broken + 1);
    close(fd);
    assert_alive(world->client);
}

static void garbage_behind_the_preface_closes_that_connection_only(void **state) {
    struct world *world = *state;
    uint8_t bytes[FRAME_SIZE];

    memset(bytes, 'x', sizeof(bytes));
    assert_thrown_out(world, bytes, sizeof(bytes));
    frame_pack(&(struct frame){.type = FRAME_CALL | FRAME_REPLY}, bytes);
    assert_thrown_out(world, bytes, sizeof(bytes));
    frame_pack(&(struct frame){.type = ECHO, .payload = FRAME_MESSAGE_MAX + 1}, bytes);
    assert_thrown_out(world, bytes, sizeof(bytes));
}

static void garbage_for_a_preface_is_refused(void **state) {
    struct world *world = *state;
    uint8_t bytes[PREFACE_HELLO_SIZE];
    int fd = peer_connect(&world->address);

    memset(bytes, 'x', sizeof(bytes));
    assert_true(peer_send(fd, bytes, sizeof(bytes)));
    assert_true(peer_ended(fd));
    loop_flush(world->loop);
    assert_int_equal(server_count(world->server).refused, 1);
    assert_int_equal(server_count(world->server).broken, 0);
    close(fd);
    assert_alive(world->client);
}

static void a_client_that_expects_another_is_told(void **state) {
    struct world *world = *state;
    int fd = peer_connect(&world->address);
    int32_t status = 1;

    assert_true(peer_greet_as_client(fd, client_id, client_id, &status));
    assert_int_equal(status, MC_ERR_STALE_PEER);
    assert_true(peer_ended(fd));
    close(fd);
}

/* What a client can make the server hold is bounded: it isn't read from while thousands of its replies wait. */
static void a_client_that_does_not_read_is_not_read_from(void **state) {
    enum { FIRST = 6000, REPLY = 4096, LATER = 10 };
    struct world *world = *state;
    static uint8_t bytes[FIRST + LATER][FRAME_SIZE], place[REPLY];
    struct probe *probe = probe_for(world, BIG);

    for (uint64_t i = 0; i < FIRST + LATER; i++)
        frame_pack(&(struct frame){.type = BIG, .id = i, .length = REPLY}, bytes[i]);
    assert_true(peer_send(world->client, bytes, FIRST * FRAME_SIZE));
    /* All that was there at once may be taken; nothing that comes later. */
    gate_await(&probe->begun, 5000);
    for (int i = 0, before = 0; before != gate_count(&probe->begun) || i < 3; i++) {
        before = gate_count(&probe->begun);
        loop_flush(world->loop);
    }
    if (gate_count(&probe->begun) - gate_count(&probe->ended) >= 4096) {
        int begun = gate_count(&probe->begun);

        assert_true(peer_send(world->client, bytes[FIRST], LATER * FRAME_SIZE));
        loop_flush(world->loop);
        assert_int_equal(gate_count(&probe->begun), begun);
    } else {
        fail_msg("the kernel took too many replies for this test");
    }
    for (uint64_t i = 0; i < FIRST + LATER; i++) {
        struct frame reply;

        assert_true(peer_receive_frame(world->client, &reply, place, REPLY));
        assert_int_equal(reply.id, i);
    }
    assert_probe(world, BIG, FIRST + LATER, FIRST + LATER, 0, FIRST + LATER);
}

/* ---- Many clients ---- */

static void clients_are_served_beside_one_that_stalls(void **state) {
    struct world *world = *state;
    int clients[50];

    assert_true(peer_send_frame(world->client, &(struct frame){.type = BIG, .length = sizeof(big)}, NULL));
    for (int i = 0; i < 50; i++)
        clients[i] = client_of(world);
    for (int i = 0; i < 50; i++)
        assert_alive(clients[i]);
    for (int i = 0; i < 50; i++)
        close(clients[i]);
}

static void a_client_beyond_the_limit_is_told_and_may_come_back(void **state) {
    struct world *world;
    int first, second, third;
    int32_t status = 1;

    open_world_of(state, 2);
    world = *state;
    first = client_of(world);
    second = client_of(world);
    third = peer_connect(&world->address);
    assert_true(peer_greet_as_client(third, client_id, NULL, &status));
    assert_int_equal(status, MC_ERR_TOO_MANY);
    assert_true(peer_ended(third));
    close(third);
    assert_alive(first);
    assert_alive(second);
    assert_int_equal(shutdown(second, SHUT_WR), 0);
    assert_true(peer_ended(second));
    loop_flush(world->loop);
    third = client_of(world);
    assert_alive(third);
    assert_int_equal(server_count(world->server).accepted, 4);
    assert_int_equal(server_count(world->server).refused, 1);
    close(first);
    close(second);
    close(third);
    close_world(state);
}

#define test_of(function) cmocka_unit_test_setup_teardown(function, open_world, close_world)

int main(void) {
    const struct CMUnitTest tests[] = {
        test_of(a_ping_is_answered_whatever_it_carries),
        test_of(an_unknown_type_is_answered_and_its_payload_skipped),
        test_of(an_unknown_flag_is_answered_and_no_service_bothered),
        test_of(a_service_gets_the_body_and_its_reply_comes_back),
        test_of(a_service_that_fails_at_the_header_is_not_served_and_ends),
        test_of(a_reply_that_refuses_has_no_payload),
        test_of(a_second_reply_says_what_is_true_when_the_first_has_left),
        test_of(requests_that_come_together_are_all_answered_in_order),
        test_of(a_client_that_goes_within_a_payload_ends_its_exchange),
        test_of(a_client_that_goes_before_its_replies_ends_its_exchanges),
        test_of(a_client_that_goes_before_a_second_reply_ends_its_exchange_without),
        test_of(a_server_that_closes_ends_all_exchanges),
        test_of(a_client_that_closes_between_frames_broke_nothing),
        test_of(garbage_behind_the_preface_closes_that_connection_only),
        test_of(garbage_for_a_preface_is_refused),
        test_of(a_client_that_expects_another_is_told),
        test_of(a_client_that_does_not_read_is_not_read_from),
        test_of(clients_are_served_beside_one_that_stalls),
        cmocka_unit_test(a_client_beyond_the_limit_is_told_and_may_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_server_stall.c - a client that moves less than 1 MiB of a frame within the stall time, in either direction, is
 * closed and counted; one that moves more, or has no frame under way, stays. The stall time is a second here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "net/server.h"
#include "peer.h"
#include "wire/message.h"

#define STALL CLOCK_SECOND
#define STEP (STALL / 10) /* between two moves of a slow client */
#define LARGE (60u << 20)

static const uint8_t client_id[16] = {0xc1};

struct world {
    struct loop *loop;
    struct identity self;
    struct server *server;
    struct address address;
    struct service read, write;
    uint8_t *bytes; /* LARGE of them: what is read, and where what is written goes */
};

static void begin_write(struct exchange *exchange) {
    struct world *world = exchange->service->context;

    exchange->sink = (struct sink){.bytes = world->bytes, .length = exchange->request.payload};
}

static int32_t serve_write(struct exchange *exchange) {
    (void)exchange;
    return MC_OK;
}

static void begin_read(struct exchange *exchange) {
    (void)exchange;
}

static int32_t serve_read(struct exchange *exchange) {
    struct world *world = exchange->service->context;

    exchange->reply_payload = world->bytes;
    exchange->reply.payload = (uint32_t)exchange->request.length;
    return MC_OK;
}

static int open_world(void **state) {
    struct world *world = calloc(1, sizeof(*world));
    struct address any = peer_loopback();
    struct server_options options;

    assert_non_null(world);
    world->bytes = calloc(1, LARGE);
    assert_non_null(world->bytes);
    assert_int_equal(loop_start(&world->loop), MC_OK);
    options = (struct server_options){
        .loop = world->loop, .self = &world->self, .sessions = 100, .backlog = 64, .stall_time = STALL};
    assert_int_equal(server_open(&options, &world->server), MC_OK);
    world->read = (struct service){FRAME_READ, 0, world, begin_read, serve_read, NULL, NULL};
    world->write = (struct service){FRAME_WRITE, 0, world, begin_write, serve_write, NULL, NULL};
    assert_int_equal(server_add(world->server, &world->read), MC_OK);
    assert_int_equal(server_add(world->server, &world->write), MC_OK);
    assert_int_equal(server_listen(world->server, &any, &world->address, NULL), MC_OK);
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
    free(world->bytes);
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

static void assert_alive(int fd) {
    const struct frame ping = {.type = FRAME_CALL + MESSAGE_PING, .id = 77};
    struct frame answer;

    assert_true(peer_send_frame(fd, &ping, NULL));
    assert_true(peer_receive_frame(fd, &answer, NULL, 0));
    assert_int_equal(answer.id, 77);
}

static void pause_for(uint64_t nanoseconds) {
    struct timespec time = {(time_t)(nanoseconds / CLOCK_SECOND), (long)(nanoseconds % CLOCK_SECOND)};

    nanosleep(&time, NULL);
}

/* Waits until the server has closed `count` connections for what they did, for at most ten stall times. */
static void await_broken(struct world *world, uint64_t count) {
    uint64_t deadline = clock_after(clock_now(), 10 * STALL);

    while (server_count(world->server).broken < count) {
        assert_true(clock_now() < deadline);
        pause_for(STEP / 10);
    }
}

/* Fault 17. */
static void a_frame_that_comes_drop_by_drop_closes_its_connection_only(void **state) {
    struct world *world = *state;
    int friend = client_of(world), slow[2] = {client_of(world), client_of(world)};
    uint64_t begun = clock_now();
    uint8_t header[FRAME_SIZE];

    /* One stays within the header, the other within the payload. */
    frame_pack(&(struct frame){.type = FRAME_WRITE, .length = LARGE, .payload = LARGE}, header);
    assert_true(peer_send(slow[0], header, 1));
    assert_true(peer_send(slow[1], header, FRAME_SIZE));
    for (size_t i = 1; server_count(world->server).broken < 2; i++) {
        assert_true(clock_now() - begun < 10 * STALL);
        for (size_t j = 0; j < 2; j++)
            if (i < FRAME_SIZE)
                (void)peer_send(slow[j], header + i, 1); /* it may be closed already */
        assert_alive(friend);
        pause_for(STEP);
    }
    assert_true(clock_now() - begun >= STALL);
    for (size_t j = 0; j < 2; j++) {
        assert_true(peer_ended(slow[j]));
        close(slow[j]);
    }
    assert_alive(friend);
    close(friend);
}

/* Fault 17. */
static void a_reply_that_is_not_taken_closes_its_connection_only(void **state) {
    struct world *world = *state;
    int friend = client_of(world), slow = client_of(world);
    const struct frame request = {.type = FRAME_READ, .length = LARGE};
    uint64_t begun = clock_now();

    assert_true(peer_send_frame(slow, &request, NULL));
    await_broken(world, 1);
    assert_true(clock_now() - begun >= STALL);
    assert_true(peer_ended(slow));
    assert_alive(friend);
    close(slow);
    close(friend);
}

/* Three stall times for one frame, in which it moves several MiB each time. */
static void a_frame_that_takes_long_but_moves_on_is_served_to_its_end(void **state) {
    struct world *world = *state;
    const uint32_t steps = 30, part = LARGE / steps;
    struct frame request = {.type = FRAME_WRITE, .id = 5, .length = LARGE, .payload = LARGE}, reply;
    uint8_t *bytes = calloc(1, part), header[FRAME_SIZE];
    int fd = client_of(world);

    assert_non_null(bytes);
    frame_pack(&request, header);
    assert_true(peer_send(fd, header, FRAME_SIZE));
    for (uint32_t i = 0; i < steps; i++) {
        pause_for(STEP);
        assert_true(peer_send(fd, bytes, part));
    }
    assert_true(peer_receive_frame(fd, &reply, NULL, 0));
    assert_int_equal(reply.status, MC_OK);
    request = (struct frame){.type = FRAME_READ, .id = 6, .length = LARGE};
    assert_true(peer_send_frame(fd, &request, NULL));
    assert_true(peer_receive(fd, header, FRAME_SIZE));
    for (uint32_t i = 0; i < steps; i++) {
        pause_for(STEP);
        assert_true(peer_receive(fd, bytes, part));
    }
    assert_alive(fd);
    assert_int_equal(server_count(world->server).broken, 0);
    free(bytes);
    close(fd);
}

static void a_connection_without_a_frame_under_way_may_be_silent_for_as_long_as_it_likes(void **state) {
    struct world *world = *state;
    int fd = client_of(world);

    assert_alive(fd);
    pause_for(3 * STALL);
    assert_alive(fd);
    assert_int_equal(server_count(world->server).broken, 0);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_frame_that_comes_drop_by_drop_closes_its_connection_only, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(a_reply_that_is_not_taken_closes_its_connection_only, open_world, close_world),
        cmocka_unit_test_setup_teardown(a_frame_that_takes_long_but_moves_on_is_served_to_its_end, open_world,
                                        close_world),
        cmocka_unit_test_setup_teardown(a_connection_without_a_frame_under_way_may_be_silent_for_as_long_as_it_likes,
                                        open_world, close_world),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* lane_world.h - what the tests of the lane share: a lane with a loop, the server at its other end, and requests.
 *
 * The test's own thread plays the server, step by step; the lane is driven by its loop where a test says nothing else.
 */
#ifndef MC_TEST_LANE_WORLD_H
#define MC_TEST_LANE_WORLD_H

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "net/lane.h"
#include "peer.h"

#define LARGE (32u << 20) /* more than the kernel holds between two ends */

static const uint8_t peer_one[16] = {1};

struct world {
    struct loop *loop;
    struct identity self;
    struct address addresses[2];
    struct lane_target target;
    struct lane lane;
    bool finished; /* lane_finish was called by the test */
    int listener;
    int peer; /* the accepted connection */
};

/* A request and what became of it. */
struct wish {
    struct lane_request request;
    struct gate done;
    int32_t status;
    uint8_t place[64];
};

static inline void wish_done(struct lane_request *request, int32_t status) {
    struct wish *wish = list_entry(request, struct wish, request);

    wish->status = status;
    gate_step(&wish->done);
}

static inline void wish_init(struct wish *wish, uint16_t type, uint64_t length) {
    memset(wish, 0, sizeof(*wish));
    gate_init(&wish->done);
    wish->request.done = wish_done;
    wish->request.frame = (struct frame){.type = type, .length = length};
    wish->request.reply = wish->place;
    wish->request.reply_capacity = sizeof(wish->place);
    wish->status = 1;
}

static inline void submit(struct lane *lane, struct wish *wish, bool attended) {
    struct list requests;

    list_init(&requests);
    list_append(&requests, &wish->request.node);
    lane_submit(lane, &requests, attended);
    assert_true(list_empty(&requests));
}

static inline void submit_read(struct world *world, struct wish *wish, uint64_t length) {
    wish_init(wish, FRAME_READ, length);
    submit(&world->lane, wish, false);
}

static inline void cancel(struct world *world, struct lane_request *request, int32_t status) {
    lane_cancel(&world->lane, &request, 1, status);
}

/* The wish ends, once, with `status`. */
static inline void assert_ends(struct wish *wish, int32_t status) {
    gate_await(&wish->done, 1);
    assert_int_equal(gate_count(&wish->done), 1);
    assert_int_equal(wish->status, status);
    gate_destroy(&wish->done);
}

static inline int open_world(void **state) {
    struct world *world = calloc(1, sizeof(*world));

    assert_non_null(world);
    assert_int_equal(loop_start(&world->loop), MC_OK);
    memset(world->self.incarnation, 0xaa, 16);
    world->listener = peer_listen(&world->addresses[0]);
    world->peer = -1;
    world->target = (struct lane_target){
        .loop = world->loop,
        .self = &world->self,
        .addresses = world->addresses,
        .address_count = 1,
        .connect_timeout = PEER_PATIENCE,
    };
    lane_init(&world->lane, &world->target);
    *state = world;
    return 0;
}

static inline int close_world(void **state) {
    struct world *world = *state;

    if (!world->finished)
        lane_finish(&world->lane);
    loop_stop(world->loop);
    socket_close(world->peer);
    socket_close(world->listener);
    free(world);
    return 0;
}

static inline void welcome(struct world *world, const uint8_t incarnation[16]) {
    world->peer = peer_accept(world->listener);
    assert_true(world->peer >= 0);
    assert_true(peer_greet_as_server(world->peer, incarnation, MC_OK));
}

static inline struct frame next_request(struct world *world) {
    struct frame frame;
    uint8_t payload[256];

    assert_true(peer_receive_frame(world->peer, &frame, payload, sizeof(payload)));
    return frame;
}

static inline void reply(struct world *world, const struct frame *request, int32_t status, const void *payload,
                         uint32_t length) {
    struct frame frame = peer_reply(request, status);

    frame.payload = length;
    assert_true(peer_send_frame(world->peer, &frame, payload));
}

static inline uint64_t received(struct world *world) {
    uint64_t bytes;

    pthread_mutex_lock(&world->lane.lock);
    bytes = world->lane.connection.received.bytes;
    pthread_mutex_unlock(&world->lane.lock);
    return bytes;
}

static inline void await_received(struct world *world, uint64_t bytes) {
    uint64_t deadline = clock_after(clock_now(), PEER_PATIENCE);

    while (received(world) < bytes) {
        assert_true(clock_now() < deadline);
        sched_yield();
    }
}

/* So that a test needn't wait for the back-off. */
static inline void forget_backoff(struct world *world) {
    pthread_mutex_lock(&world->lane.lock);
    world->lane.retry_at = 0;
    pthread_mutex_unlock(&world->lane.lock);
}

/* The lane still works. */
static inline void assert_alive(struct world *world) {
    struct wish wish;
    struct frame request;

    submit_read(world, &wish, 3);
    request = next_request(world);
    reply(world, &request, MC_OK, "abc", 3);
    assert_ends(&wish, MC_OK);
    assert_memory_equal(wish.place, "abc", 3);
}

static inline struct frame guarded_read(struct world *world, struct wish *wish) {
    wish_init(wish, FRAME_READ, 4);
    wish->request.frame.flags = FRAME_FLAG_GUARD;
    submit(&world->lane, wish, false);
    if (world->peer < 0)
        welcome(world, peer_one);
    return next_request(world);
}

#define test_of(function) cmocka_unit_test_setup_teardown(function, open_world, close_world)

#endif

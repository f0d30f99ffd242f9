/* test_lane_drive.c - callers and the loop take turns to drive a lane, and no request is lost between them.
 *
 * A thread of its own plays the server in most of these.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "lane_world.h"

/* ---- Driving ---- */

/* Answers everything with zeros until the connection ends; then the next connection, until the listener fails. */
static void *serve(void *context) {
    struct world *world = context;
    static uint8_t zeros[1 << 16];
    uint8_t payload[256];
    int fd;

    while ((fd = peer_accept(world->listener)) >= 0) {
        struct frame request;

        if (peer_greet_as_server(fd, peer_one, MC_OK)) {
            while (peer_receive_frame(fd, &request, payload, sizeof(payload))) {
                struct frame answer = peer_reply(&request, MC_OK);

                answer.payload = request.type == FRAME_READ ? (uint32_t)request.length : 0;
                if (!peer_send_frame(fd, &answer, zeros))
                    break;
            }
        }
        close(fd);
    }
    return NULL;
}

static pthread_t serving(struct world *world) {
    pthread_t thread;

    assert_int_equal(thread_start(&thread, "server", serve, world), 0);
    return thread;
}

static void stop_serving(struct world *world, pthread_t thread) {
    lane_finish(&world->lane);
    world->finished = true;
    shutdown(world->listener, SHUT_RDWR);
    pthread_join(thread, NULL);
}

/* The caller drives until the wish has ended. */
static void drive(struct lane *lane, struct wish *wish) {
    uint64_t deadline = clock_after(clock_now(), PEER_PATIENCE);

    while (gate_count(&wish->done) == 0) {
        struct pollfd polled = {.fd = -1};

        assert_true(clock_now() < deadline);
        polled.fd = lane_poll_fd(lane, &polled.events);
        if (poll(&polled, 1, 20) > 0)
            lane_progress(lane, true);
    }
}

static void who_submits_while_another_is_at_it_goes_on_and_the_other_sends(void **state) {
    struct world *world = *state;
    struct wish wishes[3];

    submit_read(world, &wishes[0], 8);
    welcome(world, peer_one);
    assert_int_equal(next_request(world).length, 8);
    pthread_mutex_lock(&world->lane.lock);
    submit_read(world, &wishes[1], 16); /* returns */
    submit_read(world, &wishes[2], 24);
    assert_true(lane_outstanding(&world->lane) > 48);
    assert_false(connection_sending(&world->lane.connection));
    pthread_mutex_unlock(&world->lane.lock);
    assert_true(lane_drive_begin(&world->lane));
    assert_int_equal(next_request(world).length, 16);
    assert_int_equal(next_request(world).length, 24);
    lane_drive_end(&world->lane);
    lane_break(&world->lane, MC_ERR_CONNECTION_LOST);
    for (size_t i = 0; i < 3; i++)
        assert_ends(&wishes[i], MC_ERR_CONNECTION_LOST);
}

static void a_lane_has_one_driver(void **state) {
    struct world *world = *state;

    assert_true(lane_drive_begin(&world->lane));
    assert_false(lane_drive_begin(&world->lane));
    lane_drive_end(&world->lane);
    assert_true(lane_drive_begin(&world->lane));
    lane_drive_end(&world->lane);
}

static void a_driver_needs_no_other_thread(void **state) {
    struct world *world = *state;
    pthread_t thread = serving(world);
    struct gate hold;
    struct wish wish;

    gate_init(&hold);
    assert_true(lane_drive_begin(&world->lane));
    for (int i = 0; i < 50; i++) {
        wish_init(&wish, FRAME_READ, 32);
        submit(&world->lane, &wish, true);
        assert_false(world->lane.watched);
        drive(&world->lane, &wish);
        assert_ends(&wish, MC_OK);
    }
    lane_drive_end(&world->lane);
    stop_serving(world, thread);
    gate_destroy(&hold);
}

static void what_a_driver_leaves_the_loop_completes(void **state) {
    struct world *world = *state;
    struct wish wish, last;
    struct frame request;

    assert_true(lane_drive_begin(&world->lane));
    submit_read(world, &wish, 2);
    lane_drive_end(&world->lane);
    welcome(world, peer_one); /* by the loop */
    request = next_request(world);
    assert_true(lane_drive_begin(&world->lane));
    reply(world, &request, MC_OK, "ok", 2);
    drive(&world->lane, &wish);
    assert_ends(&wish, MC_OK);
    wish_init(&last, FRAME_READ, 2);
    submit(&world->lane, &last, true);
    request = next_request(world);
    reply(world, &request, MC_OK, "ok", 2);
    lane_drive_end(&world->lane);
    assert_ends(&last, MC_OK);
}

static void an_attended_request_that_is_left_is_the_loops(void **state) {
    struct world *world = *state;
    pthread_t thread = serving(world);
    struct wish wish;

    for (int i = 0; i < 20; i++) {
        wish_init(&wish, FRAME_READ, 32);
        submit(&world->lane, &wish, true);
        lane_leave(&world->lane);
        assert_ends(&wish, MC_OK);
    }
    stop_serving(world, thread);
}

static void a_lane_broken_while_driven_ends_requests_and_recovers_after(void **state) {
    struct world *world = *state;
    pthread_t thread = serving(world);
    struct wish wish;
    short events;

    assert_true(lane_drive_begin(&world->lane));
    wish_init(&wish, FRAME_READ, 32);
    submit(&world->lane, &wish, true);
    lane_break(&world->lane, MC_ERR_CANCELLED);
    assert_ends(&wish, MC_ERR_CANCELLED);
    /* The driver may be polling the descriptor, so it isn't closed under it. */
    assert_true(lane_poll_fd(&world->lane, &events) >= 0);
    wish_init(&wish, FRAME_READ, 32);
    submit(&world->lane, &wish, true);
    assert_ends(&wish, MC_ERR_CANCELLED);
    lane_drive_end(&world->lane);
    assert_int_equal(lane_poll_fd(&world->lane, &events), -1);
    forget_backoff(world);
    submit_read(world, &wish, 32);
    assert_ends(&wish, MC_OK);
    stop_serving(world, thread);
}

struct driver {
    struct world *world;
    _Atomic bool stop;
    int rounds;
};

/* Takes the lane and gives it back, all the time. */
static void *meddle(void *context) {
    struct driver *driver = context;
    struct lane *lane = &driver->world->lane;

    while (!driver->stop) {
        struct pollfd polled = {.fd = -1};

        if (!lane_drive_begin(lane))
            abort();
        polled.fd = lane_poll_fd(lane, &polled.events);
        if (poll(&polled, 1, driver->rounds % 3) > 0)
            lane_progress(lane, true);
        lane_drive_end(lane);
        driver->rounds++;
    }
    return NULL;
}

static void no_request_is_lost_between_drivers_and_the_loop(void **state) {
    struct world *world = *state;
    pthread_t server = serving(world), thread;
    struct driver driver = {.world = world};
    static struct wish wishes[8];

    assert_int_equal(thread_start(&thread, "driver", meddle, &driver), 0);
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < 8; i++) {
            wish_init(&wishes[i], FRAME_READ, 32);
            submit(&world->lane, &wishes[i], (round + i) % 3 == 0);
        }
        lane_leave(&world->lane);
        if (round % 4 == 0)
            cancel(world, &wishes[round % 8].request, MC_OK);
        for (int i = 0; i < 8; i++)
            assert_ends(&wishes[i], MC_OK);
    }
    driver.stop = true;
    pthread_join(thread, NULL);
    assert_int_equal(lane_outstanding(&world->lane), 0);
    stop_serving(world, server);
}

static void racing_cancels_and_breaks_end_each_request_once(void **state) {
    struct world *world = *state;
    pthread_t server = serving(world), thread;
    struct driver driver = {.world = world};
    static struct wish wishes[8];

    assert_int_equal(thread_start(&thread, "driver", meddle, &driver), 0);
    for (int round = 0; round < 60; round++) {
        for (int i = 0; i < 8; i++) {
            wish_init(&wishes[i], FRAME_READ, 32);
            submit(&world->lane, &wishes[i], false);
        }
        if (round % 2 == 0)
            lane_break(&world->lane, MC_ERR_CANCELLED);
        for (int i = 0; i < 8; i++)
            cancel(world, &wishes[i].request, MC_ERR_CANCELLED);
        for (int i = 0; i < 8; i++) {
            assert_int_equal(gate_count(&wishes[i].done), 1);
            assert_true(wishes[i].status == MC_OK || wishes[i].status == MC_ERR_CANCELLED ||
                        wishes[i].status == MC_ERR_CONNECTION_LOST);
            gate_destroy(&wishes[i].done);
        }
        forget_backoff(world);
    }
    driver.stop = true;
    pthread_join(thread, NULL);
    stop_serving(world, server);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_of(who_submits_while_another_is_at_it_goes_on_and_the_other_sends),
        test_of(a_lane_has_one_driver),
        test_of(a_driver_needs_no_other_thread),
        test_of(what_a_driver_leaves_the_loop_completes),
        test_of(an_attended_request_that_is_left_is_the_loops),
        test_of(a_lane_broken_while_driven_ends_requests_and_recovers_after),
        test_of(no_request_is_lost_between_drivers_and_the_loop),
        test_of(racing_cancels_and_breaks_end_each_request_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

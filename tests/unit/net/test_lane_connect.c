/* test_lane_connect.c - a lane finds its peer, knows it again, and says why it can't; when it ends, so do its requests.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "lane_world.h"

static const uint8_t peer_two[16] = {2};

/* ---- Losing and finding the peer ---- */

static void a_lost_connection_ends_everything_and_the_next_request_connects_again(void **state) {
    struct world *world = *state;
    struct wish wishes[3];

    for (int i = 0; i < 3; i++)
        submit_read(world, &wishes[i], 8);
    welcome(world, peer_one);
    next_request(world);
    world->peer = socket_close(world->peer);
    for (int i = 0; i < 3; i++)
        assert_ends(&wishes[i], MC_ERR_CONNECTION_LOST);
    assert_int_equal(world->lane.target->up, 0);
    assert_int_equal(world->lane.target->failure, MC_ERR_CONNECTION_LOST);
    forget_backoff(world);
    submit_read(world, &wishes[0], 2);
    welcome(world, peer_one);
    reply(world, &(struct frame){.type = FRAME_READ, .id = next_request(world).id}, MC_OK, "ok", 2);
    assert_ends(&wishes[0], MC_OK);
    assert_int_equal(world->lane.target->up, 1);
    assert_int_equal(world->lane.target->failure, MC_OK);
    assert_alive(world);
}

static void a_peer_that_left_an_idle_lane_is_noticed_before_the_next_request(void **state) {
    struct world *world = *state;
    struct wish wish;
    uint64_t deadline = clock_after(clock_now(), PEER_PATIENCE);
    enum lane_state lane_state = LANE_UP;

    submit_read(world, &wish, 0);
    welcome(world, peer_one);
    reply(world, &(struct frame){.type = FRAME_READ, .id = next_request(world).id}, MC_OK, NULL, 0);
    assert_ends(&wish, MC_OK);
    world->peer = socket_close(world->peer);
    while (lane_state != LANE_DOWN) {
        assert_true(clock_now() < deadline);
        pthread_mutex_lock(&world->lane.lock);
        lane_state = world->lane.state;
        pthread_mutex_unlock(&world->lane.lock);
        sched_yield();
    }
}

static void another_incarnation_is_a_stale_peer_whatever_it_says(void **state) {
    struct world *world = *state;
    struct wish wish;

    submit_read(world, &wish, 0);
    welcome(world, peer_one);
    reply(world, &(struct frame){.type = FRAME_READ, .id = next_request(world).id}, MC_OK, NULL, 0);
    assert_ends(&wish, MC_OK);
    world->peer = socket_close(world->peer);
    loop_flush(world->loop);

    /* One that refuses, and one that doesn't look at what was expected. */
    for (int i = 0; i < 2; i++) {
        forget_backoff(world);
        submit_read(world, &wish, 0);
        if (gate_count(&wish.done) == 1 && wish.status == MC_ERR_CONNECTION_LOST) { /* the old end wasn't seen yet */
            gate_destroy(&wish.done);
            i--;
            continue;
        }
        socket_close(world->peer);
        world->peer = peer_accept(world->listener);
        assert_true(peer_greet_as_server(world->peer, peer_two, i == 0 ? MC_ERR_STALE_PEER : MC_OK));
        assert_ends(&wish, MC_ERR_STALE_PEER);
    }
    assert_memory_equal(world->target.incarnation, peer_one, 16);
}

static void a_refusal_in_the_preface_is_what_requests_are_told(void **state) {
    struct world *world = *state;
    struct wish wish;

    submit_read(world, &wish, 8);
    world->peer = peer_accept(world->listener);
    assert_true(peer_greet_as_server(world->peer, peer_one, MC_ERR_TOO_MANY));
    assert_ends(&wish, MC_ERR_TOO_MANY);
    assert_false(world->target.known);
}

static void while_it_backs_off_requests_end_at_once_with_the_last_reason(void **state) {
    struct world *world = *state;
    struct wish wish;
    uint64_t before = 0, delay;

    world->listener = socket_close(world->listener);
    for (int i = 0; i < 12; i++) {
        submit_read(world, &wish, 8);
        assert_ends(&wish, MC_ERR_UNREACHABLE);
        pthread_mutex_lock(&world->lane.lock);
        delay = world->lane.retry_delay;
        world->lane.retry_at = CLOCK_NEVER;
        pthread_mutex_unlock(&world->lane.lock);
        assert_true(delay >= before && delay > 0);
        before = delay;
        submit_read(world, &wish, 8);
        assert_int_equal(gate_count(&wish.done), 1);
        assert_ends(&wish, MC_ERR_UNREACHABLE);
        forget_backoff(world);
    }
    assert_int_equal(world->lane.target->failure, MC_ERR_UNREACHABLE);
    assert_int_equal(before, CLOCK_SECOND);
}

static void a_silent_peer_is_unreachable_at_the_connect_timeout(void **state) {
    struct world *world = *state;
    struct wish wish;
    uint64_t before = clock_now();

    world->target.connect_timeout = 50 * CLOCK_MILLISECOND;
    submit_read(world, &wish, 8); /* connects by the backlog; nobody greets */
    assert_ends(&wish, MC_ERR_UNREACHABLE);
    assert_true(clock_now() - before >= 50 * CLOCK_MILLISECOND);
}

static void the_next_address_is_tried_when_one_refuses(void **state) {
    struct world *world = *state;
    int closed = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct address any = peer_loopback();
    struct wish wish;

    /* Bound, so that nobody else gets the port, and not listening. */
    assert_int_equal(bind(closed, (struct sockaddr *)&any.storage, any.length), 0);
    world->addresses[1] = world->addresses[0];
    world->addresses[0].length = sizeof(world->addresses[0].storage);
    assert_int_equal(getsockname(closed, (struct sockaddr *)&world->addresses[0].storage, &world->addresses[0].length),
                     0);
    world->target.address_count = 2;
    submit_read(world, &wish, 2);
    welcome(world, peer_one);
    reply(world, &(struct frame){.type = FRAME_READ, .id = next_request(world).id}, MC_OK, "ok", 2);
    assert_ends(&wish, MC_OK);
    socket_close(closed);
}

/* A listener whose queue is full, so that further connections are never answered, and what fills it. */
struct black_hole {
    int listener;
    int fillers[8];
};

static void black_hole_open(struct black_hole *hole, struct address *ret_address) {
    struct address any = peer_loopback();

    hole->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(hole->listener, (struct sockaddr *)&any.storage, any.length), 0);
    assert_int_equal(listen(hole->listener, 0), 0);
    ret_address->length = sizeof(ret_address->storage);
    assert_int_equal(getsockname(hole->listener, (struct sockaddr *)&ret_address->storage, &ret_address->length), 0);
    for (int i = 0; i < 8; i++) {
        hole->fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        assert_true(hole->fillers[i] >= 0);
        (void)connect(hole->fillers[i], (struct sockaddr *)&ret_address->storage, ret_address->length);
    }
}

static void black_hole_close(struct black_hole *hole) {
    for (int i = 0; i < 8; i++)
        socket_close(hole->fillers[i]);
    socket_close(hole->listener);
}

static void an_address_that_never_answers_leaves_the_next_its_share_of_the_time(void **state) {
    struct world *world = *state;
    struct black_hole hole;
    struct wish wish;

    world->addresses[1] = world->addresses[0];
    black_hole_open(&hole, &world->addresses[0]);
    world->target.address_count = 2;
    world->target.connect_timeout = 2 * CLOCK_SECOND;
    submit_read(world, &wish, 2);
    welcome(world, peer_one);
    reply(world, &(struct frame){.type = FRAME_READ, .id = next_request(world).id}, MC_OK, "ok", 2);
    assert_ends(&wish, MC_OK);
    black_hole_close(&hole);
}

static void breaking_ends_everything_with_the_status_given(void **state) {
    struct world *world = *state;
    struct wish wish;

    submit_read(world, &wish, 8);
    welcome(world, peer_one);
    next_request(world);
    lane_break(&world->lane, MC_ERR_BUSY);
    assert_int_equal(gate_count(&wish.done), 1);
    assert_ends(&wish, MC_ERR_BUSY);
    assert_true(peer_ended(world->peer));
}

static void finishing_ends_everything_with_closed(void **state) {
    struct world *world = *state;
    struct wish sent, waiting;
    struct lane other;

    submit_read(world, &sent, 8);
    welcome(world, peer_one);
    next_request(world);
    lane_init(&other, &world->target);
    wish_init(&waiting, FRAME_READ, 8);
    submit(&other, &waiting, false);
    lane_finish(&other);
    assert_int_equal(gate_count(&waiting.done), 1);
    assert_ends(&waiting, MC_ERR_CLOSED);
    lane_finish(&world->lane);
    world->finished = true;
    assert_ends(&sent, MC_ERR_CLOSED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_of(a_lost_connection_ends_everything_and_the_next_request_connects_again),
        test_of(a_peer_that_left_an_idle_lane_is_noticed_before_the_next_request),
        test_of(another_incarnation_is_a_stale_peer_whatever_it_says),
        test_of(a_refusal_in_the_preface_is_what_requests_are_told),
        test_of(while_it_backs_off_requests_end_at_once_with_the_last_reason),
        test_of(a_silent_peer_is_unreachable_at_the_connect_timeout),
        test_of(the_next_address_is_tried_when_one_refuses),
        test_of(an_address_that_never_answers_leaves_the_next_its_share_of_the_time),
        test_of(breaking_ends_everything_with_the_status_given),
        test_of(finishing_ends_everything_with_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

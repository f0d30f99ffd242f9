/* test_lane_cancel.c - what was given up ends at once, and then nothing touches its buffers; a peer is asked for no more
 * than the window.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "lane_world.h"

/* ---- Cancel ---- */

static void a_request_cancelled_before_the_connection_is_up_is_never_sent(void **state) {
    struct world *world = *state;
    struct wish given_up, kept;
    struct frame request;

    submit_read(world, &given_up, 1);
    submit_read(world, &kept, 2);
    cancel(world, &given_up.request, MC_ERR_CANCELLED);
    assert_int_equal(gate_count(&given_up.done), 1);
    cancel(world, &given_up.request, MC_ERR_TIMEOUT);
    assert_ends(&given_up, MC_ERR_CANCELLED);
    assert_false(given_up.request.begun);
    welcome(world, peer_one);
    request = next_request(world);
    assert_int_equal(request.length, 2);
    reply(world, &request, MC_OK, "ok", 2);
    assert_ends(&kept, MC_OK);
}

static void the_reply_to_a_cancelled_request_goes_nowhere(void **state) {
    struct world *world = *state;
    struct wish wish;
    struct frame request;

    submit_read(world, &wish, 4);
    welcome(world, peer_one);
    request = next_request(world);
    cancel(world, &wish.request, MC_ERR_TIMEOUT);
    assert_ends(&wish, MC_ERR_TIMEOUT);
    assert_int_equal(lane_outstanding(&world->lane), 0);
    reply(world, &request, MC_OK, "data", 4);
    assert_alive(world);
    assert_memory_equal(wish.place, "\0\0\0\0", 4);
}

static void an_ids_last_reply_must_have_come_before_it_is_used_again(void **state) {
    struct world *world = *state;
    struct wish given_up, next;
    struct frame first, second;

    submit_read(world, &given_up, 4);
    welcome(world, peer_one);
    first = next_request(world);
    cancel(world, &given_up.request, MC_ERR_CANCELLED);
    assert_ends(&given_up, MC_ERR_CANCELLED);
    submit_read(world, &next, 4);
    second = next_request(world);
    assert_true((uint32_t)first.id != (uint32_t)second.id);
    reply(world, &second, MC_OK, "next", 4);
    reply(world, &first, MC_OK, "late", 4);
    assert_ends(&next, MC_OK);
    assert_memory_equal(next.place, "next", 4);
    assert_alive(world);
}

static void both_replies_to_a_cancelled_guarded_read_go_nowhere(void **state) {
    struct world *world = *state;
    struct wish wish;
    struct frame request = guarded_read(world, &wish);
    struct frame first = peer_reply(&request, MC_OK);

    first.flags = FRAME_FLAG_MORE;
    first.payload = 4;
    assert_true(peer_send_frame(world->peer, &first, "data"));
    await_received(world, FRAME_SIZE + 4);
    cancel(world, &wish.request, MC_ERR_CANCELLED);
    assert_ends(&wish, MC_ERR_CANCELLED);
    reply(world, &request, MC_OK, NULL, 0);
    assert_alive(world);
    assert_alive(world);
}

static void a_request_cancelled_while_its_payload_comes_is_not_touched_any_more(void **state) {
    struct world *world = *state;
    struct wish wish;
    struct frame request, header;
    uint8_t bytes[FRAME_SIZE];

    submit_read(world, &wish, 8);
    welcome(world, peer_one);
    request = next_request(world);
    header = peer_reply(&request, MC_OK);
    header.payload = 8;
    frame_pack(&header, bytes);
    assert_true(peer_send(world->peer, bytes, FRAME_SIZE));
    assert_true(peer_send(world->peer, "half", 4));
    await_received(world, FRAME_SIZE + 4);
    cancel(world, &wish.request, MC_ERR_CANCELLED);
    assert_ends(&wish, MC_ERR_CANCELLED);
    memset(&wish, 0xdd, sizeof(wish));
    assert_true(peer_send(world->peer, "rest", 4));
    assert_alive(world);
    for (size_t i = 0; i < sizeof(wish); i++)
        assert_int_equal(((uint8_t *)&wish)[i], 0xdd);
}

/* Waits until some of the frame has left, and stops short of the rest, which the peer doesn't read. */
static void await_half_sent(struct world *world, const struct wish *wish) {
    uint64_t deadline = clock_after(clock_now(), PEER_PATIENCE);
    uint32_t sent = 0;

    while (sent <= FRAME_SIZE) {
        assert_true(clock_now() < deadline);
        pthread_mutex_lock(&world->lane.lock);
        sent = wish->request.out.sent;
        pthread_mutex_unlock(&world->lane.lock);
        sched_yield();
    }
    assert_in_range(sent, FRAME_SIZE + 1, LARGE);
}

/* Also when nobody asks for anything else: a frame without an end would keep the peer waiting. */
static void a_write_cancelled_half_sent_leaves_its_source_and_completes_its_frame(void **state) {
    struct world *world = *state;
    uint8_t *source = malloc(LARGE), *seen = malloc(LARGE);
    struct wish wish;
    struct frame request;

    assert_non_null(source);
    assert_non_null(seen);
    memset(source, 0x11, LARGE);
    wish_init(&wish, FRAME_WRITE, LARGE);
    wish.request.frame.payload = LARGE;
    wish.request.payload = source;
    submit(&world->lane, &wish, false);
    welcome(world, peer_one);
    await_half_sent(world, &wish);
    cancel(world, &wish.request, MC_ERR_CANCELLED);
    assert_ends(&wish, MC_ERR_CANCELLED);
    assert_true(wish.request.begun);
    memset(source, 0xdd, LARGE);
    free(source);
    assert_true(peer_receive_frame(world->peer, &request, seen, LARGE));
    for (size_t i = 0; i < LARGE; i += 1021)
        assert_int_equal(seen[i], 0x11);
    reply(world, &request, MC_OK, NULL, 0);
    free(seen);
    assert_alive(world);
}

/* Else the peer would hold the memory that it can't send. */
static void the_payload_of_a_cancelled_read_is_taken_though_nobody_asks_for_more(void **state) {
    struct world *world = *state;
    uint8_t *bytes = calloc(1, LARGE);
    struct wish wish;
    struct frame request;

    assert_non_null(bytes);
    wish_init(&wish, FRAME_READ, LARGE);
    wish.request.reply = malloc(LARGE);
    wish.request.reply_capacity = LARGE;
    submit(&world->lane, &wish, false);
    welcome(world, peer_one);
    request = next_request(world);
    cancel(world, &wish.request, MC_ERR_CANCELLED);
    assert_ends(&wish, MC_ERR_CANCELLED);
    free(wish.request.reply);
    reply(world, &request, MC_OK, bytes, LARGE);
    free(bytes);
    assert_alive(world);
}

/* ---- How much a peer is asked for at a time ---- */

#define PART (1u << 20)
#define WINDOW 16 /* parts */
#define PARTS 64

/* Many parts are asked for, of which the peer is told those within the window. */
struct parts {
    struct wish wishes[PARTS];
    struct frame told[WINDOW];
    uint8_t *bytes; /* where all of them go, and what the peer sends */
};

static void ask_for_parts(struct world *world, struct parts *parts) {
    struct wish first;
    struct frame request;
    struct list requests;

    submit_read(world, &first, 0);
    welcome(world, peer_one);
    request = next_request(world);
    reply(world, &request, MC_OK, NULL, 0);
    assert_ends(&first, MC_OK);
    parts->bytes = calloc(2, PART);
    assert_non_null(parts->bytes);
    list_init(&requests);
    for (int i = 0; i < PARTS; i++) {
        wish_init(&parts->wishes[i], FRAME_READ, PART);
        parts->wishes[i].request.reply = parts->bytes;
        parts->wishes[i].request.reply_capacity = PART;
        list_append(&requests, &parts->wishes[i].request.node);
    }
    lane_submit(&world->lane, &requests, false);
    for (int i = 0; i < WINDOW; i++) {
        parts->told[i] = next_request(world);
        assert_int_equal(parts->told[i].length, PART);
    }
}

static void assert_told_nothing(struct world *world) {
    uint8_t byte;

    assert_int_equal(recv(world->peer, &byte, 1, MSG_PEEK | MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
}

static void a_peer_is_asked_for_at_most_the_window_and_for_more_as_it_answers(void **state) {
    struct world *world = *state;
    static struct parts parts;

    ask_for_parts(world, &parts);
    for (int i = 0; i < PARTS; i++) {
        assert_told_nothing(world);
        reply(world, &parts.told[i % WINDOW], MC_OK, parts.bytes + PART, PART);
        assert_ends(&parts.wishes[i], MC_OK);
        if (i + WINDOW < PARTS)
            parts.told[i % WINDOW] = next_request(world);
    }
    assert_alive(world);
    free(parts.bytes);
}

static void after_a_cancel_a_peer_sends_at_most_the_window_before_the_next_reply(void **state) {
    struct world *world = *state;
    static struct parts parts;
    struct lane_request *requests[PARTS];
    struct wish next;
    struct frame request;

    ask_for_parts(world, &parts);
    for (int i = 0; i < PARTS; i++)
        requests[i] = &parts.wishes[i].request;
    lane_cancel(&world->lane, requests, PARTS, MC_ERR_CANCELLED);
    for (int i = 0; i < PARTS; i++)
        assert_ends(&parts.wishes[i], MC_ERR_CANCELLED);
    submit_read(world, &next, 3);
    assert_told_nothing(world); /* what was given up is still to come */
    for (int i = 0; i < WINDOW; i++)
        reply(world, &parts.told[i], MC_OK, parts.bytes + PART, PART);
    request = next_request(world);
    assert_int_equal(request.length, 3);
    reply(world, &request, MC_OK, "abc", 3);
    assert_ends(&next, MC_OK);
    assert_told_nothing(world);
    free(parts.bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_of(a_request_cancelled_before_the_connection_is_up_is_never_sent),
        test_of(the_reply_to_a_cancelled_request_goes_nowhere),
        test_of(an_ids_last_reply_must_have_come_before_it_is_used_again),
        test_of(both_replies_to_a_cancelled_guarded_read_go_nowhere),
        test_of(a_request_cancelled_while_its_payload_comes_is_not_touched_any_more),
        test_of(a_write_cancelled_half_sent_leaves_its_source_and_completes_its_frame),
        test_of(the_payload_of_a_cancelled_read_is_taken_though_nobody_asks_for_more),
        test_of(a_peer_is_asked_for_at_most_the_window_and_for_more_as_it_answers),
        test_of(after_a_cancel_a_peer_sends_at_most_the_window_before_the_next_reply),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_lane.c - every request on a lane ends once, with the right status, and then nothing touches its buffers.
 *
 * The test's own thread plays the server, step by step; the lane is driven by its loop where a test says nothing else.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "base/crc32c.h"
#include "net/lane.h"
#include "peer.h"

static const uint8_t peer_one[16] = {1}, peer_two[16] = {2};

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

static void wish_done(struct lane_request *request, int32_t status) {
    struct wish *wish = list_entry(request, struct wish, request);

    wish->status = status;
    gate_step(&wish->done);
}

static void wish_init(struct wish *wish, uint16_t type, uint64_t length) {
    memset(wish, 0, sizeof(*wish));
    gate_init(&wish->done);
    wish->request.done = wish_done;
    wish->request.frame = (struct frame){.type = type, .length = length};
    wish->request.reply = wish->place;
    wish->request.reply_capacity = sizeof(wish->place);
    wish->status = 1;
}

static void submit(struct lane *lane, struct wish *wish, bool attended) {
    struct list requests;

    list_init(&requests);
    list_append(&requests, &wish->request.node);
    lane_submit(lane, &requests, attended);
    assert_true(list_empty(&requests));
}

static void submit_read(struct world *world, struct wish *wish, uint64_t length) {
    wish_init(wish, FRAME_READ, length);
    submit(&world->lane, wish, false);
}

static void cancel(struct world *world, struct lane_request *request, int32_t status) {
    lane_cancel(&world->lane, &request, 1, status);
}

/* The wish ends, once, with `status`. */
static void assert_ends(struct wish *wish, int32_t status) {
    gate_await(&wish->done, 1);
    assert_int_equal(gate_count(&wish->done), 1);
    assert_int_equal(wish->status, status);
    gate_destroy(&wish->done);
}

static int open_world(void **state) {
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

static int close_world(void **state) {
    struct world *world = *state;

    if (!world->finished)
        lane_finish(&world->lane);
    loop_stop(world->loop);
    socket_close(world->peer);
    socket_close(world->listener);
    free(world);
    return 0;
}

static void welcome(struct world *world, const uint8_t incarnation[16]) {
    world->peer = peer_accept(world->listener);
    assert_true(world->peer >= 0);
    assert_true(peer_greet_as_server(world->peer, incarnation, MC_OK));
}

static struct frame next_request(struct world *world) {
    struct frame frame;
    uint8_t payload[256];

    assert_true(peer_receive_frame(world->peer, &frame, payload, sizeof(payload)));
    return frame;
}

static void reply(struct world *world, const struct frame *request, int32_t status, const void *payload,
                  uint32_t length) {
    struct frame frame = peer_reply(request, status);

    frame.payload = length;
    assert_true(peer_send_frame(world->peer, &frame, payload));
}

static uint64_t received(struct world *world) {
    uint64_t bytes;

    pthread_mutex_lock(&world->lane.lock);
    bytes = world->lane.connection.received.bytes;
    pthread_mutex_unlock(&world->lane.lock);
    return bytes;
}

static void await_received(struct world *world, uint64_t bytes) {
    uint64_t deadline = clock_after(clock_now(), PEER_PATIENCE);

    while (received(world) < bytes) {
        assert_true(clock_now() < deadline);
        sched_yield();
    }
}

/* So that a test needn't wait for the back-off. */
static void forget_backoff(struct world *world) {
    pthread_mutex_lock(&world->lane.lock);
    world->lane.retry_at = 0;
    pthread_mutex_unlock(&world->lane.lock);
}

/* The lane still works. */
static void assert_alive(struct world *world) {
    struct wish wish;
    struct frame request;

    submit_read(world, &wish, 3);
    request = next_request(world);
    reply(world, &request, MC_OK, "abc", 3);
    assert_ends(&wish, MC_OK);
    assert_memory_equal(wish.place, "abc", 3);
}

/* ---- Replies ---- */

static void the_first_request_connects_and_is_answered(void **state) {
    struct world *world = *state;
    struct wish wish;
    struct frame request;

    wish_init(&wish, FRAME_READ, 5);
    wish.request.frame.address = 0x1234;
    submit(&world->lane, &wish, false);
    welcome(world, peer_one);
    request = next_request(world);
    assert_int_equal(request.type, FRAME_READ);
    assert_int_equal(request.address, 0x1234);
    assert_int_equal(request.length, 5);
    reply(world, &request, MC_OK, "hello", 5);
    assert_ends(&wish, MC_OK);
    assert_memory_equal(wish.place, "hello", 5);
    assert_int_equal(lane_outstanding(&world->lane), 0);
    assert_true(world->target.known);
    assert_memory_equal(world->target.incarnation, peer_one, 16);
    assert_alive(world);
}

static void replies_find_their_requests_in_any_order(void **state) {
    struct world *world = *state;
    static struct wish wishes[100];
    struct frame requests[100];

    for (int i = 0; i < 100; i++)
        submit_read(world, &wishes[i], 1);
    assert_int_equal(lane_outstanding(&world->lane), 100 * (FRAME_SIZE + 1));
    welcome(world, peer_one);
    for (int i = 0; i < 100; i++) {
        requests[i] = next_request(world);
        for (int j = 0; j < i; j++)
            assert_true(requests[j].id != requests[i].id);
    }
    for (int i = 99; i >= 0; i -= 2)
        reply(world, &requests[i], MC_OK, &(uint8_t){(uint8_t)i}, 1);
    for (int i = 0; i < 100; i += 2)
        reply(world, &requests[i], MC_OK, &(uint8_t){(uint8_t)i}, 1);
    for (int i = 0; i < 100; i++) {
        assert_ends(&wishes[i], MC_OK);
        assert_int_equal(wishes[i].place[0], i);
    }
}

/* The table of requests grows, and moves, while a reply's payload is coming. */
static void a_payload_under_way_survives_any_number_of_new_requests(void **state) {
    struct world *world = *state;
    static struct wish first, others[200];
    struct frame request, header;
    uint8_t bytes[FRAME_SIZE];

    submit_read(world, &first, 10);
    welcome(world, peer_one);
    request = next_request(world);
    header = peer_reply(&request, MC_OK);
    header.payload = 10;
    frame_pack(&header, bytes);
    assert_true(peer_send(world->peer, bytes, FRAME_SIZE));
    assert_true(peer_send(world->peer, "01234", 5));
    await_received(world, FRAME_SIZE + 5);
    for (int i = 0; i < 200; i++)
        submit_read(world, &others[i], 0);
    assert_true(peer_send(world->peer, "56789", 5));
    assert_ends(&first, MC_OK);
    assert_memory_equal(first.place, "0123456789", 10);
    for (int i = 0; i < 200; i++) {
        request = next_request(world);
        reply(world, &request, MC_OK, NULL, 0);
    }
    for (int i = 0; i < 200; i++)
        assert_ends(&others[i], MC_OK);
}

static void a_refusal_ends_that_request_only(void **state) {
    struct world *world = *state;
    struct wish refused, strange;
    struct frame request;

    submit_read(world, &refused, 8);
    submit_read(world, &strange, 8);
    welcome(world, peer_one);
    request = next_request(world);
    reply(world, &request, MC_ERR_ACCESS_DENIED, NULL, 0);
    request = next_request(world);
    reply(world, &request, -31337, NULL, 0);
    assert_ends(&refused, MC_ERR_ACCESS_DENIED);
    assert_ends(&strange, -31337);
    assert_alive(world);
}

static void a_messages_reply_is_cut_to_its_place(void **state) {
    struct world *world = *state;
    struct wish wish;
    struct frame request;
    uint8_t body[64];

    memset(body, 7, sizeof(body));
    wish_init(&wish, FRAME_CALL + 2, 0);
    wish.request.reply_capacity = 10;
    submit(&world->lane, &wish, false);
    welcome(world, peer_one);
    request = next_request(world);
    reply(world, &request, MC_OK, body, 64);
    assert_ends(&wish, MC_OK);
    assert_int_equal(wish.request.reply_length, 10);
    assert_memory_equal(wish.place, body, 10);
    assert_int_equal(wish.place[10], 0);
    assert_alive(world);
}

/* ---- Replies that no server may give ---- */

enum sin {
    SIN_ID,
    SIN_GENERATION,
    SIN_TYPE,
    SIN_NO_REPLY,
    SIN_SHORT,
    SIN_LONG,
    SIN_PAYLOAD_OF_REFUSAL,
    SIN_MORE_UNASKED,
    SIN_CHECKSUM_UNASKED,
    SIN_FLAG,
    SIN_POSITIVE,
    SIN_TWICE,
    SIN_COUNT
};

static struct frame sinful(const struct frame *request, enum sin sin) {
    struct frame frame = peer_reply(request, MC_OK);

    frame.payload = (uint32_t)request->length;
    switch (sin) {
    case SIN_ID:
        frame.id += 7;
        break;
    case SIN_GENERATION:
        frame.id += (uint64_t)1 << 32;
        break;
    case SIN_TYPE:
        frame.type = FRAME_WRITE | FRAME_REPLY;
        break;
    case SIN_NO_REPLY:
        frame.type = FRAME_READ;
        break;
    case SIN_SHORT:
        frame.payload--;
        break;
    case SIN_LONG:
        frame.payload++;
        break;
    case SIN_PAYLOAD_OF_REFUSAL:
        frame.status = MC_ERR_BUSY;
        break;
    case SIN_MORE_UNASKED:
        frame.flags = FRAME_FLAG_MORE;
        break;
    case SIN_CHECKSUM_UNASKED:
        frame.flags = FRAME_FLAG_CHECKSUM;
        break;
    case SIN_FLAG:
        frame.flags = 0x100;
        break;
    case SIN_POSITIVE:
        frame.status = 1;
        frame.payload = 0;
        break;
    default:
        break;
    }
    return frame;
}

static void a_reply_that_no_server_may_give_closes_the_connection(void **state) {
    for (enum sin sin = 0; sin < SIN_COUNT; sin++) {
        struct world *world;
        struct wish wish, other;
        struct frame request, frame;
        uint8_t payload[64] = {0};

        open_world(state);
        world = *state;
        submit_read(world, &wish, 8);
        submit_read(world, &other, 8);
        welcome(world, peer_one);
        request = next_request(world);
        next_request(world);
        frame = sinful(&request, sin);
        assert_true(peer_send_frame(world->peer, &frame, payload));
        if (sin == SIN_TWICE)
            peer_send_frame(world->peer, &frame, payload);
        assert_ends(&wish, sin == SIN_TWICE ? MC_OK : MC_ERR_PROTOCOL);
        assert_ends(&other, MC_ERR_PROTOCOL);
        assert_true(peer_ended(world->peer));
        close_world(state);
    }
}

static void a_payload_in_the_reply_to_a_write_closes_the_connection(void **state) {
    struct world *world = *state;
    struct wish wish;
    struct frame request;

    wish_init(&wish, FRAME_WRITE, 0);
    submit(&world->lane, &wish, false);
    welcome(world, peer_one);
    request = next_request(world);
    reply(world, &request, MC_OK, "x", 1);
    assert_ends(&wish, MC_ERR_PROTOCOL);
}

#define LARGE (32u << 20)

/* The peer reads the header of a large frame and answers it. The source is the caller's again when the request has
 * ended: what the caller writes there is never sent. */
static void answer_early(struct world *world, uint16_t type, uint32_t length, int32_t status) {
    uint8_t header[FRAME_SIZE], part[4096], *source = malloc(length);
    struct frame request;
    struct wish wish;
    size_t seen = 0;
    ssize_t got;

    assert_non_null(source);
    memset(source, 0x11, length);
    wish_init(&wish, type, length);
    wish.request.frame.payload = length;
    wish.request.payload = source;
    submit(&world->lane, &wish, false);
    assert_true(peer_receive(world->peer, header, sizeof(header)));
    assert_int_equal(frame_unpack(header, &request), MC_OK);
    assert_int_equal(request.payload, length);
    reply(world, &request, status, NULL, 0);
    assert_ends(&wish, MC_ERR_PROTOCOL);
    assert_true(wish.request.begun);
    memset(source, 0xdd, length);
    while ((got = recv(world->peer, part, sizeof(part), 0)) > 0) {
        for (ssize_t i = 0; i < got; i++)
            assert_int_equal(part[i], 0x11);
        seen += (size_t)got;
    }
    assert_true(got == 0 || errno == ECONNRESET);
    assert_true(seen < length);
    free(source);
}

/* So that less than a message fits between the two, whatever the kernel thinks. */
static void narrow(struct world *world) {
    int size = 4096;

    assert_int_equal(setsockopt(world->peer, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)), 0);
    pthread_mutex_lock(&world->lane.lock);
    assert_int_equal(setsockopt(world->lane.fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
    pthread_mutex_unlock(&world->lane.lock);
}

static void a_reply_before_the_whole_frame_has_come_closes_the_connection_and_frees_the_source(void **state) {
    static const struct {
        uint16_t type;
        uint32_t length;
    } frames[] = {{FRAME_WRITE, LARGE}, {FRAME_CALL + 2, 1u << 20}};

    for (int i = 0; i < 4; i++) {
        struct world *world;
        struct wish wish;
        struct frame request;

        open_world(state);
        world = *state;
        submit_read(world, &wish, 0);
        welcome(world, peer_one);
        request = next_request(world);
        reply(world, &request, MC_OK, NULL, 0);
        assert_ends(&wish, MC_OK);
        narrow(world);
        answer_early(world, frames[i / 2].type, frames[i / 2].length, i % 2 == 0 ? MC_OK : MC_ERR_ACCESS_DENIED);
        close_world(state);
    }
}

/* ---- Two replies to a guarded READ; checksums ---- */

static struct frame guarded_read(struct world *world, struct wish *wish) {
    wish_init(wish, FRAME_READ, 4);
    wish->request.frame.flags = FRAME_FLAG_GUARD;
    submit(&world->lane, wish, false);
    if (world->peer < 0)
        welcome(world, peer_one);
    return next_request(world);
}

static void of_two_replies_to_a_guarded_read_the_second_counts(void **state) {
    static const int32_t statuses[] = {MC_OK, MC_ERR_GUARD_MISMATCH};
    struct world *world = *state;

    for (int i = 0; i < 2; i++) {
        struct wish wish;
        struct frame request = guarded_read(world, &wish);
        struct frame first = peer_reply(&request, MC_OK);

        first.flags = FRAME_FLAG_MORE;
        first.payload = 4;
        assert_true(peer_send_frame(world->peer, &first, "data"));
        assert_alive(world); /* replies to others may stand between the two */
        assert_int_equal(gate_count(&wish.done), 0);
        reply(world, &request, statuses[i], NULL, 0);
        assert_ends(&wish, statuses[i]);
        assert_memory_equal(wish.place, "data", 4);
    }
}

static void a_guarded_read_may_be_answered_at_once(void **state) {
    struct world *world = *state;
    struct wish wish;
    struct frame request = guarded_read(world, &wish);

    reply(world, &request, MC_OK, "data", 4);
    assert_ends(&wish, MC_OK);
    request = guarded_read(world, &wish);
    reply(world, &request, MC_ERR_GUARD_MISMATCH, NULL, 0);
    assert_ends(&wish, MC_ERR_GUARD_MISMATCH);
    assert_alive(world);
}

static void a_payload_twice_closes_the_connection(void **state) {
    struct world *world = *state;
    struct wish wish;
    struct frame request = guarded_read(world, &wish);
    struct frame first = peer_reply(&request, MC_OK);

    first.flags = FRAME_FLAG_MORE;
    first.payload = 4;
    assert_true(peer_send_frame(world->peer, &first, "data"));
    assert_true(peer_send_frame(world->peer, &first, "data"));
    assert_ends(&wish, MC_ERR_PROTOCOL);
}

static void a_checked_payload_must_have_its_checksum(void **state) {
    static const int32_t statuses[] = {MC_OK, MC_ERR_CHECKSUM_MISMATCH, MC_ERR_CHECKSUM_MISMATCH};
    struct world *world = *state;

    for (int i = 0; i < 3; i++) {
        struct wish wish;
        struct frame request, answer;

        wish_init(&wish, FRAME_READ, 4);
        wish.request.frame.flags = FRAME_FLAG_CHECKSUM;
        submit(&world->lane, &wish, false);
        if (world->peer < 0)
            welcome(world, peer_one);
        request = next_request(world);
        answer = peer_reply(&request, MC_OK);
        answer.payload = 4;
        answer.flags = i == 2 ? 0 : FRAME_FLAG_CHECKSUM;
        answer.payload_crc = crc32c(0, "data", 4) ^ (i == 1);
        assert_true(peer_send_frame(world->peer, &answer, "data"));
        assert_ends(&wish, statuses[i]);
    }
    assert_alive(world);
}

static void a_checked_write_carries_its_checksum(void **state) {
    struct world *world = *state;
    struct wish wish;
    struct frame request;

    wish_init(&wish, FRAME_WRITE, 4);
    wish.request.frame.flags = FRAME_FLAG_CHECKSUM;
    wish.request.frame.payload = 4;
    wish.request.payload = "data";
    submit(&world->lane, &wish, false);
    welcome(world, peer_one);
    request = next_request(world);
    assert_int_equal(request.payload_crc, crc32c(0, "data", 4));
    reply(world, &request, MC_OK, NULL, 0);
    assert_ends(&wish, MC_OK);
}

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
    forget_backoff(world);
    submit_read(world, &wishes[0], 2);
    welcome(world, peer_one);
    reply(world, &(struct frame){.type = FRAME_READ, .id = next_request(world).id}, MC_OK, "ok", 2);
    assert_ends(&wishes[0], MC_OK);
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
            lane_progress(lane);
    }
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
            lane_progress(lane);
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

#define test_of(function) cmocka_unit_test_setup_teardown(function, open_world, close_world)

int main(void) {
    const struct CMUnitTest tests[] = {
        test_of(the_first_request_connects_and_is_answered),
        test_of(replies_find_their_requests_in_any_order),
        test_of(a_payload_under_way_survives_any_number_of_new_requests),
        test_of(a_refusal_ends_that_request_only),
        test_of(a_messages_reply_is_cut_to_its_place),
        cmocka_unit_test(a_reply_that_no_server_may_give_closes_the_connection),
        test_of(a_payload_in_the_reply_to_a_write_closes_the_connection),
        cmocka_unit_test(a_reply_before_the_whole_frame_has_come_closes_the_connection_and_frees_the_source),
        test_of(of_two_replies_to_a_guarded_read_the_second_counts),
        test_of(a_guarded_read_may_be_answered_at_once),
        test_of(a_payload_twice_closes_the_connection),
        test_of(a_checked_payload_must_have_its_checksum),
        test_of(a_checked_write_carries_its_checksum),
        test_of(a_request_cancelled_before_the_connection_is_up_is_never_sent),
        test_of(the_reply_to_a_cancelled_request_goes_nowhere),
        test_of(an_ids_last_reply_must_have_come_before_it_is_used_again),
        test_of(both_replies_to_a_cancelled_guarded_read_go_nowhere),
        test_of(a_request_cancelled_while_its_payload_comes_is_not_touched_any_more),
        test_of(a_write_cancelled_half_sent_leaves_its_source_and_completes_its_frame),
        test_of(the_payload_of_a_cancelled_read_is_taken_though_nobody_asks_for_more),
        test_of(a_peer_is_asked_for_at_most_the_window_and_for_more_as_it_answers),
        test_of(after_a_cancel_a_peer_sends_at_most_the_window_before_the_next_reply),
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

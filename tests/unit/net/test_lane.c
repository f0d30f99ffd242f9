/* test_lane.c - every request on a lane ends once, with the right status, by the reply that its server gives.
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

#include "base/crc32c.h"
#include "lane_world.h"

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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

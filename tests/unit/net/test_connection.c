/* test_connection.c - frames come out as they went in, wherever the stream is cut, and payloads go nowhere else. */
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

#include "base/crc32c.h"
#include "net/connection.h"
#include "peer.h"

#define PLENTY (64u << 20)
#define FRAMES_MAX 1024

/* What a receiver is told, and what it answers. */
struct receiver {
    struct connection connection;
    int begun, ended;
    struct frame frames[FRAMES_MAX];
    uint8_t *sink; /* where the next payload goes; moves on by what it takes */
    uint32_t sink_length;
    int32_t begin_status, end_status;
};

struct pair {
    struct receiver receiver;
    struct connection sender;
    uint8_t place[1 << 16];
};

static int32_t on_begin(struct connection *connection, const struct frame *frame, struct sink *ret_sink) {
    struct receiver *receiver = list_entry(connection, struct receiver, connection);

    assert_true(receiver->begun < FRAMES_MAX);
    assert_int_equal(receiver->begun, receiver->ended);
    receiver->frames[receiver->begun++] = *frame;
    *ret_sink = (struct sink){.bytes = receiver->sink, .length = receiver->sink_length};
    return receiver->begin_status;
}

static int32_t on_end(struct connection *connection) {
    struct receiver *receiver = list_entry(connection, struct receiver, connection);

    receiver->ended++;
    return receiver->end_status;
}

static const struct connection_ops ops = {on_begin, on_end};

static int open_pair(void **state) {
    struct pair *pair = calloc(1, sizeof(*pair));
    int fds[2];

    assert_non_null(pair);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    connection_init(&pair->sender, &ops, stream_of_socket(fds[0]));
    connection_init(&pair->receiver.connection, &ops, stream_of_socket(fds[1]));
    pair->receiver.sink = pair->place;
    pair->receiver.sink_length = sizeof(pair->place);
    *state = pair;
    return 0;
}

static int close_pair(void **state) {
    struct pair *pair = *state;

    connection_clear(&pair->sender);
    connection_clear(&pair->receiver.connection);
    socket_close(pair->sender.stream.fd);
    socket_close(pair->receiver.connection.stream.fd);
    free(pair);
    return 0;
}

static void fill(uint8_t *bytes, size_t length, uint8_t seed) {
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)(seed + i * 7 + (i >> 8));
}

static int32_t receive(struct pair *pair) {
    return connection_receive(&pair->receiver.connection, PLENTY);
}

/* Sends bytes past the sender's queue. */
static void push(struct pair *pair, const uint8_t *bytes, size_t length) {
    assert_int_equal(send(pair->sender.stream.fd, bytes, length, 0), (ssize_t)length);
}

/* Three frames as bytes: payloads of 21, 0 and 9. */
#define THREE_SIZE (3 * FRAME_SIZE + 30)
static void pack_three(uint8_t bytes[THREE_SIZE]) {
    frame_pack(&(struct frame){.type = FRAME_WRITE, .id = 1, .payload = 21}, bytes);
    fill(bytes + FRAME_SIZE, 21, 1);
    frame_pack(&(struct frame){.type = FRAME_READ, .id = 2}, bytes + FRAME_SIZE + 21);
    frame_pack(&(struct frame){.type = FRAME_WRITE, .id = 3, .payload = 9}, bytes + 2 * FRAME_SIZE + 21);
    fill(bytes + 3 * FRAME_SIZE + 21, 9, 3);
}

/* The last payload's beginning overwrites the first's. */
static void assert_three(struct pair *pair) {
    uint8_t expected[21];

    fill(expected, 21, 1);
    fill(expected, 9, 3);
    assert_int_equal(pair->receiver.begun, 3);
    assert_int_equal(pair->receiver.ended, 3);
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(pair->receiver.frames[i].id, i + 1);
    assert_memory_equal(pair->place, expected, 21);
    pair->receiver.begun = pair->receiver.ended = 0;
    memset(pair->place, 0, 21);
}

/* ---- Receiving ---- */

static void frames_come_out_whole_wherever_the_stream_is_cut(void **state) {
    struct pair *pair = *state;
    uint8_t bytes[THREE_SIZE];

    pack_three(bytes);
    for (size_t cut = 0; cut <= sizeof(bytes); cut++) {
        push(pair, bytes, cut);
        assert_int_equal(receive(pair), MC_OK);
        push(pair, bytes + cut, sizeof(bytes) - cut);
        assert_int_equal(receive(pair), MC_OK);
        assert_three(pair);
    }
}

static void frames_come_out_whole_when_they_come_byte_by_byte(void **state) {
    struct pair *pair = *state;
    uint8_t bytes[THREE_SIZE];

    pack_three(bytes);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        push(pair, bytes + i, 1);
        assert_int_equal(receive(pair), MC_OK);
    }
    assert_three(pair);
    assert_int_equal(pair->receiver.connection.received.bytes, sizeof(bytes));
}

static void many_frames_are_digested_by_one_receive(void **state) {
    struct pair *pair = *state;
    uint8_t bytes[400][FRAME_SIZE + 50];

    /* More than the read-ahead buffer has room for, and no multiple of it. */
    for (uint64_t i = 0; i < 400; i++) {
        frame_pack(&(struct frame){.type = FRAME_WRITE, .id = i, .payload = 50}, bytes[i]);
        fill(bytes[i] + FRAME_SIZE, 50, (uint8_t)i);
    }
    push(pair, bytes[0], sizeof(bytes));
    assert_int_equal(receive(pair), MC_OK);
    assert_int_equal(pair->receiver.ended, 400);
    for (uint64_t i = 0; i < 400; i++)
        assert_int_equal(pair->receiver.frames[i].id, i);
    assert_memory_equal(pair->place, bytes[399] + FRAME_SIZE, 50);
}

static void a_payload_beyond_its_sink_goes_nowhere(void **state) {
    struct pair *pair = *state;
    uint8_t bytes[THREE_SIZE], canary[sizeof(pair->place)];

    memset(canary, 0xee, sizeof(canary));
    pack_three(bytes);
    for (uint32_t room = 0; room <= 21; room++) {
        for (size_t cut = 0; cut <= FRAME_SIZE + 21; cut += 5) {
            memset(pair->place, 0xee, sizeof(pair->place));
            pair->receiver.sink_length = room;
            push(pair, bytes, cut);
            assert_int_equal(receive(pair), MC_OK);
            push(pair, bytes + cut, FRAME_SIZE + 21 - cut);
            assert_int_equal(receive(pair), MC_OK);
            assert_memory_equal(pair->place, bytes + FRAME_SIZE, room);
            assert_memory_equal(pair->place + room, canary, 64);
            pair->receiver.begun = pair->receiver.ended = 0;
        }
    }
}

static void a_sink_longer_than_the_payload_takes_no_more_than_the_payload(void **state) {
    struct pair *pair = *state;
    uint8_t bytes[THREE_SIZE];

    memset(pair->place, 0xee, sizeof(pair->place));
    pack_three(bytes);
    /* The second frame has come when the payload ends, so one receive could run on into the sink. */
    push(pair, bytes, FRAME_SIZE + 3);
    assert_int_equal(receive(pair), MC_OK);
    push(pair, bytes + FRAME_SIZE + 3, FRAME_SIZE + 18);
    assert_int_equal(receive(pair), MC_OK);
    assert_int_equal(pair->receiver.ended, 2);
    assert_memory_equal(pair->place, bytes + FRAME_SIZE, 21);
    assert_int_equal(pair->place[21], 0xee);
}

static void skipping_in_the_middle_leaves_the_rest_of_the_sink_alone(void **state) {
    struct pair *pair = *state;
    uint8_t bytes[THREE_SIZE];

    memset(pair->place, 0xee, sizeof(pair->place));
    pack_three(bytes);
    push(pair, bytes, FRAME_SIZE + 8);
    assert_int_equal(receive(pair), MC_OK);
    connection_skip_payload(&pair->receiver.connection);
    pair->receiver.sink = pair->place + 100;
    push(pair, bytes + FRAME_SIZE + 8, sizeof(bytes) - FRAME_SIZE - 8);
    assert_int_equal(receive(pair), MC_OK);
    assert_int_equal(pair->receiver.ended, 3);
    assert_memory_equal(pair->place, bytes + FRAME_SIZE, 8);
    for (size_t i = 8; i < 100; i++)
        assert_int_equal(pair->place[i], 0xee);
    assert_memory_equal(pair->place + 100, bytes + 3 * FRAME_SIZE + 21, 9);
}

static void a_receive_takes_about_its_budget(void **state) {
    struct pair *pair = *state;
    uint8_t bytes[800][FRAME_SIZE];

    for (int i = 0; i < 800; i++)
        frame_pack(&(struct frame){.type = FRAME_READ}, bytes[i]);
    push(pair, bytes[0], sizeof(bytes));
    assert_int_equal(connection_receive(&pair->receiver.connection, 1), MC_OK);
    assert_int_equal(pair->receiver.ended, CONNECTION_BUFFER / FRAME_SIZE);
    assert_int_equal(connection_receive(&pair->receiver.connection, 1), MC_OK);
    assert_int_equal(pair->receiver.ended, 800);
}

static void a_damaged_header_is_refused_behind_good_frames(void **state) {
    struct pair *pair = *state;
    uint8_t bytes[THREE_SIZE];

    pack_three(bytes);
    bytes[2 * FRAME_SIZE + 21 + 8] ^= 1;
    push(pair, bytes, sizeof(bytes));
    assert_int_equal(receive(pair), MC_ERR_PROTOCOL);
    assert_int_equal(pair->receiver.begun, 2);
    assert_int_equal(pair->receiver.ended, 2);
}

static void a_status_of_the_owner_ends_the_receive(void **state) {
    struct pair *pair = *state;
    uint8_t bytes[THREE_SIZE];

    pack_three(bytes);
    push(pair, bytes, sizeof(bytes));
    pair->receiver.begin_status = MC_ERR_BUSY;
    assert_int_equal(receive(pair), MC_ERR_BUSY);
    assert_int_equal(pair->receiver.begun, 1);
    assert_int_equal(pair->receiver.ended, 0);
}

static void a_status_at_the_end_of_a_payload_ends_the_receive(void **state) {
    struct pair *pair = *state;
    uint8_t bytes[THREE_SIZE];

    pack_three(bytes);
    push(pair, bytes, sizeof(bytes));
    pair->receiver.end_status = MC_ERR_NO_MEMORY;
    assert_int_equal(receive(pair), MC_ERR_NO_MEMORY);
    assert_int_equal(pair->receiver.begun, 1);
    assert_int_equal(pair->receiver.ended, 1);
}

/* The peer closes behind `length` bytes of the three frames. */
static void assert_end_is_lost(size_t length, int begun, int ended) {
    struct pair *pair;
    void *state;
    uint8_t bytes[THREE_SIZE];

    open_pair(&state);
    pair = state;
    pack_three(bytes);
    push(pair, bytes, length);
    pair->sender.stream.fd = socket_close(pair->sender.stream.fd);
    /* A short receive ends the call; the end of the stream is then learnt by the next. */
    for (int calls = 0; calls < 2 && receive(pair) == MC_OK; calls++)
        continue;
    assert_int_equal(receive(pair), MC_ERR_CONNECTION_LOST);
    assert_int_equal(pair->receiver.begun, begun);
    assert_int_equal(pair->receiver.ended, ended);
    close_pair(&state);
}

static void the_end_of_the_stream_is_a_lost_connection_wherever_it_comes(void **state) {
    (void)state;
    assert_end_is_lost(0, 0, 0);
    assert_end_is_lost(FRAME_SIZE - 1, 0, 0);
    assert_end_is_lost(FRAME_SIZE, 1, 0);
    assert_end_is_lost(FRAME_SIZE + 20, 1, 0);
    assert_end_is_lost(FRAME_SIZE + 21, 1, 1);
    assert_end_is_lost(FRAME_SIZE + 22, 1, 1);
    assert_end_is_lost(THREE_SIZE, 3, 3);
}

/* ---- Sending ---- */

struct parcel {
    struct outgoing out;
    int *clock; /* steps with each parcel that has left */
    int done;   /* when it left; 0: not yet */
    int times;
};

static void parcel_done(struct connection *connection, struct outgoing *out) {
    struct parcel *parcel = list_entry(out, struct parcel, out);

    (void)connection;
    assert_true(list_empty(&out->node));
    parcel->done = ++*parcel->clock;
    parcel->times++;
}

static void parcel_queue(struct pair *pair, struct parcel *parcel, int *clock, uint64_t id, const void *payload,
                         uint32_t length) {
    struct frame frame = {.type = FRAME_WRITE, .id = id, .payload = length};

    *parcel = (struct parcel){.out = {.done = parcel_done}, .clock = clock};
    connection_queue(&pair->sender, &parcel->out, &frame, payload);
}

static void frames_leave_whole_wherever_the_kernel_cuts_them(void **state) {
    struct pair *pair = *state;
    uint8_t payload[21], bytes[FRAME_SIZE + 21];
    struct parcel one, two;
    int clock = 0;

    fill(payload, sizeof(payload), 1);
    frame_pack(&(struct frame){.type = FRAME_WRITE, .id = 1, .payload = 21}, bytes);
    memcpy(bytes + FRAME_SIZE, payload, 21);
    for (uint32_t cut = 0; cut < sizeof(bytes); cut++) {
        memset(pair->place, 0, 21);
        pair->receiver.begun = pair->receiver.ended = 0;
        clock = 0;
        parcel_queue(pair, &one, &clock, 1, payload, 21);
        parcel_queue(pair, &two, &clock, 2, NULL, 0);
        /* As if the kernel had taken so much of it. */
        push(pair, bytes, cut);
        one.out.sent = cut;
        assert_int_equal(connection_send(&pair->sender), MC_OK);
        assert_int_equal(one.done, 1);
        assert_int_equal(two.done, 2);
        assert_int_equal(receive(pair), MC_OK);
        assert_int_equal(pair->receiver.ended, 2);
        assert_memory_equal(pair->place, payload, 21);
    }
}

static void any_number_of_frames_leaves_in_order(void **state) {
    struct pair *pair = *state;
    struct parcel parcels[200];
    uint8_t payloads[200][5];
    int clock = 0;

    for (uint64_t i = 0; i < 200; i++) {
        fill(payloads[i], 5, (uint8_t)i);
        parcel_queue(pair, &parcels[i], &clock, i, payloads[i], (uint32_t)(i % 6));
    }
    assert_true(connection_sending(&pair->sender));
    assert_int_equal(connection_send(&pair->sender), MC_OK);
    assert_false(connection_sending(&pair->sender));
    assert_int_equal(receive(pair), MC_OK);
    assert_int_equal(pair->receiver.ended, 200);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(pair->receiver.frames[i].id, i);
        assert_int_equal(pair->receiver.frames[i].payload, i % 6);
        assert_int_equal(parcels[i].done, i + 1);
    }
}

#define LARGE (4u << 20)

/* Lets both ends go on until nothing moves. */
static void pump(struct pair *pair) {
    uint64_t before;

    do {
        before = pair->sender.sent.bytes + pair->receiver.connection.received.bytes;
        assert_int_equal(connection_send(&pair->sender), MC_OK);
        assert_int_equal(receive(pair), MC_OK);
    } while (pair->sender.sent.bytes + pair->receiver.connection.received.bytes != before);
}

static void a_full_socket_buffer_only_delays(void **state) {
    struct pair *pair = *state;
    uint8_t *source = malloc(LARGE), *place = calloc(1, LARGE);
    struct parcel large, small;
    int clock = 0;

    assert_non_null(source);
    assert_non_null(place);
    fill(source, LARGE, 9);
    pair->receiver.sink = place;
    pair->receiver.sink_length = LARGE;
    parcel_queue(pair, &large, &clock, 1, source, LARGE);
    parcel_queue(pair, &small, &clock, 2, NULL, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(connection_send(&pair->sender), MC_OK);
    assert_true(connection_sending(&pair->sender));
    assert_int_equal(large.times, 0);
    pump(pair);
    assert_int_equal(large.times, 1);
    assert_int_equal(small.done, 2);
    assert_int_equal(pair->receiver.ended, 2);
    assert_memory_equal(place, source, LARGE);
    assert_int_equal(pair->sender.sent.bytes, LARGE + 2 * FRAME_SIZE);
    free(source);
    free(place);
}

static void a_frame_taken_out_before_it_began_never_leaves(void **state) {
    struct pair *pair = *state;
    uint8_t payload[3][10];
    struct parcel parcels[3];
    int clock = 0;

    for (uint64_t i = 0; i < 3; i++) {
        fill(payload[i], 10, (uint8_t)i);
        parcel_queue(pair, &parcels[i], &clock, i, payload[i], 10);
    }
    assert_int_equal(connection_withdraw(&pair->sender, &parcels[1].out), MC_OK);
    assert_true(list_empty(&parcels[1].out.node));
    assert_int_equal(connection_withdraw(&pair->sender, &parcels[1].out), MC_OK);
    assert_int_equal(connection_send(&pair->sender), MC_OK);
    assert_int_equal(receive(pair), MC_OK);
    assert_int_equal(pair->receiver.ended, 2);
    assert_int_equal(pair->receiver.frames[1].id, 2);
    assert_int_equal(parcels[1].times, 0);
    assert_int_equal(parcels[2].done, 2);
}

static void a_frame_taken_out_half_sent_goes_on_from_a_copy(void **state) {
    struct pair *pair = *state;
    uint8_t *source = malloc(LARGE), *before = malloc(LARGE), *place = calloc(1, LARGE);
    struct parcel large, small;
    int clock = 0;

    assert_non_null(source);
    assert_non_null(before);
    assert_non_null(place);
    fill(source, LARGE, 5);
    memcpy(before, source, LARGE);
    pair->receiver.sink = place;
    pair->receiver.sink_length = LARGE;
    parcel_queue(pair, &large, &clock, 1, source, LARGE);
    parcel_queue(pair, &small, &clock, 2, NULL, 0);
    assert_int_equal(connection_send(&pair->sender), MC_OK);
    assert_in_range(large.out.sent, FRAME_SIZE + 1, LARGE);
    assert_int_equal(connection_withdraw(&pair->sender, &large.out), MC_OK);
    assert_true(list_empty(&large.out.node));
    /* Neither the source nor the frame is looked at any more. */
    memset(source, 0xdd, LARGE);
    free(source);
    memset(&large.out, 0xdd, sizeof(large.out));
    pump(pair);
    assert_int_equal(pair->receiver.ended, 2);
    assert_int_equal(pair->receiver.frames[0].id, 1);
    assert_memory_equal(place, before, LARGE);
    assert_int_equal(large.times, 0);
    assert_int_equal(small.done, 1);
    free(before);
    free(place);
}

static void a_frame_taken_out_within_its_header_goes_on_from_a_copy(void **state) {
    struct pair *pair = *state;
    uint8_t payload[10], before[10];
    struct parcel parcel;
    int clock = 0;

    fill(payload, 10, 1);
    memcpy(before, payload, 10);
    parcel_queue(pair, &parcel, &clock, 7, payload, 10);
    push(pair, parcel.out.header, 30);
    parcel.out.sent = 30;
    assert_int_equal(connection_withdraw(&pair->sender, &parcel.out), MC_OK);
    memset(payload, 0xdd, sizeof(payload));
    memset(&parcel.out, 0xdd, sizeof(parcel.out));
    pump(pair);
    assert_int_equal(pair->receiver.ended, 1);
    assert_int_equal(pair->receiver.frames[0].id, 7);
    assert_memory_equal(pair->place, before, 10);
    assert_int_equal(parcel.times, 0);
}

static void a_frame_taken_out_after_it_left_has_left_once(void **state) {
    struct pair *pair = *state;
    struct parcel parcel;
    int clock = 0;

    parcel_queue(pair, &parcel, &clock, 1, "abc", 3);
    pump(pair);
    assert_int_equal(connection_withdraw(&pair->sender, &parcel.out), MC_OK);
    pump(pair);
    assert_int_equal(pair->receiver.ended, 1);
    assert_int_equal(parcel.times, 1);
}

static void clearing_calls_nobody_and_frees_private_copies(void **state) {
    struct pair *pair = *state;
    uint8_t *source = calloc(1, LARGE);
    struct parcel large, small;
    int clock = 0;

    assert_non_null(source);
    parcel_queue(pair, &large, &clock, 1, source, LARGE);
    parcel_queue(pair, &small, &clock, 2, NULL, 0);
    assert_int_equal(connection_send(&pair->sender), MC_OK);
    assert_int_equal(connection_withdraw(&pair->sender, &large.out), MC_OK);
    free(source);
    connection_clear(&pair->sender);
    assert_false(connection_sending(&pair->sender));
    assert_true(list_empty(&small.out.node));
    assert_int_equal(clock, 0);
}

struct repeater {
    struct outgoing out;
    int left;
};

static void send_again(struct connection *connection, struct outgoing *out) {
    struct repeater *repeater = list_entry(out, struct repeater, out);

    if (repeater->left-- > 0)
        connection_queue(connection, out, &(struct frame){.type = FRAME_READ, .id = (uint64_t)repeater->left}, NULL);
}

static void a_frame_that_left_may_be_queued_again_at_once(void **state) {
    struct pair *pair = *state;
    struct repeater repeater = {.out = {.done = send_again}, .left = 3};

    connection_queue(&pair->sender, &repeater.out, &(struct frame){.type = FRAME_READ, .id = 9}, NULL);
    assert_int_equal(connection_send(&pair->sender), MC_OK);
    assert_int_equal(receive(pair), MC_OK);
    assert_int_equal(pair->receiver.ended, 4);
    assert_int_equal(pair->receiver.frames[3].id, 0);
}

static void sending_to_a_closed_peer_is_a_lost_connection_and_no_signal(void **state) {
    struct pair *pair = *state;
    struct parcel parcel;
    int clock = 0;

    pair->receiver.connection.stream.fd = socket_close(pair->receiver.connection.stream.fd);
    parcel_queue(pair, &parcel, &clock, 1, "abc", 3);
    assert_int_equal(connection_send(&pair->sender), MC_ERR_CONNECTION_LOST);
    assert_int_equal(parcel.times, 0);
    connection_clear(&pair->sender);
}

static void a_checksum_is_that_of_the_payload_as_it_is_sent(void **state) {
    struct pair *pair = *state;
    struct outgoing outs[3] = {0};
    uint8_t payloads[3][4] = {"one", "two", "six"};

    for (size_t i = 0; i < 3; i++) {
        struct frame frame = {.type = FRAME_WRITE, .flags = FRAME_FLAG_CHECKSUM, .payload = 4};

        connection_queue(&pair->sender, &outs[i], &frame, payloads[i]);
    }
    payloads[1][0] = 'T';
    assert_int_equal(connection_send(&pair->sender), MC_OK);
    assert_int_equal(receive(pair), MC_OK);
    assert_int_equal(pair->receiver.ended, 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pair->receiver.frames[i].payload_crc, crc32c(0, payloads[i], 4));
}

static void large_payloads_with_checksums_come_out_whole(void **state) {
    enum { EACH = 200 << 10, COUNT = 8 };
    struct pair *pair = *state;
    struct outgoing outs[COUNT] = {0};
    uint8_t *payload = malloc(EACH), *place = malloc(EACH);

    assert_true(payload != NULL && place != NULL);
    fill(payload, EACH, 9);
    for (size_t i = 0; i < COUNT; i++) {
        struct frame frame = {.type = FRAME_WRITE, .flags = FRAME_FLAG_CHECKSUM, .payload = EACH};

        connection_queue(&pair->sender, &outs[i], &frame, payload);
    }
    pair->receiver.sink = place;
    pair->receiver.sink_length = EACH;
    while (pair->receiver.ended < COUNT) {
        assert_int_equal(connection_send(&pair->sender), MC_OK);
        assert_int_equal(receive(pair), MC_OK);
    }
    assert_memory_equal(place, payload, EACH);
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(pair->receiver.frames[i].payload_crc, crc32c(0, payload, EACH));
    free(payload);
    free(place);
}

#define test_of(function) cmocka_unit_test_setup_teardown(function, open_pair, close_pair)

int main(void) {
    const struct CMUnitTest tests[] = {
        test_of(frames_come_out_whole_wherever_the_stream_is_cut),
        test_of(frames_come_out_whole_when_they_come_byte_by_byte),
        test_of(many_frames_are_digested_by_one_receive),
        test_of(a_payload_beyond_its_sink_goes_nowhere),
        test_of(a_sink_longer_than_the_payload_takes_no_more_than_the_payload),
        test_of(skipping_in_the_middle_leaves_the_rest_of_the_sink_alone),
        test_of(a_receive_takes_about_its_budget),
        test_of(a_damaged_header_is_refused_behind_good_frames),
        test_of(a_status_of_the_owner_ends_the_receive),
        test_of(a_status_at_the_end_of_a_payload_ends_the_receive),
        cmocka_unit_test(the_end_of_the_stream_is_a_lost_connection_wherever_it_comes),
        test_of(frames_leave_whole_wherever_the_kernel_cuts_them),
        test_of(any_number_of_frames_leaves_in_order),
        test_of(a_full_socket_buffer_only_delays),
        test_of(a_frame_taken_out_before_it_began_never_leaves),
        test_of(a_frame_taken_out_half_sent_goes_on_from_a_copy),
        test_of(a_frame_taken_out_within_its_header_goes_on_from_a_copy),
        test_of(a_frame_taken_out_after_it_left_has_left_once),
        test_of(clearing_calls_nobody_and_frees_private_copies),
        test_of(a_frame_that_left_may_be_queued_again_at_once),
        test_of(a_checksum_is_that_of_the_payload_as_it_is_sent),
        test_of(large_payloads_with_checksums_come_out_whole),
        test_of(sending_to_a_closed_peer_is_a_lost_connection_and_no_signal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

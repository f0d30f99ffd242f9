/* test_self.c - an engine reaches itself by a copy, under the same rights and guards as any peer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "../net/peer.h"
#include "base/crc32c.h"
#include "transports/guard.h"
#include "transports/transport.h"

#define LENGTH (2 * TRANSPORT_PIECE + 8)

struct world {
    struct loop *loop;
    struct identity self;
    struct server *server;
    struct channel *channel;
    struct transport_host host;
    struct transport *transport;
    struct transport_link *link;
    uint64_t *memory; /* LENGTH bytes, all registered */
    uint32_t access;
    int pins;
    bool was_in_flight; /* the first word, when a guard was looked at */
};

static int32_t pin(void *context, uint64_t address, uint64_t length, uint32_t access, void **ret_pin) {
    struct world *world = context;
    uint64_t base = (uint64_t)(uintptr_t)world->memory;

    if (address < base || length > LENGTH || address - base > LENGTH - length)
        return MC_ERR_NOT_REGISTERED;
    if ((world->access & access) != access)
        return MC_ERR_ACCESS_DENIED;
    world->pins++;
    if (length == sizeof(uint64_t) && transport_self.in_flight(world->transport, world->memory))
        world->was_in_flight = true;
    *ret_pin = world;
    return MC_OK;
}

static void unpin(void *context, void *taken) {
    struct world *world = context;

    assert_ptr_equal(taken, world);
    world->pins--;
}

static int open_world(void **state) {
    struct world *world = calloc(1, sizeof(*world));
    struct address any = peer_loopback(), bound;
    char reason[TRANSPORT_REASON_MAX], text[ADDRESS_TEXT_MAX];
    struct server_options server_options;
    struct channel_options channel_options;

    assert_non_null(world);
    assert_int_equal(loop_start(&world->loop), MC_OK);
    memset(world->self.incarnation, 7, 16);
    server_options = (struct server_options){.loop = world->loop, .self = &world->self, .sessions = 9, .backlog = 9};
    assert_int_equal(server_open(&server_options, &world->server), MC_OK);
    assert_int_equal(server_listen(world->server, &any, &bound, NULL), MC_OK);
    address_format(&bound, text);
    channel_options = (struct channel_options){
        .loop = world->loop, .self = &world->self, .connect_timeout = PEER_PATIENCE, .lanes = 1};
    assert_int_equal(channel_new(text, &channel_options, &world->channel, NULL), MC_OK);
    assert_int_equal(channel_greet(world->channel, NULL), MC_OK);
    world->host = (struct transport_host){
        .loop = world->loop, .self = &world->self, .context = world, .pin = pin, .unpin = unpin};
    world->memory = calloc(1, LENGTH);
    assert_non_null(world->memory);
    world->access = MC_REMOTE_READ | MC_REMOTE_WRITE;
    assert_null(transport_self.unavailable());
    assert_int_equal(transport_self.open(&world->host, &world->transport, reason), MC_OK);
    assert_int_equal(transport_self.connect(world->transport, world->channel, &world->link, reason), MC_OK);
    *state = world;
    return 0;
}

static void close_server(void *context) {
    struct world *world = context;

    world->server = server_close(world->server);
}

static int close_world(void **state) {
    struct world *world = *state;

    assert_int_equal(world->pins, 0);
    transport_self.disconnect(world->link);
    transport_self.close(world->transport);
    channel_close(world->channel);
    loop_run(world->loop, close_server, world);
    loop_stop(world->loop);
    free(world->memory);
    free(world);
    return 0;
}

static struct slice slice_of(struct world *world, uint32_t opcode, void *local, uint64_t length) {
    return (struct slice){
        .local = local, .remote = (uint64_t)(uintptr_t)world->memory, .length = length, .opcode = opcode};
}

static int32_t copy(struct world *world, struct slice *slice) {
    int32_t status;

    slice->moved = 0;
    while ((status = transport_self.step(world->link, slice)) == MC_ERR_PENDING)
        assert_int_equal(world->pins, 0); /* between two pieces nothing is held */
    return status;
}

static void bytes_move_in_pieces(void **state) {
    struct world *world = *state;
    uint8_t *local = malloc(LENGTH);
    struct slice slice;

    assert_non_null(local);
    for (size_t i = 0; i < LENGTH; i++)
        local[i] = (uint8_t)(i * 5 + i / 256);
    slice = slice_of(world, MC_WRITE, local, LENGTH);
    assert_int_equal(transport_self.step(world->link, &slice), MC_ERR_PENDING);
    assert_int_equal(slice.moved, TRANSPORT_PIECE);
    assert_int_equal(transport_self.step(world->link, &slice), MC_ERR_PENDING);
    assert_int_equal(transport_self.step(world->link, &slice), MC_OK);
    assert_memory_equal(world->memory, local, LENGTH);
    memset(local, 0, LENGTH);
    slice = slice_of(world, MC_READ, local, LENGTH);
    assert_int_equal(copy(world, &slice), MC_OK);
    assert_memory_equal(world->memory, local, LENGTH);
    free(local);
}

static void overlapping_buffers_are_moved_as_a_whole_piece(void **state) {
    struct world *world = *state;
    uint8_t *bytes = (uint8_t *)world->memory;
    struct slice slice = slice_of(world, MC_READ, bytes + 3, 100);

    for (int i = 0; i < 200; i++)
        bytes[i] = (uint8_t)i;
    assert_int_equal(copy(world, &slice), MC_OK);
    for (int i = 0; i < 100; i++)
        assert_int_equal(bytes[3 + i], i);
}

static void overlapping_buffers_of_many_pieces_arrive_as_they_were(void **state) {
    static const size_t steps[] = {8, 4096, TRANSPORT_PIECE};
    struct world *world = *state;
    uint8_t *bytes = (uint8_t *)world->memory, *before = malloc(LENGTH);

    assert_non_null(before);
    for (size_t i = 0; i < 4 * sizeof(steps) / sizeof(steps[0]); i++) {
        size_t step = steps[i / 4], length = LENGTH - step;
        size_t from = i % 2 == 0 ? 0 : step, to = step - from;
        struct slice slice = {.local = bytes + to,
                              .remote = (uint64_t)(uintptr_t)(bytes + from),
                              .length = length,
                              .opcode = MC_READ,
                              .summed = i % 4 < 2};

        for (size_t at = 0; at < LENGTH; at++)
            bytes[at] = before[at] = (uint8_t)(at * 7 + at / 256 + at / 65536);
        assert_int_equal(copy(world, &slice), MC_OK);
        assert_memory_equal(bytes + to, before + from, length);
        if (slice.summed)
            assert_int_equal(slice.checksum, crc32c(0, before + from, length));
    }
    free(before);
}

static void rights_and_ranges_are_checked(void **state) {
    struct world *world = *state;
    uint8_t local[16] = {1};
    struct slice slice = slice_of(world, MC_WRITE, local, 16);

    world->access = MC_REMOTE_READ;
    assert_int_equal(copy(world, &slice), MC_ERR_ACCESS_DENIED);
    world->access = MC_REMOTE_WRITE;
    slice.opcode = MC_READ;
    assert_int_equal(copy(world, &slice), MC_ERR_ACCESS_DENIED);
    slice.remote += LENGTH - 15;
    assert_int_equal(copy(world, &slice), MC_ERR_NOT_REGISTERED);
    assert_int_equal(world->memory[0], 0);
    assert_false(slice.indeterminate);
}

static void a_guard_is_compared_before_the_first_byte_and_after_the_last(void **state) {
    struct world *world = *state;
    uint64_t local = 99;
    struct slice slice = slice_of(world, MC_WRITE, &local, 8);

    slice.guarded = true;
    slice.guard_address = slice.remote + 64;
    slice.guard_value = 5;
    assert_int_equal(copy(world, &slice), MC_ERR_GUARD_MISMATCH);
    assert_int_equal(world->memory[0], 0);
    world->memory[8] = 5;
    assert_int_equal(copy(world, &slice), MC_OK);
    assert_int_equal(world->memory[0], 99);
    slice.remote = slice.guard_address; /* the copy itself changes it */
    assert_int_equal(copy(world, &slice), MC_ERR_GUARD_MISMATCH);
    assert_int_equal(world->memory[8], 99);
}

static void a_guard_must_be_aligned_and_readable(void **state) {
    struct world *world = *state;
    uint64_t base = (uint64_t)(uintptr_t)world->memory;

    world->memory[1] = 0x0102030405060708;
    assert_int_equal(guard_check(&world->host, base + 8, 0x0102030405060708), MC_OK);
    assert_int_equal(guard_check(&world->host, base + 8, 0x0102030405060709), MC_ERR_GUARD_MISMATCH);
    for (uint64_t i = 1; i < 8; i++)
        assert_int_equal(guard_check(&world->host, base + i, 0), MC_ERR_INVALID_ARGUMENT);
    assert_int_equal(guard_check(&world->host, base + LENGTH, 0), MC_ERR_NOT_REGISTERED);
    assert_int_equal(guard_check(&world->host, UINT64_MAX - 7, 0), MC_ERR_NOT_REGISTERED);
    world->access = MC_REMOTE_WRITE;
    assert_int_equal(guard_check(&world->host, base + 8, 0), MC_ERR_ACCESS_DENIED);
}

static void a_guarded_piece_is_in_flight_from_before_its_look_and_nothing_between_pieces(void **state) {
    struct world *world = *state;
    uint8_t *local = calloc(1, LENGTH);
    struct slice slice = slice_of(world, MC_WRITE, local, LENGTH - 64);

    assert_non_null(local);
    slice.remote += 64;
    slice.guarded = true;
    slice.guard_address = slice.remote - 64;
    assert_int_equal(transport_self.step(world->link, &slice), MC_ERR_PENDING);
    assert_true(world->was_in_flight);
    assert_false(transport_self.in_flight(world->transport, world->memory));
    world->memory[0] = 1;
    memset(local, 1, LENGTH);
    assert_int_equal(transport_self.step(world->link, &slice), MC_ERR_GUARD_MISMATCH);
    assert_int_equal(slice.moved, TRANSPORT_PIECE);
    assert_false(transport_self.in_flight(world->transport, world->memory));
    free(local);
}

static void another_engine_is_not_reached_by_it(void **state) {
    struct world *world = *state;
    struct identity other = {.incarnation = {1}};
    struct transport_host host = world->host;
    struct transport *transport;
    struct transport_link *link = NULL;
    char reason[TRANSPORT_REASON_MAX] = "";

    host.self = &other;
    assert_int_equal(transport_self.open(&host, &transport, reason), MC_OK);
    assert_int_equal(transport_self.connect(transport, world->channel, &link, reason), MC_ERR_NOT_SUPPORTED);
    assert_null(link);
    assert_true(strlen(reason) > 0);
    transport_self.close(transport);
}

#define test_of(function) cmocka_unit_test_setup_teardown(function, open_world, close_world)

int main(void) {
    const struct CMUnitTest tests[] = {
        test_of(bytes_move_in_pieces),
        test_of(overlapping_buffers_are_moved_as_a_whole_piece),
        test_of(overlapping_buffers_of_many_pieces_arrive_as_they_were),
        test_of(rights_and_ranges_are_checked),
        test_of(a_guard_is_compared_before_the_first_byte_and_after_the_last),
        test_of(a_guard_must_be_aligned_and_readable),
        test_of(a_guarded_piece_is_in_flight_from_before_its_look_and_nothing_between_pieces),
        test_of(another_engine_is_not_reached_by_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

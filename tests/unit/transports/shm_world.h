/* shm_world.h - a host and a guest of shm in one process, and guests made by hand: for the tests of shm.
 *
 * The memory is mapped twice: once by the host, once by the guest.
 */
#ifndef MC_TESTS_TRANSPORTS_SHM_WORLD_H
#define MC_TESTS_TRANSPORTS_SHM_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "../net/peer.h"
#include "allocator/host_memory.h"
#include "os/fork.h"
#include "os/memfd.h"
#include "transports/shm/guest.h"
#include "transports/shm/host.h"
#include "transports/shm/page.h"
#include "wire/message.h"

#define ALL (MC_REMOTE_READ | MC_REMOTE_WRITE)
#define SIZE (4u << 20)
#define LENGTH (2 * TRANSPORT_PIECE + 1000) /* so many pieces */

struct world {
    struct loop *loops[2]; /* the host's, the guest's */
    struct identity selves[2];
    struct server *server;
    struct transport_host hosts[2];
    struct shm_host *shm;
    struct channel *channel;
    struct shm_guest *guest;
    uint64_t memory_id;
    uint8_t *memory; /* the host's, SIZE bytes, of which `region` is a part */
    struct host_memory *held;
    struct region region;
};

static inline struct region region_of(struct world *world, uint64_t offset, uint64_t length, uint32_t access) {
    return (struct region){.base = (uint64_t)(uintptr_t)world->memory + offset,
                           .length = length,
                           .access = access,
                           .memory_fd = host_memory_fd(world->held),
                           .memory_offset = offset,
                           .memory_size = host_memory_size(world->held)};
}

static inline int open_world(void **state) {
    struct world *world = calloc(1, sizeof(*world));
    struct address any = peer_loopback(), bound;
    struct server_options server_options;
    struct channel_options channel_options;
    char reason[TRANSPORT_REASON_MAX], text[ADDRESS_TEXT_MAX];
    void *address;

    assert_non_null(world);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(loop_start(&world->loops[i]), MC_OK);
        memset(world->selves[i].incarnation, i + 1, 16);
        world->hosts[i] = (struct transport_host){
            .loop = world->loops[i], .self = &world->selves[i], .connect_timeout = PEER_PATIENCE};
    }
    server_options =
        (struct server_options){.loop = world->loops[0], .self = &world->selves[0], .sessions = 10, .backlog = 10};
    assert_int_equal(server_open(&server_options, &world->server), MC_OK);
    world->hosts[0].server = world->server;
    assert_int_equal(shm_host_open(&world->hosts[0], &world->shm, reason), MC_OK);
    assert_int_equal(server_listen(world->server, &any, &bound, NULL), MC_OK);
    address_format(&bound, text);
    channel_options = (struct channel_options){
        .loop = world->loops[1], .self = &world->selves[1], .connect_timeout = PEER_PATIENCE, .lanes = 1};
    assert_int_equal(channel_new(text, &channel_options, &world->channel, NULL), MC_OK);
    assert_int_equal(channel_greet(world->channel, NULL), MC_OK);
    assert_int_equal(shm_guest_open(&world->hosts[1], world->channel, &world->guest, reason), MC_OK);
    assert_int_equal(host_memory_alloc(SIZE, &world->memory_id, &address, NULL), MC_OK);
    world->memory = address;
    world->held = host_memory_hold((uint64_t)(uintptr_t)address, SIZE);
    world->region = region_of(world, 4096, LENGTH, ALL);
    shm_host_publish(world->shm, &world->region);
    *state = world;
    return 0;
}

static inline void stop_host(void *context) {
    struct world *world = context;

    shm_host_stop(world->shm);
}

static inline void close_server(void *context) {
    struct world *world = context;

    world->server = server_close(world->server);
}

static inline int close_world(void **state) {
    struct world *world = *state;

    shm_guest_close(world->guest);
    channel_close(world->channel);
    loop_run(world->loops[0], stop_host, world);
    loop_run(world->loops[0], close_server, world);
    for (int i = 0; i < 2; i++)
        loop_stop(world->loops[i]);
    shm_host_close(world->shm);
    host_memory_release(world->held);
    assert_int_equal(host_memory_free(world->memory_id), MC_OK);
    free(world);
    return 0;
}

/* A slice over the part of the host's memory at `offset`. */
static inline struct slice slice_at(struct world *world, uint32_t opcode, uint64_t offset, uint8_t *local,
                                    uint64_t length) {
    return (struct slice){
        .local = local, .remote = (uint64_t)(uintptr_t)world->memory + offset, .length = length, .opcode = opcode};
}

static inline bool reached(struct world *world, uint32_t opcode, uint64_t offset, uint64_t length) {
    uint8_t local[1];
    struct slice slice = slice_at(world, opcode, offset, local, length);

    return shm_guest_reach(world->guest, &slice);
}

/* Steps to the end, whether it is reached or not. */
static inline int32_t copy(struct shm_guest *guest, struct slice *slice, int *ret_steps) {
    int32_t status;

    *ret_steps = 0;
    (void)shm_guest_reach(guest, slice); /* which is what maps */
    do {
        status = shm_guest_step(guest, slice);
        ++*ret_steps;
    } while (status == MC_ERR_PENDING);
    return status;
}

struct stranger {
    int fd;
    struct shm_counters *counters;
    int page_fd;
};

static inline struct message_invitation invitation_of(struct world *world, char name[64]) {
    static uint8_t reply[512];
    struct message_invitation invitation;
    uint32_t length = 0;

    assert_int_equal(channel_call(world->channel, MESSAGE_INVITE, NULL, 0, CLOCK_NEVER, reply, sizeof(reply), &length),
                     MC_OK);
    assert_int_equal(message_unpack_invitation(reply, length, &invitation), MC_OK);
    assert_true(invitation.name.length < 64);
    memcpy(name, invitation.name.data, invitation.name.length);
    name[invitation.name.length] = '\0';
    return invitation;
}

static inline int stranger_connect(const char *name) {
    int fd = socket_unix_connect(name);

    assert_true(fd >= 0);
    peer_patience(fd);
    return fd;
}

/* socket_receive_fds never waits. */
static inline void receive_packet(int fd, struct shm_packet *ret_packet, int *fds, size_t capacity, size_t *ret_count) {
    struct pollfd polled = {.fd = fd, .events = POLLIN};

    assert_int_equal(poll(&polled, 1, (int)(PEER_PATIENCE / CLOCK_MILLISECOND)), 1);
    assert_int_equal(socket_receive_fds(fd, ret_packet, sizeof(*ret_packet), fds, capacity, ret_count),
                     sizeof(*ret_packet));
}

static inline struct stranger enter(struct world *world) {
    char name[64];
    struct message_invitation invitation = invitation_of(world, name);
    struct shm_packet hello = {.kind = SHM_HELLO}, answer;
    struct stranger stranger = {.fd = stranger_connect(name)};
    size_t count = 0;
    int fds[2];
    void *counters;

    memcpy(hello.token, invitation.token.bytes, 16);
    assert_true(socket_send_fds(stranger.fd, &hello, sizeof(hello), NULL, 0) > 0);
    receive_packet(stranger.fd, &answer, fds, 2, &count);
    assert_int_equal(answer.kind, SHM_WELCOME);
    assert_int_equal(answer.status, MC_OK);
    assert_memory_equal(answer.token, invitation.answer.bytes, 16);
    assert_int_equal(count, 2);
    stranger.page_fd = fds[0];
    assert_int_equal(memfd_map(fds[1], 0, memfd_round(sizeof(struct shm_counters)), true, &counters), 0);
    fork_close(fds[1]);
    stranger.counters = counters;
    return stranger;
}

static inline void leave(struct stranger *stranger) {
    memfd_unmap(stranger->counters, memfd_round(sizeof(struct shm_counters)));
    fork_close(stranger->page_fd);
    socket_close(stranger->fd);
}

#define test_of(function) cmocka_unit_test_setup_teardown(function, open_world, close_world)

#endif

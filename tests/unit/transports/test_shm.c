/* test_shm.c - a guest copies what its host has published, with the rights given, and nothing after it was withdrawn.
 *
 * Host and guest are two engines' halves in one process: the memory is mapped twice.
 */
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
#include "transports/shm/invitations.h"
#include "transports/shm/page.h"
#include "wire/message.h"

#define ALL (MC_REMOTE_READ | MC_REMOTE_WRITE)
#define SIZE (1u << 20)
#define PIECES 3
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

static struct region region_of(struct world *world, uint64_t offset, uint64_t length, uint32_t access) {
    return (struct region){.base = (uint64_t)(uintptr_t)world->memory + offset,
                           .length = length,
                           .access = access,
                           .memory_fd = host_memory_fd(world->held),
                           .memory_offset = offset,
                           .memory_size = host_memory_size(world->held)};
}

static int open_world(void **state) {
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

static void stop_host(void *context) {
    struct world *world = context;

    shm_host_stop(world->shm);
}

static void close_server(void *context) {
    struct world *world = context;

    world->server = server_close(world->server);
}

static int close_world(void **state) {
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
static struct slice slice_at(struct world *world, uint32_t opcode, uint64_t offset, uint8_t *local, uint64_t length) {
    return (struct slice){
        .local = local, .remote = (uint64_t)(uintptr_t)world->memory + offset, .length = length, .opcode = opcode};
}

static bool reached(struct world *world, uint32_t opcode, uint64_t offset, uint64_t length) {
    uint8_t local[1];
    struct slice slice = slice_at(world, opcode, offset, local, length);

    return shm_guest_reach(world->guest, &slice);
}

/* Steps to the end, whether it is reached or not. */
static int32_t copy(struct shm_guest *guest, struct slice *slice, int *ret_steps) {
    int32_t status;

    *ret_steps = 0;
    (void)shm_guest_reach(guest, slice); /* which is what maps */
    do {
        status = shm_guest_step(guest, slice);
        ++*ret_steps;
    } while (status == MC_ERR_PENDING);
    return status;
}

static void a_guest_reads_and_writes_in_pieces(void **state) {
    struct world *world = *state;
    uint8_t *local = malloc(LENGTH);
    struct slice slice;
    int steps;

    assert_non_null(local);
    for (size_t i = 0; i < LENGTH; i++)
        world->memory[4096 + i] = (uint8_t)(i * 7 + i / 256);
    slice = slice_at(world, MC_READ, 4096, local, LENGTH);
    assert_true(shm_guest_reach(world->guest, &slice));
    assert_int_equal(copy(world->guest, &slice, &steps), MC_OK);
    assert_int_equal(steps, PIECES);
    assert_memory_equal(local, world->memory + 4096, LENGTH);
    assert_false(slice.indeterminate);
    memset(local, 0x77, LENGTH);
    slice = slice_at(world, MC_WRITE, 4096, local, LENGTH);
    assert_int_equal(copy(world->guest, &slice, &steps), MC_OK);
    assert_int_equal(steps, PIECES);
    assert_memory_equal(local, world->memory + 4096, LENGTH);
    assert_int_equal(world->memory[4095], 0);
    assert_int_equal(world->memory[4096 + LENGTH], 0);
    free(local);
}

static void only_ranges_within_one_published_region_are_reached(void **state) {
    struct world *world = *state;
    struct region next = region_of(world, 4096 + LENGTH, 100, ALL);
    struct region own = region_of(world, 0, 4096, ALL);

    own.access = 0; /* nobody else's */
    shm_host_publish(world->shm, &next);
    shm_host_publish(world->shm, &own);
    assert_true(reached(world, MC_READ, 4096, LENGTH));
    assert_true(reached(world, MC_READ, 4096 + LENGTH, 100));
    assert_true(reached(world, MC_READ, 4096 + LENGTH - 1, 1));
    assert_false(reached(world, MC_READ, 4095, 1));
    assert_false(reached(world, MC_READ, 4095, 2));
    assert_false(reached(world, MC_READ, 4096 + LENGTH - 1, 2));
    assert_false(reached(world, MC_READ, 4096 + LENGTH, 101));
    assert_false(reached(world, MC_READ, 4096, UINT64_MAX));
    assert_int_equal(shm_host_withdraw(world->shm, &own, 0), MC_OK);
    assert_int_equal(shm_host_withdraw(world->shm, &next, 0), MC_OK);
}

static void a_guest_has_the_rights_that_the_region_has(void **state) {
    static const uint32_t rights[] = {0, MC_REMOTE_READ, MC_REMOTE_WRITE, ALL};
    struct world *world = *state;
    uint8_t local[8] = {0};

    assert_int_equal(shm_host_withdraw(world->shm, &world->region, 0), MC_OK);
    for (int i = 0; i < 4; i++) {
        struct region region = region_of(world, 0, 4096, rights[i]);
        struct slice slice;
        int steps;

        shm_host_publish(world->shm, &region);
        assert_int_equal(reached(world, MC_READ, 0, 8), (rights[i] & MC_REMOTE_READ) != 0);
        assert_int_equal(reached(world, MC_WRITE, 0, 8), (rights[i] & MC_REMOTE_WRITE) != 0);
        slice = slice_at(world, MC_WRITE, 0, local, 8);
        assert_int_equal(copy(world->guest, &slice, &steps) == MC_OK, (rights[i] & MC_REMOTE_WRITE) != 0);
        slice = slice_at(world, MC_READ, 0, local, 8);
        assert_int_equal(copy(world->guest, &slice, &steps) == MC_OK, (rights[i] & MC_REMOTE_READ) != 0);
        assert_int_equal(shm_host_withdraw(world->shm, &region, 0), MC_OK);
    }
}

static void a_withdrawn_region_is_gone_and_one_published_again_is_there(void **state) {
    struct world *world = *state;
    uint8_t local[8] = {0};
    int steps;

    for (int i = 0; i < 3; i++) {
        struct slice slice = slice_at(world, MC_WRITE, 4096, local, 8);

        assert_int_equal(copy(world->guest, &slice, &steps), MC_OK);
        assert_int_equal(shm_host_withdraw(world->shm, &world->region, 0), MC_OK);
        slice = slice_at(world, MC_WRITE, 4096, local, 8);
        assert_false(shm_guest_reach(world->guest, &slice));
        assert_int_equal(copy(world->guest, &slice, &steps), MC_ERR_NOT_REGISTERED);
        assert_false(slice.indeterminate);
        shm_host_publish(world->shm, &world->region);
    }
}

static void regions_beyond_the_pages_slots_are_left_to_others(void **state) {
    struct world *world = *state;
    struct region *regions = calloc(SHM_SLOTS, sizeof(*regions));

    assert_non_null(regions);
    for (uint32_t i = 0; i < SHM_SLOTS; i++) { /* with the world's own one more than there are slots */
        regions[i] = region_of(world, 4096 + LENGTH + i * 2, 2, ALL);
        shm_host_publish(world->shm, &regions[i]);
    }
    assert_true(reached(world, MC_READ, 4096 + LENGTH + (SHM_SLOTS - 2) * 2, 2));
    assert_false(reached(world, MC_READ, 4096 + LENGTH + (SHM_SLOTS - 1) * 2, 2));
    for (uint32_t i = 0; i < SHM_SLOTS; i++)
        assert_int_equal(shm_host_withdraw(world->shm, &regions[i], 0), MC_OK);
    free(regions);
}

static void a_copy_never_asks_for_memory_only_reach_does(void **state) {
    struct world *world = *state;
    uint8_t local[8];
    struct slice slice = slice_at(world, MC_READ, 4096, local, 8);

    assert_int_equal(shm_guest_step(world->guest, &slice), MC_ERR_NOT_REGISTERED);
    assert_true(shm_guest_reach(world->guest, &slice));
    assert_int_equal(shm_guest_step(world->guest, &slice), MC_OK);
}

/* ---- Guards ---- */

static void a_guard_is_compared_before_and_after(void **state) {
    struct world *world = *state;
    uint8_t local[8] = {1, 2, 3};
    struct slice slice = slice_at(world, MC_WRITE, 4096 + 64, local, 8);
    int steps;

    slice.guarded = true;
    slice.guard_address = (uint64_t)(uintptr_t)world->memory + 4096;
    slice.guard_value = 42;
    assert_true(shm_guest_reach(world->guest, &slice));
    assert_int_equal(copy(world->guest, &slice, &steps), MC_ERR_GUARD_MISMATCH);
    assert_int_equal(world->memory[4096 + 64], 0);
    world->memory[4096] = 42;
    slice.moved = 0;
    assert_int_equal(copy(world->guest, &slice, &steps), MC_OK);
    assert_memory_equal(world->memory + 4096 + 64, local, 8);
    /* The copy itself changes it. */
    slice.remote = slice.guard_address;
    slice.moved = 0;
    assert_int_equal(copy(world->guest, &slice, &steps), MC_ERR_GUARD_MISMATCH);
    slice.guard_address += 4;
    assert_false(shm_guest_reach(world->guest, &slice));
    slice.guard_address = (uint64_t)(uintptr_t)world->memory;
    assert_false(shm_guest_reach(world->guest, &slice));
}

/* Whoever has changed the word needn't fear the pieces that are still to come. */
static void a_guard_is_looked_at_before_each_piece(void **state) {
    struct world *world = *state;
    uint8_t *local = calloc(1, LENGTH);
    struct slice slice = slice_at(world, MC_WRITE, 4096 + 64, local, LENGTH - 64);

    assert_non_null(local);
    slice.guarded = true;
    slice.guard_address = (uint64_t)(uintptr_t)world->memory + 4096;
    assert_true(shm_guest_reach(world->guest, &slice));
    assert_int_equal(shm_guest_step(world->guest, &slice), MC_ERR_PENDING);
    assert_false(shm_host_in_flight(world->shm, world->memory + 4096));
    world->memory[4096] = 1;
    memset(local, 1, LENGTH);
    assert_int_equal(shm_guest_step(world->guest, &slice), MC_ERR_GUARD_MISMATCH);
    assert_int_equal(slice.moved, TRANSPORT_PIECE);
    assert_int_equal(world->memory[4096 + 64 + TRANSPORT_PIECE], 0);
    free(local);
}

/* ---- A guest made by hand ---- */

struct stranger {
    int fd;
    struct shm_counters *counters;
    int page_fd;
};

static struct message_invitation invitation_of(struct world *world, char name[64]) {
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

static int stranger_connect(const char *name) {
    int fd = socket_unix_connect(name);

    assert_true(fd >= 0);
    peer_patience(fd);
    return fd;
}

/* socket_receive_fds never waits. */
static void receive_packet(int fd, struct shm_packet *ret_packet, int *fds, size_t capacity, size_t *ret_count) {
    struct pollfd polled = {.fd = fd, .events = POLLIN};

    assert_int_equal(poll(&polled, 1, (int)(PEER_PATIENCE / CLOCK_MILLISECOND)), 1);
    assert_int_equal(socket_receive_fds(fd, ret_packet, sizeof(*ret_packet), fds, capacity, ret_count),
                     sizeof(*ret_packet));
}

static struct stranger enter(struct world *world) {
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

static void leave(struct stranger *stranger) {
    memfd_unmap(stranger->counters, memfd_round(sizeof(struct shm_counters)));
    fork_close(stranger->page_fd);
    socket_close(stranger->fd);
}

static void a_region_under_copy_is_busy_and_stays_for_everybody(void **state) {
    struct world *world = *state;
    struct stranger stranger = enter(world);
    struct region other = region_of(world, 0, 4096, ALL);

    atomic_fetch_add(&stranger.counters->copies[world->region.page_slot], 1);
    assert_int_equal(shm_host_withdraw(world->shm, &world->region, 0), MC_ERR_BUSY);
    assert_true(reached(world, MC_READ, 4096, LENGTH));
    /* A copy elsewhere holds nobody up. */
    shm_host_publish(world->shm, &other);
    assert_int_equal(shm_host_withdraw(world->shm, &other, 0), MC_OK);
    atomic_fetch_sub(&stranger.counters->copies[world->region.page_slot], 1);
    assert_int_equal(shm_host_withdraw(world->shm, &world->region, 0), MC_OK);
    leave(&stranger);
}

struct withdrawal {
    struct world *world;
    int32_t status;
};

static void *withdraw_in_vain(void *context) {
    struct withdrawal *withdrawal = context;
    uint64_t deadline = clock_after(clock_now(), CLOCK_SECOND / 2);

    withdrawal->status = shm_host_withdraw(withdrawal->world->shm, &withdrawal->world->region, deadline);
    return NULL;
}

static void memory_stays_mapped_over_a_withdrawal_that_fails(void **state) {
    struct world *world = *state;
    struct withdrawal withdrawal = {.world = world};
    struct stranger stranger = enter(world);
    struct region other = region_of(world, 0, 4096, ALL);
    uint8_t local[8];
    struct slice slice = slice_at(world, MC_READ, 4096, local, 8);
    pthread_t thread;
    bool closing = false;

    assert_true(shm_guest_reach(world->guest, &slice));
    atomic_fetch_add(&stranger.counters->copies[world->region.page_slot], 1);
    assert_int_equal(thread_start(&thread, "withdrawer", withdraw_in_vain, &withdrawal), 0);
    while (!closing) {
        slice.moved = 0;
        closing = shm_guest_step(world->guest, &slice) == MC_ERR_NOT_REGISTERED;
    }
    shm_host_publish(world->shm, &other); /* so that the guest reads the slots now */
    assert_false(shm_guest_reach(world->guest, &slice));
    pthread_join(thread, NULL);
    assert_int_equal(withdrawal.status, MC_ERR_BUSY);
    assert_int_equal(shm_guest_step(world->guest, &slice), MC_OK);
    atomic_fetch_sub(&stranger.counters->copies[world->region.page_slot], 1);
    assert_int_equal(shm_host_withdraw(world->shm, &other, 0), MC_OK);
    leave(&stranger);
}

static void a_guest_that_is_gone_holds_nothing(void **state) {
    struct world *world = *state;
    struct stranger stranger = enter(world);

    atomic_fetch_add(&stranger.counters->copies[world->region.page_slot], 1);
    assert_int_equal(shm_host_withdraw(world->shm, &world->region, 0), MC_ERR_BUSY);
    leave(&stranger);
    assert_int_equal(shm_host_withdraw(world->shm, &world->region, clock_after(clock_now(), PEER_PATIENCE)), MC_OK);
}

static void a_guard_is_in_flight_while_any_guest_copies_to_or_from_its_region(void **state) {
    struct world *world = *state;
    struct stranger stranger = enter(world);
    const uint8_t *within = world->memory + 4096 + LENGTH - 8;
    struct region other = region_of(world, 0, 4096, ALL);
    uint64_t deadline = clock_after(clock_now(), PEER_PATIENCE);

    shm_host_publish(world->shm, &other);
    assert_false(shm_host_in_flight(world->shm, within));
    atomic_fetch_add(&stranger.counters->copies[world->region.page_slot], 1);
    assert_true(shm_host_in_flight(world->shm, within));
    assert_false(shm_host_in_flight(world->shm, world->memory + 8));        /* another region */
    assert_false(shm_host_in_flight(world->shm, world->memory + SIZE - 8)); /* none */
    atomic_fetch_add(&stranger.counters->copies[world->region.page_slot], UINT32_MAX);
    assert_false(shm_host_in_flight(world->shm, within));
    atomic_fetch_add(&stranger.counters->copies[other.page_slot], 1);
    assert_true(shm_host_in_flight(world->shm, world->memory + 8));
    leave(&stranger);
    while (shm_host_in_flight(world->shm, world->memory + 8)) {
        assert_true(clock_now() < deadline);
        sched_yield();
    }
    assert_int_equal(shm_host_withdraw(world->shm, &other, deadline), MC_OK);
}

static void a_guest_is_one_connection_of_its_client(void **state) {
    struct world *world = *state;
    struct clients *clients = server_clients(world->server);
    const uint8_t *who = world->selves[1].incarnation;
    struct stranger stranger = enter(world); /* in the same client's name */
    struct shm_packet wrong = {.kind = 99};

    assert_int_equal(clients_count(clients, who), 3); /* with a lane */
    assert_true(socket_send_fds(stranger.fd, &wrong, sizeof(wrong), NULL, 0) > 0);
    assert_true(peer_ended(stranger.fd));
    loop_flush(world->loops[0]);
    assert_int_equal(clients_count(clients, who), 2);
    leave(&stranger);
}

static void a_guest_cannot_write_the_region_page(void **state) {
    struct stranger stranger = enter(*state);
    void *page;

    assert_int_equal(memfd_map(stranger.page_fd, 0, memfd_round(sizeof(struct shm_page)), true, &page), -1);
    assert_int_equal(memfd_map(stranger.page_fd, 0, memfd_round(sizeof(struct shm_page)), false, &page), 0);
    memfd_unmap(page, memfd_round(sizeof(struct shm_page)));
    leave(&stranger);
}

static void assert_shown_out(const char *name, const struct shm_packet *packet, size_t length) {
    int fd = stranger_connect(name);

    assert_true(socket_send_fds(fd, packet, length, NULL, 0) > 0);
    assert_true(peer_ended(fd));
    socket_close(fd);
}

static void a_token_is_good_once_and_an_invented_one_never(void **state) {
    struct world *world = *state;
    struct shm_packet packet = {.kind = SHM_HELLO};
    struct stranger stranger = enter(world);
    char name[64];
    struct message_invitation invitation = invitation_of(world, name);
    int fd = stranger_connect(name);

    assert_shown_out(name, &packet, sizeof(packet)); /* zeros: not even of a place that is free */
    memset(packet.token, 0x11, 16);
    assert_shown_out(name, &packet, sizeof(packet));
    memcpy(packet.token, invitation.token.bytes, 16);
    assert_true(socket_send_fds(fd, &packet, sizeof(packet), NULL, 0) > 0);
    assert_true(recv(fd, &packet, sizeof(packet), 0) == sizeof(packet));
    packet.kind = SHM_HELLO;
    memcpy(packet.token, invitation.token.bytes, 16);
    assert_shown_out(name, &packet, sizeof(packet));
    socket_close(fd);
    leave(&stranger);
}

static void a_client_s_newer_invitation_replaces_its_older_one(void **state) {
    struct world *world = *state;
    struct shm_packet first = {.kind = SHM_HELLO};
    struct stranger stranger;
    char name[64];

    memcpy(first.token, invitation_of(world, name).token.bytes, 16);
    stranger = enter(world);
    assert_shown_out(name, &first, sizeof(first));
    leave(&stranger);
}

static void a_client_takes_nobody_else_s_place(void **state) {
    static struct shm_invitations table;
    uint8_t token[16], answer[16], shown[16], whose[16], first[2][16];
    uint64_t now = 7, later = now + SHM_INVITATION_TIME;
    uint8_t client[16] = {0};

    (void)state;
    memset(&table, 0, sizeof(table));
    assert_int_equal(shm_invitations_give(&table, client, now, first[0], first[1]), MC_OK);
    for (uint32_t i = 1; i < SHM_INVITATIONS; i++) {
        memcpy(client, &i, sizeof(i));
        assert_int_equal(shm_invitations_give(&table, client, now, token, answer), MC_OK);
    }
    for (int i = 0; i < 5000; i++) /* one may ask as often as it likes */
        assert_int_equal(shm_invitations_give(&table, client, now, token, answer), MC_OK);
    client[15] = 1;
    assert_int_equal(shm_invitations_give(&table, client, now, token, answer), MC_ERR_TOO_MANY);
    assert_true(shm_invitations_redeem(&table, first[0], later - 1, whose, shown));
    assert_memory_equal(shown, first[1], 16);
    assert_memory_equal(whose, ((uint8_t[16]){0}), 16);
    assert_false(shm_invitations_redeem(&table, first[0], later - 1, whose, shown));
    assert_int_equal(shm_invitations_give(&table, client, now, token, answer), MC_OK);
    assert_false(shm_invitations_redeem(&table, token, later, whose, shown));
    client[15] = 2;
    assert_int_equal(shm_invitations_give(&table, client, later, token, answer), MC_OK);
}

/* ---- Descriptors from guests ---- */

/* Makes the host's sockets take descriptors, as they do on a kernel that can't refuse them. */
static void let_descriptors_pass(void) {
    int on = 1;

    for (int fd = 0; fd < 1024; fd++)
        setsockopt(fd, SOL_SOCKET, 83, &on, sizeof(on)); /* SO_PASSRIGHTS */
}

static void a_descriptor_from_a_guest_is_its_end_and_is_not_kept(void **state) {
    struct stranger stranger = enter(*state);
    struct shm_packet packet = {.kind = SHM_MAP};
    int ends[2];
    char byte;

    assert_int_equal(pipe(ends), 0);
    let_descriptors_pass();
    assert_true(socket_send_fds(stranger.fd, &packet, sizeof(packet), &ends[1], 1) > 0);
    close(ends[1]);
    assert_true(peer_ended(stranger.fd));
    assert_int_equal(read(ends[0], &byte, 1), 0);
    close(ends[0]);
    leave(&stranger);
}

static void where_the_kernel_can_it_refuses_to_pass_descriptors(void **state) {
    struct world *world = *state;
    struct stranger stranger = enter(world);
    struct shm_packet packet = {.kind = SHM_MAP};
    char name[64];
    int fd, on;

    if (getsockopt(stranger.fd, SOL_SOCKET, 83, &on, &(socklen_t){sizeof(on)}) == 0) {
        assert_int_equal(socket_send_fds(stranger.fd, &packet, sizeof(packet), &stranger.page_fd, 1), -1);
        assert_int_equal(errno, EPERM);
        invitation_of(world, name);
        fd = stranger_connect(name);
        assert_int_equal(socket_send_fds(fd, &packet, sizeof(packet), &stranger.page_fd, 1), -1);
        assert_int_equal(errno, EPERM);
        socket_close(fd);
    }
    leave(&stranger);
}

static void packets_out_of_turn_are_the_end(void **state) {
    struct world *world = *state;
    struct shm_packet packet = {.kind = SHM_MAP};
    struct stranger stranger;
    char name[64];

    invitation_of(world, name);
    assert_shown_out(name, &packet, sizeof(packet)); /* before HELLO */
    packet.kind = 99;
    assert_shown_out(name, &packet, sizeof(packet));
    assert_shown_out(name, &packet, 7);
    stranger = enter(world);
    packet = (struct shm_packet){.kind = SHM_MAP, .slot = SHM_SLOTS};
    assert_true(socket_send_fds(stranger.fd, &packet, sizeof(packet), NULL, 0) > 0);
    assert_true(peer_ended(stranger.fd));
    leave(&stranger);
    assert_true(reached(world, MC_READ, 4096, 8)); /* others don't notice */
}

static void a_slot_is_given_only_by_its_key_of_now(void **state) {
    struct world *world = *state;
    struct stranger stranger = enter(world);
    struct shm_packet packet = {.kind = SHM_MAP, .slot = world->region.page_slot, .key = 12345}, answer;
    size_t count = 7;
    int fd;

    assert_true(socket_send_fds(stranger.fd, &packet, sizeof(packet), NULL, 0) > 0);
    receive_packet(stranger.fd, &answer, &fd, 1, &count);
    assert_int_equal(answer.kind, SHM_MAPPED);
    assert_int_equal(answer.status, MC_ERR_NOT_REGISTERED);
    assert_int_equal(count, 0);
    leave(&stranger);
}

static void a_guest_learns_that_its_host_has_stopped(void **state) {
    struct world *world = *state;
    uint64_t deadline = clock_after(clock_now(), PEER_PATIENCE);
    uint8_t local[8];
    struct slice slice = slice_at(world, MC_READ, 4096, local, 8);
    int steps;

    assert_true(shm_guest_reach(world->guest, &slice));
    loop_run(world->loops[0], stop_host, world);
    while (copy(world->guest, &slice, &steps) != MC_ERR_CONNECTION_LOST) {
        assert_true(clock_now() < deadline);
        slice.moved = 0;
        sched_yield();
    }
    assert_false(shm_guest_reach(world->guest, &slice));
}

/* ---- Races ---- */

#define WITHDRAWN 0xdd /* what the memory holds when nobody may look */

struct hammer {
    struct world *world;
    atomic_bool stop;
    atomic_int copied;
};

static void *copy_all_the_time(void *context) {
    struct hammer *hammer = context;
    uint8_t local[4096];

    while (!hammer->stop) {
        struct slice slice = slice_at(hammer->world, MC_READ, 4096, local, sizeof(local));
        int steps;
        int32_t status = copy(hammer->world->guest, &slice, &steps);

        /* All of it from while the region was published. */
        if (status == MC_OK && memchr(local, WITHDRAWN, sizeof(local)) != NULL)
            abort();
        if (status == MC_OK)
            hammer->copied++;
        else if (status != MC_ERR_NOT_REGISTERED)
            abort();
    }
    return NULL;
}

static void regions_come_and_go_under_copies(void **state) {
    struct world *world = *state;
    struct hammer hammer = {.world = world};
    pthread_t threads[2];

    for (int i = 0; i < 2; i++)
        assert_int_equal(thread_start(&threads[i], "copier", copy_all_the_time, &hammer), 0);
    for (int i = 0; i < 100; i++) {
        int before = hammer.copied;
        uint64_t deadline = clock_after(clock_now(), PEER_PATIENCE);

        assert_int_equal(shm_host_withdraw(world->shm, &world->region, deadline), MC_OK);
        memset(world->memory + 4096, WITHDRAWN, 4096);
        sched_yield();
        memset(world->memory + 4096, 0, 4096);
        shm_host_publish(world->shm, &world->region);
        while (hammer.copied == before && clock_now() < deadline)
            sched_yield();
        assert_true(hammer.copied > before);
    }
    hammer.stop = true;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

#define test_of(function) cmocka_unit_test_setup_teardown(function, open_world, close_world)

int main(void) {
    const struct CMUnitTest tests[] = {
        test_of(a_guest_reads_and_writes_in_pieces),
        test_of(only_ranges_within_one_published_region_are_reached),
        test_of(a_guest_has_the_rights_that_the_region_has),
        test_of(a_withdrawn_region_is_gone_and_one_published_again_is_there),
        test_of(regions_beyond_the_pages_slots_are_left_to_others),
        test_of(a_copy_never_asks_for_memory_only_reach_does),
        test_of(a_guard_is_compared_before_and_after),
        test_of(a_guard_is_looked_at_before_each_piece),
        test_of(a_region_under_copy_is_busy_and_stays_for_everybody),
        test_of(memory_stays_mapped_over_a_withdrawal_that_fails),
        test_of(a_guest_that_is_gone_holds_nothing),
        test_of(a_guard_is_in_flight_while_any_guest_copies_to_or_from_its_region),
        test_of(a_guest_is_one_connection_of_its_client),
        test_of(a_guest_cannot_write_the_region_page),
        test_of(a_token_is_good_once_and_an_invented_one_never),
        test_of(a_client_s_newer_invitation_replaces_its_older_one),
        cmocka_unit_test(a_client_takes_nobody_else_s_place),
        test_of(a_descriptor_from_a_guest_is_its_end_and_is_not_kept),
        test_of(where_the_kernel_can_it_refuses_to_pass_descriptors),
        test_of(packets_out_of_turn_are_the_end),
        test_of(a_slot_is_given_only_by_its_key_of_now),
        test_of(a_guest_learns_that_its_host_has_stopped),
        test_of(regions_come_and_go_under_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_shm_host.c - what a host makes of its guests: those that copy, those that are gone, and strangers. */
#include "shm_world.h"

#include "transports/shm/invitations.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

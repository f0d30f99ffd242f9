/* test_shm_direct.c - ordinary memory: copied by process_vm under the rules that hold for mapped memory, and never from
 * or to a process that isn't the peer.
 */
#include "shm_world.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <linux/sched.h>

#include "base/crc32c.h"
#include "base/writer.h"
#include "transports/shm/direct.h"

#define PAGE 4096u
#define ORDINARY (4 * TRANSPORT_PIECE)

struct ordinary {
    struct world *world;
    uint8_t *memory;
    struct region region;
};

static void publish_ordinary(struct ordinary *ordinary, struct world *world) {
    void *memory = mmap(NULL, ORDINARY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(memory != MAP_FAILED);
    *ordinary = (struct ordinary){
        .world = world,
        .memory = memory,
        .region = {.base = (uint64_t)(uintptr_t)memory, .length = ORDINARY, .access = ALL, .memory_fd = -1}};
    shm_host_publish(world->shm, &ordinary->region);
}

static void withdraw_ordinary(struct ordinary *ordinary) {
    assert_int_equal(shm_host_withdraw(ordinary->world->shm, &ordinary->region, 0), MC_OK);
    munmap(ordinary->memory, ORDINARY);
}

static struct slice slice_of(const struct ordinary *ordinary, uint32_t opcode, uint64_t offset, uint8_t *local,
                             uint64_t length) {
    return (struct slice){
        .local = local, .remote = (uint64_t)(uintptr_t)ordinary->memory + offset, .length = length, .opcode = opcode};
}

static void explain(struct world *world, char text[4096]) {
    struct writer writer;

    writer_init(&writer, text, 4096);
    shm_guest_explain(world->guest, &writer);
    assert_true(writer.length < 4096);
}

static void ordinary_memory_is_read_and_written_in_pieces(void **state) {
    struct ordinary ordinary;
    uint8_t *local = malloc(ORDINARY);
    struct slice slice;
    char text[4096];
    int steps;

    assert_non_null(local);
    publish_ordinary(&ordinary, *state);
    for (size_t i = 0; i < ORDINARY; i++)
        ordinary.memory[i] = (uint8_t)(i * 7 + i / 256);
    slice = slice_of(&ordinary, MC_READ, 1, local, ORDINARY - 1);
    slice.summed = true;
    assert_true(shm_guest_reach(ordinary.world->guest, &slice));
    assert_int_equal(copy(ordinary.world->guest, &slice, &steps), MC_OK);
    assert_int_equal(steps, ORDINARY / TRANSPORT_PIECE);
    assert_memory_equal(local, ordinary.memory + 1, ORDINARY - 1);
    assert_int_equal(slice.checksum, crc32c(0, local, ORDINARY - 1));
    assert_false(slice.indeterminate);
    memset(local, 0x77, ORDINARY);
    slice = slice_of(&ordinary, MC_WRITE, 2, local, ORDINARY - 3);
    assert_int_equal(copy(ordinary.world->guest, &slice, &steps), MC_OK);
    assert_memory_equal(local, ordinary.memory + 2, ORDINARY - 3);
    assert_int_not_equal(ordinary.memory[1], 0x77);
    assert_int_not_equal(ordinary.memory[ORDINARY - 1], 0x77);
    explain(ordinary.world, text);
    assert_non_null(strstr(text, "\"access\":\"rw\",\"path\":\"shm\",\"how\":\"mapped\",\"reason\":\"\"}"));
    assert_non_null(strstr(text, "\"how\":\"process_vm\",\"reason\":\"the memory is not of mc_memory_alloc\"}"));
    withdraw_ordinary(&ordinary);
    slice = slice_of(&ordinary, MC_READ, 0, local, 8);
    assert_false(shm_guest_reach(ordinary.world->guest, &slice));
    assert_int_equal(copy(ordinary.world->guest, &slice, &steps), MC_ERR_NOT_REGISTERED);
    free(local);
}

static void a_checksum_is_of_all_pieces_of_mapped_memory_too(void **state) {
    struct world *world = *state;
    uint8_t *local = malloc(LENGTH);
    struct slice slice = slice_at(world, MC_WRITE, 4096, local, LENGTH);
    int steps;

    assert_non_null(local);
    for (size_t i = 0; i < LENGTH; i++)
        local[i] = (uint8_t)(i * 11);
    slice.summed = true;
    assert_int_equal(copy(world->guest, &slice, &steps), MC_OK);
    assert_int_equal(slice.checksum, crc32c(0, local, LENGTH));
    assert_memory_equal(world->memory + 4096, local, LENGTH);
    free(local);
}

static void a_guard_in_ordinary_memory_is_compared_before_and_after(void **state) {
    struct ordinary ordinary;
    uint8_t local[8] = {1, 2, 3};
    struct slice slice;
    int steps;

    publish_ordinary(&ordinary, *state);
    slice = slice_of(&ordinary, MC_WRITE, 64, local, 8);
    slice.guarded = true;
    slice.guard_address = (uint64_t)(uintptr_t)ordinary.memory;
    slice.guard_value = 42;
    assert_int_equal(copy(ordinary.world->guest, &slice, &steps), MC_ERR_GUARD_MISMATCH);
    assert_int_equal(ordinary.memory[64], 0);
    ordinary.memory[0] = 42;
    slice.moved = 0;
    assert_int_equal(copy(ordinary.world->guest, &slice, &steps), MC_OK);
    assert_memory_equal(ordinary.memory + 64, local, 8);
    slice.remote = slice.guard_address; /* the copy itself changes it */
    slice.moved = 0;
    assert_int_equal(copy(ordinary.world->guest, &slice, &steps), MC_ERR_GUARD_MISMATCH);
    withdraw_ordinary(&ordinary);
}

/* ---- What the owner does ---- */

static void memory_that_its_owner_has_unmapped_is_an_error_and_no_more(void **state) {
    struct ordinary ordinary;
    uint8_t *local = calloc(1, ORDINARY);
    struct slice slice;
    char text[4096];

    assert_non_null(local);
    publish_ordinary(&ordinary, *state);
    slice = slice_of(&ordinary, MC_WRITE, 0, local, ORDINARY);
    assert_true(shm_guest_reach(ordinary.world->guest, &slice));
    munmap(ordinary.memory + 3 * PAGE, PAGE);
    memset(local, 5, ORDINARY);
    assert_int_equal(shm_guest_step(ordinary.world->guest, &slice), MC_ERR_NOT_REGISTERED);
    assert_int_equal(slice.moved, 3 * PAGE);
    assert_true(slice.indeterminate);
    assert_int_equal(ordinary.memory[3 * PAGE - 1], 5);
    assert_int_equal(ordinary.memory[4 * PAGE], 0);
    slice = slice_of(&ordinary, MC_READ, 0, local, 8);
    assert_false(shm_guest_reach(ordinary.world->guest, &slice)); /* another path may know better */
    explain(ordinary.world, text);
    assert_non_null(strstr(text, "\"path\":null,\"how\":null,\"reason\":\"the kernel doesn't let"));
    withdraw_ordinary(&ordinary);
    free(local);
}

static void memory_of_the_caller_that_is_not_there_says_nothing_of_the_peers(void **state) {
    struct ordinary ordinary;
    void *nowhere = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct slice slice, *group[1] = {&slice};
    int32_t status;

    assert_true(nowhere != MAP_FAILED);
    publish_ordinary(&ordinary, *state);
    slice = slice_of(&ordinary, MC_READ, 0, nowhere, 8);
    assert_true(shm_guest_reach(ordinary.world->guest, &slice));
    assert_int_equal(shm_guest_step(ordinary.world->guest, &slice), MC_ERR_INVALID_ARGUMENT);
    shm_guest_step_group(ordinary.world->guest, group, 1, &status);
    assert_int_equal(status, MC_ERR_INVALID_ARGUMENT);
    assert_true(shm_guest_reach(ordinary.world->guest, &slice));
    withdraw_ordinary(&ordinary);
    munmap(nowhere, PAGE);
}

static void memory_that_can_not_be_read_is_left_to_others_from_the_start(void **state) {
    struct ordinary ordinary;
    uint8_t local[8];
    struct slice slice;

    publish_ordinary(&ordinary, *state);
    assert_int_equal(mprotect(ordinary.memory + ORDINARY - PAGE, PAGE, PROT_NONE), 0);
    slice = slice_of(&ordinary, MC_READ, 0, local, 8);
    assert_false(shm_guest_reach(ordinary.world->guest, &slice));
    withdraw_ordinary(&ordinary);
}

static void an_ordinary_region_under_copy_is_busy(void **state) {
    struct ordinary ordinary;
    struct stranger stranger;

    publish_ordinary(&ordinary, *state);
    stranger = enter(ordinary.world);
    atomic_fetch_add(&stranger.counters->copies[ordinary.region.page_slot], 1);
    assert_int_equal(shm_host_withdraw(ordinary.world->shm, &ordinary.region, 0), MC_ERR_BUSY);
    assert_true(shm_host_in_flight(ordinary.world->shm, ordinary.memory + 8));
    atomic_fetch_sub(&stranger.counters->copies[ordinary.region.page_slot], 1);
    assert_false(shm_host_in_flight(ordinary.world->shm, ordinary.memory + 8));
    withdraw_ordinary(&ordinary);
    leave(&stranger);
}

static void ordinary_memory_has_nothing_that_could_be_asked_for(void **state) {
    struct ordinary ordinary;
    struct stranger stranger;
    struct shm_packet packet, answer;
    size_t count = 7;
    int fd;

    publish_ordinary(&ordinary, *state);
    stranger = enter(ordinary.world);
    packet = (struct shm_packet){.kind = SHM_MAP, .slot = ordinary.region.page_slot, .key = SHM_STATES + SHM_OPEN};
    assert_true(socket_send_fds(stranger.fd, &packet, sizeof(packet), NULL, 0) > 0);
    receive_packet(stranger.fd, &answer, &fd, 1, &count);
    assert_int_equal(answer.status, MC_ERR_SYSTEM);
    assert_int_equal(count, 0);
    withdraw_ordinary(&ordinary);
    leave(&stranger);
}

/* ---- Groups ---- */

static void a_group_does_what_its_steps_would_do_one_by_one(void **state) {
    struct ordinary ordinary;
    struct world *world = *state;
    uint8_t local[TRANSPORT_GROUP][64];
    struct slice slices[TRANSPORT_GROUP], *group[TRANSPORT_GROUP];
    int32_t statuses[TRANSPORT_GROUP];

    publish_ordinary(&ordinary, world);
    for (size_t i = 0; i < TRANSPORT_GROUP; i++) {
        uint32_t opcode = i / 10 % 2 == 0 ? MC_WRITE : MC_READ;

        memset(local[i], (int)i, sizeof(local[i]));
        memset(ordinary.memory + PAGE + i * 100, 0xee, 100);
        slices[i] = i % 7 == 3 ? slice_at(world, opcode, 8192 + i * 100, local[i], 60)
                               : slice_of(&ordinary, opcode, PAGE + i * 100, local[i], 60);
        slices[i].guarded = i % 5 == 0;
        slices[i].guard_address =
            i % 2 == 0 ? (uint64_t)(uintptr_t)ordinary.memory : (uint64_t)(uintptr_t)world->memory + 4096;
        slices[i].guard_value = i % 3; /* 0 is there */
        slices[i].summed = i % 2 == 0;
        group[i] = &slices[i];
        assert_true(shm_guest_reach(world->guest, &slices[i]));
    }
    slices[6].remote = 1 << 20; /* nobody's */
    shm_guest_step_group(world->guest, group, TRANSPORT_GROUP, statuses);
    for (size_t i = 0; i < TRANSPORT_GROUP; i++) {
        const uint8_t *remote = (const uint8_t *)(uintptr_t)slices[i].remote;

        if (i == 6) {
            assert_int_equal(statuses[i], MC_ERR_NOT_REGISTERED);
        } else if (slices[i].guarded && i % 3 != 0) {
            assert_int_equal(statuses[i], MC_ERR_GUARD_MISMATCH);
            assert_int_equal(slices[i].moved, 0);
            assert_int_equal(local[i][0], i);
        } else {
            assert_int_equal(statuses[i], MC_OK);
            assert_int_equal(slices[i].moved, 60);
            assert_memory_equal(local[i], remote, 60);
            assert_int_equal(local[i][60], i);
            assert_int_equal(slices[i].checksum, slices[i].summed ? crc32c(0, local[i], 60) : 0);
        }
    }
    withdraw_ordinary(&ordinary);
}

static void one_of_a_group_that_fails_fails_alone(void **state) {
    struct ordinary ordinary;
    uint8_t *local = calloc(8, PAGE);
    struct slice slices[8], *group[8];
    int32_t statuses[8];

    assert_non_null(local);
    publish_ordinary(&ordinary, *state);
    for (size_t i = 0; i < 8; i++) {
        slices[i] = slice_of(&ordinary, MC_WRITE, i * 2 * PAGE + PAGE / 2, local + i * PAGE, PAGE);
        group[i] = &slices[i];
        assert_true(shm_guest_reach(ordinary.world->guest, group[i]));
    }
    memset(local, 9, (size_t)8 * PAGE);
    munmap(ordinary.memory + 5 * PAGE, PAGE); /* the second half of slice 2 */
    munmap(ordinary.memory + 6 * PAGE, PAGE); /* the first half of slice 3 */
    shm_guest_step_group(ordinary.world->guest, group, 8, statuses);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(statuses[i], i == 2 || i == 3 ? MC_ERR_NOT_REGISTERED : MC_OK);
        assert_int_equal(slices[i].moved, i == 2 ? PAGE / 2 : i == 3 ? 0 : PAGE);
        if (statuses[i] == MC_OK)
            assert_int_equal(ordinary.memory[i * 2 * PAGE + PAGE], 9);
    }
    withdraw_ordinary(&ordinary);
    free(local);
}

/* The last copy changes the word that guards all of them. */
static void a_group_looks_at_its_guards_afterwards_too(void **state) {
    struct ordinary ordinary;
    uint8_t local[3][8] = {{1}, {2}, {3}};
    struct slice slices[3], *group[3];
    int32_t statuses[3];

    publish_ordinary(&ordinary, *state);
    for (size_t i = 0; i < 3; i++) {
        slices[i] = slice_of(&ordinary, MC_WRITE, i == 2 ? 0 : 64 + i * 8, local[i], 8);
        slices[i].guarded = i != 1;
        slices[i].guard_address = (uint64_t)(uintptr_t)ordinary.memory;
        group[i] = &slices[i];
        assert_true(shm_guest_reach(ordinary.world->guest, group[i]));
    }
    shm_guest_step_group(ordinary.world->guest, group, 3, statuses);
    assert_int_equal(statuses[0], MC_ERR_GUARD_MISMATCH);
    assert_int_equal(statuses[1], MC_OK);
    assert_int_equal(statuses[2], MC_ERR_GUARD_MISMATCH);
    assert_false(shm_host_in_flight(ordinary.world->shm, ordinary.memory));
    withdraw_ordinary(&ordinary);
}

/* ---- Which process it is ---- */

/* Memory that children have at the same address, each its own. */
struct peer {
    struct shm_page *page; /* as if the child had made it */
    uint8_t *memory;
    int listener, socket;
    pid_t pid;
    struct shm_direct direct;
};

/* A child that listens, holds the memory, and waits to be killed. */
static void start_peer(struct peer *peer) {
    char name[64];
    void *memory = mmap(NULL, ORDINARY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int ready[2];
    char byte;

    assert_true(memory != MAP_FAILED);
    memset(peer, 0, sizeof(*peer));
    peer->memory = memory;
    peer->page = mmap(NULL, sizeof(*peer->page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(peer->page != MAP_FAILED);
    memset(peer->page->proof, 0x5a, sizeof(peer->page->proof));
    memcpy(peer->memory, peer->page->proof, sizeof(peer->page->proof));
    peer->page->proof_address = (uint64_t)(uintptr_t)peer->memory;
    snprintf(name, sizeof(name), "mooncake-test-direct-%d", getpid());
    assert_int_equal(pipe(ready), 0);
    peer->pid = fork();
    assert_true(peer->pid >= 0);
    if (peer->pid == 0) {
        int listener = socket_unix_listen(name, 1);

        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || listener < 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        (void)accept(listener, NULL, NULL);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    peer->socket = socket_unix_connect(name);
    assert_true(peer->socket >= 0);
}

static void kill_peer(struct peer *peer) {
    kill(peer->pid, SIGKILL);
    assert_int_equal(waitpid(peer->pid, NULL, 0), peer->pid);
}

static void forget_peer(struct peer *peer) {
    shm_direct_close(&peer->direct);
    socket_close(peer->socket);
    munmap(peer->page, sizeof(*peer->page));
    munmap(peer->memory, ORDINARY);
}

static int32_t move(struct peer *peer, bool write, uint8_t *local, uint64_t length) {
    uint64_t moved;

    return shm_direct_move_all(&peer->direct, write, local, (uint64_t)(uintptr_t)peer->memory, length, &moved);
}

static void another_process_is_reached_if_the_proof_is_there(void **state) {
    uint8_t local[32] = {0};
    struct peer peer;

    (void)state;
    start_peer(&peer);
    shm_direct_open(&peer.direct, peer.socket, peer.page);
    assert_null(shm_direct_obstacle(&peer.direct));
    assert_int_equal(peer.direct.pid, peer.pid);
    assert_int_equal(move(&peer, false, local, 17), MC_OK);
    assert_memory_equal(local, peer.page->proof, 16);
    shm_direct_close(&peer.direct);
    peer.page->proof[3]++;
    shm_direct_open(&peer.direct, peer.socket, peer.page);
    assert_non_null(strstr(shm_direct_obstacle(&peer.direct), "not the one that made the page"));
    shm_direct_close(&peer.direct);
    peer.page->proof_address = UINT64_MAX - 4;
    shm_direct_open(&peer.direct, peer.socket, peer.page);
    assert_non_null(strstr(shm_direct_obstacle(&peer.direct), "not the one that made the page"));
    kill_peer(&peer);
    shm_direct_close(&peer.direct);
    shm_direct_open(&peer.direct, peer.socket, peer.page);
    assert_non_null(shm_direct_obstacle(&peer.direct));
    forget_peer(&peer);
}

struct killer {
    struct peer *peer;
    atomic_bool copying;
};

static void *kill_under_the_copy(void *context) {
    struct killer *killer = context;

    while (!killer->copying)
        sched_yield();
    kill(killer->peer->pid, SIGKILL);
    return NULL;
}

static void a_peer_that_is_killed_under_a_copy_is_a_lost_connection(void **state) {
    uint8_t *local = malloc(ORDINARY);

    (void)state;
    assert_non_null(local);
    for (int write = 0; write < 2; write++) {
        struct peer peer;
        struct killer killer = {.peer = &peer};
        int32_t status = MC_OK;
        pthread_t thread;

        start_peer(&peer);
        shm_direct_open(&peer.direct, peer.socket, peer.page);
        assert_null(shm_direct_obstacle(&peer.direct));
        assert_int_equal(thread_start(&thread, "killer", kill_under_the_copy, &killer), 0);
        while (status == MC_OK) {
            status = move(&peer, write == 1, local, ORDINARY);
            killer.copying = true;
        }
        assert_int_equal(status, MC_ERR_CONNECTION_LOST);
        pthread_join(thread, NULL);
        waitpid(peer.pid, NULL, 0);
        forget_peer(&peer);
    }
    free(local);
}

/* A child with that number; false if the kernel doesn't let us choose. */
static bool fork_as(pid_t number, pid_t *ret_pid) {
    pid_t numbers[1] = {number};
    struct clone_args arguments = {.exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)numbers, .set_tid_size = 1};
    long pid = syscall(SYS_clone3, &arguments, sizeof(arguments));

    if (pid < 0)
        return false;
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    *ret_pid = (pid_t)pid;
    return true;
}

/* What the other process has there. */
static uint8_t byte_of(pid_t pid, const void *address) {
    uint8_t byte = 0;
    struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)address, 1};

    assert_int_equal(process_vm_readv(pid, &here, 1, &there, 1, 0), 1);
    return byte;
}

static void a_stranger_with_the_peers_number_is_neither_read_nor_written(void **state) {
    uint8_t local[64];
    pid_t stranger;
    struct peer peer;

    (void)state;
    start_peer(&peer);
    shm_direct_open(&peer.direct, peer.socket, peer.page);
    assert_null(shm_direct_obstacle(&peer.direct));
    kill_peer(&peer);
    if (fork_as(peer.pid, &stranger)) { /* it has all that the peer had, even the proof */
        memset(local, 0x11, sizeof(local));
        assert_int_equal(byte_of(stranger, peer.memory), 0x5a);
        atomic_store(&peer.direct.looked, 0); /* no number comes again as soon as here */
        assert_int_equal(move(&peer, true, local, sizeof(local)), MC_ERR_CONNECTION_LOST);
        assert_int_equal(byte_of(stranger, peer.memory), 0x5a);
        assert_int_equal(move(&peer, false, local, sizeof(local)), MC_ERR_CONNECTION_LOST);
        kill(stranger, SIGKILL);
        waitpid(stranger, NULL, 0);
        forget_peer(&peer);
        return;
    }
    print_message("the kernel doesn't let this user choose a child's number\n");
    forget_peer(&peer);
    skip();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        test_of(ordinary_memory_is_read_and_written_in_pieces),
        test_of(a_checksum_is_of_all_pieces_of_mapped_memory_too),
        test_of(a_guard_in_ordinary_memory_is_compared_before_and_after),
        test_of(memory_that_its_owner_has_unmapped_is_an_error_and_no_more),
        test_of(memory_of_the_caller_that_is_not_there_says_nothing_of_the_peers),
        test_of(memory_that_can_not_be_read_is_left_to_others_from_the_start),
        test_of(an_ordinary_region_under_copy_is_busy),
        test_of(ordinary_memory_has_nothing_that_could_be_asked_for),
        test_of(a_group_does_what_its_steps_would_do_one_by_one),
        test_of(one_of_a_group_that_fails_fails_alone),
        test_of(a_group_looks_at_its_guards_afterwards_too),
        cmocka_unit_test(another_process_is_reached_if_the_proof_is_there),
        cmocka_unit_test(a_peer_that_is_killed_under_a_copy_is_a_lost_connection),
        cmocka_unit_test(a_stranger_with_the_peers_number_is_neither_read_nor_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

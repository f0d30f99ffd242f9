/* test_ring.c - bytes come out as they went in, whoever sleeps is woken, and nonsense from the other side touches nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "net/ring.h"
#include "os/fork.h"
#include "os/memfd.h"
#include "os/socket.h"
#include "peer.h"

#define FENCE 4096u /* before and after the memory, to be found untouched */

/* Both sides in this process. */
struct pair {
    struct ring *host, *guest;
    int memory_fd;
};

static int open_pair(void **state) {
    struct pair *pair = calloc(1, sizeof(*pair));
    int bell;

    assert_non_null(pair);
    pair->host = ring_make(&pair->memory_fd, &bell);
    assert_non_null(pair->host);
    pair->guest = ring_map(pair->memory_fd, bell);
    assert_non_null(pair->guest);
    *state = pair;
    return 0;
}

static int close_pair(void **state) {
    struct pair *pair = *state;

    pair->host = ring_close(pair->host);
    pair->guest = ring_close(pair->guest);
    fork_close(pair->memory_fd);
    free(pair);
    return 0;
}

static uint8_t byte_at(uint64_t position) {
    return (uint8_t)(position * 31 + (position >> 8) * 7 + (position >> 16));
}

/* Sends or receives up to `length` bytes in two parts, which are those at `position`; how many. */
static int64_t send_some(struct ring *ring, uint64_t position, size_t length) {
    uint8_t *bytes = malloc(length + 1);
    struct iovec parts[3] = {{bytes, length / 3}, {NULL, 0}, {bytes + length / 3, length - length / 3}};
    int64_t sent;

    if (bytes == NULL)
        abort();
    for (size_t i = 0; i < length; i++)
        bytes[i] = byte_at(position + i);
    sent = ring_send(ring, parts, 3);
    free(bytes);
    return sent;
}

static int64_t receive_some(struct ring *ring, uint64_t position, size_t length) {
    uint8_t *bytes = malloc(length + 1);
    struct iovec parts[3] = {{bytes, length / 4}, {NULL, 0}, {bytes + length / 4, length - length / 4}};
    int64_t got;

    if (bytes == NULL)
        abort();
    got = ring_receive(ring, parts, 3);
    for (int64_t i = 0; i < got; i++)
        if (bytes[i] != byte_at(position + (uint64_t)i))
            abort();
    free(bytes);
    return got;
}

static bool is_rung(const struct ring *ring) {
    struct pollfd polled = {.fd = ring_bell(ring), .events = POLLIN};

    return poll(&polled, 1, 0) == 1;
}

/* ---- Bytes ---- */

static void bytes_come_out_in_order_wherever_the_ring_ends(void **state) {
    struct pair *pair = *state;
    uint64_t sent = 0, got = 0;
    unsigned seed = 1;

    while (got < 10 * RING_BYTES) {
        int64_t moved = send_some(pair->guest, sent, (unsigned)rand_r(&seed) % 9000 + 1);

        sent += moved > 0 ? (uint64_t)moved : 0;
        moved = receive_some(pair->host, got, (unsigned)rand_r(&seed) % 9000 + 1);
        got += moved > 0 ? (uint64_t)moved : 0;
        assert_true(got <= sent && sent - got <= RING_BYTES);
    }
}

static void both_directions_are_independent(void **state) {
    struct pair *pair = *state;

    assert_int_equal(send_some(pair->guest, 0, RING_BYTES), RING_BYTES);
    assert_int_equal(send_some(pair->host, 5, 100), 100);
    assert_int_equal(receive_some(pair->guest, 5, 1000), 100);
    assert_int_equal(receive_some(pair->host, 0, RING_BYTES), RING_BYTES);
}

static void a_full_ring_takes_a_part_and_then_nothing_until_there_is_place(void **state) {
    struct pair *pair = *state;

    assert_int_equal(send_some(pair->guest, 0, RING_BYTES - 10), RING_BYTES - 10);
    assert_int_equal(send_some(pair->guest, RING_BYTES - 10, 100), 10);
    assert_int_equal(send_some(pair->guest, RING_BYTES, 1), -1);
    assert_int_equal(errno, EAGAIN);
    assert_false(ring_peek(pair->guest, true, true));
    assert_int_equal(receive_some(pair->host, 0, 7), 7);
    assert_true(ring_peek(pair->guest, false, true));
    assert_true(is_rung(pair->guest));
    ring_heed(pair->guest);
    assert_int_equal(send_some(pair->guest, RING_BYTES, 100), 7);
    assert_int_equal(receive_some(pair->host, 7, 2 * RING_BYTES), RING_BYTES);
}

static void an_empty_ring_has_nothing(void **state) {
    struct pair *pair = *state;

    assert_int_equal(receive_some(pair->host, 0, 10), -1);
    assert_int_equal(errno, EAGAIN);
    assert_false(ring_peek(pair->host, true, false));
    assert_true(ring_peek(pair->host, false, true));
}

/* ---- Sleeping ---- */

static void who_sleeps_is_woken_and_who_is_awake_is_not_rung_for(void **state) {
    struct pair *pair = *state;

    assert_int_equal(send_some(pair->guest, 0, 10), 10); /* to one that hasn't looked yet */
    assert_true(is_rung(pair->host));
    ring_heed(pair->host);
    assert_int_equal(receive_some(pair->host, 0, 10), 10);
    for (uint64_t i = 1; i < 100; i++) {
        assert_int_equal(send_some(pair->guest, i * 10, 10), 10);
        assert_int_equal(receive_some(pair->host, i * 10, 10), 10);
        assert_false(is_rung(pair->host));
    }
    assert_true(ring_sleep(pair->host, true, false));
    assert_false(is_rung(pair->host));
    assert_int_equal(send_some(pair->guest, 1000, 10), 10);
    assert_true(is_rung(pair->host));
}

static void who_would_sleep_over_something_is_told(void **state) {
    struct pair *pair = *state;

    assert_int_equal(receive_some(pair->host, 0, 1), -1);
    assert_int_equal(send_some(pair->guest, 0, 10), 10);
    assert_false(ring_sleep(pair->host, true, false));
    assert_true(ring_sleep(pair->host, false, false));
    assert_false(ring_sleep(pair->guest, true, true));
    assert_true(ring_sleep(pair->guest, true, false));
}

static void one_sleep_is_rung_for_once(void **state) {
    struct pair *pair = *state;
    uint8_t rung[16];

    assert_true(ring_sleep(pair->host, true, false));
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(send_some(pair->guest, i, 1), 1);
    assert_int_equal(recv(ring_bell(pair->host), rung, sizeof(rung), MSG_DONTWAIT), 1);
}

/* ---- Ends ---- */

static void who_rings_on_and_on_keeps_nobody(void **state) {
    static const uint8_t storm[50000];
    struct pair *pair = *state;

    assert_int_equal(send(ring_bell(pair->guest), storm, sizeof(storm), MSG_DONTWAIT), sizeof(storm));
    ring_heed(pair->host);
    assert_true(is_rung(pair->host)); /* the rest is for the next time: others have their turn before */
    for (size_t i = 0; i < sizeof(storm) && is_rung(pair->host); i++)
        ring_heed(pair->host);
    assert_false(is_rung(pair->host));
}

static void what_was_sent_before_the_end_is_received(void **state) {
    struct pair *pair = *state;

    assert_int_equal(send_some(pair->guest, 0, 100), 100);
    pair->guest = ring_close(pair->guest);
    for (int i = 0; i < 2; i++) { /* for the bytes, and for the end */
        assert_true(is_rung(pair->host));
        ring_heed(pair->host);
    }
    assert_int_equal(receive_some(pair->host, 0, 60), 60);
    assert_int_equal(receive_some(pair->host, 60, 60), 40);
    assert_int_equal(receive_some(pair->host, 100, 60), 0);
    assert_int_equal(send_some(pair->host, 0, 1), -1);
    assert_int_equal(errno, ECONNRESET);
    assert_true(ring_peek(pair->host, true, false));
    assert_false(ring_sleep(pair->host, true, false));
}

/* Who gets a number would close it, and by then it may be another's. */
static void where_descriptors_are_short_there_is_no_ring_and_no_number(void **state) {
    int memory_fd = -1, bell_fd = -1, lowest = dup(0);
    struct rlimit before, few;

    (void)state;
    assert_true(lowest >= 0);
    close(lowest);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (int more = 0; more < 3; more++) { /* the memory and both ends of the bell need three */
        few = (struct rlimit){(rlim_t)(lowest + more), before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        assert_null(ring_make(&memory_fd, &bell_fd));
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(memory_fd, -1);
        assert_int_equal(bell_fd, -1);
    }
}

static void memory_that_is_not_a_ring_is_not_mapped(void **state) {
    int bells[2], fd;
    void *address;

    (void)state;
    assert_int_equal(socket_unix_pair(bells), 0);
    assert_int_equal(memfd_make("small", memfd_round(1), &fd, &address), 0);
    assert_null(ring_map(fd, bells[0]));
    assert_int_equal(errno, EBADF);
    assert_true(fcntl(bells[0], F_GETFD) < 0);
    memfd_unmap(address, memfd_round(1));
    fork_close(fd);
    socket_close(bells[1]);
}

/* ---- A hostile other side ---- */

/* A guest's side over memory with fences around it, in which the test plays the host. */
struct victim {
    uint8_t *all, *memory;
    struct ring *ring;
    int bell;
};

static struct victim victim_open(enum ring_side side) {
    struct victim victim;
    size_t size = ring_memory_size();
    int bells[2];

    victim.all = mmap(NULL, size + 2 * FENCE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(victim.all != MAP_FAILED);
    victim.memory = victim.all + FENCE;
    assert_int_equal(mprotect(victim.all, FENCE, PROT_NONE), 0);
    assert_int_equal(mprotect(victim.memory + size, FENCE, PROT_NONE), 0);
    assert_int_equal(socket_unix_pair(bells), 0);
    victim.ring = ring_on(victim.memory, side, bells[0]);
    assert_non_null(victim.ring);
    victim.bell = bells[1];
    return victim;
}

static void victim_close(struct victim *victim) {
    ring_close(victim->ring);
    socket_close(victim->bell);
    munmap(victim->all, ring_memory_size() + 2 * FENCE);
}

/* Every aligned word of the page in front is set, since the test knows nothing of the order. */
static void set_words(struct victim *victim, uint64_t value) {
    for (size_t at = 0; at < 4096; at += sizeof(value))
        memcpy(victim->memory + at, &value, sizeof(value));
}

static void positions_that_make_no_sense_end_the_stream_and_touch_nothing(void **state) {
    static const uint64_t nonsense[] = {RING_BYTES + 1, UINT64_MAX, UINT64_MAX - RING_BYTES, 1ull << 63, 1ull << 32};

    (void)state;
    for (int side = RING_HOST; side <= RING_GUEST; side++)
        for (size_t i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++) {
            struct victim victim = victim_open((enum ring_side)side);

            set_words(&victim, nonsense[i]);
            assert_true(ring_peek(victim.ring, true, false));
            assert_false(ring_sleep(victim.ring, true, false));
            assert_int_equal(receive_some(victim.ring, 0, 4 * RING_BYTES), -1);
            assert_int_equal(errno, EPROTO);
            /* the first RING_BYTES go out unseen, since the other side may be that far behind */
            assert_true(send_some(victim.ring, 0, RING_BYTES) <= (int64_t)RING_BYTES);
            assert_int_equal(send_some(victim.ring, 0, 4 * RING_BYTES), -1);
            assert_int_equal(errno, EPROTO);
            victim_close(&victim);
        }
}

static void any_position_within_reach_gives_bytes_of_the_ring_only(void **state) {
    uint8_t bytes[64];
    struct iovec part = {bytes, sizeof(bytes)};

    (void)state;
    for (uint64_t value = 1; value <= RING_BYTES; value = value * 2 + 1) {
        struct victim victim = victim_open(RING_GUEST);

        memset(victim.memory + 4096, 0x5a, (size_t)2 * RING_BYTES);
        set_words(&victim, value > RING_BYTES ? RING_BYTES : value);
        assert_true(ring_receive(victim.ring, &part, 1) > 0);
        assert_int_equal(bytes[0], 0x5a);
        victim_close(&victim);
    }
}

/* ---- Two threads ---- */

#define STREAM (4u << 20)

static void wait_for_bell(struct ring *ring, bool receiving, bool sending) {
    struct pollfd polled = {.fd = ring_bell(ring), .events = POLLIN};

    if (!ring_sleep(ring, receiving, sending))
        return;
    if (poll(&polled, 1, (int)(PEER_PATIENCE / CLOCK_MILLISECOND)) <= 0)
        abort();
    ring_heed(ring);
}

static void *write_all(void *context) {
    struct ring *ring = context;
    uint64_t sent = 0;
    unsigned seed = 3;

    while (sent < STREAM) {
        int64_t moved = send_some(ring, sent, (unsigned)rand_r(&seed) % 40000 + 1);

        if (moved > 0)
            sent += (uint64_t)moved;
        else
            wait_for_bell(ring, false, true);
    }
    return NULL;
}

static void no_byte_and_no_bell_is_lost_between_two_threads(void **state) {
    struct pair *pair = *state;
    uint64_t got = 0;
    unsigned seed = 4;
    pthread_t writer;

    assert_int_equal(pthread_create(&writer, NULL, write_all, pair->guest), 0);
    while (got < STREAM) {
        int64_t moved = receive_some(pair->host, got, (unsigned)rand_r(&seed) % 40000 + 1);

        if (moved > 0)
            got += (uint64_t)moved;
        else
            wait_for_bell(pair->host, true, false);
    }
    assert_int_equal(pthread_join(writer, NULL), 0);
}

#define test_of(function) cmocka_unit_test_setup_teardown(function, open_pair, close_pair)

int main(void) {
    const struct CMUnitTest tests[] = {
        test_of(bytes_come_out_in_order_wherever_the_ring_ends),
        test_of(both_directions_are_independent),
        test_of(a_full_ring_takes_a_part_and_then_nothing_until_there_is_place),
        test_of(an_empty_ring_has_nothing),
        test_of(who_sleeps_is_woken_and_who_is_awake_is_not_rung_for),
        test_of(who_would_sleep_over_something_is_told),
        test_of(one_sleep_is_rung_for_once),
        test_of(who_rings_on_and_on_keeps_nobody),
        test_of(what_was_sent_before_the_end_is_received),
        cmocka_unit_test(where_descriptors_are_short_there_is_no_ring_and_no_number),
        cmocka_unit_test(memory_that_is_not_a_ring_is_not_mapped),
        cmocka_unit_test(positions_that_make_no_sense_end_the_stream_and_touch_nothing),
        cmocka_unit_test(any_position_within_reach_gives_bytes_of_the_ring_only),
        test_of(no_byte_and_no_bell_is_lost_between_two_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

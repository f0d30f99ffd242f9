/* test_handshake.c - two ends agree only if key, versions and incarnation fit, and each learns the right reason. */
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

#include "net/handshake.h"
#include "peer.h"

/* Both ends on two sockets, between which the test carries the bytes, so that it can look at them, cut and change
 * them. */
struct ends {
    struct identity client, server;
    struct auth *keys[2];
    struct handshake handshake[2]; /* by enum auth_role */
    int fd[2];                     /* the handshake's */
    int wire[2];                   /* the test's end of it */
    int32_t status[2];
};

static struct auth *key_of(uint8_t byte) {
    char path[] = "/tmp/mooncake-key-XXXXXX";
    uint8_t key[32];
    struct auth *auth = NULL;
    int fd = mkstemp(path);

    memset(key, byte, sizeof(key));
    assert_true(fd >= 0);
    assert_int_equal(write(fd, key, sizeof(key)), (ssize_t)sizeof(key));
    close(fd);
    assert_int_equal(auth_load(path, &auth, NULL), MC_OK);
    unlink(path);
    return auth;
}

static int open_ends(void **state) {
    struct ends *ends = calloc(1, sizeof(*ends));
    int pair[2];

    assert_non_null(ends);
    memset(ends->client.incarnation, 0xc1, 16);
    memset(ends->server.incarnation, 0x5e, 16);
    for (int role = 0; role < 2; role++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
        ends->fd[role] = pair[0];
        ends->wire[role] = pair[1];
        ends->status[role] = MC_ERR_PENDING;
    }
    *state = ends;
    return 0;
}

static int close_ends(void **state) {
    struct ends *ends = *state;

    for (int role = 0; role < 2; role++) {
        socket_close(ends->fd[role]);
        socket_close(ends->wire[role]);
        auth_free(ends->keys[role]);
    }
    free(ends);
    return 0;
}

static void give_keys(struct ends *ends, uint8_t client, uint8_t server) {
    if (auth_unavailable() != NULL)
        skip();
    if (client != 0)
        ends->client.auth = ends->keys[AUTH_CLIENT] = key_of(client);
    if (server != 0)
        ends->server.auth = ends->keys[AUTH_SERVER] = key_of(server);
}

static void begin(struct ends *ends, const uint8_t *expected) {
    assert_int_equal(handshake_begin(&ends->handshake[AUTH_CLIENT], &ends->client, AUTH_CLIENT, expected), MC_OK);
    assert_int_equal(handshake_begin(&ends->handshake[AUTH_SERVER], &ends->server, AUTH_SERVER, NULL), MC_OK);
}

static void step(struct ends *ends, int role) {
    if (ends->status[role] == MC_ERR_PENDING)
        ends->status[role] = handshake_step(&ends->handshake[role], ends->fd[role]);
}

/* Carries at most `piece` bytes from `role` to the other end; false if there were none. */
static bool carry(struct ends *ends, int role, size_t piece) {
    uint8_t bytes[512];
    ssize_t got = recv(ends->wire[role], bytes, piece < sizeof(bytes) ? piece : sizeof(bytes), MSG_DONTWAIT);

    if (got <= 0)
        return false;
    assert_int_equal(send(ends->wire[1 - role], bytes, (size_t)got, MSG_NOSIGNAL), got);
    return true;
}

/* Both ends step while bytes move, which come in pieces of `piece`. */
static void run(struct ends *ends, size_t piece) {
    bool moved = true;

    while (moved) {
        moved = false;
        for (int role = 0; role < 2; role++) {
            step(ends, role);
            moved = carry(ends, role, piece) || moved;
        }
    }
}

static void assert_verdicts(const struct ends *ends, int32_t client, int32_t server) {
    assert_int_equal(ends->status[AUTH_CLIENT], client);
    assert_int_equal(ends->status[AUTH_SERVER], server);
}

static void assert_agreed(const struct ends *ends) {
    assert_verdicts(ends, MC_OK, MC_OK);
    for (int role = 0; role < 2; role++) {
        assert_int_equal(ends->handshake[role].version, PREFACE_VERSION_MAX);
        assert_false(handshake_sending(&ends->handshake[role]));
    }
    assert_memory_equal(ends->handshake[AUTH_CLIENT].other.incarnation, ends->server.incarnation, 16);
    assert_memory_equal(ends->handshake[AUTH_SERVER].other.incarnation, ends->client.incarnation, 16);
}

static void two_ends_without_a_key_agree_and_know_each_other(void **state) {
    begin(*state, NULL);
    run(*state, 512);
    assert_agreed(*state);
}

static void two_ends_agree_when_every_byte_comes_alone(void **state) {
    begin(*state, NULL);
    run(*state, 1);
    assert_agreed(*state);
}

static void two_ends_with_the_same_key_agree(void **state) {
    give_keys(*state, 7, 7);
    begin(*state, NULL);
    run(*state, 13);
    assert_agreed(*state);
}

static void a_wrong_key_is_refused_and_both_ends_know(void **state) {
    give_keys(*state, 7, 8);
    begin(*state, NULL);
    run(*state, 512);
    assert_verdicts(*state, MC_ERR_AUTHENTICATION, MC_ERR_AUTHENTICATION);
}

/* The client sees it in the HELLO, and gives no proof away. */
static void a_client_with_a_key_leaves_a_server_without(void **state) {
    give_keys(*state, 7, 0);
    begin(*state, NULL);
    run(*state, 512);
    assert_verdicts(*state, MC_ERR_AUTHENTICATION, MC_ERR_PENDING);
}

static void a_client_without_a_key_leaves_a_server_that_has_one(void **state) {
    give_keys(*state, 0, 7);
    begin(*state, NULL);
    run(*state, 512);
    assert_verdicts(*state, MC_ERR_AUTHENTICATION, MC_ERR_PENDING);
}

static void the_expected_incarnation_is_accepted(void **state) {
    struct ends *ends = *state;

    begin(ends, ends->server.incarnation);
    run(ends, 512);
    assert_agreed(ends);
}

static void another_incarnation_than_expected_is_a_stale_peer(void **state) {
    struct ends *ends = *state;

    begin(ends, ends->client.incarnation);
    run(ends, 512);
    assert_verdicts(ends, MC_ERR_STALE_PEER, MC_ERR_STALE_PEER);
}

static void a_full_server_says_so_to_those_who_have_the_key(void **state) {
    struct ends *ends = *state;

    give_keys(ends, 7, 7);
    begin(ends, NULL);
    handshake_refuse(&ends->handshake[AUTH_SERVER], MC_ERR_TOO_MANY);
    run(ends, 512);
    assert_verdicts(ends, MC_ERR_TOO_MANY, MC_ERR_TOO_MANY);
}

static void a_full_server_says_nothing_but_wrong_key_to_strangers(void **state) {
    struct ends *ends = *state;

    give_keys(ends, 7, 8);
    begin(ends, NULL);
    handshake_refuse(&ends->handshake[AUTH_SERVER], MC_ERR_TOO_MANY);
    run(ends, 512);
    assert_verdicts(ends, MC_ERR_AUTHENTICATION, MC_ERR_AUTHENTICATION);
}

/* ---- One end, and a peer made by hand ---- */

static struct preface_hello hello_of(uint16_t lowest, uint16_t highest) {
    return (struct preface_hello){.version_min = lowest, .version_max = highest, .incarnation = {1}, .nonce = {2}};
}

static void say(struct ends *ends, int role, const void *bytes, size_t length) {
    assert_int_equal(send(ends->wire[role], bytes, length, 0), (ssize_t)length);
    step(ends, role);
}

static void hear(struct ends *ends, int role, void *bytes, size_t length) {
    assert_int_equal(recv(ends->wire[role], bytes, length, MSG_DONTWAIT), (ssize_t)length);
}

/* What the server of *ends answers to a client by hand. */
static struct preface_proof verdict_for(struct ends *ends, const struct preface_hello *hello) {
    struct preface_proof proof = {.status = MC_OK}, accept = {.status = 1};
    uint8_t bytes[PREFACE_HELLO_SIZE];

    begin(ends, NULL);
    preface_pack_hello(hello, bytes);
    say(ends, AUTH_SERVER, bytes, PREFACE_HELLO_SIZE);
    hear(ends, AUTH_SERVER, bytes, PREFACE_HELLO_SIZE);
    preface_pack_proof(&proof, bytes);
    say(ends, AUTH_SERVER, bytes, PREFACE_PROOF_SIZE);
    hear(ends, AUTH_SERVER, bytes, PREFACE_PROOF_SIZE);
    assert_int_equal(preface_unpack_proof(bytes, &accept), MC_OK);
    assert_int_equal(accept.status, ends->status[AUTH_SERVER]);
    return accept;
}

static void a_server_refuses_versions_that_it_does_not_know(void **state) {
    struct preface_hello hello = hello_of(PREFACE_VERSION_MAX + 1, PREFACE_VERSION_MAX + 3);

    assert_int_equal(verdict_for(*state, &hello).status, MC_ERR_VERSION);
}

static void a_server_chooses_the_highest_version_that_both_know(void **state) {
    struct preface_hello hello = hello_of(1, PREFACE_VERSION_MAX + 3);
    struct preface_proof accept = verdict_for(*state, &hello);

    assert_int_equal(accept.status, MC_OK);
    assert_int_equal(accept.version, PREFACE_VERSION_MAX);
}

static void a_server_with_a_key_refuses_a_proof_without(void **state) {
    struct preface_hello hello = hello_of(1, 1);
    struct preface_proof accept;
    static const uint8_t zeros[32];

    give_keys(*state, 0, 7);
    hello.flags = PREFACE_FLAG_KEY;
    accept = verdict_for(*state, &hello);
    assert_int_equal(accept.status, MC_ERR_AUTHENTICATION);
    assert_memory_equal(accept.proof, zeros, sizeof(zeros));
}

static void a_server_ignores_flags_that_it_does_not_know(void **state) {
    struct preface_hello hello = hello_of(1, 1);

    hello.flags = 0xfffffff0;
    assert_int_equal(verdict_for(*state, &hello).status, MC_OK);
}

static void garbage_is_refused_by_a_server_without_an_answer(void **state) {
    struct ends *ends = *state;
    uint8_t bytes[PREFACE_HELLO_SIZE];

    begin(ends, NULL);
    memset(bytes, 'G', sizeof(bytes));
    say(ends, AUTH_SERVER, bytes, sizeof(bytes));
    assert_int_equal(ends->status[AUTH_SERVER], MC_ERR_PROTOCOL);
    assert_int_equal(recv(ends->wire[AUTH_SERVER], bytes, 1, MSG_DONTWAIT), -1);
}

static void garbage_for_a_proof_is_refused_by_a_server(void **state) {
    struct ends *ends = *state;
    struct preface_hello hello = hello_of(1, 1);
    uint8_t bytes[PREFACE_HELLO_SIZE];

    begin(ends, NULL);
    preface_pack_hello(&hello, bytes);
    say(ends, AUTH_SERVER, bytes, PREFACE_HELLO_SIZE);
    say(ends, AUTH_SERVER, bytes, PREFACE_PROOF_SIZE);
    assert_int_equal(ends->status[AUTH_SERVER], MC_ERR_PROTOCOL);
}

/* The client of *ends has said HELLO and is answered by `hello`. */
static void answer(struct ends *ends, const struct preface_hello *hello) {
    uint8_t bytes[PREFACE_HELLO_SIZE];

    begin(ends, NULL);
    step(ends, AUTH_CLIENT);
    hear(ends, AUTH_CLIENT, bytes, PREFACE_HELLO_SIZE);
    preface_pack_hello(hello, bytes);
    say(ends, AUTH_CLIENT, bytes, PREFACE_HELLO_SIZE);
}

/* What a client makes of such an ACCEPT. */
static void assert_client_says(int32_t expected, struct preface_proof accept) {
    void *state;
    struct ends *ends;
    struct preface_hello hello = hello_of(1, PREFACE_VERSION_MAX);
    uint8_t bytes[PREFACE_PROOF_SIZE];

    open_ends(&state);
    ends = state;
    answer(ends, &hello);
    hear(ends, AUTH_CLIENT, bytes, PREFACE_PROOF_SIZE);
    preface_pack_proof(&accept, bytes);
    say(ends, AUTH_CLIENT, bytes, PREFACE_PROOF_SIZE);
    assert_int_equal(ends->status[AUTH_CLIENT], expected);
    close_ends(&state);
}

static void a_client_believes_an_accept_that_fits_and_no_other(void **state) {
    (void)state;
    assert_client_says(MC_OK, (struct preface_proof){.version = PREFACE_VERSION_MAX});
    assert_client_says(MC_ERR_VERSION, (struct preface_proof){.version = PREFACE_VERSION_MAX + 1});
    assert_client_says(MC_ERR_VERSION, (struct preface_proof){.version = 0});
    assert_client_says(MC_ERR_AUTHENTICATION, (struct preface_proof){.version = PREFACE_VERSION_MAX, .proof = {1}});
    assert_client_says(MC_ERR_PROTOCOL, (struct preface_proof){.version = PREFACE_VERSION_MAX, .status = 1});
    assert_client_says(MC_ERR_VERSION, (struct preface_proof){.status = MC_ERR_VERSION});
    assert_client_says(-31337, (struct preface_proof){.status = -31337});
}

static void a_client_refuses_garbage(void **state) {
    struct ends *ends = *state;
    uint8_t bytes[PREFACE_HELLO_SIZE];

    begin(ends, NULL);
    step(ends, AUTH_CLIENT);
    memset(bytes, 'S', sizeof(bytes));
    say(ends, AUTH_CLIENT, bytes, sizeof(bytes));
    assert_int_equal(ends->status[AUTH_CLIENT], MC_ERR_PROTOCOL);
}

static void a_client_that_meets_itself_has_reached_nobody(void **state) {
    struct ends *ends = *state;
    uint8_t bytes[PREFACE_HELLO_SIZE];

    begin(ends, NULL);
    step(ends, AUTH_CLIENT);
    hear(ends, AUTH_CLIENT, bytes, sizeof(bytes));
    say(ends, AUTH_CLIENT, bytes, sizeof(bytes));
    assert_int_equal(ends->status[AUTH_CLIENT], MC_ERR_UNREACHABLE);
}

static void the_end_of_the_stream_is_a_lost_connection_in_every_phase(void **state) {
    struct preface_hello hello = hello_of(1, 1);

    for (int phase = 0; phase < 4; phase++) {
        struct ends *ends;
        uint8_t bytes[PREFACE_HELLO_SIZE];
        int role = phase < 2 ? AUTH_SERVER : AUTH_CLIENT;

        open_ends(state);
        ends = *state;
        begin(ends, NULL);
        step(ends, AUTH_CLIENT);
        preface_pack_hello(&hello, bytes);
        say(ends, role, bytes, phase % 2 == 0 ? 50 : PREFACE_HELLO_SIZE);
        assert_int_equal(ends->status[role], MC_ERR_PENDING);
        assert_int_equal(shutdown(ends->wire[role], SHUT_WR), 0);
        step(ends, role);
        assert_int_equal(ends->status[role], MC_ERR_CONNECTION_LOST);
        close_ends(state);
    }
}

static void nothing_is_received_beyond_the_preface(void **state) {
    struct ends *ends = *state;
    struct preface_hello hello = hello_of(1, 1);
    struct preface_proof proof = {.status = MC_OK};
    uint8_t bytes[PREFACE_HELLO_SIZE + PREFACE_PROOF_SIZE + 5], rest[8];

    begin(ends, NULL);
    preface_pack_hello(&hello, bytes);
    preface_pack_proof(&proof, bytes + PREFACE_HELLO_SIZE);
    memcpy(bytes + PREFACE_HELLO_SIZE + PREFACE_PROOF_SIZE, "frame", 5);
    say(ends, AUTH_SERVER, bytes, sizeof(bytes));
    assert_int_equal(ends->status[AUTH_SERVER], MC_OK);
    assert_int_equal(recv(ends->fd[AUTH_SERVER], rest, sizeof(rest), MSG_DONTWAIT), 5);
    assert_memory_equal(rest, "frame", 5);
}

static void no_two_hellos_are_alike(void **state) {
    struct ends *ends = *state;
    uint8_t first[PREFACE_HELLO_SIZE];

    begin(ends, NULL);
    memcpy(first, ends->handshake[AUTH_CLIENT].client, sizeof(first));
    begin(ends, NULL);
    assert_memory_not_equal(first, ends->handshake[AUTH_CLIENT].client, sizeof(first));
}

#define test_of(function) cmocka_unit_test_setup_teardown(function, open_ends, close_ends)

int main(void) {
    const struct CMUnitTest tests[] = {
        test_of(two_ends_without_a_key_agree_and_know_each_other),
        test_of(two_ends_agree_when_every_byte_comes_alone),
        test_of(two_ends_with_the_same_key_agree),
        test_of(a_wrong_key_is_refused_and_both_ends_know),
        test_of(a_client_with_a_key_leaves_a_server_without),
        test_of(a_client_without_a_key_leaves_a_server_that_has_one),
        test_of(the_expected_incarnation_is_accepted),
        test_of(another_incarnation_than_expected_is_a_stale_peer),
        test_of(a_full_server_says_so_to_those_who_have_the_key),
        test_of(a_full_server_says_nothing_but_wrong_key_to_strangers),
        test_of(a_server_refuses_versions_that_it_does_not_know),
        test_of(a_server_chooses_the_highest_version_that_both_know),
        test_of(a_server_with_a_key_refuses_a_proof_without),
        test_of(a_server_ignores_flags_that_it_does_not_know),
        test_of(garbage_is_refused_by_a_server_without_an_answer),
        test_of(garbage_for_a_proof_is_refused_by_a_server),
        cmocka_unit_test(a_client_believes_an_accept_that_fits_and_no_other),
        test_of(a_client_refuses_garbage),
        test_of(a_client_that_meets_itself_has_reached_nobody),
        cmocka_unit_test(the_end_of_the_stream_is_a_lost_connection_in_every_phase),
        test_of(nothing_is_received_beyond_the_preface),
        test_of(no_two_hellos_are_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

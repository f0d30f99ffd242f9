/* test_socket.c - sockets connect over IPv4, IPv6 and UNIX, carry descriptors, and tell who is at the other end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "os/socket.h"

static struct address resolve(const char *host, uint16_t port) {
    struct address address;
    size_t count = 0;

    assert_int_equal(address_resolve(host, port, &address, 1, &count, NULL), MC_OK);
    return address;
}

static void await(int fd, short events) {
    struct pollfd waiter = {.fd = fd, .events = events};

    assert_int_equal(poll(&waiter, 1, 10000), 1);
}

static void assert_marked(int fd) {
    assert_true((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
}

static int nodelay(int fd) {
    int value = 0;
    socklen_t length = sizeof(value);

    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &length), 0);
    return value;
}

/* One byte from end to end over a listener at `host`; the client connects to `target`. */
static void talk(const char *host, const char *target) {
    struct address wanted = resolve(host, 0), bound, peer;
    int listener = -1, client = -1, server = -1;
    char byte = 'x';

    assert_int_equal(socket_listen(&wanted, 8, &listener, &bound, NULL), MC_OK);
    assert_int_not_equal(address_port(&bound), 0);
    assert_marked(listener);
    assert_int_equal(socket_accept(listener), -1);
    assert_int_equal(errno, EAGAIN);
    peer = resolve(target, address_port(&bound));
    assert_int_equal(socket_connect(&peer, &client, NULL), MC_OK);
    assert_marked(client);
    await(client, POLLOUT);
    assert_int_equal(socket_error(client), 0);
    await(listener, POLLIN);
    server = socket_accept(listener);
    assert_true(server >= 0);
    assert_marked(server);
    assert_int_equal(nodelay(client), 1);
    assert_int_equal(nodelay(server), 1);
    assert_int_equal(write(client, &byte, 1), 1);
    await(server, POLLIN);
    assert_int_equal(read(server, &byte, 1), 1);
    assert_int_equal(socket_close(server), -1);
    (void)socket_close(client);
    (void)socket_close(listener);
}

static void ends_talk_over_ipv4(void **state) {
    (void)state;
    talk("127.0.0.1", "127.0.0.1");
}

static void ends_talk_over_ipv6(void **state) {
    (void)state;
    talk("::1", "::1");
}

static void a_listener_on_the_ipv6_wildcard_takes_both_families(void **state) {
    (void)state;
    talk("::", "127.0.0.1");
    talk("::", "::1");
}

static void a_taken_port_is_refused_with_address_and_errno(void **state) {
    struct address wanted = resolve("127.0.0.1", 0), bound, untouched;
    struct mc_error error = {.struct_size = sizeof(error)};
    int listener = -1, second = -42;
    char text[ADDRESS_TEXT_MAX];

    (void)state;
    assert_int_equal(socket_listen(&wanted, 8, &listener, &bound, NULL), MC_OK);
    address_format(&bound, text);
    assert_int_equal(socket_listen(&bound, 8, &second, &untouched, &error), MC_ERR_SYSTEM);
    assert_int_equal(second, -42);
    assert_int_equal(error.system_errno, EADDRINUSE);
    assert_non_null(strstr(error.message, text));
    assert_non_null(strstr(error.message, "Address already in use"));
    (void)socket_close(listener);
}

static void nobody_at_the_address_is_a_refusal(void **state) {
    struct address wanted = resolve("127.0.0.1", 0), bound;
    int listener = -1, client = -1;

    (void)state;
    assert_int_equal(socket_listen(&wanted, 8, &listener, &bound, NULL), MC_OK);
    (void)socket_close(listener);
    if (socket_connect(&bound, &client, NULL) == MC_OK) {
        await(client, POLLOUT);
        assert_int_equal(socket_error(client), ECONNREFUSED);
    }
    (void)socket_close(client);
}

/* A name that no other test run has. */
static const char *unix_name(void) {
    static char name[64];

    (void)snprintf(name, sizeof(name), "mooncake-test-socket-%d", (int)getpid());
    return name;
}

struct pair {
    int listener;
    int client;
    int server;
};

static int open_pair(void **state) {
    static struct pair pair;

    pair.listener = socket_unix_listen(unix_name(), 4);
    assert_true(pair.listener >= 0);
    pair.client = socket_unix_connect(unix_name());
    assert_true(pair.client >= 0);
    pair.server = socket_accept(pair.listener);
    assert_true(pair.server >= 0);
    *state = &pair;
    return 0;
}

static int close_pair(void **state) {
    struct pair *pair = *state;

    (void)socket_close(pair->listener);
    (void)socket_close(pair->client);
    (void)socket_close(pair->server);
    return 0;
}

static void descriptors_arrive_with_their_packet_and_close_on_exec(void **state) {
    struct pair *pair = *state;
    int ends[2], got[4] = {-1, -1, -1, -1};
    size_t count = 42;
    char packet[16], byte = 'y';

    assert_int_equal(pipe(ends), 0);
    assert_int_equal(socket_send_fds(pair->client, "two", 3, ends, 2), 3);
    assert_int_equal(socket_send_fds(pair->client, "none", 4, NULL, 0), 4);
    assert_int_equal(socket_receive_fds(pair->server, packet, sizeof(packet), got, 4, &count), 3);
    assert_memory_equal(packet, "two", 3);
    assert_int_equal(count, 2);
    assert_true((fcntl(got[0], F_GETFD) & FD_CLOEXEC) != 0);
    assert_int_equal(write(got[1], &byte, 1), 1);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(socket_receive_fds(pair->server, packet, sizeof(packet), got + 2, 2, &count), 4);
    assert_int_equal(count, 0);
    for (int i = 0; i < 2; i++) {
        (void)close(ends[i]);
        (void)socket_close(got[i]);
    }
}

static void nothing_to_receive_is_eagain_and_the_end_is_zero(void **state) {
    struct pair *pair = *state;
    size_t count = 42;
    char packet[16];

    assert_int_equal(socket_receive_fds(pair->server, packet, sizeof(packet), NULL, 0, &count), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(count, 42);
    pair->client = socket_close(pair->client);
    assert_int_equal(socket_receive_fds(pair->server, packet, sizeof(packet), NULL, 0, &count), 0);
    assert_int_equal(count, 0);
}

static int lowest_free(void) {
    int fd = dup(STDERR_FILENO);

    (void)close(fd);
    return fd;
}

static void more_descriptors_than_wanted_are_all_closed(void **state) {
    struct pair *pair = *state;
    int sent[4] = {0, 0, 0, 0}, got[2] = {-1, -1}, free_before = lowest_free();
    size_t count = 42;
    char packet[16];

    assert_int_equal(socket_send_fds(pair->client, "four", 4, sent, 4), 4);
    assert_int_equal(socket_receive_fds(pair->server, packet, sizeof(packet), got, 2, &count), -1);
    assert_int_equal(errno, EPROTO);
    assert_int_equal(count, 42);
    assert_int_equal(got[0], -1);
    assert_int_equal(lowest_free(), free_before);
}

static void a_truncated_packet_is_refused_with_its_descriptors(void **state) {
    struct pair *pair = *state;
    int sent[1] = {0}, got[1] = {-1}, free_before = lowest_free();
    size_t count = 42;
    char packet[4];

    assert_int_equal(socket_send_fds(pair->client, "too long", 8, sent, 1), 8);
    assert_int_equal(socket_receive_fds(pair->server, packet, sizeof(packet), got, 1, &count), -1);
    assert_int_equal(errno, EPROTO);
    assert_int_equal(lowest_free(), free_before);
}

static void empty_packets_and_too_many_descriptors_are_not_sent(void **state) {
    struct pair *pair = *state;
    int sent[5] = {0, 0, 0, 0, 0};

    assert_int_equal(socket_send_fds(pair->client, "", 0, NULL, 0), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(socket_send_fds(pair->client, "five", 4, sent, 5), -1);
    assert_int_equal(errno, EINVAL);
}

static void the_kernel_names_the_user_at_the_other_end(void **state) {
    struct pair *pair = *state;
    uint32_t user = UINT32_MAX;

    assert_int_equal(socket_peer_user(pair->server, &user), 0);
    assert_int_equal(user, getuid());
    assert_int_equal(socket_peer_user(pair->client, &user), 0);
    assert_int_equal(user, getuid());
    assert_int_equal(socket_peer_user(-1, &user), -1);
}

static void unix_names_are_taken_once_refused_when_absent_and_bounded(void **state) {
    char name[109];
    int listener;

    (void)state;
    listener = socket_unix_listen(unix_name(), 4);
    assert_true(listener >= 0);
    assert_marked(listener);
    assert_int_equal(socket_unix_listen(unix_name(), 4), -1);
    assert_int_equal(errno, EADDRINUSE);
    (void)socket_close(listener);
    assert_int_equal(socket_unix_connect(unix_name()), -1);
    assert_int_equal(errno, ECONNREFUSED);
    memset(name, 'x', sizeof(name));
    name[108] = '\0';
    assert_int_equal(socket_unix_connect(name), -1);
    assert_int_equal(errno, ENAMETOOLONG);
    assert_int_equal(socket_unix_listen("", 4), -1);
    assert_int_equal(errno, EINVAL);
}

static void connecting_to_a_full_unix_listener_does_not_wait(void **state) {
    int listener = socket_unix_listen(unix_name(), 0);
    int clients[8];
    size_t count = 0;

    (void)state;
    assert_true(listener >= 0);
    while (count < 8 && (clients[count] = socket_unix_connect(unix_name())) >= 0)
        count++;
    assert_true(count < 8);
    assert_int_equal(errno, EAGAIN);
    while (count > 0)
        (void)socket_close(clients[--count]);
    (void)socket_close(listener);
}

static void a_child_has_none_of_the_descriptors(void **state) {
    struct pair *pair = *state;
    int sent[1] = {0}, got[1] = {-1}, status = 0;
    size_t count = 0;
    char packet[4];
    pid_t child;

    assert_int_equal(socket_send_fds(pair->client, "one", 3, sent, 1), 3);
    assert_int_equal(socket_receive_fds(pair->server, packet, sizeof(packet), got, 1, &count), 3);
    child = fork();
    if (child == 0)
        _exit(fcntl(pair->listener, F_GETFD) != -1 || fcntl(pair->client, F_GETFD) != -1 ||
              fcntl(pair->server, F_GETFD) != -1 || fcntl(got[0], F_GETFD) != -1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(fcntl(pair->listener, F_GETFD) != -1);
    (void)socket_close(got[0]);
}

#define WITH_PAIR(test) cmocka_unit_test_setup_teardown(test, open_pair, close_pair)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_talk_over_ipv4),
        cmocka_unit_test(ends_talk_over_ipv6),
        cmocka_unit_test(a_listener_on_the_ipv6_wildcard_takes_both_families),
        cmocka_unit_test(a_taken_port_is_refused_with_address_and_errno),
        cmocka_unit_test(nobody_at_the_address_is_a_refusal),
        WITH_PAIR(descriptors_arrive_with_their_packet_and_close_on_exec),
        WITH_PAIR(nothing_to_receive_is_eagain_and_the_end_is_zero),
        WITH_PAIR(more_descriptors_than_wanted_are_all_closed),
        WITH_PAIR(a_truncated_packet_is_refused_with_its_descriptors),
        WITH_PAIR(empty_packets_and_too_many_descriptors_are_not_sent),
        WITH_PAIR(the_kernel_names_the_user_at_the_other_end),
        WITH_PAIR(a_child_has_none_of_the_descriptors),
        cmocka_unit_test(unix_names_are_taken_once_refused_when_absent_and_bounded),
        cmocka_unit_test(connecting_to_a_full_unix_listener_does_not_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* tests/bench/raw.c - blocking sockets over loopback, both ends. */
#include "raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A connection carries items [skip, skip + items) of each call, or with one item the bytes from `skip` on. */
struct order {
    struct work work; /* its items and size are the connection's share */
    uint64_t skip;    /* bytes of each call before the share */
    uint64_t step;    /* bytes of a whole call */
    bool spinning;
};

struct served {
    int fd;
    unsigned char *memory;
};

static void send_all(int fd, const void *bytes, uint64_t length) {
    const unsigned char *at = bytes;

    while (length > 0) {
        ssize_t sent = send(fd, at, length, MSG_NOSIGNAL);

        CHECK_SYSTEM(sent > 0);
        at += sent;
        length -= (uint64_t)sent;
    }
}

/* False at the end of the stream. */
static int receive_all(int fd, void *bytes, uint64_t length, bool spinning) {
    unsigned char *at = bytes;

    while (length > 0) {
        ssize_t got = recv(fd, at, length, spinning ? MSG_DONTWAIT : 0);

        if (got < 0 && spinning && errno == EAGAIN)
            continue;
        if (got <= 0)
            return 0;
        at += got;
        length -= (uint64_t)got;
    }
    return 1;
}

static uint64_t order_offset(const struct order *order, uint64_t call) {
    return order->work.base + (order->work.first + call * order->step) % order->work.span + order->skip;
}

/* ---- The server's end ---- */

static int serve_call(const struct served *served, const struct order *order, uint64_t call) {
    unsigned char *at = served->memory + order_offset(order, call);
    unsigned char byte = 1;
    int good = 1;

    if (order->work.opcode == MC_READ)
        good = receive_all(served->fd, &byte, 1, order->spinning);
    for (uint32_t i = 0; i < order->work.items && good; i++, at += order->work.size)
        if (order->work.opcode == MC_READ)
            send_all(served->fd, at, order->work.size);
        else
            good = receive_all(served->fd, at, order->work.size, order->spinning);
    if (good && order->work.opcode == MC_WRITE)
        send_all(served->fd, &byte, 1);
    return good;
}

static void *serve_connection(void *argument) {
    struct served *served = argument;
    struct order order;
    unsigned char ready = 1;
    int good = 1;

    while (good && receive_all(served->fd, &order, sizeof(order), false)) {
        send_all(served->fd, &ready, 1);
        for (uint64_t i = 0; i < order.work.calls && good; i++)
            good = serve_call(served, &order, i);
    }
    close(served->fd);
    free(served);
    return NULL;
}

static int set_control(int fd, const char *name) {
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name));
}

static void tune(int fd) {
    int one = 1;

    CHECK_SYSTEM(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0);
    /* Where the host's default is BBR, it paces what needs no pacing here, and halves it at worst; the limit is without it. Reno is
     * what any user may have. */
    if (set_control(fd, "cubic") != 0)
        (void)set_control(fd, "reno");
}

static void *accept_connections(void *argument) {
    struct served *listener = argument;

    for (;;) {
        struct served *served = malloc(sizeof(*served));
        pthread_t thread;

        CHECK_SYSTEM(served != NULL);
        served->memory = listener->memory;
        served->fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
        CHECK_SYSTEM(served->fd >= 0);
        tune(served->fd);
        CHECK_SYSTEM(pthread_create(&thread, NULL, serve_connection, served) == 0);
        CHECK_SYSTEM(pthread_detach(thread) == 0);
    }
}

uint16_t raw_serve(unsigned char *memory) {
    static struct served listener;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    pthread_t thread;

    listener.memory = memory;
    listener.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_SYSTEM(listener.fd >= 0 && bind(listener.fd, (struct sockaddr *)&address, length) == 0 &&
                 listen(listener.fd, 16) == 0 && getsockname(listener.fd, (struct sockaddr *)&address, &length) == 0);
    CHECK_SYSTEM(pthread_create(&thread, NULL, accept_connections, &listener) == 0);
    CHECK_SYSTEM(pthread_detach(thread) == 0);
    return ntohs(address.sin_port);
}

/* ---- The client's end ---- */

void raw_connect(struct raw_client *client, uint16_t port, unsigned connections, unsigned char *memory) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};

    *client = (struct raw_client){.connections = connections, .memory = memory};
    for (unsigned i = 0; i < connections; i++) {
        client->fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK_SYSTEM(client->fds[i] >= 0 && connect(client->fds[i], (struct sockaddr *)&address, sizeof(address)) == 0);
        tune(client->fds[i]);
        CHECK_SYSTEM(pthread_mutex_init(&client->locks[i], NULL) == 0);
    }
}

/* One thread spreads each call over all connections; more threads use one connection each, in turns. */
static struct order share_of(const struct raw_client *client, const struct work *work, unsigned connection) {
    struct order order = {.work = *work, .step = work_bytes(work), .spinning = client->spinning};

    if (work->threads > 1) {
        order.work.calls = work->calls * (work->threads / client->connections);
        order.work.base = connection * (work->span / client->connections);
        order.work.span = work->span / client->connections;
        return order;
    }
    if (work->items > 1)
        order.work.items = work->items / client->connections;
    else
        order.work.size = work->size / client->connections;
    order.skip = connection * work_bytes(&order.work);
    return order;
}

void raw_prepare(const struct subject *subject, const struct work *work) {
    const struct raw_client *client = subject->context;

    for (unsigned i = 0; i < client->connections; i++) {
        struct order order = share_of(client, work, i);
        unsigned char ready;

        send_all(client->fds[i], &order, sizeof(order));
        CHECK_SYSTEM(receive_all(client->fds[i], &ready, 1, false));
    }
}

/* Sends the share's bytes, or the request for them. */
static void ask(const struct raw_client *client, unsigned connection, const struct order *order, uint64_t call) {
    const unsigned char *at = client->memory + order_offset(order, call);
    unsigned char request = 1;

    if (order->work.opcode == MC_READ)
        send_all(client->fds[connection], &request, 1);
    for (uint32_t i = 0; i < order->work.items && order->work.opcode == MC_WRITE; i++, at += order->work.size)
        send_all(client->fds[connection], at, order->work.size);
}

/* Receives the acknowledgement, or the bytes asked for. */
static void take(const struct raw_client *client, unsigned connection, const struct order *order, uint64_t call) {
    unsigned char *at = client->memory + order_offset(order, call);
    unsigned char acknowledgement;

    if (order->work.opcode == MC_WRITE)
        CHECK_SYSTEM(receive_all(client->fds[connection], &acknowledgement, 1, client->spinning));
    for (uint32_t i = 0; i < order->work.items && order->work.opcode == MC_READ; i++, at += order->work.size)
        CHECK_SYSTEM(receive_all(client->fds[connection], at, order->work.size, client->spinning));
}

static void call_alone(const struct raw_client *client, const struct work *work, uint64_t index) {
    struct order orders[LANES_MAX];

    for (unsigned i = 0; i < client->connections; i++) {
        orders[i] = share_of(client, work, i);
        ask(client, i, &orders[i], index);
    }
    for (unsigned i = 0; i < client->connections; i++)
        take(client, i, &orders[i], index);
}

/* Thread number k uses connection k modulo their number. */
static void call_in_turn(struct raw_client *client, const struct work *work, uint64_t index) {
    struct order order = {.work = *work, .step = work_bytes(work)};
    unsigned connection = (unsigned)(work->base / work->span) % client->connections;

    pthread_mutex_lock(&client->locks[connection]);
    ask(client, connection, &order, index);
    take(client, connection, &order, index);
    pthread_mutex_unlock(&client->locks[connection]);
}

void raw_call(const struct subject *subject, const struct work *work, uint64_t index) {
    struct raw_client *client = subject->context;

    if (work->threads > 1)
        call_in_turn(client, work, index);
    else
        call_alone(client, work, index);
}

/* proxy.c - see proxy.h. One thread that never blocks but in poll; a stalled direction is one that isn't polled. `lock`
 * guards what the main thread tells; `round` grows when the thread has looked at it. */
#include "proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LINKS 32
#define BUFFER 65536
#define SPLIT_PAUSE 200000u /* so long that what was sent before arrives alone */

/* One direction of a connection, and what has been read of it but not yet written. */
struct flow {
    uint8_t buffer[BUFFER];
    size_t begin, end;
};

struct link {
    int fds[2];           /* client, server */
    struct flow flows[2]; /* from the client, from the server */
};

/* What is to happen at a byte of a direction, counted over all connections. */
struct trick {
    enum { NONE, FLIP, CUT, SPLIT } kind;
    uint64_t at;
    uint8_t mask;
};

/* What the main thread tells. */
struct orders {
    unsigned mode;
    uint64_t delay;
    size_t piece;
    bool cut, stop;
    bool tricky[2];
    struct trick tricks[2]; /* with `at` counted from when they are taken */
};

struct proxy {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t looked;
    uint64_t told, round;
    struct orders orders;
    int wake, listener;
    uint16_t upstream;
    struct link *links[LINKS];
    size_t count;
    char address[32];
    _Atomic uint64_t forwarded[2];
    struct trick tricks[2]; /* the thread's */
    uint64_t delay;
    size_t piece;
};

static void pause_for(uint64_t nanoseconds) {
    struct timespec time = {(time_t)(nanoseconds / 1000000000u), (long)(nanoseconds % 1000000000u)};

    if (nanoseconds > 0)
        nanosleep(&time, NULL);
}

static int dial(uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        close(fd);
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

static void drop(struct proxy *proxy, size_t index) {
    close(proxy->links[index]->fds[0]);
    close(proxy->links[index]->fds[1]);
    free(proxy->links[index]);
    proxy->links[index] = proxy->links[--proxy->count];
}

static void welcome(struct proxy *proxy) {
    int client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC), one = 1;
    int server = client >= 0 && proxy->count < LINKS ? dial(proxy->upstream) : -1;
    struct link *link = server >= 0 ? calloc(1, sizeof(*link)) : NULL;

    if (link == NULL) {
        if (client >= 0)
            close(client);
        if (server >= 0)
            close(server);
        return;
    }
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    link->fds[0] = client;
    link->fds[1] = server;
    proxy->links[proxy->count++] = link;
}

/* Is the connection to be cut where it has got to? */
static bool cut_now(struct proxy *proxy, int direction) {
    struct trick *trick = &proxy->tricks[direction];

    if (trick->kind != CUT || trick->at != atomic_load(&proxy->forwarded[direction]))
        return false;
    trick->kind = NONE;
    return true;
}

/* How much of what was read is sent next: up to the byte that the trick is about, which is then played. */
static size_t play(struct proxy *proxy, int direction, struct flow *flow) {
    struct trick *trick = &proxy->tricks[direction];
    uint64_t before = trick->at - atomic_load(&proxy->forwarded[direction]);
    size_t length = flow->end - flow->begin;

    pause_for(proxy->delay);
    if (trick->kind != NONE && before == 0) {
        if (trick->kind == FLIP)
            flow->buffer[flow->begin] ^= trick->mask;
        if (trick->kind == SPLIT)
            pause_for(SPLIT_PAUSE);
        trick->kind = NONE;
    } else if (trick->kind != NONE && before < length) {
        length = (size_t)before;
    }
    return proxy->piece > 0 && length > proxy->piece ? proxy->piece : length;
}

/* Moves what can be moved in one direction. False at the end of the connection. */
static bool forward(struct proxy *proxy, struct link *link, int direction) {
    struct flow *flow = &link->flows[direction];
    size_t length;
    ssize_t moved;

    if (flow->begin == flow->end) {
        moved = recv(link->fds[direction], flow->buffer, BUFFER, MSG_DONTWAIT);
        if (moved <= 0)
            return moved < 0 && errno == EAGAIN;
        flow->begin = 0;
        flow->end = (size_t)moved;
    }
    if (cut_now(proxy, direction))
        return false;
    length = play(proxy, direction, flow);
    moved = send(link->fds[1 - direction], flow->buffer + flow->begin, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (moved < 0)
        return errno == EAGAIN;
    flow->begin += (size_t)moved;
    atomic_fetch_add(&proxy->forwarded[direction], (uint64_t)moved);
    return !cut_now(proxy, direction);
}

/* What to wait for in one direction. */
static struct pollfd wanted(const struct link *link, int direction, bool stalled) {
    const struct flow *flow = &link->flows[direction];

    if (stalled)
        return (struct pollfd){.fd = -1};
    if (flow->begin < flow->end)
        return (struct pollfd){.fd = link->fds[1 - direction], .events = POLLOUT};
    return (struct pollfd){.fd = link->fds[direction], .events = POLLIN};
}

/* Does what was told; false when it is to stop. */
static bool look(struct proxy *proxy, unsigned *ret_mode) {
    struct orders *orders = &proxy->orders;
    bool stop;

    pthread_mutex_lock(&proxy->lock);
    *ret_mode = orders->mode;
    proxy->delay = orders->delay;
    proxy->piece = orders->piece;
    stop = orders->stop;
    while ((orders->cut || stop) && proxy->count > 0)
        drop(proxy, 0);
    orders->cut = false;
    for (int i = 0; i < 2; i++) {
        if (!orders->tricky[i])
            continue;
        orders->tricky[i] = false;
        proxy->tricks[i] = orders->tricks[i];
        proxy->tricks[i].at += atomic_load(&proxy->forwarded[i]);
    }
    proxy->round = proxy->told;
    pthread_cond_broadcast(&proxy->looked);
    pthread_mutex_unlock(&proxy->lock);
    return !stop;
}

static void *run(void *context) {
    struct proxy *proxy = context;
    unsigned mode;

    while (look(proxy, &mode)) {
        struct pollfd polled[2 + 2 * LINKS] = {{.fd = proxy->wake, .events = POLLIN},
                                               {.fd = proxy->listener, .events = POLLIN}};
        size_t count = proxy->count;
        uint64_t value;

        for (size_t i = 0; i < 2 * count; i++)
            polled[2 + i] = wanted(proxy->links[i / 2], (int)(i % 2),
                                   (mode & (i % 2 == 0 ? PROXY_STALLS_REQUESTS : PROXY_STALLS_REPLIES)) != 0);
        if (poll(polled, 2 + 2 * count, -1) <= 0)
            continue;
        if (polled[0].revents != 0 && read(proxy->wake, &value, sizeof(value)) > 0)
            continue;
        for (size_t i = count; i > 0; i--) {
            const struct pollfd *both = &polled[2 + 2 * (i - 1)];

            if ((both[0].revents != 0 && !forward(proxy, proxy->links[i - 1], 0)) ||
                (both[1].revents != 0 && !forward(proxy, proxy->links[i - 1], 1)))
                drop(proxy, i - 1);
        }
        if (polled[1].revents != 0)
            welcome(proxy);
    }
    return NULL;
}

struct proxy *proxy_start(const char *address) {
    struct proxy *proxy = calloc(1, sizeof(*proxy));
    struct sockaddr_in bound = {.sin_family = AF_INET};
    socklen_t length = sizeof(bound);

    if (proxy == NULL)
        abort();
    pthread_mutex_init(&proxy->lock, NULL);
    pthread_cond_init(&proxy->looked, NULL);
    bound.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    proxy->upstream = (uint16_t)atoi(strrchr(address, ':') + 1);
    proxy->wake = eventfd(0, EFD_CLOEXEC);
    proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(proxy->listener, (struct sockaddr *)&bound, sizeof(bound)) != 0 || listen(proxy->listener, 16) != 0 ||
        getsockname(proxy->listener, (struct sockaddr *)&bound, &length) != 0)
        abort();
    snprintf(proxy->address, sizeof(proxy->address), "127.0.0.1:%u", ntohs(bound.sin_port));
    if (pthread_create(&proxy->thread, NULL, run, proxy) != 0)
        abort();
    return proxy;
}

const char *proxy_address(const struct proxy *proxy) {
    return proxy->address;
}

/* Between these two, the orders are the caller's to change; on return from the second the thread does as told. */
static struct orders *order(struct proxy *proxy) {
    pthread_mutex_lock(&proxy->lock);
    return &proxy->orders;
}

static void ordered(struct proxy *proxy) {
    uint64_t one = 1, mine = ++proxy->told;

    if (write(proxy->wake, &one, sizeof(one)) < 0)
        abort();
    while (proxy->round < mine)
        pthread_cond_wait(&proxy->looked, &proxy->lock);
    pthread_mutex_unlock(&proxy->lock);
}

void proxy_set(struct proxy *proxy, unsigned mode) {
    order(proxy)->mode = mode;
    ordered(proxy);
}

void proxy_cut(struct proxy *proxy) {
    struct orders *orders = order(proxy);

    orders->mode = PROXY_GOES;
    orders->cut = true;
    ordered(proxy);
}

static void play_later(struct proxy *proxy, int direction, struct trick trick) {
    struct orders *orders = order(proxy);

    orders->tricky[direction] = true;
    orders->tricks[direction] = trick;
    ordered(proxy);
}

void proxy_flip(struct proxy *proxy, int direction, uint64_t after, uint8_t mask) {
    play_later(proxy, direction, (struct trick){FLIP, after, mask});
}

void proxy_cut_at(struct proxy *proxy, int direction, uint64_t after) {
    play_later(proxy, direction, (struct trick){CUT, after, 0});
}

void proxy_split(struct proxy *proxy, int direction, uint64_t after) {
    play_later(proxy, direction, (struct trick){SPLIT, after, 0});
}

void proxy_calm(struct proxy *proxy) {
    struct orders *orders = order(proxy);

    memset(orders->tricks, 0, sizeof(orders->tricks));
    orders->tricky[0] = orders->tricky[1] = true;
    ordered(proxy);
}

void proxy_delay(struct proxy *proxy, uint64_t nanoseconds) {
    order(proxy)->delay = nanoseconds;
    ordered(proxy);
}

void proxy_piece(struct proxy *proxy, size_t bytes) {
    order(proxy)->piece = bytes;
    ordered(proxy);
}

uint64_t proxy_requested(const struct proxy *proxy) {
    return atomic_load(&proxy->forwarded[0]);
}

uint64_t proxy_replied(const struct proxy *proxy) {
    return atomic_load(&proxy->forwarded[1]);
}

struct proxy *proxy_stop(struct proxy *proxy) {
    order(proxy)->stop = true;
    ordered(proxy);
    pthread_join(proxy->thread, NULL);
    close(proxy->wake);
    close(proxy->listener);
    pthread_cond_destroy(&proxy->looked);
    pthread_mutex_destroy(&proxy->lock);
    free(proxy);
    return NULL;
}

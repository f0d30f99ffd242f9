/* meter.c - see meter.h. A thread accepts; each connection has one thread for each direction. `lock` guards the
 * connections and `held`; counters are atomic. */
#include "meter.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS 32
#define CHUNK 65536
#define PREFACE (96u + 64u) /* HELLO and PROOF, what a client sends before frames */
#define HEADER 64u

struct pump {
    struct meter *meter;
    pthread_t thread;
    int from, to;
    bool replies;
};

struct meter {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool held, closing;
    int listener;
    struct sockaddr_in bound, upstream;
    char address[32];
    struct pump pumps[2 * CONNECTIONS];
    size_t count;
    _Atomic uint64_t counts[METER_TYPES];
};

/* Where in the stream of requests a connection is. */
struct parser {
    uint64_t skip; /* bytes that are no header */
    uint8_t header[HEADER];
    size_t filled;
};

static uint32_t number(const uint8_t *at, size_t bytes) {
    uint32_t value = 0;

    for (size_t i = bytes; i > 0; i--)
        value = value << 8 | at[i - 1];
    return value;
}

static void parse(struct meter *meter, struct parser *parser, const uint8_t *at, size_t length) {
    while (length > 0) {
        size_t step = parser->skip > 0 ? (size_t)parser->skip : HEADER - parser->filled;

        if (step > length)
            step = length;
        if (parser->skip > 0) {
            parser->skip -= step;
        } else {
            memcpy(parser->header + parser->filled, at, step);
            parser->filled += step;
        }
        at += step;
        length -= step;
        if (parser->filled == HEADER) {
            uint32_t type = number(parser->header, 2);

            if (type < METER_TYPES)
                atomic_fetch_add(&meter->counts[type], 1);
            parser->skip = number(parser->header + 52, 4);
            parser->filled = 0;
        }
    }
}

static bool send_all(int fd, const uint8_t *at, size_t length) {
    while (length > 0) {
        ssize_t sent = send(fd, at, length, MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        at += sent;
        length -= (size_t)sent;
    }
    return true;
}

static void await_release(struct meter *meter) {
    pthread_mutex_lock(&meter->lock);
    while (meter->held && !meter->closing)
        pthread_cond_wait(&meter->changed, &meter->lock);
    pthread_mutex_unlock(&meter->lock);
}

static void *pump(void *context) {
    struct pump *self = context;
    struct parser parser = {.skip = PREFACE};
    uint8_t *buffer = malloc(CHUNK);
    ssize_t got;

    while ((got = recv(self->from, buffer, CHUNK, 0)) > 0) {
        if (self->replies)
            await_release(self->meter);
        else
            parse(self->meter, &parser, buffer, (size_t)got);
        if (!send_all(self->to, buffer, (size_t)got))
            break;
    }
    shutdown(self->from, SHUT_RDWR);
    shutdown(self->to, SHUT_RDWR);
    free(buffer);
    return NULL;
}

static void add_pump(struct meter *meter, int from, int to, bool replies) {
    struct pump *self = &meter->pumps[meter->count++];

    *self = (struct pump){.meter = meter, .from = from, .to = to, .replies = replies};
    if (pthread_create(&self->thread, NULL, pump, self) != 0)
        abort();
}

static void welcome(struct meter *meter, int client) {
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

    pthread_mutex_lock(&meter->lock);
    if (meter->closing || meter->count == 2 * CONNECTIONS ||
        connect(server, (struct sockaddr *)&meter->upstream, sizeof(meter->upstream)) != 0) {
        close(client);
        close(server);
    } else {
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        add_pump(meter, client, server, false);
        add_pump(meter, server, client, true);
    }
    pthread_mutex_unlock(&meter->lock);
}

static void *serve(void *context) {
    struct meter *meter = context;
    int client;

    while ((client = accept4(meter->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        welcome(meter, client);
    return NULL;
}

struct meter *meter_open(const char *host) {
    struct meter *meter = calloc(1, sizeof(*meter));
    socklen_t length = sizeof(meter->bound);

    if (meter == NULL)
        abort();
    pthread_mutex_init(&meter->lock, NULL);
    pthread_cond_init(&meter->changed, NULL);
    meter->bound.sin_family = AF_INET;
    meter->bound.sin_addr.s_addr = inet_addr(host);
    meter->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(meter->listener, (struct sockaddr *)&meter->bound, length) != 0 || listen(meter->listener, 16) != 0 ||
        getsockname(meter->listener, (struct sockaddr *)&meter->bound, &length) != 0)
        abort();
    snprintf(meter->address, sizeof(meter->address), "%s:%u", host, ntohs(meter->bound.sin_port));
    return meter;
}

uint16_t meter_port(const struct meter *meter) {
    return ntohs(meter->bound.sin_port);
}

const char *meter_address(const struct meter *meter) {
    return meter->address;
}

void meter_serve(struct meter *meter, const char *upstream_host, uint16_t upstream_port) {
    meter->upstream = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(upstream_port)};
    meter->upstream.sin_addr.s_addr = inet_addr(upstream_host);
    if (pthread_create(&meter->thread, NULL, serve, meter) != 0)
        abort();
}

struct meter *meter_close(struct meter *meter) {
    pthread_mutex_lock(&meter->lock);
    meter->closing = true;
    pthread_cond_broadcast(&meter->changed);
    pthread_mutex_unlock(&meter->lock);
    shutdown(meter->listener, SHUT_RDWR);
    pthread_join(meter->thread, NULL);
    for (size_t i = 0; i < meter->count; i++)
        shutdown(meter->pumps[i].from, SHUT_RDWR);
    for (size_t i = 0; i < meter->count; i++)
        pthread_join(meter->pumps[i].thread, NULL);
    for (size_t i = 0; i < meter->count; i++)
        close(meter->pumps[i].from);
    close(meter->listener);
    pthread_cond_destroy(&meter->changed);
    pthread_mutex_destroy(&meter->lock);
    free(meter);
    return NULL;
}

uint64_t meter_count(const struct meter *meter, unsigned type) {
    return atomic_load(&meter->counts[type]);
}

static void set_held(struct meter *meter, bool held) {
    pthread_mutex_lock(&meter->lock);
    meter->held = held;
    pthread_cond_broadcast(&meter->changed);
    pthread_mutex_unlock(&meter->lock);
}

void meter_hold(struct meter *meter) {
    set_held(meter, true);
}

void meter_let_go(struct meter *meter) {
    set_held(meter, false);
}

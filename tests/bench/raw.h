/* tests/bench/raw.h - what blocking sockets can do: the limit that the engine's TCP path is compared with.
 *
 * The protocol is the least that is honest: a write is n bytes and a one-byte acknowledgement back, a read is a one-byte request and
 * n bytes back; buffers go to send() and recv() as they are. Before a round an order says what comes, so that nothing
 * else travels with the data. With two connections each carries half of a call. Many items of a call are sent one by one, with
 * one acknowledgement behind them. A spinning client and its server never sleep: they ask again and again whether
 * something has come.
 */
#ifndef MC_BENCH_RAW_H
#define MC_BENCH_RAW_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "work.h"

/* The client's end: connections that are used together. Threads take turns on a connection. */
struct raw_client {
    unsigned connections;
    bool spinning;
    int fds[LANES_MAX];
    pthread_mutex_t locks[LANES_MAX];
    unsigned char *memory;
};

/* Listens on a free port of the loopback interface, and serves each connection in a thread of its own, from and to
 * `memory`, until the process ends. */
uint16_t raw_serve(unsigned char *memory);

void raw_connect(struct raw_client *client, uint16_t port, unsigned connections, unsigned char *memory);

void raw_prepare(const struct subject *subject, const struct work *work);
void raw_call(const struct subject *subject, const struct work *work, uint64_t index);

#endif

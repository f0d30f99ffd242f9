/* proxy.h - a TCP proxy in a thread, which forwards until it is told to stall or to cut: a peer that does not answer. */
#ifndef MC_TESTS_PROXY_H
#define MC_TESTS_PROXY_H

#include <stdint.h>

#define PROXY_GOES 0u
#define PROXY_STALLS_REQUESTS 1u /* nothing more reaches the server */
#define PROXY_STALLS_REPLIES 2u  /* nothing more comes back */

struct proxy;

/* Listens on a free loopback port and connects each client to `address` (127.0.0.1:port). */
struct proxy *proxy_start(const char *address);
struct proxy *proxy_stop(struct proxy *proxy);

/* Where to connect; lives as long as the proxy. */
const char *proxy_address(const struct proxy *proxy);

/* On return the thread does as told. */
void proxy_set(struct proxy *proxy, unsigned mode);

/* Closes all connections. */
void proxy_cut(struct proxy *proxy);

/* Bytes that have gone to the server, and back. */
uint64_t proxy_requested(const struct proxy *proxy);
uint64_t proxy_replied(const struct proxy *proxy);

#endif

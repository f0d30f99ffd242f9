/* proxy.h - a TCP proxy in a thread, which forwards until it is told to stall, to cut, to split, to delay or to flip bits:
 * a peer that does not answer, and a network that damages what it carries. */
#ifndef MC_TESTS_PROXY_H
#define MC_TESTS_PROXY_H

#include <stddef.h>
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

#define PROXY_REQUESTS 0 /* the directions */
#define PROXY_REPLIES 1

/* In one direction, once, at the byte before which `after` others pass from now on, over all connections: flips the bits
 * of the mask; closes the connection in front of it; or pauses there, so that what comes before it arrives alone. A later
 * one in that direction takes the place of one that hasn't happened yet; proxy_calm takes both back. */
void proxy_flip(struct proxy *proxy, int direction, uint64_t after, uint8_t mask);
void proxy_cut_at(struct proxy *proxy, int direction, uint64_t after);
void proxy_split(struct proxy *proxy, int direction, uint64_t after);
void proxy_calm(struct proxy *proxy);

/* Waits so long before each piece that it forwards; 0: not at all. */
void proxy_delay(struct proxy *proxy, uint64_t nanoseconds);

/* Forwards at most so many bytes at once; 0: any number. */
void proxy_piece(struct proxy *proxy, size_t bytes);

/* Bytes that have gone to the server, and back. */
uint64_t proxy_requested(const struct proxy *proxy);
uint64_t proxy_replied(const struct proxy *proxy);

#endif

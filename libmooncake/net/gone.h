/* net/gone.h - proof that an engine incarnation no longer exists. */
#ifndef MC_NET_GONE_H
#define MC_NET_GONE_H

#include <stdbool.h>
#include <stdint.h>

#include "net/handshake.h"

/* True on proof that the incarnation listens no more at "host:port", where it did: whoever has that address refuses
 * connections, or it is an engine of another incarnation. A name must be proved at all its addresses. False for all
 * else: it answers; nobody does by `deadline`; it can't be reached, or understood, or has another cluster key. Waits
 * until `deadline` (and for the resolver); any thread that may.
 *
 * It never becomes a client there, so that asking causes no news of clients. */
bool gone_prove(const struct identity *self, const char *address, const uint8_t incarnation[16], uint64_t deadline);

#endif

/* compat/address.h - the addresses that programs of the reference give: a host, with or without a port. */
#ifndef MC_COMPAT_ADDRESS_H
#define MC_COMPAT_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include <mooncake/types.h>

#define ADDRESS_HOST_MAX 256u
#define ADDRESS_PORT_MAX 65535u

/* Takes "host", "host:port", "[ipv6]" or "[ipv6]:port" apart; of more than one colon without brackets all is the host.
 * False if it is none of these. *port is untouched where there is none. */
bool address_take_apart(const char *text, char host[ADDRESS_HOST_MAX], uint64_t *port);

/* "host:port" in the words of the library. */
void address_join(const char *host, uint64_t port, char text[MC_ADDRESS_MAX]);

#endif

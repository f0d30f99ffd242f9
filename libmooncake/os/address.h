/* os/address.h - network addresses: strict parsing, names, and back to text. */
#ifndef MC_OS_ADDRESS_H
#define MC_OS_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <mooncake/error.h>

/* The longest "host:port" with its NUL: a 253-byte name, brackets, a scope, a port. */
#define ADDRESS_TEXT_MAX MC_ADDRESS_MAX

struct address {
    struct sockaddr_storage storage;
    socklen_t length;
};

/* The parts of "host:port": host without brackets, with its %scope; `port` is -1 if there was none. */
struct address_text {
    char host[ADDRESS_TEXT_MAX];
    int32_t port;
};

/* Accepts "1.2.3.4", "1.2.3.4:5", "name", "name:5", "::1", "[::1]", "[::1]:5", "fe80::1%eth0", "[fe80::1%eth0]:5".
 * MC_ERR_ADDRESS with words for all else: empty parts, ports above 65535 or not plain decimal, "1.2.3.4:99999",
 * "a:b:c", bytes that no name has. Resolves nothing. */
int32_t address_parse(const char *text, struct address_text *ret_parts, struct mc_error *error);

/* Resolves host and port to at most `capacity` stream addresses, numeric ones without a look-up; stores how many in
 * *ret_count (at least 1). Blocks in the resolver. MC_ERR_NAME_NOT_FOUND with the name and the resolver's words. */
int32_t address_resolve(const char *host, uint16_t port, struct address *addresses, size_t capacity, size_t *ret_count,
                        struct mc_error *error);

/* "1.2.3.4:5" or "[::1]:5" of a socket address; always NUL-terminated. */
void address_format(const struct address *address, char text[ADDRESS_TEXT_MAX]);

/* "host:port", with brackets where the host has a colon. */
void address_join(const char *host, uint16_t port, char text[ADDRESS_TEXT_MAX]);

/* Is it "0.0.0.0" or "::", by which a listener means all of the host's addresses? */
bool address_is_any(const struct address *address);

/* The same of a host as text, however it is written ("0.0.0.0", "::", "::0", …): no peer can be reached there. */
bool address_text_is_any(const char *host);

uint16_t address_port(const struct address *address);

#endif

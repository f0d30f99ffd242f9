/* os/address.c - parses, resolves and prints network addresses.
 *
 * Owns nothing; any thread. address_resolve may block in the resolver.
 */
#include "os/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/status.h"

#define NAME_MAX_BYTES 253
#define LABEL_MAX_BYTES 63

static bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

static bool is_letter(char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

/* At most five digits, and at most 65535. */
static bool parse_port(const char *text, int32_t *ret_port) {
    uint64_t port;

    if (strlen(text) > 5 || !checked_decimal(text, &port) || port > UINT16_MAX)
        return false;
    *ret_port = (int32_t)port;
    return true;
}

/* Would a resolver take the label for a number, as the C library does with "127.1" and "0x7f000001"? */
static bool is_number(const char *label, size_t length) {
    bool hex = length >= 2 && label[0] == '0' && (label[1] == 'x' || label[1] == 'X');

    for (size_t i = hex ? 2 : 0; i < length; i++)
        if (!is_digit(label[i]) &&
            !(hex && ((label[i] >= 'a' && label[i] <= 'f') || (label[i] >= 'A' && label[i] <= 'F'))))
            return false;
    return true;
}

/* Labels of letters, digits, '-' and '_', which container names have; a dot at the end is fine. */
static bool is_name(const char *host) {
    size_t left = strlen(host);
    size_t length = 0;

    if (left > 0 && host[left - 1] == '.')
        left--;
    if (left == 0 || left > NAME_MAX_BYTES)
        return false;
    for (; left > 0; host += length + 1, left -= length + 1) {
        for (length = 0; length < left && host[length] != '.'; length++)
            if (!is_letter(host[length]) && !is_digit(host[length]) && host[length] != '-' && host[length] != '_')
                return false;
        if (length == 0 || length > LABEL_MAX_BYTES || host[0] == '-' || host[length - 1] == '-')
            return false;
        if (length == left)
            return !is_number(host, length);
    }
    return false; /* two dots at the end */
}

static bool is_ipv4(const char *host) {
    struct in_addr four;

    return inet_pton(AF_INET, host, &four) == 1;
}

/* Splits "address%scope"; the scope is NULL if there is none. False if it is no IPv6 address, or the scope is
 * malformed. */
static bool parse_ipv6(const char *host, struct in6_addr *ret_six, const char **ret_scope) {
    const char *percent = strchr(host, '%');
    size_t length = percent != NULL ? (size_t)(percent - host) : strlen(host);
    char bare[INET6_ADDRSTRLEN];

    if (length >= sizeof(bare))
        return false;
    memcpy(bare, host, length);
    bare[length] = '\0';
    if (inet_pton(AF_INET6, bare, ret_six) != 1)
        return false;
    *ret_scope = percent != NULL ? percent + 1 : NULL;
    if (percent == NULL)
        return true;
    length = strlen(percent + 1);
    if (length == 0 || length >= IF_NAMESIZE)
        return false;
    for (const char *byte = percent + 1; *byte != '\0'; byte++)
        if (*byte <= ' ' || *byte > '~' || strchr("/:%[]", *byte) != NULL)
            return false;
    return true;
}

/* What is wrong with the host and port, or NULL. `bracketed` hosts must be IPv6, others with a port must not. */
static const char *check(const char *host, bool bracketed, const char *port, int32_t *ret_port) {
    struct in6_addr six;
    const char *scope;

    if (bracketed || strchr(host, ':') != NULL) {
        if (!parse_ipv6(host, &six, &scope))
            return bracketed ? "no IPv6 address in the brackets" : "neither host:port nor an IPv6 address";
    } else if (*host == '\0') {
        return "the host is empty";
    } else if (!is_ipv4(host) && !is_name(host)) {
        return "the host is neither a name nor an IPv4 address";
    }
    *ret_port = -1;
    if (port != NULL && !parse_port(port, ret_port))
        return "the port must be a decimal number up to 65535";
    return NULL;
}

int32_t address_parse(const char *text, struct address_text *ret_parts, struct mc_error *error) {
    struct address_text parts;
    const char *colon, *port = NULL, *wrong = NULL;
    bool bracketed;
    char *end;

    if (text == NULL || strlen(text) >= sizeof(parts.host))
        return status_set(error, MC_ERR_ADDRESS, 0, text == NULL ? "no address" : "the address is too long");
    bracketed = text[0] == '[';
    memset(&parts, 0, sizeof(parts));
    memcpy(parts.host, text + bracketed, strlen(text + bracketed));
    if (bracketed) {
        end = strchr(parts.host, ']');
        if (end == NULL)
            wrong = "a bracket isn't closed";
        else if (end[1] != '\0' && end[1] != ':')
            wrong = "only a port may follow the bracket";
        else {
            port = end[1] == ':' ? text + 1 + (end + 2 - parts.host) : NULL;
            memset(end, 0, sizeof(parts.host) - (size_t)(end - parts.host));
        }
    } else {
        colon = strchr(text, ':');
        if (colon != NULL && strchr(colon + 1, ':') == NULL) {
            port = colon + 1;
            end = parts.host + (colon - text);
            memset(end, 0, sizeof(parts.host) - (size_t)(end - parts.host));
        }
    }
    if (wrong == NULL)
        wrong = check(parts.host, bracketed, port, &parts.port);
    if (wrong != NULL)
        return status_set(error, MC_ERR_ADDRESS, 0, "malformed address \"%.120s\": %s", text, wrong);
    *ret_parts = parts;
    return MC_OK;
}

/* The number of an interface by its name or number; 0 if there is none. */
static uint32_t scope_id(const char *scope) {
    uint32_t index = if_nametoindex(scope);
    uint64_t number;

    if (index != 0)
        return index;
    return checked_decimal(scope, &number) && number <= UINT32_MAX ? (uint32_t)number : 0;
}

static void set_ipv4(struct address *address, struct in_addr four, uint16_t port) {
    struct sockaddr_in *name = (struct sockaddr_in *)&address->storage;

    memset(address, 0, sizeof(*address));
    name->sin_family = AF_INET;
    name->sin_addr = four;
    name->sin_port = htons(port);
    address->length = sizeof(*name);
}

static void set_ipv6(struct address *address, const struct in6_addr *six, uint32_t scope, uint16_t port) {
    struct sockaddr_in6 *name = (struct sockaddr_in6 *)&address->storage;

    memset(address, 0, sizeof(*address));
    name->sin6_family = AF_INET6;
    name->sin6_addr = *six;
    name->sin6_scope_id = scope;
    name->sin6_port = htons(port);
    address->length = sizeof(*name);
}

static int32_t look_up(const char *host, uint16_t port, struct address *addresses, size_t capacity, size_t *ret_count,
                       struct mc_error *error) {
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    size_t count = 0;
    int failure = getaddrinfo(host, NULL, &hints, &found);

    if (failure == EAI_MEMORY)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "no memory to look \"%.120s\" up", host);
    if (failure != 0)
        return status_set(error, MC_ERR_NAME_NOT_FOUND, failure == EAI_SYSTEM ? errno : 0, "host \"%.120s\": %s", host,
                          gai_strerror(failure));
    for (const struct addrinfo *each = found; each != NULL && count < capacity; each = each->ai_next) {
        if (each->ai_family == AF_INET) {
            set_ipv4(&addresses[count++], ((const struct sockaddr_in *)(const void *)each->ai_addr)->sin_addr, port);
        } else if (each->ai_family == AF_INET6) {
            const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)each->ai_addr;

            set_ipv6(&addresses[count++], &six->sin6_addr, six->sin6_scope_id, port);
        }
    }
    freeaddrinfo(found);
    if (count == 0)
        return status_set(error, MC_ERR_NAME_NOT_FOUND, 0, "host \"%.120s\": no IPv4 or IPv6 address", host);
    *ret_count = count;
    return MC_OK;
}

int32_t address_resolve(const char *host, uint16_t port, struct address *addresses, size_t capacity, size_t *ret_count,
                        struct mc_error *error) {
    struct in6_addr six;
    struct in_addr four;
    const char *scope;
    uint32_t id = 0;

    if (capacity == 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "no room for an address");
    if (inet_pton(AF_INET, host, &four) == 1) {
        set_ipv4(&addresses[0], four, port);
    } else if (parse_ipv6(host, &six, &scope)) {
        if (scope != NULL && (id = scope_id(scope)) == 0)
            return status_set(error, MC_ERR_NAME_NOT_FOUND, 0, "host \"%.120s\": no such network interface", host);
        set_ipv6(&addresses[0], &six, id, port);
    } else {
        return look_up(host, port, addresses, capacity, ret_count, error);
    }
    *ret_count = 1;
    return MC_OK;
}

void address_join(const char *host, uint16_t port, char text[ADDRESS_TEXT_MAX]) {
    bool brackets = strchr(host, ':') != NULL;
    int room = ADDRESS_TEXT_MAX - 1 - (int)sizeof("[]:65535");

    (void)snprintf(text, ADDRESS_TEXT_MAX, "%s%.*s%s:%u", brackets ? "[" : "", room, host, brackets ? "]" : "",
                   (unsigned)port);
}

void address_format(const struct address *address, char text[ADDRESS_TEXT_MAX]) {
    char host[INET6_ADDRSTRLEN + 1 + IF_NAMESIZE] = "";

    if (address->storage.ss_family == AF_INET) {
        const struct sockaddr_in *name = (const struct sockaddr_in *)&address->storage;

        (void)inet_ntop(AF_INET, &name->sin_addr, host, sizeof(host));
    } else if (address->storage.ss_family == AF_INET6) {
        const struct sockaddr_in6 *name = (const struct sockaddr_in6 *)&address->storage;
        char interface[IF_NAMESIZE];

        (void)inet_ntop(AF_INET6, &name->sin6_addr, host, INET6_ADDRSTRLEN);
        if (name->sin6_scope_id != 0) {
            size_t length = strlen(host);

            if (if_indextoname(name->sin6_scope_id, interface) != NULL)
                (void)snprintf(host + length, sizeof(host) - length, "%%%s", interface);
            else
                (void)snprintf(host + length, sizeof(host) - length, "%%%u", name->sin6_scope_id);
        }
    }
    address_join(host[0] != '\0' ? host : "?", address_port(address), text);
}

bool address_is_any(const struct address *address) {
    const struct sockaddr_in *four = (const struct sockaddr_in *)&address->storage;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&address->storage;

    if (address->storage.ss_family == AF_INET)
        return four->sin_addr.s_addr == htonl(INADDR_ANY);
    return address->storage.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr);
}

bool address_text_is_any(const char *host) {
    struct in6_addr six;
    struct in_addr four;

    if (inet_pton(AF_INET, host, &four) == 1)
        return four.s_addr == htonl(INADDR_ANY);
    return inet_pton(AF_INET6, host, &six) == 1 && IN6_IS_ADDR_UNSPECIFIED(&six);
}

uint16_t address_port(const struct address *address) {
    switch (address->storage.ss_family) {
    case AF_INET:
        return ntohs(((const struct sockaddr_in *)&address->storage)->sin_port);
    case AF_INET6:
        return ntohs(((const struct sockaddr_in6 *)&address->storage)->sin6_port);
    default:
        return 0;
    }
}

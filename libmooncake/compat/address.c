/* compat/address.c - addresses taken apart and put together. Owns nothing; any thread. */
#include "compat/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool address_take_apart(const char *text, char host[ADDRESS_HOST_MAX], uint64_t *port) {
    const char *colon = strrchr(text, ':'), *end = text + strlen(text);
    char *after;

    if (text[0] == '[') {
        text++;
        end = strchr(text, ']');
        if (end == NULL || (end[1] != '\0' && end[1] != ':'))
            return false;
        colon = end[1] == ':' ? end + 1 : NULL;
    } else if (colon != NULL && strchr(text, ':') == colon) {
        end = colon;
    } else {
        colon = NULL;
    }
    if ((size_t)(end - text) >= ADDRESS_HOST_MAX)
        return false;
    memcpy(host, text, (size_t)(end - text));
    host[end - text] = '\0';
    if (colon == NULL)
        return true;
    *port = strtoull(colon + 1, &after, 10);
    return colon[1] >= '0' && colon[1] <= '9' && *after == '\0' && *port <= ADDRESS_PORT_MAX;
}

void address_join(const char *host, uint64_t port, char text[MC_ADDRESS_MAX]) {
    bool bare = strchr(host, ':') != NULL;

    (void)snprintf(text, MC_ADDRESS_MAX, "%s%s%s:%u", bare ? "[" : "", host, bare ? "]" : "", (unsigned)port);
}

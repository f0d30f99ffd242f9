/* net/http.h - one HTTP request at a time, by libcurl, which is opened when first used. */
#ifndef MC_NET_HTTP_H
#define MC_NET_HTTP_H

#include <stddef.h>
#include <stdint.h>

#include <mooncake/error.h>

#include "base/writer.h"

#define HTTP_BODY_MAX 65536u

struct http_answer {
    long code; /* 200, 404, … */
    size_t length;
    char body[HTTP_BODY_MAX + 1]; /* followed by a NUL that the length doesn't count */
};

/* NULL, or why there is no HTTP in this process; words that live as long as it. Any thread. */
const char *http_unavailable(void);

/* Sends `method` ("GET", "PUT", "DELETE") with `body` (a string of JSON, or NULL) to a URL of http or https, and waits
 * for the whole answer until `deadline`. Redirects aren't followed; a proxy is used as the environment says, but never
 * for this host. MC_OK whatever the answer's code; the struct is defined after that only. MC_ERR_NOT_SUPPORTED
 * (no libcurl; no TLS in it), MC_ERR_UNREACHABLE (also: not in time), MC_ERR_PROTOCOL (no HTTP, too long), MC_ERR_NO_MEMORY.
 * Signals are blocked meanwhile in the calling thread. Any thread. */
int32_t http_request(const char *method, const char *url, const char *body, uint64_t deadline,
                     struct http_answer *answer, struct mc_error *error);

/* Appends the string as part of a URL: all but letters, digits and "-._~" as %XX. */
void http_escape(struct writer *writer, const char *string);

#endif

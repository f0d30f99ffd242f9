/* programs/web.h - a small HTTP server, by libmicrohttpd: for people, scrapers and directories, not for data.
 *
 * One thread serves all connections and calls the handler, which must be short; what takes longer is a job, of which a
 * server runs one at a time. Everything has a bound: connections (a new one takes the place of the one that has been
 * idle, or slow, for longest), the size of a request's head and body, and the time that a connection may be silent.
 */
#ifndef MC_PROGRAMS_WEB_H
#define MC_PROGRAMS_WEB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mooncake/error.h>

#include "os/address.h"
#include "programs/web_text.h"

enum web_method { WEB_GET, WEB_PUT, WEB_POST, WEB_DELETE }; /* HEAD is GET, whose answer has no body */

struct web_request {
    enum web_method method;
    const char *path; /* as it was sent, without the query */
    const char *body;
    size_t length;
    void *connection; /* the server's */
};

enum {
    WEB_OK = 200,
    WEB_BAD_REQUEST = 400,
    WEB_UNAUTHORIZED = 401,
    WEB_FORBIDDEN = 403,
    WEB_NOT_FOUND = 404,
    WEB_NOT_ALLOWED = 405,
    WEB_TOO_LARGE = 413,
    WEB_NOT_SUPPORTED = 501,
    WEB_UNAVAILABLE = 503,
    WEB_FULL = 507,
};

struct web_reply {
    unsigned code;
    const char *type; /* of the content; static */
    struct web_text text;
    uint64_t cursor; /* not 0: told as X-Next-Cursor */
    /* Not NULL: the text is the first of several pieces; each call adds one, from *cursor on, and moves that on (0: it
     * was the last). False: the rest can't be had, and the connection is cut. */
    bool (*more)(void *context, uint64_t *cursor, struct web_text *text);
    /* Not NULL: the answer is made by this, on a thread of its own. */
    void (*job)(void *context, struct web_reply *reply);
};

struct web_options {
    const char *host; /* to listen on */
    uint16_t port;    /* 0: any free one */
    size_t body_max;
    void (*handle)(void *context, const struct web_request *request, struct web_reply *reply);
    void *context; /* of all functions */
};

struct web;

/* NULL, or why there is no HTTP in this build. */
const char *web_unavailable(void);

/* Listens, and serves from then on. MC_ERR_SYSTEM (the address is taken), MC_ERR_NAME_NOT_FOUND, MC_ERR_NO_MEMORY,
 * MC_ERR_NOT_SUPPORTED (this build has no HTTP). */
int32_t web_open(const struct web_options *options, struct web **ret_web, struct mc_error *error);

/* Ends all connections, and waits for the job. NULL is fine; returns NULL. */
struct web *web_close(struct web *web);

/* Where it listens, "host:port". */
const char *web_address(const struct web *web);

/* An argument of the query as it was sent, still percent-encoded; NULL if there is none. */
const char *web_argument(const struct web_request *request, const char *name);

/* A header of the request; NULL if there is none. */
const char *web_header(const struct web_request *request, const char *name);

#endif

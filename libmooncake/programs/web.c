/* programs/web.c - the HTTP server.
 *
 * Owns the daemon of libmicrohttpd, whose thread alone touches connections and exchanges, and the one thread of a job,
 * which touches its own exchange only while that is suspended. `lock` guards `busy` and `closing`.
 */
#include "programs/web.h"

#include <errno.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/checked.h"
#include "base/list.h"
#include "base/status.h"
#include "os/socket.h"
#include "os/thread.h"

#define CONNECTIONS 64u
#define SPARE 8u /* connections beyond that, until one that makes place is closed */
#define BACKLOG 64
#define HEAD_MAX (64u << 10) /* a connection's memory: request line, headers, and what is sent at a time */
#define SILENCE 15u          /* seconds */
#define ADDRESSES 8u
#define CHUNK (32u << 10)

struct web {
    struct web_options options;
    struct MHD_Daemon *daemon;
    char address[ADDRESS_TEXT_MAX];
    struct list visits; /* the one that got its last answer first, comes first */
    uint32_t visit_count;
    pthread_mutex_t lock;
    bool busy;   /* a job runs … */
    bool joined; /* … or none ran since its thread was waited for */
    bool closing;
    pthread_t worker;
};

/* A connection. */
struct visit {
    struct list node;
    int fd;
    bool suspended; /* for a job */
};

/* A request and its answer. */
struct exchange {
    struct web *web;
    struct MHD_Connection *connection;
    struct web_request request;
    struct web_reply reply;
    struct web_text body;
    struct web_text piece; /* what `more` gave, and how much of it was sent */
    size_t sent;
    bool done; /* by the job */
};

const char *web_unavailable(void) {
    return NULL;
}

/* ---- Connections ---- */

static struct visit *visit_of(struct MHD_Connection *connection) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info != NULL ? info->socket_context : NULL;
}

/* The daemon sees the end of the stream, and closes it. */
static void make_place(struct web *web) {
    struct list *node, *after;

    list_each (node, after, &web->visits) {
        struct visit *visit = list_entry(node, struct visit, node);

        if (visit->suspended)
            continue;
        (void)shutdown(visit->fd, SHUT_RDWR);
        list_remove(&visit->node);
        web->visit_count--;
        return;
    }
}

static void visit_began(struct web *web, struct MHD_Connection *connection, void **socket_context) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct visit *visit = info != NULL ? calloc(1, sizeof(*visit)) : NULL;

    if (visit == NULL)
        return; /* it ends by its silence */
    visit->fd = info->connect_fd;
    if (web->visit_count >= CONNECTIONS)
        make_place(web);
    list_append(&web->visits, &visit->node);
    web->visit_count++;
    *socket_context = visit;
}

static void visit_ended(struct web *web, struct visit *visit) {
    if (visit == NULL)
        return;
    if (!list_empty(&visit->node)) {
        list_remove(&visit->node);
        web->visit_count--;
    }
    free(visit);
}

static void notice_connection(void *context, struct MHD_Connection *connection, void **socket_context,
                              enum MHD_ConnectionNotificationCode code) {
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        visit_began(context, connection, socket_context);
    else
        visit_ended(context, *socket_context);
}

/* ---- Answers ---- */

static ssize_t read_piece(void *context, uint64_t position, char *buffer, size_t capacity) {
    struct exchange *exchange = context;
    struct web_reply *reply = &exchange->reply;
    size_t length;

    (void)position;
    while (exchange->sent == exchange->piece.length) {
        if (reply->cursor == 0)
            return MHD_CONTENT_READER_END_OF_STREAM;
        web_text_clear(&exchange->piece);
        exchange->sent = 0;
        if (!reply->more(exchange->web->options.context, &reply->cursor, &exchange->piece) || exchange->piece.failed)
            return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    length = exchange->piece.length - exchange->sent;
    if (length > capacity)
        length = capacity;
    memcpy(buffer, exchange->piece.bytes + exchange->sent, length);
    exchange->sent += length;
    return (ssize_t)length;
}

static struct MHD_Response *make_response(struct exchange *exchange) {
    struct web_reply *reply = &exchange->reply;
    struct MHD_Response *response;

    if (reply->more != NULL) {
        exchange->piece = reply->text;
        reply->text = (struct web_text){0};
        return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, CHUNK, read_piece, exchange, NULL);
    }
    response = MHD_create_response_from_buffer(reply->text.length, reply->text.bytes, MHD_RESPMEM_MUST_FREE);
    if (response != NULL)
        reply->text = (struct web_text){0}; /* is the response's */
    return response;
}

static enum MHD_Result send_reply(struct exchange *exchange) {
    struct web_reply *reply = &exchange->reply;
    struct MHD_Response *response;
    enum MHD_Result result;
    char number[24];

    if (reply->text.failed) {
        web_text_clear(&reply->text);
        *reply = (struct web_reply){.code = WEB_UNAVAILABLE};
    }
    response = make_response(exchange);
    if (response == NULL)
        return MHD_NO;
    if (reply->type != NULL)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply->type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (reply->code == WEB_UNAUTHORIZED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (reply->cursor != 0 && reply->more == NULL) {
        snprintf(number, sizeof(number), "%llu", (unsigned long long)reply->cursor);
        MHD_add_response_header(response, "X-Next-Cursor", number);
    }
    result = MHD_queue_response(exchange->connection, reply->code, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- Jobs ---- */

static void *run_job(void *context) {
    struct exchange *exchange = context;
    struct web *web = exchange->web;

    exchange->reply.job(web->options.context, &exchange->reply);
    exchange->done = true;
    pthread_mutex_lock(&web->lock);
    web->busy = false;
    pthread_mutex_unlock(&web->lock);
    MHD_resume_connection(exchange->connection);
    return NULL;
}

/* False: another runs, or the server ends. */
static bool begin_job(struct exchange *exchange) {
    struct web *web = exchange->web;
    struct visit *visit = visit_of(exchange->connection);
    bool begun = false;

    pthread_mutex_lock(&web->lock);
    if (!web->busy && !web->closing && visit != NULL) {
        if (!web->joined)
            pthread_join(web->worker, NULL);
        visit->suspended = true;
        MHD_suspend_connection(exchange->connection);
        begun = true;
        web->busy = thread_start(&web->worker, "web-job", run_job, exchange) == 0;
        web->joined = !web->busy;
        if (!web->busy) {
            exchange->done = true;
            exchange->reply = (struct web_reply){.code = WEB_UNAVAILABLE};
            MHD_resume_connection(exchange->connection);
        }
    }
    pthread_mutex_unlock(&web->lock);
    return begun;
}

/* ---- Requests ---- */

static bool method_of(const char *name, enum web_method *ret_method) {
    static const struct {
        const char *name;
        enum web_method method;
    } methods[] = {{MHD_HTTP_METHOD_GET, WEB_GET},
                   {MHD_HTTP_METHOD_HEAD, WEB_GET},
                   {MHD_HTTP_METHOD_PUT, WEB_PUT},
                   {MHD_HTTP_METHOD_POST, WEB_POST},
                   {MHD_HTTP_METHOD_DELETE, WEB_DELETE}};

    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        if (strcmp(name, methods[i].name) == 0) {
            *ret_method = methods[i].method;
            return true;
        }
    return false;
}

/* The head has come: how large is the body to be? */
static enum MHD_Result begin(struct web *web, struct MHD_Connection *connection, const char *path, const char *method,
                             void **request_context) {
    const char *announced = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    struct exchange *exchange = calloc(1, sizeof(*exchange));
    uint64_t length = 0;

    if (exchange == NULL)
        return MHD_NO;
    *request_context = exchange;
    exchange->web = web;
    exchange->connection = connection;
    exchange->request.connection = connection;
    exchange->request.path = path;
    if (!method_of(method, &exchange->request.method))
        exchange->reply.code = WEB_NOT_ALLOWED;
    else if (announced != NULL && (!checked_decimal(announced, &length) || length > web->options.body_max))
        exchange->reply.code = WEB_TOO_LARGE;
    return exchange->reply.code != 0 ? send_reply(exchange) : MHD_YES;
}

static enum MHD_Result serve(struct exchange *exchange) {
    struct web *web = exchange->web;
    struct web_reply *reply = &exchange->reply;

    exchange->request.body = exchange->body.bytes;
    exchange->request.length = exchange->body.length;
    web->options.handle(web->options.context, &exchange->request, reply);
    if (reply->job == NULL)
        return send_reply(exchange);
    if (begin_job(exchange))
        return MHD_YES;
    *reply = (struct web_reply){.code = WEB_UNAVAILABLE, .type = "text/plain; charset=utf-8"};
    web_text_print(&reply->text, "busy: one such request at a time\n");
    return send_reply(exchange);
}

static enum MHD_Result handle_request(void *context, struct MHD_Connection *connection, const char *path,
                                      const char *method, const char *version, const char *data, size_t *length,
                                      void **request_context) {
    struct web *web = context;
    struct exchange *exchange = *request_context;

    (void)version;
    if (exchange == NULL)
        return begin(web, connection, path, method, request_context);
    if (*length > 0) {
        if (*length > web->options.body_max - exchange->body.length)
            return MHD_NO; /* it came in chunks, without its length */
        web_text_add(&exchange->body, data, *length);
        *length = 0;
        return exchange->body.failed ? MHD_NO : MHD_YES;
    }
    return exchange->done ? send_reply(exchange) : serve(exchange);
}

static void notice_end(void *context, struct MHD_Connection *connection, void **request_context,
                       enum MHD_RequestTerminationCode code) {
    struct exchange *exchange = *request_context;
    struct visit *visit = visit_of(connection);
    struct web *web = context;

    (void)code;
    if (visit != NULL && !list_empty(&visit->node)) {
        visit->suspended = false;
        list_remove(&visit->node);
        list_append(&web->visits, &visit->node);
    }
    if (exchange == NULL)
        return;
    web_text_clear(&exchange->reply.text);
    web_text_clear(&exchange->body);
    web_text_clear(&exchange->piece);
    free(exchange);
    *request_context = NULL;
}

/* Arguments stay as they are: whoever uses them decodes them, and refuses what is malformed. */
static size_t leave_escaped(void *context, struct MHD_Connection *connection, char *text) {
    (void)context;
    (void)connection;
    return strlen(text);
}

const char *web_argument(const struct web_request *request, const char *name) {
    return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, name);
}

const char *web_header(const struct web_request *request, const char *name) {
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

/* ---- Opening and closing ---- */

static int32_t listen_at(struct web *web, int *ret_fd, struct mc_error *error) {
    struct address addresses[ADDRESSES], bound;
    size_t count = 0;
    int32_t status = address_resolve(web->options.host, web->options.port, addresses, ADDRESSES, &count, error);

    if (status == MC_OK)
        status = socket_listen(&addresses[0], BACKLOG, ret_fd, &bound, error);
    if (status == MC_OK)
        address_format(&bound, web->address);
    return status;
}

static struct web *web_free(struct web *web) {
    pthread_mutex_destroy(&web->lock);
    free(web);
    return NULL;
}

int32_t web_open(const struct web_options *options, struct web **ret_web, struct mc_error *error) {
    struct web *web = calloc(1, sizeof(*web));
    int32_t status;
    int fd = -1;

    if (web == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    web->options = *options;
    web->joined = true;
    list_init(&web->visits);
    pthread_mutex_init(&web->lock, NULL);
    status = listen_at(web, &fd, error);
    if (status != MC_OK) {
        web_free(web);
        return status;
    }
    web->daemon = MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO | MHD_ALLOW_SUSPEND_RESUME, 0, NULL,
                                   NULL, handle_request, web, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
                                   CONNECTIONS + SPARE, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_MAX,
                                   MHD_OPTION_CONNECTION_TIMEOUT, SILENCE, MHD_OPTION_NOTIFY_CONNECTION,
                                   notice_connection, web, MHD_OPTION_NOTIFY_COMPLETED, notice_end, web,
                                   MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped, NULL, MHD_OPTION_END);
    if (web->daemon == NULL) {
        (void)socket_close(fd);
        web_free(web);
        return status_set(error, MC_ERR_SYSTEM, errno, "the HTTP server can't be started: %m");
    }
    *ret_web = web;
    return MC_OK;
}

struct web *web_close(struct web *web) {
    bool join;
    int fd;

    if (web == NULL)
        return NULL;
    pthread_mutex_lock(&web->lock);
    web->closing = true;
    join = !web->joined;
    web->joined = true;
    pthread_mutex_unlock(&web->lock);
    if (join)
        pthread_join(web->worker, NULL);
    fd = MHD_quiesce_daemon(web->daemon);
    MHD_stop_daemon(web->daemon);
    (void)socket_close(fd);
    return web_free(web);
}

const char *web_address(const struct web *web) {
    return web->address;
}

/* net/server.c - the listener and its sessions.
 *
 * Everything here runs on the loop's thread, but for opening and counting.
 */
#include "net/server.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "net/session.h"
#include "os/socket.h"
#include "wire/message.h"

#define SERVICES_MAX 32
#define ACCEPTS_AT_ONCE 64
#define REFUSED_AT_ONCE 64u /* sessions above the limit that are told so; beyond that, connections are just closed */
#define STALL_TIME (30 * CLOCK_SECOND)
#define PAUSE_WITHOUT_DESCRIPTORS (100 * CLOCK_MILLISECOND)

struct server {
    struct server_options options;
    struct loop_watch watch;
    struct loop_timer pause; /* of the listener, while descriptors are short */
    const struct service *services[SERVICES_MAX];
    size_t service_count;
    struct list sessions;
    uint32_t session_count;
    uint32_t ring_count; /* of those sessions */
    struct clients clients;
    _Atomic uint64_t accepted, refused, broken;
};

static void begin_ping(struct exchange *exchange) {
    (void)exchange; /* whatever a newer peer says in it is skipped */
}

static int32_t serve_ping(struct exchange *exchange) {
    (void)exchange;
    return MC_OK;
}

static const struct service ping = {
    .type = FRAME_CALL + MESSAGE_PING,
    .begin = begin_ping,
    .serve = serve_ping,
};

int32_t server_open(const struct server_options *options, struct server **ret_server) {
    struct server *server = calloc(1, sizeof(*server));

    if (server == NULL)
        return MC_ERR_NO_MEMORY;
    server->options = *options;
    server->watch.fd = -1;
    list_init(&server->sessions);
    clients_init(&server->clients);
    server_add(server, &ping);
    *ret_server = server;
    return MC_OK;
}

static const struct service *find_service(void *context, uint16_t type) {
    const struct server *server = context;

    for (size_t i = 0; i < server->service_count; i++)
        if (server->services[i]->type == type)
            return server->services[i];
    return NULL;
}

int32_t server_add(struct server *server, const struct service *service) {
    if (find_service(server, service->type) != NULL)
        return MC_ERR_BUSY;
    if (server->service_count == SERVICES_MAX)
        return MC_ERR_TOO_MANY;
    server->services[server->service_count++] = service;
    return MC_OK;
}

void server_remove(struct server *server, const struct service *service) {
    struct list *node, *after;
    size_t kept = 0;

    for (size_t i = 0; i < server->service_count; i++)
        if (server->services[i] != service)
            server->services[kept++] = server->services[i];
    server->service_count = kept;
    list_each (node, after, &server->sessions)
        session_drop_service(list_entry(node, struct session, node), service);
}

struct clients *server_clients(struct server *server) {
    return &server->clients;
}

static int32_t greet_client(void *context, const struct session *session) {
    struct server *server = context;

    return clients_join(&server->clients, session->handshake.other.incarnation);
}

static void forget_session(void *context, struct session *session, enum session_end end) {
    struct server *server = context;

    server->session_count--;
    if (session->on_ring)
        server->ring_count--;
    if (!session->greeting)
        clients_leave(&server->clients, session->handshake.other.incarnation);
    if (end == SESSION_REFUSED)
        server->refused++;
    else if (end == SESSION_BROKEN)
        server->broken++;
}

static struct session_options options_of(struct server *server) {
    return (struct session_options){
        .loop = server->options.loop,
        .self = server->options.self,
        .context = server,
        .stall_time = server->options.stall_time != 0 ? server->options.stall_time : STALL_TIME,
        .find_service = find_service,
        .greeted = greet_client,
        .ended = forget_session,
    };
}

int32_t server_adopt(struct server *server, const uint8_t client[16], struct ring *ring) {
    const struct session_options options = options_of(server);
    int32_t status = MC_ERR_TOO_MANY;

    if (server->ring_count < server->options.rings && server->session_count < server->options.sessions)
        status = session_adopt(&options, stream_of_ring(ring), client, &server->sessions);
    if (status == MC_OK) {
        server->session_count++;
        server->ring_count++;
    }
    return status;
}

/* Accepts what waits. A connection beyond the limit is still told so, if there is a descriptor for it. */
static void accept_all(struct loop_watch *watch, uint32_t events) {
    struct server *server = list_entry(watch, struct server, watch);
    const struct session_options options = options_of(server);

    (void)events;
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        int fd = socket_accept(watch->fd);
        bool full = server->session_count >= server->options.sessions;

        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
            loop_change(server->options.loop, watch, 0);
            loop_timer_set(server->options.loop, &server->pause, clock_after(clock_now(), PAUSE_WITHOUT_DESCRIPTORS));
        }
        if (fd < 0)
            return;
        server->accepted++;
        if (full && server->session_count - server->options.sessions >= REFUSED_AT_ONCE) {
            socket_close(fd);
            server->refused++;
            log_sometimes(MC_LOG_WARNING, "connections are refused: %u are open already", server->session_count);
            continue;
        }
        if (session_start(&options, fd, full ? MC_ERR_TOO_MANY : MC_OK, &server->sessions) == MC_OK)
            server->session_count++;
        else
            server->refused++;
    }
}

static void accept_again(struct loop_timer *timer, uint64_t now) {
    struct server *server = list_entry(timer, struct server, pause);

    (void)now;
    loop_change(server->options.loop, &server->watch, EPOLLIN);
}

int32_t server_listen(struct server *server, const struct address *address, struct address *ret_bound,
                      struct mc_error *error) {
    int32_t status;
    int fd;

    status = socket_listen(address, server->options.backlog, &fd, ret_bound, error);
    if (status != MC_OK)
        return status;
    server->watch.ready = accept_all;
    server->watch.fd = fd;
    loop_timer_init(&server->pause, accept_again);
    status = loop_add(server->options.loop, &server->watch, EPOLLIN);
    if (status != MC_OK) {
        status_set(error, status, errno, "the listener can't be watched: %m");
        server->watch.fd = socket_close(fd);
    }
    return status;
}

struct server *server_close(struct server *server) {
    struct list *node, *after;

    if (server == NULL)
        return NULL;
    clients_watch(&server->clients, NULL, NULL);
    list_each (node, after, &server->sessions)
        session_end(list_entry(node, struct session, node), SESSION_CLOSED);
    if (server->watch.fd >= 0) {
        loop_timer_cancel_sync(server->options.loop, &server->pause);
        loop_remove(server->options.loop, &server->watch);
        socket_close(server->watch.fd);
    }
    clients_destroy(&server->clients);
    free(server);
    return NULL;
}

struct server_counters server_count(const struct server *server) {
    return (struct server_counters){server->accepted, server->refused, server->broken};
}

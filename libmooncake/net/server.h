/* net/server.h - the listener, and the server's end of each connection: requests in, replies out.
 *
 * Owns: the listening descriptor and the sessions, all on the loop's thread; services are called there and must not
 * wait. Services are registered before server_listen; PING is built in. A session that hasn't finished its preface in
 * 5 s, or moves less than 1 MiB of one frame in 30 s, is closed.
 */
#ifndef MC_NET_SERVER_H
#define MC_NET_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "net/connection.h"
#include "net/handshake.h"
#include "os/address.h"
#include "os/loop.h"

struct server;
struct service;

/* One request being served. Lives from its header to the end of its last reply. */
struct exchange {
    struct frame request;
    struct frame reply;            /* flags and payload_crc are the service's; the rest is the server's */
    const struct service *service; /* NULL: nobody serves this type with these flags */
    const uint8_t *client;         /* the sender's incarnation */
    int32_t status;                /* set by begin; after a failure serve is not called */
    struct sink sink;              /* set by begin: where the request's payload goes */
    const void *reply_payload;     /* set by serve: reply.payload bytes, readable until `ended` */
    void *pin;                     /* the service's own */
    uint8_t *body;                 /* memory of the exchange, freed after `ended`; NULL or malloc'd */
    /* The server's. */
    struct outgoing out;
    struct session *session;
    struct list node; /* in session->exchanges */
};

/* What serves one type of frame; static, with the owner in `context`. */
struct service {
    uint16_t type;  /* enum frame_type, without FRAME_REPLY */
    uint16_t flags; /* those it understands */
    void *context;
    /* The header is there. Sets sink, status, pin. */
    void (*begin)(struct exchange *exchange);
    /* The payload is there. Sets reply_payload; returns the reply's status. */
    int32_t (*serve)(struct exchange *exchange);
    /* The reply with FRAME_FLAG_MORE has left: the status of the second one. NULL where MORE is never set. */
    int32_t (*more)(struct exchange *exchange);
    /* All replies have left, or the session is gone: gives back what begin took (also if it failed). May be NULL. */
    void (*ended)(struct exchange *exchange);
};

/* For services of messages: has the payload received into the exchange's body. By begin. */
void exchange_take_body(struct exchange *exchange);

/* For services of messages: allocates `length` bytes as the reply's payload; NULL if memory is short. By serve, which
 * doesn't need the request's body any more. */
uint8_t *exchange_reply_body(struct exchange *exchange, uint32_t length);

struct server_options {
    struct loop *loop;
    const struct identity *self;
    uint32_t sessions; /* at most */
    int backlog;
};

struct server_counters {
    uint64_t accepted;
    uint64_t refused; /* the preface failed, or too many */
    uint64_t broken;  /* closed for garbage or a stall after the preface */
};

/* Makes a server that listens nowhere yet. MC_ERR_NO_MEMORY. */
int32_t server_open(const struct server_options *options, struct server **ret_server);

/* Adds a service, which outlives the server. */
void server_add(struct server *server, const struct service *service);

/* Listens, and stores the address bound. */
int32_t server_listen(struct server *server, const struct address *address, struct address *ret_bound,
                      struct mc_error *error);

/* Closes the listener and all sessions. On the loop's thread. NULL is fine; returns NULL. */
struct server *server_close(struct server *server);

struct server_counters server_count(const struct server *server);

#endif

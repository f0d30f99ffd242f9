/* net/server.h - the listener, and the server's end of each connection: requests in, replies out.
 *
 * Owns: the listening descriptor and the sessions, all on the loop's thread; services are called there and must not
 * wait; PING is built in. A session that hasn't finished its preface in 5 s, or moves less than 1 MiB of one frame in
 * 30 s, is closed.
 *
 * A service may answer later: its exchange is then pending, for as long as it likes or the session lives, and counts
 * among those that a client may have at a time.
 */
#ifndef MC_NET_SERVER_H
#define MC_NET_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "net/clients.h"
#include "net/connection.h"
#include "net/handshake.h"
#include "os/address.h"
#include "os/loop.h"

struct server;
struct service;

/* One request being served. Lives from its header to the end of its last reply. */
struct exchange {
    struct frame request;
    struct frame reply;            /* flags are the service's; the rest is the server's */
    const struct service *service; /* NULL: nobody serves this type with these flags */
    const uint8_t *client;         /* the sender's incarnation */
    int32_t status;                /* set by begin; after a failure serve is not called */
    struct sink sink;              /* set by begin: where the request's payload goes */
    uint32_t sum;                  /* for sink.sum */
    const void *reply_payload;     /* set by serve: reply.payload bytes, readable until `ended` */
    void *pin;                     /* the service's own */
    uint8_t *body;                 /* memory of the exchange, freed after `ended`; NULL or malloc'd */
    /* The server's. */
    bool pending;  /* serve has returned MC_ERR_PENDING, and exchange_finish wasn't called */
    bool answered; /* its reply is on its way */
    struct outgoing out;
    struct session *session;
    struct list node; /* in session->exchanges */
};

/* What serves one type of frame, with the owner in `context`. */
struct service {
    uint16_t type;  /* enum frame_type, without FRAME_REPLY */
    uint16_t flags; /* those it understands */
    void *context;
    /* The header is there. Sets sink, status, pin. */
    void (*begin)(struct exchange *exchange);
    /* The payload is there. Sets reply_payload; returns the reply's status, or MC_ERR_PENDING: the reply is sent by
     * exchange_finish, which may also have been called already. */
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

/* Answers an exchange that is served later, with the body made before by exchange_reply_body (by then the request's
 * isn't needed any more). On the loop's thread. The exchange is the server's again: `ended` is called when the reply
 * has left, not in this call. One whose session is ending is left to its `ended`. */
void exchange_finish(struct exchange *exchange, int32_t status);

struct server_options {
    struct loop *loop;
    const struct identity *self;
    uint32_t sessions; /* at most */
    uint32_t rings;    /* at most, each with ring_memory_size() bytes */
    int backlog;
    uint64_t stall_time; /* in which 1 MiB of a frame must move; 0: 30 s */
};

struct server_counters {
    uint64_t accepted;
    uint64_t refused; /* the preface failed, or too many */
    uint64_t broken;  /* closed for garbage or a stall after the preface */
};

/* Makes a server that listens nowhere yet. MC_ERR_NO_MEMORY. */
int32_t server_open(const struct server_options *options, struct server **ret_server);

/* Adds a service, which stays in place until it is removed or the server is closed. Before server_listen, or on the
 * loop's thread. MC_ERR_BUSY if its type is served already, MC_ERR_TOO_MANY. */
int32_t server_add(struct server *server, const struct service *service);

/* Removes a service of messages (its replies are exchange_reply_body's, it has no `more`), on the loop's thread, not
 * from its own calls: its requests are answered with MC_ERR_CLOSED, and `ended` was called for all its exchanges on
 * return. One that isn't there is fine. */
void server_remove(struct server *server, const struct service *service);

/* The clients that are there. Transports that keep another way in for a client join and leave; `lost` is told no more
 * when the server closes. */
struct clients *server_clients(struct server *server);

/* Listens, and stores the address bound. */
int32_t server_listen(struct server *server, const struct address *address, struct address *ret_bound,
                      struct mc_error *error);

/* Serves a client of this host, which has shown who it is, through a ring as well; on the loop's thread. The ring is the
 * server's after MC_OK. MC_ERR_TOO_MANY: it has as many of them, or sessions, as it may. */
int32_t server_adopt(struct server *server, const uint8_t client[16], struct ring *ring);

/* Closes the listener and all sessions. On the loop's thread. NULL is fine; returns NULL. */
struct server *server_close(struct server *server);

struct server_counters server_count(const struct server *server);

#endif

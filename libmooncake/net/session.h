/* net/session.h - the server's end of one connection. Private to net/server.c; everything on the loop's thread. */
#ifndef MC_NET_SESSION_H
#define MC_NET_SESSION_H

#include "net/server.h"

enum session_end {
    SESSION_CLOSED,  /* by the peer between frames, or with the server */
    SESSION_REFUSED, /* the preface failed */
    SESSION_BROKEN,  /* garbage, half a frame, a stall */
};

struct session_options {
    struct loop *loop;
    const struct identity *self;
    void *context;
    uint64_t stall_time; /* in which 1 MiB of a frame must move */
    const struct service *(*find_service)(void *context, uint16_t type);
    /* The preface is over, and the client known. Another status than MC_OK ends the session as refused. */
    int32_t (*greeted)(void *context, const struct session *session);
    /* Called once, just before the session is freed. */
    void (*ended)(void *context, struct session *session, enum session_end end);
};

struct session {
    struct session_options options;
    struct list node; /* in the server's list */
    struct loop_watch watch;
    struct loop_timer timer;
    uint32_t armed;
    struct stall {
        bool busy; /* a frame was under way in this direction when the timer was set */
        struct progress then;
    } receiving, sending;
    bool greeting; /* the preface isn't over */
    bool on_ring;
    struct list exchanges;
    uint32_t exchange_count;  /* in `exchanges` */
    uint32_t pending_count;   /* of those, to be answered later */
    bool stepping;            /* what is queued now is sent, and the watch armed, without the task */
    bool ending;              /* nothing is queued any more */
    struct loop_task flush;   /* sends the replies that came later */
    struct exchange *current; /* whose payload is coming */
    struct handshake handshake;
    struct connection connection;
};

/* Takes over `fd` and appends the session to `sessions`. A `refusal` is told to the peer when it has shown its key.
 * On failure the descriptor is closed. */
int32_t session_start(const struct session_options *options, int fd, int32_t refusal, struct list *sessions);

/* The same without a preface, for a client that has proved itself elsewhere. The stream, which has brought nothing yet,
 * is the session's after MC_OK. */
int32_t session_adopt(const struct session_options *options, struct stream stream, const uint8_t client[16],
                      struct list *sessions);

/* Ends the exchanges of that service, which is answered with MC_ERR_CLOSED. */
void session_drop_service(struct session *session, const struct service *service);

/* Closes and frees the session. */
void session_end(struct session *session, enum session_end end);

#endif

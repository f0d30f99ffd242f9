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
    const struct service *(*find_service)(void *context, uint16_t type);
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
    struct list exchanges;
    uint32_t exchange_count;  /* in `exchanges` */
    struct exchange *current; /* whose payload is coming */
    struct handshake handshake;
    struct connection connection;
};

/* Takes over `fd` and appends the session to `sessions`. A `refusal` is told to the peer when it has shown its key.
 * On failure the descriptor is closed. */
int32_t session_start(const struct session_options *options, int fd, int32_t refusal, struct list *sessions);

/* Closes and frees the session. */
void session_end(struct session *session, enum session_end end);

#endif

/* net/lane.h - one connection to a peer as its client sees it: requests out, replies in, any number in flight.
 *
 * A lane connects by itself when the first request is put on it, and again (with back-off) after it was lost. At any
 * moment it has at most one driver: a caller that waits (lane_drive_begin … lane_drive_end, polling lane_poll_fd), or
 * else the loop, which watches the descriptor only while something is to be sent or to come. So a blocking caller needs
 * no other thread.
 *
 * A lane may also stand on a ring that was made elsewhere: then it is up from the beginning, and down for ever once it
 * is lost.
 *
 * Threads: any; `lock` guards everything but `incoming`: who submits while another thread holds the lock leaves its
 * requests there and goes on, and whoever holds the lock takes them in, at the latest when giving it back. `done` of a
 * request is called once, with the lock held: it must not call into the lane.
 */
#ifndef MC_NET_LANE_H
#define MC_NET_LANE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "net/connection.h"
#include "net/handshake.h"
#include "net/inflight.h"
#include "os/address.h"
#include "os/loop.h"
#include "os/spin.h"

/* A request and the place for its reply; embedded in its owner, who fills the first part and keeps it until `done`. */
struct lane_request {
    struct frame frame;  /* type, flags, address, length, guard, payload; id and checksums are the lane's business */
    const void *payload; /* frame.payload bytes */
    /* where the reply's payload goes: all of it for a READ, the first reply_capacity bytes of a message */
    uint8_t *reply;
    uint32_t reply_capacity;
    /* Terminal, with what the peer or the lane says. The request may be freed or reused at once. */
    void (*done)(struct lane_request *request, int32_t status);

    /* The lane's. */
    struct outgoing out;
    struct lane_request *before; /* in lane->incoming */
    struct list node;            /* in lane->waiting or lane->told; alone in lane->incoming */
    uint64_t id;
    uint32_t reply_length; /* received of a message's reply, at most reply_capacity */
    bool begun;            /* given to the connection: the peer may have acted on it */
};

/* What lanes to one peer count together. */
struct lane_counters {
    _Atomic uint64_t connects; /* that came up by connecting, also again */
    _Atomic uint64_t losses;   /* that were up, and were lost */
};

/* What all lanes to one peer have in common; outlives them. */
struct lane_target {
    struct loop *loop;
    const struct identity *self;
    const struct address *addresses; /* tried in turn */
    size_t address_count;
    uint64_t connect_timeout;
    struct lane_counters *counters; /* NULL: nobody counts */
    uint8_t incarnation[16];        /* the peer's, once `known`; written by the first lane before any other is used */
    bool known;
    _Atomic uint32_t up;     /* lanes that are connected, without those on rings */
    _Atomic int32_t failure; /* why the last of them isn't any more, or couldn't be connected */
};

struct lane {
    /* Taken before `lock`, and given back with it in hand: so a thread that waits is the next one. */
    pthread_mutex_t turn;
    pthread_mutex_t lock;
    _Atomic(struct lane_request *) incoming; /* submitted and not taken in, the last one first */
    struct lane_target *target;
    enum lane_state { LANE_DOWN, LANE_CONNECTING, LANE_GREETING, LANE_UP } state;
    int fd;
    atomic_bool driven; /* by a caller; changed with the lock held */
    bool watched;       /* the loop has the descriptor */
    bool broken;        /* lost while driven: the driver closes it */
    bool on_ring;       /* there are no addresses for it */
    bool looked_at;     /* by the loop: the peer needn't ring */
    atomic_bool usable; /* on a ring, and up */
    struct spin spin;   /* of who drives it */
    uint32_t armed;     /* events the loop watches for */
    int32_t last_error; /* why it is or was down */
    struct loop_watch watch;
    struct loop_timer timer; /* of connecting */
    struct loop_task attend; /* on a ring: there is something already that nobody will ring for */
    size_t address_next;
    uint64_t connect_deadline;
    uint64_t attempt_deadline;    /* of this address */
    uint64_t retry_at;            /* not before, after a failure */
    uint64_t retry_delay;         /* 0 after a success */
    _Atomic uint64_t outstanding; /* bytes of the requests in both lists */
    struct list waiting;          /* requests that the connection hasn't got yet */
    struct list told;             /* those that it has */
    struct inflight inflight;
    uint64_t current; /* the id whose reply's payload is coming */
    uint32_t sum;     /* CRC-32C of what has come of it, if it has one */
    struct frame reply;
    struct handshake handshake;
    struct connection connection;
};

void lane_init(struct lane *lane, struct lane_target *target);

/* Puts a lane that hasn't been used on a stream whose other end is the target. The stream is the lane's. */
void lane_adopt(struct lane *lane, struct stream stream);

/* Is it on such a stream, and up? A glance without the lock. */
bool lane_usable(struct lane *lane);

/* Fails what is in flight with MC_ERR_CLOSED and closes the connection. Nobody else may use the lane. */
void lane_finish(struct lane *lane);

/* Puts requests (linked through their `node` in `list`, which is left empty) on the lane, and sends what can be sent,
 * unless another thread is at it, who will do so. If the lane can't take them, their `done` is called, perhaps before
 * the return. Never waits for the lock. `attended`: the caller drives the lane next, or calls lane_leave; until then
 * the loop isn't bothered. */
void lane_submit(struct lane *lane, struct list *requests, bool attended);

/* Leaves the lane to the loop, unless somebody drives it. */
void lane_leave(struct lane *lane);

/* Ends those of the requests that aren't terminal with `status`: when this returns, done was called for each and
 * nothing touches their buffers. */
void lane_cancel(struct lane *lane, struct lane_request *const *requests, size_t count, int32_t status);

/* Fails everything in flight with `status` and closes the connection, to be made again by the next request. */
void lane_break(struct lane *lane, int32_t status);

/* Bytes in flight or waiting, for choosing a lane; a glance without the lock. */
uint64_t lane_outstanding(struct lane *lane);

/* Becomes the lane's driver, if it has none but the loop. */
bool lane_drive_begin(struct lane *lane);
void lane_drive_end(struct lane *lane);

/* Sends and receives what can be without a word of the descriptor. Has anything moved? Never before the lane is up. By
 * the driver only. */
bool lane_look(struct lane *lane);

/* The descriptor (-1: none) and the poll events to wait for. By the driver only, as all that follows. */
int lane_poll_fd(struct lane *lane, short *ret_events);

/* Must be called before the driver waits for the descriptor; false if it should look once more instead. */
bool lane_rest(struct lane *lane);

/* Sends and receives what can be, and sees that time passes; when the descriptor is `ready`, or for a while isn't. */
void lane_progress(struct lane *lane, bool ready);

#endif

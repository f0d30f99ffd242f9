/* net/lane.c - the client's end of a connection.
 *
 * While a caller drives, only the caller closes the descriptor: nobody else could know that it isn't polling it.
 */
#include "net/lane_inside.h"

#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "os/socket.h"

#define RECEIVE_BUDGET (8u << 20)
#define RECEIVE_PIECE (256u << 10) /* after which it is looked what others have submitted meanwhile */
#define RETRY_FIRST (10 * CLOCK_MILLISECOND)
#define RETRY_LAST CLOCK_SECOND

/* ---- The descriptor and its watch. With the lock held. ---- */

static bool has_to_send(const struct lane *lane) {
    if (lane->state == LANE_UP)
        return connection_sending(&lane->connection);
    return lane->state == LANE_CONNECTING || (lane->state == LANE_GREETING && handshake_sending(&lane->handshake));
}

/* An idle lane only wants to know of its peer's end. One whose requests were all given up isn't idle: the peer must get
 * the rest of a frame that has begun, and rid of its replies, or it would keep memory for them. */
static bool is_idle(const struct lane *lane) {
    return lane->state == LANE_DOWN ||
           (lane->state == LANE_UP && lane->inflight.awaited == 0 && !connection_sending(&lane->connection));
}

/* What the loop should watch for. */
static uint32_t wanted_events(const struct lane *lane) {
    if (lane->driven || is_idle(lane))
        return EPOLLRDHUP;
    return EPOLLRDHUP | stream_events(&lane->connection.stream, lane->state != LANE_CONNECTING, has_to_send(lane));
}

/* Is there nothing to do, by a look at memory? `last`: then the descriptor will say when there is. */
static bool may_rest(const struct lane *lane, bool last) {
    const struct stream *stream = &lane->connection.stream;
    bool sending = connection_sending(&lane->connection);

    return !stream_peek(stream, true, sending) && (!last || stream_sleep(stream, true, sending));
}

/* Lets the loop watch for what it has to see. */
static void arm(struct lane *lane) {
    uint32_t events = wanted_events(lane);

    if (lane->on_ring && !lane->driven && !lane->looked_at && !is_idle(lane) && !may_rest(lane, true))
        loop_post(lane->target->loop, &lane->attend);

    if (lane->fd < 0)
        return;
    if (!lane->watched) {
        if (lane->driven)
            return;
        lane->watch.fd = lane->fd;
        lane->watched = loop_add(lane->target->loop, &lane->watch, events) == MC_OK;
        lane->armed = events;
    } else if (events != lane->armed) {
        loop_change(lane->target->loop, &lane->watch, events);
        lane->armed = events;
    }
}

static void unwatch(struct lane *lane) {
    if (lane->watched)
        loop_remove(lane->target->loop, &lane->watch);
    lane->watched = lane->looked_at = false;
}

static void fail_requests(struct lane *lane, int32_t status) {
    lane_end_list(lane, &lane->told, status);
    lane_end_list(lane, &lane->waiting, status);
    inflight_release_all(&lane->inflight);
}

/* Counts the end of a connection, and says so if it was up. Closing isn't losing. */
static void note_end(const struct lane *lane, int32_t status) {
    char address[ADDRESS_TEXT_MAX];

    if (lane->broken || lane->on_ring)
        return;
    lane->target->failure = status;
    if (lane->state != LANE_UP)
        return;
    lane->target->up--;
    if (status == MC_ERR_CLOSED)
        return;
    if (lane->target->counters != NULL)
        atomic_fetch_add_explicit(&lane->target->counters->losses, 1, memory_order_relaxed);
    if (lane->target->address_count == 0)
        return;
    address_format(&lane->target->addresses[0], address);
    log_sometimes(MC_LOG_INFO, "a connection to %s is lost: %s", address, status_text(status));
}

/* Closes the connection and ends all requests. */
static void go_down(struct lane *lane, int32_t status) {
    note_end(lane, status);
    unwatch(lane);
    if (lane->state != LANE_DOWN)
        connection_clear(&lane->connection);
    if (lane->on_ring)
        stream_close(&lane->connection.stream);
    else
        socket_close(lane->fd);
    lane->fd = -1;
    lane->state = LANE_DOWN;
    lane->usable = false;
    lane->broken = false;
    lane->last_error = status;
    lane->retry_delay = lane->retry_delay == 0 ? RETRY_FIRST : lane->retry_delay * 2;
    if (lane->retry_delay > RETRY_LAST)
        lane->retry_delay = RETRY_LAST;
    lane->retry_at = clock_after(clock_now(), lane->retry_delay);
    fail_requests(lane, status);
}

/* The connection can't go on; `status` is what the requests are told. By whoever isn't the driver. */
static void lose(struct lane *lane, int32_t status) {
    if (!lane->driven) {
        go_down(lane, status);
        return;
    }
    note_end(lane, status);
    /* The driver may be polling the descriptor: wake it by a hang-up, and end the requests here and now. */
    lane->broken = true;
    lane->usable = false;
    lane->last_error = status;
    unwatch(lane);
    connection_clear(&lane->connection);
    if (lane->fd >= 0)
        shutdown(lane->fd, SHUT_RDWR);
    fail_requests(lane, status);
}

/* ---- Connecting ---- */

/* Begins to connect to the next address that may do; false if there is none left. Each gets its share of the time. */
static bool try_next_address(struct lane *lane) {
    struct lane_target *target = lane->target;

    while (lane->address_next < target->address_count) {
        uint64_t now = clock_now();
        uint64_t left = lane->connect_deadline > now ? lane->connect_deadline - now : 0;

        lane->attempt_deadline = clock_after(now, left / (target->address_count - lane->address_next));
        if (socket_connect(&target->addresses[lane->address_next++], &lane->fd, NULL) == MC_OK) {
            lane->state = LANE_CONNECTING;
            arm(lane);
            loop_timer_set(target->loop, &lane->timer, lane->attempt_deadline);
            return true;
        }
    }
    return false;
}

/* This address doesn't do; another may. */
static int32_t attempt_failed(struct lane *lane) {
    unwatch(lane);
    lane->fd = socket_close(lane->fd);
    return try_next_address(lane) ? MC_OK : MC_ERR_UNREACHABLE;
}

static void start(struct lane *lane) {
    uint64_t now = clock_now();

    if (lane->on_ring || now < lane->retry_at) {
        fail_requests(lane, lane->last_error);
        return;
    }
    lane->address_next = 0;
    lane->connect_deadline = clock_after(now, lane->target->connect_timeout);
    connection_init(&lane->connection, &lane_reply_ops, stream_of_socket(-1));
    if (!try_next_address(lane))
        go_down(lane, MC_ERR_UNREACHABLE);
}

/* ---- Requests come in, and the lock ---- */

/* Puts what was submitted behind the requests that wait, in the order of submission, and tells the peer. With the lock
 * held. False: there was nothing. */
static bool take_in(struct lane *lane) {
    struct lane_request *request, *before;
    struct list *end = lane->waiting.prev;

    if (atomic_load_explicit(&lane->incoming, memory_order_relaxed) == NULL)
        return false;
    for (request = atomic_exchange(&lane->incoming, NULL); request != NULL; request = before) {
        before = request->before;
        list_insert_before(end->next, &request->node);
    }
    if (lane->broken) {
        lane_end_list(lane, &lane->waiting, lane->last_error);
    } else if (lane->state == LANE_DOWN) {
        start(lane);
    } else if (lane->state == LANE_UP) {
        lane_tell_waiting(lane);
        if (connection_send(&lane->connection) != MC_OK)
            lose(lane, MC_ERR_CONNECTION_LOST);
    }
    return true;
}

/* The driver gives the lock back for a moment only, again and again; `turn` keeps it from overtaking who waits. */
static void take(struct lane *lane) {
    pthread_mutex_lock(&lane->turn);
    pthread_mutex_lock(&lane->lock);
    pthread_mutex_unlock(&lane->turn);
    if (take_in(lane))
        arm(lane);
}

/* Who submits looks for the lock after having put its requests there, and who gives the lock back looks for requests
 * afterwards: one of the two sees the other. */
static void give(struct lane *lane) {
    do {
        pthread_mutex_unlock(&lane->lock);
        atomic_thread_fence(memory_order_seq_cst);
        if (atomic_load(&lane->incoming) == NULL || pthread_mutex_trylock(&lane->lock) != 0)
            return;
        if (take_in(lane))
            arm(lane);
    } while (true);
}

static void go_up(struct lane *lane) {
    struct lane_target *target = lane->target;

    lane->state = LANE_UP;
    lane->retry_delay = 0;
    target->failure = MC_OK;
    target->up++;
    if (target->counters != NULL)
        atomic_fetch_add_explicit(&target->counters->connects, 1, memory_order_relaxed);
    lane->connection.stream.fd = lane->fd;
    if (!target->known) {
        memcpy(target->incarnation, lane->handshake.other.incarnation, sizeof(target->incarnation));
        target->known = true;
    }
    lane_tell_waiting(lane);
}

static int32_t step_connecting(struct lane *lane) {
    struct lane_target *target = lane->target;
    const uint8_t *expected = target->known ? target->incarnation : NULL;
    struct pollfd probe = {.fd = lane->fd, .events = POLLOUT};
    int32_t status;

    if (poll(&probe, 1, 0) == 0)
        return MC_OK;
    if (socket_error(lane->fd) != 0)
        return attempt_failed(lane);
    status = handshake_begin(&lane->handshake, target->self, AUTH_CLIENT, expected);
    if (status == MC_OK)
        lane->state = LANE_GREETING;
    return status;
}

static int32_t step_greeting(struct lane *lane) {
    const struct lane_target *target = lane->target;
    int32_t status = handshake_step(&lane->handshake, lane->fd);

    if (status == MC_ERR_PENDING)
        return MC_OK;
    if (status == MC_OK && target->known &&
        memcmp(lane->handshake.other.incarnation, target->incarnation, sizeof(target->incarnation)) != 0)
        status = MC_ERR_STALE_PEER;
    if (status == MC_OK)
        go_up(lane);
    return status;
}

/* Sends and receives, and lets what others submit meanwhile go out in between. */
static int32_t step_up(struct lane *lane) {
    struct connection *connection = &lane->connection;
    uint64_t limit = connection->received.bytes + RECEIVE_BUDGET, before;
    int32_t status = connection_send(connection);

    do {
        before = connection->received.bytes;
        if (status == MC_OK)
            status = connection_receive(connection, RECEIVE_PIECE);
        take_in(lane);
        if (lane->broken || lane->state != LANE_UP) /* lost when that was sent */
            return lane->broken ? lane->last_error : MC_OK;
        if (status == MC_OK)
            status = connection_send(connection); /* what the replies have made room for, too */
    } while (status == MC_OK && connection->received.bytes - before >= RECEIVE_PIECE &&
             connection->received.bytes < limit);
    return status;
}

/* Does what can be done without waiting. With the lock held, by the driver or the loop. */
static void step(struct lane *lane) {
    int32_t status = MC_OK;

    if (lane->broken) {
        go_down(lane, lane->last_error);
        return;
    }
    if (lane->state == LANE_CONNECTING)
        status = step_connecting(lane);
    if (status == MC_OK && lane->state == LANE_GREETING)
        status = step_greeting(lane);
    if (status == MC_OK && lane->state == LANE_UP)
        status = step_up(lane);
    if (status == MC_OK && lane->state != LANE_UP && lane->state != LANE_DOWN && clock_now() >= lane->attempt_deadline)
        status = attempt_failed(lane);
    if (status != MC_OK)
        go_down(lane, status);
}

static void on_ready(struct loop_watch *watch, uint32_t events) {
    struct lane *lane = list_entry(watch, struct lane, watch);

    (void)events;
    take(lane);
    if (lane->driven) {
        unwatch(lane); /* a hang-up: the driver sees it too, and the loop must not spin on it */
    } else if (lane->fd == watch->fd) {
        lane->looked_at = lane->on_ring;
        stream_heed(&lane->connection.stream);
        step(lane);
        arm(lane);
    }
    give(lane);
}

/* Only lanes on rings are looked at. */
static bool on_look(struct loop_watch *watch, bool last) {
    struct lane *lane = list_entry(watch, struct lane, watch);
    bool found = false;

    take(lane);
    if (!lane->driven && lane->state == LANE_UP && !lane->broken) {
        found = !may_rest(lane, last && !is_idle(lane));
        lane->looked_at = found || !last;
        if (found) {
            step(lane);
            arm(lane);
        }
    } else if (last) {
        lane->looked_at = false;
    }
    give(lane);
    return found;
}

static void attend(struct loop_task *task) {
    struct lane *lane = list_entry(task, struct lane, attend);

    take(lane);
    if (!lane->driven && lane->state == LANE_UP) {
        step(lane);
        arm(lane);
    }
    give(lane);
}

static void on_timer(struct loop_timer *timer, uint64_t now) {
    struct lane *lane = list_entry(timer, struct lane, timer);

    (void)now;
    take(lane);
    if (!lane->driven && (lane->state == LANE_CONNECTING || lane->state == LANE_GREETING)) {
        step(lane);
        arm(lane);
    }
    give(lane);
}

/* ---- The interface ---- */

uint64_t lane_outstanding(struct lane *lane) {
    return atomic_load_explicit(&lane->outstanding, memory_order_relaxed);
}

void lane_init(struct lane *lane, struct lane_target *target) {
    memset(lane, 0, sizeof(*lane));
    pthread_mutex_init(&lane->turn, NULL);
    pthread_mutex_init(&lane->lock, NULL);
    lane->target = target;
    lane->fd = -1;
    inflight_init(&lane->inflight);
    lane->watch.ready = on_ready;
    lane->watch.fd = -1;
    loop_timer_init(&lane->timer, on_timer);
    lane->attend.run = attend;
    list_init(&lane->attend.node);
    list_init(&lane->waiting);
    list_init(&lane->told);
    connection_init(&lane->connection, &lane_reply_ops, stream_of_socket(-1));
}

void lane_adopt(struct lane *lane, struct stream stream) {
    take(lane);
    lane->on_ring = true;
    lane->state = LANE_UP;
    lane->fd = stream.fd;
    lane->watch.look = on_look;
    connection_init(&lane->connection, &lane_reply_ops, stream);
    arm(lane);
    lane->usable = true;
    give(lane);
}

bool lane_usable(struct lane *lane) {
    return atomic_load_explicit(&lane->usable, memory_order_relaxed);
}

void lane_finish(struct lane *lane) {
    lane_break(lane, MC_ERR_CLOSED);
    loop_timer_cancel_sync(lane->target->loop, &lane->timer);
    loop_unpost_sync(lane->target->loop, &lane->attend);
    loop_remove_sync(lane->target->loop, &lane->watch);
    inflight_destroy(&lane->inflight);
    pthread_mutex_destroy(&lane->lock);
    pthread_mutex_destroy(&lane->turn);
}

/* Leaves the request for whoever has the lock. */
static void put(struct lane *lane, struct lane_request *request) {
    list_init(&request->node);
    list_init(&request->out.node);
    request->out.done = NULL;
    request->reply_length = 0;
    request->begun = false;
    request->id = 0;
    lane->outstanding += lane_weigh(request);
    request->before = atomic_load(&lane->incoming);
    while (!atomic_compare_exchange_weak(&lane->incoming, &request->before, request))
        ;
}

void lane_submit(struct lane *lane, struct list *requests, bool attended) {
    struct list *node, *after;

    list_each (node, after, requests) {
        list_remove(node);
        put(lane, list_entry(node, struct lane_request, node));
    }
    atomic_thread_fence(memory_order_seq_cst);
    if (pthread_mutex_trylock(&lane->lock) != 0)
        return;
    if (take_in(lane) && !attended)
        arm(lane);
    give(lane);
}

void lane_leave(struct lane *lane) {
    if (lane->driven) /* who drives leaves it so when it ends */
        return;
    take(lane);
    arm(lane);
    give(lane);
}

/* With the lock held. */
static void cancel(struct lane *lane, struct lane_request *request, int32_t status) {
    struct inflight_slot *slot = inflight_find(&lane->inflight, request->id);

    if (list_empty(&request->node))
        return; /* terminal already */
    if (connection_withdraw(&lane->connection, &request->out) != MC_OK) {
        lose(lane, MC_ERR_CONNECTION_LOST);
        return;
    }
    if (lane->connection.within && lane->current == request->id)
        connection_skip_payload(&lane->connection);
    if (slot != NULL && request->out.sent == 0) { /* the peer has heard nothing of it */
        request->begun = false;
        inflight_release(&lane->inflight, slot);
    } else if (slot != NULL) {
        slot->request = NULL;
    }
    lane_end_request(lane, request, status);
}

void lane_cancel(struct lane *lane, struct lane_request *const *requests, size_t count, int32_t status) {
    take(lane);
    for (size_t i = 0; i < count; i++)
        cancel(lane, requests[i], status);
    if (lane->state == LANE_UP && !lane->broken)
        lane_tell_waiting(lane);
    arm(lane);
    give(lane);
}

void lane_break(struct lane *lane, int32_t status) {
    take(lane);
    if (lane->state != LANE_DOWN)
        lose(lane, status);
    give(lane);
}

bool lane_drive_begin(struct lane *lane) {
    bool mine;

    if (lane->driven)
        return false;
    take(lane);
    mine = !lane->driven;
    if (mine) {
        lane->driven = true;
        arm(lane);
    }
    give(lane);
    return mine;
}

void lane_drive_end(struct lane *lane) {
    take(lane);
    lane->driven = false;
    if (lane->broken)
        go_down(lane, lane->last_error);
    arm(lane);
    give(lane);
}

bool lane_look(struct lane *lane) {
    const struct connection *connection = &lane->connection;
    bool moved = false;

    take(lane);
    if (lane->state == LANE_UP && !(lane->on_ring && !lane->broken && may_rest(lane, false))) {
        uint64_t before = connection->received.bytes + connection->sent.bytes;

        step(lane);
        moved = lane->state != LANE_UP || connection->received.bytes + connection->sent.bytes != before;
    }
    give(lane);
    return moved;
}

int lane_poll_fd(struct lane *lane, short *ret_events) {
    int fd;

    take(lane);
    fd = lane->fd;
    *ret_events = (short)stream_events(&lane->connection.stream, lane->state != LANE_CONNECTING, has_to_send(lane));
    give(lane);
    return fd;
}

bool lane_rest(struct lane *lane) {
    bool rests;

    take(lane);
    rests = lane->state != LANE_UP || may_rest(lane, true);
    give(lane);
    return rests;
}

void lane_progress(struct lane *lane, bool ready) {
    take(lane);
    if (ready && lane->state == LANE_UP)
        stream_heed(&lane->connection.stream);
    step(lane);
    give(lane);
}

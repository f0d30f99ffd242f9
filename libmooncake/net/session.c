/* net/session.c - the server's end of one connection.
 *
 * Requests are served in the order of arrival, inline; replies are queued and leave together, so that acknowledgements
 * of many small requests share a system call. Replies that come later leave together too, when the loop comes round.
 * A client that asks faster than it reads is not read from until its replies have left: what it can make the server
 * hold is bounded.
 *
 * A session on a ring is the same without a preface. Its watch is looked at, and rests when the loop has had enough:
 * only then the peer rings for it.
 */
#include "net/session.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "os/address.h"
#include "os/socket.h"

#define PREFACE_TIME (5 * CLOCK_SECOND)
#define STALL_BYTES (1u << 20) /* of one frame, that must move within the stall time */
#define EXCHANGES_MAX 4096u
#define RECEIVE_BUDGET (4u << 20)

/* ---- Exchanges ---- */

static void exchange_free(struct exchange *exchange) {
    if (exchange->pending)
        exchange->session->pending_count--;
    if (exchange->service != NULL && exchange->service->ended != NULL)
        exchange->service->ended(exchange);
    list_remove(&exchange->node);
    exchange->session->exchange_count--;
    free(exchange->body);
    free(exchange);
}

static void reply_left(struct connection *connection, struct outgoing *out);

static void queue_reply(struct exchange *exchange, int32_t status) {
    struct frame *reply = &exchange->reply;

    exchange->answered = true;
    reply->type = exchange->request.type | FRAME_REPLY;
    reply->id = exchange->request.id;
    reply->status = status;
    if (status != MC_OK)
        reply->payload = reply->flags = 0;
    reply->length = reply->payload;
    /* A client that takes no replies doesn't get its requests kept as well. */
    if (reply->payload == 0) {
        free(exchange->body);
        exchange->body = NULL;
    }
    exchange->out.done = reply_left;
    connection_queue(&exchange->session->connection, &exchange->out, reply, exchange->reply_payload);
}

/* A reply has gone to the kernel: a guarded READ is looked at once more, everything else has ended. */
static void reply_left(struct connection *connection, struct outgoing *out) {
    struct exchange *exchange = list_entry(out, struct exchange, out);

    (void)connection;
    if ((exchange->reply.flags & FRAME_FLAG_MORE) != 0) {
        int32_t status = exchange->service->more(exchange);

        exchange->reply.flags = 0;
        exchange->reply.payload = 0;
        exchange->reply.payload_crc = 0;
        queue_reply(exchange, status);
        return;
    }
    exchange_free(exchange);
}

static int32_t request_begin(struct connection *connection, const struct frame *frame, struct sink *ret_sink) {
    struct session *session = list_entry(connection, struct session, connection);
    struct exchange *exchange = calloc(1, sizeof(*exchange));

    if (exchange == NULL)
        return MC_ERR_NO_MEMORY;
    if ((frame->type & FRAME_REPLY) != 0) {
        free(exchange);
        return MC_ERR_PROTOCOL;
    }
    exchange->request = *frame;
    exchange->session = session;
    exchange->client = session->handshake.other.incarnation;
    list_init(&exchange->out.node);
    list_append(&session->exchanges, &exchange->node);
    session->exchange_count++;
    session->current = exchange;
    exchange->service = session->options.find_service(session->options.context, frame->type);
    if (exchange->service != NULL && (frame->flags & ~exchange->service->flags) != 0)
        exchange->service = NULL; /* what hasn't begun isn't ended either */
    if (exchange->service == NULL)
        exchange->status = MC_ERR_NOT_SUPPORTED;
    else
        exchange->service->begin(exchange);
    if (exchange->status == MC_OK)
        *ret_sink = exchange->sink;
    return MC_OK;
}

static int32_t request_end(struct connection *connection) {
    struct session *session = list_entry(connection, struct session, connection);
    struct exchange *exchange = session->current;
    int32_t status = exchange->status;

    session->current = NULL;
    if (status == MC_OK)
        status = exchange->service->serve(exchange);
    if (status != MC_ERR_PENDING) {
        queue_reply(exchange, status);
    } else if (!exchange->answered) {
        exchange->pending = true;
        session->pending_count++;
    }
    return MC_OK;
}

void exchange_finish(struct exchange *exchange, int32_t status) {
    struct session *session = exchange->session;

    if (session->ending || exchange->answered)
        return;
    if (exchange->pending)
        session->pending_count--;
    exchange->pending = false;
    queue_reply(exchange, status);
    if (!session->stepping)
        loop_post(session->options.loop, &session->flush);
}

/* The exchange goes on, without its service. */
static void drop_service(struct session *session, struct exchange *exchange) {
    if (exchange == session->current) { /* the rest of its payload goes nowhere */
        connection_skip_payload(&session->connection);
        exchange->status = MC_ERR_CLOSED;
    } else {
        exchange_finish(exchange, MC_ERR_CLOSED);
    }
    if (exchange->service->ended != NULL)
        exchange->service->ended(exchange);
    exchange->service = NULL;
}

void session_drop_service(struct session *session, const struct service *service) {
    struct list *node, *after;

    list_each (node, after, &session->exchanges) {
        struct exchange *exchange = list_entry(node, struct exchange, node);

        if (exchange->service == service)
            drop_service(session, exchange);
    }
}

static const struct connection_ops request_ops = {request_begin, request_end};

void exchange_take_body(struct exchange *exchange) {
    if (exchange->request.payload == 0)
        return;
    exchange->body = malloc(exchange->request.payload);
    if (exchange->body == NULL)
        exchange->status = MC_ERR_NO_MEMORY;
    else
        exchange->sink = (struct sink){.bytes = exchange->body, .length = exchange->request.payload};
}

uint8_t *exchange_reply_body(struct exchange *exchange, uint32_t length) {
    uint8_t *body = malloc(length > 0 ? length : 1);

    if (body == NULL)
        return NULL;
    free(exchange->body);
    exchange->body = body;
    exchange->reply_payload = body;
    exchange->reply.payload = length;
    return body;
}

/* ---- The session ---- */

static bool choked(const struct session *session) {
    return session->exchange_count >= EXCHANGES_MAX;
}

/* A frame is coming, and this end is ready for it. */
static bool is_receiving(const struct session *session) {
    return connection_receiving(&session->connection) && !choked(session);
}

static bool is_sending(const struct session *session) {
    return connection_sending(&session->connection);
}

static void note(struct stall *stall, bool busy, struct progress now) {
    stall->busy = busy;
    stall->then = now;
}

/* Is the same frame under way as when it was noted, and has it crept at best? It may take as long as it does, but not
 * drop by drop. */
static bool has_stalled(const struct stall *stall, bool busy, struct progress now) {
    return stall->busy && busy && now.frames == stall->then.frames && now.bytes - stall->then.bytes < STALL_BYTES;
}

/* Watches for what is needed next, and for a stall. */
static void arm(struct session *session) {
    bool sending =
        session->greeting ? handshake_sending(&session->handshake) : connection_sending(&session->connection);
    uint32_t events = stream_events(&session->connection.stream, !choked(session), sending);

    /* What is pending may be so for long: that its client has gone must be seen all the same. */
    if (choked(session) && session->pending_count > 0)
        events |= (uint32_t)EPOLLRDHUP;

    if (events != session->armed)
        loop_change(session->options.loop, &session->watch, events);
    session->armed = events;
    if (!session->greeting && (is_receiving(session) || is_sending(session)) && session->timer.when == CLOCK_NEVER) {
        note(&session->receiving, is_receiving(session), session->connection.received);
        note(&session->sending, is_sending(session), session->connection.sent);
        loop_timer_set(session->options.loop, &session->timer, clock_after(clock_now(), session->options.stall_time));
    }
}

static int32_t greet(struct session *session) {
    int32_t status = handshake_step(&session->handshake, session->watch.fd);

    if (status == MC_ERR_PENDING)
        return MC_OK;
    if (status == MC_OK)
        status = session->options.greeted(session->options.context, session);
    if (status != MC_OK)
        return status;
    session->greeting = false;
    loop_timer_cancel_sync(session->options.loop, &session->timer);
    return MC_OK;
}

/* The peer has gone, and left no frame unfinished in either direction. */
static bool ended_cleanly(const struct session *session, int32_t status) {
    return status == MC_ERR_CONNECTION_LOST && !connection_receiving(&session->connection) && !is_sending(session);
}

/* Ends a session that an operator should hear of: at most a line a second, for strangers may come as they like. */
static void end_badly(struct session *session, enum session_end end, int32_t status) {
    struct address address = {.length = sizeof(address.storage)};
    bool of_note = status == MC_ERR_AUTHENTICATION || status == MC_ERR_TOO_MANY;
    char text[ADDRESS_TEXT_MAX] = "this host";

    if (!session->on_ring && getpeername(session->watch.fd, (struct sockaddr *)&address.storage, &address.length) == 0)
        address_format(&address, text);
    log_sometimes(of_note ? MC_LOG_WARNING : MC_LOG_INFO, "a connection from %s is %s: %s", text,
                  end == SESSION_REFUSED ? "refused" : "closed", status_text(status));
    session_end(session, end);
}

/* The connection can't go on. */
static void fail(struct session *session, bool was_greeting, int32_t status) {
    if (was_greeting && session->greeting)
        end_badly(session, SESSION_REFUSED, status);
    else if (ended_cleanly(session, status))
        session_end(session, SESSION_CLOSED);
    else
        end_badly(session, SESSION_BROKEN, status);
}

/* Does what can be done without waiting, unless `status` says that it has ended. Is the session still there? */
static bool step(struct session *session, int32_t status) {
    bool was_greeting = session->greeting;

    session->stepping = true;
    if (status == MC_OK && session->greeting)
        status = greet(session);
    if (status == MC_OK && !session->greeting)
        status = connection_send(&session->connection);
    if (status == MC_OK && !session->greeting && !choked(session))
        status = connection_receive(&session->connection, RECEIVE_BUDGET);
    if (status == MC_OK && !session->greeting)
        status = connection_send(&session->connection);
    session->stepping = false;
    if (status == MC_OK)
        arm(session);
    else
        fail(session, was_greeting, status);
    return status == MC_OK;
}

static void on_ready(struct loop_watch *watch, uint32_t events) {
    struct session *session = list_entry(watch, struct session, watch);

    stream_heed(&session->connection.stream);
    step(session, choked(session) && (events & EPOLLRDHUP) != 0 ? MC_ERR_CONNECTION_LOST : MC_OK);
}

/* Is there nothing to do, by a look at memory? `last`: then the descriptor will say when there is. */
static bool may_rest(const struct session *session, bool last) {
    const struct stream *stream = &session->connection.stream;
    bool receiving = !choked(session), sending = is_sending(session);

    return !stream_peek(stream, receiving, sending) && (!last || stream_sleep(stream, receiving, sending));
}

static uint64_t moved(const struct session *session) {
    return session->connection.received.bytes + session->connection.sent.bytes;
}

/* A socket is tried, a ring is looked at first. */
static bool on_look(struct loop_watch *watch, bool last) {
    struct session *session = list_entry(watch, struct session, watch);
    uint64_t before = moved(session);

    if (session->on_ring ? may_rest(session, last) : last || session->greeting || choked(session))
        return false;
    return !step(session, MC_OK) || moved(session) != before;
}

/* Sends the replies that came later. A session that couldn't take more may be able to now: nobody rings for what its
 * ring has already. */
static void flush(struct loop_task *task) {
    struct session *session = list_entry(task, struct session, flush);
    int32_t status = MC_OK;

    if (!session->on_ring) {
        session->stepping = true;
        status = connection_send(&session->connection);
        session->stepping = false;
    } else if (!step(session, MC_OK)) {
        return;
    }
    if (status != MC_OK)
        session_end(session, SESSION_BROKEN);
    else if (!session->on_ring)
        arm(session);
    else if (!session->watch.hot && !may_rest(session, true))
        loop_post(session->options.loop, &session->flush);
}

static void on_timer(struct loop_timer *timer, uint64_t now) {
    struct session *session = list_entry(timer, struct session, timer);
    const struct connection *connection = &session->connection;

    (void)now;
    if (session->greeting)
        end_badly(session, SESSION_REFUSED, MC_ERR_TIMEOUT);
    else if (has_stalled(&session->receiving, is_receiving(session), connection->received) ||
             has_stalled(&session->sending, is_sending(session), connection->sent))
        end_badly(session, SESSION_BROKEN, MC_ERR_TIMEOUT);
    else
        arm(session);
}

/* A session on a stream, which isn't closed with it before it is in use. */
static struct session *session_new(const struct session_options *options, struct stream stream) {
    struct session *session = calloc(1, sizeof(*session));

    if (session == NULL)
        return NULL;
    session->options = *options;
    list_init(&session->exchanges);
    connection_init(&session->connection, &request_ops, stream);
    session->watch.ready = on_ready;
    if (stream_in_memory(&stream) || loop_busy_poll(options->loop) > 0)
        session->watch.look = on_look;
    session->watch.fd = stream.fd;
    session->armed = EPOLLIN;
    session->flush.run = flush;
    list_init(&session->flush.node);
    loop_timer_init(&session->timer, on_timer);
    return session;
}

int32_t session_start(const struct session_options *options, int fd, int32_t refusal, struct list *sessions) {
    struct session *session = session_new(options, stream_of_socket(fd));
    int32_t status;

    if (session == NULL) {
        socket_close(fd);
        return MC_ERR_NO_MEMORY;
    }
    session->greeting = true;
    status = handshake_begin(&session->handshake, options->self, AUTH_SERVER, NULL);
    handshake_refuse(&session->handshake, refusal);
    if (status == MC_OK)
        status = loop_add(options->loop, &session->watch, EPOLLIN);
    if (status != MC_OK) {
        socket_close(fd);
        free(session);
        return status;
    }
    loop_timer_set(options->loop, &session->timer, clock_after(clock_now(), PREFACE_TIME));
    list_append(sessions, &session->node);
    return MC_OK;
}

int32_t session_adopt(const struct session_options *options, struct stream stream, const uint8_t client[16],
                      struct list *sessions) {
    struct session *session = session_new(options, stream);
    int32_t status;

    if (session == NULL)
        return MC_ERR_NO_MEMORY;
    session->on_ring = true;
    memcpy(session->handshake.other.incarnation, client, 16);
    status = loop_add(options->loop, &session->watch, EPOLLIN);
    if (status == MC_OK) {
        status = options->greeted(options->context, session);
        if (status != MC_OK)
            loop_remove(options->loop, &session->watch);
    }
    if (status == MC_OK)
        list_append(sessions, &session->node);
    else
        free(session);
    return status;
}

void session_end(struct session *session, enum session_end end) {
    struct list *node, *after;

    session->ending = true;
    loop_timer_cancel_sync(session->options.loop, &session->timer);
    loop_unpost_sync(session->options.loop, &session->flush);
    loop_remove(session->options.loop, &session->watch);
    connection_clear(&session->connection);
    stream_close(&session->connection.stream);
    list_each (node, after, &session->exchanges)
        exchange_free(list_entry(node, struct exchange, node));
    list_remove(&session->node);
    session->options.ended(session->options.context, session, end);
    free(session);
}

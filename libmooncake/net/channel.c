/* net/channel.c - all lanes to one peer.
 *
 * The first lane connects when the channel is opened and learns who answers; the others, when they are first used. To a
 * peer on the same host there may be one more, through shared memory, which carries calls while it is there.
 */
#include "net/channel.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"
#include "wire/message.h"

/* How long a driver sleeps at most before it looks whether somebody else has set its event (a cancel, another lane). */
#define GLANCE_MS 20

/* How many lanes are looked at one by one; of more, poll says at once which have something. */
#define LOOKED_AT 2u

/* How long a driver looks at its lanes before it polls them all the same, so that it sees a ring's other side die. */
#define LOOK_TIME (100 * CLOCK_MILLISECOND / 1000)

struct channel {
    struct lane_target target;
    struct address addresses[CHANNEL_ADDRESSES_MAX];
    char address[ADDRESS_TEXT_MAX];
    struct lane ring; /* usable or not; for calls only */
    uint32_t lane_count;
    struct lane lanes[];
};

/* A call that its caller waits for. */
struct call {
    struct lane_request request;
    struct event done;
    int32_t status;
};

static void call_done(struct lane_request *request, int32_t status) {
    struct call *call = list_entry(request, struct call, request);

    call->status = status;
    event_set(&call->done);
}

/* What a driver has at hand. */
struct drive {
    struct lane *const *lanes;
    size_t count;
    struct event *event;
    uint64_t spin_time;
    uint64_t awake_until;
    bool slept;
};

/* How long the driver looks at its lanes after something has moved. A ring isn't looked at where that was no use, and
 * else for long enough that the other side can wake up; a socket always, since asking it gives the other side the
 * processor. */
static uint64_t time_to_look(const struct drive *drive) {
    struct lane *lane = drive->lanes[0];
    uint64_t busy_poll = loop_busy_poll(lane->target->loop), time = loop_spin_time(lane->target->loop);

    if (drive->count != 1 || !lane->on_ring)
        return time;
    if (!spin_try(&lane->spin))
        return busy_poll;
    return time > busy_poll ? 2 * time : time;
}

/* What is learnt from it. */
static void learn(const struct drive *drive) {
    struct lane *lane = drive->lanes[0];

    if (drive->count == 1 && lane->on_ring && drive->spin_time > loop_busy_poll(lane->target->loop))
        spin_learn(&lane->spin, !drive->slept);
}

/* Looks at the lanes for a moment: an answer that comes at once finds this thread running. Has anything moved? */
static bool look(const struct drive *drive, uint64_t now) {
    uint64_t end = clock_after(now, LOOK_TIME);
    bool moved = false;

    if (drive->count > LOOKED_AT)
        return false;
    if (end > drive->awake_until)
        end = drive->awake_until;
    do
        for (size_t i = 0; i < drive->count; i++)
            moved = lane_look(drive->lanes[i]) || moved;
    while (!moved && !event_is_set(drive->event) && clock_now() < end);
    return moved;
}

/* Waits for the lanes' descriptors, at most `timeout_ms`; false if nothing was ready. Those that are, and after some
 * time the others, too, go on. */
static bool poll_lanes(struct drive *drive, int timeout_ms) {
    struct pollfd polled[LANES_DRIVEN_MAX];
    int ready;

    for (size_t i = 0; i < drive->count; i++)
        polled[i].fd = lane_poll_fd(drive->lanes[i], &polled[i].events);
    for (size_t i = 0; i < drive->count && timeout_ms > 0; i++)
        if (!lane_rest(drive->lanes[i])) { /* something came in between */
            lane_progress(drive->lanes[i], false);
            return true;
        }
    drive->slept = drive->slept || timeout_ms > 0;
    ready = poll(polled, drive->count, timeout_ms);
    for (size_t i = 0; i < drive->count; i++)
        if (polled[i].revents != 0 || (ready == 0 && timeout_ms > 0)) /* time passes for lanes that connect, too */
            lane_progress(drive->lanes[i], polled[i].revents != 0);
    return ready > 0;
}

/* Does the next thing until `deadline`. */
static void drive_on(struct drive *drive, uint64_t now, uint64_t deadline) {
    int timeout_ms = now < drive->awake_until ? 0 : clock_poll_ms(deadline, now, GLANCE_MS);

    if (look(drive, now) || (!event_is_set(drive->event) && poll_lanes(drive, timeout_ms)))
        drive->awake_until = clock_after(clock_now(), drive->spin_time);
}

bool lanes_drive(struct lane *const *lanes, size_t count, struct event *event, uint64_t deadline) {
    struct drive drive = {.lanes = lanes, .count = count, .event = event};
    uint64_t now = clock_now();
    size_t mine = 0;
    bool set;

    if (count > LANES_DRIVEN_MAX)
        return event_wait(event, deadline); /* the loop has them */
    while (mine < count && lane_drive_begin(lanes[mine]))
        mine++;
    if (mine < count || count == 0) {
        for (size_t i = 0; i < count; i++)
            i < mine ? lane_drive_end(lanes[i]) : lane_leave(lanes[i]);
        return event_wait(event, deadline);
    }
    drive.spin_time = time_to_look(&drive);
    drive.awake_until = clock_after(now, drive.spin_time);
    while (!(set = event_is_set(event)) && now < deadline) {
        drive_on(&drive, now, deadline);
        now = clock_now();
    }
    learn(&drive);
    while (mine > 0)
        lane_drive_end(lanes[--mine]);
    return set;
}

static int32_t call_on(struct lane *lane, struct call *call, uint64_t deadline) {
    struct list requests;

    event_init(&call->done);
    call->request.done = call_done;
    call->status = MC_ERR_INTERNAL;
    list_init(&requests);
    list_append(&requests, &call->request.node);
    lane_submit(lane, &requests, true);
    if (!lanes_drive(&lane, 1, &call->done, deadline)) {
        lane_cancel(lane, &(struct lane_request *){&call->request}, 1, MC_ERR_TIMEOUT);
        event_wait(&call->done, CLOCK_NEVER);
    }
    event_destroy(&call->done);
    return call->status;
}

/* The lane with the least to do; there is at least one. */
static struct lane *idlest(struct channel *channel) {
    struct lane *best = &channel->lanes[0];
    uint64_t least = UINT64_MAX;

    for (uint32_t i = 0; i < channel->lane_count && least > 0; i++) {
        struct lane *lane = &channel->lanes[i];
        uint64_t outstanding = lane_outstanding(lane);

        if (outstanding < least) {
            least = outstanding;
            best = lane;
        }
    }
    return best;
}

/* A peer on this host is called through the ring, and else over the idlest lane. */
static struct lane *lane_for_calls(struct channel *channel) {
    return lane_usable(&channel->ring) ? &channel->ring : idlest(channel);
}

int32_t channel_call(struct channel *channel, uint16_t type, const void *body, uint32_t length, uint64_t deadline,
                     void *reply, uint32_t reply_capacity, uint32_t *ret_reply_length) {
    struct call call = {.request = {
                            .frame = {.type = (uint16_t)(FRAME_CALL + type), .payload = length},
                            .payload = body,
                            .reply = reply,
                            .reply_capacity = reply_capacity,
                        }};
    int32_t status = call_on(lane_for_calls(channel), &call, deadline);

    if (status == MC_OK && ret_reply_length != NULL)
        *ret_reply_length = call.request.reply_length;
    return status;
}

static void begun_done(struct lane_request *request, int32_t status) {
    struct channel_call *call = list_entry(request, struct channel_call, request);

    call->reply_length = status == MC_OK ? request->reply_length : 0;
    call->done(call, status);
}

void channel_begin(struct channel *channel, struct channel_call *call, uint16_t type, const void *body, uint32_t length,
                   void *reply, uint32_t reply_capacity) {
    struct lane *lane = lane_for_calls(channel);
    struct list requests;

    call->lane = lane;
    call->request = (struct lane_request){
        .frame = {.type = (uint16_t)(FRAME_CALL + type), .payload = length},
        .payload = body,
        .reply = reply,
        .reply_capacity = reply_capacity,
        .done = begun_done,
    };
    list_init(&requests);
    list_append(&requests, &call->request.node);
    lane_submit(lane, &requests, false); /* after which the call may be gone */
}

void channel_cancel(struct channel_call *call, int32_t status) {
    lane_cancel(call->lane, &(struct lane_request *){&call->request}, 1, status);
}

static int32_t resolve(struct channel *channel, struct mc_error *error) {
    struct address_text parts;
    int32_t status = address_parse(channel->address, &parts, error);

    if (status != MC_OK)
        return status;
    if (parts.port <= 0)
        return status_set(error, MC_ERR_ADDRESS, 0, "\"%s\" has no port to connect to", channel->address);
    return address_resolve(parts.host, (uint16_t)parts.port, channel->addresses, CHANNEL_ADDRESSES_MAX,
                           &channel->target.address_count, error);
}

int32_t channel_new(const char *address, const struct channel_options *options, struct channel **ret_channel,
                    struct mc_error *error) {
    uint32_t lanes = options->lanes;
    struct channel *channel = NULL;
    int32_t status;

    if (strnlen(address, ADDRESS_TEXT_MAX) >= ADDRESS_TEXT_MAX)
        return status_set(error, MC_ERR_ADDRESS, 0, "the address is longer than %d bytes", ADDRESS_TEXT_MAX - 1);
    channel = calloc(1, sizeof(*channel) + lanes * sizeof(channel->lanes[0]));
    if (channel == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "no memory for a connection to %s", address);
    text_copy(channel->address, sizeof(channel->address), address);
    channel->target = (struct lane_target){
        .loop = options->loop,
        .self = options->self,
        .addresses = channel->addresses,
        .connect_timeout = options->connect_timeout,
        .counters = options->counters,
    };
    status = resolve(channel, error);
    if (status != MC_OK) {
        free(channel);
        return status;
    }
    channel->lane_count = lanes;
    lane_init(&channel->ring, &channel->target);
    for (uint32_t i = 0; i < lanes; i++)
        lane_init(&channel->lanes[i], &channel->target);
    *ret_channel = channel;
    return MC_OK;
}

int32_t channel_greet(struct channel *channel, struct mc_error *error) {
    uint64_t deadline = clock_after(clock_now(), channel->target.connect_timeout);
    int32_t status = channel_call(channel, MESSAGE_PING, NULL, 0, deadline, NULL, 0, NULL);

    if (status == MC_ERR_TIMEOUT || (status == MC_ERR_UNREACHABLE && clock_now() >= deadline))
        return status_set(error, MC_ERR_UNREACHABLE, 0, "%s: no answer within %llu ms", channel->address,
                          channel->target.connect_timeout / CLOCK_MILLISECOND);
    if (status != MC_OK)
        status_set(error, status, 0, "%s: %s", channel->address, status_text(status));
    return status;
}

void channel_adopt(struct channel *channel, struct ring *ring) {
    lane_adopt(&channel->ring, stream_of_ring(ring));
}

bool channel_has_ring(struct channel *channel) {
    return lane_usable(&channel->ring);
}

size_t channel_lanes(struct channel *channel, struct lane *lanes[CHANNEL_LANES_MAX]) {
    for (uint32_t i = 0; i < channel->lane_count; i++)
        lanes[i] = &channel->lanes[i];
    return channel->lane_count;
}

void channel_break(struct channel *channel, int32_t status) {
    lane_break(&channel->ring, status);
    for (uint32_t i = 0; i < channel->lane_count; i++)
        lane_break(&channel->lanes[i], status);
}

struct channel *channel_close(struct channel *channel) {
    if (channel == NULL)
        return NULL;
    lane_finish(&channel->ring);
    for (uint32_t i = 0; i < channel->lane_count; i++)
        lane_finish(&channel->lanes[i]);
    free(channel);
    return NULL;
}

int32_t channel_failure(struct channel *channel) {
    return channel->target.up > 0 ? MC_OK : channel->target.failure;
}

const uint8_t *channel_incarnation(const struct channel *channel) {
    return channel->target.incarnation;
}

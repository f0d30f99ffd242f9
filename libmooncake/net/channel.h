/* net/channel.h - all lanes to one peer, and calls over them.
 *
 * Owns the lanes and the peer's addresses. A channel keeps to one incarnation: the first that answered.
 *
 * Threads: any, but for channel_close.
 */
#ifndef MC_NET_CHANNEL_H
#define MC_NET_CHANNEL_H

#include <stddef.h>
#include <stdint.h>

#include "net/lane.h"
#include "os/event.h"

#define CHANNEL_LANES_MAX 16u
#define CHANNEL_ADDRESSES_MAX 8u

struct channel;

struct channel_options {
    struct loop *loop;
    const struct identity *self;
    uint64_t connect_timeout;
    uint32_t lanes;
    struct lane_counters *counters; /* outlive the channel; NULL: none */
};

/* Resolves "host:port". Waits for the resolver only. MC_ERR_ADDRESS, MC_ERR_NAME_NOT_FOUND, MC_ERR_NO_MEMORY. */
int32_t channel_new(const char *address, const struct channel_options *options, struct channel **ret_channel,
                    struct mc_error *error);

/* Connects the first lane and learns the peer's incarnation; before any other use of the channel. Waits at most
 * connect_timeout. MC_ERR_UNREACHABLE, MC_ERR_AUTHENTICATION, MC_ERR_VERSION, …, with the address in the words. */
int32_t channel_greet(struct channel *channel, struct mc_error *error);

/* Ends everything in flight with MC_ERR_CLOSED and frees the channel. Nobody else may use it. NULL is fine; returns
 * NULL. */
struct channel *channel_close(struct channel *channel);

/* From now on calls go through the ring, whose other side is the same peer's; once, and the ring is the channel's. When
 * it is lost, its calls end with MC_ERR_CONNECTION_LOST, and later ones take the other lanes. */
void channel_adopt(struct channel *channel, struct ring *ring);
bool channel_has_ring(struct channel *channel);

/* Ends everything in flight with `status`; the channel stays usable, without its ring. */
void channel_break(struct channel *channel, int32_t status);

/* Why no lane is connected: the last loss or failed attempt, until one is connected again. MC_OK where one is, or none
 * was needed yet. A glance; the next request tries again. */
int32_t channel_failure(struct channel *channel);

const uint8_t *channel_incarnation(const struct channel *channel);

/* Stores the channel's lanes, at most CHANNEL_LANES_MAX; how many. */
size_t channel_lanes(struct channel *channel, struct lane *lanes[CHANNEL_LANES_MAX]);

/* Calls message `type` with `length` packed bytes, and waits for the reply, driving the lane. The reply's body goes to
 * reply[0, reply_capacity), its length (cut there) to *ret_reply_length. The peer's status, or MC_ERR_TIMEOUT at
 * `deadline` and what else lanes answer. */
int32_t channel_call(struct channel *channel, uint16_t type, const void *body, uint32_t length, uint64_t deadline,
                     void *reply, uint32_t reply_capacity, uint32_t *ret_reply_length);

/* A call that goes on by itself; embedded in its owner, who keeps it until `done`. */
struct channel_call {
    /* Terminal, with what channel_call would return; the call may be freed or used again at once. On the loop's thread,
     * or that of whoever drives, breaks or closes the channel, or begins or cancels calls, with a lane's lock held: it
     * must not call into the channel. */
    void (*done)(struct channel_call *call, int32_t status);
    uint32_t reply_length; /* after MC_OK: of the reply's body, cut at reply_capacity */
    /* The channel's. */
    struct lane *lane;
    struct lane_request request;
};

/* As channel_call, without waiting; the loop drives. Body and reply stay in place until `done`, which may be called
 * before the return. No deadline: whoever needs one cancels. */
void channel_begin(struct channel *channel, struct channel_call *call, uint16_t type, const void *body, uint32_t length,
                   void *reply, uint32_t reply_capacity);

/* Ends a call that was begun, with `status` unless it has ended. On return `done` was called, and nothing touches body
 * and reply. */
void channel_cancel(struct channel_call *call, int32_t status);

#define LANES_DRIVEN_MAX 16u

/* Waits until `event` is set or the deadline (false), driving the lanes meanwhile; or leaving them to the loop, if
 * somebody else drives one of them or there are more than LANES_DRIVEN_MAX. */
bool lanes_drive(struct lane *const *lanes, size_t count, struct event *event, uint64_t deadline);

#endif

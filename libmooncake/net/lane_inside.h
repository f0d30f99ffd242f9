/* net/lane_inside.h - what the two halves of a lane have in common: its connection (lane.c) and its requests
 * (lane_requests.c). With the lane's lock held. */
#ifndef MC_NET_LANE_INSIDE_H
#define MC_NET_LANE_INSIDE_H

#include "net/lane.h"

/* What a request counts for when a lane is chosen. */
uint64_t lane_weigh(const struct lane_request *request);

/* The request is terminal, or all of a list are. They may not be touched afterwards. */
void lane_end_request(struct lane *lane, struct lane_request *request, int32_t status);
void lane_end_list(struct lane *lane, struct list *requests, int32_t status);

/* Hands over the requests that wait, in their order, as far as the window for READs goes: what the peer was told it
 * sends, also after it was given up. The connection is up. */
void lane_tell_waiting(struct lane *lane);

extern const struct connection_ops lane_reply_ops;

#endif

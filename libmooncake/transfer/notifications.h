/* transfer/notifications.h - the notifications that an engine has received and nobody has taken yet.
 *
 * Owns a bounded queue. They are delivered on the loop's thread, whether or not anybody polls; taken from any thread.
 */
#ifndef MC_TRANSFER_NOTIFICATIONS_H
#define MC_TRANSFER_NOTIFICATIONS_H

#include <mooncake/transfer.h>

#include "net/server.h"

struct notifications;

struct notifications *notifications_new(uint32_t capacity);

/* Registers the service, which lives as long as the notifications. */
void notifications_serve(struct notifications *notifications, struct server *server);

/* Everybody who waits, or will, is told MC_ERR_CLOSED; and no longer, if `closed` is false. */
void notifications_close(struct notifications *notifications, bool closed);
struct notifications *notifications_free(struct notifications *notifications); /* NULL is fine; returns NULL */

/* How many were received since the beginning, and how many refused because the queue was full. */
void notifications_count(struct notifications *notifications, uint64_t *ret_received, uint64_t *ret_overflowed);

/* As mc_engine_notification_fd. */
int notifications_fd(struct notifications *notifications);

/* As mc_engine_receive; `deadline` in clock_now's time. */
int32_t notifications_take(struct notifications *notifications, uint64_t deadline,
                           struct mc_notification **ret_notification);

#endif

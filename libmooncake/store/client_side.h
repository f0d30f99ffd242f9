/* store/client_side.h - a client at work: its core, the lock around it, the segments it reaches, and its conversation
 * behind the scenes.
 *
 * Threads: any.
 */
#ifndef MC_STORE_CLIENT_SIDE_H
#define MC_STORE_CLIENT_SIDE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "store/attachment.h"
#include "store/client/client.h"
#include "store/tender.h"

struct client_side {
    struct attacher attacher;
    struct master_link *link;
    struct chores *chores;
    struct chore touch;   /* makes page tables of mapped segments */
    pthread_mutex_t lock; /* of the core, and of `dropped` */
    pthread_cond_t changed;
    struct client *core;
    struct list dropped; /* attachments that the core has let go */
    atomic_bool closing;
    uint64_t heard;        /* when the master answered last; 0: it doesn't since */
    struct list attaching; /* segments that threads are attaching; one thread each */
    struct tender tender;
};

struct client_side_options {
    struct engine *engine; /* outlives the client */
    struct master_link *link;
    struct chores *chores;
    struct owners *owners; /* of this process */
    struct store_timing timing;
    uint64_t stock_bytes;
    uint32_t cached;
};

int32_t client_side_open(struct client_side *side, const struct client_side_options *options);

/* From now on operations end with MC_ERR_CLOSED, those under way as soon as they can. */
void client_side_stop(struct client_side *side);

/* A segment of this process is no more: lets its memory go, as soon as no operation is in it (or else later). On the
 * chores' thread. */
void client_side_lose(struct client_side *side, const struct message_id *segment);

/* Segments have come: the next put asks which there are. */
void client_side_look_again(struct client_side *side);

/* When no operation is under way: gives back what is reserved, and waits until `deadline` for what is unsettled. */
void client_side_retire(struct client_side *side, uint64_t deadline);

/* The master link is broken, nobody uses the client any more. Not on the loop's thread. */
void client_side_close(struct client_side *side);

/* Waits until the master has answered with its epoch. False: not by `deadline`. */
bool client_side_await(struct client_side *side, uint64_t deadline);

/* Has the master answered lately? */
bool client_side_healthy(struct client_side *side);

/* Does what the operation needs until it is done, but for copying. CLIENT_DONE, CLIENT_READ or CLIENT_WRITE: then the
 * caller copies and calls again. */
enum client_need client_side_run(struct client_side *side, struct client_op *op);

/* Segments that are kept while objects in them are read. */
#define CLIENT_SIDE_HELD 4u

struct client_side_hits {
    struct client_hit *hits; /* of each item; segment NULL: not found */
    struct attachment *held[CLIENT_SIDE_HELD];
    uint32_t held_count;
};

/* Finds the items of a get that can be read at once (client_find), whose key, hash and capacity are set. */
void client_side_find(struct client_side *side, const struct client_item *items, size_t count,
                      struct client_side_hits *hits);
void client_side_let_go(struct client_side_hits *hits);

void client_side_begin(struct client_side *side, struct client_op *op, enum client_kind kind, struct client_item *items,
                       size_t count, const struct client_put_options *options, uint64_t deadline);
/* Gives back the places of an item between the two halves of a put. */
void client_side_give_back(struct client_side *side, struct client_item *item);
/* Ends it at any stage; what closing has interrupted is MC_ERR_CLOSED. */
void client_side_end(struct client_side *side, struct client_op *op);

#endif

/* store/attachment.h - a segment as this process reaches it: mapped, its own, or by transfers; and pins in it.
 *
 * Counted: operations, views and errands keep it; mapped memory stays readable as long, also when its owner is gone.
 * The last reference is dropped within an engine call or on the loop's thread.
 *
 * Threads: any.
 */
#ifndef MC_STORE_ATTACHMENT_H
#define MC_STORE_ATTACHMENT_H

#include <stdint.h>

#include "store/owners.h"
#include "transfer/peer.h"

struct attachment {
    struct ref ref;
    struct list dropped;               /* in client_side->dropped: the core's reference is to be dropped */
    struct owner_service *own;         /* a reference, of a segment of this process; else NULL */
    struct segment_memory *own_memory; /* a reference */
    struct peer *peer;                 /* a reference; NULL for the own segment */
    uint64_t peer_id;
    uint64_t base; /* the segment's address in its owner */
    uint64_t size;
    uint8_t *memory;        /* NULL: by transfers */
    struct pin_table *pins; /* NULL: no views */
    struct ref *holds[2];   /* of the mappings */
    uint64_t touched;       /* bytes of the memory whose page tables were made; one thread's */
    pthread_mutex_t lock;
    uint64_t pinned[PIN_CELLS / 64]; /* cells in use */
};

/* What this process tells owners of itself. */
struct attacher {
    struct engine *engine;
    struct owners *owners; /* of this process */
    struct message_id client;
};

/* Reaches the segment at `address`: asks the owner and maps what can be mapped. Within an engine call; waits until
 * `deadline` at most for the owner. MC_ERR_UNREACHABLE, MC_ERR_SEGMENT_NOT_FOUND, MC_ERR_PROTOCOL, … */
int32_t attachment_open(const struct attacher *attacher, const struct message_id *segment, const char *address,
                        uint64_t deadline, struct attachment **ret_attachment);

/* Asks the owner again whether it has the segment, after it could not be reached. */
int32_t attachment_probe(struct attachment *attachment, const struct attacher *attacher,
                         const struct message_id *segment, uint64_t deadline);

/* A free cell of the pin table, or -1: none. And gives it back, empty. */
int attachment_take_cell(struct attachment *attachment);
void attachment_give_cell(struct attachment *attachment, int cell);

/* Sends a client's request to the owner and waits for the answer. */
int32_t attachment_call(struct attachment *attachment, const struct letter *request, uint64_t deadline,
                        struct letter **ret_answer);

/* The same without waiting. */
void attachment_begin(struct attachment *attachment, struct errand *errand);

#endif

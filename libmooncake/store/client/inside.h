/* store/client/inside.h - what the files of the client core share.
 *
 * client.c    life, operations from outside, what is due
 * letters.c   letters and the records of those on their way, stamps (rule 11), signs of life
 * segments.c  the table of segments
 * stock.c     reservations: asking, keeping, giving back (rules 2 and 3)
 * put.c       placing and writing (rules 3 and 4)
 * publication.c  publishing, until it is settled (rules 4, 5, 13 and 16)
 * get.c       locating and reading (rules 10 and 11); sizes
 * ask.c       removes, probes and listings
 * cache.c     locations
 */
#ifndef MC_STORE_CLIENT_INSIDE_H
#define MC_STORE_CLIENT_INSIDE_H

#include <mooncake/error.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/random.h"
#include "store/client/client.h"
#include "wire/mistake.h"

#define LETTER_BYTES (512u << 10) /* a list is cut beyond */
#define LETTER_ITEMS 4096u
#define LOOKUP_ITEMS 1024u /* in a LOOKUP: its answer fits into a message, whatever the master finds */
#define SEGMENT_BUCKETS 256u
#define READS_MAX 4096u /* hashes in a BEAT */
#define READS_DUE 1024u
#define GET_ROUNDS 4u
#define PUT_ATTEMPTS 3u
#define GENERATION_MAX (UINT64_MAX >> 2)

enum item_stage {
    ITEM_DONE,
    PUT_PLACE,   /* lacks slots */
    PUT_WRITE,   /* has them; nothing was written */
    PUT_WRITING, /* in the caller's hands */
    PUT_PUBLISH, /* has a publication */
    GET_FIND,    /* the cache wasn't asked yet */
    GET_ASK,     /* to be looked up */
    GET_READ,    /* has candidates */
    GET_READING, /* in the caller's hands */
    REMOVE_ASK,
};

/* A reserved slot that was never written, or is given back. */
struct stocked {
    struct list node;
    struct message_grant grant;
    uint64_t capacity;
    uint64_t since;
};

/* The stock of one capacity in one segment. */
struct stock_class {
    struct list node;
    struct list slots; /* struct stocked, the oldest first */
    uint64_t capacity;
    uint32_t count;
    uint32_t refill; /* how many more were asked for last */
    uint32_t wanted; /* while places are sought */
};

/* A RESERVE without an answer. */
struct reservation {
    struct list node;
    uint64_t sequence;
    bool cancelled; /* its answer was lost: CANCEL until acknowledged (rule 2) */
    bool returning; /* in a RELEASE on its way */
};

struct client_full {
    const struct client_segment *segment; /* only compared */
    uint64_t capacity;
};

/* A put from its first PUBLISH until it is settled; or, without places, a remove until it is answered. */
struct publication {
    struct list node; /* in client.publications, by sequence */
    uint64_t sequence;
    bool removal;
    bool on_way;
    uint32_t flags;
    uint32_t sent;        /* how often */
    uint64_t first_epoch; /* under which it was first sent */
    uint64_t ok_epoch;    /* of the last OK, 0: none */
    uint64_t ok_sequence; /* the index sequence of that answer */
    uint64_t version_epoch;
    uint64_t version_counter;
    uint64_t length;
    struct client_op *op; /* who waits for it, or NULL: it goes on behind the scenes */
    struct client_item *item;
    struct message_place places[REPLICAS_MAX];
    uint32_t place_count;
    uint32_t key_length;
    uint8_t key[];
};

/* A letter on its way. */
struct sent {
    struct list node;     /* in op->sent or client.sent */
    struct client_op *op; /* NULL: no operation waits for it (any more) */
    bool behind;          /* from client_step */
    uint64_t tag;
    uint64_t at;
    uint16_t type;
    struct client_segment *segment;  /* RESERVE, RELEASE: used */
    struct reservation *reservation; /* RESERVE */
    uint64_t capacity;
    uint32_t asked;
    uint64_t owners_version; /* BEAT */
    struct list returned;    /* RELEASE: struct stocked */
    uint32_t count;
    uint32_t room;
    union {
        struct client_item *item;
        struct publication *publication;
    } members[];
};

struct location; /* a cached one */

struct client {
    struct client_options options;
    struct random random;
    uint64_t tag;
    uint64_t wake;
    struct list sent; /* letters that no operation waits for */
    bool retired;

    /* What the master has said. */
    uint64_t epoch;
    bool epoch_lost; /* it has another one by now */
    uint64_t lease;  /* its end */
    uint64_t index_sequence;

    bool owners_known; /* under this epoch */
    uint64_t owners_version;
    struct list segments;
    struct list buckets[SEGMENT_BUCKETS];

    uint64_t stock_bytes;
    uint64_t stock_count;

    struct list publications;
    uint64_t publication_count;
    uint64_t sequence;
    bool publishing; /* a PUBLISH behind the scenes is on its way */
    bool behind;     /* there may be publications to be sent behind the scenes */
    uint64_t publish_at;
    uint64_t publish_behind; /* the last one that was sent behind the scenes */
    uint32_t publish_limit;

    bool beating;
    uint64_t beat_sent;
    uint64_t beat_at; /* not before; 0: at once */
    struct key_hash *reads;
    uint32_t read_count;

    struct location **cache;
    uint32_t cache_buckets;
    struct list cache_ages; /* the least lately used first */
    uint32_t cache_count;
    uint64_t cache_hits;
    uint64_t lookups;
};

/* ---- client.c ---- */

/* client_step is due then, at the latest. */
static inline void client_due(struct client *client, uint64_t at) {
    if (at < client->wake)
        client->wake = at;
}

void op_finish(struct client_op *op, struct client_item *item, int32_t status);

/* Room for so many places; false if memory is short. */
bool item_has_room(struct client_item *item, uint32_t count);
void item_free_places(struct client_item *item);
/* Nothing can be done now: a while that doubles up to 20 retries, or until the deadline. */
enum client_need op_pause(struct client *client, uint64_t now, struct client_op *op);

/* ---- letters.c ---- */

/* NULL if memory is short. `op` may be NULL. */
struct sent *sent_new(struct client *client, uint64_t now, struct client_op *op, uint16_t type, uint32_t room);
/* Counts it as on its way if there is a letter; else frees it and the operation pauses. */
bool sent_add(struct client *client, struct sent *sent, struct letter *letter);
struct sent *sent_free(struct client *client, struct sent *sent);
/* The record with this tag, taken off its list, or NULL. */
struct sent *sent_take(struct client *client, struct client_op *op, uint64_t tag);

/* A list that is sent in as many letters as it needs. */
struct bundle {
    struct client *client;
    struct client_op *op;
    struct outbox *out;
    uint64_t now;
    uint16_t type; /* PUBLISH, LOOKUP, REMOVE */
    uint32_t flags;
    uint32_t letters;
    struct items items;
    struct sent *sent;
};

/* Is there room for another member; it is then added to bundle.items, and bundle_added is called. */
bool bundle_room(struct bundle *bundle);
void bundle_added(struct bundle *bundle, struct client_item *item, struct publication *publication);
/* Sends the rest. How many letters it were. */
uint32_t bundle_end(struct bundle *bundle);

bool beat_send(struct client *client, uint64_t now, struct client_op *op, struct outbox *out);
void beat_answer(struct client *client, uint64_t now, struct sent *sent, int32_t status, const uint8_t *body,
                 size_t length);
void beat_step(struct client *client, uint64_t now, struct outbox *out);
uint64_t beat_due(const struct client *client);
void reads_add(struct client *client, const struct key_hash *hash);

/* Takes the stamp of an answer to a letter sent at `sent_at` (rule 11). MC_ERR_UNAVAILABLE: of a lower epoch, to
 * be ignored; MC_ERR_PROTOCOL. */
int32_t stamp_take(struct client *client, uint64_t now, uint64_t sent_at, struct message_bytes bytes,
                   struct message_stamp *ret_stamp);

/* The master's epoch is known; else what the operation needs is in *ret_need. */
bool epoch_known(struct client *client, uint64_t now, struct client_op *op, struct outbox *out, bool owners,
                 enum client_need *ret_need);

/* ---- segments.c ---- */

void segment_use(struct client_segment *segment);
void segment_unuse(struct client *client, struct client_segment *segment);
/* Takes the master's list of owners. MC_ERR_PROTOCOL: nothing has changed. */
int32_t segments_take(struct client *client, uint64_t now, struct message_bytes owners);
void segments_step(struct client *client, uint64_t now);
/* Frees it, whatever is in it. */
void segment_free(struct client *client, struct client_segment *segment);
void segment_back_off(struct client *client, uint64_t now, struct client_segment *segment, uint64_t span);
/* May anything new be placed in it? */
bool segment_takes(const struct client_segment *segment);
/* May anything be placed anywhere? */
bool segments_take_any(struct client *client);
/* Can this be the place of an object with `length` bytes of value and key in the segment? */
bool segment_has(const struct client_segment *segment, const struct message_place *place, uint64_t length);

/* ---- stock.c ---- */

uint64_t stock_capacity(uint64_t size);
struct stock_class *stock_class_of(struct client_segment *segment, uint64_t capacity, bool make);
bool stock_take(struct client *client, struct client_segment *segment, uint64_t capacity,
                struct message_grant *ret_grant);
/* Into stock, or back: a slot that was never written. */
void stock_put(struct client *client, uint64_t now, struct client_segment *segment, uint64_t capacity,
               const struct message_grant *grant);
/* To be released: nobody writes it any more. */
void stock_return(struct client *client, uint64_t now, struct client_segment *segment,
                  const struct message_grant *grant);
/* Returns what the segment has in stock. */
void stock_return_all(struct client *client, uint64_t now, struct client_segment *segment);
/* Forgets stock, returns and reservations: the owner has done so, too. */
void stock_drop(struct client *client, struct client_segment *segment);
/* Sends a RESERVE for each capacity that is wanted in the segment. */
void stock_reserve(struct client *client, uint64_t now, struct client_op *op, struct client_segment *segment,
                   struct outbox *out);
void stock_reserved(struct client *client, uint64_t now, struct sent *sent, int32_t status, const uint8_t *body,
                    size_t length);
void stock_released(struct client *client, uint64_t now, struct sent *sent, int32_t status);
/* The answer won't come: the sequence number is cancelled (rule 2). */
void stock_cancel(struct client *client, uint64_t now, struct sent *sent);
void stock_step(struct client *client, uint64_t now, struct outbox *out);
uint64_t stock_due(const struct client *client);

/* ---- put.c ---- */

enum client_need put_next(struct client *client, uint64_t now, struct client_op *op, struct outbox *out);
/* Takes the results of op->writes. */
void put_written(struct client *client, uint64_t now, struct client_op *op);
static inline bool op_puts(const struct client_op *op) {
    return op->kind == CLIENT_PUT || op->kind == CLIENT_RESERVE || op->kind == CLIENT_COMMIT;
}
/* Lets go of the places of a CLIENT_COMMIT that writing failed at; of all: the item ends. */
void put_resume(struct client *client, uint64_t now, struct client_op *op, struct client_item *item);
/* Gives back what the item holds, and gives it its result if it has none. */
void put_end(struct client *client, uint64_t now, struct client_op *op, struct client_item *item);
/* Begins again, with other slots; what was written by parts can't. */
void put_again(struct client_op *op, struct client_item *item);
bool op_full(const struct client_op *op, const struct client_segment *segment, uint64_t capacity);
void op_add_full(struct client_op *op, const struct client_segment *segment, uint64_t capacity);

/* ---- publication.c ---- */

/* An open sequence number for the item; NULL if memory is short. */
struct publication *publication_new(struct client *client, struct client_op *op, struct client_item *item);
void publication_free(struct client *client, struct publication *publication);
/* The lowest open sequence number. */
uint64_t publication_floor(const struct client *client);
bool publication_add(struct bundle *bundle, struct publication *publication);
void publications_answer(struct client *client, uint64_t now, struct sent *sent, int32_t status, const uint8_t *body,
                         size_t length);
/* Ends it: its slots are released (rule 4). */
void publication_release(struct client *client, uint64_t now, struct publication *publication);
/* Forgets those that are settled (rule 13), by an answer that the list of owners came with. */
void publications_settle(struct client *client, uint64_t now, const struct message_stamp *stamp);
/* Does one name the segment, whose slots may have to be given back? */
bool publications_need(const struct client *client, const struct client_segment *segment);
void publications_step(struct client *client, uint64_t now, struct outbox *out);
uint64_t publications_due(struct client *client);

/* ---- get.c ---- */

enum client_need get_next(struct client *client, uint64_t now, struct client_op *op, struct outbox *out);
void get_located(struct client *client, uint64_t now, struct sent *sent, int32_t status, const uint8_t *body,
                 size_t length);
/* Takes the results of op->reads. */
void get_read(struct client *client, uint64_t now, struct client_op *op);
void get_end(struct client_op *op, struct client_item *item);

/* ---- ask.c ---- */

enum client_need remove_next(struct client *client, uint64_t now, struct client_op *op, struct outbox *out);
void remove_answer(struct client *client, uint64_t now, struct sent *sent, int32_t status, const uint8_t *body,
                   size_t length);
void remove_end(struct client *client, struct client_op *op, struct client_item *item);
enum client_need probe_next(struct client *client, uint64_t now, struct client_op *op, struct outbox *out);
void probe_answer(struct client *client, uint64_t now, struct sent *sent, int32_t status, const uint8_t *body,
                  size_t length);
enum client_need list_next(struct client *client, uint64_t now, struct client_op *op, struct outbox *out);
void list_answer(struct client *client, uint64_t now, struct sent *sent, int32_t status, const uint8_t *body,
                 size_t length);

/* ---- cache.c ---- */

int32_t cache_new(struct client *client);
void cache_free(struct client *client);
/* Keeps the item's candidates, found at this index sequence. */
void cache_put(struct client *client, const struct client_item *item, uint64_t index_sequence);
/* Fills in the candidates that may be used now. False if there are none. */
bool cache_get(struct client *client, uint64_t now, struct client_item *item);
void cache_drop(struct client *client, const struct key_hash *hash);
void cache_empty(struct client *client);

#endif

/* store/client/client.h - a client of the store: puts, gets and removes as conversations, and what lies behind them.
 *
 * A state machine without I/O: no clock, no socket, no thread, no lock. Its caller gives it the time, and does what an
 * operation needs next: sends letters and brings the answers, copies bytes, waits. It is called from one thread at a
 * time; the copying goes on outside.
 *
 * An operation is a batch of items, single calls are batches of one; each stage takes one round trip for all of them.
 * The core owns the stock of reservations, the location cache with its lease, and the publications that are on their
 * way or not settled yet, also after the operation that made them has ended.
 *
 * Rules of docs/store-protocol.md kept here: 2 (CANCEL), 3 and 4 (write, then publish), 5 (sequence numbers), 10 and 11
 * (reads, cached locations), 13 (settled), 16 (publishing again).
 */
#ifndef MC_STORE_CLIENT_CLIENT_H
#define MC_STORE_CLIENT_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "wire/outbox.h"
#include "wire/slot.h"
#include "wire/timing.h"

struct client;
struct publication; /* the core's own */
struct client_full; /* the same */

/* ---- Segments ---- */

/* A segment as this client reaches it. Made and freed by the core; `memory` to `user` are set by client_attached. */
struct client_segment {
    struct message_id id;
    char address[MESSAGE_ADDRESS_MAX]; /* where its owner listens */
    char name[MESSAGE_NAME_MAX];
    uint64_t size;
    uint8_t *memory;        /* mapped, or this process's own; NULL: reached by transfers */
    struct pin_table *pins; /* NULL: no views */
    void *user;             /* the caller's */
    bool attached;
    bool local; /* this process's own */
    /* The core's. */
    struct list node;
    bool listed; /* by the master; else it is gone */
    bool drains; /* nothing new may be placed in it */
    bool lost;   /* it is gone, and doesn't come again */
    uint32_t uses;
    uint64_t free;      /* as the master said last */
    struct list bucket; /* of the table by id */
    uint64_t retry_at;  /* attaching or reserving failed: not before */
    uint64_t unlisted_at;
    uint64_t floor;           /* locations of an older index sequence are void (rule 11) */
    struct list stock;        /* by capacity */
    struct list reservations; /* sequence numbers of RESERVE without an answer, in order */
    uint64_t sequence;        /* the last one */
    struct list returns;      /* slots to be given back */
    uint64_t return_count;    /* of them and of reservations to be cancelled */
    uint64_t return_at;       /* not before */
    bool returning;           /* a RELEASE is on its way */
};

/* ---- Operations ---- */

enum client_kind {
    CLIENT_PUT,
    CLIENT_RESERVE, /* the first half of a put: items that end well keep the places they were given … */
    CLIENT_COMMIT, /* … and the second: writes what is missing to the places that the items come with, and publishes */
    CLIENT_GET,
    CLIENT_VIEW,
    CLIENT_SIZE,
    CLIENT_LOCATE, /* as CLIENT_SIZE; items that end well have their places until client_end */
    CLIENT_EXISTS,
    CLIENT_REMOVE,
    CLIENT_LIST,
};

/* What an operation needs next. */
enum client_need {
    CLIENT_DONE,   /* nothing: the items have their results */
    CLIENT_SEND,   /* the letters in `out` sent, and client_answer called for each of them, whatever becomes of it */
    CLIENT_ATTACH, /* op->attach reached, and client_attached or client_unreachable called */
    CLIENT_WRITE,  /* op->writes carried out */
    CLIENT_READ,   /* op->reads carried out */
    CLIENT_WAIT,   /* time: until op->wake */
};

/* Where an item is to be written, or may be read. */
struct client_place {
    struct message_place place;
    struct client_segment *segment; /* NULL where it is not known (any more) */
    uint64_t length;
    int32_t status;
};

#define CLIENT_FEW_PLACES 2u /* of most objects */

/* One object. The caller fills the first group. Items stay where they are until client_end. */
struct client_item {
    const void *key;
    uint32_t key_length; /* 1 to KEY_MAX: else the item fails with MC_ERR_INVALID_KEY */
    const void *value;   /* CLIENT_PUT: for whoever writes; not looked at here */
    uint64_t length;     /* CLIENT_PUT: of the value. CLIENT_GET, CLIENT_VIEW: the largest that is wanted */

    /* The result. MC_OK; MC_ERR_NOT_FOUND; MC_ERR_ALREADY_EXISTS; MC_ERR_NO_SPACE; MC_ERR_BUFFER_TOO_SMALL, with the
     * size in `found`; MC_ERR_INDETERMINATE; MC_ERR_CHECKSUM_MISMATCH; MC_ERR_UNAVAILABLE; what the I/O answered. */
    int32_t status;
    uint64_t found;    /* the size of the value */
    uint32_t replicas; /* CLIENT_PUT: written */
    bool known;        /* set by the caller: the result is there before the operation begins */

    /* The core's. */
    struct key_hash hash;
    uint32_t stage;
    uint32_t tries;
    struct publication *publication;
    uint64_t sequence;
    struct client_place *places; /* a put's own; or a get's candidates: `few`, or more of the heap */
    uint32_t place_room;
    uint32_t place_count;
    uint32_t next; /* the candidate to be read next */
    bool from_cache;
    struct client_place few[CLIENT_FEW_PLACES];
};

/* An object to be written to a reserved slot (rule 3): the value to place.offset, the key behind it, and only then the
 * description, which is complete but for the checksum. */
struct client_write {
    struct client_segment *segment;
    struct message_place place;
    struct slot_description description; /* crc is the caller's to fill in */
    struct client_item *item;
    int32_t status; /* set by the caller; all but MC_OK mean that bytes may still arrive there */
};

/* An object to be read (rule 10). */
struct client_read {
    struct client_segment *segment;
    struct message_place place;
    uint64_t length;
    struct client_item *item;
    /* Set by the caller: MC_OK only when the bytes are proved to be the object's; MC_ERR_GUARD_MISMATCH: the slot has
     * another generation, state or key by now; MC_ERR_CHECKSUM_MISMATCH; else the segment can't be reached. */
    int32_t status;
};

struct client_put_options {
    uint32_t flags;               /* PUBLISH_UPSERT, PUBLISH_SOFT_PIN, PUBLISH_HARD_PIN */
    uint32_t replicas;            /* 1 to REPLICAS_MAX; as many as there are owners are made, at least one */
    uint64_t space_deadline;      /* of waiting for space, or for an owner at all; 0: the operation's */
    const char *const *preferred; /* names of segments, best first; kept until client_end; may be NULL */
    size_t preferred_count;
};

struct client_op {
    enum client_kind kind;
    struct client_item *items;
    size_t count;
    uint64_t deadline;
    uint64_t wake;                 /* CLIENT_WAIT */
    struct client_segment *attach; /* CLIENT_ATTACH */
    struct client_write *writes;   /* CLIENT_WRITE; the core's memory */
    size_t write_count;
    struct client_read *reads; /* CLIENT_READ; the core's memory */
    size_t read_count;
    /* CLIENT_LIST. */
    uint64_t cursor;     /* to go on from; 0 at the end */
    uint32_t limit;      /* about how many keys */
    struct items listed; /* the keys as they are; the caller's to clear */
    int32_t status;      /* of the whole operation, CLIENT_LIST alone */
    /* The core's. */
    struct client_put_options options;
    uint64_t backoff;
    size_t unfinished; /* items without a result */
    size_t unanswered;
    struct list sent;         /* the letters on their way */
    bool failed;              /* a letter had no good answer: not again before a pause */
    bool beaten;              /* a BEAT was sent since the last pause */
    bool again;               /* the locations that were just tried came again */
    struct client_full *full; /* segments that had no space, since the last pause */
    size_t full_count;
};

struct client_options {
    struct message_id id; /* this life of this client: its engine's incarnation */
    struct store_timing timing;
    uint64_t seed;
    uint64_t stock_bytes; /* kept in stock at most, over all segments */
    uint32_t cached;      /* locations kept at most */
    /* The segment is gone and nothing of this client is in it: its `user` is let go, and then it is freed. */
    void (*detach)(void *context, struct client_segment *segment);
    void *context;
};

/* MC_ERR_NO_MEMORY. */
int32_t client_new(const struct client_options *options, struct client **ret_client);

/* All operations have ended. Detaches every segment. NULL is fine; returns NULL. */
struct client *client_free(struct client *client);

/* Fills in an operation: kind, items and the times; nothing is sent yet. `options` only for CLIENT_PUT. */
void client_begin(struct client *client, uint64_t now, struct client_op *op, enum client_kind kind,
                  struct client_item *items, size_t count, const struct client_put_options *options, uint64_t deadline);

/* Where an object can be read at once: its place is known, and is in mapped memory. */
struct client_hit {
    struct client_segment *segment; /* only valid under the caller's lock, but for being NULL or not */
    uint8_t *memory;
    struct message_place place;
    uint64_t length;
};

/* Looks a key up that a get of at most `capacity` bytes is about; false: only an operation can tell. The read that
 * follows is counted; it may fail as any other (rule 10). */
bool client_find(struct client *client, uint64_t now, const struct key_hash *hash, uint32_t key_length,
                 uint64_t capacity, struct client_hit *ret_hit);

/* What the operation needs next; letters go to `out`, and are to be sent before anything else is done. To be called
 * again when that was done. While letters are unanswered it says CLIENT_WAIT. */
enum client_need client_next(struct client *client, uint64_t now, struct client_op *op, struct outbox *out);

/* The answer to a letter of `op` (NULL: of client_step, or of an operation that has ended), or that there is none: a
 * negative status. Answers that nobody waits for are ignored. */
void client_answer(struct client *client, uint64_t now, struct client_op *op, uint64_t tag, int32_t status,
                   uint16_t type, const uint8_t *body, size_t length);

/* Gives back what the operation holds, at any stage; publications on their way go on behind the scene. The items'
 * results are as far as it came. Must follow each client_begin. */
void client_end(struct client *client, uint64_t now, struct client_op *op);

/* Between the two halves of a put the caller writes to the places of an item, and notes in their status what failed
 * (MC_ERR_PENDING: nothing). The item may be moved; or its places are given back, and it is none any more. */
void client_item_move(struct client_item *to, struct client_item *from);
void client_item_give_back(struct client *client, uint64_t now, struct client_item *item);

/* The segment can be read and written; `memory`, `pins`, `user` and `local` were set. Or it can't be. */
void client_attached(struct client *client, uint64_t now, struct client_segment *segment);
void client_unreachable(struct client *client, uint64_t now, struct client_segment *segment);

/* Segments have come or gone: the next put asks which there are. */
void client_look_again(struct client *client);

/* A segment of this process has gone for good. It is freed as soon as nothing uses it. */
void client_lose(struct client *client, uint64_t now, const struct message_id *id);

/* Does what is due behind the scenes: signs of life, returns, publications to go on with or to be made again. */
void client_step(struct client *client, uint64_t now, struct outbox *out);

/* When client_step has something to do, if nothing happens before. */
uint64_t client_wake(const struct client *client);

/* Gives all stock back, now and from now on: the client is about to go. */
void client_retire(struct client *client, uint64_t now);

/* Nothing is on its way, unsettled or to be given back. */
bool client_quiet(const struct client *client);

/* The master's epoch, as it said last; 0 before its first answer. */
uint64_t client_epoch(const struct client *client);

/* The segment with this id, listed or not, or NULL. */
struct client_segment *client_segment_of(const struct client *client, const struct message_id *id);

/* The segments that the master lists; NULL behind the last. */
struct client_segment *client_segments(struct client *client, struct client_segment *before);

struct client_count {
    uint64_t stock;      /* slots reserved in stock */
    uint64_t unsettled;  /* publications */
    uint64_t returns;    /* slots and reservations to be given back */
    uint64_t cached;     /* locations */
    uint64_t cache_hits; /* items read by a cached location, ever */
    uint64_t lookups;    /* items looked up, ever */
};

struct client_count client_count(const struct client *client);

#endif

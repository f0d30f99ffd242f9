/* mooncake/store.h - the store: a distributed cache of immutable objects in the pooled memory of its clients.
 *
 * A store handle makes this process a client, and with segment_size > 0 an owner too: that much of its memory joins
 * the pool. The index is at the master: a program of its own (mooncake_master), or, when no address is given, inside
 * this process; others may then name this store's address (mc_store_address) as their master.
 *
 * Objects are bytes under a key (1 to MC_KEY_MAX bytes of any value). A value of zero bytes is a value. Objects don't
 * change: mc_store_put leaves an existing one alone, mc_store_upsert puts a new one in its place. The pool is a cache:
 * when it is full, what is least likely to be read soon goes first (as learned from reads), except what is pinned.
 *
 * A read is right or fails, whatever was evicted, replaced, restarted or cached meanwhile; on failure the buffer's
 * contents are undefined. When a remove or upsert has returned, no later read anywhere finds the old value. What was
 * put is readable as long as an owner that holds it lives and it isn't evicted. (docs/store-protocol.md has the small
 * print.)
 *
 * All calls take any thread; each waits at most `timeout_ns` (0: the store's own, MC_STORE_TIMEOUT_MS). Each call has a
 * batch form that costs the round trips of a single one. Batch calls return MC_OK when all items succeeded, else the
 * status of the first item that didn't, with each item's own in the array; items don't depend on each other. Keys and
 * values are read before the call returns and not kept, but for asynchronous calls.
 */
#ifndef MOONCAKE_STORE_H
#define MOONCAKE_STORE_H

#include <mooncake/error.h>
#include <mooncake/queue.h>
#include <mooncake/transfer.h>
#include <mooncake/types.h>

/* Bytes of a key, at most; of a segment's name with its NUL; replicas of an object; items of a batch. */
#define MC_KEY_MAX 4096u
#define MC_SEGMENT_NAME_MAX 288u
#define MC_REPLICAS_MAX 8u
#define MC_STORE_BATCH_MAX 65536u
/* Pieces of memory in a batch, at most. */
#define MC_STORE_PIECES_MAX 1048576u

/* Bytes of a tenant's name, at most. Keys of a tenant have 3 bytes and its name less than others, at most; and 3 less
 * those keys of no tenant that begin with the bytes FF FF. */
#define MC_TENANT_MAX 128u

/* A store. The pointer is a token and must not be dereferenced. */
typedef struct mc_store mc_store;

/* ---- Opening ---------------------------------------------------------------------------------------------------- */

/* NULL and 0 mean: the environment variable named, else the default. */
struct mc_store_options {
    uint32_t struct_size;
    uint32_t flags;        /* MC_STORE_* */
    const char *master;    /* "host:port" of the master; none: in this process. MOONCAKE_MASTER */
    const char *name;      /* of this store's segment, shown to people and in preferred_segments; default its address */
    uint64_t segment_size; /* bytes that join the pool, at least 65536; 0: none, or 256 MiB with the master inside */
    mc_engine *engine;     /* an open engine to use, which must outlive the store; NULL: one of its own … */
    const struct mc_engine_options *engine_options; /* … opened with these; may be NULL */
    uint64_t timeout_ns;                            /* of calls that give none. MC_STORE_TIMEOUT_MS, default 30 s */
    uint64_t view_bytes; /* viewed or copied for views at a time, at most. MC_STORE_VIEW_BYTES, default 4 GiB */
    const char *tenant;  /* whose keys are meant, at most MC_TENANT_MAX bytes; "default": nobody's in particular */
};

#define MC_STORE_EMBEDDED 2u    /* the master is in this process, whatever the environment says */
#define MC_STORE_STORED_KEYS 4u /* for administration: keys of all tenants, with their names, as they are stored */
#define MC_STORE_VERIFY 1u      /* checksums are compared on mapped memory too (over networks they always are) */

MC_BEGIN_DECLS

/* Opens a store and waits until its master answers: 3 s at most, then MC_ERR_UNREACHABLE. One that answers but doesn't
 * serve yet (it was restarted, and waits for its owners) is given 10 s, then MC_ERR_UNAVAILABLE. Also what mc_engine_open
 * and mc_memory_alloc answer. `options` may be NULL. */
MC_API int32_t mc_store_open(const struct mc_store_options *options, mc_store **ret_store, struct mc_error *error);

/* Ends calls in progress with MC_ERR_CLOSED (a put that the master may have by then: MC_ERR_INDETERMINATE), gives back what it reserved and takes its segments (with what they hold)
 * out of the pool. Views stay readable until released. */
MC_API int32_t mc_store_close(mc_store *store);

/* Where the store's engine listens, "host:port"; written and returned as by mc_capabilities. */
MC_API int64_t mc_store_address(mc_store *store, char *text, size_t size);

/* MC_OK while the master answers and this store's segments are mounted; MC_ERR_UNAVAILABLE. Sends nothing. */
MC_API int32_t mc_store_health(mc_store *store);

/* Counters and sizes as one JSON object, written and returned as by mc_capabilities: {"stock":…,"unsettled":…,
 * "returns":…,"cache":{"locations":…,"hits":…,"lookups":…},"segment":{"size":…,"used":…,"largest":…,"live":…,
 * "reserved":…,"dead":…},"master":{"keys":…,"evicted":…,"segments":…},"viewed":…}; `segment` of all that this
 * store has together (`largest`: the largest hole), and only where it has one, `master` only where it is in this process. Later versions add to it. */
MC_API int64_t mc_store_stats(mc_store *store, char *text, size_t size);

/* Registers the caller's memory with the store's engine, for paths that need it (shared memory and TCP take any memory,
 * without a copy of their own). As mc_engine_register without rights for peers, and mc_engine_unregister. */
MC_API int32_t mc_store_register(mc_store *store, void *address, uint64_t length, struct mc_error *error);
MC_API int32_t mc_store_unregister(mc_store *store, void *address, struct mc_error *error);

/* ---- Segments --------------------------------------------------------------------------------------------------- */

/* Bytes of a segment's id in words, with its NUL: 01234567-89ab-cdef-0123-456789abcdef. */
#define MC_SEGMENT_ID_SIZE 37u

/* A segment beside the one that the store was opened with, or the first. */
struct mc_segment_options {
    uint32_t struct_size;
    uint32_t flags;      /* 0 */
    uint64_t size;       /* bytes that join the pool, at least 65536; with `path` 0 means all from `offset` on */
    const char *name;    /* as in mc_store_options */
    const char *path;    /* a regular file or shared memory object whose bytes they are; NULL: fresh memory */
    uint64_t offset;     /* in the file; a multiple of the page size */
    uint64_t timeout_ns; /* 0: the store's */
};

/* Adds a segment to the pool, and stores its id, MC_SEGMENT_ID_SIZE bytes. What is in the file is overwritten, and means
 * nothing afterwards; it must not be truncated while it is mounted. Its last part of less than a page isn't used.
 * MC_ERR_BUSY: that part of it is mounted already, by whatever process; MC_ERR_SYSTEM: it can't be opened;
 * MC_ERR_INVALID_ARGUMENT, MC_ERR_NO_MEMORY, MC_ERR_NO_SPACE (on the disk); MC_ERR_UNAVAILABLE: the master hasn't taken
 * the segment in time. */
MC_API int32_t mc_store_mount(mc_store *store, const struct mc_segment_options *options, char *ret_id,
                              struct mc_error *error);

/* Takes one of this store's segments out of the pool with what it holds; the other segments stay. With a grace it drains
 * first, for so long: objects are read as before, and nothing new is placed in it; the call returns at once. A second
 * call may end it sooner. Without one it has gone when the call returns (within the store's time; else MC_ERR_TIMEOUT,
 * and it goes later). Views stay readable until released, and a file is locked as long. MC_ERR_SEGMENT_NOT_FOUND. */
MC_API int32_t mc_store_unmount(mc_store *store, const char *id, uint64_t grace_ns, struct mc_error *error);

/* The segments of the pool as a JSON array, written and returned as by mc_capabilities: [{"id":…,"name":…,"address":…,
 * "size":…,"used":…,"state":"serving"|"draining"|"mounting","own":true|false},…]. Those of this store come first, as they are now; the
 * others are as the master has told lately (about a second ago at most). Sends nothing. Later versions add to it. */
MC_API int64_t mc_store_segments(mc_store *store, char *text, size_t size);

/* ---- One object ------------------------------------------------------------------------------------------------- */

struct mc_put_options {
    uint32_t struct_size;
    uint32_t flags;    /* MC_PUT_* */
    uint32_t replicas; /* in different segments, 1 to MC_REPLICAS_MAX; 0: 1. Best effort: at least one is made, and
                        * they are in different processes where there are as many */
    uint32_t preferred_count;
    const char *const *preferred; /* names of segments to be tried first, best first */
    uint64_t timeout_ns; /* bounds the wait for space, too; 0: that is MC_STORE_SPACE_TIMEOUT_MS, default 3 s */
};

#define MC_PUT_SOFT_PIN 1u /* evicted last, for as long as the master says (30 minutes in mooncake_master) */
#define MC_PUT_HARD_PIN 2u /* never evicted; not together with the soft pin */

/* Puts a value. MC_ERR_ALREADY_EXISTS: the key is there, and nothing was changed. MC_ERR_NO_SPACE: no space came free in
 * time. MC_ERR_INDETERMINATE: the time ran out before the master's answer. MC_ERR_TOO_LARGE, MC_ERR_INVALID_KEY,
 * MC_ERR_UNAVAILABLE. `options` may be NULL. */
MC_API int32_t mc_store_put(mc_store *store, const void *key, size_t key_length, const void *value, uint64_t length,
                            const struct mc_put_options *options, struct mc_error *error);

/* The same, in the place of what is there: until the new value is published readers get the old one, and when the call
 * returns MC_OK nobody gets it any more. */
MC_API int32_t mc_store_upsert(mc_store *store, const void *key, size_t key_length, const void *value, uint64_t length,
                               const struct mc_put_options *options, struct mc_error *error);

/* Copies the value to `buffer` and returns its length. MC_ERR_NOT_FOUND; MC_ERR_BUFFER_TOO_SMALL if it is longer than
 * `capacity`; MC_ERR_CHECKSUM_MISMATCH if all replicas are damaged; MC_ERR_UNAVAILABLE, MC_ERR_UNREACHABLE,
 * MC_ERR_TIMEOUT. */
MC_API int64_t mc_store_get(mc_store *store, const void *key, size_t key_length, void *buffer, uint64_t capacity,
                            uint64_t timeout_ns, struct mc_error *error);

/* Borrows the value where it is, read-only: in mapped memory without a copy (the object is pinned meanwhile), else in a
 * private copy. Stores an id and the address; returns the length. The memory is readable until mc_view_release, also
 * after the object was removed or the store closed. As mc_store_get, and MC_ERR_TOO_MANY past `view_bytes`. */
MC_API int64_t mc_store_view(mc_store *store, const void *key, size_t key_length, uint64_t timeout_ns,
                             uint64_t *ret_view, const void **ret_data, struct mc_error *error);

/* MC_ERR_INVALID_HANDLE. */
MC_API int32_t mc_view_release(uint64_t view);

/* The length of the value, or MC_ERR_NOT_FOUND … */
MC_API int64_t mc_store_size(mc_store *store, const void *key, size_t key_length, uint64_t timeout_ns,
                             struct mc_error *error);

/* 1 or 0, or a negative status. Doesn't count as a use of the object. */
MC_API int32_t mc_store_exists(mc_store *store, const void *key, size_t key_length, uint64_t timeout_ns,
                               struct mc_error *error);

/* When this has returned MC_OK, no read anywhere finds the value. MC_ERR_NOT_FOUND; MC_ERR_INDETERMINATE. Waits for
 * owners that hold it, or a location lease (5 s) where they don't answer. */
MC_API int32_t mc_store_remove(mc_store *store, const void *key, size_t key_length, uint64_t timeout_ns,
                               struct mc_error *error);

/* ---- Batches ---------------------------------------------------------------------------------------------------- */

/* Keys as one blob: `count` keys behind each other, of these lengths. */
struct mc_keys {
    const void *bytes;
    const uint32_t *lengths;
    size_t count; /* 1 to MC_STORE_BATCH_MAX */
};

/* values[i] of lengths[i] bytes under key i; ret_statuses[i] as by mc_store_put. MC_PUT_UPSERT in options->flags: as by
 * mc_store_upsert. */
MC_API int32_t mc_store_put_batch(mc_store *store, const struct mc_keys *keys, const void *const *values,
                                  const uint64_t *lengths, const struct mc_put_options *options, int32_t *ret_statuses,
                                  struct mc_error *error);

#define MC_PUT_UPSERT 4u /* for mc_store_put_batch and mc_store_submit */

/* Value i to buffers[i], at most capacities[i] bytes; ret_lengths[i] its length, or a negative status. */
MC_API int32_t mc_store_get_batch(mc_store *store, const struct mc_keys *keys, void *const *buffers,
                                  const uint64_t *capacities, uint64_t timeout_ns, int64_t *ret_lengths,
                                  struct mc_error *error);

/* ---- Objects in pieces ------------------------------------------------------------------------------------------ */

/* A piece of the caller's memory, for a part of a value. */
struct mc_piece {
    void *address;
    uint64_t length;
    uint64_t offset; /* of the part in the value, with MC_GET_RANGES; else not used */
};

/* As mc_store_put_batch, of values that lie in pieces: counts[i] of `pieces` (of all objects, behind each other) hold
 * value i, in order. 0 pieces are a value of zero bytes. */
MC_API int32_t mc_store_put_pieces(mc_store *store, const struct mc_keys *keys, const struct mc_piece *pieces,
                                   const uint32_t *counts, const struct mc_put_options *options, int32_t *ret_statuses,
                                   struct mc_error *error);

/* As mc_store_get_batch, to pieces: value i fills counts[i] of `pieces`, one behind the other, the last ones perhaps in
 * part or not at all. With MC_GET_RANGES each piece gets the bytes from its `offset` on instead, and ret_lengths[i] is
 * how many bytes that were in all; a range beyond the value's end is MC_ERR_INVALID_ARGUMENT. A part is not compared
 * with the value's checksum, which is of the whole: over networks MC_ENGINE_CHECKSUM protects it. `flags`: MC_GET_*. */
MC_API int32_t mc_store_get_pieces(mc_store *store, const struct mc_keys *keys, const struct mc_piece *pieces,
                                   const uint32_t *counts, uint32_t flags, uint64_t timeout_ns, int64_t *ret_lengths,
                                   struct mc_error *error);

#define MC_GET_RANGES 1u

/* ---- Puts in steps ---------------------------------------------------------------------------------------------- */

/* Reserves room for values of lengths[i] bytes under key i, and stores an id for each in ret_puts[i] where
 * ret_statuses[i] is MC_OK. The values are then written by parts, as they come to be, and published by mc_store_put_end;
 * until then nobody finds them. As by mc_store_put_batch otherwise: MC_ERR_ALREADY_EXISTS is told here if the key is
 * there now, and at the end if it came meanwhile. What was begun holds its room until it is ended or revoked, or the
 * store is closed. */
MC_API int32_t mc_store_put_begin(mc_store *store, const struct mc_keys *keys, const uint64_t *lengths,
                                  const struct mc_put_options *options, uint64_t *ret_puts, int32_t *ret_statuses,
                                  struct mc_error *error);

/* Writes parts of the values of `count` puts (1 to MC_STORE_BATCH_MAX): counts[i] of `pieces` (of all puts, behind each
 * other), each to its `offset` in value i. Nobody is asked but the owners of the memory. ret_lengths[i]: how many bytes
 * were written, or a negative status: MC_ERR_INVALID_ARGUMENT for a part beyond the value's end, or that was written
 * already (then nothing of that put was written); MC_ERR_INVALID_HANDLE; or that of the last replica, when none can be
 * written any more: the put can only be revoked then. Parts of one put may be written by several threads at once. */
MC_API int32_t mc_store_put_write(mc_store *store, const uint64_t *puts, size_t count, const struct mc_piece *pieces,
                                  const uint32_t *counts, uint64_t timeout_ns, int64_t *ret_lengths,
                                  struct mc_error *error);

/* Publishes values whose bytes were all written; ret_statuses[i] as by mc_store_put_batch, and put i is no more. But not
 * if some bytes are missing (MC_ERR_INVALID_ARGUMENT), or are being written now (MC_ERR_BUSY). */
MC_API int32_t mc_store_put_end(mc_store *store, const uint64_t *puts, size_t count, uint64_t timeout_ns,
                                int32_t *ret_statuses, struct mc_error *error);

/* Gives the room back. MC_ERR_INVALID_HANDLE, MC_ERR_BUSY. */
MC_API int32_t mc_store_put_revoke(mc_store *store, const uint64_t *puts, size_t count, int32_t *ret_statuses,
                                   struct mc_error *error);

/* ---- More batches ----------------------------------------------------------------------------------------------- */

/* Views; where ret_lengths[i] is negative, there is none to release. */
MC_API int32_t mc_store_view_batch(mc_store *store, const struct mc_keys *keys, uint64_t timeout_ns,
                                   uint64_t *ret_views, const void **ret_data, int64_t *ret_lengths,
                                   struct mc_error *error);

MC_API int32_t mc_store_size_batch(mc_store *store, const struct mc_keys *keys, uint64_t timeout_ns,
                                   int64_t *ret_lengths, struct mc_error *error);

/* ret_found[i]: 1, 0, or a negative status. MC_OK also when some aren't there. */
MC_API int32_t mc_store_exists_batch(mc_store *store, const struct mc_keys *keys, uint64_t timeout_ns,
                                     int32_t *ret_found, struct mc_error *error);

MC_API int32_t mc_store_remove_batch(mc_store *store, const struct mc_keys *keys, uint64_t timeout_ns,
                                     int32_t *ret_statuses, struct mc_error *error);

/* Where a replica is. */
struct mc_replica {
    uint64_t offset;                   /* of the value in its segment */
    uint64_t length;                   /* of the value */
    char segment[MC_SEGMENT_NAME_MAX]; /* the segment's name; "" if it has left the pool meanwhile */
    char address[MC_ADDRESS_MAX];      /* "host:port" of its owner's engine */
};

/* The replicas of each object's newest version: of object i at most `capacity` from ret_replicas[i * capacity] on
 * (elements `stride` bytes apart); ret_counts[i] is how many there are, or a negative status. Doesn't count as a use. What
 * is told may be out of date when it comes. */
MC_API int32_t mc_store_replicas(mc_store *store, const struct mc_keys *keys, uint64_t timeout_ns,
                                 struct mc_replica *ret_replicas, uint32_t capacity, size_t stride, int32_t *ret_counts,
                                 struct mc_error *error);

/* Removes every key there is at the time, page by page; returns how many. */
MC_API int64_t mc_store_remove_all(mc_store *store, uint64_t timeout_ns, struct mc_error *error);

/* The same for keys in which the pattern is found (`length` bytes of it, at most 4096; the syntax is Perl's, by libpcre2;
 * MC_ERR_NOT_SUPPORTED where that isn't there). They are matched in this process, page by page: the master runs no
 * patterns, and nobody else waits. MC_ERR_INVALID_ARGUMENT: it is no pattern, or takes more than 100,000 steps at a key;
 * keys of earlier pages are removed then. */
MC_API int64_t mc_store_remove_matching(mc_store *store, const char *pattern, size_t length, uint64_t timeout_ns,
                                        struct mc_error *error);

/* ---- Listing ---------------------------------------------------------------------------------------------------- */

/* Lists about `limit` keys (1 to 65536) from *cursor on, which is 0 at first and is moved on; 0 again at the end. Keys
 * that are there all the while are listed once each. The page is the caller's until mc_page_free. */
struct mc_page {
    const uint8_t *bytes;    /* the keys behind each other */
    const uint32_t *lengths; /* of each */
    size_t count;
};

MC_API int32_t mc_store_list(mc_store *store, uint64_t *cursor, uint32_t limit, uint64_t timeout_ns,
                             struct mc_page **ret_page, struct mc_error *error);

/* NULL is fine. */
MC_API void mc_page_free(struct mc_page *page);

/* ---- Asynchronous calls ------------------------------------------------------------------------------------------ */

#define MC_STORE_PUT 1u
#define MC_STORE_GET 2u
#define MC_STORE_VIEW 3u
#define MC_STORE_SIZE 4u
#define MC_STORE_EXISTS 5u
#define MC_STORE_REMOVE 6u

/* What a batch call takes, for mc_store_submit. Set what the kind doesn't use to zero. Everything pointed to belongs to
 * the operation until its completion was reaped. */
struct mc_store_operation {
    uint32_t struct_size;
    uint32_t kind; /* MC_STORE_PUT … */
    struct mc_keys keys;
    const void *const *values;        /* PUT */
    void *const *buffers;             /* GET */
    const uint64_t *lengths;          /* PUT: of the values. GET: capacities of the buffers */
    const struct mc_put_options *put; /* PUT; may be NULL */
    int32_t *statuses;                /* PUT, REMOVE; EXISTS: 1, 0 or a status */
    int64_t *found;                   /* GET, VIEW, SIZE: lengths or statuses */
    uint64_t *views;                  /* VIEW */
    const void **data;                /* VIEW */
    uint64_t timeout_ns;              /* put->timeout_ns must be 0 */
    const struct mc_piece *pieces;    /* PUT, GET: instead of values, buffers and lengths */
    const uint32_t *piece_counts;     /* of each object */
    uint32_t flags;                   /* GET: MC_GET_* */
    uint32_t reserved;                /* 0 */
};

/* Begins the operation on one of two threads of the store and returns; its time-out runs from here. Its completion appears in `queue`, with the operation's
 * id as `batch` and what the batch call would have returned as `status`. MC_ERR_TOO_MANY beyond 65536 waiting. */
MC_API int32_t mc_store_submit(mc_store *store, const struct mc_store_operation *operation, mc_queue *queue,
                               uint64_t user_data, uint64_t *ret_operation, struct mc_error *error);

/* Releases the id of an operation that has completed; MC_ERR_BUSY before. */
MC_API int32_t mc_operation_free(uint64_t operation);

MC_END_DECLS

#endif

/* compat/transfer_engine/inside.h - what the files of the shim libtransfer_engine.so share.
 *
 * An engine of the shim is one of the library, with what the reference's interface has beyond it: segments, which are
 * peers under a number and a name; batches that are submitted to several times; a set of what is registered.
 *
 * Threads: any. `lock` guards an engine's lists, and isn't held over calls of the library that wait. A call that was
 * begun before the engine's end goes on, with CLOSED from the library; the struct goes with the last of them.
 */
#ifndef MC_COMPAT_TRANSFER_ENGINE_INSIDE_H
#define MC_COMPAT_TRANSFER_ENGINE_INSIDE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mooncake/compat/transfer_engine_c.h>
#include <mooncake/transfer.h>

#include "compat/token.h"

struct batch;
struct segment;

struct engine {
    struct token_object token;
    uint64_t number; /* the handle */
    mc_engine *engine;
    pthread_mutex_t lock;
    pthread_cond_t asked;      /* a segment's `asking` was cleared */
    uint64_t self;             /* this engine as a peer of its own; 0: not opened yet */
    struct segment **segments; /* by number, ascending */
    size_t segment_count;
    size_t segment_room;
    int32_t last_segment; /* number that was given */
    void *regions;        /* tsearch: addresses at which registered ranges begin */
    struct batch *batches;
    bool ended; /* no batch is made any more */
};

/* engines.c: the engine of a handle, to be given back by engine_leave; NULL where there is none, with words that name
 * `what`. */
struct engine *engine_enter(transfer_engine_t handle, const char *what);
void engine_leave(struct engine *engine);

/* Ends an engine, if there is one of this number; false: there is none. */
bool engine_end(uint64_t number);

/* results.c: the code for a status of the library; and for calls that deal with batches. */
int result_of(int32_t status);
int result_of_batch(int32_t status);

/* Puts words for `status` into *error, for result_say; returns it. */
__attribute__((format(printf, 3, 4))) int32_t result_words(struct mc_error *error, int32_t status, const char *format,
                                                           ...);

/* Says that a call has failed, and why; returns its code. The words are those of `error`, if they are of `status`. */
int result_say(const char *what, int32_t status, const struct mc_error *error);

/* segments.c: the peer of a segment's number, for requests; a status, with words. */
int32_t segment_peer(struct engine *engine, int32_t number, uint64_t *ret_peer, struct mc_error *error);

/* Calls `each` for the segments that are open, with the lock held: it must not wait. */
void segments_each(struct engine *engine, void (*each)(void *context, int32_t number, const char *name, uint64_t peer),
                   void *context);

/* Frees all, when the engine is closed and nobody uses it any more. */
void segments_free(struct engine *engine);

/* batches.c: frees all; what they had in flight is cancelled. Once the engine's handle is stale. */
void batches_free(struct engine *engine);

/* memory.c: forgets what is registered, when the engine is closed. */
void memory_forget(struct engine *engine);

/* shutdown.c: has the engine of this number ended when the process ends, if it still is there. False: out of memory. */
bool shutdown_watch(uint64_t number);

#endif

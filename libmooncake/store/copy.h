/* store/copy.h - moves the bytes of objects: into reserved slots (rule 3), and out of readable ones (rule 10).
 *
 * Mapped memory is copied by the calling thread; everything else goes by guarded transfers of the engine, all of an
 * operation in one batch. Within an engine call. No lock is needed: the core counts what is used meanwhile.
 */
#ifndef MC_STORE_COPY_H
#define MC_STORE_COPY_H

#include <stdbool.h>

#include <mooncake/store.h>

#include "store/client/client.h"
#include "transfer/engine.h"

/* The memory of an object at the caller: pieces that hold the value behind each other; or, where it is read by ranges,
 * each the part of it at its offset. */
struct copy_memory {
    const struct mc_piece *pieces;
    uint32_t count;
    bool ranges;
};

/* Where an object is written from. */
struct copy_source {
    struct client_write *write;
    struct copy_memory memory; /* write->item->length bytes; of ranges for copy_parts; none: … */
    uint32_t sum;              /* … the value was written before, and this is its CRC32C */
};

/* Carries out all writes, and sets their status. */
void copy_writes(struct engine *engine, const struct copy_source *sources, size_t count, uint64_t deadline);

/* The same for parts of values alone, which lie within them: without the key and the description that complete them. */
void copy_parts(struct engine *engine, const struct copy_source *sources, size_t count, uint64_t deadline);

/* Where an object is to be read to. */
struct copy_target {
    struct client_read *read;
    struct copy_memory memory; /* at least read->length bytes, unless it is of ranges */
};

/* Copies an object of `length` bytes from its slot in a mapped segment. MC_OK only when it is proved to be the item's;
 * MC_ERR_GUARD_MISMATCH, MC_ERR_CHECKSUM_MISMATCH (with `verify`, of whole objects), MC_ERR_INVALID_ARGUMENT: a range
 * lies beyond its end. */
int32_t copy_from_slot(const struct client_item *item, uint8_t *memory, const struct message_place *place,
                       uint64_t length, const struct copy_memory *to, bool verify);

/* Carries out all reads, and sets their status. `verify`: checksums of mapped objects too. */
void copy_reads(struct engine *engine, struct copy_target *targets, size_t count, bool verify, uint64_t deadline);

#endif

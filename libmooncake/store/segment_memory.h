/* store/segment_memory.h - the memory of a segment, fresh or of a file, and its pin tables, as peers reach them.
 *
 * Counted, since views in this process outlive the owner.
 *
 * Threads: any.
 */
#ifndef MC_STORE_SEGMENT_MEMORY_H
#define MC_STORE_SEGMENT_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "allocator/file_memory.h"
#include "base/object.h"
#include "transfer/engine.h"
#include "wire/slot.h"

struct segment_memory {
    struct ref ref;
    struct engine *engine;
    uint8_t *base;
    uint64_t size;
    struct pin_table *pins;
    uint32_t pin_tables;
    uint64_t ids[2];         /* of what was allocated: the segment (0: it is of a file) and the tables */
    struct file_memory file; /* fd -1: none */
    bool registered[2];
};

/* Where a segment's bytes come from. */
struct segment_source {
    uint64_t size;    /* rounded up to whole pages; of a file rounded down, and 0 is all of it */
    const char *path; /* NULL: fresh memory */
    uint64_t offset;
};

/* Makes and registers it. As file_memory_map and mc_memory_alloc. */
int32_t segment_memory_new(struct engine *engine, const struct segment_source *source,
                           struct segment_memory **ret_memory, struct mc_error *error);

/* Peers reach it no more; waits for those that do, a second at most. */
void segment_memory_withdraw(struct segment_memory *memory);

#endif

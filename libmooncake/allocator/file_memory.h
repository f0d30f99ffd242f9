/* allocator/file_memory.h - memory that is a part of a file: on a disk, or a shared memory object.
 *
 * Threads: any, one at a time for each.
 */
#ifndef MC_ALLOCATOR_FILE_MEMORY_H
#define MC_ALLOCATOR_FILE_MEMORY_H

#include <stdint.h>

#include <mooncake/error.h>

struct file_memory {
    int fd; /* -1: none */
    void *address;
    uint64_t size;
};

/* Maps `size` bytes at `offset` (a multiple of the page size) of the file, shared with whoever else maps it, and locks
 * them against others who would do the same. 0: all there is from there on; in whole pages, rounded down. All of the
 * bytes have their place on the disk from then on. MC_ERR_SYSTEM: it can't be opened or mapped; MC_ERR_INVALID_ARGUMENT:
 * no file, or too short; MC_ERR_BUSY: locked by another; MC_ERR_NO_SPACE: the disk is full. */
int32_t file_memory_map(const char *path, uint64_t offset, uint64_t size, struct file_memory *ret_memory,
                        struct mc_error *error);

/* One with fd -1 is fine. */
void file_memory_unmap(struct file_memory *memory);

#endif

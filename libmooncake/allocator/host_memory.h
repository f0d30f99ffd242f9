/* allocator/host_memory.h - host memory that other processes of this host can map: mc_memory_alloc.
 *
 * A process-wide table, so that a registry can tell whether a range lies in such memory, in O(log n).
 *
 * Threads: any.
 */
#ifndef MC_ALLOCATOR_HOST_MEMORY_H
#define MC_ALLOCATOR_HOST_MEMORY_H

#include <stdint.h>

#include <mooncake/error.h>

#include "os/memfd.h"

struct host_memory;

/* Allocates, and publishes an id (base/object.h). */
int32_t host_memory_alloc(uint64_t size, uint64_t *ret_id, void **ret_address, struct mc_error *error);

/* The same of other pages. Also MC_ERR_INVALID_ARGUMENT: no such node; MC_ERR_NOT_SUPPORTED: no huge pages, or none may
 * be bound to a node. MC_ERR_NO_MEMORY says what is missing. */
int32_t host_memory_alloc_of(const struct memfd_kind *kind, uint64_t size, uint64_t *ret_id, void **ret_address,
                             struct mc_error *error);

/* The same without pages: they come when they are first touched, or by host_memory_fault_in. */
int32_t host_memory_reserve(uint64_t size, uint64_t *ret_id, void **ret_address, struct mc_error *error);

/* Gives part of such memory its pages; what is there stays as it is. MC_ERR_NO_MEMORY; MC_ERR_INVALID_ARGUMENT: it is
 * no such memory. */
int32_t host_memory_fault_in(void *address, uint64_t length);

/* MC_ERR_BUSY while it is held. */
int32_t host_memory_free(uint64_t id);

/* The memory that contains the whole range, held until host_memory_release; NULL if there is none. */
struct host_memory *host_memory_hold(uint64_t address, uint64_t length);
void host_memory_release(struct host_memory *memory); /* NULL is fine */

uint64_t host_memory_base(const struct host_memory *memory);
uint64_t host_memory_size(const struct host_memory *memory); /* of the whole memfd */
int host_memory_fd(const struct host_memory *memory);

#endif

/* transfer/registry.h - the registered memory of one engine.
 *
 * Owns the regions. The same range with the same location and rights adds a count; every other overlap is refused.
 *
 * Threads: any.
 */
#ifndef MC_TRANSFER_REGISTRY_H
#define MC_TRANSFER_REGISTRY_H

#include <stddef.h>
#include <stdint.h>

#include <mooncake/error.h>

#include "transports/transport.h"

struct registry;

/* How the engine tells its transports of regions. Called without the lock that registry_pin takes. */
struct registry_ops {
    void (*publish)(void *context, struct region *region);
    int32_t (*withdraw)(void *context, struct region *region, uint64_t deadline);
};

struct registry *registry_new(const struct registry_ops *ops, void *context);

/* Forgets and frees everything; no pin may be left. NULL is fine; returns NULL. */
struct registry *registry_free(struct registry *registry);

/* As mc_engine_register and mc_engine_unregister; the latter waits until `deadline` for pins and peers. */
int32_t registry_add(struct registry *registry, uint64_t address, uint64_t length, const char *location,
                     uint32_t access, struct mc_error *error);
int32_t registry_remove(struct registry *registry, uint64_t address, uint64_t deadline, struct mc_error *error);

/* Withdraws all regions from the transports, whatever their counts; MC_ERR_BUSY, with all published as before, if one
 * can't be by `deadline`. */
int32_t registry_withdraw_all(struct registry *registry, uint64_t deadline);

/* How many regions there are, and their bytes. */
void registry_count(struct registry *registry, uint64_t *ret_regions, uint64_t *ret_bytes);

/* As transport_host. */
int32_t registry_pin(struct registry *registry, uint64_t address, uint64_t length, uint32_t access, void **ret_pin);
void registry_unpin(void *pin);

#endif

/* store/locate.h - where the replicas of objects are. Within a store call, any thread. */
#ifndef MC_STORE_LOCATE_H
#define MC_STORE_LOCATE_H

#include "store/store.h"

/* As mc_store_replicas. */
int32_t locate_replicas(struct store *store, const struct mc_keys *keys, uint64_t deadline,
                        struct mc_replica *ret_replicas, uint32_t capacity, size_t stride, int32_t *ret_counts,
                        struct mc_error *error);

#endif

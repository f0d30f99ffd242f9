/* store/tell.h - what a store says of itself and of the segments that it knows. All within a call.
 */
#ifndef MC_STORE_TELL_H
#define MC_STORE_TELL_H

#include "store/store.h"

/* As the public calls. */
int32_t store_health(struct store *store);
int64_t store_stats(struct store *store, char *text, size_t size);
int64_t store_segments(struct store *store, char *text, size_t size);

#endif

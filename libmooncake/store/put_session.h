/* store/put_session.h - puts in steps: room for values is reserved, they are written by parts, and then published.
 *
 * Each has an id. Within a store call, any thread; calls for one put at the same time exclude each other where they must
 * (MC_ERR_BUSY), but parts may be written by several threads at once.
 */
#ifndef MC_STORE_PUT_SESSION_H
#define MC_STORE_PUT_SESSION_H

#include <stdint.h>

#include "store/store.h"

/* What a call is about, checked: `count` puts by their ids, and for a write their pieces. */
struct put_step {
    const uint64_t *puts;
    size_t count;
    const struct mc_piece *pieces;
    const uint32_t *piece_counts;
    uint64_t deadline;
};

/* As mc_store_put_begin; `put` is complete. */
int32_t put_sessions_begin(struct store *store, const struct mc_keys *keys, const uint64_t *lengths,
                           const struct mc_put_options *put, uint64_t deadline, uint64_t space_deadline,
                           uint64_t *ret_puts, int32_t *ret_statuses, struct mc_error *error);

/* As mc_store_put_write, mc_store_put_end, mc_store_put_revoke. */
int32_t put_sessions_write(struct store *store, const struct put_step *step, int64_t *ret_lengths,
                           struct mc_error *error);
int32_t put_sessions_end(struct store *store, const struct put_step *step, int32_t *ret_statuses,
                         struct mc_error *error);
int32_t put_sessions_revoke(struct store *store, const struct put_step *step, int32_t *ret_statuses,
                            struct mc_error *error);

/* Revokes all of them; no call is in progress. */
void put_sessions_close(struct store *store);

#endif

/* api/puts.c - the public calls of store.h for puts in steps. */
#include <mooncake/store.h>

#include "api/handles.h"
#include "api/store_checks.h"
#include "base/clock.h"
#include "base/status.h"
#include "store/put_session.h"

int32_t mc_store_put_begin(mc_store *handle, const struct mc_keys *keys, const uint64_t *lengths,
                           const struct mc_put_options *options, uint64_t *ret_puts, int32_t *ret_statuses,
                           struct mc_error *error) {
    struct mc_put_options put;
    struct store *store;
    uint64_t deadline, space;
    int32_t status = check_put_options(&put, options, error);

    if (status == MC_OK && (keys == NULL || lengths == NULL || ret_puts == NULL || ret_statuses == NULL))
        status = status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "keys, lengths, ret_puts or ret_statuses are NULL");
    if (status == MC_OK)
        status = check_keys(keys, error);
    if (status == MC_OK)
        status = store_call_begin(handle, &store, error);
    if (status != MC_OK)
        return status;
    deadline = call_deadline(store, put.timeout_ns);
    space = put.timeout_ns > 0 ? deadline : clock_after(clock_now(), store->space_timeout);
    status = put_sessions_begin(store, keys, lengths, &put, deadline, space, ret_puts, ret_statuses, error);
    store_call_end(store);
    return status;
}

typedef int32_t step_function(struct store *store, const struct put_step *step, int32_t *ret_statuses,
                              struct mc_error *error);

static int32_t check_puts(const uint64_t *puts, size_t count, const void *results, struct mc_error *error) {
    if (count == 0 || count > MC_STORE_BATCH_MAX)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "a batch has 1 to %u puts, not %zu", MC_STORE_BATCH_MAX,
                          count);
    if (puts == NULL || results == NULL)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "puts or the place for the results is NULL");
    return MC_OK;
}

int32_t mc_store_put_write(mc_store *handle, const uint64_t *puts, size_t count, const struct mc_piece *pieces,
                           const uint32_t *counts, uint64_t timeout_ns, int64_t *ret_lengths, struct mc_error *error) {
    struct put_step step = {.puts = puts, .count = count, .pieces = pieces, .piece_counts = counts};
    struct store *store;
    int32_t status = check_puts(puts, count, ret_lengths, error);

    if (status == MC_OK)
        status = check_pieces(pieces, counts, count, error);
    if (status == MC_OK)
        status = store_call_begin(handle, &store, error);
    if (status != MC_OK)
        return status;
    step.deadline = call_deadline(store, timeout_ns);
    status = put_sessions_write(store, &step, ret_lengths, error);
    store_call_end(store);
    return status;
}

static int32_t last_step(mc_store *handle, const uint64_t *puts, size_t count, uint64_t timeout_ns,
                         step_function *function, int32_t *ret_statuses, struct mc_error *error) {
    struct put_step step = {.puts = puts, .count = count};
    struct store *store;
    int32_t status = check_puts(puts, count, ret_statuses, error);

    if (status == MC_OK)
        status = store_call_begin(handle, &store, error);
    if (status != MC_OK)
        return status;
    step.deadline = call_deadline(store, timeout_ns);
    status = function(store, &step, ret_statuses, error);
    store_call_end(store);
    return status;
}

int32_t mc_store_put_end(mc_store *store, const uint64_t *puts, size_t count, uint64_t timeout_ns,
                         int32_t *ret_statuses, struct mc_error *error) {
    return last_step(store, puts, count, timeout_ns, put_sessions_end, ret_statuses, error);
}

int32_t mc_store_put_revoke(mc_store *store, const uint64_t *puts, size_t count, int32_t *ret_statuses,
                            struct mc_error *error) {
    return last_step(store, puts, count, 0, put_sessions_revoke, ret_statuses, error);
}

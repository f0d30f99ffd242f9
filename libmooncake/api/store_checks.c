/* api/store_checks.c - the arguments that several calls on objects have. */
#include "api/store_checks.h"

#include <inttypes.h>
#include <stddef.h>

#include "api/handles.h"
#include "base/clock.h"
#include "base/status.h"

#define PUT_OPTIONS_1_0 (offsetof(struct mc_put_options, timeout_ns) + sizeof(uint64_t)) /* the size in 1.0 */
#define PUT_FLAGS (MC_PUT_SOFT_PIN | MC_PUT_HARD_PIN | MC_PUT_UPSERT)

int32_t check_put_options(struct mc_put_options *taken, const struct mc_put_options *given, struct mc_error *error) {
    int32_t status = options_take(taken, sizeof(*taken), PUT_OPTIONS_1_0, given, error);

    if (status != MC_OK)
        return status;
    if ((taken->flags & ~PUT_FLAGS) != 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "unknown flags 0x%x", taken->flags);
    if ((taken->flags & MC_PUT_SOFT_PIN) != 0 && (taken->flags & MC_PUT_HARD_PIN) != 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "a pin is soft or hard");
    if (taken->replicas > MC_REPLICAS_MAX)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "%u replicas are more than %u", taken->replicas,
                          MC_REPLICAS_MAX);
    if (taken->preferred_count > 0 && taken->preferred == NULL)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "preferred is NULL");
    for (uint32_t i = 0; i < taken->preferred_count; i++)
        if (taken->preferred[i] == NULL)
            return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "preferred[%u] is NULL", i);
    return MC_OK;
}

int32_t check_keys(const struct mc_keys *keys, struct mc_error *error) {
    uint64_t total = 0;

    if (keys->count == 0 || keys->count > MC_STORE_BATCH_MAX)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "a batch has 1 to %u keys, not %zu", MC_STORE_BATCH_MAX,
                          keys->count);
    if (keys->lengths == NULL)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "keys have no lengths");
    for (size_t i = 0; i < keys->count; i++)
        total += keys->lengths[i];
    if (keys->bytes == NULL && total > 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "keys are NULL");
    return MC_OK;
}

int32_t check_pieces(const struct mc_piece *pieces, const uint32_t *counts, size_t count, struct mc_error *error) {
    uint64_t total = 0;

    if (counts == NULL)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "pieces have no counts");
    for (size_t i = 0; i < count; i++)
        total += counts[i];
    if (total > MC_STORE_PIECES_MAX)
        return status_set(error, MC_ERR_TOO_LARGE, 0, "%" PRIu64 " pieces are more than %u", total,
                          MC_STORE_PIECES_MAX);
    if (pieces == NULL)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "pieces are NULL");
    return MC_OK;
}

uint64_t call_deadline(const struct store *store, uint64_t timeout) {
    return clock_after(clock_now(), timeout > 0 ? timeout : store->timeout);
}

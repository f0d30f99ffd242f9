/* api/segments.c - the public calls on a store's segments: they check and call inward. */
#include <string.h>

#include <mooncake/store.h>

#include "api/handles.h"
#include "api/store_checks.h"
#include "base/clock.h"
#include "base/status.h"
#include "store/tell.h"

#define OPTIONS_1_0 (offsetof(struct mc_segment_options, timeout_ns) + sizeof(uint64_t)) /* the size in 1.0 */

_Static_assert(MC_SEGMENT_ID_SIZE == SEGMENT_ID_TEXT, "as the store prints them");

int32_t mc_store_mount(mc_store *handle, const struct mc_segment_options *options, char *ret_id,
                       struct mc_error *error) {
    struct mc_segment_options taken;
    struct segment_source source;
    struct message_id segment;
    struct store *store;
    int32_t status;

    if (options == NULL || ret_id == NULL)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "options or ret_id is NULL");
    status = options_take(&taken, sizeof(taken), OPTIONS_1_0, options, error);
    if (status != MC_OK)
        return status;
    if (taken.flags != 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "unknown flags 0x%x", taken.flags);
    source = (struct segment_source){.size = taken.size, .path = taken.path, .offset = taken.offset};
    if (taken.name != NULL && taken.name[0] == '\0')
        taken.name = NULL;
    status = segment_check(&source, taken.name, error);
    if (status == MC_OK)
        status = store_call_begin(handle, &store, error);
    if (status != MC_OK)
        return status;
    status = owners_mount(&store->owners, &source, taken.name, call_deadline(store, taken.timeout_ns), &segment, error);
    if (status == MC_OK) {
        segment_id_print(&segment, ret_id);
        client_side_look_again(&store->client);
    }
    store_call_end(store);
    return status;
}

int32_t mc_store_unmount(mc_store *handle, const char *id, uint64_t grace_ns, struct mc_error *error) {
    struct message_id segment;
    struct store *store;
    int32_t status;

    if (id == NULL || !segment_id_scan(id, &segment))
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "that is no segment's id");
    status = store_call_begin(handle, &store, error);
    if (status != MC_OK)
        return status;
    status = owners_unmount(&store->owners, &segment, grace_ns, call_deadline(store, 0), error);
    store_call_end(store);
    return status;
}

int64_t mc_store_segments(mc_store *handle, char *text, size_t size) {
    struct store *store;
    int64_t length;
    int32_t status;

    if (text == NULL && size > 0)
        return MC_ERR_INVALID_ARGUMENT;
    status = store_call_begin(handle, &store, NULL);
    if (status != MC_OK)
        return status;
    length = store_segments(store, text, size);
    store_call_end(store);
    return length;
}

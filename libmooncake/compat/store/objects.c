/* compat/store/objects.c - putting, getting, asking for and removing objects; memory. Owns nothing; any thread. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "compat/store/inside.h"
#include "compat/words.h"

/* ---- One call on a store that is set up ---- */

/* What follows shim_enter: the store, or a result for the caller. */
struct call {
    const char *what;
    struct shim_store *shim;
    mc_store *store;
    struct mc_error error;
};

/* `given`: nothing that is needed is NULL. Else, or without a store, the call has its result. */
static bool call_begin(struct call *call, mooncake_store_t handle, const char *what, bool given, int *ret_result) {
    *call = (struct call){.what = what, .error = MC_ERROR_INIT};
    *ret_result = RESULT_NULL;
    call->shim = shim_enter(handle, what, &call->store);
    if (call->shim == NULL)
        return false;
    if (given && call->store != NULL)
        return true;
    if (given)
        *ret_result = RESULT_INVALID;
    words_warn("%s: %s", what, given ? "the store is not set up" : "an argument is NULL");
    shim_leave(call->shim);
    return false;
}

static int64_t call_end(struct call *call, int64_t result) {
    result = shim_result(call->what, result, &call->error);
    shim_leave(call->shim);
    return result;
}

/* ---- Putting ---- */

/* False: a segment's name is NULL. */
static bool options_of(const mooncake_replicate_config_t *config, struct mc_put_options *ret_options) {
    *ret_options = (struct mc_put_options){.struct_size = sizeof(*ret_options)};
    if (config == NULL)
        return true;
    ret_options->replicas = config->replica_num > MC_REPLICAS_MAX ? MC_REPLICAS_MAX : (uint32_t)config->replica_num;
    ret_options->flags = config->with_hard_pin != 0   ? MC_PUT_HARD_PIN
                         : config->with_soft_pin != 0 ? MC_PUT_SOFT_PIN
                                                      : 0;
    if (config->preferred_segments_count > UINT32_MAX ||
        (config->preferred_segments == NULL && config->preferred_segments_count > 0))
        return false;
    for (size_t i = 0; i < config->preferred_segments_count; i++)
        if (config->preferred_segments[i] == NULL)
            return false;
    ret_options->preferred = config->preferred_segments;
    ret_options->preferred_count = (uint32_t)config->preferred_segments_count;
    return true;
}

static int put_one(mooncake_store_t handle, const char *what, const char *key, const void *value, size_t size,
                   const mooncake_replicate_config_t *config) {
    struct mc_put_options options;
    struct call call;
    int32_t status;
    int result;

    if (!call_begin(&call, handle, what, key != NULL && (value != NULL || size == 0) && options_of(config, &options),
                    &result))
        return result;
    status = mc_store_put(call.store, key, strlen(key), value, size, &options, &call.error);
    return (int)call_end(&call, status == MC_ERR_ALREADY_EXISTS ? MC_OK : status);
}

int mooncake_store_put(mooncake_store_t store, const char *key, const void *value, size_t size,
                       const mooncake_replicate_config_t *config) {
    return put_one(store, __func__, key, value, size, config);
}

int mooncake_store_put_from(mooncake_store_t store, const char *key, void *buffer, size_t size,
                            const mooncake_replicate_config_t *config) {
    return put_one(store, __func__, key, buffer, size, config);
}

/* ---- Batches ---- */

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "columns of sizes are passed on as they are");
_Static_assert(sizeof(int) == sizeof(int32_t), "and those of results");

/* Keys as the library has them. */
struct blob {
    char *bytes;
    uint32_t *lengths;
};

static void blob_free(struct blob *blob) {
    free(blob->bytes);
    free(blob->lengths);
}

static bool blob_make(const char *const *keys, size_t count, struct blob *blob) {
    size_t total = 0;

    *blob = (struct blob){.lengths = calloc(count > 0 ? count : 1, sizeof(uint32_t))};
    for (size_t i = 0; i < count && blob->lengths != NULL; i++) {
        size_t length = strnlen(keys[i], MC_KEY_MAX + 1); /* longer ones fail by themselves */

        blob->lengths[i] = (uint32_t)length;
        total += length;
    }
    blob->bytes = malloc(total > 0 ? total : 1);
    if (blob->lengths == NULL || blob->bytes == NULL) {
        blob_free(blob);
        return false;
    }
    total = 0;
    for (size_t i = 0; i < count; i++) {
        memcpy(blob->bytes + total, keys[i], blob->lengths[i]);
        total += blob->lengths[i];
    }
    return true;
}

static bool none_is_null(const char *const *keys, size_t count) {
    for (size_t i = 0; keys != NULL && i < count; i++)
        if (keys[i] == NULL)
            return false;
    return keys != NULL || count == 0;
}

/* What a batch call does with some of its keys: the columns begin at `first`. */
typedef int32_t part_function(struct call *call, const struct mc_keys *keys, size_t first, void *columns);

/* Runs a batch in parts as large as the library takes. 0, or -1 without memory. */
static int run_batch(struct call *call, const char *const *keys, size_t count, part_function *part, void *columns) {
    struct blob blob;
    size_t begin = 0;

    if (!blob_make(keys, count, &blob)) {
        shim_leave(call->shim);
        return RESULT_NULL;
    }
    for (size_t first = 0; first < count; first += MC_STORE_BATCH_MAX) {
        struct mc_keys some = {.bytes = blob.bytes + begin,
                               .lengths = blob.lengths + first,
                               .count = count - first < MC_STORE_BATCH_MAX ? count - first : MC_STORE_BATCH_MAX};

        (void)shim_result(call->what, part(call, &some, first, columns), &call->error);
        for (size_t i = 0; i < some.count; i++)
            begin += some.lengths[i];
    }
    blob_free(&blob);
    shim_leave(call->shim);
    return 0;
}

struct put_columns {
    void **buffers;
    const size_t *sizes;
    const struct mc_put_options *options;
    int *results;
};

static int32_t put_part(struct call *call, const struct mc_keys *keys, size_t first, void *columns) {
    const struct put_columns *put = columns;
    int *results = put->results + first;
    int32_t status;

    for (size_t i = 0; i < keys->count; i++)
        results[i] = INT_MIN; /* not reached */
    status = mc_store_put_batch(call->store, keys, (const void *const *)(put->buffers + first), put->sizes + first,
                                put->options, results, &call->error);
    for (size_t i = 0; i < keys->count; i++) {
        int32_t one = results[i] == INT_MIN ? status : results[i];

        results[i] = one == MC_ERR_ALREADY_EXISTS ? 0 : shim_code(one);
    }
    return status;
}

int mooncake_store_batch_put_from(mooncake_store_t store, const char **keys, void **buffers, const size_t *sizes,
                                  size_t count, const mooncake_replicate_config_t *config, int *results) {
    struct mc_put_options options;
    struct put_columns columns = {.buffers = buffers, .sizes = sizes, .options = &options, .results = results};
    bool given = none_is_null((const char *const *)keys, count) &&
                 ((buffers != NULL && sizes != NULL && results != NULL) || count == 0) && options_of(config, &options);
    struct call call;
    int result;

    if (!call_begin(&call, store, __func__, given, &result))
        return result;
    return run_batch(&call, (const char *const *)keys, count, put_part, &columns);
}

struct get_columns {
    void **buffers;
    const size_t *sizes;
    int64_t *results;
};

static int32_t get_part(struct call *call, const struct mc_keys *keys, size_t first, void *columns) {
    const struct get_columns *get = columns;
    int64_t *results = get->results + first;
    int32_t status;

    for (size_t i = 0; i < keys->count; i++)
        results[i] = INT64_MIN;
    status = mc_store_get_batch(call->store, keys, get->buffers + first, get->sizes + first, 0, results, &call->error);
    for (size_t i = 0; i < keys->count; i++)
        if (results[i] < 0)
            results[i] = shim_code(results[i] == INT64_MIN ? status : (int32_t)results[i]);
    return status;
}

int mooncake_store_batch_get_into(mooncake_store_t store, const char **keys, void **buffers, const size_t *sizes,
                                  size_t count, int64_t *results) {
    struct get_columns columns = {.buffers = buffers, .sizes = sizes, .results = results};
    bool given = none_is_null((const char *const *)keys, count) &&
                 ((buffers != NULL && sizes != NULL && results != NULL) || count == 0);
    struct call call;
    int result;

    if (!call_begin(&call, store, __func__, given, &result))
        return result;
    return run_batch(&call, (const char *const *)keys, count, get_part, &columns);
}

static int32_t exist_part(struct call *call, const struct mc_keys *keys, size_t first, void *columns) {
    int *results = (int *)columns + first;
    int32_t status;

    for (size_t i = 0; i < keys->count; i++)
        results[i] = INT_MIN;
    status = mc_store_exists_batch(call->store, keys, 0, results, &call->error);
    for (size_t i = 0; i < keys->count; i++)
        if (results[i] < 0)
            results[i] = shim_code(results[i] == INT_MIN ? status : results[i]);
    return status;
}

int mooncake_store_batch_is_exist(mooncake_store_t store, const char **keys, size_t count, int *results) {
    struct call call;
    int result;

    if (!call_begin(&call, store, __func__,
                    none_is_null((const char *const *)keys, count) && (results != NULL || count == 0), &result))
        return result;
    return run_batch(&call, (const char *const *)keys, count, exist_part, results);
}

/* ---- The rest, one by one ---- */

int64_t mooncake_store_get_into(mooncake_store_t store, const char *key, void *buffer, size_t size) {
    struct call call;
    int result;

    if (!call_begin(&call, store, __func__, key != NULL && (buffer != NULL || size == 0), &result))
        return result;
    return call_end(&call, mc_store_get(call.store, key, strlen(key), buffer, size, 0, &call.error));
}

int mooncake_store_is_exist(mooncake_store_t store, const char *key) {
    struct call call;
    int result;

    if (!call_begin(&call, store, __func__, key != NULL, &result))
        return result;
    return (int)call_end(&call, mc_store_exists(call.store, key, strlen(key), 0, &call.error));
}

int64_t mooncake_store_get_size(mooncake_store_t store, const char *key) {
    struct call call;
    int result;

    if (!call_begin(&call, store, __func__, key != NULL, &result))
        return result;
    return call_end(&call, mc_store_size(call.store, key, strlen(key), 0, &call.error));
}

int mooncake_store_remove(mooncake_store_t store, const char *key, int force) {
    struct call call;
    int result;

    (void)force;
    if (!call_begin(&call, store, __func__, key != NULL, &result))
        return result;
    return (int)call_end(&call, mc_store_remove(call.store, key, strlen(key), 0, &call.error));
}

int64_t mooncake_store_remove_by_regex(mooncake_store_t store, const char *pattern, int force) {
    struct call call;
    int result;

    (void)force;
    if (!call_begin(&call, store, __func__, pattern != NULL, &result))
        return result;
    return call_end(&call, mc_store_remove_matching(call.store, pattern, strlen(pattern), 0, &call.error));
}

int64_t mooncake_store_remove_all(mooncake_store_t store, int force) {
    struct call call;
    int result;

    (void)force;
    if (!call_begin(&call, store, __func__, true, &result))
        return result;
    return call_end(&call, mc_store_remove_all(call.store, 0, &call.error));
}

int mooncake_store_register_buffer(mooncake_store_t store, void *buffer, size_t size) {
    struct call call;
    int result;

    if (!call_begin(&call, store, __func__, buffer != NULL, &result))
        return result;
    return (int)call_end(&call, mc_store_register(call.store, buffer, size, &call.error));
}

int mooncake_store_unregister_buffer(mooncake_store_t store, void *buffer) {
    struct call call;
    int result;

    if (!call_begin(&call, store, __func__, buffer != NULL, &result))
        return result;
    return (int)call_end(&call, mc_store_unregister(call.store, buffer, &call.error));
}

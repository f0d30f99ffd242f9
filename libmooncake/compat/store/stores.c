/* compat/store/stores.c - making, setting up and ending stores.
 *
 * Owns the stores. Threads: any; ending one waits for the library to be quiet, and other calls end with CLOSED then.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "compat/address.h"
#include "compat/store/inside.h"
#include "compat/words.h"

#define MASTER "127.0.0.1:50051"
#define MASTER_PORT 50051u
#define SEGMENT_LEAST 65536u

_Static_assert(sizeof(void *) == sizeof(uint64_t), "a handle is a number of 64 bits");
_Static_assert(sizeof(mooncake_replicate_config_t) == 32 &&
                   offsetof(mooncake_replicate_config_t, with_hard_pin) == 12 &&
                   offsetof(mooncake_replicate_config_t, preferred_segments) == 16,
               "the layout is the reference's");

static void destroy(struct token_object *object) {
    free(object);
}

struct shim_store *shim_enter(mooncake_store_t handle, const char *what, mc_store **ret_store) {
    struct shim_store *shim = (struct shim_store *)token_acquire((uint64_t)(uintptr_t)handle, TOKEN_STORE);

    if (shim == NULL)
        words_warn("%s: no store %p: it was destroyed, or never there", what, handle);
    else
        *ret_store = atomic_load(&shim->store);
    return shim;
}

void shim_leave(struct shim_store *shim) {
    token_drop(&shim->token);
}

/* ---- Life ---- */

mooncake_store_t mooncake_store_create(void) {
    struct shim_store *shim = calloc(1, sizeof(*shim));
    uint64_t number;

    if (shim == NULL)
        return NULL;
    token_init(&shim->token, TOKEN_STORE, destroy);
    atomic_init(&shim->store, NULL);
    atomic_flag_clear(&shim->taken);
    number = token_publish(&shim->token);
    token_drop(&shim->token); /* the table has its own */
    return (mooncake_store_t)(uintptr_t)number;
}

void mooncake_store_destroy(mooncake_store_t handle) {
    struct shim_store *shim = (struct shim_store *)token_withdraw((uint64_t)(uintptr_t)handle, TOKEN_STORE);
    mc_store *store;

    if (shim == NULL)
        return;
    store = atomic_exchange(&shim->store, NULL);
    if (store != NULL)
        (void)mc_store_close(store);
    token_drop(&shim->token);
}

/* ---- Setting up ---- */

struct wanted {
    char host[ADDRESS_HOST_MAX];
    uint64_t port;
    char listen[MC_ADDRESS_MAX];
    char master[MC_ADDRESS_MAX];
    struct mc_engine_options engine;
    struct mc_store_options options;
};

/* A master without a port has the reference's. */
static bool find_master(const char *given, struct wanted *wanted) {
    char host[ADDRESS_HOST_MAX];
    uint64_t port = MASTER_PORT;

    if (given == NULL)
        given = MASTER;
    if (given[0] == '\0') {
        wanted->options.flags |= MC_STORE_EMBEDDED;
        return true;
    }
    if (strstr(given, "://") != NULL || !address_take_apart(given, host, &port))
        return false;
    address_join(host, port, wanted->master);
    wanted->options.master = wanted->master;
    return true;
}

static int32_t find_wanted(const char *hostname, uint64_t segment_size, const char *master, struct wanted *wanted) {
    *wanted = (struct wanted){.engine = {.struct_size = sizeof(wanted->engine)},
                              .options = {.struct_size = sizeof(wanted->options)}};
    if (!address_take_apart(hostname, wanted->host, &wanted->port) || !find_master(master, wanted))
        return MC_ERR_ADDRESS;
    if (wanted->host[0] != '\0')
        wanted->engine.listen = wanted->listen;
    wanted->options.engine_options = &wanted->engine;
    wanted->options.segment_size = segment_size > 0 && segment_size < SEGMENT_LEAST ? SEGMENT_LEAST : segment_size;
    return MC_OK;
}

static int32_t open_wanted(struct wanted *wanted, mc_store **ret_store, struct mc_error *error) {
    int32_t status;

    address_join(wanted->host, wanted->port, wanted->listen);
    status = mc_store_open(&wanted->options, ret_store, error);
    if (status == MC_ERR_SYSTEM && error->system_errno == EADDRINUSE && wanted->port != 0) {
        words_warn("mooncake_store_setup: %s is taken, another port is used", wanted->listen);
        address_join(wanted->host, 0, wanted->listen);
        status = mc_store_open(&wanted->options, ret_store, error);
    }
    return status;
}

/* Gives the shim its store, unless it was destroyed meanwhile. */
static int32_t install(struct shim_store *shim, mooncake_store_t handle, mc_store *store) {
    struct token_object *there;

    atomic_store(&shim->store, store);
    there = token_acquire((uint64_t)(uintptr_t)handle, TOKEN_STORE);
    if (there != NULL) {
        token_drop(there);
        return MC_OK;
    }
    store = atomic_exchange(&shim->store, NULL); /* of the two who may find it, one closes it */
    if (store != NULL)
        (void)mc_store_close(store);
    return MC_ERR_CLOSED;
}

static int set_up(mooncake_store_t handle, const char *what, const char *hostname, uint64_t segment_size,
                  const char *master) {
    struct mc_error error = MC_ERROR_INIT;
    struct shim_store *shim;
    struct wanted wanted;
    mc_store *store;
    int32_t status;

    shim = shim_enter(handle, what, &store);
    if (shim == NULL || hostname == NULL) {
        if (shim != NULL)
            shim_leave(shim);
        return RESULT_NULL;
    }
    if (atomic_flag_test_and_set(&shim->taken)) {
        words_warn("%s: the store is already set up", what);
        shim_leave(shim);
        return RESULT_INVALID;
    }
    status = find_wanted(hostname, segment_size, master, &wanted);
    if (status == MC_OK)
        status = open_wanted(&wanted, &store, &error);
    if (status == MC_OK)
        status = install(shim, handle, store);
    else
        atomic_flag_clear(&shim->taken); /* it may be tried again */
    shim_leave(shim);
    return (int)shim_result(what, status, &error);
}

int mooncake_store_setup(mooncake_store_t store, const char *local_hostname, const char *metadata_server,
                         uint64_t global_segment_size, uint64_t local_buffer_size, const char *protocol,
                         const char *device_name, const char *master) {
    (void)metadata_server;
    (void)local_buffer_size;
    (void)protocol;
    (void)device_name;
    return set_up(store, __func__, local_hostname, global_segment_size, master);
}

int mooncake_store_init_all(mooncake_store_t store, const char *protocol, const char *device_name,
                            uint64_t mount_segment_size) {
    (void)protocol;
    (void)device_name;
    return set_up(store, __func__, "localhost", mount_segment_size, NULL);
}

void mooncake_store_set_etcd_tls_config(mooncake_store_t store, const char *ca, const char *cert, const char *key) {
    (void)store;
    (void)ca;
    (void)cert;
    (void)key;
    words_warn("%s: has no effect, etcd is not asked", __func__);
}

/* ---- Asking ---- */

int mooncake_store_health_check(mooncake_store_t handle) {
    mc_store *store;
    struct shim_store *shim = shim_enter(handle, __func__, &store);
    int result = 1;

    if (shim == NULL)
        return RESULT_NULL;
    if (store != NULL)
        result = mc_store_health(store) == MC_OK ? 0 : 2;
    shim_leave(shim);
    return result;
}

int mooncake_store_get_hostname(mooncake_store_t handle, char *text, size_t size) {
    char address[MC_ADDRESS_MAX];
    mc_store *store;
    struct shim_store *shim = shim_enter(handle, __func__, &store);
    int64_t length = RESULT_NULL;

    if (shim == NULL)
        return RESULT_NULL;
    if (text != NULL && store != NULL)
        length = mc_store_address(store, address, sizeof(address));
    if (length >= 0 && (uint64_t)length < sizeof(address) && (uint64_t)length < size)
        memcpy(text, address, (size_t)length + 1);
    else
        length = RESULT_NULL;
    shim_leave(shim);
    return length < 0 ? RESULT_NULL : 0;
}

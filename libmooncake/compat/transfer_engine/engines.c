/* compat/transfer_engine/engines.c - opening and ending engines, and what is asked of them.
 *
 * Owns the engines. Threads: any; ending one waits for the library to be quiet, and other calls end with CLOSED then.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compat/address.h"
#include "compat/words.h"

#include "compat/transfer_engine/inside.h"

#define CLOSE_TRIES 10 /* a second each at most: as long a peer's copy into registered memory may take */

_Static_assert(sizeof(void *) == sizeof(uint64_t), "a handle is a number of 64 bits");
_Static_assert(sizeof(transfer_request_t) == 40 && offsetof(transfer_request_t, source) == 8 &&
                   offsetof(transfer_request_t, target_id) == 16 && offsetof(transfer_request_t, target_offset) == 24 &&
                   offsetof(transfer_request_t, length) == 32,
               "the layout is the reference's");
_Static_assert(sizeof(transfer_status_t) == 16 && offsetof(transfer_status_t, transferred_bytes) == 8 &&
                   sizeof(notify_msg_t) == 16 && offsetof(notify_msg_t, msg) == 8 && sizeof(buffer_entry_t) == 16 &&
                   offsetof(buffer_entry_t, length) == 8,
               "the layout is the reference's");
_Static_assert(sizeof(nic_load_stat_t) == 80 && offsetof(nic_load_stat_t, inflight_bytes) == 64 &&
                   offsetof(nic_load_stat_t, ewma_bandwidth_bps) == 72 && offsetof(segment_desc_t, desc_) == 8,
               "the layout is the reference's");

static void destroy(struct token_object *object) {
    struct engine *engine = (struct engine *)object;

    segments_free(engine);
    memory_forget(engine);
    pthread_cond_destroy(&engine->asked);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
}

struct engine *engine_enter(transfer_engine_t handle, const char *what) {
    struct engine *engine = (struct engine *)token_acquire((uint64_t)(uintptr_t)handle, TOKEN_ENGINE);

    if (engine == NULL)
        words_warn("%s: no engine %p: it was destroyed, or never there", what, handle);
    return engine;
}

void engine_leave(struct engine *engine) {
    token_drop(&engine->token);
}

/* ---- Opening ---- */

static bool is_everywhere(const char *host) {
    return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

/* Where to listen, and what to tell peers, in the words of the library. */
struct place {
    char name_host[ADDRESS_HOST_MAX];
    char host[ADDRESS_HOST_MAX];
    uint64_t port;
    char listen[MC_ADDRESS_MAX];
    struct mc_engine_options options;
};

static int32_t find_place(const char *metadata, const char *name, const char *ip, uint64_t port, struct place *place) {
    bool is_directory = metadata != NULL && metadata[0] != '\0' && strcmp(metadata, "P2PHANDSHAKE") != 0;
    bool has_ip = ip != NULL && ip[0] != '\0';
    uint64_t name_port = 0, ip_port = 0;

    *place = (struct place){.options = {.struct_size = sizeof(place->options)}};
    /* In a directory the name may be any, if `ip` says where the engine is. */
    if (name != NULL && !address_take_apart(name, place->name_host, &name_port)) {
        if (!is_directory || !has_ip)
            return MC_ERR_ADDRESS;
        place->name_host[0] = '\0';
        name_port = 0;
    }
    if (has_ip && !address_take_apart(ip, place->host, &ip_port))
        return MC_ERR_ADDRESS;
    if (port > ADDRESS_PORT_MAX)
        return MC_ERR_ADDRESS;
    if (!has_ip)
        memcpy(place->host, place->name_host, sizeof(place->host));
    place->port = port != 0 ? port : ip_port != 0 ? ip_port : name_port;
    if (place->host[0] != '\0')
        place->options.listen = place->listen;
    if (has_ip && is_everywhere(place->host) && place->name_host[0] != '\0' && !is_everywhere(place->name_host))
        place->options.advertise = place->name_host;
    place->options.directory = is_directory ? metadata : "p2p";
    if (is_directory)
        place->options.name = name;
    return MC_OK;
}

static int32_t open_engine(struct place *place, mc_engine **ret_engine, struct mc_error *error) {
    int32_t status;

    address_join(place->host, place->port, place->listen);
    status = mc_engine_open(&place->options, ret_engine, error);
    if (status == MC_ERR_SYSTEM && error->system_errno == EADDRINUSE && place->port != 0) {
        /* The reference takes a random port whatever was asked for, so that programs may ask for one twice. */
        words_warn("createTransferEngine: %s is taken, another port is used", place->listen);
        address_join(place->host, 0, place->listen);
        status = mc_engine_open(&place->options, ret_engine, error);
    }
    return status;
}

static struct engine *make(mc_engine *inner) {
    struct engine *engine = calloc(1, sizeof(*engine));

    if (engine == NULL)
        return NULL;
    token_init(&engine->token, TOKEN_ENGINE, destroy);
    engine->engine = inner;
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->asked, NULL);
    engine->number = token_publish(&engine->token);
    if (engine->number == 0) {
        token_drop(&engine->token);
        return NULL;
    }
    return engine;
}

transfer_engine_t createTransferEngine(const char *metadata, const char *local_name, const char *ip, uint64_t rpc_port,
                                       int auto_discover) {
    struct mc_error error = MC_ERROR_INIT;
    struct engine *engine;
    struct place place;
    mc_engine *inner = NULL;
    uint64_t number;
    int32_t status = find_place(metadata, local_name, ip, rpc_port, &place);

    (void)auto_discover;
    if (status == MC_OK)
        status = open_engine(&place, &inner, &error);
    if (status != MC_OK) {
        (void)result_say(__func__, status, &error);
        return NULL;
    }
    engine = make(inner);
    if (engine == NULL) {
        (void)mc_engine_close(inner);
        (void)result_say(__func__, MC_ERR_NO_MEMORY, NULL);
        return NULL;
    }
    number = engine->number;
    token_drop(&engine->token);
    return (transfer_engine_t)(uintptr_t)number;
}

/* ---- Ending ---- */

bool engine_end(uint64_t number) {
    struct engine *engine = (struct engine *)token_withdraw(number, TOKEN_ENGINE);
    int32_t status = MC_ERR_BUSY;

    if (engine == NULL)
        return false;
    pthread_mutex_lock(&engine->lock);
    engine->ended = true;
    pthread_mutex_unlock(&engine->lock);
    for (int i = 0; i < CLOSE_TRIES && status == MC_ERR_BUSY; i++)
        status = mc_engine_close(engine->engine);
    if (status != MC_OK)
        (void)result_say("destroyTransferEngine", status, NULL);
    batches_free(engine);
    token_drop(&engine->token);
    return true;
}

void destroyTransferEngine(transfer_engine_t handle) {
    if (!engine_end((uint64_t)(uintptr_t)handle))
        words_warn("%s: no engine %p: it was destroyed, or never there", __func__, handle);
}

void enableGracefulShutdown(transfer_engine_t handle) {
    struct engine *engine = engine_enter(handle, __func__);

    if (engine == NULL)
        return;
    if (!shutdown_watch(engine->number))
        (void)result_say(__func__, MC_ERR_NO_MEMORY, NULL);
    engine_leave(engine);
}

/* ---- Asking ---- */

int getLocalIpAndPort(transfer_engine_t handle, char *buf, size_t len) {
    struct engine *engine = engine_enter(handle, __func__);
    int64_t length;

    if (engine == NULL)
        return result_of(MC_ERR_INVALID_HANDLE);
    length = mc_engine_address(engine->engine, buf, len);
    engine_leave(engine);
    if (length >= 0 && (uint64_t)length < len)
        return 0;
    if (buf != NULL && len > 0)
        buf[0] = '\0'; /* a cut address would be another one's */
    return result_say(__func__, length < 0 ? (int32_t)length : MC_ERR_BUFFER_TOO_SMALL, NULL);
}

/* For calls that have nothing to do here, but for a valid engine. */
static int nothing(transfer_engine_t handle, const char *what) {
    struct engine *engine = engine_enter(handle, what);

    if (engine == NULL)
        return result_of(MC_ERR_INVALID_HANDLE);
    engine_leave(engine);
    return 0;
}

int discoverTopology(transfer_engine_t handle) {
    return nothing(handle, __func__);
}

int syncSegmentCache(transfer_engine_t handle) {
    return nothing(handle, __func__);
}

int removeLocalSegment(transfer_engine_t handle, const char *name) {
    return name == NULL ? result_say(__func__, MC_ERR_INVALID_ARGUMENT, NULL) : nothing(handle, __func__);
}

int uninstallTransport(transfer_engine_t handle, const char *proto) {
    return proto == NULL ? result_say(__func__, MC_ERR_INVALID_ARGUMENT, NULL) : nothing(handle, __func__);
}

int getNicLoadStats(transfer_engine_t handle, nic_load_stat_t *list, size_t *count) {
    int result;

    (void)list;
    if (count == NULL)
        return result_say(__func__, MC_ERR_INVALID_ARGUMENT, NULL);
    result = nothing(handle, __func__);
    if (result == 0)
        *count = 0;
    return result;
}

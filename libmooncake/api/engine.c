/* api/engine.c - the public calls of transfer.h on engines, memory, peers and notifications: they check and call
 * inward. Owns nothing; any thread. */
#include <stdlib.h>
#include <string.h>

#include <mooncake/transfer.h>

#include "allocator/host_memory.h"
#include "api/handles.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/status.h"
#include "base/writer.h"
#include "transfer/naming.h"

#define UNREGISTER_TIME CLOCK_SECOND
#define OPTIONS_1_0 sizeof(struct mc_engine_options) /* the size in 1.0 */

int32_t mc_engine_open(const struct mc_engine_options *options, mc_engine **ret_engine, struct mc_error *error) {
    struct mc_engine_options taken;
    struct engine *engine;
    uint64_t id;
    int32_t status;

    if (ret_engine == NULL)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "ret_engine is NULL");
    status = options_take(&taken, sizeof(taken), OPTIONS_1_0, options, error);
    if (status != MC_OK)
        return status;
    if ((taken.flags & ~MC_ENGINE_CHECKSUM) != 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "unknown flags 0x%x", taken.flags);
    if (taken.reserved != 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "`reserved` of the options must be 0");
    status = engine_open(&taken, &engine, error);
    if (status != MC_OK)
        return status;
    status = object_publish(&engine->object, &id);
    if (status == MC_OK)
        *ret_engine = (mc_engine *)(uintptr_t)id;
    else
        (void)engine_close(engine);
    ref_drop(&engine->object.ref);
    return status == MC_OK ? MC_OK : status_set(error, status, 0, "too many objects");
}

int32_t mc_engine_close(mc_engine *handle) {
    uint64_t id = (uint64_t)(uintptr_t)handle;
    struct object *object;
    int32_t status = object_acquire(id, OBJECT_ENGINE, &object);

    if (status != MC_OK)
        return status;
    status = engine_close(engine_of(object));
    if (status == MC_OK) {
        struct object *withdrawn;

        if (object_withdraw(id, OBJECT_ENGINE, &withdrawn) == MC_OK)
            ref_drop(&withdrawn->ref);
    }
    ref_drop(&object->ref);
    return status;
}

/* What an engine tells of itself, as by mc_capabilities. */
static int64_t tell(mc_engine *handle, void (*write)(struct engine *engine, struct writer *writer), char *text,
                    size_t size) {
    struct engine *engine;
    struct writer writer;
    int32_t status;

    if (text == NULL && size > 0)
        return MC_ERR_INVALID_ARGUMENT;
    status = engine_call_begin(handle, &engine, NULL);
    if (status != MC_OK)
        return status;
    writer_init(&writer, text, size);
    write(engine, &writer);
    engine_call_end(engine);
    return (int64_t)writer.length;
}

static void write_address(struct engine *engine, struct writer *writer) {
    writer_print(writer, "%s", engine->address);
}

static void write_topology(struct engine *engine, struct writer *writer) {
    writer_print(writer, "%s", engine->topology);
}

static void write_json(struct engine *engine, struct writer *writer) {
    engine_metrics(engine, MC_METRICS_JSON, writer);
}

static void write_prometheus(struct engine *engine, struct writer *writer) {
    engine_metrics(engine, MC_METRICS_PROMETHEUS, writer);
}

int64_t mc_engine_address(mc_engine *handle, char *text, size_t size) {
    return tell(handle, write_address, text, size);
}

int64_t mc_engine_topology(mc_engine *handle, char *text, size_t size) {
    return tell(handle, write_topology, text, size);
}

int64_t mc_engine_metrics(mc_engine *handle, uint32_t format, char *text, size_t size) {
    if (format != MC_METRICS_JSON && format != MC_METRICS_PROMETHEUS)
        return MC_ERR_INVALID_ARGUMENT;
    return tell(handle, format == MC_METRICS_JSON ? write_json : write_prometheus, text, size);
}

int32_t mc_engine_incarnation(mc_engine *handle, uint8_t ret_incarnation[16]) {
    struct engine *engine;
    int32_t status;

    if (ret_incarnation == NULL)
        return MC_ERR_INVALID_ARGUMENT;
    status = engine_call_begin(handle, &engine, NULL);
    if (status != MC_OK)
        return status;
    memcpy(ret_incarnation, engine->identity.incarnation, 16);
    engine_call_end(engine);
    return MC_OK;
}

/* ---- Memory ---- */

int32_t mc_memory_alloc(uint64_t size, const struct mc_memory_options *options, uint64_t *ret_memory,
                        void **ret_address, struct mc_error *error) {
    struct mc_memory_options taken;
    struct memfd_kind kind;
    int32_t status;

    if (ret_memory == NULL || ret_address == NULL)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "ret_memory or ret_address is NULL");
    status = options_take(&taken, sizeof(taken), sizeof(taken), options, error);
    if (status != MC_OK)
        return status;
    if ((taken.flags & ~(MC_MEMORY_HUGE | MC_MEMORY_NUMA)) != 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "unknown flags 0x%x", taken.flags);
    if (taken.reserved != 0 || (taken.numa_node != 0 && (taken.flags & MC_MEMORY_NUMA) == 0))
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0,
                          "a NUMA node without MC_MEMORY_NUMA, or a reserved field that is not 0");
    kind.huge = (taken.flags & MC_MEMORY_HUGE) != 0;
    kind.bound = (taken.flags & MC_MEMORY_NUMA) != 0;
    kind.node = taken.numa_node;
    return host_memory_alloc_of(&kind, size, ret_memory, ret_address, error);
}

int32_t mc_memory_free(uint64_t memory) {
    return host_memory_free(memory);
}

/* "*" or "cpu:N". */
static bool is_host_location(const char *location) {
    size_t digits;

    if (strcmp(location, "*") == 0)
        return true;
    if (strncmp(location, "cpu:", 4) != 0)
        return false;
    digits = strspn(location + 4, "0123456789");
    return digits > 0 && digits <= 4 && location[4 + digits] == '\0';
}

int32_t mc_engine_register(mc_engine *handle, void *address, uint64_t length, const char *location, uint32_t access,
                           struct mc_error *error) {
    struct engine *engine;
    int32_t status;

    if (location == NULL)
        location = "*";
    if ((access & ~(MC_REMOTE_READ | MC_REMOTE_WRITE)) != 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "unknown access rights 0x%x", access);
    if (!is_host_location(location))
        return status_set(error, MC_ERR_NOT_SUPPORTED, 0,
                          "no memory at \"%.64s\" can be registered here, only \"*\" and \"cpu:N\"", location);
    status = engine_call_begin(handle, &engine, error);
    if (status != MC_OK)
        return status;
    status = registry_add(engine->registry, (uint64_t)(uintptr_t)address, length, location, access, error);
    engine_call_end(engine);
    return status;
}

int32_t mc_engine_unregister(mc_engine *handle, void *address, struct mc_error *error) {
    struct engine *engine;
    int32_t status = engine_call_begin(handle, &engine, error);

    if (status != MC_OK)
        return status;
    status = registry_remove(engine->registry, (uint64_t)(uintptr_t)address, clock_after(clock_now(), UNREGISTER_TIME),
                             error);
    engine_call_end(engine);
    return status;
}

/* ---- Peers ---- */

int32_t mc_peer_open(mc_engine *handle, const char *address, uint64_t *ret_peer, struct mc_error *error) {
    struct engine *engine;
    struct peer *peer;
    int32_t status;

    if (address == NULL || ret_peer == NULL)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "address or ret_peer is NULL");
    status = engine_call_begin(handle, &engine, error);
    if (status != MC_OK)
        return status;
    status = naming_open_peer(engine, address, engine->connect_timeout, &peer, error);
    if (status == MC_OK) {
        status = object_publish(&peer->object, ret_peer);
        if (status != MC_OK)
            status_set(error, status, 0, "too many objects");
        ref_drop(&peer->object.ref);
    }
    engine_call_end(engine);
    return status;
}

int32_t mc_peer_close(uint64_t id) {
    struct object *object;
    struct engine *engine;
    bool open;
    int32_t status = object_withdraw(id, OBJECT_PEER, &object);

    if (status != MC_OK)
        return status;
    engine = peer_of(object)->engine;
    ref_take(&engine->object.ref);
    open = engine_enter_or_closed(engine);
    ref_drop(&object->ref);
    if (open)
        engine_leave(engine);
    ref_drop(&engine->object.ref);
    return MC_OK;
}

/* 0 is the engine's default. */
static uint64_t deadline_of(const struct engine *engine, uint64_t timeout_ns) {
    return clock_after(clock_now(), timeout_ns > 0 ? timeout_ns : engine->transfer_timeout);
}

int32_t mc_peer_probe(uint64_t id, uint64_t timeout_ns, struct mc_error *error) {
    struct peer *peer;
    int32_t status = peer_call_begin(id, &peer, error);

    if (status != MC_OK)
        return status;
    status = peer_probe(peer, deadline_of(peer->engine, timeout_ns), error);
    peer_call_end(peer);
    return status;
}

int64_t mc_peer_explain(uint64_t id, char *text, size_t size) {
    struct peer *peer;
    int64_t length;
    int32_t status;

    if (text == NULL && size > 0)
        return MC_ERR_INVALID_ARGUMENT;
    status = peer_call_begin(id, &peer, NULL);
    if (status != MC_OK)
        return status;
    length = peer_explain(peer, text, size);
    peer_call_end(peer);
    return length;
}

/* ---- Notifications ---- */

int32_t mc_peer_notify(uint64_t id, const void *name, size_t name_length, const void *message, size_t message_length,
                       uint64_t timeout_ns, struct mc_error *error) {
    const struct notice notice = {name, name_length, message, message_length};
    struct peer *peer;
    int32_t status = notice_check(&notice, error);
    if (status != MC_OK)
        return status;
    status = peer_call_begin(id, &peer, error);
    if (status != MC_OK)
        return status;
    status = peer_notify(peer, &notice, deadline_of(peer->engine, timeout_ns), error);
    peer_call_end(peer);
    return status;
}

int32_t mc_engine_receive(mc_engine *handle, uint64_t timeout_ns, struct mc_notification **ret_notification) {
    struct engine *engine;
    int32_t status;

    if (ret_notification == NULL)
        return MC_ERR_INVALID_ARGUMENT;
    status = engine_call_begin(handle, &engine, NULL);
    if (status != MC_OK)
        return status;
    status = notifications_take(engine->notifications, clock_after(clock_now(), timeout_ns), ret_notification);
    engine_call_end(engine);
    return status;
}

int32_t mc_engine_notification_fd(mc_engine *handle) {
    struct engine *engine;
    int32_t result = engine_call_begin(handle, &engine, NULL);

    if (result != MC_OK)
        return result;
    result = notifications_fd(engine->notifications);
    engine_call_end(engine);
    return result;
}

void mc_notification_free(struct mc_notification *notification) {
    free(notification);
}

/* transfer/engine.c - opening and closing an engine.
 *
 * Opening goes up the layers: loop, server, transports, listener. Closing first makes everything quiet, while all is
 * still there, and then takes the layers down: what runs on the loop's thread is ended on that thread.
 */
#include "transfer/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/status.h"
#include "net/gone.h"
#include "os/event.h"
#include "os/thread.h"
#include "topology/topology.h"
#include "transfer/batch.h"
#include "transfer/metrics.h"
#include "transfer/naming.h"
#include "transfer/peer.h"

#define CLOSE_TIME CLOCK_SECOND

_Static_assert(METRICS_TRANSPORTS == ENGINE_TRANSPORTS, "each transport has its counters");

static const struct transport_ops *const all_transports[ENGINE_TRANSPORTS] = {
    &transport_self,
    &transport_shm,
    &transport_tcp,
};

static void destroy(struct ref *ref) {
    struct engine *engine = list_entry(ref, struct engine, object.ref);

    metrics_free(engine->metrics);
    free(engine->topology);
    pthread_cond_destroy(&engine->quiet);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
}

struct engine *engine_of(struct object *object) {
    return list_entry(object, struct engine, object);
}

int32_t engine_enter(struct engine *engine) {
    if ((atomic_fetch_add(&engine->inside, 1) & ENGINE_SHUT) == 0)
        return MC_OK;
    engine_leave(engine);
    return MC_ERR_CLOSED;
}

bool engine_enter_or_closed(struct engine *engine) {
    bool closed = false;

    while (engine_enter(engine) != MC_OK) {
        pthread_mutex_lock(&engine->lock);
        while (engine->state == ENGINE_CLOSING)
            pthread_cond_wait(&engine->quiet, &engine->lock);
        closed = engine->state == ENGINE_CLOSED;
        pthread_mutex_unlock(&engine->lock);
        if (closed)
            return false;
    }
    return true;
}

void engine_leave(struct engine *engine) {
    if (atomic_fetch_sub(&engine->inside, 1) != (ENGINE_SHUT | 1))
        return;
    pthread_mutex_lock(&engine->lock);
    pthread_cond_broadcast(&engine->quiet);
    pthread_mutex_unlock(&engine->lock);
}

int32_t engine_use(struct engine *engine) {
    int32_t status = MC_OK;

    pthread_mutex_lock(&engine->lock);
    if (engine->state != ENGINE_OPEN)
        status = MC_ERR_CLOSED;
    else if (engine->used)
        status = MC_ERR_BUSY;
    else
        engine->used = true;
    pthread_mutex_unlock(&engine->lock);
    return status;
}

void engine_unuse(struct engine *engine) {
    pthread_mutex_lock(&engine->lock);
    engine->used = false;
    pthread_mutex_unlock(&engine->lock);
}

/* ---- What the layers below ask of the engine ---- */

static int32_t host_pin(void *context, uint64_t address, uint64_t length, uint32_t access, void **ret_pin) {
    struct engine *engine = context;

    return registry_pin(engine->registry, address, length, access, ret_pin);
}

static void host_unpin(void *context, void *pin) {
    (void)context;
    registry_unpin(pin);
}

static void publish(void *context, struct region *region) {
    struct engine *engine = context;

    for (size_t i = 0; i < ENGINE_TRANSPORTS; i++)
        if (engine->transports[i].transport != NULL && engine->transports[i].ops->publish != NULL)
            engine->transports[i].ops->publish(engine->transports[i].transport, region);
}

static int32_t withdraw(void *context, struct region *region, uint64_t deadline) {
    struct engine *engine = context;
    int32_t status = MC_OK;

    for (size_t i = 0; i < ENGINE_TRANSPORTS && status == MC_OK; i++)
        if (engine->transports[i].transport != NULL && engine->transports[i].ops->withdraw != NULL)
            status = engine->transports[i].ops->withdraw(engine->transports[i].transport, region, deadline);
    return status;
}

static const struct registry_ops registry_hooks = {publish, withdraw};

/* ---- Opening ---- */

/* Which transports `protocol` leaves; self is always there. */
static int32_t restrict_transports(struct engine *engine, const char *protocol, struct mc_error *error) {
    bool known = protocol == NULL;

    for (size_t i = 0; i < ENGINE_TRANSPORTS; i++) {
        const char *name = all_transports[i]->name;

        engine->transports[i].ops = all_transports[i];
        if (protocol != NULL && strcmp(name, protocol) == 0)
            known = true;
        else if (protocol != NULL && all_transports[i] != &transport_self)
            snprintf(engine->transports[i].reason, TRANSPORT_REASON_MAX, "the engine is restricted to \"%.32s\"",
                     protocol);
    }
    if (known)
        return MC_OK;
    return status_set(error, MC_ERR_NOT_SUPPORTED, 0, "no transport \"%.64s\"; there are self, shm and tcp", protocol);
}

static int32_t read_settings(struct engine *engine, const struct mc_engine_options *options, struct mc_error *error) {
    bool force_tcp = config_text(SETTING_FORCE_TCP, NULL) != NULL;
    const char *protocol = force_tcp ? "tcp" : config_text(SETTING_PROTOCOL, options->protocol);
    uint64_t lanes, slice, checksum, timeout_ms, seconds, busy_us;
    int32_t status = MC_OK;

    if (options->connect_timeout_ns > 0)
        timeout_ms = 0;
    else
        status = config_u64(SETTING_CONNECT_TIMEOUT_MS, 0, &timeout_ms, error);
    if (status == MC_OK)
        status = config_u64(SETTING_TRANSFER_TIMEOUT, 0, &seconds, error);
    if (status == MC_OK)
        status = config_u64(SETTING_TCP_LANES, options->lanes, &lanes, error);
    if (status == MC_OK)
        status = config_u64(SETTING_TCP_SLICE, 0, &slice, error);
    if (status == MC_OK)
        status = config_u64(SETTING_CHECKSUM, (options->flags & MC_ENGINE_CHECKSUM) != 0, &checksum, error);
    if (status == MC_OK)
        status = config_u64(SETTING_BUSY_POLL, options->busy_poll_us, &busy_us, error);
    if (status != MC_OK)
        return status;
    engine->busy_poll = busy_us * (CLOCK_MILLISECOND / 1000);
    engine->connect_timeout = timeout_ms > 0 ? timeout_ms * CLOCK_MILLISECOND : options->connect_timeout_ns;
    engine->transfer_timeout = seconds * CLOCK_SECOND;
    engine->lanes = (uint32_t)lanes;
    engine->host = (struct transport_host){
        .self = &engine->identity,
        .slice = (uint32_t)slice,
        .connect_timeout = engine->connect_timeout,
        .checksum = checksum != 0,
        .context = engine,
        .pin = host_pin,
        .unpin = host_unpin,
    };
    return restrict_transports(engine, protocol, error);
}

static int32_t open_server(struct engine *engine, const struct mc_engine_options *options, struct mc_error *error) {
    struct server_options server = {.loop = engine->loop, .self = &engine->identity};
    uint64_t sessions, backlog, notifications, rings;
    int32_t status = config_u64(SETTING_SESSIONS, 0, &sessions, error);

    if (status == MC_OK)
        status = config_u64(SETTING_LISTEN_BACKLOG, 0, &backlog, error);
    if (status == MC_OK)
        status = config_u64(SETTING_RINGS, 0, &rings, error);
    if (status == MC_OK)
        status = config_u64(SETTING_NOTIFICATIONS, options->notifications, &notifications, error);
    if (status != MC_OK)
        return status;
    server.sessions = (uint32_t)sessions;
    server.backlog = (int)backlog;
    server.rings = (uint32_t)rings;
    engine->registry = registry_new(&registry_hooks, engine);
    engine->notifications = notifications_new((uint32_t)notifications);
    if (engine->registry == NULL || engine->notifications == NULL || server_open(&server, &engine->server) != MC_OK)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    engine->host.loop = engine->loop;
    engine->host.server = engine->server;
    engine->host.rings = rings > 0;
    notifications_serve(engine->notifications, engine->server);
    return MC_OK;
}

static int32_t open_transports(struct engine *engine, struct mc_error *error) {
    for (size_t i = 0; i < ENGINE_TRANSPORTS; i++) {
        struct engine_transport *slot = &engine->transports[i];
        int32_t status;

        if (slot->reason[0] != '\0')
            continue;
        status = slot->ops->open(&engine->host, &slot->transport, slot->reason);
        if (status != MC_OK && status != MC_ERR_NOT_SUPPORTED)
            return status_set(error, status, 0, "%s: %s", slot->ops->name, status_text(status));
    }
    return MC_OK;
}

/* Listens, and decides how peers name this engine. */
static int32_t listen_at(struct engine *engine, const struct mc_engine_options *options, struct mc_error *error) {
    const char *where = config_text(SETTING_LISTEN, options->listen);
    const char *advertise = config_text(SETTING_ADVERTISE, options->advertise);
    struct address_text parts, advertised;
    struct address address, bound;
    size_t count;
    int32_t status = address_parse(where, &parts, error);

    if (status == MC_OK && advertise != NULL)
        status = address_parse(advertise, &advertised, error);
    if (status == MC_OK && advertise != NULL && advertised.port >= 0)
        status = status_set(error, MC_ERR_ADDRESS, 0, "\"%s\": only the host is advertised, the port is the listener's",
                            advertise);
    if (status == MC_OK && advertise != NULL && address_text_is_any(advertised.host))
        status =
            status_set(error, MC_ERR_ADDRESS, 0, "\"%s\" can't be advertised: peers reach nobody there", advertise);
    if (status == MC_OK)
        status = address_resolve(parts.host, parts.port > 0 ? (uint16_t)parts.port : 0, &address, 1, &count, error);
    if (status == MC_OK && advertise == NULL && address_is_any(&address))
        status = status_set(error, MC_ERR_ADDRESS, 0,
                            "%s listens everywhere: say with `advertise` (MC_TCP_BIND_ADDRESS) "
                            "under which address peers find it",
                            where);
    if (status == MC_OK)
        status = server_listen(engine->server, &address, &bound, error);
    if (status == MC_OK)
        address_join(advertise != NULL ? advertised.host : parts.host, address_port(&bound), engine->address);
    return status;
}

/* ---- What is built on an engine ---- */

void engine_speed_up(struct engine *engine, struct channel *channel) {
    for (size_t i = 0; i < ENGINE_TRANSPORTS; i++)
        if (engine->transports[i].transport != NULL && engine->transports[i].ops->speed_up != NULL)
            engine->transports[i].ops->speed_up(engine->transports[i].transport, channel);
}

bool engine_in_flight(struct engine *engine, const void *guard) {
    for (size_t i = 0; i < ENGINE_TRANSPORTS; i++) {
        const struct engine_transport *slot = &engine->transports[i];

        if (slot->transport != NULL && slot->ops->in_flight != NULL && slot->ops->in_flight(slot->transport, guard))
            return true;
    }
    return false;
}

struct watcher {
    struct clients *clients;
    void (*lost)(void *context, const uint8_t incarnation[16]);
    void *context;
};

static void watch_clients(void *context) {
    const struct watcher *watcher = context;

    clients_watch(watcher->clients, watcher->lost, watcher->context);
}

void engine_watch_clients(struct engine *engine, void (*lost)(void *context, const uint8_t incarnation[16]),
                          void *context) {
    struct watcher watcher = {server_clients(engine->server), lost, context};

    loop_run(engine->loop, watch_clients, &watcher);
}

uint32_t engine_client_count(struct engine *engine, const uint8_t incarnation[16]) {
    return clients_count(server_clients(engine->server), incarnation);
}

bool engine_prove_gone(struct engine *engine, const char *address, const uint8_t incarnation[16], uint64_t timeout) {
    return gone_prove(&engine->identity, address, incarnation, clock_after(clock_now(), timeout));
}

/* ---- Watching ---- */

struct session_count {
    const struct server *server;
    struct server_counters counters;
};

static void count_sessions(void *context) {
    struct session_count *count = context;

    count->counters = server_count(count->server);
}

void engine_metrics(struct engine *engine, uint32_t format, struct writer *writer) {
    struct session_count sessions = {.server = engine->server};
    struct metrics_engine numbers = {.address = engine->address};
    struct list *node, *after;

    loop_run(engine->loop, count_sessions, &sessions);
    numbers.sessions = sessions.counters;
    for (size_t i = 0; i < ENGINE_TRANSPORTS; i++)
        numbers.transports[i] = all_transports[i]->name;
    notifications_count(engine->notifications, &numbers.received, &numbers.overflowed);
    registry_count(engine->registry, &numbers.regions, &numbers.region_bytes);
    pthread_mutex_lock(&engine->lock);
    list_each (node, after, &engine->peers)
        numbers.peers++;
    list_each (node, after, &engine->batches)
        numbers.batches += !batch_is_done(batch_at(node));
    pthread_mutex_unlock(&engine->lock);
    metrics_write(engine->metrics, format, &numbers, writer);
}

/* ---- Taking down ---- */

/* Ends what runs on the loop, on its thread. */
static void stop_serving(void *context) {
    struct engine *engine = context;

    if (engine->server != NULL)
        clients_watch(server_clients(engine->server), NULL, NULL);
    for (size_t i = 0; i < ENGINE_TRANSPORTS; i++)
        if (engine->transports[i].transport != NULL && engine->transports[i].ops->stop_serving != NULL)
            engine->transports[i].ops->stop_serving(engine->transports[i].transport);
    engine->server = server_close(engine->server);
}

/* Takes down whatever of the layers is there. Nothing is in flight, no call in progress. */
static void take_down(struct engine *engine) {
    if (engine->loop != NULL)
        loop_run(engine->loop, stop_serving, engine);
    while (!list_empty(&engine->peers)) {
        struct peer *peer = list_entry(engine->peers.next, struct peer, node);

        list_remove(&peer->node);
        peer_shutdown(peer);
    }
    for (size_t i = 0; i < ENGINE_TRANSPORTS; i++) {
        if (engine->transports[i].transport != NULL)
            engine->transports[i].ops->close(engine->transports[i].transport);
        engine->transports[i].transport = NULL;
    }
    engine->loop = loop_stop(engine->loop);
    engine->notifications = notifications_free(engine->notifications);
    engine->registry = registry_free(engine->registry);
    engine->naming = naming_free(engine->naming);
    engine->auth = auth_free(engine->auth);
}

int32_t engine_open(const struct mc_engine_options *options, struct engine **ret_engine, struct mc_error *error) {
    struct engine *engine = calloc(1, sizeof(*engine));
    int32_t status;

    if (engine == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    object_init(&engine->object, OBJECT_ENGINE, destroy);
    pthread_mutex_init(&engine->lock, NULL);
    thread_cond_init(&engine->quiet);
    list_init(&engine->peers);
    list_init(&engine->batches);
    engine->metrics = metrics_new();
    status = engine->metrics != NULL ? read_settings(engine, options, error)
                                     : status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    if (status == MC_OK)
        status = naming_open(options, &engine->naming, error);
    if (status == MC_OK)
        status = topology_matrix(TOPOLOGY_SYSFS, &engine->topology, error);
    if (status == MC_OK)
        status = auth_load(config_text(SETTING_KEY_FILE, options->key_file), &engine->auth, error);
    if (status == MC_OK && auth_random(engine->identity.incarnation, sizeof(engine->identity.incarnation)) != MC_OK)
        status = status_set(error, MC_ERR_SYSTEM, 0, "no random numbers from the kernel");
    engine->identity.auth = engine->auth;
    if (status == MC_OK) {
        status = loop_start(&engine->loop);
        if (status != MC_OK)
            status_set(error, status, errno, "the engine's thread can't be started: %m");
        else
            loop_set_busy_poll(engine->loop, engine->busy_poll);
    }
    if (status == MC_OK)
        status = open_server(engine, options, error);
    if (status == MC_OK)
        status = open_transports(engine, error);
    if (status == MC_OK)
        status = listen_at(engine, options, error);
    if (status == MC_OK)
        status =
            naming_publish(engine->naming, engine->address, clock_after(clock_now(), engine->connect_timeout), error);
    if (status != MC_OK) {
        take_down(engine);
        ref_drop(&engine->object.ref);
        return status;
    }
    log_debug("engine at %s", engine->address);
    *ret_engine = engine;
    return MC_OK;
}

/* ---- Closing ---- */

/* Ends all batches and waiting calls, and waits until no call is in progress. */
static void make_quiet(struct engine *engine) {
    struct list *node, *after;

    notifications_close(engine->notifications, true);
    pthread_mutex_lock(&engine->lock);
    while (atomic_load(&engine->inside) != ENGINE_SHUT) {
        /* A call in progress may be waiting for a batch of its own: what is in flight is ended under it. */
        list_each (node, after, &engine->peers)
            channel_break(list_entry(node, struct peer, node)->channel, MC_ERR_CLOSED);
        list_each (node, after, &engine->batches)
            batch_stop(batch_at(node), MC_ERR_CANCELLED);
        thread_cond_wait(&engine->quiet, &engine->lock, clock_after(clock_now(), 10 * CLOCK_MILLISECOND));
    }
    pthread_mutex_unlock(&engine->lock);
    while (!list_empty(&engine->batches))
        batch_abandon(batch_at(engine->batches.next));
}

static void set_state(struct engine *engine, enum engine_state state) {
    pthread_mutex_lock(&engine->lock);
    engine->state = state;
    if (state == ENGINE_OPEN)
        atomic_fetch_and(&engine->inside, ~ENGINE_SHUT);
    pthread_cond_broadcast(&engine->quiet);
    pthread_mutex_unlock(&engine->lock);
}

int32_t engine_close(struct engine *engine) {
    int32_t status = MC_OK;

    pthread_mutex_lock(&engine->lock);
    if (engine->state != ENGINE_OPEN)
        status = MC_ERR_CLOSED;
    else if (engine->used)
        status = MC_ERR_BUSY;
    else
        engine->state = ENGINE_CLOSING;
    if (status == MC_OK)
        atomic_fetch_or(&engine->inside, ENGINE_SHUT);
    pthread_mutex_unlock(&engine->lock);
    if (status != MC_OK)
        return status;
    make_quiet(engine);
    status = registry_withdraw_all(engine->registry, clock_after(clock_now(), CLOSE_TIME));
    if (status != MC_OK) {
        notifications_close(engine->notifications, false);
        set_state(engine, ENGINE_OPEN);
        return status;
    }
    naming_withdraw(engine->naming); /* while the address is still this engine's */
    take_down(engine);
    set_state(engine, ENGINE_CLOSED);
    return MC_OK;
}

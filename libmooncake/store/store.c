/* store/store.c - opening and closing a store.
 *
 * Opening goes up: engine, chores, master or the link to it, owner, client. Closing first ends the calls, then gives
 * back what others should have back, then takes everything down in the other order.
 */
#include "store/store.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/status.h"
#include "base/writer.h"
#include "os/thread.h"
#include "store/put_session.h"

#define CONNECT_TIME (3 * CLOCK_SECOND)
#define READY_TIME (10 * CLOCK_SECOND) /* that a master may take until it serves */
#define FAREWELL_TIME CLOCK_SECOND     /* for giving back, and again for taking the segment out */
#define SEGMENT_EMBEDDED (256ull << 20)
#define SEGMENT_MIN 65536u
#define STOCK_BYTES (64ull << 20)
#define LOCATIONS_CACHED (1u << 20)

static void destroy(struct ref *ref) {
    struct store *store = list_entry(ref, struct store, object.ref);

    pthread_cond_destroy(&store->quiet);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

struct store *store_of(struct object *object) {
    return list_entry(object, struct store, object);
}

static void count_out(struct store *store) {
    pthread_mutex_lock(&store->lock);
    if (--store->calls == 0 && store->state != STORE_OPEN)
        pthread_cond_broadcast(&store->quiet);
    pthread_mutex_unlock(&store->lock);
}

int32_t store_enter(struct store *store) {
    int32_t status = MC_OK;

    pthread_mutex_lock(&store->lock);
    if (store->state == STORE_OPEN)
        store->calls++;
    else
        status = MC_ERR_CLOSED;
    pthread_mutex_unlock(&store->lock);
    if (status == MC_OK) {
        status = engine_enter(store->engine->engine);
        if (status != MC_OK)
            count_out(store);
    }
    return status;
}

void store_leave(struct store *store) {
    engine_leave(store->engine->engine);
    count_out(store);
}

/* ---- Opening ---- */

static int32_t open_engine(struct store *store, const struct mc_store_options *options, struct engine *given,
                           struct mc_error *error) {
    struct mc_engine_options none = {.struct_size = sizeof(none)};
    struct engine *engine = given;
    uint64_t view_bytes;
    int32_t status = config_u64(SETTING_STORE_VIEW_BYTES, options->view_bytes, &view_bytes, error);

    if (status == MC_OK && given == NULL)
        status = engine_open(options->engine_options != NULL ? options->engine_options : &none, &engine, error);
    if (status != MC_OK)
        return status;
    status = store_engine_new(engine, given == NULL, view_bytes, &store->engine);
    if (status != MC_OK) {
        if (given == NULL)
            (void)engine_close(engine);
        status_set(error, status, 0, status == MC_ERR_BUSY ? "a store is open on this engine already" : "%s",
                   status_text(status));
    }
    if (given == NULL)
        ref_drop(&engine->object.ref);
    return status;
}

/* Is it a master that answers there? One that doesn't serve yet is. */
static int32_t ask_master(struct store *store, const char *address, uint64_t deadline, struct mc_error *error) {
    struct message_beat beat = {0};
    struct letter *request, *answer = NULL;
    struct outbox out;
    int32_t status = MC_ERR_NO_MEMORY;

    memcpy(beat.client.bytes, store->engine->engine->identity.incarnation, sizeof(beat.client.bytes));
    outbox_init(&out);
    request = outbox_beat(&out, 0, &beat);
    if (request != NULL)
        status = master_link_call(store->link, request, deadline, &answer);
    outbox_clear(&out);
    free(answer);
    if (status == MC_OK || status == MC_ERR_UNAVAILABLE)
        return MC_OK;
    if (status == MC_ERR_NOT_SUPPORTED)
        return status_set(error, MC_ERR_UNREACHABLE, 0, "%s is an engine, but not a store's master", address);
    return status_set(error, status == MC_ERR_TIMEOUT ? MC_ERR_UNREACHABLE : status, 0, "%s: %s", address,
                      status_text(status));
}

static int32_t open_master(struct store *store, const char *address, uint64_t deadline, struct mc_error *error) {
    const struct master_service_options options = {
        .engine = store->engine->engine,
        .core = {.timing = STORE_TIMING_DEFAULT, .high_watermark = 950, .eviction = 20},
        .alone = true,
    };
    int32_t status;

    if (address != NULL) {
        status = master_link_open(store->engine->engine, store->chores, address, deadline, &store->link, error);
        return status != MC_OK ? status : ask_master(store, address, deadline, error);
    }
    status = master_service_open(&options, &store->master, error);
    if (status == MC_OK && master_link_inside(store->master, &store->link) != MC_OK)
        status = status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    return status;
}

static int32_t open_owner(struct store *store, const struct mc_store_options *options, struct mc_error *error) {
    struct owner_service_options owner = {
        .engine = store->engine->engine,
        .chores = store->chores,
        .link = store->link,
        .name = options->name != NULL && options->name[0] != '\0' ? options->name : NULL,
        .size = options->segment_size,
        .timing = STORE_TIMING_DEFAULT,
    };

    if (owner.size == 0 && store->master != NULL)
        owner.size = SEGMENT_EMBEDDED;
    if (owner.size == 0)
        return MC_OK;
    if (owner.size < SEGMENT_MIN || owner.size > INT64_MAX)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "a segment has at least %u bytes, not %" PRIu64,
                          SEGMENT_MIN, owner.size);
    if (owner.name != NULL && strlen(owner.name) >= MC_SEGMENT_NAME_MAX)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "a segment's name has at most %u bytes",
                          MC_SEGMENT_NAME_MAX - 1);
    return owner_service_open(&owner, &store->owner, error);
}

/* Waits until the segment is part of the pool. */
static bool await_mounted(struct store *store, uint64_t deadline) {
    while (store->owner != NULL && !owner_service_mounted(store->owner)) {
        struct timespec pause = {.tv_nsec = 200000};

        if (clock_now() >= deadline)
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

static int32_t open_client(struct store *store, struct mc_error *error) {
    const struct client_side_options options = {
        .engine = store->engine->engine,
        .link = store->link,
        .chores = store->chores,
        .own = store->owner,
        .timing = STORE_TIMING_DEFAULT,
        .stock_bytes = STOCK_BYTES,
        .cached = LOCATIONS_CACHED,
    };
    uint64_t deadline = clock_after(clock_now(), READY_TIME);
    int32_t status;

    if (!await_mounted(store, deadline))
        return status_set(error, MC_ERR_UNAVAILABLE, 0, "the master did not take the segment in time");
    status = client_side_open(&store->client, &options);
    store->has_client = status == MC_OK;
    if (status != MC_OK)
        return status_set(error, status, 0, "%s", status_text(status));
    if (!client_side_await(&store->client, deadline))
        return status_set(error, MC_ERR_UNAVAILABLE, 0, "the master answers, but does not serve");
    return MC_OK;
}

static void take_down(struct store *store);

int32_t store_open(const struct mc_store_options *options, struct engine *given, struct store **ret_store,
                   struct mc_error *error) {
    const char *master =
        (options->flags & MC_STORE_EMBEDDED) != 0 ? NULL : config_text(SETTING_STORE_MASTER, options->master);
    struct store *store = calloc(1, sizeof(*store));
    uint64_t timeout_ms = 0, space_ms = 0;
    int32_t status = MC_OK;

    if (store == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    object_init(&store->object, OBJECT_STORE, destroy);
    pthread_mutex_init(&store->lock, NULL);
    thread_cond_init(&store->quiet);
    list_init(&store->puts);
    store->verify = (options->flags & MC_STORE_VERIFY) != 0;
    status = tenant_init(&store->tenant, options->tenant, (options->flags & MC_STORE_STORED_KEYS) != 0, error);
    if (status == MC_OK && options->timeout_ns == 0)
        status = config_u64(SETTING_STORE_TIMEOUT_MS, 0, &timeout_ms, error);
    if (status == MC_OK)
        status = config_u64(SETTING_STORE_SPACE_MS, 0, &space_ms, error);
    store->space_timeout = space_ms * CLOCK_MILLISECOND;
    store->timeout = options->timeout_ns > 0 ? options->timeout_ns : timeout_ms * CLOCK_MILLISECOND;
    if (status == MC_OK)
        status = open_engine(store, options, given, error);
    if (status == MC_OK && chores_start("mc-store", 1, &store->chores) != MC_OK)
        status = status_set(error, MC_ERR_SYSTEM, 0, "the store's thread can't be started");
    if (status == MC_OK)
        status = open_master(store, master, clock_after(clock_now(), CONNECT_TIME), error);
    if (status == MC_OK)
        status = open_owner(store, options, error);
    if (status == MC_OK)
        status = open_client(store, error);
    if (status != MC_OK) {
        take_down(store);
        ref_drop(&store->object.ref);
        return status;
    }
    *ret_store = store;
    return MC_OK;
}

/* ---- Closing ---- */

/* Takes down whatever of the roles is there. No call is in progress. */
static void take_down(struct store *store) {
    if (store->link != NULL)
        master_link_break(store->link);
    store->workers = chores_free(store->workers);
    owner_service_stop(store->owner);
    chores_stop(store->chores);
    if (store->has_client)
        client_side_close(&store->client);
    store->has_client = false;
    store->owner = owner_service_close(store->owner);
    store->link = master_link_close(store->link);
    store->chores = chores_free(store->chores);
    store->master = master_service_close(store->master);
    if (store->engine != NULL)
        ref_drop(&store->engine->ref);
    store->engine = NULL;
}

int32_t store_close(struct store *store) {
    int32_t status = MC_OK;

    pthread_mutex_lock(&store->lock);
    if (store->state == STORE_OPEN)
        store->state = STORE_CLOSING;
    else
        status = MC_ERR_CLOSED;
    pthread_mutex_unlock(&store->lock);
    if (status != MC_OK)
        return status;
    pthread_mutex_lock(&store->lock);
    while (store->calls > 0) {
        pthread_mutex_unlock(&store->lock);
        client_side_stop(&store->client);
        pthread_mutex_lock(&store->lock);
        if (store->calls > 0)
            thread_cond_wait(&store->quiet, &store->lock, clock_after(clock_now(), 10 * CLOCK_MILLISECOND));
    }
    pthread_mutex_unlock(&store->lock);
    put_sessions_close(store);
    client_side_retire(&store->client, clock_after(clock_now(), FAREWELL_TIME));
    if (store->owner != NULL && store->master == NULL)
        owner_service_leave(store->owner, clock_after(clock_now(), FAREWELL_TIME));
    take_down(store);
    pthread_mutex_lock(&store->lock);
    store->state = STORE_CLOSED;
    pthread_mutex_unlock(&store->lock);
    return MC_OK;
}

/* ---- Telling ---- */

int32_t store_health(struct store *store) {
    if (store->owner != NULL && !owner_service_mounted(store->owner))
        return MC_ERR_UNAVAILABLE;
    return client_side_healthy(&store->client) ? MC_OK : MC_ERR_UNAVAILABLE;
}

int64_t store_stats(struct store *store, char *text, size_t size) {
    struct client_count client;
    struct writer writer;

    pthread_mutex_lock(&store->client.lock);
    client = client_count(store->client.core);
    pthread_mutex_unlock(&store->client.lock);
    writer_init(&writer, text, size);
    writer_print(&writer, "{\"stock\":%" PRIu64 ",\"unsettled\":%" PRIu64 ",\"returns\":%" PRIu64, client.stock,
                 client.unsettled, client.returns);
    writer_print(&writer, ",\"cache\":{\"locations\":%" PRIu64 ",\"hits\":%" PRIu64 ",\"lookups\":%" PRIu64 "}",
                 client.cached, client.cache_hits, client.lookups);
    if (store->owner != NULL) {
        struct owner_usage usage = owner_service_usage(store->owner);

        writer_print(&writer, ",\"segment\":{\"size\":%" PRIu64 ",\"used\":%" PRIu64 ",\"largest\":%" PRIu64,
                     usage.size, usage.used, usage.largest);
        writer_print(&writer, ",\"live\":%" PRIu64 ",\"reserved\":%" PRIu64 ",\"dead\":%" PRIu64 "}", usage.live,
                     usage.reserved, usage.dead);
    }
    if (store->master != NULL) {
        struct master_count master = master_service_count(store->master);

        writer_print(&writer, ",\"master\":{\"keys\":%" PRIu64 ",\"evicted\":%" PRIu64 ",\"segments\":%" PRIu64 "}",
                     master.keys, master.evicted, master.members);
    }
    writer_print(&writer, ",\"viewed\":%" PRIu64 "}", (uint64_t)store->engine->viewed);
    return (int64_t)writer.length;
}

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
#include "store/master/policy.h"
#include "store/put_session.h"

#define CONNECT_TIME (3 * CLOCK_SECOND)
#define READY_TIME (10 * CLOCK_SECOND) /* that a master may take until it serves */
#define FAREWELL_TIME CLOCK_SECOND     /* for giving back, and again for taking the segment out */
#define SEGMENT_EMBEDDED (256ull << 20)
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
        .core = {.timing = STORE_TIMING_DEFAULT,
                 .policy = config_text(SETTING_STORE_POLICY, NULL),
                 .high_watermark = 950,
                 .eviction = 20},
        .alone = true,
    };
    int32_t status;

    if (address != NULL) {
        status = master_link_open(store->engine->engine, store->chores, address, deadline, &store->link, error);
        return status != MC_OK ? status : ask_master(store, address, deadline, error);
    }
    if (options.core.policy != NULL && policy_find(options.core.policy) == NULL)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "MC_STORE_POLICY: there is no policy %s",
                          options.core.policy);
    status = master_service_open(&options, &store->master, error);
    if (status == MC_OK && master_link_inside(store->master, &store->link) != MC_OK)
        status = status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    return status;
}

static void segment_gone(void *context, const struct message_id *segment) {
    struct store *store = context;

    if (store->has_client)
        client_side_lose(&store->client, segment);
}

static int32_t open_owners(struct store *store, const struct mc_store_options *options, struct mc_error *error) {
    struct segment_source source = {.size = options->segment_size};
    const char *name = options->name != NULL && options->name[0] != '\0' ? options->name : NULL;
    struct message_id segment;
    int32_t status;

    store->owners.chores = store->chores;
    store->owners.link = store->link;
    store->owners.gone = segment_gone;
    store->owners.context = store;
    store->owners.engine = store->engine->engine;
    status = owners_open(&store->owners, error);
    if (status != MC_OK) {
        store->owners.engine = NULL;
        return status;
    }
    if (source.size == 0 && store->master != NULL)
        source.size = SEGMENT_EMBEDDED;
    if (source.size == 0)
        return MC_OK;
    status = segment_check(&source, name, error);
    if (status == MC_OK)
        status = owners_mount(&store->owners, &source, name, clock_after(clock_now(), READY_TIME), &segment, error);
    return status;
}

static int32_t open_client(struct store *store, struct mc_error *error) {
    const struct client_side_options options = {
        .engine = store->engine->engine,
        .link = store->link,
        .chores = store->chores,
        .owners = &store->owners,
        .timing = STORE_TIMING_DEFAULT,
        .stock_bytes = STOCK_BYTES,
        .cached = LOCATIONS_CACHED,
    };
    uint64_t deadline = clock_after(clock_now(), READY_TIME);
    int32_t status;

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
        status = open_owners(store, options, error);
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
    if (store->owners.engine != NULL)
        owners_stop(&store->owners);
    chores_stop(store->chores);
    if (store->has_client)
        client_side_close(&store->client);
    store->has_client = false;
    if (store->owners.engine != NULL)
        owners_close(&store->owners);
    store->owners.engine = NULL;
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
    if (store->master == NULL)
        owners_leave(&store->owners, clock_after(clock_now(), FAREWELL_TIME));
    take_down(store);
    pthread_mutex_lock(&store->lock);
    store->state = STORE_CLOSED;
    pthread_mutex_unlock(&store->lock);
    return MC_OK;
}

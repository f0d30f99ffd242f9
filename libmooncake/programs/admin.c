/* programs/admin.c - the administration's answers.
 *
 * Owns the HTTP server, whose thread makes all answers but that of the one job, the removal of all keys. `lock` guards
 * `store`, by which the job is ended early.
 */
#include "programs/admin.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <mooncake/store.h>

#include "base/clock.h"
#include "base/status.h"
#include "programs/admin_pages.h"

#define REMOVAL_TIME (60 * CLOCK_SECOND)

struct admin {
    struct admin_options options;
    struct web *web;
    pthread_mutex_t lock;
    mc_store *store;
    bool closing;
};

/* ---- Health ---- */

static void answer_health(struct master_service *service, const struct web_request *request, struct web_reply *reply) {
    bool serves = master_service_serves(service);

    (void)request;
    reply->code = serves ? WEB_OK : WEB_UNAVAILABLE;
    reply->type = ADMIN_JSON;
    web_text_print(&reply->text,
                   "{\"status\":\"%s\",\"role\":\"leader\",\"ha_enabled\":false,\"ready\":%s,\"version\":\"%s\"}\n",
                   serves ? "ok" : "unavailable", serves ? "true" : "false", MOONCAKE_VERSION);
}

static void answer_metrics(struct master_service *service, const struct web_request *request, struct web_reply *reply) {
    (void)request;
    reply->type = ADMIN_TEXT;
    admin_metrics(service, &reply->text);
}

static void answer_summary(struct master_service *service, const struct web_request *request, struct web_reply *reply) {
    (void)request;
    reply->type = ADMIN_TEXT;
    admin_summary(service, &reply->text);
}

/* ---- The listing ---- */

static bool add_more_keys(void *context, uint64_t *cursor, struct web_text *text) {
    struct admin *admin = context;

    return admin_add_keys(admin->options.service, ADMIN_PAGE_KEYS, cursor, text);
}

/* Without a limit all of it is sent, page by page. */
static void answer_listing(struct master_service *service, const struct web_request *request, struct web_reply *reply) {
    admin_page_listing(service, request, reply);
    if (reply->cursor != 0 && web_argument(request, "limit") == NULL)
        reply->more = add_more_keys;
}

/* ---- Writes ---- */

/* The store that the job uses; admin_close ends its calls. MC_ERR_CLOSED. */
static int32_t job_store(struct admin *admin, mc_store **ret_store, struct mc_error *error) {
    struct mc_engine_options engine = {.struct_size = sizeof(engine), .key_file = admin->options.key_file};
    struct mc_store_options options = {
        .struct_size = sizeof(options),
        .flags = MC_STORE_STORED_KEYS, /* all tenants' */
        .master = admin->options.master,
        .engine_options = &engine,
    };
    mc_store *store = NULL;
    int32_t status = mc_store_open(&options, &store, error);

    if (status != MC_OK)
        return status;
    pthread_mutex_lock(&admin->lock);
    admin->store = store;
    if (admin->closing)
        status = status_set(error, MC_ERR_CLOSED, 0, "the master ends");
    pthread_mutex_unlock(&admin->lock);
    *ret_store = store;
    return status;
}

static void end_job_store(struct admin *admin) {
    mc_store *store;

    pthread_mutex_lock(&admin->lock);
    store = admin->store;
    admin->store = NULL;
    pthread_mutex_unlock(&admin->lock);
    if (store != NULL)
        (void)mc_store_close(store);
}

static void remove_all(void *context, struct web_reply *reply) {
    struct admin *admin = context;
    struct mc_error error = MC_ERROR_INIT;
    mc_store *store = NULL;
    int64_t removed = job_store(admin, &store, &error);

    if (removed == MC_OK)
        removed = mc_store_remove_all(store, REMOVAL_TIME, &error);
    end_job_store(admin);
    if (removed < 0) {
        admin_refuse(reply, WEB_UNAVAILABLE, (int32_t)removed, error.message);
        return;
    }
    reply->type = ADMIN_JSON;
    web_text_print(&reply->text, "{\"success\":true,\"removed\":%lld}\n", (long long)removed);
}

/* A store of its own does it, as any client would: its calls may wait, and nothing here need know how. */
static void answer_remove_all(struct master_service *service, const struct web_request *request,
                              struct web_reply *reply) {
    (void)request;
    if (master_service_serves(service))
        reply->job = remove_all;
    else
        admin_refuse_unavailable(reply);
}

static void answer_not_supported(struct master_service *service, const struct web_request *request,
                                 struct web_reply *reply) {
    (void)service;
    (void)request;
    admin_refuse(reply, WEB_NOT_SUPPORTED, MC_ERR_NOT_SUPPORTED, "NOT_SUPPORTED");
}

/* ---- Requests ---- */

static const struct route {
    const char *path;
    enum web_method method;
    admin_page *answer;
} routes[] = {
    {"/health", WEB_GET, answer_health},
    {"/metrics", WEB_GET, answer_metrics},
    {"/metrics/summary", WEB_GET, answer_summary},
    {"/get_all_segments", WEB_GET, admin_page_segment_names},
    {"/get_segments_detail", WEB_GET, admin_page_segment_details},
    {"/query_segment", WEB_GET, admin_page_segment},
    {"/get_all_keys", WEB_GET, answer_listing},
    {"/query_key", WEB_GET, admin_page_object},
    {"/batch_query_keys", WEB_GET, admin_page_objects},
    {"/api/v1/remove_all", WEB_POST, answer_remove_all},
    {"/api/v1/drain_jobs", WEB_POST, answer_not_supported},
    {"/api/v1/drain_jobs/cancel", WEB_POST, answer_not_supported},
    {"/api/v1/tenant_quotas", WEB_PUT, answer_not_supported},
    {"/api/v1/tenant_quotas", WEB_DELETE, answer_not_supported},
};

/* False, and a refusal: the request may not change anything. */
static bool may_write(const struct admin *admin, const struct web_request *request, struct web_reply *reply) {
    if (token_shown(&admin->options.token, web_header(request, "Authorization")))
        return true;
    if (admin->options.token.length == 0)
        admin_refuse(reply, WEB_FORBIDDEN, MC_ERR_ACCESS_DENIED,
                     "the master has no token for such requests: see --admin_token_file");
    else
        admin_refuse(reply, WEB_UNAUTHORIZED, MC_ERR_ACCESS_DENIED, "this needs the token: Authorization: Bearer …");
    return false;
}

static void handle(void *context, const struct web_request *request, struct web_reply *reply) {
    struct admin *admin = context;
    bool known = false;

    reply->code = WEB_OK;
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        if (strcmp(request->path, routes[i].path) != 0)
            continue;
        known = true;
        if (request->method != routes[i].method)
            continue;
        if (request->method == WEB_GET || may_write(admin, request, reply))
            routes[i].answer(admin->options.service, request, reply);
        return;
    }
    if (known)
        admin_refuse(reply, WEB_NOT_ALLOWED, MC_ERR_INVALID_ARGUMENT, "another method is needed here");
    else
        admin_refuse(reply, WEB_NOT_FOUND, MC_ERR_NOT_FOUND, "there is no such page");
}

/* ---- Opening and closing ---- */

int32_t admin_open(const struct admin_options *options, struct admin **ret_admin, struct mc_error *error) {
    struct admin *admin = calloc(1, sizeof(*admin));
    struct web_options web = {.host = options->host, .port = options->port, .handle = handle, .context = admin};
    int32_t status;

    if (admin == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    admin->options = *options;
    pthread_mutex_init(&admin->lock, NULL);
    status = web_open(&web, &admin->web, error);
    if (status == MC_OK)
        *ret_admin = admin;
    else
        admin_close(admin);
    return status;
}

struct admin *admin_close(struct admin *admin) {
    if (admin == NULL)
        return NULL;
    pthread_mutex_lock(&admin->lock);
    admin->closing = true;
    pthread_mutex_unlock(&admin->lock);
    end_job_store(admin);
    web_close(admin->web);
    pthread_mutex_destroy(&admin->lock);
    explicit_bzero(admin, sizeof(*admin));
    free(admin);
    return NULL;
}

const char *admin_address(const struct admin *admin) {
    return web_address(admin->web);
}

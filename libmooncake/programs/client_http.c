/* programs/client_http.c - an owner's answers: what the public calls tell of its store and its engine.
 *
 * `lock` guards the handles, which come when the owner has joined its pool.
 */
#include "programs/client_http.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define TEXT_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define JSON_TYPE "application/json; charset=utf-8"

struct client_http {
    struct web *web;
    pthread_mutex_t lock;
    mc_engine *engine;
    mc_store *store;
};

struct handles {
    mc_engine *engine;
    mc_store *store;
    bool healthy;
};

static struct handles handles_of(struct client_http *http) {
    struct handles handles;

    pthread_mutex_lock(&http->lock);
    handles = (struct handles){.engine = http->engine, .store = http->store};
    pthread_mutex_unlock(&http->lock);
    handles.healthy = handles.store != NULL && mc_store_health(handles.store) == MC_OK;
    return handles;
}

/* Appends the text of a call that tells how long it is; it may grow from one call to the next. */
static void add_told(struct web_text *text, int64_t (*tell)(const struct handles *handles, char *text, size_t size),
                     const struct handles *handles) {
    int64_t needed = tell(handles, NULL, 0);
    size_t size = 0;
    char *told = NULL;

    while (needed >= 0 && (size_t)needed >= size) {
        free(told);
        size = (size_t)needed + 256;
        told = malloc(size);
        if (told == NULL) {
            text->failed = true;
            return;
        }
        needed = tell(handles, told, size);
    }
    if (needed > 0)
        web_text_add(text, told, (size_t)needed);
    free(told);
}

static int64_t tell_metrics(const struct handles *handles, char *text, size_t size) {
    return mc_engine_metrics(handles->engine, MC_METRICS_PROMETHEUS, text, size);
}

static int64_t tell_stats(const struct handles *handles, char *text, size_t size) {
    return mc_store_stats(handles->store, text, size);
}

static void handle(void *context, const struct web_request *request, struct web_reply *reply) {
    struct handles handles = handles_of(context);

    reply->code = WEB_OK;
    reply->type = TEXT_TYPE;
    if (request->method != WEB_GET) {
        reply->code = WEB_NOT_ALLOWED;
        web_text_print(&reply->text, "another method is needed here\n");
    } else if (strcmp(request->path, "/health") == 0) {
        reply->code = handles.healthy ? WEB_OK : WEB_UNAVAILABLE;
        web_text_print(&reply->text, "%s\n", handles.healthy ? "OK" : "unavailable");
    } else if (strcmp(request->path, "/metrics") == 0) {
        web_text_print(&reply->text,
                       "# HELP mooncake_client_healthy 1 while the memory is in the pool and the master answers\n"
                       "# TYPE mooncake_client_healthy gauge\nmooncake_client_healthy %d\n",
                       handles.healthy);
        if (handles.engine != NULL)
            add_told(&reply->text, tell_metrics, &handles);
    } else if (strcmp(request->path, "/metrics/summary") == 0) {
        reply->type = JSON_TYPE;
        if (handles.store != NULL)
            add_told(&reply->text, tell_stats, &handles);
        else
            web_text_print(&reply->text, "{}");
        web_text_print(&reply->text, "\n");
    } else {
        reply->code = WEB_NOT_FOUND;
        web_text_print(&reply->text, "there is no such page\n");
    }
}

int32_t client_http_open(const char *host, uint16_t port, struct client_http **ret_http, struct mc_error *error) {
    struct client_http *http = calloc(1, sizeof(*http));
    struct web_options web = {.host = host, .port = port, .handle = handle, .context = http};
    int32_t status;

    if (http == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    pthread_mutex_init(&http->lock, NULL);
    status = web_open(&web, &http->web, error);
    if (status == MC_OK)
        *ret_http = http;
    else
        client_http_close(http);
    return status;
}

void client_http_set(struct client_http *http, mc_engine *engine, mc_store *store) {
    pthread_mutex_lock(&http->lock);
    http->engine = engine;
    http->store = store;
    pthread_mutex_unlock(&http->lock);
}

struct client_http *client_http_close(struct client_http *http) {
    if (http == NULL)
        return NULL;
    web_close(http->web);
    pthread_mutex_destroy(&http->lock);
    free(http);
    return NULL;
}

const char *client_http_address(const struct client_http *http) {
    return web_address(http->web);
}

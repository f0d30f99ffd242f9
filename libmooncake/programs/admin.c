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

#include "base/checked.h"
#include "base/clock.h"
#include "base/status.h"
#include "store/master/describe.h"

#define PAGE_KEYS 1000u
#define PAGE_KEYS_MAX 10000u
#define BATCH_MAX 1000u
#define REMOVAL_TIME (60 * CLOCK_SECOND)
#define TEXT_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define JSON_TYPE "application/json; charset=utf-8"

/* What the reference answers where its service plane isn't active. */
#define NOT_SERVING (-1011)

struct admin {
    struct admin_options options;
    struct web *web;
    pthread_mutex_t lock;
    mc_store *store;
    bool closing;
};

/* ---- Refusals ---- */

static void refuse(struct web_reply *reply, unsigned code, int32_t status, const char *words) {
    web_text_clear(&reply->text);
    reply->code = code;
    reply->type = JSON_TYPE;
    web_text_print(&reply->text, "{\"success\":false,\"error_code\":%d,\"error_message\":", status);
    web_text_json(&reply->text, words, strlen(words));
    web_text_print(&reply->text, "}\n");
}

static void refuse_unavailable(struct web_reply *reply) {
    refuse(reply, WEB_UNAVAILABLE, NOT_SERVING, "the master doesn't serve now");
}

static void refuse_bad(struct web_reply *reply, const char *words) {
    refuse(reply, WEB_BAD_REQUEST, MC_ERR_INVALID_ARGUMENT, words);
}

/* Takes the argument `name` decoded; false, and a refusal, if it is absent, empty or malformed. */
static bool take_argument(const struct web_request *request, const char *name, struct web_text *ret_text,
                          struct web_reply *reply) {
    const char *sent = web_argument(request, name);
    bool good = sent != NULL && web_text_decode(ret_text, sent, strlen(sent)) && ret_text->length > 0;

    if (good && !ret_text->failed)
        return true;
    web_text_clear(ret_text);
    refuse_bad(reply, sent == NULL ? "an argument of the query is missing: key, keys or segment"
                                   : "an argument of the query is empty or malformed");
    return false;
}

/* A number of the query; `initial` if it isn't there. False, and a refusal, if it is none. */
static bool take_number(const struct web_request *request, const char *name, uint64_t initial, uint64_t *ret_number,
                        struct web_reply *reply) {
    const char *sent = web_argument(request, name);

    *ret_number = initial;
    if (sent == NULL || checked_decimal(sent, ret_number))
        return true;
    refuse_bad(reply, "limit and cursor are decimal numbers");
    return false;
}

/* ---- Health ---- */

static void answer_health(struct admin *admin, const struct web_request *request, struct web_reply *reply) {
    bool serves = master_service_serves(admin->options.service);

    (void)request;
    reply->code = serves ? WEB_OK : WEB_UNAVAILABLE;
    reply->type = JSON_TYPE;
    web_text_print(&reply->text,
                   "{\"status\":\"%s\",\"role\":\"leader\",\"ha_enabled\":false,\"ready\":%s,\"version\":\"%s\"}\n",
                   serves ? "ok" : "unavailable", serves ? "true" : "false", MOONCAKE_VERSION);
}

static void answer_metrics(struct admin *admin, const struct web_request *request, struct web_reply *reply) {
    (void)request;
    reply->type = TEXT_TYPE;
    admin_metrics(admin->options.service, &reply->text);
}

static void answer_summary(struct admin *admin, const struct web_request *request, struct web_reply *reply) {
    (void)request;
    reply->type = TEXT_TYPE;
    admin_summary(admin->options.service, &reply->text);
}

/* ---- Segments ---- */

struct segments {
    struct segment_description *list;
    size_t capacity;
    size_t count;
};

static void look_at_segments(void *context, const struct master *core) {
    struct segments *segments = context;

    segments->count = master_describe_segments(core, segments->list, segments->capacity);
}

/* Asked how many they are, and then for them, as often as more have come meanwhile. */
struct segment_description *admin_segments(struct master_service *service, size_t *ret_count, bool *ret_serves) {
    struct segments segments = {0};

    for (;;) {
        *ret_serves = master_service_look(service, look_at_segments, &segments);
        *ret_count = *ret_serves ? segments.count : 0;
        if (*ret_serves && segments.count <= segments.capacity)
            return segments.list;
        free(segments.list);
        segments.list = NULL;
        if (!*ret_serves)
            return NULL;
        segments.capacity = segments.count + 8;
        segments.list = calloc(segments.capacity, sizeof(*segments.list));
        if (segments.list == NULL) {
            *ret_count = 0;
            return NULL;
        }
    }
}

static void print_segment_json(struct web_text *text, const struct segment_description *segment) {
    uint64_t used = segment->size - segment->free;

    web_text_print(text, "{\"segment_name\":");
    web_text_json(text, segment->name, strlen(segment->name));
    web_text_print(text, ",\"segment_id\":\"");
    for (size_t i = 0; i < sizeof(segment->id.bytes); i++)
        web_text_print(text, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", segment->id.bytes[i]);
    web_text_print(text, "\",\"te_endpoint\":");
    web_text_json(text, segment->address, strlen(segment->address));
    web_text_print(text, ",\"size_bytes\":%llu,\"allocator_used_bytes\":%llu,\"allocator_capacity_bytes\":%llu",
                   (unsigned long long)segment->size, (unsigned long long)used, (unsigned long long)segment->size);
    web_text_print(text, ",\"allocator_usage_percent\":%.2f,\"status\":\"MOUNTED\"}",
                   segment->size > 0 ? 100.0 * (double)used / (double)segment->size : 0.0);
}

/* All of them: as JSON, or only their names. */
static void answer_segments(struct admin *admin, struct web_reply *reply, bool json) {
    size_t count;
    bool serves;
    struct segment_description *list = admin_segments(admin->options.service, &count, &serves);

    if (!serves) {
        refuse_unavailable(reply);
        return;
    }
    reply->type = json ? JSON_TYPE : TEXT_TYPE;
    if (json)
        web_text_print(&reply->text, "{\"total_segments\":%zu,\"segments\":[", count);
    for (size_t i = 0; i < count; i++) {
        if (json && i > 0)
            web_text_print(&reply->text, ",");
        if (json)
            print_segment_json(&reply->text, &list[i]);
        else
            web_text_line(&reply->text, list[i].name, strlen(list[i].name));
    }
    if (json)
        web_text_print(&reply->text, "]}\n");
    free(list);
}

static void answer_segment_names(struct admin *admin, const struct web_request *request, struct web_reply *reply) {
    (void)request;
    answer_segments(admin, reply, false);
}

static void answer_segment_details(struct admin *admin, const struct web_request *request, struct web_reply *reply) {
    (void)request;
    answer_segments(admin, reply, true);
}

/* Several may have the name: their sums. */
static void answer_segment(struct admin *admin, const struct web_request *request, struct web_reply *reply) {
    struct segment_description *list;
    struct web_text name = {0};
    uint64_t size = 0, used = 0;
    bool serves, found = false;
    size_t count;

    if (!take_argument(request, "segment", &name, reply))
        return;
    list = admin_segments(admin->options.service, &count, &serves);
    for (size_t i = 0; i < count; i++)
        if (strlen(list[i].name) == name.length && memcmp(list[i].name, name.bytes, name.length) == 0) {
            found = true;
            size += list[i].size;
            used += list[i].size - list[i].free;
        }
    if (!serves) {
        refuse_unavailable(reply);
    } else if (!found) {
        refuse(reply, WEB_NOT_FOUND, MC_ERR_SEGMENT_NOT_FOUND, "SEGMENT_NOT_FOUND");
    } else {
        reply->type = TEXT_TYPE;
        web_text_line(&reply->text, name.bytes, name.length);
        web_text_print(&reply->text, "Used(bytes): %llu\nCapacity(bytes): %llu\n", (unsigned long long)used,
                       (unsigned long long)size);
    }
    free(list);
    web_text_clear(&name);
}

/* ---- Objects ---- */

struct sought {
    const struct web_text *key;
    struct object_description object;
    bool found;
};

static void look_for_object(void *context, const struct master *core) {
    struct sought *sought = context;

    sought->found = sought->key->length <= KEY_MAX &&
                    master_describe_object(core, sought->key->bytes, (uint32_t)sought->key->length, &sought->object);
}

/* `buffer_address_` is the offset in the segment: where that is mapped, only its owner knows. */
static void print_replicas(struct web_text *text, const struct object_description *object) {
    web_text_print(text, "[");
    for (uint32_t i = 0; i < object->count; i++) {
        const struct replica_description *replica = &object->replicas[i];

        web_text_print(text,
                       "%s{\"size_\":%llu,\"buffer_address_\":%llu,\"protocol_\":\"tcp\",\"transport_endpoint_\":",
                       i > 0 ? "," : "", (unsigned long long)object->length, (unsigned long long)replica->offset);
        web_text_json(text, replica->address, strlen(replica->address));
        web_text_print(text, ",\"segment\":");
        web_text_json(text, replica->segment, strlen(replica->segment));
        web_text_print(text, "}");
    }
    web_text_print(text, "]");
}

static void answer_key(struct admin *admin, const struct web_request *request, struct web_reply *reply) {
    struct web_text key = {0};
    struct sought sought = {.key = &key};

    if (!take_argument(request, "key", &key, reply))
        return;
    if (!master_service_look(admin->options.service, look_for_object, &sought)) {
        refuse_unavailable(reply);
    } else if (!sought.found) {
        refuse(reply, WEB_NOT_FOUND, MC_ERR_NOT_FOUND, "OBJECT_NOT_FOUND");
    } else {
        reply->type = JSON_TYPE;
        web_text_print(&reply->text, "{\"success\":true,\"data\":");
        print_replicas(&reply->text, &sought.object);
        web_text_print(&reply->text, "}\n");
    }
    web_text_clear(&key);
}

/* One of a batch; false: the master doesn't serve. */
static bool print_key(struct admin *admin, const struct web_text *key, struct web_text *text) {
    struct sought sought = {.key = key};

    if (!master_service_look(admin->options.service, look_for_object, &sought))
        return false;
    web_text_json(text, key->bytes, key->length);
    if (sought.found) {
        web_text_print(text, ":{\"ok\":true,\"values\":");
        print_replicas(text, &sought.object);
        web_text_print(text, "}");
    } else {
        web_text_print(text, ":{\"ok\":false,\"error\":\"OBJECT_NOT_FOUND\"}");
    }
    return true;
}

static void answer_keys(struct admin *admin, const struct web_request *request, struct web_reply *reply) {
    const char *sent = web_argument(request, "keys");
    uint32_t count = 0;

    if (sent == NULL || sent[0] == '\0') {
        refuse_bad(reply, "an argument of the query is missing: keys");
        return;
    }
    reply->type = JSON_TYPE;
    web_text_print(&reply->text, "{\"success\":true,\"data\":{");
    for (const char *end; sent != NULL; sent = *end == ',' ? end + 1 : NULL) {
        struct web_text key = {0};
        bool good, serves = true;

        end = sent + strcspn(sent, ",");
        good = ++count <= BATCH_MAX && end > sent && web_text_decode(&key, sent, (size_t)(end - sent));
        if (good && count > 1)
            web_text_print(&reply->text, ",");
        if (good)
            serves = print_key(admin, &key, &reply->text);
        web_text_clear(&key);
        if (!good)
            refuse_bad(reply, "keys are 1 to 1000, separated by commas and percent-encoded");
        else if (!serves)
            refuse_unavailable(reply);
        if (!good || !serves)
            return;
    }
    web_text_print(&reply->text, "}}\n");
}

/* ---- The listing ---- */

struct page {
    uint64_t cursor;
    uint32_t limit;
    struct items keys;
};

static void look_at_page(void *context, const struct master *core) {
    struct page *page = context;

    page->cursor = master_list_page(core, page->cursor, page->limit, &page->keys);
}

/* Appends a page, and moves the cursor on. */
static bool add_page(struct admin *admin, uint32_t limit, uint64_t *cursor, struct web_text *text) {
    struct page page = {.cursor = *cursor, .limit = limit};
    struct message_bytes list, key;
    bool good = master_service_look(admin->options.service, look_at_page, &page) && !page.keys.full;

    list = items_bytes(&page.keys);
    while (good && items_next(&list, &key) == 1)
        web_text_line(text, key.data, key.length);
    items_clear(&page.keys);
    *cursor = page.cursor;
    return good;
}

static bool add_next_page(void *context, uint64_t *cursor, struct web_text *text) {
    return add_page(context, PAGE_KEYS, cursor, text);
}

/* Without a limit all of it is sent, page by page. */
static void answer_listing(struct admin *admin, const struct web_request *request, struct web_reply *reply) {
    uint64_t limit, cursor;

    if (!take_number(request, "limit", PAGE_KEYS, &limit, reply) || !take_number(request, "cursor", 0, &cursor, reply))
        return;
    if (limit == 0 || limit > PAGE_KEYS_MAX) {
        refuse_bad(reply, "limit is from 1 to 10000");
        return;
    }
    reply->type = TEXT_TYPE;
    if (!add_page(admin, (uint32_t)limit, &cursor, &reply->text)) {
        refuse_unavailable(reply);
        return;
    }
    reply->cursor = cursor;
    if (web_argument(request, "limit") == NULL)
        reply->more = add_next_page;
}

/* ---- Writes ---- */

/* The store that the job uses; admin_close ends its calls. MC_ERR_CLOSED. */
static int32_t job_store(struct admin *admin, mc_store **ret_store, struct mc_error *error) {
    struct mc_engine_options engine = {.struct_size = sizeof(engine), .key_file = admin->options.key_file};
    struct mc_store_options options = {
        .struct_size = sizeof(options), .master = admin->options.master, .engine_options = &engine};
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
        refuse(reply, WEB_UNAVAILABLE, (int32_t)removed, error.message);
        return;
    }
    reply->type = JSON_TYPE;
    web_text_print(&reply->text, "{\"success\":true,\"removed\":%lld}\n", (long long)removed);
}

/* A store of its own does it, as any client would: its calls may wait, and nothing here need know how. */
static void answer_remove_all(struct admin *admin, const struct web_request *request, struct web_reply *reply) {
    (void)request;
    if (master_service_serves(admin->options.service))
        reply->job = remove_all;
    else
        refuse_unavailable(reply);
}

static void answer_not_supported(struct admin *admin, const struct web_request *request, struct web_reply *reply) {
    (void)admin;
    (void)request;
    refuse(reply, WEB_NOT_SUPPORTED, MC_ERR_NOT_SUPPORTED, "NOT_SUPPORTED");
}

/* ---- Requests ---- */

static const struct route {
    const char *path;
    enum web_method method;
    void (*answer)(struct admin *admin, const struct web_request *request, struct web_reply *reply);
} routes[] = {
    {"/health", WEB_GET, answer_health},
    {"/metrics", WEB_GET, answer_metrics},
    {"/metrics/summary", WEB_GET, answer_summary},
    {"/get_all_segments", WEB_GET, answer_segment_names},
    {"/get_segments_detail", WEB_GET, answer_segment_details},
    {"/query_segment", WEB_GET, answer_segment},
    {"/get_all_keys", WEB_GET, answer_listing},
    {"/query_key", WEB_GET, answer_key},
    {"/batch_query_keys", WEB_GET, answer_keys},
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
        refuse(reply, WEB_FORBIDDEN, MC_ERR_ACCESS_DENIED,
               "the master has no token for such requests: see --admin_token_file");
    else
        refuse(reply, WEB_UNAUTHORIZED, MC_ERR_ACCESS_DENIED, "this needs the token: Authorization: Bearer …");
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
            routes[i].answer(admin, request, reply);
        return;
    }
    if (known)
        refuse(reply, WEB_NOT_ALLOWED, MC_ERR_INVALID_ARGUMENT, "another method is needed here");
    else
        refuse(reply, WEB_NOT_FOUND, MC_ERR_NOT_FOUND, "there is no such page");
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

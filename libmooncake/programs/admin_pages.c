/* programs/admin_pages.c - pages about segments and objects, from what the master's core describes of them.
 *
 * Owns nothing; any thread. What is described is copied under the master's lock, and written without it.
 */
#include "programs/admin_pages.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "store/master/describe.h"

#define PAGE_KEYS_MAX 10000u
#define BATCH_MAX 1000u

/* What the reference answers where its service plane isn't active. */
#define NOT_SERVING (-1011)

/* ---- Refusals ---- */

void admin_refuse(struct web_reply *reply, unsigned code, int32_t status, const char *words) {
    web_text_clear(&reply->text);
    reply->code = code;
    reply->type = ADMIN_JSON;
    web_text_print(&reply->text, "{\"success\":false,\"error_code\":%d,\"error_message\":", status);
    web_text_json(&reply->text, words, strlen(words));
    web_text_print(&reply->text, "}\n");
}

void admin_refuse_unavailable(struct web_reply *reply) {
    admin_refuse(reply, WEB_UNAVAILABLE, NOT_SERVING, "the master doesn't serve now");
}

static void refuse_bad(struct web_reply *reply, const char *words) {
    admin_refuse(reply, WEB_BAD_REQUEST, MC_ERR_INVALID_ARGUMENT, words);
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
    web_text_print(text, "{\"segment_name\":");
    web_text_json(text, segment->name, strlen(segment->name));
    web_text_print(text, ",\"segment_id\":\"");
    for (size_t i = 0; i < sizeof(segment->id.bytes); i++)
        web_text_print(text, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", segment->id.bytes[i]);
    web_text_print(text, "\",\"te_endpoint\":");
    web_text_json(text, segment->address, strlen(segment->address));
    web_text_print(text, ",\"size_bytes\":%llu,\"allocator_used_bytes\":%llu,\"allocator_capacity_bytes\":%llu",
                   (unsigned long long)segment->size, (unsigned long long)segment->used,
                   (unsigned long long)segment->size);
    web_text_print(text, ",\"allocator_usage_percent\":%.2f,\"status\":\"%s\"}",
                   segment->size > 0 ? 100.0 * (double)segment->used / (double)segment->size : 0.0,
                   segment->drains ? "GRACEFULLY_UNMOUNTING" : "MOUNTED");
}

/* All of them: as JSON, or only their names. */
static void answer_segments(struct master_service *service, struct web_reply *reply, bool json) {
    size_t count;
    bool serves;
    struct segment_description *list = admin_segments(service, &count, &serves);

    if (!serves) {
        admin_refuse_unavailable(reply);
        return;
    }
    reply->type = json ? ADMIN_JSON : ADMIN_TEXT;
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

void admin_page_segment_names(struct master_service *service, const struct web_request *request,
                              struct web_reply *reply) {
    (void)request;
    answer_segments(service, reply, false);
}

void admin_page_segment_details(struct master_service *service, const struct web_request *request,
                                struct web_reply *reply) {
    (void)request;
    answer_segments(service, reply, true);
}

/* Several may have the name: their sums. */
void admin_page_segment(struct master_service *service, const struct web_request *request, struct web_reply *reply) {
    struct segment_description *list;
    struct web_text name = {0};
    uint64_t size = 0, used = 0;
    bool serves, found = false;
    size_t count;

    if (!take_argument(request, "segment", &name, reply))
        return;
    list = admin_segments(service, &count, &serves);
    for (size_t i = 0; i < count; i++)
        if (strlen(list[i].name) == name.length && memcmp(list[i].name, name.bytes, name.length) == 0) {
            found = true;
            size += list[i].size;
            used += list[i].used;
        }
    if (!serves) {
        admin_refuse_unavailable(reply);
    } else if (!found) {
        admin_refuse(reply, WEB_NOT_FOUND, MC_ERR_SEGMENT_NOT_FOUND, "SEGMENT_NOT_FOUND");
    } else {
        reply->type = ADMIN_TEXT;
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

void admin_page_object(struct master_service *service, const struct web_request *request, struct web_reply *reply) {
    struct web_text key = {0};
    struct sought sought = {.key = &key};

    if (!take_argument(request, "key", &key, reply))
        return;
    if (!master_service_look(service, look_for_object, &sought)) {
        admin_refuse_unavailable(reply);
    } else if (!sought.found) {
        admin_refuse(reply, WEB_NOT_FOUND, MC_ERR_NOT_FOUND, "OBJECT_NOT_FOUND");
    } else {
        reply->type = ADMIN_JSON;
        web_text_print(&reply->text, "{\"success\":true,\"data\":");
        print_replicas(&reply->text, &sought.object);
        web_text_print(&reply->text, "}\n");
    }
    web_text_clear(&key);
}

/* One of a batch; false: the master doesn't serve. */
static bool print_key(struct master_service *service, const struct web_text *key, struct web_text *text) {
    struct sought sought = {.key = key};

    if (!master_service_look(service, look_for_object, &sought))
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

void admin_page_objects(struct master_service *service, const struct web_request *request, struct web_reply *reply) {
    const char *sent = web_argument(request, "keys");
    uint32_t count = 0;

    if (sent == NULL || sent[0] == '\0') {
        refuse_bad(reply, "an argument of the query is missing: keys");
        return;
    }
    reply->type = ADMIN_JSON;
    web_text_print(&reply->text, "{\"success\":true,\"data\":{");
    for (const char *end; sent != NULL; sent = *end == ',' ? end + 1 : NULL) {
        struct web_text key = {0};
        bool good, serves = true;

        end = sent + strcspn(sent, ",");
        good = ++count <= BATCH_MAX && end > sent && web_text_decode(&key, sent, (size_t)(end - sent));
        if (good && count > 1)
            web_text_print(&reply->text, ",");
        if (good)
            serves = print_key(service, &key, &reply->text);
        web_text_clear(&key);
        if (!good)
            refuse_bad(reply, "keys are 1 to 1000, separated by commas and percent-encoded");
        else if (!serves)
            admin_refuse_unavailable(reply);
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

bool admin_add_keys(struct master_service *service, uint32_t limit, uint64_t *cursor, struct web_text *text) {
    struct page page = {.cursor = *cursor, .limit = limit};
    struct message_bytes list, key;
    bool good = master_service_look(service, look_at_page, &page) && !page.keys.full;

    list = items_bytes(&page.keys);
    while (good && items_next(&list, &key) == 1)
        web_text_line(text, key.data, key.length);
    items_clear(&page.keys);
    *cursor = page.cursor;
    return good;
}

void admin_page_listing(struct master_service *service, const struct web_request *request, struct web_reply *reply) {
    uint64_t limit, cursor;

    if (!take_number(request, "limit", ADMIN_PAGE_KEYS, &limit, reply) ||
        !take_number(request, "cursor", 0, &cursor, reply))
        return;
    if (limit == 0 || limit > PAGE_KEYS_MAX) {
        refuse_bad(reply, "limit is from 1 to 10000");
        return;
    }
    reply->type = ADMIN_TEXT;
    if (!admin_add_keys(service, (uint32_t)limit, &cursor, &reply->text)) {
        admin_refuse_unavailable(reply);
        return;
    }
    reply->cursor = cursor;
}

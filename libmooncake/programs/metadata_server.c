/* programs/metadata_server.c - the directory's values.
 *
 * Owns them; only the HTTP server's thread touches them. They are a tree by key, whose sizes are bounded together.
 */
#include "programs/metadata_server.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define KEY_BYTES_MAX 1024u
#define VALUE_BYTES_MAX (1u << 20)
#define VALUES_MAX 65536u
#define BYTES_MAX (64u << 20) /* of all keys and values */
#define TEXT_TYPE "text/plain; charset=utf-8"

struct value {
    struct web_text key;
    struct web_text bytes;
};

struct metadata_server {
    struct web *web;
    void *values; /* tsearch's root */
    uint32_t count;
    uint64_t bytes;
};

static int compare(const void *one, const void *other) {
    const struct value *a = one, *b = other;
    size_t length = a->key.length < b->key.length ? a->key.length : b->key.length;
    int order = length > 0 ? memcmp(a->key.bytes, b->key.bytes, length) : 0;

    return order != 0 ? order : (a->key.length > b->key.length) - (a->key.length < b->key.length);
}

static uint64_t size_of(const struct value *value) {
    return (uint64_t)value->key.length + value->bytes.length;
}

static void value_free(void *node) {
    struct value *value = node;

    web_text_clear(&value->key);
    web_text_clear(&value->bytes);
    free(value);
}

static struct value *find(const struct metadata_server *server, const struct web_text *key) {
    struct value sought = {.key = *key};
    struct value **place = tfind(&sought, &server->values, compare);

    return place != NULL ? *place : NULL;
}

static void answer(struct web_reply *reply, unsigned code, const char *words) {
    reply->code = code;
    web_text_print(&reply->text, "%s", words);
}

/* Takes over the key's memory. NULL if there are too many, or memory is short. */
static struct value *add(struct metadata_server *server, struct web_text *key) {
    struct value *value = server->count < VALUES_MAX ? calloc(1, sizeof(*value)) : NULL;

    if (value == NULL)
        return NULL;
    value->key = *key;
    if (tsearch(value, &server->values, compare) == NULL) {
        free(value);
        return NULL;
    }
    *key = (struct web_text){0};
    server->count++;
    server->bytes += size_of(value);
    return value;
}

static void take_out(struct metadata_server *server, struct value *value) {
    (void)tdelete(value, &server->values, compare);
    server->count--;
    server->bytes -= size_of(value);
    value_free(value);
}

/* Where an engine listens: an engine that has a name already isn't pushed out by another. */
static bool is_address(const struct web_text *key) {
    static const char part[] = "rpc_meta/";
    const char *found = memmem(key->bytes, key->length, part, sizeof(part) - 1);

    return found != NULL && (found == key->bytes || found[-1] == '/');
}

static bool same(const struct web_text *bytes, const struct web_request *request) {
    return bytes->length == request->length &&
           (request->length == 0 || memcmp(bytes->bytes, request->body, request->length) == 0);
}

static void put(struct metadata_server *server, struct web_text *key, const struct web_request *request,
                struct web_reply *reply) {
    struct value *value = find(server, key);
    uint64_t grown = server->bytes + request->length + (value == NULL ? key->length : 0);
    struct web_text bytes = {0};

    if (value != NULL && is_address(key) && !same(&value->bytes, request)) {
        answer(reply, WEB_BAD_REQUEST, "another engine has this name\n");
        return;
    }
    if (value != NULL)
        grown -= value->bytes.length;
    web_text_add(&bytes, request->body, request->length);
    if (grown > BYTES_MAX || bytes.failed || (value == NULL && (value = add(server, key)) == NULL)) {
        web_text_clear(&bytes);
        answer(reply, WEB_FULL, "there is no room for it\n");
        return;
    }
    web_text_clear(&value->bytes);
    value->bytes = bytes;
    server->bytes = grown;
    answer(reply, WEB_OK, "metadata updated\n");
}

static void handle_metadata(struct metadata_server *server, const struct web_request *request,
                            struct web_reply *reply) {
    const char *sent = web_argument(request, "key");
    struct web_text key = {0};
    struct value *value;

    if (sent == NULL || !web_text_decode(&key, sent, strlen(sent)) || key.failed || key.length == 0 ||
        key.length > KEY_BYTES_MAX) {
        answer(reply, WEB_BAD_REQUEST, "key must have 1 to 1024 bytes, percent-encoded\n");
    } else if (request->method == WEB_PUT) {
        put(server, &key, request, reply);
    } else if ((value = find(server, &key)) == NULL) {
        answer(reply, WEB_NOT_FOUND, "metadata not found\n");
    } else if (request->method == WEB_DELETE) {
        take_out(server, value);
        answer(reply, WEB_OK, "metadata deleted\n");
    } else {
        reply->type = "application/json";
        web_text_add(&reply->text, value->bytes.bytes, value->bytes.length);
    }
    web_text_clear(&key);
}

static void handle(void *context, const struct web_request *request, struct web_reply *reply) {
    bool health = strcmp(request->path, "/health") == 0;

    reply->code = WEB_OK;
    reply->type = TEXT_TYPE;
    if (!health && strcmp(request->path, "/metadata") != 0)
        answer(reply, WEB_NOT_FOUND, "there is no such page\n");
    else if (request->method == WEB_POST || (health && request->method != WEB_GET))
        answer(reply, WEB_NOT_ALLOWED, "another method is needed here\n");
    else if (health)
        answer(reply, WEB_OK, "OK\n");
    else
        handle_metadata(context, request, reply);
}

int32_t metadata_server_open(const char *host, uint16_t port, struct metadata_server **ret_server,
                             struct mc_error *error) {
    struct metadata_server *server = calloc(1, sizeof(*server));
    struct web_options web = {
        .host = host, .port = port, .body_max = VALUE_BYTES_MAX, .handle = handle, .context = server};
    int32_t status;

    if (server == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    status = web_open(&web, &server->web, error);
    if (status == MC_OK)
        *ret_server = server;
    else
        free(server);
    return status;
}

struct metadata_server *metadata_server_close(struct metadata_server *server) {
    if (server == NULL)
        return NULL;
    web_close(server->web);
    tdestroy(server->values, value_free);
    free(server);
    return NULL;
}

const char *metadata_server_address(const struct metadata_server *server) {
    return web_address(server->web);
}

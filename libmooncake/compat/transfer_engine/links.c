/* compat/transfer_engine/links.c - which transports there are, and which of them lead to the open segments.
 *
 * Owns nothing; any thread.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compat/words.h"

#include "compat/transfer_engine/inside.h"

#define PROTOCOL_MAX 32

/* ---- Transports ---- */

/* A text of the library that may be of any length; NULL if memory is short or it has none. */
static char *text_of(int64_t (*write)(const void *context, char *text, size_t size), const void *context) {
    int64_t length = write(context, NULL, 0);
    size_t room = length < 0 ? 0 : (size_t)length + 64; /* it may grow a little between the two calls */
    char *text = length < 0 ? NULL : malloc(room);

    if (text != NULL && write(context, text, room) < 0) {
        free(text);
        text = NULL;
    }
    return text;
}

static int64_t write_capabilities(const void *context, char *text, size_t size) {
    (void)context;
    return mc_capabilities(text, size);
}

/* What the capabilities say of a transport: "yes", or why not; in quotes, as in JSON. NULL: there is none. */
static const char *find_transport(const char *capabilities, const char *proto, int *ret_length) {
    const char *begin = strstr(capabilities, "\"transports\":{");
    const char *end = begin != NULL ? strchr(begin, '}') : NULL;
    char key[PROTOCOL_MAX + 8];

    (void)snprintf(key, sizeof(key), "\"%.*s\":\"", PROTOCOL_MAX, proto);
    begin = begin != NULL ? strstr(begin, key) : NULL;
    if (begin == NULL || end == NULL || begin > end)
        return NULL;
    begin += strlen(key);
    *ret_length = (int)strcspn(begin, "\"");
    return begin;
}

transport_t installTransport(transfer_engine_t handle, const char *proto, void **args) {
    static char installed; /* the token of all: nothing is done with it */
    struct engine *engine = engine_enter(handle, __func__);
    transport_t transport = NULL;
    const char *says = NULL;
    char *capabilities;
    int length = 0;

    (void)args;
    if (engine == NULL)
        return NULL;
    capabilities = text_of(write_capabilities, NULL);
    if (capabilities != NULL && proto != NULL)
        says = find_transport(capabilities, proto, &length);
    if (says != NULL && length == 3 && strncmp(says, "yes", 3) == 0)
        transport = &installed;
    else if (says != NULL)
        words_warn("%s: %s: %.*s", __func__, proto, length, says);
    else
        words_warn("%s: there is no transport \"%.*s\"", __func__, PROTOCOL_MAX, proto != NULL ? proto : "");
    free(capabilities);
    engine_leave(engine);
    return transport;
}

/* ---- Links ---- */

struct page {
    char *text;
    size_t size;
    size_t length; /* of the whole, also of what doesn't fit */
    bool json;
    bool begun;
};

__attribute__((format(printf, 2, 3))) static void print(struct page *page, const char *format, ...) {
    size_t left = page->length < page->size ? page->size - page->length : 0;
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(left > 0 ? page->text + page->length : NULL, left, format, arguments);
    va_end(arguments);
    if (length > 0)
        page->length += (size_t)length;
}

static void print_string(struct page *page, const char *string) {
    print(page, "\"");
    for (; *string != '\0'; string++) {
        if (*string == '"' || *string == '\\')
            print(page, "\\%c", *string);
        else if ((unsigned char)*string < 0x20)
            print(page, "\\u%04x", (unsigned char)*string);
        else
            print(page, "%c", *string);
    }
    print(page, "\"");
}

/* Part of a text. */
struct span {
    const char *text;
    int length;
};

static int64_t write_peer(const void *context, char *text, size_t size) {
    return mc_peer_explain(*(const uint64_t *)context, text, size);
}

/* The value of the next `"key":` from *at on, which is moved to it: a text within its quotes, or up to the next comma or
 * brace. Empty, with *at where it was, if there is none before `end`. Within texts the quotes are escaped, so that no
 * key is found there. */
static struct span next_value(const char **at, const char *end, const char *key) {
    struct span span = {"", 0};
    const char *found;
    char quoted[PROTOCOL_MAX];

    (void)snprintf(quoted, sizeof(quoted), "\"%s\":", key);
    found = strstr(*at, quoted);
    if (found == NULL || found >= end)
        return span;
    span.text = found + strlen(quoted);
    if (*span.text != '"') {
        span.length = (int)strcspn(span.text, ",}");
    } else {
        span.text++;
        while (span.text[span.length] != '\0' && span.text[span.length] != '"')
            span.length += span.text[span.length] == '\\' && span.text[span.length + 1] != '\0' ? 2 : 1;
    }
    *at = span.text;
    return span;
}

static bool is(struct span span, const char *text) {
    return (size_t)span.length == strlen(text) && strncmp(span.text, text, (size_t)span.length) == 0;
}

static void print_reason(struct page *page, struct span reason) {
    print(page, "%s", reason.length > 0 ? ": " : "");
    for (int i = 0; i < reason.length; i++) {
        if (reason.text[i] == '\\' && i + 1 < reason.length)
            i++;
        print(page, "%c", reason.text[i]);
    }
    print(page, "\n");
}

/* The library's JSON about a peer, as a line for each transport and for each region. */
static void print_lines(struct page *page, const char *links) {
    const char *end = links + strlen(links), *regions = strstr(links, "\"regions\":["), *at = links;

    if (regions == NULL)
        regions = end;
    for (struct span name; (name = next_value(&at, regions, "transport")).length > 0;) {
        struct span usable = next_value(&at, regions, "usable");

        print(page, "  %.*s %s", name.length, name.text, is(usable, "true") ? "is usable" : "is not usable");
        print_reason(page, next_value(&at, regions, "reason"));
    }
    at = regions;
    for (struct span base; (base = next_value(&at, end, "base")).length > 0;) {
        struct span length = next_value(&at, end, "length"), path = next_value(&at, end, "path"),
                    how = next_value(&at, end, "how");

        print(page, "  %.*s bytes at 0x%" PRIx64 " ", length.length, length.text,
              (uint64_t)strtoull(base.text, NULL, 10));
        if (is(path, "null"))
            print(page, "not by shared memory");
        else
            print(page, "by %.*s, %.*s", path.length, path.text, how.length, how.text);
        print_reason(page, next_value(&at, end, "reason"));
    }
}

static void print_segment(void *context, int32_t number, const char *name, uint64_t peer) {
    struct page *page = context;
    char *links = text_of(write_peer, &peer);

    if (page->json) {
        print(page, "%s{\"segment\":%" PRId32 ",\"name\":", page->begun ? "," : "", number);
        print_string(page, name);
        print(page, ",\"links\":%s}", links != NULL ? links : "null");
    } else {
        print(page, "segment %" PRId32 " ", number);
        print_string(page, name);
        print(page, "%s\n", links != NULL ? "" : " is not known any more");
        print_lines(page, links != NULL ? links : "");
    }
    page->begun = true;
    free(links);
}

int showLinks(transfer_engine_t handle, char *buf, size_t len, int json) {
    struct page page = {.text = buf, .size = len, .json = json != 0};
    struct engine *engine = engine_enter(handle, __func__);
    char address[MC_ADDRESS_MAX] = "";

    if (engine == NULL)
        return result_of(MC_ERR_INVALID_HANDLE);
    if (buf == NULL && len > 0) {
        engine_leave(engine);
        return result_say(__func__, MC_ERR_INVALID_ARGUMENT, NULL);
    }
    (void)mc_engine_address(engine->engine, address, sizeof(address));
    print(&page, page.json ? "{\"engine\":" : "engine ");
    print_string(&page, address);
    print(&page, page.json ? ",\"segments\":[" : "\n");
    segments_each(engine, print_segment, &page);
    if (page.json)
        print(&page, "]}");
    engine_leave(engine);
    return page.length < len ? 0 : result_say(__func__, MC_ERR_BUFFER_TOO_SMALL, NULL);
}

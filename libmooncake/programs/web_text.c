/* programs/web_text.c - text that grows. One thread at a time. */
#include "programs/web_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

#define SMALLEST 256u
#define PRINTED_MAX 1024u

void web_text_clear(struct web_text *text) {
    free(text->bytes);
    *text = (struct web_text){0};
}

static bool make_room(struct web_text *text, size_t length) {
    uint64_t needed, doubled = text->capacity;
    char *bytes;

    if (text->failed || !checked_add(text->length, length, &needed))
        return false;
    if (needed <= text->capacity)
        return true;
    if (!checked_mul(doubled, 2, &doubled) || doubled < needed)
        doubled = needed < SMALLEST ? SMALLEST : needed;
    bytes = realloc(text->bytes, doubled);
    if (bytes == NULL)
        return false;
    text->bytes = bytes;
    text->capacity = doubled;
    return true;
}

void web_text_add(struct web_text *text, const void *bytes, size_t length) {
    if (length == 0)
        return;
    if (!make_room(text, length)) {
        text->failed = true;
        return;
    }
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
}

void web_text_print(struct web_text *text, const char *format, ...) {
    char printed[PRINTED_MAX];
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(printed, sizeof(printed), format, arguments);
    va_end(arguments);
    if (length > 0)
        web_text_add(text, printed, (size_t)length < sizeof(printed) ? (size_t)length : sizeof(printed) - 1);
}

/* How many bytes the character at the front takes; 0 if it is none of UTF-8's. */
static size_t character(const unsigned char *bytes, size_t length) {
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char lead = bytes[0];
    size_t size = lead < 0x80 ? 1 : lead < 0xc0 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf8 ? 4 : 0;
    uint32_t value = lead & (0x7fu >> size);

    if (size <= 1)
        return size;
    if (size > length)
        return 0;
    for (size_t i = 1; i < size; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (bytes[i] & 0x3fu);
    }
    return value < smallest[size] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff) ? 0 : size;
}

/* The escape of a byte in JSON strings and labels; NULL: it stands for itself. */
static const char *escape_of(unsigned char byte) {
    switch (byte) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\n':
        return "\\n";
    default:
        return NULL;
    }
}

static void quote(struct web_text *text, const void *bytes, size_t length, bool json) {
    const unsigned char *next = bytes;

    web_text_add(text, "\"", 1);
    while (length > 0) {
        size_t size = character(next, length);
        const char *escape = escape_of(*next);

        if (escape != NULL)
            web_text_add(text, escape, 2);
        else if (size == 0 || (*next < 0x20 && !json))
            web_text_add(text, "\xef\xbf\xbd", 3);
        else if (*next < 0x20)
            web_text_print(text, "\\u%04x", *next);
        else
            web_text_add(text, next, size);
        next += size > 0 ? size : 1;
        length -= size > 0 ? size : 1;
    }
    web_text_add(text, "\"", 1);
}

void web_text_json(struct web_text *text, const void *bytes, size_t length) {
    quote(text, bytes, length, true);
}

void web_text_label(struct web_text *text, const char *string) {
    quote(text, string, strlen(string), false);
}

void web_text_line(struct web_text *text, const void *bytes, size_t length) {
    const unsigned char *next = bytes;
    size_t plain = 0;

    for (size_t i = 0; i < length; i++) {
        if (next[i] >= 0x20 && next[i] != 0x7f && next[i] != '%')
            continue;
        web_text_add(text, next + plain, i - plain);
        web_text_print(text, "%%%02X", next[i]);
        plain = i + 1;
    }
    web_text_add(text, next + plain, length - plain);
    web_text_add(text, "\n", 1);
}

static int digit(char byte) {
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    if (byte >= 'a' && byte <= 'f')
        return byte - 'a' + 10;
    return byte >= 'A' && byte <= 'F' ? byte - 'A' + 10 : -1;
}

bool web_text_decode(struct web_text *text, const char *part, size_t length) {
    for (size_t i = 0; i < length; i++) {
        char byte = part[i];

        if (byte == '%') {
            int high = length - i > 2 ? digit(part[i + 1]) : -1;
            int low = length - i > 2 ? digit(part[i + 2]) : -1;

            if (high < 0 || low < 0)
                return false;
            byte = (char)(high << 4 | low);
            i += 2;
        }
        web_text_add(text, &byte, 1);
    }
    return true;
}

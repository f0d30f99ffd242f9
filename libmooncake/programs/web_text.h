/* programs/web_text.h - text that grows, and the ways in which bytes from outside are put into it and taken from URLs.
 *
 * Keys and names are any bytes. In lines and URLs they are percent-encoded where they must be; in JSON and in labels of
 * metrics what is no UTF-8 becomes U+FFFD.
 */
#ifndef MC_PROGRAMS_WEB_TEXT_H
#define MC_PROGRAMS_WEB_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All zeros is an empty one. */
struct web_text {
    char *bytes; /* malloc'd; NULL while empty; not NUL-terminated */
    size_t length;
    size_t capacity;
    bool failed; /* memory was short: it isn't whole */
};

/* Frees the memory; the text is empty. */
void web_text_clear(struct web_text *text);

void web_text_add(struct web_text *text, const void *bytes, size_t length);

/* At most 1023 bytes at a time; what is longer is cut. */
__attribute__((format(printf, 2, 3))) void web_text_print(struct web_text *text, const char *format, ...);

/* In quotes, as JSON has it. */
void web_text_json(struct web_text *text, const void *bytes, size_t length);

/* In quotes, as a label of a metric (Prometheus' text format). */
void web_text_label(struct web_text *text, const char *string);

/* As a line: control bytes and "%" as %XX, and the newline. */
void web_text_line(struct web_text *text, const void *bytes, size_t length);

/* Appends a percent-encoded part of a URL, decoded. False, and an undefined rest, if a "%" isn't followed by two
 * hexadecimal digits. */
bool web_text_decode(struct web_text *text, const char *part, size_t length);

#endif

/* base/writer.h - appends text to a caller's buffer of any size, and counts what it would have taken. */
#ifndef MC_BASE_WRITER_H
#define MC_BASE_WRITER_H

#include <stddef.h>
#include <stdint.h>

struct writer {
    char *text; /* NUL-terminated when size > 0 */
    size_t size;
    size_t length; /* of the whole text, also of what didn't fit */
};

/* `text` may be NULL when size is 0. */
void writer_init(struct writer *writer, char *text, size_t size);

__attribute__((format(printf, 2, 3))) void writer_print(struct writer *writer, const char *format, ...);

/* The string in quotes, as JSON has it. */
void writer_json_string(struct writer *writer, const char *string);

#endif

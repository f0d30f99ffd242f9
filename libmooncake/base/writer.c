/* base/writer.c - appends text to a caller's buffer. One writer belongs to one thread. */
#include "base/writer.h"

#include <stdarg.h>
#include <stdio.h>

void writer_init(struct writer *writer, char *text, size_t size) {
    writer->text = text;
    writer->size = size;
    writer->length = 0;
    if (size > 0)
        text[0] = '\0';
}

void writer_print(struct writer *writer, const char *format, ...) {
    size_t left = writer->length < writer->size ? writer->size - writer->length : 0;
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(left > 0 ? writer->text + writer->length : NULL, left, format, arguments);
    va_end(arguments);
    if (length > 0)
        writer->length += (size_t)length;
}

void writer_json_string(struct writer *writer, const char *string) {
    writer_print(writer, "\"");
    for (; *string != '\0'; string++) {
        unsigned char byte = (unsigned char)*string;

        if (byte == '"' || byte == '\\')
            writer_print(writer, "\\%c", byte);
        else if (byte < 0x20)
            writer_print(writer, "\\u%04x", byte);
        else
            writer_print(writer, "%c", byte);
    }
    writer_print(writer, "\"");
}

/* base/text.h - copies words, and keeps those from outside to one clean line. */
#ifndef MC_BASE_TEXT_H
#define MC_BASE_TEXT_H

#include <stdbool.h>
#include <string.h>

/* Copies what fits of a string into `text` of `size` bytes, at least 1; always ends with NUL. */
static inline void text_copy(char *text, size_t size, const char *string) {
    size_t length = strnlen(string, size - 1);

    memcpy(text, string, length);
    text[length] = '\0';
}

/* Replaces control characters by '?'. If `cut`, the text was truncated: an unfinished UTF-8 sequence at its end goes
 * too. */
static inline void text_one_line(char *text, bool cut) {
    size_t length = strlen(text);
    size_t start = length;

    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            text[i] = '?';
    if (!cut)
        return;
    while (start > 0 && length - start < 3 && ((unsigned char)text[start - 1] & 0xc0) == 0x80)
        start--;
    if (start > 0 && ((unsigned char)text[start - 1] & 0xc0) == 0xc0) {
        unsigned char lead = (unsigned char)text[start - 1];
        size_t needed = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;

        if (length - start + 1 < needed)
            text[start - 1] = '\0';
    }
}

#endif

/* base/copy.c - copies: memcpy, and crc32c behind it. */
#include "base/copy.h"

#include <string.h>

#include "base/crc32c.h"

void copy_bytes(void *to, const void *from, size_t length) {
    memcpy(to, from, length);
}

uint32_t copy_bytes_crc32c(uint32_t crc, void *to, const void *from, size_t length) {
    memcpy(to, from, length);
    return crc32c(crc, to, length);
}

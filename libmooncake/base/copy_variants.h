/* base/copy_variants.h - the ways to copy past the caches, and to sum while copying: one for each kind of processor.
 *
 * Private to base/copy.c, the files of the variants, and the tests.
 */
#ifndef MC_BASE_COPY_VARIANTS_H
#define MC_BASE_COPY_VARIANTS_H

#include <stddef.h>
#include <stdint.h>

#define COPY_STREAM_LEAST 65536u /* bytes of a copy that may go past the caches; smaller ones are memcpy's */
#define COPY_SUM_LEAST 1024u     /* bytes that `sum` and `stream_sum` take at least */
#define COPY_LINE 64u            /* streaming stores fill lines, one after the other */

/* For any addresses. The sums are as by copy_bytes_crc32c: of the bytes that were copied, even if others change the
 * source meanwhile. A fence is part of what streams. */
struct copy_variant {
    const char *name;
    void (*stream)(void *to, const void *from, size_t length);
    uint32_t (*sum)(uint32_t crc, void *to, const void *from, size_t length);
    uint32_t (*stream_sum)(uint32_t crc, void *to, const void *from, size_t length);
};

#define COPY_VARIANTS_MAX 4u

/* memcpy, and crc32c behind it while the bytes are in the nearest cache. */
extern const struct copy_variant copy_portable;

/* Stores those of base/copy_x86.c that this processor has, the best one first; returns how many. */
size_t copy_x86_variants(const struct copy_variant *ret_variants[COPY_VARIANTS_MAX]);

/* A sum without a copy, as crc32c; `length` is a multiple of CRC32C_FOLD_BLOCK, and not 0. */
#define CRC32C_FOLD_BLOCK 256u
typedef uint32_t crc32c_fold(uint32_t crc, const void *bytes, size_t length);

/* NULL: this processor has nothing better than the CRC instruction. */
crc32c_fold *crc32c_x86_fold(void);

/* Bytes of traffic, read and written, that the last level of cache still remembers half of. */
size_t copy_window(void);

#endif

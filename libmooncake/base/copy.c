/* base/copy.c - chooses how bytes are copied: by memcpy, or past the caches by a variant that the processor has.
 *
 * Owns: the choice of a variant and the window, made once; a table per thread of what it has copied lately.
 *
 * Threads: any.
 *
 * Measured with memfds on an EPYC of the third generation: where the destination is in no cache, a streaming store
 * saves the read of what is overwritten, and copies are 1.7 to 1.9 times as fast as memcpy's from the smallest sizes
 * on, whether the source is in a cache or not. But whoever reads the bytes next has to fetch them; up to 64 KiB that
 * costs more than was saved. Where the destination is in a cache, memcpy is up to 1.6 times as fast; it stays ahead
 * until about half of the last cache has passed by between two copies to the same place.
 */
#include "base/copy.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/copy_recent.h"
#include "base/copy_variants.h"
#include "base/crc32c.h"

#define PIECE ((size_t)256 << 10) /* of which each is looked up for itself */
#define NEAR ((size_t)12 << 10)   /* stays in the first cache until it is summed */
#define WINDOW_DEFAULT ((size_t)4 << 20)

_Static_assert(COPY_STREAM_LEAST >= COPY_RECENT_LEAST && PIECE >= COPY_STREAM_LEAST, "each piece can be looked up");

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct copy_variant *chosen;
static size_t window;
static __thread struct copy_recent recent;

/* ---- Without knowing the processor ---- */

static void portable_copy(void *to, const void *from, size_t length) {
    memcpy(to, from, length);
}

static uint32_t portable_sum(uint32_t crc, void *to, const void *from, size_t length) {
    for (size_t at = 0, step; at < length; at += step) {
        step = length - at < NEAR ? length - at : NEAR;
        memcpy((char *)to + at, (const char *)from + at, step);
        crc = crc32c(crc, (char *)to + at, step);
    }
    return crc;
}

const struct copy_variant copy_portable = {"portable", portable_copy, portable_sum, portable_sum};

#if !defined(__x86_64__)
/* On other processors memcpy decides for itself what goes past the caches. */
size_t copy_x86_variants(const struct copy_variant *ret_variants[COPY_VARIANTS_MAX]) {
    (void)ret_variants;
    return 0;
}

size_t copy_window(void) {
    return 0;
}
#endif

/* ---- The choice ---- */

static void choose(void) {
    const struct copy_variant *variants[COPY_VARIANTS_MAX];

    chosen = copy_x86_variants(variants) > 0 ? variants[0] : &copy_portable;
    window = copy_window();
    if (window == 0)
        window = WINDOW_DEFAULT;
    if (window > COPY_RECENT_WINDOW_MAX)
        window = COPY_RECENT_WINDOW_MAX;
}

/* How many of the bytes that are left are copied next in one way. */
static size_t next_piece(size_t left) {
    return left < PIECE + COPY_STREAM_LEAST ? left : PIECE;
}

void copy_bytes(void *to, const void *from, size_t length) {
    if (length < COPY_STREAM_LEAST) {
        memcpy(to, from, length);
        return;
    }
    (void)pthread_once(&once, choose);
    for (size_t at = 0, piece; at < length; at += piece) {
        char *target = (char *)to + at;
        const char *source = (const char *)from + at;

        piece = next_piece(length - at);
        if (copy_recent_note(&recent, target, piece, window))
            memcpy(target, source, piece);
        else
            chosen->stream(target, source, piece);
    }
}

uint32_t copy_bytes_crc32c(uint32_t crc, void *to, const void *from, size_t length) {
    if (length < COPY_SUM_LEAST) {
        memcpy(to, from, length);
        return crc32c(crc, to, length);
    }
    (void)pthread_once(&once, choose);
    if (length < COPY_STREAM_LEAST)
        return chosen->sum(crc, to, from, length);
    for (size_t at = 0, piece; at < length; at += piece) {
        char *target = (char *)to + at;
        const char *source = (const char *)from + at;

        piece = next_piece(length - at);
        if (copy_recent_note(&recent, target, piece, window))
            crc = chosen->sum(crc, target, source, piece);
        else
            crc = chosen->stream_sum(crc, target, source, piece);
    }
    return crc;
}

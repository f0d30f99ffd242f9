/* store/owner/space.h - allocation of byte ranges in a segment in constant time, with free neighbours merged.
 *
 * Two-level segregated fit (M. Masmano et al., "TLSF", 2004): free ranges are kept in lists by size class, of which two
 * bitmaps tell the ones in use. All of its records are in private memory: the segment itself isn't touched, so nothing
 * that clients write there can confuse it. Not thread-safe.
 */
#ifndef MC_STORE_OWNER_SPACE_H
#define MC_STORE_OWNER_SPACE_H

#include <stdbool.h>
#include <stdint.h>

#define SPACE_UNIT 64u /* ranges begin at and have multiples of it */

struct space;
struct extent; /* a range that is in use */

/* Manages [0, size). NULL if memory is short. */
struct space *space_new(uint64_t size);
struct space *space_free(struct space *space); /* NULL is fine; returns NULL */

/* A range of at least `length` bytes (not 0), or NULL if there is none. `align` is a power of two: SPACE_UNIT, or more
 * for pages. */
struct extent *space_take(struct space *space, uint64_t length, uint64_t align);

/* Gives the range back and merges it with free neighbours. */
void space_give(struct space *space, struct extent *extent);

uint64_t extent_offset(const struct extent *extent);
uint64_t extent_length(const struct extent *extent); /* rounding included */

uint64_t space_used(const struct space *space);

/* The size of the largest free range, to the precision of its size class (never too large). */
uint64_t space_largest(const struct space *space);

#endif

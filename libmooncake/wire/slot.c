/* wire/slot.c - the hash of a key: XXH3, 128 bits. */
#include "wire/slot.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

struct key_hash key_hash(const void *key, size_t length) {
    XXH128_hash_t hash = XXH3_128bits(key, length);

    return (struct key_hash){.high = hash.high64, .low = hash.low64};
}

/* wire/slot.c - the hash of a key (XXH3, 128 bits), checksums of objects, and copies to and from segments. */
#include "wire/slot.h"

#include "base/copy.h"
#include "base/crc32c.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

struct key_hash key_hash(const void *key, size_t length) {
    XXH128_hash_t hash = XXH3_128bits(key, length);

    return (struct key_hash){.high = hash.high64, .low = hash.low64};
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WATCHED 1
#endif
#endif

uint32_t slot_checksum(const void *payload, uint64_t length, const void *key, uint32_t key_length) {
    return crc32c(crc32c(0, payload, length), key, key_length);
}

#if defined(WATCHED) || defined(__SANITIZE_THREAD__)
void slot_copy(void *to, const void *from, size_t length) {
    for (size_t i = 0; i < length; i++)
        __atomic_store_n((uint8_t *)to + i, __atomic_load_n((const uint8_t *)from + i, __ATOMIC_RELAXED),
                         __ATOMIC_RELAXED);
}

uint32_t slot_copy_summed(uint32_t crc, void *to, const void *from, size_t length) {
    slot_copy(to, from, length);
    return crc32c(crc, to, length);
}
#else
void slot_copy(void *to, const void *from, size_t length) {
    if (length > 0)
        copy_bytes(to, from, length);
}

uint32_t slot_copy_summed(uint32_t crc, void *to, const void *from, size_t length) {
    return length > 0 ? copy_bytes_crc32c(crc, to, from, length) : crc;
}
#endif

/* values.c - values that say what they are (store_contract.h). A value is bytes that follow from a seed; the seed, and
 * the length, are its first bytes. */
#include "store_contract.h"

struct head {
    uint32_t key, version;
    uint64_t length, seed;
};

static uint64_t seed_of(uint32_t key, uint32_t version, uint64_t length) {
    uint64_t seed = ((uint64_t)key << 32 | version) ^ length << 17;

    return random_next(&seed);
}

/* The same as fill() writes, compared where it lies. */
static bool is_filled(const uint8_t *at, uint64_t length, uint64_t seed) {
    while (length > 0) {
        uint64_t word = random_next(&seed);
        size_t count = length < sizeof(word) ? (size_t)length : sizeof(word);

        if (memcmp(at, &word, count) != 0)
            return false;
        at += count;
        length -= count;
    }
    return true;
}

void value_make(void *bytes, uint64_t length, uint32_t key, uint32_t version) {
    struct head head = {key, version, length, seed_of(key, version, length)};

    _Static_assert(sizeof(head) == VALUE_HEAD, "VALUE_HEAD");
    fill(bytes, length, head.seed);
    if (length >= sizeof(head))
        memcpy(bytes, &head, sizeof(head));
}

bool value_is_of(const void *bytes, uint64_t length, uint32_t key) {
    struct head head;

    if (length < sizeof(head))
        return false;
    memcpy(&head, bytes, sizeof(head));
    if (head.key != key || head.length != length || head.seed != seed_of(key, head.version, length))
        return false;
    for (size_t i = 0; i < sizeof(head) / sizeof(uint64_t); i++)
        random_next(&head.seed);
    return is_filled((const uint8_t *)bytes + sizeof(head), length - sizeof(head), head.seed);
}

uint32_t value_version(const void *bytes) {
    struct head head;

    memcpy(&head, bytes, sizeof(head));
    return head.version;
}

/* value.c - values that say what they are. */
#include "value.h"

#include <string.h>

#define MAGIC 0x6d6f6f6e63616b65u

struct head {
    uint64_t magic;
    uint64_t key;
    uint64_t version;
    uint64_t length;
};

_Static_assert(sizeof(struct head) == VALUE_MIN, "a head is all of the smallest value");

uint64_t value_mix(uint64_t number) {
    number += 0x9e3779b97f4a7c15u;
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9u;
    number = (number ^ number >> 27) * 0x94d049bb133111ebu;
    return number ^ number >> 31;
}

static struct head head_of(const char *key, uint64_t version, uint64_t length) {
    struct head head = {.magic = MAGIC, .key = 14695981039346656037u, .version = version, .length = length};

    for (; *key != '\0'; key++)
        head.key = (head.key ^ (unsigned char)*key) * 1099511628211u;
    return head;
}

static uint64_t seed_of(const struct head *head) {
    return value_mix(head->key ^ value_mix(head->version ^ value_mix(head->length)));
}

static uint64_t word_at(uint64_t seed, uint64_t index) {
    return (seed ^ index) * 0x9e3779b97f4a7c15u;
}

void value_make(void *bytes, uint64_t length, const char *key, uint64_t version) {
    const struct head head = head_of(key, version, length);
    const uint64_t seed = seed_of(&head);
    uint8_t *at = (uint8_t *)bytes + sizeof(head);
    uint64_t left = length - sizeof(head);

    memcpy(bytes, &head, sizeof(head));
    for (uint64_t i = 0; left > 0; i++) {
        uint64_t word = word_at(seed, i);
        uint64_t piece = left < sizeof(word) ? left : sizeof(word);

        memcpy(at, &word, piece);
        at += piece;
        left -= piece;
    }
}

int64_t value_version(const void *bytes, uint64_t length, const char *key) {
    const uint8_t *at = (const uint8_t *)bytes + sizeof(struct head);
    struct head head, expected;
    uint64_t seed, left;

    if (length < sizeof(head))
        return -1;
    memcpy(&head, bytes, sizeof(head));
    expected = head_of(key, head.version, length);
    if (memcmp(&head, &expected, sizeof(head)) != 0)
        return -1;
    seed = seed_of(&head);
    left = length - sizeof(head);
    for (uint64_t i = 0; left > 0; i++) {
        uint64_t word = word_at(seed, i);
        uint64_t piece = left < sizeof(word) ? left : sizeof(word);

        if (memcmp(at, &word, piece) != 0)
            return -1;
        at += piece;
        left -= piece;
    }
    return (int64_t)head.version;
}

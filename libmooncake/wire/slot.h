/* wire/slot.h - what the processes of a store share in memory: slots that describe extents, and pins.
 *
 * A segment is an owner's memory that clients read and write one-sidedly. It holds payload space and pages of slots. A
 * slot describes one extent: payload, and behind it the key. Only the owner changes the first half of a slot (rule 1);
 * the holder of a RESERVED slot writes the second half, after payload and key (rule 3). All numbers are in the
 * processor's order, which is little-endian.
 */
#ifndef MC_WIRE_SLOT_H
#define MC_WIRE_SLOT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/message.h"

#define KEY_MAX 4096u
#define REPLICAS_MAX 8u

/* word = generation << 2 | state. Generations are the segment's, from 1 on: no two reservations in it share one. */
enum slot_state { SLOT_FREE = 0, SLOT_RESERVED = 1, SLOT_LIVE = 2, SLOT_DEAD = 3 };

struct key_hash {
    uint64_t high; /* keys are listed in the order of this half */
    uint64_t low;
};

/* What the holder writes, as one piece. key_length 0: nothing was written yet. */
struct slot_description {
    struct key_hash hash;
    uint64_t length;     /* of the payload */
    uint32_t key_length; /* 1 to KEY_MAX */
    uint32_t crc;        /* CRC32C of payload and key */
};

struct slot {
    _Atomic uint64_t word;
    _Atomic uint64_t version_epoch; /* given by PROMOTE; 0 before */
    _Atomic uint64_t version_counter;
    _Atomic uint64_t offset; /* of the payload in the segment; given with the reservation */
    struct slot_description described;
};

_Static_assert(sizeof(struct slot) == 64, "a slot is a cache line");
_Static_assert(offsetof(struct slot, described) == 32, "the holder's half is one piece");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "words are shared between processes");

static inline uint64_t slot_word(uint64_t generation, enum slot_state state) {
    return generation << 2 | (uint64_t)state;
}

static inline enum slot_state slot_word_state(uint64_t word) {
    return (enum slot_state)(word & 3);
}

static inline uint64_t slot_word_generation(uint64_t word) {
    return word >> 2;
}

/* May the extent be read under this generation (rule 10)? A generation from a message that no word can hold is none. */
static inline bool slot_word_readable(uint64_t word, uint64_t generation) {
    return slot_word_generation(word) == generation &&
           (slot_word_state(word) == SLOT_LIVE || slot_word_state(word) == SLOT_RESERVED);
}

/* A half of a slot as words, whatever its fields are. */
typedef uint64_t slot_raw __attribute__((may_alias));

/* A reader may be late: what it reads is then being written by the next holder, and is thrown away after the second
 * look. So descriptions and payloads are copied by these, which make no undefined race of that. */
static inline void slot_describe(struct slot *slot, const struct slot_description *description) {
    uint64_t words[sizeof(*description) / sizeof(uint64_t)];

    __builtin_memcpy(words, description, sizeof(words));
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        __atomic_store_n((slot_raw *)(void *)&slot->described + i, words[i], __ATOMIC_RELAXED);
}

static inline struct slot_description slot_description(const struct slot *slot) {
    struct slot_description description;
    uint64_t words[sizeof(description) / sizeof(uint64_t)];

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        words[i] = __atomic_load_n((const slot_raw *)(const void *)&slot->described + i, __ATOMIC_RELAXED);
    __builtin_memcpy(&description, words, sizeof(words));
    return description;
}

/* To or from a segment: copy_bytes, except where the thread sanitizer watches. */
void slot_copy(void *to, const void *from, size_t length);

/* The same; returns `crc` (0 to begin) continued over what was copied. */
uint32_t slot_copy_summed(uint32_t crc, void *to, const void *from, size_t length);

/* The slot of this place in a mapped segment; that it lies in it is the caller's to have checked. */
static inline struct slot *slot_at(uint8_t *memory, const struct message_place *place) {
    return (struct slot *)(void *)(memory + place->slot);
}

/* What described.crc has to be. */
uint32_t slot_checksum(const void *payload, uint64_t length, const void *key, uint32_t key_length);

/* The first look at a mapped slot: readable under the generation, and of this key and length. */
static inline bool slot_look(const struct slot *slot, uint64_t generation, const struct key_hash *hash,
                             uint64_t length) {
    uint64_t word = atomic_load_explicit(&slot->word, memory_order_acquire);
    struct slot_description description = slot_description(slot);

    return slot_word_readable(word, generation) && description.hash.high == hash->high &&
           description.hash.low == hash->low && description.length == length;
}

/* The second look, after the copy: what was copied belongs to the generation (rule 10). */
static inline bool slot_look_again(const struct slot *slot, uint64_t generation) {
    atomic_thread_fence(memory_order_acquire);
    return slot_word_readable(atomic_load_explicit(&slot->word, memory_order_relaxed), generation);
}

/* A reader's pins in the owner's memory; cells are written by that reader alone and hold the generation of what is
 * viewed, or 0. A view stores its cell, fences, and looks at the word; the owner makes the word DEAD, fences, and looks
 * at the cells: one of the two sees the other. */
#define PIN_CELLS 1024u

struct pin_table {
    _Atomic uint64_t cells[PIN_CELLS];
};

/* The 128-bit hash of a key. */
struct key_hash key_hash(const void *key, size_t length);

static inline bool key_hash_equal(const struct key_hash *one, const struct key_hash *other) {
    return one->high == other->high && one->low == other->low;
}

static inline bool message_id_equal(const struct message_id *one, const struct message_id *other) {
    return __builtin_memcmp(one->bytes, other->bytes, sizeof(one->bytes)) == 0;
}

#endif

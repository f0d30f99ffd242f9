/* test_slot.c - a slot's word, its two looks, the hash of keys, and the layout that processes share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "wire/slot.h"

#define GENERATION_MAX (UINT64_MAX >> 2)

static void a_slot_is_laid_out_as_the_page_says(void **state) {
    (void)state;
    assert_int_equal(offsetof(struct slot, word), 0);
    assert_int_equal(offsetof(struct slot, version_epoch), 8);
    assert_int_equal(offsetof(struct slot, version_counter), 16);
    assert_int_equal(offsetof(struct slot, offset), 24);
    assert_int_equal(offsetof(struct slot, described.hash.high), 32);
    assert_int_equal(offsetof(struct slot, described.hash.low), 40);
    assert_int_equal(offsetof(struct slot, described.length), 48);
    assert_int_equal(offsetof(struct slot, described.key_length), 56);
    assert_int_equal(offsetof(struct slot, described.crc), 60);
    assert_int_equal(sizeof(struct slot), 64);
    assert_int_equal(sizeof(struct pin_table), 8 * PIN_CELLS);
}

static void a_word_holds_generation_and_state(void **state) {
    static const uint64_t generations[] = {0, 1, 2, 77, GENERATION_MAX};

    (void)state;
    assert_int_equal(slot_word(5, SLOT_LIVE), 22);
    for (size_t i = 0; i < sizeof(generations) / sizeof(generations[0]); i++) {
        for (int slot_state = SLOT_FREE; slot_state <= SLOT_DEAD; slot_state++) {
            uint64_t word = slot_word(generations[i], (enum slot_state)slot_state);

            assert_true(slot_word_generation(word) == generations[i]);
            assert_int_equal(slot_word_state(word), slot_state);
        }
    }
}

static void only_reserved_and_live_slots_of_the_generation_are_readable(void **state) {
    (void)state;
    assert_false(slot_word_readable(slot_word(5, SLOT_FREE), 5));
    assert_true(slot_word_readable(slot_word(5, SLOT_RESERVED), 5));
    assert_true(slot_word_readable(slot_word(5, SLOT_LIVE), 5));
    assert_false(slot_word_readable(slot_word(5, SLOT_DEAD), 5));
    assert_false(slot_word_readable(slot_word(5, SLOT_LIVE), 4));
    assert_false(slot_word_readable(slot_word(5, SLOT_LIVE), 6));
}

static void a_generation_that_no_word_can_hold_is_never_readable(void **state) {
    (void)state;
    assert_true(slot_word_readable(slot_word(GENERATION_MAX, SLOT_LIVE), GENERATION_MAX));
    for (uint64_t high = 1; high <= 3; high++)
        assert_false(slot_word_readable(slot_word(5, SLOT_LIVE), high << 62 | 5));
}

static struct slot some_slot(enum slot_state slot_state) {
    return (struct slot){.word = slot_word(5, slot_state),
                         .offset = 4096,
                         .described = {.hash = {.high = 1, .low = 2}, .length = 100, .key_length = 3}};
}

static void the_first_look_wants_generation_state_hash_and_length(void **state) {
    struct slot slot = some_slot(SLOT_LIVE), dead = some_slot(SLOT_DEAD);
    struct key_hash hash = {.high = 1, .low = 2};

    (void)state;
    assert_true(slot_look(&slot, 5, &hash, 100));
    assert_false(slot_look(&dead, 5, &hash, 100));
    assert_false(slot_look(&slot, 5, &hash, 99));
    assert_false(slot_look(&slot, 5, &(struct key_hash){.high = 1, .low = 3}, 100));
    assert_false(slot_look(&slot, 5, &(struct key_hash){.high = 0, .low = 2}, 100));
    assert_false(slot_look(&slot, 4, &hash, 100));
}

static void a_description_comes_out_as_it_went_in_and_the_owners_half_stays(void **state) {
    struct slot slot = some_slot(SLOT_RESERVED);
    struct slot_description in = {.hash = {.high = 7, .low = 8}, .length = UINT64_MAX, .key_length = 9, .crc = 10};
    struct slot_description out;

    (void)state;
    slot_describe(&slot, &in);
    out = slot_description(&slot);
    assert_memory_equal(&out, &in, sizeof(in));
    assert_true(key_hash_equal(&slot.described.hash, &in.hash));
    assert_int_equal(slot.described.key_length, 9);
    assert_int_equal(slot.described.crc, 10);
    assert_true(slot.word == slot_word(5, SLOT_RESERVED));
    assert_true(slot.version_epoch == 0 && slot.version_counter == 0 && slot.offset == 4096);
}

static void copies_to_and_from_segments_are_exact_at_any_address_and_length(void **state) {
    uint8_t from[80], to[80], expected[80];

    (void)state;
    for (size_t i = 0; i < sizeof(from); i++)
        from[i] = (uint8_t)(i + 1);
    for (size_t shift = 0; shift < 9; shift++) {
        for (size_t length = 0; length <= 64; length++) {
            memset(to, 0xff, sizeof(to));
            memset(expected, 0xff, sizeof(expected));
            memcpy(expected + shift, from + 1, length);
            slot_copy(to + shift, from + 1, length);
            assert_memory_equal(to, expected, sizeof(to));
        }
    }
    slot_copy(NULL, NULL, 0);
}

static void the_second_look_stands_a_promotion_and_nothing_else(void **state) {
    struct slot slot = some_slot(SLOT_RESERVED);

    (void)state;
    assert_true(slot_look_again(&slot, 5));
    slot.word = slot_word(5, SLOT_LIVE);
    assert_true(slot_look_again(&slot, 5));
    slot.word = slot_word(5, SLOT_DEAD);
    assert_false(slot_look_again(&slot, 5));
    slot.word = slot_word(6, SLOT_LIVE);
    assert_false(slot_look_again(&slot, 5));
}

static void keys_are_hashed_by_xxh3(void **state) {
    struct key_hash nothing = key_hash("", 0), abc = key_hash("abc", 3);

    (void)state;
    assert_true(nothing.high == 0x99aa06d3014798d8 && nothing.low == 0x6001c324468d497f);
    assert_true(abc.high == 0x06b05ab6733a6185 && abc.low == 0x78af5f94892f3950);
}

static void every_byte_of_a_key_counts_at_any_length(void **state) {
    static const size_t lengths[] = {1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 1024, KEY_MAX};
    uint8_t key[KEY_MAX];

    (void)state;
    memset(key, 'k', sizeof(key));
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct key_hash before = key_hash(key, lengths[i]), after;

        for (size_t at = 0; at < lengths[i]; at++) {
            key[at] = 'K';
            after = key_hash(key, lengths[i]);
            assert_false(key_hash_equal(&before, &after));
            key[at] = 'k';
        }
        after = key_hash(key, lengths[i]);
        assert_true(key_hash_equal(&before, &after));
    }
}

static void hashes_and_ids_are_equal_in_all_their_bits_or_not(void **state) {
    struct key_hash hash = {.high = 1, .low = 2}, other = hash;
    struct message_id id = {{0}}, same = {{0}};

    (void)state;
    assert_true(key_hash_equal(&hash, &other));
    other.high ^= 1ull << 63;
    assert_false(key_hash_equal(&hash, &other));
    other = hash;
    other.low ^= 1;
    assert_false(key_hash_equal(&hash, &other));
    assert_true(message_id_equal(&id, &same));
    for (size_t i = 0; i < sizeof(id.bytes); i++) {
        same.bytes[i] = 1;
        assert_false(message_id_equal(&id, &same));
        same.bytes[i] = 0;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slot_is_laid_out_as_the_page_says),
        cmocka_unit_test(a_word_holds_generation_and_state),
        cmocka_unit_test(only_reserved_and_live_slots_of_the_generation_are_readable),
        cmocka_unit_test(a_generation_that_no_word_can_hold_is_never_readable),
        cmocka_unit_test(the_first_look_wants_generation_state_hash_and_length),
        cmocka_unit_test(a_description_comes_out_as_it_went_in_and_the_owners_half_stays),
        cmocka_unit_test(copies_to_and_from_segments_are_exact_at_any_address_and_length),
        cmocka_unit_test(the_second_look_stands_a_promotion_and_nothing_else),
        cmocka_unit_test(keys_are_hashed_by_xxh3),
        cmocka_unit_test(every_byte_of_a_key_counts_at_any_length),
        cmocka_unit_test(hashes_and_ids_are_equal_in_all_their_bits_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

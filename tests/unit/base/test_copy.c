/* test_copy.c - copies and their sums are right in every way that this processor has, and touch nothing beside; what
 * was copied lately is known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/copy.h"
#include "base/copy_recent.h"
#include "base/copy_variants.h"
#include "base/crc32c.h"

#define LINE COPY_LINE
#define ROOM ((size_t)4 << 20)
#define UNTOUCHED 0xee

/* Both end where no more may be touched: the address sanitizer looks beyond. */
struct buffers {
    uint8_t *from;
    uint8_t *to;
};

static int set_up(void **state) {
    struct buffers *buffers = malloc(sizeof(*buffers));
    uint32_t seed = 7;

    assert_non_null(buffers);
    buffers->from = malloc(ROOM);
    buffers->to = malloc(ROOM);
    assert_non_null(buffers->from);
    assert_non_null(buffers->to);
    for (size_t i = 0; i < ROOM; i++) {
        seed = seed * 1664525 + 1013904223;
        buffers->from[i] = (uint8_t)(seed >> 24);
    }
    *state = buffers;
    return 0;
}

static int tear_down(void **state) {
    struct buffers *buffers = *state;

    free(buffers->from);
    free(buffers->to);
    free(buffers);
    return 0;
}

enum way { COPY, COPY_SUM, STREAM, SUM, STREAM_SUM, WAYS };

/* One copy that ends where the buffers end, or up to LINE bytes before; checked on all sides. */
static void check(const struct buffers *buffers, const struct copy_variant *variant, enum way way, size_t length,
                  size_t from_gap, size_t to_gap) {
    const uint8_t *from = buffers->from + ROOM - length - from_gap;
    uint8_t *to = buffers->to + ROOM - length - to_gap;
    uint32_t begun = way == COPY || way == STREAM ? 0 : (uint32_t)(length * 2654435761u);
    uint32_t sum = 0;

    memset(to - LINE, UNTOUCHED, length + to_gap + LINE);
    if (way == COPY)
        copy_bytes(to, from, length);
    else if (way == COPY_SUM)
        sum = copy_bytes_crc32c(begun, to, from, length);
    else if (way == STREAM)
        variant->stream(to, from, length);
    else if (way == SUM)
        sum = variant->sum(begun, to, from, length);
    else
        sum = variant->stream_sum(begun, to, from, length);
    assert_memory_equal(to, from, length);
    for (size_t i = 0; i < LINE; i++)
        assert_int_equal(to[-1 - (ptrdiff_t)i], UNTOUCHED);
    for (size_t i = 0; i < to_gap; i++)
        assert_int_equal(to[length + i], UNTOUCHED);
    if (way != COPY && way != STREAM)
        assert_int_equal(sum, crc32c_table(begun, from, length));
}

/* All variants of this processor, and the one of every processor. */
static size_t all_variants(const struct copy_variant *variants[COPY_VARIANTS_MAX + 1]) {
    size_t count = copy_x86_variants(variants);

    variants[count++] = &copy_portable;
    return count;
}

static void every_small_size_and_alignment_is_copied_and_summed(void **state) {
    (void)state;
    for (size_t length = 0; length <= 600; length++)
        for (size_t gap = 0; gap < LINE; gap += 7) {
            check(*state, NULL, COPY, length, gap, (gap * 5 + length) % LINE);
            check(*state, NULL, COPY_SUM, length, gap, (gap * 5 + length) % LINE);
        }
}

static void sizes_around_each_threshold_are_copied_and_summed(void **state) {
    static const size_t sizes[] = {
        COPY_SUM_LEAST, 4096, COPY_STREAM_LEAST, 262144, 262144 + COPY_STREAM_LEAST, 2 * 262144, 1048576, 3 << 20};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (size_t off = 0; off < 5; off++) {
            static const int around[] = {-65, -1, 0, 1, 63};
            size_t length = sizes[i] + (size_t)around[off];

            for (size_t again = 0; again < 2; again++) { /* cold, and as what was copied lately */
                check(*state, NULL, COPY, length, off * 3, off * 13);
                check(*state, NULL, COPY_SUM, length, off * 17, off);
            }
        }
}

static void each_variant_copies_and_sums_from_and_to_any_alignment(void **state) {
    const struct copy_variant *variants[COPY_VARIANTS_MAX + 1];
    size_t count = all_variants(variants);

    for (size_t v = 0; v < count; v++) {
        printf("# %s\n", variants[v]->name);
        for (enum way way = STREAM; way < WAYS; way++)
            for (size_t gap = 0; gap < LINE; gap++) {
                check(*state, variants[v], way, COPY_SUM_LEAST + gap * 11, gap, 0);
                check(*state, variants[v], way, COPY_SUM_LEAST + gap * 5, 0, gap);
                check(*state, variants[v], way, COPY_SUM_LEAST, gap, LINE - 1 - gap);
                check(*state, variants[v], way, COPY_STREAM_LEAST + gap, gap, gap * 29 % LINE);
            }
    }
}

static void each_variant_is_right_for_every_rest_of_a_block(void **state) {
    const struct copy_variant *variants[COPY_VARIANTS_MAX + 1];
    size_t count = all_variants(variants);

    for (size_t v = 0; v < count; v++)
        for (enum way way = STREAM; way < WAYS; way++)
            for (size_t length = COPY_SUM_LEAST; length <= COPY_SUM_LEAST + 600; length++)
                check(*state, variants[v], way, length, length % 3, length % 5);
}

static void a_sum_in_pieces_is_the_sum_of_the_whole(void **state) {
    struct buffers *buffers = *state;
    size_t length = 700000, cut = 300001;
    uint32_t sum = copy_bytes_crc32c(0, buffers->to, buffers->from, cut);

    sum = copy_bytes_crc32c(sum, buffers->to + cut, buffers->from + cut, length - cut);
    assert_int_equal(sum, crc32c_table(0, buffers->from, length));
}

/* ---- What was copied lately ---- */

#define KIB ((size_t)1024)
#define WINDOW (8192 * KIB)

/* Notes a buffer in pieces; returns how many of them were known. */
static size_t note(struct copy_recent *recent, uint64_t address, size_t length, size_t piece) {
    size_t known = 0;

    for (size_t at = 0; at < length; at += piece)
        known += copy_recent_note(recent, (void *)(uintptr_t)(address + at), piece, WINDOW);
    return known;
}

static void a_buffer_that_is_copied_to_again_and_again_is_known(void **state) {
    static const uint64_t addresses[] = {0x7f0000000000, 0x7f0000000040, 0x7f0000005001, 0x7f0000007fff};
    static struct copy_recent recent;

    (void)state;
    for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
        memset(&recent, 0, sizeof(recent));
        assert_int_equal(note(&recent, addresses[i], 1024 * KIB, 256 * KIB), 0);
        for (int round = 0; round < 100; round++)
            assert_int_equal(note(&recent, addresses[i], 1024 * KIB, 256 * KIB), 4);
        assert_int_equal(note(&recent, addresses[i], 1024 * KIB, 64 * KIB), 16); /* in whatever pieces */
    }
}

static void a_walk_is_never_known(void **state) {
    static const size_t pieces[] = {64 * KIB, 96 * KIB, 256 * KIB, 256 * KIB + 64};
    static struct copy_recent recent;

    (void)state;
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++)
        for (uint64_t offset = 0; offset < COPY_RECENT_BLOCK; offset += 4093) {
            memset(&recent, 0, sizeof(recent));
            for (int round = 0; round < 3; round++)
                assert_int_equal(note(&recent, 0x7f0000000000 + offset, pieces[i] * 300, pieces[i]), 0);
        }
}

static void a_buffer_is_forgotten_after_a_window_of_traffic(void **state) {
    static struct copy_recent recent;
    uint64_t buffer = 0x7f0000000000, other = 0x7fff00000000;

    (void)state;
    memset(&recent, 0, sizeof(recent));
    assert_int_equal(note(&recent, buffer, 256 * KIB, 256 * KIB), 0);
    (void)note(&recent, other + 256 * KIB, WINDOW / 2, 256 * KIB); /* each byte is read and written */
    assert_int_equal(note(&recent, buffer, 256 * KIB, 256 * KIB), 1);
    (void)note(&recent, other + 256 * KIB, WINDOW / 2 + 256 * KIB, 256 * KIB);
    assert_int_equal(note(&recent, buffer, 256 * KIB, 256 * KIB), 0);
}

static void the_clock_may_wrap_around(void **state) {
    static struct copy_recent recent;

    (void)state;
    memset(&recent, 0, sizeof(recent));
    recent.now = UINT32_MAX - 3;
    assert_int_equal(note(&recent, 0x7f0000000000, 1024 * KIB, 256 * KIB), 0);
    assert_int_equal(note(&recent, 0x7f0000000000, 1024 * KIB, 256 * KIB), 4);
}

static void the_window_is_within_what_the_table_can_tell(void **state) {
    (void)state;
    printf("# window: %zu KiB\n", copy_window() / KIB);
    assert_true(copy_window() < (size_t)1 << 40);
    assert_true(copy_window() == 0 || copy_window() >= 64 * KIB);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_small_size_and_alignment_is_copied_and_summed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sizes_around_each_threshold_are_copied_and_summed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_variant_copies_and_sums_from_and_to_any_alignment, set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_variant_is_right_for_every_rest_of_a_block, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_sum_in_pieces_is_the_sum_of_the_whole, set_up, tear_down),
        cmocka_unit_test(a_buffer_that_is_copied_to_again_and_again_is_known),
        cmocka_unit_test(a_walk_is_never_known),
        cmocka_unit_test(a_buffer_is_forgotten_after_a_window_of_traffic),
        cmocka_unit_test(the_clock_may_wrap_around),
        cmocka_unit_test(the_window_is_within_what_the_table_can_tell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

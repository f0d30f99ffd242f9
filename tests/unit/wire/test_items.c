/* test_items.c - lists come out as they went in, records may grow and nest, and nothing passes an end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "wire/endian.h"
#include "wire/frame.h"
#include "wire/items.h"

/* "one", nothing, "three" */
static const uint8_t list_bytes[] = {3, 0, 0, 0, 'o', 'n', 'e', 0, 0, 0, 0, 5, 0, 0, 0, 't', 'h', 'r', 'e', 'e'};

static const struct message_cancel some_cancel = {.sequence = 0x0102030405060708};

static struct message_bytes list_of(const uint8_t *bytes, size_t length) {
    return (struct message_bytes){.data = bytes, .length = (uint32_t)length};
}

static void assert_bytes(struct message_bytes bytes, const char *words) {
    assert_int_equal(bytes.length, strlen(words));
    if (bytes.length > 0)
        assert_memory_equal(bytes.data, words, bytes.length);
}

/* A copy with nothing behind it, so that the address sanitizer sees each byte that is read too much. */
static uint8_t *exact_copy(const uint8_t *bytes, size_t length) {
    uint8_t *copy = malloc(length > 0 ? length : 1);

    assert_non_null(copy);
    if (length > 0)
        memcpy(copy, bytes, length);
    return copy;
}

static void a_list_has_the_bytes_that_the_protocol_says(void **state) {
    struct items items;

    (void)state;
    items_init(&items);
    assert_true(items_append(&items, "one", 3));
    assert_true(items_append(&items, NULL, 0));
    assert_true(items_append(&items, "three", 5));
    assert_int_equal(items.count, 3);
    assert_int_equal(items_bytes(&items).length, sizeof(list_bytes));
    assert_memory_equal(items_bytes(&items).data, list_bytes, sizeof(list_bytes));
    items_clear(&items);
}

static void items_come_out_in_the_order_in_which_they_went_in(void **state) {
    struct message_bytes list = list_of(list_bytes, sizeof(list_bytes)), item;

    (void)state;
    assert_int_equal(items_count(list), 3);
    assert_int_equal(items_next(&list, &item), 1);
    assert_bytes(item, "one");
    assert_int_equal(items_next(&list, &item), 1);
    assert_bytes(item, "");
    assert_int_equal(items_next(&list, &item), 1);
    assert_bytes(item, "three");
    assert_int_equal(items_next(&list, &item), 0);
    assert_int_equal(items_next(&list, &item), 0);
    assert_bytes(item, "three"); /* untouched */
}

static void a_list_of_nothing_has_no_items(void **state) {
    struct message_bytes list = {0}, item;
    struct message_cancel cancel;
    struct items items;

    (void)state;
    assert_int_equal(items_next(&list, &item), 0);
    assert_int_equal(items_next_cancel(&list, &cancel), 0);
    assert_int_equal(items_count(list), 0);
    items_init(&items);
    assert_int_equal(items_bytes(&items).length, 0);
    items_clear(&items);
}

static void a_list_cut_between_items_is_shorter_and_one_cut_within_an_item_is_refused(void **state) {
    (void)state;
    for (size_t length = 0; length <= sizeof(list_bytes); length++) {
        uint8_t *bytes = exact_copy(list_bytes, length);
        int64_t count = items_count(list_of(bytes, length));

        if (length == 0 || length == 7 || length == 11 || length == sizeof(list_bytes))
            assert_int_equal(count, length == 0 ? 0 : length == 7 ? 1 : length == 11 ? 2 : 3);
        else
            assert_int_equal(count, MC_ERR_PROTOCOL);
        free(bytes);
    }
}

static void an_item_never_passes_the_end_of_the_list(void **state) {
    static const uint32_t lengths[] = {6, 7, 0x7fffffff, 0x80000000, UINT32_MAX - 4, UINT32_MAX - 3, UINT32_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        uint8_t *bytes = exact_copy(list_bytes, 4 + 5);
        struct message_bytes list = list_of(bytes, 4 + 5), item = {0};
        struct message_cancel cancel = some_cancel;

        endian_put32(bytes, lengths[i]);
        assert_int_equal(items_next(&list, &item), MC_ERR_PROTOCOL);
        assert_null(item.data);
        assert_int_equal(items_next_cancel(&list, &cancel), MC_ERR_PROTOCOL);
        assert_int_equal(cancel.sequence, some_cancel.sequence);
        assert_int_equal(items_count(list), MC_ERR_PROTOCOL);
        free(bytes);
    }
}

static void a_list_takes_what_a_message_takes_and_is_full_from_then_on(void **state) {
    struct items items;
    uint8_t *place;

    (void)state;
    items_init(&items);
    assert_true(items_append(&items, "one", 3));
    place = items_add(&items, FRAME_MESSAGE_MAX - 7 - 4);
    assert_non_null(place);
    memset(place, 'x', FRAME_MESSAGE_MAX - 7 - 4);
    assert_int_equal(items_bytes(&items).length, FRAME_MESSAGE_MAX);
    assert_false(items.full);
    assert_false(items_append(&items, NULL, 0));
    assert_true(items.full);
    assert_int_equal(items.count, 2);
    assert_int_equal(items_count(items_bytes(&items)), 2);
    items_clear(&items);
    assert_false(items.full);
    assert_true(items_append(&items, "one", 3));
    items_clear(&items);
}

static void a_full_list_keeps_what_it_has_and_takes_nothing_small_either(void **state) {
    struct items items;

    (void)state;
    items_init(&items);
    assert_true(items_append(&items, "one", 3));
    assert_null(items_add(&items, FRAME_MESSAGE_MAX - 7 - 4 + 1));
    assert_false(items_append(&items, "two", 3));
    assert_false(items_add_cancel(&items, &some_cancel));
    assert_int_equal(items.count, 1);
    assert_int_equal(items_bytes(&items).length, 7);
    items_clear(&items);
}

static void lengths_near_the_end_of_the_numbers_make_a_list_full(void **state) {
    static const uint32_t lengths[] = {FRAME_MESSAGE_MAX - 3, FRAME_MESSAGE_MAX, 0x7fffffff,     0x80000000,
                                       UINT32_MAX - 4,        UINT32_MAX - 3,    UINT32_MAX - 1, UINT32_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct items items;

        items_init(&items);
        assert_null(items_add(&items, lengths[i]));
        assert_true(items.full);
        assert_int_equal(items.length, 0);
        assert_int_equal(items.count, 0);
        items_clear(&items);
    }
}

static void a_record_larger_than_a_message_makes_a_list_full_before_it_is_read(void **state) {
    struct message_removal removal = {.key.length = UINT32_MAX};
    struct items items;

    (void)state;
    items_init(&items);
    assert_false(items_add_removal(&items, &removal));
    assert_true(items.full);
    items_clear(&items);
    removal.key.length = FRAME_MESSAGE_MAX - 12; /* fits alone, but for the length before it */
    assert_false(items_add_removal(&items, &removal));
    assert_true(items.full);
    items_clear(&items);
}

/* A publication of "key" to two places. */
static void add_publication(struct items *items) {
    struct message_place first = {.segment.bytes = "first segment..", .slot = 64, .generation = 7, .offset = 4096};
    struct message_place second = {.segment.bytes = "second segment.", .slot = 128, .generation = 8, .offset = 8192};
    struct message_publication publication = {
        .sequence = 5, .flags = PUBLISH_UPSERT, .length = 1000, .key = {.data = (const uint8_t *)"key", .length = 3}};
    struct items places;

    items_init(&places);
    assert_true(items_add_place(&places, &first));
    assert_true(items_add_place(&places, &second));
    publication.places = items_bytes(&places);
    assert_true(items_add_publication(items, &publication));
    items_clear(&places);
}

static void assert_publication(const struct message_publication *publication) {
    struct message_bytes places = publication->places;
    struct message_place place;

    assert_int_equal(publication->sequence, 5);
    assert_int_equal(publication->flags, PUBLISH_UPSERT);
    assert_int_equal(publication->length, 1000);
    assert_bytes(publication->key, "key");
    assert_int_equal(items_count(places), 2);
    assert_int_equal(items_next_place(&places, &place), 1);
    assert_memory_equal(place.segment.bytes, "first segment..", 16);
    assert_int_equal(place.slot, 64);
    assert_int_equal(items_next_place(&places, &place), 1);
    assert_memory_equal(place.segment.bytes, "second segment.", 16);
    assert_int_equal(place.generation, 8);
    assert_int_equal(place.offset, 8192);
    assert_int_equal(items_next_place(&places, &place), 0);
}

static void lists_nest_in_records_of_lists_in_messages(void **state) {
    struct message_publish publish = {.epoch = 3, .floor = 2}, out;
    struct message_publication publication;
    struct items items;
    uint8_t *body;
    int64_t size;

    (void)state;
    items_init(&items);
    for (size_t i = 0; i < 20; i++) /* more than the first piece of memory */
        add_publication(&items);
    publish.items = items_bytes(&items);
    size = message_pack_publish(&publish, NULL, 0);
    assert_true(size > 0);
    body = malloc((size_t)size);
    assert_non_null(body);
    assert_int_equal(message_pack_publish(&publish, body, (size_t)size), size);
    items_clear(&items);
    assert_int_equal(message_unpack_publish(body, (size_t)size, &out), MC_OK);
    assert_int_equal(items_count(out.items), 20);
    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(items_next_publication(&out.items, &publication), 1);
        assert_publication(&publication);
    }
    assert_int_equal(items_next_publication(&out.items, &publication), 0);
    free(body);
}

static void lists_are_read_at_any_address(void **state) {
    struct message_publication publication;
    struct items items;

    (void)state;
    items_init(&items);
    add_publication(&items);
    for (size_t shift = 0; shift < 8; shift++) {
        uint8_t *bytes = malloc(shift + items.length);
        struct message_bytes list = list_of(bytes + shift, items.length);

        assert_non_null(bytes);
        memcpy(bytes + shift, items.bytes, items.length);
        assert_int_equal(items_next_publication(&list, &publication), 1);
        assert_publication(&publication);
        free(bytes);
    }
    items_clear(&items);
}

static void records_of_another_version_are_cut_or_grown_at_their_own_end(void **state) {
    uint8_t longer[8 + 9];
    struct message_event event;
    struct message_bytes list;
    struct items items;

    (void)state;
    memset(longer, 0xff, sizeof(longer));
    endian_put32(longer, EVENT_KILLED);
    endian_put64(longer + 4, 64);
    items_init(&items);
    assert_true(items_append(&items, longer, 4));  /* of an older one */
    assert_true(items_append(&items, longer, 12)); /* the same */
    assert_true(items_append(&items, NULL, 0));
    assert_true(items_add_event(&items, &(struct message_event){.kind = EVENT_ORPHAN, .slot = 1, .generation = 2}));
    list = items_bytes(&items);
    assert_int_equal(items_next_event(&list, &event), 1);
    assert_int_equal(event.kind, EVENT_KILLED);
    assert_int_equal(event.slot, 0);
    assert_int_equal(items_next_event(&list, &event), 1);
    assert_int_equal(event.slot, 64);
    assert_int_equal(event.generation, 0);
    assert_int_equal(items_next_event(&list, &event), 1);
    assert_int_equal(event.kind, 0);
    assert_int_equal(items_next_event(&list, &event), 1);
    assert_int_equal(event.kind, EVENT_ORPHAN);
    assert_int_equal(event.generation, 2);
    items_clear(&items);

    assert_true(items_append(&items, longer, sizeof(longer))); /* a CANCEL of a newer one */
    assert_true(items_add_cancel(&items, &some_cancel));
    list = items_bytes(&items);
    struct message_cancel cancel;
    assert_int_equal(items_next_cancel(&list, &cancel), 1);
    assert_int_equal(items_next_cancel(&list, &cancel), 1);
    assert_int_equal(cancel.sequence, some_cancel.sequence);
    assert_int_equal(items_next_cancel(&list, &cancel), 0);
    items_clear(&items);
}

static void a_record_that_ends_within_a_field_is_refused(void **state) {
    (void)state;
    for (uint32_t length = 1; length < 8; length++) {
        static const uint8_t bytes[8] = {1, 2, 3, 4, 5, 6, 7, 8};
        struct message_cancel cancel = some_cancel;
        struct message_bytes list;
        struct items items;

        items_init(&items);
        assert_true(items_append(&items, bytes, length));
        list = items_bytes(&items);
        assert_int_equal(items_next_cancel(&list, &cancel), MC_ERR_PROTOCOL);
        assert_int_equal(cancel.sequence, some_cancel.sequence);
        items_clear(&items);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_has_the_bytes_that_the_protocol_says),
        cmocka_unit_test(items_come_out_in_the_order_in_which_they_went_in),
        cmocka_unit_test(a_list_of_nothing_has_no_items),
        cmocka_unit_test(a_list_cut_between_items_is_shorter_and_one_cut_within_an_item_is_refused),
        cmocka_unit_test(an_item_never_passes_the_end_of_the_list),
        cmocka_unit_test(a_list_takes_what_a_message_takes_and_is_full_from_then_on),
        cmocka_unit_test(a_full_list_keeps_what_it_has_and_takes_nothing_small_either),
        cmocka_unit_test(lengths_near_the_end_of_the_numbers_make_a_list_full),
        cmocka_unit_test(a_record_larger_than_a_message_makes_a_list_full_before_it_is_read),
        cmocka_unit_test(lists_nest_in_records_of_lists_in_messages),
        cmocka_unit_test(lists_are_read_at_any_address),
        cmocka_unit_test(records_of_another_version_are_cut_or_grown_at_their_own_end),
        cmocka_unit_test(a_record_that_ends_within_a_field_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

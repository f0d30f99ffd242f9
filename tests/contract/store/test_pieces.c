/* test_pieces.c - values in pieces of memory, and ranges of values. */
#include "store_contract.h"

enum { PIECES = 5, VALUE = 300000 };

/* A value and the pieces that it is cut into: of no bytes, of one, and of more than a slice, in that order. */
static const uint64_t lengths[PIECES] = {1, 0, 4095, 270000, 25904};

/* Pieces of these lengths, apart from each other in `room`, which has PIECES bytes more than they. */
static void scatter(struct mc_piece *pieces, uint8_t *room) {
    for (size_t i = 0; i < PIECES; i++) {
        pieces[i] = (struct mc_piece){.address = room, .length = lengths[i]};
        room += lengths[i] + 1;
    }
}

static void scatter_value(const struct mc_piece *pieces, const uint8_t *value) {
    for (size_t i = 0; i < PIECES; i++) {
        memcpy(pieces[i].address, value, pieces[i].length);
        value += pieces[i].length;
    }
}

static void assert_filled(const struct mc_piece *pieces, const uint8_t *value) {
    for (size_t i = 0; i < PIECES; i++) {
        assert_same(pieces[i].address, value, pieces[i].length);
        assert_int_equal(((uint8_t *)pieces[i].address)[pieces[i].length], '#'); /* nothing behind it was touched */
        value += pieces[i].length;
    }
}

static uint8_t *room_make(void) {
    uint8_t *room = malloc(VALUE + PIECES);

    assert_non_null(room);
    memset(room, '#', VALUE + PIECES);
    return room;
}

static struct mc_keys one_key(const char *key, uint32_t *length) {
    *length = (uint32_t)strlen(key);
    return (struct mc_keys){.bytes = key, .lengths = length, .count = 1};
}

static int32_t put_one(mc_store *store, const char *key, const struct mc_piece *pieces, uint32_t count) {
    int32_t status, item = 1;
    uint32_t length;
    struct mc_keys keys = one_key(key, &length);

    status = mc_store_put_pieces(store, &keys, pieces, &count, NULL, &item, contract_error());
    if (status != MC_ERR_TOO_LARGE && item != 1)
        assert_int_equal(status, item);
    return status;
}

static int64_t get_one(mc_store *store, const char *key, const struct mc_piece *pieces, uint32_t count,
                       uint32_t flags) {
    int64_t found = 0;
    uint32_t length;
    struct mc_keys keys = one_key(key, &length);
    int32_t status = mc_store_get_pieces(store, &keys, pieces, &count, flags, 0, &found, contract_error());

    return status != MC_OK ? status : found;
}

static void a_value_goes_from_pieces_to_others_and_stays_whole(void **state) {
    const struct cluster *cluster = *state;
    mc_store *other = cluster_join(cluster, 0, 0, NULL);
    uint8_t *value = malloc(VALUE), *back = malloc(VALUE), *from = room_make(), *to = room_make();
    struct mc_piece sources[PIECES], targets[PIECES];

    value_make(value, VALUE, 1, 1);
    scatter(sources, from);
    scatter(targets, to);
    scatter_value(sources, value);
    OK(put_one(cluster->store, "scattered", sources, PIECES));
    assert_int_equal(GET(other, "scattered", back, VALUE), VALUE);
    assert_same(back, value, VALUE);
    for (int round = 0; round < 2; round++) { /* by the master's word, and by the cache's */
        memset(to, '#', VALUE + PIECES);
        assert_int_equal(get_one(other, "scattered", targets, PIECES, 0), VALUE);
        assert_filled(targets, value);
    }
    free(value);
    free(back);
    free(from);
    free(to);
    OK(mc_store_close(other));
}

static void a_value_shorter_than_the_pieces_leaves_the_last_ones_alone(void **state) {
    const struct cluster *cluster = *state;
    uint8_t room[16];
    const struct mc_piece pieces[] = {{room, 4, 0}, {room + 4, 4, 0}, {room + 8, 4, 0}};

    OK(PUT(cluster->store, "short", "abcdef", 6));
    memset(room, '#', sizeof(room));
    assert_int_equal(get_one(cluster->store, "short", pieces, 3, 0), 6);
    assert_same(room, "abcdef##########", sizeof(room));
    IS(MC_ERR_BUFFER_TOO_SMALL, get_one(cluster->store, "short", pieces, 1, 0));
    OK(put_one(cluster->store, "empty", pieces, 0));
    assert_int_equal(SIZE(cluster->store, "empty"), 0);
    assert_int_equal(get_one(cluster->store, "empty", pieces, 2, 0), 0);
    IS(MC_ERR_ALREADY_EXISTS, put_one(cluster->store, "empty", pieces, 2));
}

static void ranges_of_a_value_come_in_any_order(void **state) {
    const struct cluster *cluster = *state;
    mc_store *other = cluster_join(cluster, 0, 0, NULL);
    uint8_t *value = malloc(VALUE), *to = malloc(VALUE);
    const struct mc_piece ranges[] = {
        {to, 1000, VALUE - 1000}, {to + 1000, 7, 0}, {to + 1007, 0, VALUE}, {to + 2000, 200000, 333}};

    value_make(value, VALUE, 2, 1);
    OK(PUT(cluster->store, "ranged", value, VALUE));
    for (int round = 0; round < 2; round++) {
        memset(to, '#', VALUE);
        assert_int_equal(get_one(other, "ranged", ranges, 4, MC_GET_RANGES), 201007);
        assert_same(to, value + VALUE - 1000, 1000);
        assert_same(to + 1000, value, 7);
        assert_int_equal(to[1007], '#');
        assert_same(to + 2000, value + 333, 200000);
    }
    assert_int_equal(get_one(other, "ranged", ranges, 0, MC_GET_RANGES), 0);
    IS(MC_ERR_NOT_FOUND, get_one(other, "nowhere", ranges, 4, MC_GET_RANGES));
    free(value);
    free(to);
    OK(mc_store_close(other));
}

static void a_range_beyond_the_end_is_refused_by_the_value_that_is_there(void **state) {
    const struct cluster *cluster = *state;
    mc_store *other = cluster_join(cluster, 0, 0, NULL);
    uint8_t room[64];
    const struct mc_piece late = {room, 8, 93}, far = {room, 1, UINT64_MAX}, long_one = {room, 8, 92};
    const struct mc_piece wide = {room, UINT64_MAX - (uint64_t)(uintptr_t)room, 1};
    uint8_t value[2000] = {0};

    OK(UPSERT(cluster->store, "grows", value, 100));
    assert_int_equal(get_one(other, "grows", &long_one, 1, MC_GET_RANGES), 8);
    for (int round = 0; round < 2; round++) {
        IS(MC_ERR_INVALID_ARGUMENT, get_one(other, "grows", &late, 1, MC_GET_RANGES));
        IS(MC_ERR_INVALID_ARGUMENT, get_one(other, "grows", &far, 1, MC_GET_RANGES));
        IS(MC_ERR_INVALID_ARGUMENT, get_one(other, "grows", &wide, 1, MC_GET_RANGES));
    }
    memset(value, '!', sizeof(value));
    OK(UPSERT(cluster->store, "grows", value, sizeof(value))); /* `other` has the old location in its cache */
    assert_int_equal(get_one(other, "grows", &late, 1, MC_GET_RANGES), 8);
    assert_same(room, "!!!!!!!!", 8);
    OK(mc_store_close(other));
}

static void each_object_of_a_batch_has_pieces_of_its_own(void **state) {
    const struct cluster *cluster = *state;
    enum { COUNT = 100 };
    struct mc_keys keys = keys_make("pieced", COUNT);
    struct mc_piece pieces[COUNT * 3];
    uint32_t counts[COUNT];
    int32_t statuses[COUNT];
    int64_t found[COUNT];
    uint8_t values[COUNT * 3], room[COUNT * 3];
    size_t total = 0;

    for (size_t i = 0; i < COUNT * 3; i++)
        values[i] = (uint8_t)(i * 7);
    for (size_t i = 0; i < COUNT; i++) {
        counts[i] = (uint32_t)(i % 4);
        for (uint32_t k = 0; k < counts[i]; k++, total++)
            pieces[total] = (struct mc_piece){.address = values + total, .length = 1};
    }
    pieces[0].address = NULL; /* item 1's only one */
    IS(MC_ERR_INVALID_ARGUMENT,
       mc_store_put_pieces(cluster->store, &keys, pieces, counts, NULL, statuses, contract_error()));
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(statuses[i], i == 1 ? MC_ERR_INVALID_ARGUMENT : MC_OK);
    for (size_t i = 0; i < total; i++)
        pieces[i].address = room + i;
    memset(room, 0, sizeof(room));
    IS(MC_ERR_NOT_FOUND, mc_store_get_pieces(cluster->store, &keys, pieces, counts, 0, 0, found, contract_error()));
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(found[i], i == 1 ? MC_ERR_NOT_FOUND : (int64_t)counts[i]);
    assert_same(room + 1, values + 1, total - 1);
    keys_free(&keys);
}

static void pieces_that_are_none_are_refused(void **state) {
    const struct cluster *cluster = *state;
    uint8_t byte = 0;
    const struct mc_piece piece = {&byte, 1, 0}, wraps = {&byte, UINT64_MAX, 0};
    const struct mc_piece halves[] = {{&byte, UINT64_MAX / 2, 0}, {&byte, UINT64_MAX / 2, 0}, {&byte, 2, 0}};
    uint32_t length, count = 1, too_many = MC_STORE_PIECES_MAX + 1;
    struct mc_keys keys = one_key("refused", &length);
    int32_t status;
    int64_t found;

    IS(MC_ERR_INVALID_ARGUMENT, put_one(cluster->store, "refused", NULL, 1));
    IS(MC_ERR_INVALID_ARGUMENT, put_one(cluster->store, "refused", &wraps, 1));
    IS(MC_ERR_INVALID_ARGUMENT, put_one(cluster->store, "refused", halves, 3));
    IS(MC_ERR_TOO_LARGE, put_one(cluster->store, "refused", &piece, too_many));
    IS(MC_ERR_INVALID_ARGUMENT,
       mc_store_put_pieces(cluster->store, &keys, &piece, NULL, NULL, &status, contract_error()));
    IS(MC_ERR_INVALID_ARGUMENT,
       mc_store_put_pieces(cluster->store, &keys, &piece, &count, NULL, NULL, contract_error()));
    IS(MC_ERR_INVALID_ARGUMENT,
       mc_store_get_pieces(cluster->store, &keys, &piece, &count, 2, 0, &found, contract_error()));
    IS(MC_ERR_NOT_FOUND, GET(cluster->store, "refused", &byte, 1));
}

static void pieces_and_ranges_are_submitted_too(void **state) {
    const struct cluster *cluster = *state;
    uint8_t room[8] = {0};
    const struct mc_piece sources[] = {{(void *)(uintptr_t) "left", 4, 0}, {(void *)(uintptr_t) "right", 5, 0}};
    const struct mc_piece range = {room, 3, 3};
    uint32_t length, put_count = 2, get_count = 1;
    struct mc_store_operation operation = {.struct_size = sizeof(operation), .kind = MC_STORE_PUT};
    struct mc_completion completion;
    mc_queue *queue;
    int32_t status;
    int64_t found;
    uint64_t id;

    OK(mc_queue_open(&queue, contract_error()));
    operation.keys = one_key("submitted", &length);
    operation.pieces = sources;
    operation.piece_counts = &put_count;
    operation.statuses = &status;
    operation.flags = MC_GET_RANGES;
    IS(MC_ERR_INVALID_ARGUMENT, mc_store_submit(cluster->store, &operation, queue, 0, &id, contract_error()));
    operation.flags = 0;
    OK(mc_store_submit(cluster->store, &operation, queue, 0, &id, contract_error()));
    assert_int_equal(mc_queue_reap(queue, &completion, 1, sizeof(completion), 20 * SECOND), 1);
    OK(completion.status);
    OK(mc_operation_free(id));
    operation.kind = MC_STORE_GET;
    operation.pieces = &range;
    operation.piece_counts = &get_count;
    operation.found = &found;
    operation.flags = MC_GET_RANGES;
    OK(mc_store_submit(cluster->store, &operation, queue, 0, &id, contract_error()));
    assert_int_equal(mc_queue_reap(queue, &completion, 1, sizeof(completion), 20 * SECOND), 1);
    OK(completion.status);
    assert_int_equal(found, 3);
    assert_same(room, "tri", 3);
    OK(mc_operation_free(id));
    OK(mc_queue_close(queue));
}

static const struct CMUnitTest tests[] = {
    STORE_TEST(a_value_goes_from_pieces_to_others_and_stays_whole),
    STORE_TEST(a_value_shorter_than_the_pieces_leaves_the_last_ones_alone),
    STORE_TEST(ranges_of_a_value_come_in_any_order),
    STORE_TEST(a_range_beyond_the_end_is_refused_by_the_value_that_is_there),
    STORE_TEST(each_object_of_a_batch_has_pieces_of_its_own),
    STORE_TEST(pieces_that_are_none_are_refused),
    STORE_TEST(pieces_and_ranges_are_submitted_too),
};

CONTRACT_PART(store_pieces, tests);

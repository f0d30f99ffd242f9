/* test_puts.c - puts in steps: begun, written by parts, ended or revoked. */
#include "store_contract.h"

enum { VALUE = 100000, COUNT = 3 };

/* Puts of COUNT objects "step-0" and so on, and their values. */
struct steps {
    mc_store *store;
    struct mc_keys keys;
    uint64_t puts[COUNT], lengths[COUNT];
    int32_t statuses[COUNT];
    int64_t written[COUNT];
    uint8_t *values[COUNT];
};

static void steps_make(struct steps *steps, mc_store *store, uint64_t length) {
    *steps = (struct steps){.store = store, .keys = keys_make("step", COUNT)};
    for (uint32_t i = 0; i < COUNT; i++) {
        steps->lengths[i] = length;
        steps->values[i] = malloc(length + 1);
        assert_non_null(steps->values[i]);
        value_make(steps->values[i], length, i, 1);
    }
}

static void steps_free(struct steps *steps) {
    keys_free(&steps->keys);
    for (size_t i = 0; i < COUNT; i++)
        free(steps->values[i]);
}

static int32_t begin(struct steps *steps, uint32_t flags) {
    const struct mc_put_options options = {.struct_size = sizeof(options), .flags = flags};

    return mc_store_put_begin(steps->store, &steps->keys, steps->lengths, &options, steps->puts, steps->statuses,
                              contract_error());
}

/* The bytes from `offset` on of each value. */
static int32_t write_all(struct steps *steps, uint64_t offset, uint64_t length) {
    static const uint32_t counts[COUNT] = {1, 1, 1};
    struct mc_piece pieces[COUNT];

    for (size_t i = 0; i < COUNT; i++)
        pieces[i] = (struct mc_piece){.address = steps->values[i] + offset, .length = length, .offset = offset};
    return mc_store_put_write(steps->store, steps->puts, COUNT, pieces, counts, 0, steps->written, contract_error());
}

static int64_t write_one(mc_store *store, uint64_t put, const struct mc_piece *pieces, uint32_t count) {
    int64_t written = 0;
    int32_t status = mc_store_put_write(store, &put, 1, pieces, &count, 0, &written, contract_error());

    return status != MC_OK ? status : written;
}

static int32_t end(struct steps *steps) {
    return mc_store_put_end(steps->store, steps->puts, COUNT, 0, steps->statuses, contract_error());
}

static int32_t revoke_all(struct steps *steps) {
    return mc_store_put_revoke(steps->store, steps->puts, COUNT, steps->statuses, contract_error());
}

static void expect_values(mc_store *store, const struct steps *steps) {
    uint8_t *back = malloc(VALUE);
    char key[16];

    for (size_t i = 0; i < COUNT; i++) {
        snprintf(key, sizeof(key), "step-%zu", i);
        memset(back, '#', VALUE);
        assert_int_equal(GET(store, key, back, VALUE), steps->lengths[i]);
        assert_same(back, steps->values[i], steps->lengths[i]);
    }
    free(back);
}

static void values_written_layer_by_layer_are_there_when_they_are_ended(void **state) {
    const struct cluster *cluster = *state;
    mc_store *other = cluster_join(cluster, MC_STORE_VERIFY, 0, NULL);
    static const uint64_t layers[] = {40000, 0, 99999, 20000, 60000, 80000, 100000}; /* in this order, up to … */
    struct steps steps;

    steps_make(&steps, cluster->store, VALUE);
    OK(begin(&steps, 0));
    for (size_t i = 0; i + 1 < sizeof(layers) / sizeof(layers[0]); i++) {
        uint64_t length = layers[i] == 99999 ? 1 : layers[i] == 80000 ? 19999 : 20000;

        assert_int_equal(EXISTS(other, "step-1"), 0);
        OK(write_all(&steps, layers[i], length));
        for (size_t k = 0; k < COUNT; k++)
            assert_int_equal(steps.written[k], length);
    }
    OK(end(&steps));
    expect_values(other, &steps); /* and their checksums fit */
    expect_values(cluster->store, &steps);
    IS(MC_ERR_INVALID_HANDLE, end(&steps));
    IS(MC_ERR_INVALID_HANDLE, write_all(&steps, 0, 1));
    steps_free(&steps);
    OK(mc_store_close(other));
}

static void missing_and_repeated_bytes_are_told_and_can_be_mended(void **state) {
    const struct cluster *cluster = *state;
    struct steps steps;
    struct mc_error error = MC_ERROR_INIT;

    steps_make(&steps, cluster->store, VALUE);
    OK(begin(&steps, 0));
    OK(write_all(&steps, 10, 20));
    IS(MC_ERR_INVALID_ARGUMENT, end(&steps)); /* the beginning and the end are missing */
    IS(MC_ERR_INVALID_ARGUMENT, mc_store_put_end(steps.store, steps.puts, COUNT, 0, steps.statuses, &error));
    assert_non_null(strstr(error.message, "not all bytes"));
    IS(MC_ERR_INVALID_ARGUMENT, write_all(&steps, 0, 11));  /* over the first byte that is there */
    IS(MC_ERR_INVALID_ARGUMENT, write_all(&steps, 29, 11)); /* over the last one */
    IS(MC_ERR_INVALID_ARGUMENT, write_all(&steps, 15, 2));
    IS(MC_ERR_INVALID_ARGUMENT, write_all(&steps, 5, 100));
    IS(MC_ERR_INVALID_ARGUMENT, write_all(&steps, 10, 20));
    OK(write_all(&steps, 15, 0));
    OK(write_all(&steps, 0, 10));
    IS(MC_ERR_INVALID_ARGUMENT, end(&steps));
    OK(write_all(&steps, 30, VALUE - 30));
    OK(end(&steps));
    expect_values(cluster->store, &steps);
    steps_free(&steps);
}

static void parts_beyond_the_end_or_of_no_memory_leave_the_put_as_it_was(void **state) {
    const struct cluster *cluster = *state;
    struct steps steps;

    steps_make(&steps, cluster->store, VALUE);
    OK(begin(&steps, 0));
    const struct mc_piece bad[][2] = {
        {{steps.values[0], 1, 0}, {steps.values[0], 1, VALUE}},
        {{steps.values[0], 1, 0}, {steps.values[0], VALUE, 1}},
        {{steps.values[0], 1, 0}, {steps.values[0], 1, UINT64_MAX}},
        {{steps.values[0], 1, 0}, {steps.values[0], UINT64_MAX, 1}},
        {{steps.values[0], 1, 0}, {NULL, 1, 1}},
        {{steps.values[0], 2, 0}, {steps.values[0], 2, 1}},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        IS(MC_ERR_INVALID_ARGUMENT, (int32_t)write_one(steps.store, steps.puts[0], bad[i], 2));
    OK(write_all(&steps, 0, VALUE)); /* nothing of them counts */
    OK(end(&steps));
    expect_values(cluster->store, &steps);
    steps_free(&steps);
}

static void a_key_that_is_there_is_told_at_the_beginning_and_one_that_came_at_the_end(void **state) {
    const struct cluster *cluster = *state;
    struct steps steps;

    steps_make(&steps, cluster->store, VALUE);
    OK(PUT(cluster->store, "step-1", "first", 5));
    IS(MC_ERR_ALREADY_EXISTS, begin(&steps, 0));
    assert_int_equal(steps.statuses[0], MC_OK);
    assert_int_equal(steps.statuses[1], MC_ERR_ALREADY_EXISTS);
    assert_int_equal(steps.statuses[2], MC_OK);
    OK(PUT(cluster->store, "step-2", "sooner", 6));
    IS(MC_ERR_INVALID_HANDLE, write_all(&steps, 0, VALUE)); /* the one that wasn't begun */
    assert_int_equal(steps.written[0], VALUE);
    assert_int_equal(steps.written[2], VALUE);
    IS(MC_ERR_INVALID_HANDLE, end(&steps));
    OK(steps.statuses[0]);
    assert_int_equal(steps.statuses[2], MC_ERR_ALREADY_EXISTS);
    assert_int_equal(SIZE(cluster->store, "step-1"), 5);
    assert_int_equal(SIZE(cluster->store, "step-2"), 6);
    cluster_await_live(cluster, 3);
    steps_free(&steps);
}

static void an_upsert_in_steps_takes_the_place_of_what_is_there(void **state) {
    const struct cluster *cluster = *state;
    mc_store *other = cluster_join(cluster, 0, 0, NULL);
    struct steps steps;

    steps_make(&steps, cluster->store, VALUE);
    OK(PUT(cluster->store, "step-0", "old", 3));
    OK(begin(&steps, MC_PUT_UPSERT));
    OK(write_all(&steps, 0, VALUE));
    assert_int_equal(SIZE(other, "step-0"), 3);
    OK(end(&steps));
    expect_values(other, &steps);
    steps_free(&steps);
    OK(mc_store_close(other));
}

static void what_is_revoked_or_closed_gives_its_room_back(void **state) {
    struct cluster *cluster = cluster_open(8 * MIB);
    mc_store *other = cluster_join(cluster, 0, 0, NULL);
    struct steps steps;

    (void)state;
    for (int round = 0; round < 5; round++) { /* 6 of the 8 MiB each time */
        steps_make(&steps, other, 2 * MIB - 65536);
        OK(begin(&steps, 0));
        OK(write_all(&steps, 0, 1000));
        if (round == 4)
            break;
        OK(revoke_all(&steps));
        IS(MC_ERR_INVALID_HANDLE, revoke_all(&steps));
        IS(MC_ERR_INVALID_HANDLE, write_all(&steps, 1000, 1));
        IS(MC_ERR_INVALID_HANDLE, end(&steps));
        steps_free(&steps);
    }
    OK(mc_store_close(other));
    steps_free(&steps);
    steps_make(&steps, cluster->store, 2 * MIB - 65536);
    OK(begin(&steps, 0));
    OK(write_all(&steps, 0, 2 * MIB - 65536));
    OK(end(&steps));
    steps_free(&steps);
    cluster_close(cluster);
}

static void values_of_no_bytes_and_bad_arguments(void **state) {
    const struct cluster *cluster = *state;
    mc_store *other = cluster_join(cluster, 0, 0, NULL);
    struct steps steps;
    uint8_t byte = 0;

    steps_make(&steps, cluster->store, 0);
    ((uint32_t *)(uintptr_t)steps.keys.lengths)[2] = 0;
    IS(MC_ERR_INVALID_KEY, begin(&steps, 0));
    steps.statuses[2] = 0;
    IS(MC_ERR_INVALID_HANDLE,
       mc_store_put_end(other, steps.puts, 2, 0, steps.statuses, contract_error())); /* of another store */
    IS(MC_ERR_INVALID_ARGUMENT, mc_store_put_end(steps.store, NULL, 1, 0, steps.statuses, contract_error()));
    IS(MC_ERR_INVALID_ARGUMENT, mc_store_put_end(steps.store, steps.puts, 0, 0, steps.statuses, contract_error()));
    IS(MC_ERR_INVALID_ARGUMENT, mc_store_put_revoke(steps.store, steps.puts, 1, NULL, contract_error()));
    IS(MC_ERR_INVALID_ARGUMENT, (int32_t)write_one(steps.store, steps.puts[0], NULL, 1));
    OK(mc_store_put_end(steps.store, steps.puts, 2, 0, steps.statuses, contract_error()));
    assert_int_equal(GET(other, "step-0", &byte, 1), 0);
    assert_int_equal(SIZE(other, "step-1"), 0);
    steps_free(&steps);
    OK(mc_store_close(other));
}

/* Threads that write a put's parts each on its own, and one that tries to end it meanwhile. */
struct racer {
    struct steps *steps;
    uint64_t first, step;
};

static void *race_to_write(void *argument) {
    const struct racer *racer = argument;

    for (uint64_t offset = racer->first; offset < VALUE; offset += racer->step) {
        const struct mc_piece piece = {racer->steps->values[0] + offset, 1000, offset};

        assert_int_equal(write_one(racer->steps->store, racer->steps->puts[0], &piece, 1), 1000);
    }
    return NULL;
}

static void parts_of_one_put_are_written_by_several_threads(void **state) {
    const struct cluster *cluster = *state;
    struct steps steps;
    struct racer racers[4];
    pthread_t threads[4];
    int32_t status;

    steps_make(&steps, cluster->store, VALUE);
    OK(begin(&steps, 0));
    for (uint64_t i = 0; i < 4; i++) {
        racers[i] = (struct racer){.steps = &steps, .first = i * 1000, .step = 4000};
        assert_int_equal(pthread_create(&threads[i], NULL, race_to_write, &racers[i]), 0);
    }
    do
        status = mc_store_put_end(steps.store, steps.puts, 1, 0, steps.statuses, NULL);
    while (status == MC_ERR_BUSY || status == MC_ERR_INVALID_ARGUMENT);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    OK(status);
    steps.puts[0] = steps.puts[1];
    IS(MC_ERR_INVALID_ARGUMENT, end(&steps));
    assert_true(steps.statuses[1] == MC_ERR_INVALID_ARGUMENT);
    {
        uint8_t *back = malloc(VALUE);

        assert_int_equal(GET(cluster->store, "step-0", back, VALUE), VALUE);
        assert_same(back, steps.values[0], VALUE);
        free(back);
    }
    steps.puts[0] = 0;
    IS(MC_ERR_INVALID_HANDLE, revoke_all(&steps));
    steps_free(&steps);
}

static const struct CMUnitTest tests[] = {
    STORE_TEST(values_written_layer_by_layer_are_there_when_they_are_ended),
    STORE_TEST(missing_and_repeated_bytes_are_told_and_can_be_mended),
    STORE_TEST(parts_beyond_the_end_or_of_no_memory_leave_the_put_as_it_was),
    STORE_TEST(a_key_that_is_there_is_told_at_the_beginning_and_one_that_came_at_the_end),
    STORE_TEST(an_upsert_in_steps_takes_the_place_of_what_is_there),
    STORE_TEST(what_is_revoked_or_closed_gives_its_room_back),
    STORE_TEST(values_of_no_bytes_and_bad_arguments),
    STORE_TEST(parts_of_one_put_are_written_by_several_threads),
};

CONTRACT_PART(store_puts, tests);

/* test_arguments.c - what is wrong is refused with words, changes nothing, and leaves the outputs alone. */
#include "store_contract.h"

/* The call is refused with that status and with words. */
#define REFUSES(wanted, call)                          \
    do {                                               \
        struct mc_error *error = contract_error();     \
                                                       \
        IS(wanted, call);                              \
        assert_int_equal(error->code, wanted);         \
        assert_int_not_equal(error->message[0], '\0'); \
    } while (0)
#define WRONG(call) REFUSES(MC_ERR_INVALID_ARGUMENT, call)

static void store_options_are_checked(void **state) {
    const struct cluster *cluster = *state;
    struct {
        struct mc_store_options known;
        uint64_t unknown;
    } wide = {.known = {.struct_size = sizeof(wide), .master = cluster->address}};
    struct mc_store_options options = {.struct_size = sizeof(options), .master = cluster->address};
    struct mc_engine_options engine = {.struct_size = sizeof(engine), .flags = 1u << 31};
    char name[MC_SEGMENT_NAME_MAX + 1];
    mc_store *store = NULL;

    WRONG(mc_store_open(&options, NULL, error));
    OK(mc_store_open(&wide.known, &store, contract_error())); /* of a later version, with nothing new in it */
    OK(mc_store_close(store));
    store = NULL;
    wide.unknown = 1;
    WRONG(mc_store_open(&wide.known, &store, error));
    for (uint32_t size = 0; size < sizeof(options); size += 8) {
        options.struct_size = size;
        WRONG(mc_store_open(&options, &store, error));
    }
    options.struct_size = sizeof(options);
    for (uint32_t bit = 3; bit < 32; bit++) {
        options.flags = 1u << bit;
        WRONG(mc_store_open(&options, &store, error));
    }
    options.flags = 0;
    options.segment_size = 65535;
    WRONG(mc_store_open(&options, &store, error));
    options.segment_size = 1;
    WRONG(mc_store_open(&options, &store, error));
    options.segment_size = UINT64_MAX;
    assert_true(mc_store_open(&options, &store, contract_error()) < 0);
    options.segment_size = (uint64_t)INT64_MAX;
    assert_true(mc_store_open(&options, &store, contract_error()) < 0);
    options.segment_size = 65536;
    memset(name, 'n', sizeof(name));
    name[MC_SEGMENT_NAME_MAX] = '\0';
    options.name = name;
    WRONG(mc_store_open(&options, &store, error));
    name[MC_SEGMENT_NAME_MAX - 1] = '\0';
    OK(mc_store_open(&options, &store, contract_error()));
    OK(mc_store_close(store));
    store = NULL;
    options.segment_size = 0;
    options.engine_options = &engine;
    WRONG(mc_store_open(&options, &store, error));
    assert_null(store);
}

static void a_master_that_is_not_there_is_reported_in_time(void **state) {
    static const char *const wrong[] = {"127.0.0.1:1", "nohost", "1.2.3.4:99999", "127.0.0.1", ":", "[::1:5"};
    struct mc_store_options options = {.struct_size = sizeof(options)};
    mc_store *store = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct mc_error *error = contract_error();
        uint64_t begin = now_ns();
        int32_t status;

        options.master = wrong[i];
        status = mc_store_open(&options, &store, error);
        assert_true(status == MC_ERR_UNREACHABLE || status == MC_ERR_ADDRESS || status == MC_ERR_NAME_NOT_FOUND);
        assert_int_equal(error->code, status);
        assert_true(now_ns() - begin < 10 * SECOND);
    }
    assert_null(store);
}

static void an_engine_has_one_store_and_outlives_it(void **state) {
    const struct cluster *cluster = *state;
    const struct mc_engine_options engine_options = {.struct_size = sizeof(engine_options)};
    struct mc_store_options options = {.struct_size = sizeof(options), .master = cluster->address};
    mc_store *store, *second = NULL;
    char got[8], address[ADDRESS_TEXT], engines[ADDRESS_TEXT];
    mc_engine *engine = contract_engine();
    uint64_t view;
    const void *data;

    options.engine = engine;
    OK(mc_store_open(&options, &store, contract_error()));
    REFUSES(MC_ERR_BUSY, mc_store_open(&options, &second, error));
    IS(MC_ERR_BUSY, mc_engine_close(engine));
    assert_true(mc_store_address(store, address, sizeof(address)) > 0);
    contract_address(engine, engines);
    assert_string_equal(address, engines);
    OK(PUT(store, "shared", "value", 5));
    IS(5, GET(store, "shared", got, sizeof(got)));
    IS(5, VIEW(store, "shared", &view, &data));
    OK(mc_store_close(store));
    IS(MC_ERR_BUSY, mc_engine_close(engine)); /* a view is of its memory */
    assert_memory_equal(data, "value", 5);
    OK(mc_view_release(view));
    OK(mc_store_open(&options, &store, contract_error())); /* another one, after the first */
    IS(5, GET(store, "shared", got, sizeof(got)));
    OK(mc_store_close(store));
    OK(mc_engine_close(engine));
    options.engine_options = &engine_options;
    options.engine = contract_engine();
    WRONG(mc_store_open(&options, &second, error));
    OK(mc_engine_close(options.engine));
    options.engine_options = NULL;
    REFUSES(MC_ERR_INVALID_HANDLE, mc_store_open(&options, &second, error));
    options.engine = (mc_engine *)cluster->store;
    REFUSES(MC_ERR_INVALID_HANDLE, mc_store_open(&options, &second, error));
    assert_null(second);
}

static void put_options_are_checked(void **state) {
    mc_store *store = ((const struct cluster *)*state)->store;
    struct {
        struct mc_put_options known;
        uint64_t unknown;
    } wide = {.known = {.struct_size = sizeof(wide)}, .unknown = 1};
    struct mc_put_options options = {.struct_size = sizeof(options)};
    const char *names[] = {"pool", NULL};

    WRONG(mc_store_put(store, TEXT("k"), "v", 1, &wide.known, error));
    wide.unknown = 0;
    for (uint32_t size = 0; size < sizeof(options); size += 8) {
        options.struct_size = size;
        WRONG(mc_store_put(store, TEXT("k"), "v", 1, &options, error));
    }
    options.struct_size = sizeof(options);
    for (uint32_t bit = 3; bit < 32; bit++) {
        options.flags = 1u << bit;
        WRONG(mc_store_put(store, TEXT("k"), "v", 1, &options, error));
        WRONG(mc_store_upsert(store, TEXT("k"), "v", 1, &options, error));
    }
    options.flags = 0;
    options.replicas = MC_REPLICAS_MAX + 1;
    WRONG(mc_store_put(store, TEXT("k"), "v", 1, &options, error));
    options.replicas = UINT32_MAX;
    WRONG(mc_store_put(store, TEXT("k"), "v", 1, &options, error));
    options.replicas = 0;
    options.preferred_count = 1;
    WRONG(mc_store_put(store, TEXT("k"), "v", 1, &options, error));
    options.preferred = names;
    options.preferred_count = 2;
    WRONG(mc_store_put(store, TEXT("k"), "v", 1, &options, error));
    IS(0, EXISTS(store, "k"));
    options.preferred_count = 1;
    OK(mc_store_put(store, TEXT("k"), "v", 1, &options, contract_error()));
    OK(mc_store_upsert(store, TEXT("k"), "v", 1, &wide.known, contract_error()));
}

static void memory_that_is_none_is_refused(void **state) {
    mc_store *store = ((const struct cluster *)*state)->store;
    void *near_end = (void *)(UINTPTR_MAX - 10);
    uint64_t view = 42;
    const void *data = NULL;

    WRONG(mc_store_put(store, TEXT("k"), NULL, 1, NULL, error));
    WRONG(mc_store_put(store, TEXT("k"), NULL, UINT64_MAX, NULL, error));
    WRONG(mc_store_put(store, TEXT("k"), near_end, 100, NULL, error));
    WRONG(mc_store_upsert(store, TEXT("k"), near_end, UINT64_MAX, NULL, error));
    WRONG((int32_t)mc_store_get(store, TEXT("k"), NULL, 1, 0, error));
    WRONG((int32_t)mc_store_get(store, TEXT("k"), near_end, 100, 0, error));
    WRONG((int32_t)mc_store_view(store, TEXT("k"), 0, NULL, &data, error));
    WRONG((int32_t)mc_store_view(store, TEXT("k"), 0, &view, NULL, error));
    IS(0, EXISTS(store, "k"));
    assert_true(view == 42 && data == NULL);
}

static void batches_are_checked(void **state) {
    mc_store *store = ((const struct cluster *)*state)->store;
    static const uint32_t lengths[2] = {1, 1};
    const struct mc_keys wrong[] = {
        {"ab", lengths, 0}, {"ab", lengths, MC_STORE_BATCH_MAX + 1}, {"ab", lengths, SIZE_MAX}, {"ab", NULL, 2},
        {NULL, lengths, 2},
    };
    const struct mc_keys keys = {"ab", lengths, 2};
    const void *values[2] = {"v", "v"};
    char buffers[2][8];
    void *targets[2] = {buffers[0], buffers[1]};
    const uint64_t sizes[2] = {1, 1};
    int32_t statuses[2];
    int64_t found[2];
    uint64_t views[2];
    const void *data[2];

    for (size_t i = 0; i <= sizeof(wrong) / sizeof(wrong[0]); i++) {
        const struct mc_keys *given = i < sizeof(wrong) / sizeof(wrong[0]) ? &wrong[i] : NULL;

        WRONG(mc_store_put_batch(store, given, values, sizes, NULL, statuses, error));
        WRONG(mc_store_get_batch(store, given, targets, sizes, 0, found, error));
        WRONG(mc_store_view_batch(store, given, 0, views, data, found, error));
        WRONG(mc_store_size_batch(store, given, 0, found, error));
        WRONG(mc_store_exists_batch(store, given, 0, statuses, error));
        WRONG(mc_store_remove_batch(store, given, 0, statuses, error));
    }
    WRONG(mc_store_put_batch(store, &keys, NULL, sizes, NULL, statuses, error));
    WRONG(mc_store_put_batch(store, &keys, values, NULL, NULL, statuses, error));
    WRONG(mc_store_put_batch(store, &keys, values, sizes, NULL, NULL, error));
    WRONG(mc_store_get_batch(store, &keys, NULL, sizes, 0, found, error));
    WRONG(mc_store_get_batch(store, &keys, targets, NULL, 0, found, error));
    WRONG(mc_store_get_batch(store, &keys, targets, sizes, 0, NULL, error));
    WRONG(mc_store_view_batch(store, &keys, 0, NULL, data, found, error));
    WRONG(mc_store_view_batch(store, &keys, 0, views, NULL, found, error));
    WRONG(mc_store_view_batch(store, &keys, 0, views, data, NULL, error));
    WRONG(mc_store_size_batch(store, &keys, 0, NULL, error));
    WRONG(mc_store_exists_batch(store, &keys, 0, NULL, error));
    WRONG(mc_store_remove_batch(store, &keys, 0, NULL, error));
    IS(0, EXISTS(store, "a"));
}

static void listings_are_checked(void **state) {
    mc_store *store = ((const struct cluster *)*state)->store;
    struct mc_page *page = NULL;
    uint64_t cursor = 0;

    WRONG(mc_store_list(store, NULL, 10, 0, &page, error));
    WRONG(mc_store_list(store, &cursor, 10, 0, NULL, error));
    WRONG(mc_store_list(store, &cursor, 0, 0, &page, error));
    WRONG(mc_store_list(store, &cursor, 65537, 0, &page, error));
    assert_true(page == NULL && cursor == 0);
    mc_page_free(NULL);
    cursor = UINT64_MAX; /* any cursor is one */
    OK(mc_store_list(store, &cursor, 10, 0, &page, contract_error()));
    mc_page_free(page);
}

static void submitted_operations_are_checked(void **state) {
    mc_store *store = ((const struct cluster *)*state)->store;
    static const uint32_t length = 1;
    const struct mc_store_operation good = {
        .struct_size = sizeof(good), .kind = MC_STORE_EXISTS, .keys = {"k", &length, 1}, .statuses = (int32_t[1]){0}};
    struct mc_store_operation operation = good;
    struct {
        struct mc_store_operation known;
        uint64_t unknown;
    } wide = {.known = good, .unknown = 1};
    struct mc_completion completion;
    mc_queue *queue;
    uint64_t id = 42;

    OK(mc_queue_open(&queue, contract_error()));
    WRONG(mc_store_submit(store, NULL, queue, 0, &id, error));
    WRONG(mc_store_submit(store, &good, queue, 0, NULL, error));
    REFUSES(MC_ERR_INVALID_HANDLE, mc_store_submit(store, &good, NULL, 0, &id, error));
    REFUSES(MC_ERR_INVALID_HANDLE, mc_store_submit(store, &good, (mc_queue *)store, 0, &id, error));
    wide.known.struct_size = sizeof(wide);
    WRONG(mc_store_submit(store, &wide.known, queue, 0, &id, error));
    operation.struct_size = 16;
    WRONG(mc_store_submit(store, &operation, queue, 0, &id, error));
    operation = good;
    for (uint32_t kind = 0; kind < 10; kind++) {
        operation.kind = kind;
        if (kind != MC_STORE_EXISTS && kind != MC_STORE_REMOVE) /* the others lack a column */
            WRONG(mc_store_submit(store, &operation, queue, 0, &id, error));
    }
    operation = good;
    operation.keys.count = 0;
    WRONG(mc_store_submit(store, &operation, queue, 0, &id, error));
    operation = good;
    operation.statuses = NULL;
    WRONG(mc_store_submit(store, &operation, queue, 0, &id, error));
    assert_int_equal(id, 42);
    IS(MC_ERR_PENDING, (int32_t)mc_queue_reap(queue, &completion, 1, sizeof(completion), 0));
    OK(mc_queue_close(queue));
}

static void registered_memory_is_a_good_source_and_target(void **state) {
    mc_store *store = ((const struct cluster *)*state)->store;
    uint8_t *bytes = malloc(2 * MIB);

    assert_non_null(bytes);
    WRONG(mc_store_register(store, NULL, 8, error));
    WRONG(mc_store_register(store, bytes, 0, error));
    WRONG(mc_store_register(store, bytes, UINT64_MAX, error));
    REFUSES(MC_ERR_NOT_REGISTERED, mc_store_unregister(store, bytes, error));
    OK(mc_store_register(store, bytes, 2 * MIB, contract_error()));
    value_make(bytes, MIB, 1, 1);
    OK(PUT(store, "registered", bytes, MIB));
    IS((int32_t)MIB, GET(store, "registered", bytes + MIB, MIB));
    assert_same(bytes + MIB, bytes, MIB);
    OK(mc_store_unregister(store, bytes, contract_error()));
    REFUSES(MC_ERR_NOT_REGISTERED, mc_store_unregister(store, bytes, error));
    memset(bytes + MIB, 0, MIB);
    IS((int32_t)MIB, GET(store, "registered", bytes + MIB, MIB));
    assert_same(bytes + MIB, bytes, MIB);
    free(bytes);
}

static void texts_never_exceed_their_room(void **state) {
    mc_store *store = ((const struct cluster *)*state)->store;

    for (int which = 0; which < 2; which++) {
        int64_t (*const call)(mc_store *, char *, size_t) = which == 0 ? mc_store_address : mc_store_stats;
        char text[8192];
        int64_t length = call(store, NULL, 0);

        assert_true(length > 0 && length < 4096);
        IS(MC_ERR_INVALID_ARGUMENT, (int32_t)call(store, NULL, 1));
        for (size_t size = 1; size < (size_t)length + 2; size++) {
            memset(text, '#', sizeof(text));
            assert_true(call(store, text, size) > 0);
            assert_int_equal(text[strlen(text)], '\0');
            assert_true(strlen(text) < size);
            assert_int_equal(text[size], '#');
        }
    }
}

static void a_store_is_healthy_while_its_master_answers(void **state) {
    struct cluster *cluster = cluster_open(MIB);
    uint64_t deadline = now_ns() + 20 * SECOND;

    (void)state;
    OK(mc_store_health(cluster->store));
    if (cluster->master != NULL) {
        const struct mc_put_options brief = {.struct_size = sizeof(brief), .timeout_ns = 100 * MILLISECOND};
        uint64_t begin = now_ns();

        actor_freeze(cluster->master);
        assert_true(mc_store_put(cluster->store, TEXT("k"), "v", 1, &brief, contract_error()) < 0);
        assert_true(now_ns() - begin < 5 * SECOND);
        while (mc_store_health(cluster->store) == MC_OK && now_ns() < deadline)
            usleep(10000);
        IS(MC_ERR_UNAVAILABLE, mc_store_health(cluster->store));
        actor_thaw(cluster->master);
        while (mc_store_health(cluster->store) != MC_OK && now_ns() < deadline)
            usleep(10000);
        OK(mc_store_health(cluster->store));
        OK(UPSERT(cluster->store, "k", "v", 1));
    }
    cluster_close(cluster);
}

static const struct CMUnitTest tests[] = {
    STORE_TEST(store_options_are_checked),
    STORE_TEST(a_master_that_is_not_there_is_reported_in_time),
    STORE_TEST(an_engine_has_one_store_and_outlives_it),
    STORE_TEST(put_options_are_checked),
    STORE_TEST(memory_that_is_none_is_refused),
    STORE_TEST(batches_are_checked),
    STORE_TEST(listings_are_checked),
    STORE_TEST(submitted_operations_are_checked),
    STORE_TEST(registered_memory_is_a_good_source_and_target),
    STORE_TEST(texts_never_exceed_their_room),
    STORE_TEST(a_store_is_healthy_while_its_master_answers),
};

CONTRACT_PART(store_arguments, tests);

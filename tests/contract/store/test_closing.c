/* test_closing.c - after a close, during it, and by handles that are no stores: statuses, never more. */
#include "store_contract.h"

#include <stdatomic.h>
#include <sys/wait.h>

/* Every call on a handle, each of which must answer with that status. */
static void every_call_answers(int32_t wanted, mc_store *store) {
    static const uint32_t length = 1;
    const struct mc_keys keys = {"k", &length, 1};
    const void *value = "v";
    uint64_t size = 1, view = 42, cursor = 0, id = 42;
    char buffer[8], text[64];
    void *target = buffer;
    const void *data = NULL;
    struct mc_page *page = NULL;
    int32_t status = 42;
    int64_t found = 42;
    mc_queue *queue;
    struct mc_store_operation operation = {
        .struct_size = sizeof(operation), .kind = MC_STORE_EXISTS, .keys = keys, .statuses = &status};

    IS(wanted, PUT(store, "k", "v", 1));
    IS(wanted, UPSERT(store, "k", "v", 1));
    IS(wanted, GET(store, "k", buffer, 8));
    IS(wanted, VIEW(store, "k", &view, &data));
    IS(wanted, SIZE(store, "k"));
    IS(wanted, EXISTS(store, "k"));
    IS(wanted, REMOVE(store, "k"));
    IS(wanted, mc_store_put_batch(store, &keys, &value, &size, NULL, &status, contract_error()));
    IS(wanted, mc_store_get_batch(store, &keys, &target, &size, 0, &found, contract_error()));
    IS(wanted, mc_store_view_batch(store, &keys, 0, &view, &data, &found, contract_error()));
    IS(wanted, mc_store_size_batch(store, &keys, 0, &found, contract_error()));
    IS(wanted, mc_store_exists_batch(store, &keys, 0, &status, contract_error()));
    IS(wanted, mc_store_remove_batch(store, &keys, 0, &status, contract_error()));
    IS(wanted, (int32_t)mc_store_remove_all(store, 0, contract_error()));
    IS(wanted, mc_store_list(store, &cursor, 10, 0, &page, contract_error()));
    IS(wanted, mc_store_health(store));
    IS(wanted, (int32_t)mc_store_stats(store, text, sizeof(text)));
    IS(wanted, (int32_t)mc_store_address(store, text, sizeof(text)));
    IS(wanted, mc_store_register(store, buffer, 8, contract_error()));
    IS(wanted, mc_store_unregister(store, buffer, contract_error()));
    OK(mc_queue_open(&queue, contract_error()));
    IS(wanted, mc_store_submit(store, &operation, queue, 0, &id, contract_error()));
    OK(mc_queue_close(queue));
    IS(wanted, mc_store_close(store));
    assert_true(view == 42 && id == 42 && status == 42 && found == 42 && page == NULL && data == NULL);
}

static void a_closed_store_answers_so_to_every_call(void **state) {
    struct cluster *cluster = cluster_open(MIB);

    (void)state;
    OK(PUT(cluster->store, "k", "v", 1));
    OK(mc_store_close(cluster->store));
    every_call_answers(MC_ERR_INVALID_HANDLE, cluster->store);
    cluster->store = NULL;
    cluster_close(cluster);
}

static void handles_of_other_kinds_are_no_stores(void **state) {
    mc_engine *engine;
    mc_queue *queue;
    uint64_t memory;
    void *bytes;

    (void)state;
    OK(mc_engine_open(NULL, &engine, contract_error()));
    OK(mc_queue_open(&queue, contract_error()));
    OK(mc_memory_alloc(4096, NULL, &memory, &bytes, contract_error()));
    every_call_answers(MC_ERR_INVALID_HANDLE, NULL);
    every_call_answers(MC_ERR_INVALID_HANDLE, (mc_store *)engine);
    every_call_answers(MC_ERR_INVALID_HANDLE, (mc_store *)queue);
    every_call_answers(MC_ERR_INVALID_HANDLE, (mc_store *)(uintptr_t)memory);
    every_call_answers(MC_ERR_INVALID_HANDLE, (mc_store *)UINTPTR_MAX);
    OK(mc_memory_free(memory));
    OK(mc_queue_close(queue));
    OK(mc_engine_close(engine));
}

static void a_store_is_no_engine_and_no_queue(void **state) {
    mc_store *store = ((const struct cluster *)*state)->store;
    struct mc_completion completion;

    IS(MC_ERR_INVALID_HANDLE, mc_engine_close((mc_engine *)store));
    IS(MC_ERR_INVALID_HANDLE, mc_queue_close((mc_queue *)store));
    IS(MC_ERR_INVALID_HANDLE, (int32_t)mc_queue_reap((mc_queue *)store, &completion, 1, sizeof(completion), 0));
    IS(MC_ERR_INVALID_HANDLE, mc_operation_free((uint64_t)(uintptr_t)store));
    IS(MC_ERR_INVALID_HANDLE, mc_operation_free(0));
    IS(0, EXISTS(store, "k"));
}

/* ---- Closing under calls ---- */

enum { CALLERS = 8 };

struct under {
    mc_store *store;
    atomic_uint begun;
};

static bool is_ended(int64_t status) {
    return status == MC_ERR_CLOSED || status == MC_ERR_INVALID_HANDLE;
}

/* What may come before the end. INDETERMINATE is what was published, or told to be removed, when the store closed. */
static bool is_sound(int64_t status) {
    return status >= 0 || status == MC_ERR_ALREADY_EXISTS || status == MC_ERR_NOT_FOUND ||
           status == MC_ERR_INDETERMINATE || is_ended(status);
}

static int64_t call_once(mc_store *store, size_t index, unsigned round, uint8_t *buffer) {
    uint64_t cursor = 0, view;
    struct mc_page *page;
    const void *data;
    int64_t status;
    char key[32];

    snprintf(key, sizeof(key), "key-%u", round % 20);
    switch (index % CALLERS) {
    case 0:
        return mc_store_put(store, TEXT(key), buffer, 20000, NULL, NULL);
    case 1:
        return mc_store_upsert(store, TEXT(key), buffer, 30000, NULL, NULL);
    case 2:
        return mc_store_get(store, TEXT(key), buffer, 30000, 0, NULL);
    case 3:
        status = mc_store_view(store, TEXT(key), 0, &view, &data, NULL);
        if (status >= 0 && (memchr(data, '#', 1) == NULL || mc_view_release(view) != MC_OK))
            return MC_ERR_INTERNAL;
        return status;
    case 4:
        return mc_store_remove(store, TEXT(key), 0, NULL);
    case 5:
        return mc_store_exists(store, TEXT(key), 0, NULL);
    case 6:
        status = mc_store_list(store, &cursor, 100, 0, &page, NULL);
        if (status == MC_OK)
            mc_page_free(page);
        return status;
    default:
        return mc_store_stats(store, (char *)buffer, 100);
    }
}

static void *call_until_closed(void *context) {
    struct worker *worker = context;
    struct under *under = worker->context;
    uint8_t *buffer = malloc(30000);
    int64_t status = MC_OK;

    memset(buffer, '#', 30000);
    atomic_fetch_add(&under->begun, 1);
    for (unsigned round = 0; !is_ended(status); round++) {
        status = call_once(under->store, worker->index, round, buffer);
        if (!is_sound(status))
            fprintf(stderr, "# caller %zu: %s\n", worker->index, mc_status_name((int32_t)status));
        EXPECT(worker, is_sound(status));
    }
    free(buffer);
    return NULL;
}

static void closing_ends_the_calls_of_eight_threads(void **state) {
    (void)state;
    for (size_t round = 0; round < contract_scaled(5); round++) {
        struct cluster *cluster = cluster_open(4 * MIB);
        struct under under = {.store = cluster->store};
        struct worker workers[CALLERS];
        uint64_t begin;

        for (size_t i = 0; i < CALLERS; i++) {
            workers[i] = (struct worker){.index = i, .context = &under};
            worker_start(&workers[i], call_until_closed);
        }
        while (atomic_load(&under.begun) < CALLERS)
            ;
        usleep((useconds_t)(round * 1000)); /* somewhere in the middle of them */
        begin = now_ns();
        OK(mc_store_close(cluster->store));
        assert_true(now_ns() - begin < 10 * SECOND);
        for (size_t i = 0; i < CALLERS; i++)
            worker_join(&workers[i]);
        cluster->store = NULL;
        cluster_close(cluster);
    }
}

static void *put_what_must_wait(void *context) {
    struct worker *worker = context;
    struct under *under = worker->context;
    uint8_t *value = calloc(1, 3 * MIB);
    int32_t status;

    atomic_fetch_add(&under->begun, 1);
    status = mc_store_put(under->store, TEXT("waits"), value, 3 * MIB, NULL, NULL);
    EXPECT(worker, is_ended(status));
    free(value);
    return NULL;
}

static void closing_ends_a_put_that_waits_for_space(void **state) {
    const struct mc_put_options pinned = {.struct_size = sizeof(pinned), .flags = MC_PUT_HARD_PIN};
    struct cluster *cluster = cluster_open(4 * MIB);
    struct under under = {.store = cluster->store};
    struct worker worker = {.context = &under};
    uint8_t *value = calloc(1, 3 * MIB);
    uint64_t begin;

    (void)state;
    OK(mc_store_put(cluster->store, TEXT("full"), value, 3 * MIB, &pinned, contract_error()));
    worker_start(&worker, put_what_must_wait);
    while (atomic_load(&under.begun) == 0)
        ;
    usleep(20000); /* it waits by now; if not, it ends all the same */
    begin = now_ns();
    OK(mc_store_close(cluster->store));
    worker_join(&worker);
    assert_true(now_ns() - begin < 10 * SECOND);
    cluster->store = NULL;
    cluster_close(cluster);
    free(value);
}

static void *close_it(void *context) {
    struct worker *worker = context;
    struct under *under = worker->context;
    int32_t status;

    atomic_fetch_add(&under->begun, 1);
    while (atomic_load(&under->begun) < 4)
        ;
    status = mc_store_close(under->store);
    EXPECT(worker, status == MC_OK || is_ended(status));
    worker->index = status == MC_OK;
    return NULL;
}

static void of_four_that_close_a_store_one_does(void **state) {
    struct cluster *cluster = cluster_open(MIB);
    struct under under = {.store = cluster->store};
    struct worker workers[4];
    size_t closed = 0;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        workers[i] = (struct worker){.context = &under};
        worker_start(&workers[i], close_it);
    }
    for (size_t i = 0; i < 4; i++) {
        worker_join(&workers[i]);
        closed += workers[i].index;
    }
    assert_int_equal(closed, 1);
    cluster->store = NULL;
    cluster_close(cluster);
}

/* What it puts is in the pool: a segment of its own that others reach would be known to them for a while longer. */
static void open_use_and_close(const struct cluster *cluster) {
    static const char *const pool[] = {"pool"};
    const struct mc_put_options options = {.struct_size = sizeof(options), .preferred = pool, .preferred_count = 1};
    mc_store *store = cluster_join(cluster, 0, MIB, "guest");
    char got[8];

    OK(mc_store_upsert(store, TEXT("guest"), "value", 5, &options, contract_error()));
    IS(5, GET(cluster->store, "guest", got, sizeof(got)));
    OK(mc_store_health(store));
    OK(mc_store_close(store));
}

static void stores_that_come_and_go_leave_nothing_behind(void **state) {
    struct cluster *cluster = cluster_open(MIB);
    size_t descriptors, threads, mappings;

    (void)state;
    for (size_t i = 0; i < 3; i++) /* whatever is made once is made */
        open_use_and_close(cluster);
    descriptors = descriptor_count();
    threads = thread_count();
    mappings = mapping_count();
    for (size_t i = 0; i < contract_scaled(20); i++)
        open_use_and_close(cluster);
    assert_in_range(descriptor_count(), 0, descriptors + 8); /* of sockets that are just being closed */
    assert_in_range(thread_count(), 0, threads + 1);
    assert_in_range(mapping_count(), 0, mappings + 8);
    cluster_close(cluster);
}

static void a_forked_child_has_no_store(void **state) {
    mc_store *store = ((const struct cluster *)*state)->store;
    char got[8];
    int status;
    pid_t child;

    OK(PUT(store, "forked", "value", 5));
    child = fork();
    if (child == 0) {
        bool good = mc_store_get(store, TEXT("forked"), got, sizeof(got), 0, NULL) == MC_ERR_FORKED &&
                    mc_store_put(store, TEXT("child"), "v", 1, NULL, NULL) == MC_ERR_FORKED &&
                    mc_store_health(store) == MC_ERR_FORKED;

        _exit(good ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    IS(5, GET(store, "forked", got, sizeof(got)));
    IS(0, EXISTS(store, "child"));
}

static const struct CMUnitTest tests[] = {
    STORE_TEST(a_closed_store_answers_so_to_every_call),
    STORE_TEST(handles_of_other_kinds_are_no_stores),
    STORE_TEST(a_store_is_no_engine_and_no_queue),
    STORE_TEST(closing_ends_the_calls_of_eight_threads),
    STORE_TEST(closing_ends_a_put_that_waits_for_space),
    STORE_TEST(of_four_that_close_a_store_one_does),
    STORE_TEST(stores_that_come_and_go_leave_nothing_behind),
    STORE_TEST(a_forked_child_has_no_store),
};

CONTRACT_PART(store_closing, tests);

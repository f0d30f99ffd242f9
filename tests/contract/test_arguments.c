/* test_arguments.c - wrong arguments get a clear code, words where a struct mc_error is given, and change no output. */
#include "contract.h"

#include <stdio.h>

/* The call fails with `status`, in words. `error` is the struct that it was given. */
#define REFUSES(status, call)                                                  \
    do {                                                                       \
        struct mc_error *error = contract_error();                             \
        IS(status, call);                                                      \
        assert_int_equal(error->code, status);                                 \
        assert_true(error->message[0] != '\0');                                \
        assert_non_null(memchr(error->message, '\0', sizeof(error->message))); \
    } while (0)

static void engine_options_are_checked(void **state) {
    struct {
        struct mc_engine_options known;
        uint64_t unknown;
    } wide = {.known = {.struct_size = sizeof(wide)}};
    struct mc_engine_options options = {.struct_size = sizeof(options)};
    mc_engine *engine = (mc_engine *)(uintptr_t)42;

    (void)state;
    REFUSES(MC_ERR_INVALID_ARGUMENT, mc_engine_open(&options, NULL, error));
    for (uint32_t size = 0; size < sizeof(options); size += 4) {
        options.struct_size = size;
        REFUSES(MC_ERR_INVALID_ARGUMENT, mc_engine_open(&options, &engine, error));
    }
    options.struct_size = UINT32_MAX;
    REFUSES(MC_ERR_INVALID_ARGUMENT, mc_engine_open(&options, &engine, error));
    options.struct_size = sizeof(options);
    for (uint32_t bit = 1; bit < 32; bit++) {
        options.flags = 1u << bit;
        REFUSES(MC_ERR_INVALID_ARGUMENT, mc_engine_open(&options, &engine, error));
    }
    options.flags = 0;
    options.lanes = 17;
    REFUSES(MC_ERR_INVALID_ARGUMENT, mc_engine_open(&options, &engine, error));
    options.lanes = 0;
    options.notifications = 1048577;
    REFUSES(MC_ERR_INVALID_ARGUMENT, mc_engine_open(&options, &engine, error));
    options.notifications = 0;
    options.reserved = 1;
    REFUSES(MC_ERR_INVALID_ARGUMENT, mc_engine_open(&options, &engine, error));
    options.reserved = 0;
    options.name = "a name without a directory";
    REFUSES(MC_ERR_INVALID_ARGUMENT, mc_engine_open(&options, &engine, error));
    options.name = NULL;
    options.directory = "carrier pigeon";
    REFUSES(MC_ERR_INVALID_ARGUMENT, mc_engine_open(&options, &engine, error));
    options.directory = "redis://127.0.0.1:6379";
    REFUSES(MC_ERR_NOT_SUPPORTED, mc_engine_open(&options, &engine, error));
    options.directory = NULL;
    options.protocol = "carrier pigeon";
    REFUSES(MC_ERR_NOT_SUPPORTED, mc_engine_open(&options, &engine, error));
    options.protocol = NULL;
    options.key_file = "/nonexistent/key";
    assert_int_not_equal(mc_engine_open(&options, &engine, contract_error()), MC_OK);
    wide.unknown = 1;
    REFUSES(MC_ERR_INVALID_ARGUMENT, mc_engine_open(&wide.known, &engine, error));
    assert_int_equal((uintptr_t)engine, 42);
    wide.unknown = 0;
    OK(mc_engine_open(&wide.known, &engine, contract_error()));
    OK(mc_engine_close(engine));
    OK(mc_engine_open(NULL, &engine, NULL));
    OK(mc_engine_close(engine));
}

static void addresses_are_checked(void **state) {
    static const char *const malformed[] = {"",
                                            ":",
                                            "127.0.0.1",
                                            "127.0.0.1:",
                                            "127.0.0.1:0",
                                            "1.2.3.4:99999",
                                            "a:b:c",
                                            "[::1]",
                                            "127.0.0.1:-1",
                                            "127.0.0.1:1x",
                                            ":80",
                                            "[::1:5",
                                            "%s%s%n:1",
                                            "127.0.0.1: 5",
                                            "host name:1"};
    const struct pair *pair = *state;
    struct mc_engine_options options = {.struct_size = sizeof(options), .listen = "1.2.3.4:99999"};
    mc_engine *engine = NULL;
    uint64_t peer = 42, begin;
    char *huge = malloc(100001);

    assert_non_null(huge);
    memset(huge, 'a', 100000);
    huge[100000] = '\0';
    for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++) {
        struct mc_error *error = contract_error();
        int32_t status = mc_peer_open(pair->here, malformed[i], &peer, error);

        if (status != MC_ERR_ADDRESS && status != MC_ERR_NAME_NOT_FOUND)
            fail_msg("\"%s\" gives %s", malformed[i], mc_status_name(status));
        assert_true(error->message[0] != '\0');
    }
    REFUSES(MC_ERR_ADDRESS, mc_peer_open(pair->here, huge, &peer, error));
    REFUSES(MC_ERR_INVALID_ARGUMENT, mc_peer_open(pair->here, NULL, &peer, error));
    REFUSES(MC_ERR_INVALID_ARGUMENT, mc_peer_open(pair->here, "127.0.0.1:1", NULL, error));
    REFUSES(MC_ERR_ADDRESS, mc_engine_open(&options, &engine, error));
    options.listen = huge;
    assert_int_not_equal(mc_engine_open(&options, &engine, contract_error()), MC_OK);
    options.listen = "0.0.0.0:0";
    REFUSES(MC_ERR_ADDRESS, mc_engine_open(&options, &engine, error));
    options.listen = "192.0.2.1:0"; /* not of this host */
    REFUSES(MC_ERR_SYSTEM, mc_engine_open(&options, &engine, error));
    assert_null(engine);
    begin = now_ns();
    {
        struct mc_error *error = contract_error();

        IS(MC_ERR_UNREACHABLE, mc_peer_open(pair->here, "127.0.0.1:1", &peer, error)); /* nobody is there */
        assert_non_null(strstr(error->message, "127.0.0.1:1"));
    }
    assert_true(now_ns() - begin < 5 * SECOND);
    assert_int_equal(peer, 42);
    free(huge);
}

static void batches_are_checked(void **state) {
    const struct pair *pair = *state;
    struct {
        struct mc_batch_options known;
        uint64_t unknown;
    } wide = {.known = {.struct_size = sizeof(wide)}, .unknown = 1};
    struct mc_batch_options options = {.struct_size = sizeof(options)};
    struct mc_request wanted = request(pair, MC_READ, 0, 0, 8);
    struct mc_request_status statuses[2];
    const size_t size = sizeof(wanted);
    uint64_t batch = 42;

#define SUBMIT(requests, count, stride, options, ret) \
    REFUSES(MC_ERR_INVALID_ARGUMENT, mc_batch_submit(pair->here, requests, count, stride, options, ret, error))
    SUBMIT(NULL, 1, size, NULL, &batch);
    SUBMIT(&wanted, 0, size, NULL, &batch);
    SUBMIT(&wanted, (1u << 20) + 1, size, NULL, &batch);
    SUBMIT(&wanted, SIZE_MAX, size, NULL, &batch);
    SUBMIT(&wanted, 1, 0, NULL, &batch);
    SUBMIT(&wanted, 1, size - 8, NULL, &batch);
    SUBMIT(&wanted, 1, size + 1, NULL, &batch);
    SUBMIT(&wanted, 2, SIZE_MAX - 7, NULL, &batch);
    SUBMIT(&wanted, 1, size, NULL, NULL);
    SUBMIT(&wanted, 1, size, &wide.known, &batch);
    for (uint32_t bit = 2; bit < 32; bit++) {
        options.flags = 1u << bit;
        SUBMIT(&wanted, 1, size, &options, &batch);
    }
    options.flags = 0;
    options.struct_size = 8;
    SUBMIT(&wanted, 1, size, &options, &batch);
    REFUSES(MC_ERR_INVALID_ARGUMENT, mc_engine_transfer(pair->here, NULL, 1, size, 0, error));
    REFUSES(MC_ERR_INVALID_ARGUMENT, mc_engine_transfer(pair->here, &wanted, 0, size, 0, error));
    REFUSES(MC_ERR_INVALID_ARGUMENT, mc_engine_transfer(pair->here, &wanted, 1, 8, 0, error));
    REFUSES(MC_ERR_NOT_REGISTERED, mc_peer_read(pair->peer, NULL, wanted.remote, 8, 0, error));
    REFUSES(MC_ERR_INVALID_ARGUMENT, mc_peer_write(pair->peer, pair->near, wanted.remote, UINT64_MAX, 0, error));
    assert_int_equal(batch, 42);
    batch = submit(pair, &wanted, 1, MC_FOREVER);
    OK(mc_batch_wait(batch, MC_FOREVER));
    IS(MC_ERR_INVALID_ARGUMENT, mc_batch_status(batch, 0, NULL, 1, sizeof(statuses[0])));
    IS(MC_ERR_INVALID_ARGUMENT, mc_batch_status(batch, 0, statuses, 2, sizeof(statuses[0])));
    IS(MC_ERR_INVALID_ARGUMENT, mc_batch_status(batch, 1, statuses, 1, sizeof(statuses[0])));
    IS(MC_ERR_INVALID_ARGUMENT, mc_batch_status(batch, SIZE_MAX, statuses, 2, sizeof(statuses[0])));
    IS(MC_ERR_INVALID_ARGUMENT, mc_batch_status(batch, 0, statuses, SIZE_MAX, sizeof(statuses[0])));
    IS(MC_ERR_INVALID_ARGUMENT, mc_batch_status(batch, 0, statuses, 1, sizeof(statuses[0]) - 8));
    IS(MC_ERR_INVALID_ARGUMENT, mc_batch_status(batch, 0, statuses, 1, 0));
    OK(mc_batch_status(batch, 1, statuses, 0, sizeof(statuses[0])));
    OK(mc_batch_free(batch));
}

static void an_engine_whose_topology_makes_no_sense_does_not_open(void **state) {
    mc_engine *engine = NULL;
    int32_t status;

    (void)state;
    assert_int_equal(setenv("MC_CUSTOM_TOPO_JSON", "/nowhere/at/all", 1), 0);
    status = mc_engine_open(NULL, &engine, contract_error());
    if (status != MC_ERR_NOT_SUPPORTED) /* without libjansson */
        REFUSES(MC_ERR_INVALID_ARGUMENT, mc_engine_open(NULL, &engine, error));
    assert_int_equal(unsetenv("MC_CUSTOM_TOPO_JSON"), 0);
    assert_null(engine);
}

static void options_of_memory_are_checked(void **state) {
    static const struct mc_memory_options wrong[] = {
        {sizeof(wrong[0]), 4, 0, 0},
        {sizeof(wrong[0]), UINT32_MAX, 0, 0},
        {sizeof(wrong[0]), 0, 0, 1},
        {sizeof(wrong[0]), 0, 1, 0}, /* a node, but it isn't asked for */
        {sizeof(wrong[0]), MC_MEMORY_HUGE, 1, 0},
        {sizeof(wrong[0]) - 4, 0, 0, 0},
        {0, 0, 0, 0},
    };
    uint64_t memory = 42;
    void *address = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        REFUSES(MC_ERR_INVALID_ARGUMENT, mc_memory_alloc(4096, &wrong[i], &memory, &address, error));
    assert_int_equal(memory, 42);
    assert_null(address);
}

static void other_arguments_are_checked(void **state) {
    const struct pair *pair = *state;
    struct mc_completion completion;
    uint64_t memory = 42;
    void *address = NULL;
    mc_queue *queue;

    REFUSES(MC_ERR_INVALID_ARGUMENT, mc_memory_alloc(1, NULL, NULL, &address, error));
    REFUSES(MC_ERR_INVALID_ARGUMENT, mc_memory_alloc(1, NULL, &memory, NULL, error));
    for (uint32_t bit = 2; bit < 32; bit++)
        REFUSES(MC_ERR_INVALID_ARGUMENT, mc_engine_register(pair->here, &memory, 8, NULL, 1u << bit, error));
    REFUSES(MC_ERR_INVALID_ARGUMENT, mc_peer_notify(pair->peer, NULL, 1, "m", 1, SECOND, error));
    REFUSES(MC_ERR_INVALID_ARGUMENT, mc_peer_notify(pair->peer, "n", 1, NULL, 1, SECOND, error));
    REFUSES(MC_ERR_INVALID_ARGUMENT, mc_queue_open(NULL, error));
    IS(MC_ERR_INVALID_ARGUMENT, mc_engine_receive(pair->here, 0, NULL));
    IS(MC_ERR_INVALID_ARGUMENT, mc_engine_incarnation(pair->here, NULL));
    for (uint32_t format = 2; format != 0; format <<= 1)
        IS(MC_ERR_INVALID_ARGUMENT, mc_engine_metrics(pair->here, format, NULL, 0));
    OK(mc_queue_open(&queue, contract_error()));
    IS(MC_ERR_INVALID_ARGUMENT, mc_queue_reap(queue, NULL, 1, sizeof(completion), 0));
    IS(MC_ERR_INVALID_ARGUMENT, mc_queue_reap(queue, &completion, 0, sizeof(completion), 0));
    IS(MC_ERR_INVALID_ARGUMENT, mc_queue_reap(queue, &completion, 1, sizeof(completion) - 8, 0));
    IS(MC_ERR_INVALID_ARGUMENT, mc_queue_reap(queue, &completion, 1, sizeof(completion) + 1, 0));
    OK(mc_queue_close(queue));
    assert_int_equal(memory, 42);
    assert_null(address);
}

typedef int64_t (*text_call)(const struct pair *pair, char *text, size_t size);

static int64_t the_address(const struct pair *pair, char *text, size_t size) {
    return mc_engine_address(pair->here, text, size);
}

static int64_t the_topology(const struct pair *pair, char *text, size_t size) {
    return mc_engine_topology(pair->here, text, size);
}

static int64_t the_explanation(const struct pair *pair, char *text, size_t size) {
    return mc_peer_explain(pair->peer, text, size);
}

static int64_t the_metrics(const struct pair *pair, char *text, size_t size) {
    return mc_engine_metrics(pair->here, MC_METRICS_PROMETHEUS, text, size); /* JSON says how late it is, too */
}

static int64_t the_capabilities(const struct pair *pair, char *text, size_t size) {
    (void)pair;
    return mc_capabilities(text, size);
}

static void texts_never_exceed_their_room(void **state) {
    static const text_call calls[] = {the_address, the_topology, the_explanation, the_metrics, the_capabilities};
    const struct pair *pair = *state;

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        char whole[8192], text[8196];
        int64_t length = calls[i](pair, whole, sizeof(whole));

        assert_true(length > 0 && length < (int64_t)sizeof(whole));
        assert_int_equal(strlen(whole), length);
        IS((int32_t)length, calls[i](pair, NULL, 0));
        IS(MC_ERR_INVALID_ARGUMENT, calls[i](pair, NULL, 1));
        for (size_t size = 1; size <= (size_t)length + 2; size++) {
            size_t kept = size - 1 < (size_t)length ? size - 1 : (size_t)length;

            memset(text, '#', sizeof(text));
            IS((int32_t)length, calls[i](pair, text, size));
            assert_same(text, whole, kept);
            assert_int_equal(text[kept], '\0');
            assert_int_equal(text[size], '#');
        }
    }
}

static void an_error_struct_is_filled_as_far_as_it_goes(void **state) {
    struct {
        struct mc_error error;
        char after[16];
    } given;
    mc_engine *engine;

    (void)state;
    for (uint32_t size = 0; size <= sizeof(given.error); size += 4) {
        memset(&given, '#', sizeof(given));
        given.error.struct_size = size;
        IS(MC_ERR_INVALID_ARGUMENT, mc_engine_open(NULL, NULL, &given.error));
        for (size_t i = size < sizeof(uint32_t) ? sizeof(uint32_t) : size; i < sizeof(given); i++)
            assert_int_equal(((char *)&given)[i], '#');
    }
    assert_int_equal(given.error.code, MC_ERR_INVALID_ARGUMENT);
    assert_int_equal(given.error.system_errno, 0);
    memset(&given, '#', sizeof(given));
    given.error.struct_size = sizeof(given.error);
    OK(mc_engine_open(NULL, &engine, &given.error));
    assert_int_equal(given.error.message[0], '#');
    OK(mc_engine_close(engine));
}

static const struct CMUnitTest tests[] = {
    CONTRACT_TEST(engine_options_are_checked),    CONTRACT_TEST(addresses_are_checked),
    CONTRACT_TEST(batches_are_checked),           CONTRACT_TEST(an_engine_whose_topology_makes_no_sense_does_not_open),
    CONTRACT_TEST(options_of_memory_are_checked), CONTRACT_TEST(other_arguments_are_checked),
    CONTRACT_TEST(texts_never_exceed_their_room), CONTRACT_TEST(an_error_struct_is_filled_as_far_as_it_goes),
};

CONTRACT_PART(contract_arguments, tests);

/* test_notices.c - a batch that tells its peers when it has completed, and checksums taken on the way. */
#include "contract.h"

/* A batch of the requests that tells "done" and `message`. */
static uint64_t submit_telling(const struct pair *pair, const struct mc_request *requests, size_t count,
                               const char *message, uint32_t flags, mc_queue *queue) {
    const struct mc_batch_options options = {
        .struct_size = sizeof(options),
        .flags = MC_BATCH_NOTIFY | flags,
        .timeout_ns = 20 * SECOND,
        .queue = queue,
        .notify_name = "done",
        .notify_name_length = 4,
        .notify_message = message,
        .notify_message_length = strlen(message),
    };
    uint64_t batch = 0;

    OK(mc_batch_submit(pair->here, requests, count, sizeof(requests[0]), &options, &batch, contract_error()));
    return batch;
}

static void takes(mc_engine *engine, const char *message) {
    struct mc_notification *got = NULL;

    OK(mc_engine_receive(engine, 10 * SECOND, &got));
    assert_string_equal(got->name, "done");
    assert_string_equal(got->message, message);
    mc_notification_free(got);
}

static void takes_nothing(mc_engine *engine) {
    struct mc_notification *got = NULL;

    IS(MC_ERR_PENDING, mc_engine_receive(engine, 0, &got));
}

/* Faults 4 and 18. */
static void whoever_is_told_of_a_batch_sees_what_it_wrote(void **state) {
    const struct pair *pair = *state;
    static const size_t length = 2400000; /* in 2 requests */
    size_t runs = contract_scaled(400);

    for (size_t i = 0; i < runs; i++) {
        struct mc_request requests[2] = {request(pair, MC_WRITE, 0, 0, length / 2),
                                         request(pair, MC_WRITE, length / 2, length / 2, length / 2)};
        uint64_t batch;

        fill(pair->near, length, i);
        batch = submit_telling(pair, requests, 2, "all", i % 2 == 0 ? 0 : MC_BATCH_DRIVEN, NULL);
        if (i % 2 == 1)
            OK(mc_batch_wait(batch, MC_FOREVER));
        takes(pair->there, "all");
        assert_int_equal(hash(pair->far, length), hash(pair->near, length));
        OK(mc_batch_wait(batch, MC_FOREVER));
        OK(mc_batch_free(batch));
    }
}

/* Fault 18. */
static void a_batch_is_over_when_its_notification_is_there(void **state) {
    const struct pair *pair = *state;
    struct mc_request requests[3] = {request(pair, MC_WRITE, 0, 0, 100), request(pair, MC_READ, 0, 0, 0),
                                     request(pair, MC_READ, 200, 200, 100)};
    struct mc_completion completion;
    mc_queue *queue;
    uint64_t batch;

    OK(mc_queue_open(&queue, contract_error()));
    batch = submit_telling(pair, requests, 3, "", 0, queue);
    assert_int_equal(mc_queue_reap(queue, &completion, 1, sizeof(completion), 10 * SECOND), 1);
    assert_int_equal(completion.status, MC_OK);
    takes(pair->there, "");
    takes_nothing(pair->there); /* one peer is told once */
    OK(mc_batch_free(batch));
    OK(mc_queue_close(queue));
}

static void a_batch_that_fails_tells_nobody(void **state) {
    const struct pair *pair = *state;
    struct mc_request requests[2] = {request(pair, MC_WRITE, 0, 0, 100), request(pair, MC_WRITE, 0, SPAN - 10, 100)};
    uint64_t batch = submit_telling(pair, requests, 2, "no", 0, NULL);

    IS(MC_ERR_NOT_REGISTERED, mc_batch_wait(batch, MC_FOREVER));
    OK(mc_batch_free(batch));
    takes_nothing(pair->there);
}

static void a_batch_that_is_cancelled_tells_nobody(void **state) {
    const struct pair *pair = *state;
    struct mc_request requests[4];
    uint64_t batch;

    for (size_t i = 0; i < 4; i++)
        requests[i] = request(pair, MC_WRITE, 0, 0, SPAN);
    batch = submit_telling(pair, requests, 4, "no", MC_BATCH_DRIVEN, NULL);
    OK(mc_batch_cancel(batch));
    IS(MC_ERR_CANCELLED, mc_batch_wait(batch, MC_FOREVER));
    OK(mc_batch_free(batch));
    takes_nothing(pair->there);
}

/* Whatever the cancel meets, the batch ends once, and tells of success only. */
static void cancels_race_with_notifications(void **state) {
    const struct pair *pair = *state;
    struct mc_request wanted = request(pair, MC_WRITE, 0, 0, 4096);
    uint64_t seed = 7;

    for (size_t i = 0; i < contract_scaled(300); i++) {
        uint64_t batch = submit_telling(pair, &wanted, 1, "maybe", 0, NULL);
        struct mc_notification *got = NULL;
        uint64_t pause = random_next(&seed) % 100000;
        uint64_t begun = now_ns();
        int32_t status;

        while (now_ns() - begun < pause)
            ;
        OK(mc_batch_cancel(batch));
        status = mc_batch_wait(batch, 0);
        assert_true(status == MC_OK || status == MC_ERR_CANCELLED);
        if (status == MC_OK)
            assert_int_equal(status_of(batch, 0).state, MC_STATE_COMPLETED);
        OK(mc_batch_free(batch));
        if (status == MC_OK)
            takes(pair->there, "maybe");
        else if (mc_engine_receive(pair->there, MILLISECOND, &got) == MC_OK) /* it was on its way */
            mc_notification_free(got);
    }
}

/* What it knows of the engine's thread mustn't be asked any more. */
static void a_batch_that_told_may_be_freed_after_its_engine_is_closed(void **state) {
    struct pair *pair = *state;
    struct mc_request wanted = request(pair, MC_WRITE, 0, 0, 100);
    uint64_t batch = submit_telling(pair, &wanted, 1, "done", 0, NULL);

    OK(mc_batch_wait(batch, MC_FOREVER));
    contract_close_engines(pair);
    OK(mc_batch_wait(batch, 0));
    OK(mc_batch_free(batch));
}

static void a_notification_that_finds_no_room_is_the_batchs_failure_alone(void **state) {
    const struct pair *pair = *state;
    struct mc_request wanted = request(pair, MC_WRITE, 0, 0, 100);
    struct mc_error *error = contract_error();
    struct mc_completion completion;
    struct mc_request_status status;
    mc_queue *queue;
    uint64_t batch;

    OK(mc_queue_open(&queue, error));
    while (mc_peer_notify(pair->peer, NULL, 0, NULL, 0, 10 * SECOND, NULL) == MC_OK)
        ;
    batch = submit_telling(pair, &wanted, 1, "no room", 0, queue);
    IS(MC_ERR_QUEUE_FULL, mc_batch_wait(batch, MC_FOREVER));
    assert_int_equal(mc_queue_reap(queue, &completion, 1, sizeof(completion), 0), 1);
    assert_int_equal(completion.status, MC_ERR_QUEUE_FULL);
    assert_int_equal(completion.failed, 0);
    status = status_of(batch, 0);
    assert_int_equal(status.state, MC_STATE_COMPLETED);
    IS(MC_ERR_QUEUE_FULL, mc_batch_explain(batch, error));
    assert_non_null(strstr(error->message, "notification"));
    OK(mc_batch_free(batch));
    OK(mc_queue_close(queue));
}

static void notifications_of_batches_are_checked(void **state) {
    const struct pair *pair = *state;
    struct mc_request wanted = request(pair, MC_WRITE, 0, 0, 8);
    struct mc_batch_options options = {.struct_size = sizeof(options), .notify_name = "x"};
    uint64_t batch = 42;

#define REFUSED(code) \
    IS(code, mc_batch_submit(pair->here, &wanted, 1, sizeof(wanted), &options, &batch, contract_error()))
    REFUSED(MC_ERR_INVALID_ARGUMENT); /* without the flag */
    options.flags = MC_BATCH_NOTIFY;
    options.notify_name = NULL;
    options.notify_name_length = 1;
    REFUSED(MC_ERR_INVALID_ARGUMENT);
    options.notify_name_length = 0;
    options.notify_message = pair->near;
    options.notify_message_length = MC_NOTIFICATION_MAX + 1;
    REFUSED(MC_ERR_TOO_LARGE);
    options.notify_message_length = SIZE_MAX;
    REFUSED(MC_ERR_TOO_LARGE);
    assert_int_equal(batch, 42);
    takes_nothing(pair->there);
}

/* ---- Checksums ---- */

static uint32_t plain_crc32c(const uint8_t *bytes, size_t length) {
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 1) != 0 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    return ~crc;
}

static void the_checksum_is_that_of_the_bytes(void **state) {
    const struct pair *pair = *state;
    static const size_t lengths[] = {1, 9, 4096, 70001, MIB - 1, MIB + 1, 3 * MIB + 77};

    fill(pair->near, SPAN, 3);
    fill(pair->far, SPAN, 4);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        for (uint32_t opcode = MC_READ; opcode <= MC_WRITE; opcode++) {
            struct mc_request requests[2] = {request(pair, opcode, 5, 100, lengths[i]),
                                             request(pair, opcode, 5 * MIB, 5 * MIB, lengths[i])};
            uint64_t batch;

            requests[0].flags = MC_REQUEST_CHECKSUM;
            batch = submit(pair, requests, 2, 20 * SECOND);
            OK(mc_batch_wait(batch, MC_FOREVER));
            assert_int_equal(status_of(batch, 0).checksum, plain_crc32c(pair->near + 5, lengths[i]));
            assert_int_equal(status_of(batch, 1).checksum, 0);
            assert_same(pair->near + 5, pair->far + 100, lengths[i]);
            OK(mc_batch_free(batch));
        }
    }
}

static void a_request_that_fails_has_no_checksum(void **state) {
    const struct pair *pair = *state;
    struct mc_request wanted = request(pair, MC_READ, 0, SPAN - 10, 100);
    uint64_t batch;

    wanted.flags = MC_REQUEST_CHECKSUM;
    batch = submit(pair, &wanted, 1, 20 * SECOND);
    IS(MC_ERR_NOT_REGISTERED, mc_batch_wait(batch, MC_FOREVER));
    assert_int_equal(status_of(batch, 0).checksum, 0);
    OK(mc_batch_free(batch));
}

static const struct CMUnitTest tests[] = {
    CONTRACT_TEST(whoever_is_told_of_a_batch_sees_what_it_wrote),
    CONTRACT_TEST(a_batch_is_over_when_its_notification_is_there),
    CONTRACT_TEST(a_batch_that_fails_tells_nobody),
    CONTRACT_TEST(a_batch_that_is_cancelled_tells_nobody),
    CONTRACT_TEST(cancels_race_with_notifications),
    CONTRACT_TEST(a_batch_that_told_may_be_freed_after_its_engine_is_closed),
    CONTRACT_TEST(a_notification_that_finds_no_room_is_the_batchs_failure_alone),
    CONTRACT_TEST(notifications_of_batches_are_checked),
    CONTRACT_TEST(the_checksum_is_that_of_the_bytes),
    CONTRACT_TEST(a_request_that_fails_has_no_checksum),
};

CONTRACT_PART(contract_notices, tests);

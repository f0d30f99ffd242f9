/* test_notifications.c - pairs of strings, told alone or when a submission is done. */
#include "compat.h"

#include <poll.h>
#include <stdio.h>
#include <time.h>

static notify_msg_t words(char *name, char *msg) {
    return (notify_msg_t){.name = name, .msg = msg};
}

/* Takes what is there until something is; at most 30 s. */
static notify_msg_t *taken(transfer_engine_t engine, int *n) {
    time_t end = time(NULL) + 30;
    notify_msg_t *list;

    while ((list = getNotifsFromEngine(engine, n)) == NULL) {
        assert_int_equal(*n, 0);
        assert_true(time(NULL) < end);
        poll(NULL, 0, 1);
    }
    return list;
}

static void notifications_arrive_in_order_and_are_drained_at_once(void **state) {
    const struct pair *pair = *state;
    char text[16];
    notify_msg_t *list;
    int n = -1;

    assert_null(getNotifsFromEngine(pair->there, &n));
    assert_int_equal(n, 0);
    for (int i = 0; i < 100; i++) {
        snprintf(text, sizeof(text), "%d", i);
        assert_int_equal(genNotifyInEngine(pair->here, (uint64_t)pair->segment, words((char[]){"count"}, text)), 0);
    }
    list = getNotifsFromEngine(pair->there, &n);
    assert_int_equal(n, 100);
    for (int i = 0; i < 100; i++) {
        snprintf(text, sizeof(text), "%d", i);
        assert_string_equal(list[i].name, "count");
        assert_string_equal(list[i].msg, text);
    }
    assert_int_equal(freeNotifsMsgBuf(list, n), 0);
    assert_null(getNotifsFromEngine(pair->there, &n));
    assert_int_equal(freeNotifsMsgBuf(NULL, 0), 0);
    assert_int_equal(freeNotifsMsgBuf(NULL, 1), -1);
}

static void strings_of_any_bytes_but_nul_are_kept(void **state) {
    const struct pair *pair = *state;
    static char large[60000];
    notify_msg_t *list;
    int n;

    memset(large, 0xfe, sizeof(large) - 1);
    assert_int_equal(genNotifyInEngine(pair->here, (uint64_t)pair->segment, words((char[]){""}, (char[]){""})), 0);
    assert_int_equal(genNotifyInEngine(pair->here, (uint64_t)pair->segment, words((char[]){"\n\x80"}, large)), 0);
    list = getNotifsFromEngine(pair->there, &n);
    assert_int_equal(n, 2);
    assert_string_equal(list[0].name, "");
    assert_string_equal(list[0].msg, "");
    assert_string_equal(list[1].name, "\n\x80");
    assert_string_equal(list[1].msg, large);
    assert_int_equal(freeNotifsMsgBuf(list, n), 0);
}

static void what_cannot_be_told_is_a_negative_code(void **state) {
    struct pair *pair = *state;
    static char large[70000];
    uint64_t segment = (uint64_t)pair->segment;

    memset(large, 'x', sizeof(large) - 1);
    assert_int_equal(genNotifyInEngine(pair->here, segment, words(large, large)), -1);
    assert_int_equal(genNotifyInEngine(pair->here, segment, words(NULL, large)), -1);
    assert_int_equal(genNotifyInEngine(pair->here, segment, words(large, NULL)), -1);
    assert_null(getNotifsFromEngine(pair->here, NULL));
    destroyTransferEngine(pair->there);
    pair->there = NULL;
    assert_true(genNotifyInEngine(pair->here, segment, words((char[]){"n"}, (char[]){"m"})) < 0);
}

static void whoever_is_told_of_a_submission_sees_its_bytes(void **state) {
    const struct pair *pair = *state;
    transfer_request_t requests[64];
    char text[16];

    for (int round = 0; round < 20; round++) {
        uint64_t batch = allocateBatchID(pair->here, 64);
        notify_msg_t *list;
        int n;

        memset(pair->near, round + 1, MIB);
        for (size_t i = 0; i < 64; i++)
            requests[i] = request_at(pair, OPCODE_WRITE, i * 16384, 16384);
        snprintf(text, sizeof(text), "%d", round);
        assert_int_equal(submitTransferWithNotify(pair->here, batch, requests, 64, words((char[]){"written"}, text)),
                         0);
        list = taken(pair->there, &n); /* though nobody has asked for a state */
        assert_int_equal(n, 1);
        assert_string_equal(list[0].name, "written");
        assert_string_equal(list[0].msg, text);
        assert_memory_equal(pair->far, pair->near, MIB);
        assert_int_equal(freeNotifsMsgBuf(list, n), 0);
        for (size_t i = 0; i < 64; i++)
            assert_int_equal(task_end(pair, batch, i, NULL), STATUS_COMPLETED);
        assert_int_equal(freeBatchID(pair->here, batch), 0);
    }
}

static void when_all_tasks_have_ended_the_peer_is_told_and_the_batch_can_be_freed(void **state) {
    const struct pair *pair = *state;
    transfer_request_t request = request_at(pair, OPCODE_WRITE, 0, 4096);

    for (int round = 0; round < 200; round++) {
        uint64_t batch = allocateBatchID(pair->here, 1);
        notify_msg_t *list;
        int n;

        assert_int_equal(submitTransferWithNotify(pair->here, batch, &request, 1, words((char[]){"n"}, (char[]){"m"})),
                         0);
        assert_int_equal(task_end(pair, batch, 0, NULL), STATUS_COMPLETED);
        list = getNotifsFromEngine(pair->there, &n);
        assert_int_equal(n, 1);
        assert_int_equal(freeNotifsMsgBuf(list, n), 0);
        assert_int_equal(freeBatchID(pair->here, batch), 0);
    }
}

static void nobody_is_told_of_a_submission_that_fails(void **state) {
    const struct pair *pair = *state;
    transfer_request_t requests[2] = {request_at(pair, OPCODE_WRITE, 0, 4096), request_at(pair, OPCODE_WRITE, 0, 4096)};
    uint64_t batch = allocateBatchID(pair->here, 2);
    int n;

    requests[1].target_offset = 4096;
    assert_int_equal(submitTransferWithNotify(pair->here, batch, requests, 2, words((char[]){"n"}, (char[]){"m"})), 0);
    assert_int_equal(task_end(pair, batch, 1, NULL), STATUS_FAILED);
    (void)task_end(pair, batch, 0, NULL);
    assert_int_equal(genNotifyInEngine(pair->here, (uint64_t)pair->segment, words((char[]){"last"}, (char[]){""})), 0);
    notify_msg_t *list = getNotifsFromEngine(pair->there, &n);
    assert_int_equal(n, 1);
    assert_string_equal(list[0].name, "last");
    assert_int_equal(freeNotifsMsgBuf(list, n), 0);
    assert_int_equal(freeBatchID(pair->here, batch), 0);
}

static void wrong_notifications_are_refused_with_their_submission(void **state) {
    const struct pair *pair = *state;
    transfer_request_t request = request_at(pair, OPCODE_WRITE, 0, 4096);
    uint64_t batch = allocateBatchID(pair->here, 1);

    assert_int_equal(submitTransferWithNotify(pair->here, batch, &request, 1, words(NULL, (char[]){"m"})), 1);
    assert_int_equal(submitTransferWithNotify(pair->here, batch, &request, 1, words((char[]){"n"}, NULL)), 1);
    assert_int_equal(submitTransferWithNotify(pair->here, batch, &request, 0, words((char[]){"n"}, (char[]){"m"})), 1);
    assert_int_equal(submitTransfer(pair->here, batch, &request, 1), 0);
    assert_int_equal(task_end(pair, batch, 0, NULL), STATUS_COMPLETED);
    assert_int_equal(freeBatchID(pair->here, batch), 0);
}

TESTS(notification, PAIR_TEST(notifications_arrive_in_order_and_are_drained_at_once),
      PAIR_TEST(strings_of_any_bytes_but_nul_are_kept), PAIR_TEST(what_cannot_be_told_is_a_negative_code),
      PAIR_TEST(whoever_is_told_of_a_submission_sees_its_bytes),
      PAIR_TEST(when_all_tasks_have_ended_the_peer_is_told_and_the_batch_can_be_freed),
      PAIR_TEST(nobody_is_told_of_a_submission_that_fails),
      PAIR_TEST(wrong_notifications_are_refused_with_their_submission));

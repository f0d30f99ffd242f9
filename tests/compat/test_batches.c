/* test_batches.c - batches: capacity, several submissions, states by task, busy, stale. */
#include "compat.h"

#include <stdio.h>
#include <unistd.h>

/* Sends stderr to a file from now on. A second is waited for: each has ten lines at most, also of the tests before. */
static int catch_words(FILE **file) {
    int before = dup(STDERR_FILENO);

    sleep(1);
    *file = tmpfile();
    assert_non_null(*file);
    assert_true(before >= 0 && dup2(fileno(*file), STDERR_FILENO) >= 0);
    return before;
}

static void release_words(FILE *file, int before, char *text, size_t size) {
    size_t length;

    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    rewind(file);
    length = fread(text, 1, size - 1, file);
    text[length] = '\0';
    fclose(file);
}

static void bytes_are_moved_both_ways_exactly(void **state) {
    static const size_t sizes[] = {0, 1, 511, 512, 513, 4095, 4096, 65535, 65536, MIB - 1, MIB};
    const struct pair *pair = *state;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int opcode = OPCODE_READ; opcode <= OPCODE_WRITE; opcode++) {
            uint8_t *to = opcode == OPCODE_READ ? pair->near : pair->far;
            uint8_t *from = opcode == OPCODE_READ ? pair->far : pair->near;

            write_over(from, MIB, 7, (uint8_t)(i + (size_t)opcode * 3));
            write_over(to, MIB, 0, 0xee);
            assert_int_equal(moved(pair, request_at(pair, opcode, 0, sizes[i])), STATUS_COMPLETED);
            assert_memory_equal(to, from, sizes[i]);
            for (size_t j = sizes[i]; j < MIB && j < sizes[i] + 64; j++)
                assert_int_equal(to[j], 0xee);
        }
}

static void a_batch_takes_several_submissions_up_to_its_capacity(void **state) {
    const struct pair *pair = *state;
    uint64_t batch = allocateBatchID(pair->here, 5), bytes;
    transfer_request_t requests[6];
    transfer_status_t status;

    for (size_t i = 0; i < 6; i++)
        requests[i] = request_at(pair, OPCODE_WRITE, i * 8192, 1000 + i);
    assert_int_equal(submitTransfer(pair->here, batch, requests, 6), 2);
    assert_int_equal(submitTransfer(pair->here, batch, requests, 2), 0);
    assert_int_equal(submitTransfer(pair->here, batch, requests + 2, 4), 2);
    assert_int_equal(submitTransfer(pair->here, batch, requests + 2, 1), 0);
    assert_int_equal(submitTransfer(pair->here, batch, requests + 3, 2), 0);
    assert_int_equal(submitTransfer(pair->here, batch, requests + 5, 1), 2);
    assert_int_equal(submitTransfer(pair->here, batch, requests, 0), 0);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(task_end(pair, batch, i, &bytes), STATUS_COMPLETED);
        assert_int_equal(bytes, 1000 + i);
        assert_memory_equal(pair->far + i * 8192, pair->near + i * 8192, 1000 + i);
    }
    assert_int_equal(getTransferStatus(pair->here, batch, 5, &status), 1);
    assert_int_equal(getTransferStatus(pair->here, batch, SIZE_MAX, &status), 1);
    assert_int_equal(getTransferStatus(pair->here, batch, 0, NULL), 1);
    assert_int_equal(freeBatchID(pair->here, batch), 0);
}

static void batches_of_1024_small_requests_as_nixl_makes_them(void **state) {
    const struct pair *pair = *state;
    static transfer_request_t requests[1024];
    uint64_t batch = allocateBatchID(pair->here, 1024);

    for (size_t i = 0; i < 1024; i++)
        requests[i] = request_at(pair, i % 2 ? OPCODE_READ : OPCODE_WRITE, i * 1024, 1024);
    assert_int_equal(submitTransfer(pair->here, batch, requests, 1024), 0);
    memset(requests, 0, sizeof(requests)); /* is ours again */
    for (size_t i = 0; i < 1024; i++)
        assert_int_equal(task_end(pair, batch, i, NULL), STATUS_COMPLETED);
    assert_memory_equal(pair->far, pair->near, MIB);
    assert_int_equal(freeBatchID(pair->here, batch), 0);
}

static void a_wrong_request_is_refused_with_all_of_its_call(void **state) {
    const struct pair *pair = *state;
    static uint8_t unregistered[4096];
    transfer_request_t requests[2] = {request_at(pair, OPCODE_WRITE, 0, 4096), request_at(pair, OPCODE_WRITE, 0, 100)};
    uint64_t batch = allocateBatchID(pair->here, 2);

    memset(pair->far, 1, 4096);
    memset(pair->near, 2, 4096);
    requests[1].opcode = 2;
    assert_int_equal(submitTransfer(pair->here, batch, requests, 2), 1);
    requests[1] = request_at(pair, OPCODE_WRITE, 0, 100);
    requests[1].source = unregistered;
    assert_int_equal(submitTransfer(pair->here, batch, requests, 2), 3);
    requests[1] = request_at(pair, OPCODE_WRITE, MIB - 4096, 4097);
    assert_int_equal(submitTransfer(pair->here, batch, requests, 2), 3);
    requests[1] = request_at(pair, OPCODE_WRITE, 0, UINT64_MAX);
    assert_int_not_equal(submitTransfer(pair->here, batch, requests, 2), 0);
    assert_int_equal(submitTransfer(pair->here, batch, NULL, 2), 1);
    assert_int_equal(pair->far[0], 1);
    requests[1] = request_at(pair, OPCODE_WRITE, 0, 100);
    assert_int_equal(submitTransfer(pair->here, batch, requests, 2), 0); /* none of that took a place */
    assert_int_equal(task_end(pair, batch, 0, NULL), STATUS_COMPLETED);
    assert_int_equal(task_end(pair, batch, 1, NULL), STATUS_COMPLETED);
    assert_int_equal(freeBatchID(pair->here, batch), 0);
}

static void one_request_to_a_wrong_address_fails_alone(void **state) {
    const struct pair *pair = *state;
    transfer_request_t requests[3];
    uint64_t batch = allocateBatchID(pair->here, 3), bytes;

    for (size_t i = 0; i < 3; i++)
        requests[i] = request_at(pair, OPCODE_WRITE, i * 4096, 4096);
    requests[1].target_offset = (uint64_t)(uintptr_t)(pair->far + MIB - 1);
    assert_int_equal(submitTransfer(pair->here, batch, requests, 3), 0);
    assert_int_equal(task_end(pair, batch, 0, NULL), STATUS_COMPLETED);
    assert_int_equal(task_end(pair, batch, 1, &bytes), STATUS_FAILED);
    assert_int_equal(bytes, 0);
    assert_int_equal(task_end(pair, batch, 2, NULL), STATUS_COMPLETED);
    assert_int_equal(freeBatchID(pair->here, batch), 0);
}

static void why_tasks_have_failed_is_said_once_for_a_submission(void **state) {
    const struct pair *pair = *state;
    uint64_t batch = allocateBatchID(pair->here, 4);
    transfer_request_t requests[3];
    char said[4096], wanted[256];
    FILE *file;
    int before = catch_words(&file);

    for (size_t i = 0; i < 3; i++)
        requests[i] = request_at(pair, OPCODE_WRITE, i * 4096, 4096);
    requests[1].target_offset = requests[2].target_offset = 0x1000;
    (void)submitTransfer(pair->here, batch, requests + 2, 1);
    (void)submitTransfer(pair->here, batch, requests, 3);
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < 4; i++)
            (void)task_end(pair, batch, i, NULL);
    release_words(file, before, said, sizeof(said));
    snprintf(wanted, sizeof(wanted),
             "mooncake: warning: getTransferStatus: task 0: request 0, WRITE of 4096 bytes at 0x1000 of %s by ",
             pair->address);
    assert_memory_equal(said, wanted, strlen(wanted));
    snprintf(wanted, sizeof(wanted),
             ": the peer has not registered this range\nmooncake: warning: getTransferStatus: "
             "tasks 1 to 3: request 1, WRITE of 4096 bytes at 0x1000 of %s by ",
             pair->address);
    assert_non_null(strstr(said, wanted));
    assert_string_equal(strrchr(said, ':'), ": the peer has not registered this range\n");
    assert_null(strchr(strchr(strchr(said, '\n') + 1, '\n') + 1, '\n'));
    assert_int_equal(freeBatchID(pair->here, batch), 0);
}

static void what_is_wrong_with_a_call_is_said_with_its_numbers(void **state) {
    const struct pair *pair = *state;
    uint64_t batch = allocateBatchID(pair->here, 4);
    transfer_request_t requests[5];
    transfer_status_t status;
    char said[4096], wanted[256];
    FILE *file;
    int before = catch_words(&file);

    for (size_t i = 0; i < 5; i++)
        requests[i] = request_at(pair, OPCODE_READ, i * 4096, 4096);
    (void)submitTransfer(pair->here, batch, requests, 1);
    (void)submitTransfer(pair->here, batch, requests, 5);
    (void)getTransferStatus(pair->here, batch, 9, &status);
    requests[1].target_id = 77;
    (void)submitTransfer(pair->here, batch, requests, 2);
    (void)closeSegment(pair->here, 77);
    requests[1].opcode = 7;
    (void)submitTransfer(pair->here, batch, requests, 2);
    (void)registerLocalMemory(pair->here, pair->near, 10, "*", 1);
    release_words(file, before, said, sizeof(said));
    assert_non_null(strstr(said, "submitTransfer: 5 tasks are more than the batch takes: it has 1 of 4\n"));
    assert_non_null(strstr(said, "getTransferStatus: no task 9: the batch has 1\n"));
    assert_non_null(strstr(said, "submitTransfer: no segment 77: it was closed, or never opened\n"));
    assert_non_null(strstr(said, "closeSegment: no segment 77: it was closed, or never opened\n"));
    assert_non_null(strstr(said, "submitTransfer: entry 1: no opcode 7\n"));
    snprintf(wanted, sizeof(wanted), "registerLocalMemory: memory that begins at %p is registered already\n",
             (void *)pair->near);
    assert_non_null(strstr(said, wanted));
    assert_int_equal(task_end(pair, batch, 0, NULL), STATUS_COMPLETED);
    assert_int_equal(freeBatchID(pair->here, batch), 0);
}

static void a_freed_or_invented_batch_is_an_error(void **state) {
    const struct pair *pair = *state;
    uint64_t batch = allocateBatchID(pair->here, 1), next;
    uint64_t wrong[] = {batch, 0, 1, INVALID_BATCH, (uint64_t)(uintptr_t)pair->here, (uint64_t)(uintptr_t)&wrong};
    transfer_request_t request = request_at(pair, OPCODE_WRITE, 0, 1);
    transfer_status_t status;

    assert_int_equal(freeBatchID(pair->here, batch), 0);
    next = allocateBatchID(pair->here, 1); /* in the place of the old one */
    assert_true(next != batch);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(submitTransfer(pair->here, wrong[i], &request, 1), 1);
        assert_int_equal(getTransferStatus(pair->here, wrong[i], 0, &status), 1);
        assert_int_equal(freeBatchID(pair->here, wrong[i]), 1);
    }
    assert_int_equal(submitTransfer(pair->there, next, &request, 1), 1); /* another engine's */
    assert_int_equal(getTransferStatus(pair->there, next, 0, &status), 1);
    assert_int_equal(freeBatchID(pair->there, next), 1);
    assert_int_equal(freeBatchID(pair->here, next), 0);
}

static void capacities_have_a_limit(void **state) {
    const struct pair *pair = *state;
    transfer_request_t request = request_at(pair, OPCODE_WRITE, 0, 1);
    uint64_t batch;

    assert_true(allocateBatchID(pair->here, SIZE_MAX) == INVALID_BATCH);
    assert_true(allocateBatchID(pair->here, (1 << 20) + 1) == INVALID_BATCH);
    batch = allocateBatchID(pair->here, 1 << 20);
    assert_true(batch != INVALID_BATCH);
    assert_int_equal(freeBatchID(pair->here, batch), 0);
    batch = allocateBatchID(pair->here, 0);
    assert_true(batch != INVALID_BATCH);
    assert_int_equal(submitTransfer(pair->here, batch, &request, 1), 2);
    assert_int_equal(freeBatchID(pair->here, batch), 0);
}

static void many_cycles_leave_nothing_behind(void **state) {
    const struct pair *pair = *state;
    transfer_request_t request = request_at(pair, OPCODE_WRITE, 0, 64);

    for (int i = 0; i < 3000; i++) {
        uint64_t batch = allocateBatchID(pair->here, 16);

        assert_true(batch != INVALID_BATCH);
        if (i % 10 == 0) {
            assert_int_equal(submitTransfer(pair->here, batch, &request, 1), 0);
            assert_int_equal(task_end(pair, batch, 0, NULL), STATUS_COMPLETED);
        }
        assert_int_equal(freeBatchID(pair->here, batch), 0);
    }
}

static void batches_of_a_destroyed_engine_are_stale(void **state) {
    struct pair *pair = *state;
    transfer_request_t request = request_at(pair, OPCODE_WRITE, 0, MIB);
    uint64_t batch = allocateBatchID(pair->here, 1);
    transfer_status_t status;

    assert_int_equal(submitTransfer(pair->here, batch, &request, 1), 0);
    destroyTransferEngine(pair->here);
    assert_int_equal(getTransferStatus(pair->here, batch, 0, &status), 1);
    assert_int_equal(freeBatchID(pair->here, batch), 1);
    assert_int_equal(freeBatchID(pair->there, batch), 1);
    pair->here = NULL;
}

TESTS(batch, PAIR_TEST(bytes_are_moved_both_ways_exactly),
      PAIR_TEST(a_batch_takes_several_submissions_up_to_its_capacity),
      PAIR_TEST(batches_of_1024_small_requests_as_nixl_makes_them),
      PAIR_TEST(a_wrong_request_is_refused_with_all_of_its_call), PAIR_TEST(one_request_to_a_wrong_address_fails_alone),
      PAIR_TEST(why_tasks_have_failed_is_said_once_for_a_submission),
      PAIR_TEST(what_is_wrong_with_a_call_is_said_with_its_numbers), PAIR_TEST(a_freed_or_invented_batch_is_an_error),
      PAIR_TEST(capacities_have_a_limit), PAIR_TEST(many_cycles_leave_nothing_behind),
      PAIR_TEST(batches_of_a_destroyed_engine_are_stale));

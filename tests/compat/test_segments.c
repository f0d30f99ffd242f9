/* test_segments.c - names become numbers; closing closes; a peer that was restarted under its name is found again. */
#include "compat.h"

#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static void one_name_has_one_number_until_it_is_closed_as_often_as_opened(void **state) {
    const struct pair *pair = *state;

    assert_int_equal(openSegment(pair->here, pair->address), pair->segment);
    assert_int_equal(openSegmentNoCache(pair->here, pair->address), pair->segment);
    assert_int_equal(closeSegment(pair->here, pair->segment), 0);
    assert_int_equal(closeSegment(pair->here, pair->segment), 0);
    assert_int_equal(moved(pair, request_at(pair, OPCODE_WRITE, 0, 100)), STATUS_COMPLETED);
    assert_int_equal(closeSegment(pair->here, pair->segment), 0);
    assert_int_equal(closeSegment(pair->here, pair->segment), -1);
}

static void a_closed_segment_is_an_error_and_opening_again_gives_another_number(void **state) {
    struct pair *pair = *state;
    notify_msg_t message = {.name = (char[]){"n"}, .msg = (char[]){"m"}};
    transfer_request_t request = request_at(pair, OPCODE_WRITE, 0, 100);
    uint64_t batch = allocateBatchID(pair->here, 1);
    int32_t old = pair->segment;

    assert_int_equal(closeSegment(pair->here, old), 0);
    assert_int_equal(submitTransfer(pair->here, batch, &request, 1), 1);
    assert_int_equal(genNotifyInEngine(pair->here, (uint64_t)old, message), -1);
    pair->segment = openSegment(pair->here, pair->address);
    assert_true(pair->segment > old);
    assert_int_equal(submitTransfer(pair->here, batch, &request, 1), 1);
    assert_int_equal(moved(pair, request_at(pair, OPCODE_WRITE, 0, 100)), STATUS_COMPLETED);
    assert_int_equal(freeBatchID(pair->here, batch), 0);
}

static void what_no_engine_answers_at_is_a_negative_code(void **state) {
    const struct pair *pair = *state;
    char silent[ADDRESS_TEXT];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* bound, but doesn't listen */

    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    snprintf(silent, sizeof(silent), "127.0.0.1:%u", ntohs(address.sin_port));
    assert_int_equal(openSegment(pair->here, silent), -102);
    assert_int_equal(openSegmentNoCache(pair->here, silent), -102);
    assert_int_equal(warmupEfaSegment(pair->here, silent), -102);
    close(fd);
    assert_int_equal(openSegment(pair->here, "no-such-host.invalid:1"), -101);
    assert_int_equal(openSegment(pair->here, "127.0.0.1"), -101); /* which port? */
    assert_int_equal(openSegment(pair->here, "a:b:c"), -101);
    assert_int_equal(openSegment(pair->here, ""), -101);
    assert_int_equal(openSegment(pair->here, NULL), -1);
}

static void numbers_that_were_never_given_are_errors(void **state) {
    const struct pair *pair = *state;
    static const int32_t numbers[] = {-1, INT32_MIN, INT32_MAX, 1000};
    notify_msg_t message = {.name = (char[]){"n"}, .msg = (char[]){"m"}};
    uint64_t batch = allocateBatchID(pair->here, 1);

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        transfer_request_t request = request_at(pair, OPCODE_WRITE, 0, 100);

        request.target_id = numbers[i];
        assert_int_equal(submitTransfer(pair->here, batch, &request, 1), 1);
        assert_int_equal(closeSegment(pair->here, numbers[i]), -1);
        assert_int_equal(genNotifyInEngine(pair->here, (uint64_t)(int64_t)numbers[i], message), -1);
    }
    assert_int_equal(genNotifyInEngine(pair->here, UINT64_C(1) << 32 | (uint64_t)pair->segment, message), -1);
    assert_int_equal(freeBatchID(pair->here, batch), 0);
}

static void the_local_segment_is_the_engine_itself(void **state) {
    const struct pair *pair = *state;
    notify_msg_t message = {.name = (char[]){"to"}, .msg = (char[]){"myself"}};
    transfer_request_t request = request_at(pair, OPCODE_WRITE, 0, 4096);
    notify_msg_t *got;
    int n;

    request.target_id = LOCAL_SEGMENT;
    request.target_offset = (uint64_t)(uintptr_t)(pair->near + 8192);
    memset(pair->near, 7, 4096);
    assert_int_equal(moved(pair, request), STATUS_COMPLETED);
    assert_memory_equal(pair->near + 8192, pair->near, 4096);
    assert_int_equal(genNotifyInEngine(pair->here, LOCAL_SEGMENT, message), 0);
    got = getNotifsFromEngine(pair->here, &n);
    assert_int_equal(n, 1);
    assert_string_equal(got[0].msg, "myself");
    assert_int_equal(freeNotifsMsgBuf(got, n), 0);
    assert_int_equal(closeSegment(pair->here, LOCAL_SEGMENT), 0);
    assert_int_equal(moved(pair, request), STATUS_COMPLETED);
}

static void an_engine_can_open_itself_by_name(void **state) {
    struct pair *pair = *state;
    char address[ADDRESS_TEXT];
    transfer_request_t request = request_at(pair, OPCODE_READ, 0, 4096);

    engine_address(pair->here, address);
    request.target_id = openSegment(pair->here, address);
    assert_true(request.target_id >= 1);
    request.target_offset = (uint64_t)(uintptr_t)(pair->near + 4096);
    assert_int_equal(moved(pair, request), STATUS_COMPLETED);
    assert_memory_equal(pair->near, pair->near + 4096, 4096);
}

/* Puts another engine in the place of `there`. */
static void restart(struct pair *pair) {
    char address[ADDRESS_TEXT];

    destroyTransferEngine(pair->there);
    pair->there = engine_new(pair->address);
    engine_address(pair->there, address);
    assert_string_equal(address, pair->address);
    assert_int_equal(registerLocalMemory(pair->there, pair->far, MIB, "*", 1), 0);
}

static void a_restarted_peer_gets_a_new_number_and_the_old_one_fails(void **state) {
    struct pair *pair = *state;
    int32_t old = pair->segment;

    for (int fresh = 0; fresh < 2; fresh++) {
        transfer_request_t request = request_at(pair, OPCODE_WRITE, 0, 4096);

        old = pair->segment;
        restart(pair);
        pair->segment = (fresh ? openSegmentNoCache : openSegment)(pair->here, pair->address);
        assert_true(pair->segment > old);
        assert_int_equal(openSegment(pair->here, pair->address), pair->segment);
        assert_int_equal(closeSegment(pair->here, pair->segment), 0);
        assert_int_equal(moved(pair, request), STATUS_FAILED); /* to the old number */
        memset(pair->near, 3 + fresh, 4096);
        assert_int_equal(moved(pair, request_at(pair, OPCODE_WRITE, 0, 4096)), STATUS_COMPLETED);
        assert_memory_equal(pair->far, pair->near, 4096);
        assert_int_equal(closeSegment(pair->here, old), 0);
        assert_int_equal(closeSegment(pair->here, old), -1);
    }
}

static void a_peer_that_is_gone_is_an_error_when_it_is_opened_again(void **state) {
    struct pair *pair = *state;

    destroyTransferEngine(pair->there);
    pair->there = NULL;
    assert_int_equal(openSegment(pair->here, pair->address), -102);
    assert_int_equal(moved(pair, request_at(pair, OPCODE_WRITE, 0, 4096)), STATUS_FAILED);
    assert_int_equal(closeSegment(pair->here, pair->segment), 0); /* still ours to close */
    assert_int_equal(openSegment(pair->here, pair->address), -102);
}

static void warming_up_says_whether_a_peer_answers_and_leaves_nothing_open(void **state) {
    const struct pair *pair = *state;
    transfer_engine_t other = engine_new("127.0.0.1");
    char address[ADDRESS_TEXT], links[8192];

    engine_address(other, address);
    assert_int_equal(warmupEfaSegment(pair->here, address), 0);
    assert_int_equal(warmupEfaSegment(pair->here, pair->address), 0);
    assert_int_equal(showLinks(pair->here, links, sizeof(links), 1), 0);
    assert_null(strstr(links, address));
    assert_non_null(strstr(links, pair->address));
    assert_int_equal(moved(pair, request_at(pair, OPCODE_WRITE, 0, 100)), STATUS_COMPLETED);
    destroyTransferEngine(other);
}

static void names_of_one_engine_are_segments_of_their_own(void **state) {
    const struct pair *pair = *state;
    char name[ADDRESS_TEXT];
    int32_t other;

    snprintf(name, sizeof(name), "localhost%s", strrchr(pair->address, ':'));
    other = openSegment(pair->here, name);
    if (other == -101 || other == -102) {
        print_message("localhost isn't 127.0.0.1 here\n");
        skip();
    }
    assert_true(other > pair->segment);
    assert_int_equal(closeSegment(pair->here, pair->segment), 0);
    assert_int_equal(openSegment(pair->here, name), other);
}

TESTS(segment, PAIR_TEST(one_name_has_one_number_until_it_is_closed_as_often_as_opened),
      PAIR_TEST(a_closed_segment_is_an_error_and_opening_again_gives_another_number),
      PAIR_TEST(what_no_engine_answers_at_is_a_negative_code), PAIR_TEST(numbers_that_were_never_given_are_errors),
      PAIR_TEST(the_local_segment_is_the_engine_itself), PAIR_TEST(an_engine_can_open_itself_by_name),
      PAIR_TEST(a_restarted_peer_gets_a_new_number_and_the_old_one_fails),
      PAIR_TEST(a_peer_that_is_gone_is_an_error_when_it_is_opened_again),
      PAIR_TEST(warming_up_says_whether_a_peer_answers_and_leaves_nothing_open),
      PAIR_TEST(names_of_one_engine_are_segments_of_their_own));

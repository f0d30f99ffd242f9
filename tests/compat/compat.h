/* compat.h - what the tests of libtransfer_engine.so share: two engines, and memory that both have registered. They
 * see the library by its header only. Assertions are for the main thread. */
#ifndef MC_TESTS_COMPAT_H
#define MC_TESTS_COMPAT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <transfer_engine_c.h>

#define MIB ((size_t)1 << 20)
#define ADDRESS_TEXT 64 /* as programs have it */

struct pair {
    transfer_engine_t here, there;
    char address[ADDRESS_TEXT]; /* of `there` */
    int32_t segment;            /* `there`, as a segment of `here` */
    uint8_t *near, *far;        /* MIB bytes each */
};

/* setup and teardown: *state is a struct pair. */
int pair_open(void **state);
int pair_close(void **state);
#define PAIR_TEST(test) cmocka_unit_test_setup_teardown(test, pair_open, pair_close)

/* Writes over memory whose bytes a peer has sent before; the thread sanitizer doesn't know that it has. */
void write_over(volatile uint8_t *memory, size_t size, uint8_t step, uint8_t first);

transfer_engine_t engine_new(const char *name);
void engine_address(transfer_engine_t engine, char text[ADDRESS_TEXT]);

/* A request at an offset of both memories. */
transfer_request_t request_at(const struct pair *pair, int opcode, size_t offset, size_t length);

/* Waits until a task has ended; its state. */
int task_end(const struct pair *pair, uint64_t batch, size_t task, uint64_t *ret_bytes);

/* Submits one request in a batch of its own, and waits; the state it ends in. */
int moved(const struct pair *pair, transfer_request_t request);

extern const struct CMUnitTest *engine_tests, *segment_tests, *memory_tests, *batch_tests, *notification_tests,
    *race_tests;
extern const size_t engine_test_count, segment_test_count, memory_test_count, batch_test_count, notification_test_count,
    race_test_count;
#define TESTS(group, ...)                                          \
    static const struct CMUnitTest group##_list[] = {__VA_ARGS__}; \
    const struct CMUnitTest *group##_tests = group##_list;         \
    const size_t group##_test_count = sizeof(group##_list) / sizeof(group##_list[0])

#endif

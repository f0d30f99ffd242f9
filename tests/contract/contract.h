/* contract.h - what the tests of the contract share: a pair of engines on the path under test, patterns, threads.
 * The suite is one program, run once for each path. Assertions are for the main thread; other threads note the line of
 * their first failure in their worker, and contract_run asserts that there is none.
 */
#ifndef MC_TESTS_CONTRACT_H
#define MC_TESTS_CONTRACT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <mooncake/mooncake.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CONTRACT_SANITIZED 1
#endif
#if __has_feature(thread_sanitizer)
#define CONTRACT_THREAD_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CONTRACT_SANITIZED 1
#endif
#if defined(__SANITIZE_THREAD__)
#define CONTRACT_THREAD_SANITIZED 1
#endif

#define MIB ((size_t)1 << 20)
#define MILLISECOND UINT64_C(1000000)
#define SECOND (1000 * MILLISECOND)
#define SPAN (10 * MIB) /* bytes of `near` and of `far` */
#define RIGHTS (MC_REMOTE_READ | MC_REMOTE_WRITE)
#define ADDRESS_TEXT 300

/* Looks at memory that another thread is writing, on purpose. */
#define RACY __attribute__((no_sanitize("thread"), noinline))

/* Two engines, or one twice on the path self, and memory that each has registered with all rights. */
struct pair {
    mc_engine *here;
    mc_engine *there;
    uint64_t peer;            /* `there`, as a peer of `here` */
    uint64_t near_id, far_id; /* of mc_memory_alloc's memory, which on process_vm is some other */
    uint8_t *near;            /* of `here` */
    uint8_t *far;             /* of `there` */
};

extern const char *contract_path; /* "self", "shm", "process_vm" (which is shm with ordinary memory) or "tcp" */

bool contract_is(const char *path);

/* Fewer under a sanitizer. */
size_t contract_scaled(size_t count);

/* The error struct of this thread, empty. */
struct mc_error *contract_error(void);

void contract_expect(int32_t wanted, int64_t got, const char *call, const char *file, int line);
#define IS(wanted, call) contract_expect((wanted), (call), #call, __FILE__, __LINE__)
#define OK(call) IS(MC_OK, call)

/* An engine that takes the path under test. */
mc_engine *contract_engine(void);
void contract_address(mc_engine *engine, char text[ADDRESS_TEXT]);
uint64_t contract_peer(mc_engine *here, mc_engine *there);

/* setup and teardown: *state is a struct pair. The path that is really taken is proved. */
int contract_open(void **state);
int contract_close(void **state);
/* Closes both engines, once. */
void contract_close_engines(struct pair *pair);
#define CONTRACT_TEST(test) cmocka_unit_test_setup_teardown(test, contract_open, contract_close)

/* Bytes that follow from the seed. */
void fill(void *bytes, size_t length, uint64_t seed);
uint64_t hash(const void *bytes, size_t length);
uint64_t random_next(uint64_t *seed);
void assert_same(const void *one, const void *other, size_t length);

struct mc_request request(const struct pair *pair, uint32_t opcode, size_t near_offset, size_t far_offset,
                          uint64_t length);
uint64_t submit(const struct pair *pair, const struct mc_request *requests, size_t count, uint64_t timeout_ns);
struct mc_request_status status_of(uint64_t batch, size_t index);

uint64_t now_ns(void);
size_t descriptor_count(void);
size_t thread_count(void);
size_t mapping_count(void);
size_t resident_bytes(void);

struct worker {
    const struct pair *pair;
    size_t index;
    pthread_t thread;
    int failed_line;
    void *context;
};

#define EXPECT(worker, condition)                       \
    do {                                                \
        if (!(condition) && (worker)->failed_line == 0) \
            (worker)->failed_line = __LINE__;           \
    } while (0)

void worker_start(struct worker *worker, void *(*run)(void *));
void worker_join(struct worker *worker);
/* `count` workers, at most 16, from start to end. */
void contract_run(const struct pair *pair, size_t count, void *(*run)(void *), void *context);

/* The parts of the suite. */
struct contract_part {
    const struct CMUnitTest *tests;
    size_t count;
};

#define CONTRACT_PART(name, tests) const struct contract_part name = {tests, sizeof(tests) / sizeof((tests)[0])}

extern const struct contract_part contract_bytes;
extern const struct contract_part contract_ranges;
extern const struct contract_part contract_guards;
extern const struct contract_part contract_batches;
extern const struct contract_part contract_queues;
extern const struct contract_part contract_cancels;
extern const struct contract_part contract_registration;
extern const struct contract_part contract_registration_races;
extern const struct contract_part contract_notifications;
extern const struct contract_part contract_notices;
extern const struct contract_part contract_closing;
extern const struct contract_part contract_handles;
extern const struct contract_part contract_arguments;
extern const struct contract_part contract_forks;
extern const struct contract_part contract_random_ends;
extern const struct contract_part contract_stalls; /* on the path tcp only */
extern const struct contract_part contract_damage; /* the same */

#endif

/* test_thread.c - threads are named and deaf to signals; waits end by the monotonic clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>

#include <cmocka.h>

#include "base/clock.h"
#include "os/thread.h"

struct seen {
    bool all_blocked;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool go;
    char name[16];
};

static void *look(void *context) {
    struct seen *seen = context;
    sigset_t mask;

    seen->all_blocked = true;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    for (int number = 1; number < NSIG; number++)
        if (number != SIGKILL && number != SIGSTOP && sigismember(&mask, number) == 0 &&
            (number < 32 || number >= SIGRTMIN)) /* between them are the C library's own */
            seen->all_blocked = false;
    pthread_mutex_lock(&seen->lock);
    while (!seen->go)
        (void)thread_cond_wait(&seen->changed, &seen->lock, CLOCK_NEVER);
    pthread_mutex_unlock(&seen->lock);
    return context;
}

static void a_thread_has_all_signals_blocked_and_its_name_and_the_caller_keeps_its_mask(void **state) {
    struct seen seen = {.lock = PTHREAD_MUTEX_INITIALIZER};
    sigset_t before, after;
    pthread_t thread;
    void *result = NULL;

    (void)state;
    thread_cond_init(&seen.changed);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(thread_start(&thread, "fifteen-bytes-x", look, &seen), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number < NSIG; number++)
        assert_int_equal(sigismember(&before, number), sigismember(&after, number));
    assert_int_equal(pthread_getname_np(thread, seen.name, sizeof(seen.name)), 0);
    pthread_mutex_lock(&seen.lock);
    seen.go = true;
    pthread_cond_signal(&seen.changed);
    pthread_mutex_unlock(&seen.lock);
    pthread_join(thread, &result);
    assert_ptr_equal(result, &seen);
    assert_true(seen.all_blocked);
    assert_string_equal(seen.name, "fifteen-bytes-x");
    pthread_cond_destroy(&seen.changed);
}

static void a_wait_ends_at_its_deadline_and_not_before(void **state) {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    uint64_t deadline = clock_after(clock_now(), 20 * CLOCK_MILLISECOND);
    int result;

    (void)state;
    thread_cond_init(&cond);
    pthread_mutex_lock(&lock);
    do
        result = thread_cond_wait(&cond, &lock, deadline);
    while (result == 0);
    assert_int_equal(result, ETIMEDOUT);
    assert_true(clock_now() >= deadline);
    assert_int_equal(thread_cond_wait(&cond, &lock, 0), ETIMEDOUT);
    pthread_mutex_unlock(&lock);
    pthread_cond_destroy(&cond);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_has_all_signals_blocked_and_its_name_and_the_caller_keeps_its_mask),
        cmocka_unit_test(a_wait_ends_at_its_deadline_and_not_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_fork.c - a child finds held locks free and marked descriptors closed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "os/fork.h"

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool stop;

static void *lock_and_unlock(void *context) {
    while (!atomic_load(&stop)) {
        pthread_mutex_lock(&held);
        fork_close_in_child(*(int *)context);
        fork_forget(*(int *)context);
        pthread_mutex_unlock(&held);
    }
    return NULL;
}

/* Exit status of a child that runs `check` with `fd`. */
static int in_child(int (*check)(int fd), int fd) {
    int status = 0;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        (void)alarm(10);
        _exit(check(fd));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static int lock_is_free(int fd) {
    pthread_mutex_lock(&held);
    fork_close_in_child(fd);
    fork_forget(fd);
    pthread_mutex_unlock(&held);
    return 0;
}

static void a_held_lock_is_free_in_the_child_of_a_busy_parent(void **state) {
    int fd = dup(STDERR_FILENO);
    pthread_t thread;

    (void)state;
    fork_hold(&held);
    assert_int_equal(pthread_create(&thread, NULL, lock_and_unlock, &fd), 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(in_child(lock_is_free, fd), 0);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    (void)close(fd);
}

static int is_open(int fd) {
    return fcntl(fd, F_GETFD) != -1;
}

static void a_marked_descriptor_is_closed_in_the_child_only(void **state) {
    int fd = dup(STDERR_FILENO);

    (void)state;
    assert_int_not_equal(in_child(is_open, fd), 0);
    fork_close_in_child(fd);
    assert_int_equal(in_child(is_open, fd), 0);
    assert_true(is_open(fd));
    fork_forget(fd);
    assert_int_not_equal(in_child(is_open, fd), 0);
    (void)close(fd);
}

static void a_closed_descriptors_number_is_safe_for_the_next_user(void **state) {
    int fd = dup(STDERR_FILENO), next;

    (void)state;
    fork_close_in_child(fd);
    errno = EDOM;
    fork_close(fd);
    assert_int_equal(errno, EDOM);
    assert_false(is_open(fd));
    next = dup(STDERR_FILENO);
    assert_int_equal(next, fd);
    assert_int_not_equal(in_child(is_open, next), 0);
    (void)close(next);
}

static void high_numbers_and_none_are_fine(void **state) {
    int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 900);

    (void)state;
    assert_true(fd >= 900);
    fork_forget(fd);
    fork_close_in_child(fd);
    assert_int_equal(in_child(is_open, fd), 0);
    fork_close(fd);
    fork_close_in_child(-1);
    fork_forget(-1);
    fork_forget(1 << 20);
    fork_close(-1);
}

/* In the child the set is empty, so that a grandchild keeps what the child has opened under the same number. */
static int grandchild_keeps(int fd) {
    int next = dup(STDERR_FILENO), status = 0;
    pid_t child;

    if (next != fd)
        return 1;
    child = fork();
    if (child == 0)
        _exit(is_open(next) ? 0 : 1);
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 2;
}

static void a_grandchild_keeps_what_the_child_has_opened(void **state) {
    int fd = dup(STDERR_FILENO);

    (void)state;
    fork_close_in_child(fd);
    assert_int_equal(in_child(grandchild_keeps, fd), 0);
    fork_close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_held_lock_is_free_in_the_child_of_a_busy_parent),
        cmocka_unit_test(a_marked_descriptor_is_closed_in_the_child_only),
        cmocka_unit_test(a_closed_descriptors_number_is_safe_for_the_next_user),
        cmocka_unit_test(high_numbers_and_none_are_fine),
        cmocka_unit_test(a_grandchild_keeps_what_the_child_has_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_log.c - lines reach the hook by level; the default one writes to stderr, but not without end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"

struct seen {
    int lines;
    int32_t level;
    char line[1100];
};

static void keep(int32_t level, const char *line, void *context) {
    struct seen *seen = context;

    seen->lines++;
    seen->level = level;
    (void)snprintf(seen->line, sizeof(seen->line), "%s", line);
}

static void a_line_reaches_the_hook_if_its_level_is_wanted(void **state) {
    struct seen seen = {0};

    (void)state;
    for (int32_t wanted = MC_LOG_ERROR; wanted <= MC_LOG_DEBUG; wanted++) {
        log_set(wanted, keep, &seen);
        for (int32_t level = MC_LOG_ERROR; level <= MC_LOG_DEBUG; level++) {
            seen.lines = 0;
            log_line(level, "number %d", 7);
            assert_int_equal(seen.lines, level <= wanted);
        }
    }
    assert_int_equal(seen.level, MC_LOG_DEBUG);
    assert_string_equal(seen.line, "number 7");
    log_set(MC_LOG_WARNING, NULL, NULL);
}

static void say_often(int count) {
    for (int i = 0; i < count; i++)
        log_sometimes(MC_LOG_WARNING, "again %d", i);
}

static void what_is_said_again_and_again_is_said_once_a_second(void **state) {
    const struct timespec pause = {.tv_sec = 1, .tv_nsec = 100000000};
    struct seen seen = {0};

    (void)state;
    log_set(MC_LOG_ERROR, keep, &seen);
    say_often(10); /* at this level nobody hears, and nothing is counted */
    log_set(MC_LOG_WARNING, keep, &seen);
    say_often(100);
    assert_in_range(seen.lines, 1, 2); /* 2 if it took a second */
    if (seen.lines == 1)
        assert_string_equal(seen.line, "again 0");
    nanosleep(&pause, NULL);
    seen.lines = 0;
    say_often(1);
    assert_int_equal(seen.lines, 1);
    assert_non_null(strstr(seen.line, "again 0 (and "));
    assert_non_null(strstr(seen.line, " more of this kind)"));
    log_set(MC_LOG_WARNING, NULL, NULL);
}

static void a_line_is_one_line_is_cut_and_leaves_errno_alone(void **state) {
    struct seen seen = {0};
    char words[3000];

    (void)state;
    log_set(MC_LOG_WARNING, keep, &seen);
    errno = EDOM;
    log_warning("a\nb");
    assert_string_equal(seen.line, "a?b");
    memset(words, 'x', sizeof(words));
    words[sizeof(words) - 1] = '\0';
    log_warning("%s", words);
    assert_int_equal(strlen(seen.line), 1023);
    assert_int_equal(errno, EDOM);
    log_set(MC_LOG_WARNING, NULL, NULL);
}

/* Runs `act` in a child and returns what it wrote to stderr, up to its end. */
static void capture(void (*act)(void), char *ret_text, size_t size) {
    int ends[2], status = 0;
    size_t length = 0;
    ssize_t got;
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)alarm(10);
        (void)dup2(ends[1], STDERR_FILENO);
        act();
        _exit(0);
    }
    (void)close(ends[1]);
    while ((got = read(ends[0], ret_text + length, size - 1 - length)) > 0)
        length += (size_t)got;
    ret_text[length] = '\0';
    (void)close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static size_t count(const char *text, const char *part) {
    size_t found = 0;

    while ((text = strstr(text, part)) != NULL) {
        found++;
        text += strlen(part);
    }
    return found;
}

static void write_three_levels(void) {
    log_line(MC_LOG_ERROR, "one");
    log_warning("two");
    log_debug("three");
}

static void the_default_hook_writes_warnings_and_errors_to_stderr(void **state) {
    char text[1000];

    (void)state;
    capture(write_three_levels, text, sizeof(text));
    assert_string_equal(text, "mooncake: error: one\nmooncake: warning: two\n");
}

static void write_a_flood(void) {
    struct timespec second = {.tv_sec = 1, .tv_nsec = 50000000};

    for (int i = 0; i < 1000; i++)
        log_warning("flood");
    (void)nanosleep(&second, NULL);
    log_warning("after");
}

static void a_flood_is_cut_and_its_rest_counted(void **state) {
    static char text[200000];

    (void)state;
    capture(write_a_flood, text, sizeof(text));
    /* At most ten a second; a slow machine may see the flood spread over more than one. */
    assert_in_range(count(text, "flood"), 10, 100);
    if (count(text, "flood") == 10)
        assert_non_null(strstr(text, "mooncake: warning: 990 more lines suppressed\nmooncake: warning: after\n"));
}

static atomic_bool stop_logging;

static void *log_on(void *context) {
    while (!atomic_load(&stop_logging))
        log_line(MC_LOG_ERROR, "%s", (const char *)context);
    return NULL;
}

static void drop(int32_t level, const char *line, void *context) {
    (void)level;
    (void)line;
    (void)context;
}

static void log_once(void) {
    log_set(MC_LOG_WARNING, NULL, NULL);
    log_warning("free");
}

static void the_lock_is_free_in_a_child_of_a_busy_parent(void **state) {
    char text[1000], word[] = "word";
    pthread_t thread;

    (void)state;
    log_set(MC_LOG_WARNING, drop, NULL);
    atomic_store(&stop_logging, false);
    assert_int_equal(pthread_create(&thread, NULL, log_on, word), 0);
    for (int i = 0; i < 50; i++) {
        capture(log_once, text, sizeof(text));
        assert_string_equal(text, "mooncake: warning: free\n");
    }
    atomic_store(&stop_logging, true);
    pthread_join(thread, NULL);
    log_set(MC_LOG_WARNING, NULL, NULL);
}

struct slow {
    sem_t entered;
    sem_t leave;
    sem_t replacing;
    atomic_bool left;
    atomic_bool late; /* log_set came back while the hook still ran */
};

static void be_slow(int32_t level, const char *line, void *context) {
    struct slow *slow = context;

    (void)level;
    (void)line;
    (void)sem_post(&slow->entered);
    while (sem_wait(&slow->leave) != 0)
        continue;
    atomic_store(&slow->left, true);
}

static void *log_slowly(void *context) {
    log_warning("slow");
    return context;
}

static void *replace_hook(void *context) {
    struct slow *slow = context;

    (void)sem_post(&slow->replacing);
    log_set(MC_LOG_WARNING, NULL, NULL);
    atomic_store(&slow->late, !atomic_load(&slow->left));
    return NULL;
}

static void a_replaced_hook_is_no_longer_running(void **state) {
    struct timespec moment = {.tv_nsec = 5000000};
    pthread_t logger, replacer;
    struct slow slow = {.left = false};

    (void)state;
    (void)sem_init(&slow.entered, 0, 0);
    (void)sem_init(&slow.leave, 0, 0);
    (void)sem_init(&slow.replacing, 0, 0);
    log_set(MC_LOG_WARNING, be_slow, &slow);
    assert_int_equal(pthread_create(&logger, NULL, log_slowly, NULL), 0);
    (void)sem_wait(&slow.entered);
    assert_int_equal(pthread_create(&replacer, NULL, replace_hook, &slow), 0);
    (void)sem_wait(&slow.replacing);
    (void)nanosleep(&moment, NULL); /* a chance to be wrong; being right doesn't depend on it */
    (void)sem_post(&slow.leave);
    pthread_join(replacer, NULL);
    pthread_join(logger, NULL);
    assert_false(atomic_load(&slow.late));
}

/* This program again, with the level in its environment: the level is read once in a process. */
static void run_with_level(const char *level, char *ret_text, size_t size) {
    int ends[2], status = 0;
    size_t length = 0;
    ssize_t got;
    pid_t child;

    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        (void)setenv("MC_LOG_LEVEL", level, 1);
        (void)execl("/proc/self/exe", "test-log", "write", (char *)NULL);
        _exit(1);
    }
    (void)close(ends[1]);
    while ((got = read(ends[0], ret_text + length, size - 1 - length)) > 0)
        length += (size_t)got;
    ret_text[length] = '\0';
    (void)close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void the_variable_sets_the_first_level(void **state) {
    char text[1000];

    (void)state;
    run_with_level("error", text, sizeof(text));
    assert_string_equal(text, "mooncake: error: one\n");
    run_with_level("debug", text, sizeof(text));
    assert_string_equal(text, "mooncake: error: one\nmooncake: warning: two\nmooncake: debug: three\n");
    run_with_level("loud", text, sizeof(text));
    assert_string_equal(text, "mooncake: warning: MC_LOG_LEVEL is \"loud\", not error, warning, info or debug\n"
                              "mooncake: error: one\nmooncake: warning: two\n");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_reaches_the_hook_if_its_level_is_wanted),
        cmocka_unit_test(a_line_is_one_line_is_cut_and_leaves_errno_alone),
        cmocka_unit_test(what_is_said_again_and_again_is_said_once_a_second),
        cmocka_unit_test(the_default_hook_writes_warnings_and_errors_to_stderr),
        cmocka_unit_test(a_flood_is_cut_and_its_rest_counted),
        cmocka_unit_test(the_lock_is_free_in_a_child_of_a_busy_parent),
        cmocka_unit_test(a_replaced_hook_is_no_longer_running),
        cmocka_unit_test(the_variable_sets_the_first_level),
    };

    if (argc == 2 && strcmp(argv[1], "write") == 0) {
        write_three_levels();
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

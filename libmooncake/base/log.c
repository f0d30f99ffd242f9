/* base/log.c - the log hook and the default one, which writes to stderr at a bounded rate.
 *
 * Owns: the process-wide level, hook and rate window.
 *
 * Threads: any. `lock` is held while a hook runs, so that a replaced hook is no longer running; it is the innermost
 * lock of the library, and is held over fork. The level is atomic, so that a line that isn't wanted costs one load.
 */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/text.h"

#define LINE_MAX_BYTES 1024
#define LINES_PER_WINDOW 10u
#define WINDOW CLOCK_SECOND

static const char *const level_names[] = {"error", "warning", "info", "debug"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t level_once = PTHREAD_ONCE_INIT;
static atomic_int wanted = MC_LOG_WARNING;
static mc_log_hook current_hook; /* NULL: the default one */
static void *current_context;
static struct {
    uint64_t began;
    uint32_t lines;
    uint64_t suppressed;
} window;

/* One write a line, past stdio, whose lock may be lost in a fork. */
static void write_line(int32_t level, const char *line) {
    char text[LINE_MAX_BYTES + 64];
    int length = snprintf(text, sizeof(text), "mooncake: %s: %s\n", level_names[level], line);
    ssize_t written;

    do
        written = write(STDERR_FILENO, text, (size_t)length);
    while (written < 0 && errno == EINTR);
}

/* With the lock held. */
static void default_hook(int32_t level, const char *line) {
    uint64_t now = clock_now();

    if (window.lines == 0 || now - window.began >= WINDOW) {
        if (window.suppressed > 0) {
            char words[64];

            (void)snprintf(words, sizeof(words), "%llu more lines suppressed", (unsigned long long)window.suppressed);
            write_line(MC_LOG_WARNING, words);
        }
        window.began = now;
        window.lines = 0;
        window.suppressed = 0;
    }
    if (window.lines < LINES_PER_WINDOW) {
        window.lines++;
        write_line(level, line);
    } else {
        window.suppressed++;
    }
}

static void read_level(void) {
    const char *name = config_text(SETTING_LOG_LEVEL, NULL);
    char words[128];

    for (int level = MC_LOG_ERROR; level <= MC_LOG_DEBUG; level++) {
        if (strcmp(name, level_names[level]) == 0) {
            atomic_store_explicit(&wanted, level, memory_order_relaxed);
            return;
        }
    }
    (void)snprintf(words, sizeof(words), "MC_LOG_LEVEL is \"%.40s\", not error, warning, info or debug", name);
    text_one_line(words, false);
    write_line(MC_LOG_WARNING, words);
}

void log_line(int32_t level, const char *format, ...) {
    int saved = errno;
    char line[LINE_MAX_BYTES];
    va_list arguments;
    int length;

    (void)pthread_once(&level_once, read_level);
    if (level < MC_LOG_ERROR || level > atomic_load_explicit(&wanted, memory_order_relaxed))
        return;
    va_start(arguments, format);
    length = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (length >= 0) {
        text_one_line(line, length >= (int)sizeof(line));
        pthread_mutex_lock(&lock);
        if (current_hook != NULL)
            current_hook(level, line, current_context);
        else
            default_hook(level, line);
        pthread_mutex_unlock(&lock);
    }
    errno = saved;
}

void log_line_sometimes(struct log_place *place, int32_t level, const char *format, ...) {
    uint64_t now, next, left_out;
    char words[LINE_MAX_BYTES];
    va_list arguments;

    (void)pthread_once(&level_once, read_level);
    if (level < MC_LOG_ERROR || level > atomic_load_explicit(&wanted, memory_order_relaxed))
        return;
    now = clock_now();
    next = atomic_load(&place->next);
    if (now < next || !atomic_compare_exchange_strong(&place->next, &next, now + WINDOW)) {
        atomic_fetch_add(&place->left_out, 1);
        return;
    }
    left_out = atomic_exchange(&place->left_out, 0);
    va_start(arguments, format);
    (void)vsnprintf(words, sizeof(words), format, arguments);
    va_end(arguments);
    if (left_out > 0)
        log_line(level, "%s (and %llu more of this kind)", words, (unsigned long long)left_out);
    else
        log_line(level, "%s", words);
}

void log_set(int32_t level, mc_log_hook hook, void *context) {
    (void)pthread_once(&level_once, read_level);
    pthread_mutex_lock(&lock);
    current_hook = hook;
    current_context = context;
    pthread_mutex_unlock(&lock);
    atomic_store_explicit(&wanted, level, memory_order_relaxed);
}

static void lock_for_fork(void) {
    pthread_mutex_lock(&lock);
}

static void unlock_after_fork(void) {
    pthread_mutex_unlock(&lock);
}

/* Locks are taken for a fork in the reverse order of registration: this one, which is the innermost, comes first here.
 */
__attribute__((constructor(101))) static void log_init(void) {
    (void)pthread_atfork(lock_for_fork, unlock_after_fork, unlock_after_fork);
}

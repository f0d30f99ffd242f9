/* compat/words.c - warnings of the shims.
 *
 * The library's own log isn't open to others, and its hook is for its lines. These look the same, at the same rate.
 * Owns the window of the rate: one word, so that no lock can be lost in a fork.
 */
#include "compat/words.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024
#define LINES_A_SECOND 10

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool silent;
static _Atomic uint64_t window; /* the second << 8 | lines in it */

static void read_level(void) {
    const char *level = getenv("MC_LOG_LEVEL");

    silent = level != NULL && strcmp(level, "error") == 0;
}

static bool may_write(void) {
    uint64_t before = atomic_load(&window), after;
    struct timespec now;

    (void)pthread_once(&once, read_level);
    if (silent)
        return false;
    clock_gettime(CLOCK_MONOTONIC, &now);
    do {
        after = before >> 8 == (uint64_t)now.tv_sec ? before + 1 : ((uint64_t)now.tv_sec << 8 | 1);
        if ((after & 0xff) > LINES_A_SECOND)
            return false;
    } while (!atomic_compare_exchange_weak(&window, &before, after));
    return true;
}

void words_warn(const char *format, ...) {
    static const char prefix[] = "mooncake: warning: ";
    int saved = errno;
    char line[LINE_MAX_BYTES];
    size_t used = sizeof(prefix) - 1;
    va_list arguments;
    int length;

    if (!may_write())
        return;
    memcpy(line, prefix, sizeof(prefix));
    va_start(arguments, format);
    length = vsnprintf(line + used, sizeof(line) - used, format, arguments);
    va_end(arguments);
    if (length >= 0) {
        used += strlen(line + used);
        for (char *byte = line; byte < line + used; byte++)
            if ((unsigned char)*byte < 0x20 || *byte == 0x7f)
                *byte = '?';
        line[used] = '\n'; /* in the place of the NUL: one write a line */
        while (write(STDERR_FILENO, line, used + 1) < 0 && errno == EINTR)
            ;
    }
    errno = saved;
}

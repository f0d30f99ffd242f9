/* base/log.h - one line to the log hook. */
#ifndef MC_BASE_LOG_H
#define MC_BASE_LOG_H

#include <stdatomic.h>
#include <stdint.h>

#include <mooncake/log.h>

/* Formats a line and hands it to the hook if the level is enabled. Any thread. */
__attribute__((format(printf, 2, 3))) void log_line(int32_t level, const char *format, ...);

/* Sets level and hook (NULL: the default one); on return the former hook is no longer running. The level must be valid.
 */
void log_set(int32_t level, mc_log_hook hook, void *context);

/* What one place has to say again and again: at most a line a second, with how many more there were. Static, zero. */
struct log_place {
    _Atomic uint64_t next; /* clock_now's time of the next line */
    _Atomic uint64_t left_out;
};

__attribute__((format(printf, 3, 4))) void log_line_sometimes(struct log_place *place, int32_t level,
                                                              const char *format, ...);

#define log_sometimes(level, ...)                            \
    do {                                                     \
        static struct log_place log_place_;                  \
        log_line_sometimes(&log_place_, level, __VA_ARGS__); \
    } while (0)

#define log_warning(...) log_line(MC_LOG_WARNING, __VA_ARGS__)
#define log_debug(...) log_line(MC_LOG_DEBUG, __VA_ARGS__)

#endif

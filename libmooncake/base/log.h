/* base/log.h - one line to the log hook. */
#ifndef MC_BASE_LOG_H
#define MC_BASE_LOG_H

#include <mooncake/log.h>

/* Formats a line and hands it to the hook if the level is enabled. Any thread. */
__attribute__((format(printf, 2, 3))) void log_line(int32_t level, const char *format, ...);

/* Sets level and hook (NULL: the default one); on return the former hook is no longer running. The level must be valid.
 */
void log_set(int32_t level, mc_log_hook hook, void *context);

#define log_warning(...) log_line(MC_LOG_WARNING, __VA_ARGS__)
#define log_debug(...) log_line(MC_LOG_DEBUG, __VA_ARGS__)

#endif

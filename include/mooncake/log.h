/* mooncake/log.h - where the library's few log lines go.
 *
 * Library code logs at debug, and at warning only what no caller would otherwise learn of. The default hook writes
 * warnings and errors to stderr, rate-limited. MC_LOG_LEVEL (error, warning, info, debug) sets the first level.
 */
#ifndef MOONCAKE_LOG_H
#define MOONCAKE_LOG_H

#include <mooncake/types.h>

#define MC_LOG_ERROR 0
#define MC_LOG_WARNING 1
#define MC_LOG_INFO 2
#define MC_LOG_DEBUG 3

MC_BEGIN_DECLS

/* Called for each line, from any thread, possibly with locks of the library held: it must not call the library.
 * `line` has no newline and lives during the call only. */
typedef void (*mc_log_hook)(int32_t level, const char *line, void *context);

/* Replaces the hook; NULL brings the default back. On return the former hook is no longer running in any thread.
 * MC_ERR_INVALID_ARGUMENT if level is not one of MC_LOG_*. */
MC_API int32_t mc_log_set(int32_t level, mc_log_hook hook, void *context);

MC_END_DECLS

#endif

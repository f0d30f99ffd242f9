/* base/status.h - fills the caller's struct mc_error with words. */
#ifndef MC_BASE_STATUS_H
#define MC_BASE_STATUS_H

#include <mooncake/error.h>

/* Stores code, errno (0 if none) and words in *error, as far as its struct_size allows, and returns `code`, so that
 * a failing function ends with `return status_set(error, …)`. A NULL error, or one with an unknown struct_size, is left
 * alone. Words that don't fit are cut, and control characters become '?'. "%m" is the text of system_errno. Any thread.
 */
__attribute__((format(printf, 4, 5))) int32_t status_set(struct mc_error *error, int32_t code, int system_errno,
                                                         const char *format, ...);

/* What mc_status_name, mc_status_text and mc_status_retryable answer. */
const char *status_name(int32_t status);
const char *status_text(int32_t status);
int32_t status_retryable(int32_t status);

#endif

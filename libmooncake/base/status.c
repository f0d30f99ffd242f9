/* base/status.c - the status table in words, and the caller's struct mc_error.
 *
 * Owns nothing; any thread.
 *
 * Invariant: codes are unique, since each is a case of the switches below.
 */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/text.h"

_Static_assert(sizeof(struct mc_error) == 256, "struct mc_error is part of the ABI");

const char *status_name(int32_t status) {
    switch (status) {
#define CASE(name, code, retryable, python, text) \
    case (code):                                  \
        return "MC_" #name;
        MC_STATUS_TABLE(CASE)
#undef CASE
    default:
        return "MC_ERR_UNKNOWN";
    }
}

const char *status_text(int32_t status) {
    switch (status) {
#define CASE(name, code, retryable, python, text) \
    case (code):                                  \
        return (text);
        MC_STATUS_TABLE(CASE)
#undef CASE
    default:
        return "unknown status";
    }
}

int32_t status_retryable(int32_t status) {
    switch (status) {
#define CASE(name, code, retryable, python, text) \
    case (code):                                  \
        return (retryable);
        MC_STATUS_TABLE(CASE)
#undef CASE
    default:
        return 0;
    }
}

int32_t status_set(struct mc_error *error, int32_t code, int system_errno, const char *format, ...) {
    int saved = errno;
    va_list arguments;
    int length;

    if (error == NULL || error->struct_size < sizeof(*error))
        return code;
    error->code = code;
    error->system_errno = system_errno;
    errno = system_errno;
    va_start(arguments, format);
    length = vsnprintf(error->message, sizeof(error->message), format, arguments);
    va_end(arguments);
    if (length < 0)
        error->message[0] = '\0';
    text_one_line(error->message, length >= (int)sizeof(error->message));
    errno = saved;
    return code;
}

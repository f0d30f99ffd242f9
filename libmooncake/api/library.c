/* api/library.c - the public calls about the library itself: versions, status words, the log. */
#include <mooncake/mooncake.h>

#include "base/log.h"
#include "base/status.h"

#ifndef MOONCAKE_VERSION
#error "the build defines MOONCAKE_VERSION, the library's version as a string"
#endif

uint32_t mc_api_version(void) {
    return MC_API_VERSION;
}

const char *mc_version(void) {
    return MOONCAKE_VERSION;
}

const char *mc_status_name(int32_t status) {
    return status_name(status);
}

const char *mc_status_text(int32_t status) {
    return status_text(status);
}

int32_t mc_status_retryable(int32_t status) {
    return status_retryable(status);
}

int32_t mc_log_set(int32_t level, mc_log_hook hook, void *context) {
    if (level < MC_LOG_ERROR || level > MC_LOG_DEBUG)
        return MC_ERR_INVALID_ARGUMENT;
    log_set(level, hook, context);
    return MC_OK;
}

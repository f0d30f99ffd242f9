/* compat/transfer_engine/results.c - the reference's codes for the library's statuses. Owns nothing; any thread. */
#include <stdarg.h>
#include <stdio.h>

#include "compat/words.h"

#include "compat/transfer_engine/inside.h"

#define CODE_INVALID 1
#define CODE_TOO_MANY 2
#define CODE_NOT_REGISTERED 3
#define CODE_BUSY 4
#define CODE_NO_DEVICE 6
#define CODE_OVERLAP 7
#define CODE_NOT_SUPPORTED 8
#define CODE_NAME 101
#define CODE_SOCKET 102
#define CODE_REFUSED 104
#define CODE_DIRECTORY 200
#define CODE_ENDPOINT 201

static int code_of(int32_t status) {
    switch (status) {
    case MC_OK:
        return 0;
    case MC_ERR_TOO_MANY:
    case MC_ERR_QUEUE_FULL:
        return CODE_TOO_MANY;
    case MC_ERR_NOT_REGISTERED:
        return CODE_NOT_REGISTERED;
    case MC_ERR_BUSY:
    case MC_ERR_PENDING:
        return CODE_BUSY;
    case MC_ERR_NOT_SUPPORTED:
        return CODE_NO_DEVICE;
    case MC_ERR_OVERLAP:
        return CODE_OVERLAP;
    case MC_ERR_ADDRESS:
    case MC_ERR_NAME_NOT_FOUND:
        return CODE_NAME;
    case MC_ERR_UNREACHABLE:
    case MC_ERR_CONNECTION_LOST:
    case MC_ERR_TIMEOUT:
        return CODE_SOCKET;
    case MC_ERR_AUTHENTICATION:
    case MC_ERR_VERSION:
    case MC_ERR_PROTOCOL:
        return CODE_REFUSED;
    case MC_ERR_NOT_FOUND:
    case MC_ERR_UNAVAILABLE:
        return CODE_DIRECTORY;
    case MC_ERR_STALE_PEER:
        return CODE_ENDPOINT;
    default:
        return CODE_INVALID;
    }
}

int result_of(int32_t status) {
    return -code_of(status);
}

int result_of_batch(int32_t status) {
    return status == MC_ERR_NOT_SUPPORTED ? CODE_NOT_SUPPORTED : code_of(status);
}

int32_t result_words(struct mc_error *error, int32_t status, const char *format, ...) {
    va_list arguments;

    error->code = status;
    va_start(arguments, format);
    (void)vsnprintf(error->message, sizeof(error->message), format, arguments);
    va_end(arguments);
    return status;
}

int result_say(const char *what, int32_t status, const struct mc_error *error) {
    bool has_words = error != NULL && error->code == status && error->message[0] != '\0';

    words_warn("%s: %s", what, has_words ? error->message : mc_status_text(status));
    return result_of(status);
}

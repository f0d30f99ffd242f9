/* compat/store/results.c - the reference's codes for the library's statuses. Owns nothing; any thread. */
#include "compat/store/inside.h"

#include "compat/words.h"

#define CODE_NO_SPACE (-200)
#define CODE_NO_ANSWER (-900)
#define CODE_LATE (-901)
#define CODE_INTERNAL (-1)
#define OWN_CODES (-2000) /* the library's own begin here; those above are the reference's */

int shim_code(int32_t status) {
    switch (status) {
    case MC_ERR_BUFFER_TOO_SMALL:
    case MC_ERR_INVALID_HANDLE:
    case MC_ERR_CLOSED:
    case MC_ERR_FORKED:
    case MC_ERR_NOT_REGISTERED:
    case MC_ERR_OVERLAP:
    case MC_ERR_ADDRESS:
        return RESULT_INVALID;
    case MC_ERR_TOO_LARGE:
    case MC_ERR_NO_MEMORY:
    case MC_ERR_TOO_MANY:
        return CODE_NO_SPACE;
    case MC_ERR_UNAVAILABLE:
    case MC_ERR_UNREACHABLE:
    case MC_ERR_CONNECTION_LOST:
    case MC_ERR_STALE_PEER:
    case MC_ERR_AUTHENTICATION:
    case MC_ERR_NAME_NOT_FOUND:
    case MC_ERR_GONE:
    case MC_ERR_EPOCH:
    case MC_ERR_EXPELLED:
        return CODE_NO_ANSWER;
    case MC_ERR_TIMEOUT:
    case MC_ERR_PENDING:
    case MC_ERR_INDETERMINATE:
        return CODE_LATE;
    default:
        return status > OWN_CODES ? status : CODE_INTERNAL;
    }
}

int64_t shim_result(const char *what, int64_t result, const struct mc_error *error) {
    int32_t status = (int32_t)result;
    bool told = error != NULL && error->code == status && error->message[0] != '\0';

    if (result >= 0)
        return result;
    if (status != MC_ERR_NOT_FOUND && status != MC_ERR_ALREADY_EXISTS)
        words_warn("%s: %s (%s)", what, told ? error->message : mc_status_text(status), mc_status_name(status));
    return shim_code(status);
}

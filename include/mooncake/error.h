/* mooncake/error.h - status codes, and the words that go with them.
 *
 * Every call returns 0 (MC_OK) or a count on success and a negative code of this table on failure. Codes are stable:
 * a number, once released, never changes its meaning. The table is the only place where codes are made: constants,
 * names, texts and the Python exceptions all come from it.
 */
#ifndef MOONCAKE_ERROR_H
#define MOONCAKE_ERROR_H

#include <mooncake/types.h>

/* X(name, code, retryable, python exception base, text) */
#define MC_STATUS_TABLE(X)                                                                       \
    X(OK, 0, 0, "", "success")                                                                   \
    X(ERR_INTERNAL, -1, 0, "RuntimeError", "internal error")                                     \
    X(ERR_BUFFER_TOO_SMALL, -10, 0, "ValueError", "the buffer is too small for the value")       \
    X(ERR_SEGMENT_NOT_FOUND, -101, 0, "LookupError", "no such segment")                          \
    X(ERR_NO_SPACE, -200, 1, "RuntimeError", "no space in the pool")                             \
    X(ERR_INVALID_KEY, -400, 0, "ValueError", "a key has 1 to 4096 bytes")                       \
    X(ERR_INVALID_ARGUMENT, -600, 0, "ValueError", "invalid argument")                           \
    X(ERR_NOT_FOUND, -704, 0, "KeyError", "no such key")                                         \
    X(ERR_ALREADY_EXISTS, -705, 0, "RuntimeError", "the key exists")                             \
    X(ERR_CHECKSUM_MISMATCH, -801, 1, "OSError", "checksum mismatch")                            \
    X(ERR_UNAVAILABLE, -1010, 1, "ConnectionError", "the master does not serve now")             \
    X(ERR_NOT_SUPPORTED, -1012, 0, "NotImplementedError", "not supported")                       \
    X(ERR_NO_MEMORY, -2000, 1, "MemoryError", "out of memory")                                   \
    X(ERR_SYSTEM, -2001, 0, "OSError", "a system call failed")                                   \
    X(ERR_INVALID_HANDLE, -2002, 0, "ValueError", "invalid or stale handle")                     \
    X(ERR_CLOSED, -2003, 0, "ValueError", "closed, or being closed")                             \
    X(ERR_BUSY, -2004, 1, "RuntimeError", "still in use")                                        \
    X(ERR_TOO_MANY, -2005, 1, "RuntimeError", "too many objects of this kind")                   \
    X(ERR_PENDING, -2006, 1, "RuntimeError", "not finished yet")                                 \
    X(ERR_TIMEOUT, -2007, 1, "TimeoutError", "deadline passed")                                  \
    X(ERR_CANCELLED, -2008, 0, "RuntimeError", "cancelled")                                      \
    X(ERR_NOT_REGISTERED, -2009, 0, "ValueError", "address range is not in registered memory")   \
    X(ERR_OVERLAP, -2010, 0, "ValueError", "address range overlaps a registered one")            \
    X(ERR_ACCESS_DENIED, -2011, 0, "PermissionError", "access rights forbid it")                 \
    X(ERR_UNREACHABLE, -2012, 1, "ConnectionError", "no engine answers at the address")          \
    X(ERR_CONNECTION_LOST, -2013, 1, "ConnectionError", "connection lost")                       \
    X(ERR_STALE_PEER, -2014, 0, "ConnectionError", "the peer was restarted since it was opened") \
    X(ERR_GUARD_MISMATCH, -2015, 0, "RuntimeError", "guard value differs")                       \
    X(ERR_PROTOCOL, -2016, 0, "ConnectionError", "the peer broke the protocol")                  \
    X(ERR_VERSION, -2017, 0, "ConnectionError", "no common protocol or interface version")       \
    X(ERR_AUTHENTICATION, -2018, 0, "PermissionError", "the cluster keys differ")                \
    X(ERR_ADDRESS, -2019, 0, "ValueError", "malformed address")                                  \
    X(ERR_NAME_NOT_FOUND, -2020, 1, "ConnectionError", "host name not found")                    \
    X(ERR_FORKED, -2021, 0, "RuntimeError", "handle of the parent process used after fork")      \
    X(ERR_TOO_LARGE, -2022, 0, "ValueError", "too large")                                        \
    X(ERR_QUEUE_FULL, -2023, 1, "RuntimeError", "the receiver's queue is full")                  \
    X(ERR_INDETERMINATE, -2024, 0, "RuntimeError", "whether it was done is not known")           \
    X(ERR_GONE, -2025, 1, "RuntimeError", "what was reserved is gone")                           \
    X(ERR_EPOCH, -2026, 1, "ConnectionError", "the master has another epoch")                    \
    X(ERR_EXPELLED, -2027, 1, "ConnectionError", "the master has given the segment up")

enum mc_status_code {
#define MC_STATUS_CONSTANT(name, code, retryable, python, text) MC_##name = (code),
    MC_STATUS_TABLE(MC_STATUS_CONSTANT)
#undef MC_STATUS_CONSTANT
};

/* Filled on failure where a call takes one; owned by the caller, NULL is fine. Untouched on success. */
struct mc_error {
    uint32_t struct_size; /* sizeof(struct mc_error), set by the caller */
    int32_t code;         /* what the call returned */
    int32_t system_errno; /* errno of the system call that failed, else 0 */
    char message[244];    /* one line of words, NUL-terminated */
};

/* What a struct mc_error begins as: `struct mc_error error = MC_ERROR_INIT;` */
#define MC_ERROR_INIT                    \
    {                                    \
        sizeof(struct mc_error), 0, 0, { \
            0                            \
        }                                \
    }

MC_BEGIN_DECLS

/* "MC_ERR_BUSY" for MC_ERR_BUSY; "MC_ERR_UNKNOWN" for a number that is no code. Static storage. */
MC_API const char *mc_status_name(int32_t status);

/* One line of words for a code. Static storage. */
MC_API const char *mc_status_text(int32_t status);

/* 1 if the same call may succeed later without a change by the caller, else 0. */
MC_API int32_t mc_status_retryable(int32_t status);

MC_END_DECLS

#endif

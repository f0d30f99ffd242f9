/* mooncake/types.h - what every other public header needs: export mark, handles, version numbers.
 *
 * Handles and ids are tokens with a generation, never addresses: a stale, foreign or invented one is answered
 * with MC_ERR_INVALID_HANDLE, never with a crash. Every option struct begins with `struct_size`, which the caller
 * sets to sizeof(the struct); the structs grow at their end only, and a library refuses a tail that it doesn't know
 * unless that tail is zero. Times are nanoseconds; durations count from the call. Sizes and offsets are bytes.
 * Unless a declaration says otherwise, a function may be called from any thread.
 */
#ifndef MOONCAKE_TYPES_H
#define MOONCAKE_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define MC_BEGIN_DECLS extern "C" {
#define MC_END_DECLS }
#else
#define MC_BEGIN_DECLS
#define MC_END_DECLS
#endif

#if defined(__GNUC__)
#define MC_API __attribute__((visibility("default")))
#else
#define MC_API
#endif

/* The version of the interface that these headers describe. Major: incompatible. Minor: additions. */
#define MC_API_VERSION_MAJOR 1
#define MC_API_VERSION_MINOR 0
#define MC_API_VERSION ((uint32_t)MC_API_VERSION_MAJOR << 16 | MC_API_VERSION_MINOR)

/* Waits without a limit, where a function takes a timeout in nanoseconds. */
#define MC_FOREVER UINT64_MAX

/* Bytes that any "host:port" takes, with its NUL. */
#define MC_ADDRESS_MAX 288u

/* A transfer engine, and a completion queue. The pointers are tokens and must not be dereferenced. */
typedef struct mc_engine mc_engine;
typedef struct mc_queue mc_queue;

MC_BEGIN_DECLS

/* The interface version that the loaded library offers, as MC_API_VERSION. */
MC_API uint32_t mc_api_version(void);

/* The library's own version, e.g. "1.0.0rc1". Static storage. */
MC_API const char *mc_version(void);

/* What this process can use, as one JSON object of objects: {"transports":{"self":"yes","shm":"yes","tcp":"yes",
 * "rdma":"<why not>"},…,"libraries":{"libcrypto":"yes"}}. Writes at most `size` bytes, always ends with NUL when
 * size > 0, and returns the length of the whole text without the NUL (so a result >= size was cut), or a negative
 * status. `text` may be NULL when size is 0. */
MC_API int64_t mc_capabilities(char *text, size_t size);

MC_END_DECLS

#endif

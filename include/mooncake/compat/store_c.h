/* store_c.h - the C interface of kvcache-ai/Mooncake's store, over libmooncake.
 *
 * For programs that were written for that interface: types, layouts, names and results are the same, so that they are
 * linked again (-lmooncake_store; pkg-config mooncake_store) or open the library, and are otherwise unchanged. New
 * programs have more from <mooncake/store.h>: words with each failure, deadlines, views, pieces, asynchronous calls.
 *
 * Keys and patterns are texts that end with a NUL. A function that returns int answers 0, or on failure a negative code
 * of the list below; -1 for a NULL where something is needed, and for a handle that is stale or invented. What went wrong is
 * said on stderr (MC_LOG_LEVEL=error silences that). All functions may be called from any thread; memory belongs to the
 * caller and isn't kept. In a child after fork the parent's handles are stale.
 *
 *     -200  no space now, or no memory         -704  no such key
 *     -400  a key has 1 to 4096 bytes          -801  the value is damaged
 *     -600  invalid, or not set up             -900  the master or an owner doesn't answer; -901: not in time
 */
#ifndef MOONCAKE_COMPAT_STORE_C_H
#define MOONCAKE_COMPAT_STORE_C_H

#include <stddef.h>
#include <stdint.h>

typedef void *mooncake_store_t;

/* How values are stored. NULL in a call: one replica, no pins, anywhere. */
struct mooncake_replicate_config {
    size_t replica_num;              /* in different segments; 0: 1. As many as there are, at most 8 */
    int with_soft_pin;               /* evicted last */
    int with_hard_pin;               /* never evicted; goes before the soft pin */
    const char **preferred_segments; /* names of segments (of their owners' hosts) to be tried first */
    size_t preferred_segments_count;
};
typedef struct mooncake_replicate_config mooncake_replicate_config_t;

#if defined(__GNUC__)
#define MOONCAKE_STORE_API __attribute__((visibility("default")))
#else
#define MOONCAKE_STORE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A store that is not set up yet, or NULL. It is ended by mooncake_store_destroy, which also takes its memory out of the
 * pool. NULL and stale handles are fine there. */
MOONCAKE_STORE_API mooncake_store_t mooncake_store_create(void);
MOONCAKE_STORE_API void mooncake_store_destroy(mooncake_store_t store);

/* Joins the pool, with `global_segment_size` bytes of this process's memory (0: none). local_hostname: "host" or
 * "host:port" where others reach this process; a port that is taken becomes any free one. master: "host:port", NULL for
 * 127.0.0.1:50051, "" for a master in this process. metadata_server, local_buffer_size, protocol and device_name are not
 * used: there is no directory and no staging buffer, and the best path to each peer is taken (MC_FORCE_TCP: TCP). */
MOONCAKE_STORE_API int mooncake_store_setup(mooncake_store_t store, const char *local_hostname,
                                            const char *metadata_server, uint64_t global_segment_size,
                                            uint64_t local_buffer_size, const char *protocol, const char *device_name,
                                            const char *master);

/* The same on this host, with the master at 127.0.0.1:50051. */
MOONCAKE_STORE_API int mooncake_store_init_all(mooncake_store_t store, const char *protocol, const char *device_name,
                                               uint64_t mount_segment_size);

/* 0 healthy, 1 not set up, 2 the master doesn't answer. */
MOONCAKE_STORE_API int mooncake_store_health_check(mooncake_store_t store);

/* Stores a value; 0 also if the key is there, and then nothing was changed. */
MOONCAKE_STORE_API int mooncake_store_put(mooncake_store_t store, const char *key, const void *value, size_t size,
                                          const mooncake_replicate_config_t *config);
MOONCAKE_STORE_API int mooncake_store_put_from(mooncake_store_t store, const char *key, void *buffer, size_t size,
                                               const mooncake_replicate_config_t *config);

/* `count` of them; the result of each in results[]. 0, or -1 if the call makes no sense. */
MOONCAKE_STORE_API int mooncake_store_batch_put_from(mooncake_store_t store, const char **keys, void **buffers,
                                                     const size_t *sizes, size_t count,
                                                     const mooncake_replicate_config_t *config, int *results);

/* Copies a value of at most `size` bytes; its length, or a negative code. */
MOONCAKE_STORE_API int64_t mooncake_store_get_into(mooncake_store_t store, const char *key, void *buffer, size_t size);
MOONCAKE_STORE_API int mooncake_store_batch_get_into(mooncake_store_t store, const char **keys, void **buffers,
                                                     const size_t *sizes, size_t count, int64_t *results);

/* 1, 0 or a negative code. */
MOONCAKE_STORE_API int mooncake_store_is_exist(mooncake_store_t store, const char *key);
MOONCAKE_STORE_API int mooncake_store_batch_is_exist(mooncake_store_t store, const char **keys, size_t count,
                                                     int *results);

/* Bytes of the value, or a negative code. */
MOONCAKE_STORE_API int64_t mooncake_store_get_size(mooncake_store_t store, const char *key);

/* The "host:port" of this store, which is also the name of its segment; -1 if there is no room, or no setup before. */
MOONCAKE_STORE_API int mooncake_store_get_hostname(mooncake_store_t store, char *text, size_t size);

/* When it returns 0 no read anywhere finds the value. `force` has no effect: no lease refuses a remove. */
MOONCAKE_STORE_API int mooncake_store_remove(mooncake_store_t store, const char *key, int force);

/* How many were removed, or a negative code. A pattern (Perl's syntax) is matched in this process. */
MOONCAKE_STORE_API int64_t mooncake_store_remove_by_regex(mooncake_store_t store, const char *pattern, int force);
MOONCAKE_STORE_API int64_t mooncake_store_remove_all(mooncake_store_t store, int force);

/* Lets transfers go straight from and to this memory, where a path needs that; other memory works too. */
MOONCAKE_STORE_API int mooncake_store_register_buffer(mooncake_store_t store, void *buffer, size_t size);
MOONCAKE_STORE_API int mooncake_store_unregister_buffer(mooncake_store_t store, void *buffer);

/* Accepted, with a word on stderr, and without effect: etcd is not asked. */
MOONCAKE_STORE_API void mooncake_store_set_etcd_tls_config(mooncake_store_t store, const char *ca, const char *cert,
                                                           const char *key);

#ifdef __cplusplus
}
#endif

#endif

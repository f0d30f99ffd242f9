/* compat/store/inside.h - what the files of the shim libmooncake_store.so share.
 *
 * Threads: any. A store of the shim is one of the library, once it is set up; calls that were begun before its end go on,
 * with CLOSED from the library.
 */
#ifndef MC_COMPAT_STORE_INSIDE_H
#define MC_COMPAT_STORE_INSIDE_H

#include <stdatomic.h>
#include <stdbool.h>

#include <mooncake/compat/store_c.h>
#include <mooncake/store.h>

#include "compat/token.h"

#define RESULT_NULL (-1) /* NULL where something is needed, a handle that is none */
#define RESULT_INVALID (-600)

struct shim_store {
    struct token_object token;
    mc_store *_Atomic store; /* NULL: not set up */
    atomic_flag taken;       /* by a setup */
};

/* stores.c: the store of a handle, to be given back by shim_leave; NULL where there is none, with words that name
 * `what`. Not set up: *ret_store is NULL. */
struct shim_store *shim_enter(mooncake_store_t handle, const char *what, mc_store **ret_store);
void shim_leave(struct shim_store *shim);

/* results.c: the reference's code for a status of the library, and the same with words for a failure that is worth
 * some: a key that is missing or there isn't. `error` is of the status, or NULL. */
int shim_code(int32_t status);
int64_t shim_result(const char *what, int64_t result, const struct mc_error *error);

#endif

/* store/tenant.h - tenants: names that separate key spaces.
 *
 * A key is stored as FF FF, the tenant's name, 00, and the key. Those of the default tenant are stored as they are, unless
 * they begin with FF FF themselves: then as those of a tenant without a name. So no two keys of any tenants are one.
 */
#ifndef MC_STORE_TENANT_H
#define MC_STORE_TENANT_H

#include <stdbool.h>
#include <stdint.h>

#include <mooncake/store.h>

#include "wire/message.h"

struct tenant {
    uint8_t prefix[3 + MC_TENANT_MAX]; /* FF FF name 00 */
    uint32_t length;                   /* of it; 3: the default tenant */
    bool stored;                       /* keys are given and listed as they are stored, whosever they are */
};

/* NULL, "" and "default": the default tenant. MC_ERR_INVALID_ARGUMENT: the name is too long. */
int32_t tenant_init(struct tenant *tenant, const char *name, bool stored, struct mc_error *error);

/* The keys as they are stored. *ret_memory is what they are in, for free(); NULL where they are the given ones. A key
 * that is too long or empty stays so. MC_ERR_NO_MEMORY. */
int32_t tenant_wrap(const struct tenant *tenant, const struct mc_keys *keys, struct mc_keys *ret_keys,
                    void **ret_memory);

/* Makes a stored key the tenant's own; false: it is another's. */
bool tenant_strip(const struct tenant *tenant, struct message_bytes *key);

#endif

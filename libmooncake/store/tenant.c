/* store/tenant.c - keys with and without their tenants' names. Owns nothing; any thread. */
#include "store/tenant.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "wire/slot.h"

#define MARK 0xff
#define UNNAMED 3u /* FF FF 00 */

int32_t tenant_init(struct tenant *tenant, const char *name, bool stored, struct mc_error *error) {
    size_t length = name == NULL || strcmp(name, "default") == 0 ? 0 : strnlen(name, MC_TENANT_MAX + 1);

    if (length > MC_TENANT_MAX)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "a tenant's name has at most %u bytes", MC_TENANT_MAX);
    *tenant = (struct tenant){.prefix = {MARK, MARK}, .length = UNNAMED + (uint32_t)length, .stored = stored};
    if (length > 0)
        memcpy(tenant->prefix + 2, name, length);
    return MC_OK;
}

static bool is_marked(const uint8_t *key, uint32_t length) {
    return length >= 2 && key[0] == MARK && key[1] == MARK;
}

/* Is the key stored as it is? */
static bool is_plain(const struct tenant *tenant, const uint8_t *key, uint32_t length) {
    return tenant->stored || length == 0 || (tenant->length == UNNAMED && !is_marked(key, length));
}

static bool all_plain(const struct tenant *tenant, const struct mc_keys *keys) {
    const uint8_t *key = keys->bytes;

    for (size_t i = 0; i < keys->count; key += keys->lengths[i], i++)
        if (!is_plain(tenant, key, keys->lengths[i]))
            return false;
    return true;
}

int32_t tenant_wrap(const struct tenant *tenant, const struct mc_keys *keys, struct mc_keys *ret_keys,
                    void **ret_memory) {
    const uint8_t *key = keys->bytes;
    size_t total = 0;
    uint32_t *lengths;
    uint8_t *bytes;

    *ret_keys = *keys;
    *ret_memory = NULL;
    if (all_plain(tenant, keys))
        return MC_OK;
    for (size_t i = 0; i < keys->count; i++)
        total += tenant->length + (keys->lengths[i] > KEY_MAX ? KEY_MAX + 1u : keys->lengths[i]);
    lengths = malloc((keys->count + 1) * sizeof(*lengths) + total);
    if (lengths == NULL)
        return MC_ERR_NO_MEMORY;
    *ret_memory = lengths;
    *ret_keys = (struct mc_keys){.bytes = lengths + keys->count, .lengths = lengths, .count = keys->count};
    bytes = (uint8_t *)(lengths + keys->count);
    for (size_t i = 0; i < keys->count; key += keys->lengths[i], i++) {
        uint32_t length = keys->lengths[i] > KEY_MAX ? KEY_MAX + 1u : keys->lengths[i];
        uint32_t before = is_plain(tenant, key, length) ? 0 : tenant->length;

        memcpy(bytes, tenant->prefix, before);
        if (length > 0)
            memcpy(bytes + before, key, length);
        lengths[i] = before + length;
        bytes += lengths[i];
    }
    return MC_OK;
}

bool tenant_strip(const struct tenant *tenant, struct message_bytes *key) {
    if (tenant->stored || (tenant->length == UNNAMED && !is_marked(key->data, key->length)))
        return true;
    if (key->length < tenant->length || memcmp(key->data, tenant->prefix, tenant->length) != 0)
        return false;
    key->data += tenant->length;
    key->length -= tenant->length;
    return true;
}

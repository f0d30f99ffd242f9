/* base/config.h - the settings: an option of the caller, else its environment variable, else the default.
 *
 * All are in base/config.def: SETTING_U64(NAME, environment variable, default, minimum, maximum, words) and
 * SETTING_TEXT(NAME, environment variable, default or NULL, words). docs/settings.md is made from that table.
 */
#ifndef MC_BASE_CONFIG_H
#define MC_BASE_CONFIG_H

#include <stdint.h>

#include <mooncake/error.h>

enum setting {
#define SETTING_U64(name, variable, value, minimum, maximum, words) SETTING_##name,
#define SETTING_TEXT(name, variable, value, words) SETTING_##name,
#include "base/config.def"
#undef SETTING_U64
#undef SETTING_TEXT
    SETTING_COUNT
};

/* `option` if it is not 0, else the variable, else the default; the result is within the table's limits.
 * MC_ERR_INVALID_ARGUMENT names the option or variable and its limits. A variable must be a plain decimal number. */
int32_t config_u64(enum setting setting, uint64_t option, uint64_t *ret_value, struct mc_error *error);

/* `option` if it is not NULL and not empty, else the variable likewise, else the default, which may be NULL. */
const char *config_text(enum setting setting, const char *option);

#endif

/* base/config.c - looks a setting up in base/config.def and in the environment.
 *
 * Owns nothing; the environment is read at each call.
 *
 * Threads: any, as far as nobody changes the environment meanwhile.
 */
#include "base/config.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/status.h"

struct number {
    const char *variable;
    uint64_t value;
    uint64_t minimum;
    uint64_t maximum;
};

struct text {
    const char *variable;
    const char *value;
};

/* `variable` is NULL where the setting is of the other type. */
static const struct number numbers[SETTING_COUNT] = {
#define SETTING_U64(name, variable, value, minimum, maximum, words) \
    [SETTING_##name] = {(variable), (value), (minimum), (maximum)},
#define SETTING_TEXT(name, variable, value, words)
#include "base/config.def"
#undef SETTING_U64
#undef SETTING_TEXT
};

static const struct text texts[SETTING_COUNT] = {
#define SETTING_U64(name, variable, value, minimum, maximum, words)
#define SETTING_TEXT(name, variable, value, words) [SETTING_##name] = {(variable), (value)},
#include "base/config.def"
#undef SETTING_U64
#undef SETTING_TEXT
};

int32_t config_u64(enum setting setting, uint64_t option, uint64_t *ret_value, struct mc_error *error) {
    const struct number *number = &numbers[setting];
    const char *text = option == 0 ? getenv(number->variable) : NULL;
    uint64_t value = option != 0 ? option : number->value;

    if (text != NULL && (!checked_decimal(text, &value) || value < number->minimum || value > number->maximum))
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0,
                          "%s is \"%.40s\"; it must be a decimal number from %" PRIu64 " to %" PRIu64, number->variable,
                          text, number->minimum, number->maximum);
    if (value < number->minimum || value > number->maximum)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0,
                          "the option behind %s is %" PRIu64 "; it must be from %" PRIu64 " to %" PRIu64,
                          number->variable, value, number->minimum, number->maximum);
    *ret_value = value;
    return MC_OK;
}

const char *config_text(enum setting setting, const char *option) {
    const struct text *text = &texts[setting];
    const char *value = option;

    if (value == NULL || *value == '\0')
        value = getenv(text->variable);
    return value != NULL && *value != '\0' ? value : text->value;
}

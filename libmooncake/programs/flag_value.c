/* programs/flag_value.c - reads the value of a flag. Owns nothing; any thread. */
#include "programs/flags.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/checked.h"
#include "base/clock.h"

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit sizes[] = {
    {"", 1},
    {"b", 1},
    {"k", 1ull << 10},
    {"kb", 1ull << 10},
    {"kib", 1ull << 10},
    {"m", 1ull << 20},
    {"mb", 1ull << 20},
    {"mib", 1ull << 20},
    {"g", 1ull << 30},
    {"gb", 1ull << 30},
    {"gib", 1ull << 30},
    {"t", 1ull << 40},
    {"tb", 1ull << 40},
    {"tib", 1ull << 40},
};

static const struct unit durations[] = {
    {"ms", CLOCK_MILLISECOND},
    {"s", CLOCK_SECOND},
    {"m", 60 * CLOCK_SECOND},
    {"h", 3600 * CLOCK_SECOND},
};

static const struct {
    const char *name;
    const char *words;
} types[] = {
    [FLAG_BOOL] = {"", "true or false"},
    [FLAG_U64] = {"N", "a decimal number"},
    [FLAG_INT] = {"N", "a decimal number, perhaps with a minus"},
    [FLAG_PORT] = {"PORT", "a number from 0 to 65535"},
    [FLAG_SIZE] = {"SIZE", "a size such as 65536, 512MB or \"4 GB\""},
    [FLAG_MS] = {"MS", "milliseconds, or a duration such as 500ms, 10s, 30m or 1h"},
    [FLAG_SECONDS] = {"SECONDS", "seconds, or a duration such as 500ms, 10s, 30m or 1h"},
    [FLAG_DOUBLE] = {"X", "a number such as 0.8"},
    [FLAG_RATIO] = {"RATIO", "a number from 0 to 1"},
    [FLAG_TEXT] = {"TEXT", "a text"},
};

const char *flag_type_name(enum flag_type type) {
    return types[type].name;
}

const char *flag_type_words(enum flag_type type) {
    return types[type].words;
}

static bool read_bool(const char *text, uint64_t *ret_number) {
    static const char *const names[] = {"false", "f", "no", "n", "0", "true", "t", "yes", "y", "1"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcasecmp(text, names[i]) == 0) {
            *ret_number = i >= 5;
            return true;
        }
    return false;
}

static bool read_int(const char *text, uint64_t *ret_number) {
    bool negative = text[0] == '-';
    uint64_t number;

    if (!checked_decimal(text + negative, &number) || number > (uint64_t)INT32_MAX + negative)
        return false;
    *ret_number = negative ? 0 - number : number;
    return true;
}

/* Reads the digits at *text and moves behind them. False if there are none or the number is too large. */
static bool read_digits(const char **text, uint64_t *ret_number) {
    char digits[24];
    size_t length = strspn(*text, "0123456789");

    if (length >= sizeof(digits))
        return false;
    memcpy(digits, *text, length);
    digits[length] = '\0';
    *text += length;
    return checked_decimal(digits, ret_number);
}

/* The digits behind a point as so many of `ret_scale`. At most nine digits: more would be below a byte. */
static bool read_fraction(const char **text, uint64_t *ret_fraction, uint64_t *ret_scale) {
    size_t length = strspn(*text, "0123456789");

    *ret_scale = 1;
    for (size_t i = 0; i < length; i++)
        *ret_scale *= i < 9 ? 10 : 1;
    return length >= 1 && length <= 9 && read_digits(text, ret_fraction);
}

static bool read_size(const char *text, uint64_t *ret_number) {
    uint64_t whole, fraction = 0, scale = 1, bytes;

    if (!read_digits(&text, &whole))
        return false;
    if (*text == '.') {
        text++;
        if (!read_fraction(&text, &fraction, &scale))
            return false;
    }
    text += strspn(text, " ");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        if (strcasecmp(text, sizes[i].name) != 0)
            continue;
        /* 2^40 in units of 1e-9 is below 2^70: 128 bits hold it. */
        fraction = (uint64_t)((unsigned __int128)fraction * sizes[i].factor / scale);
        if (!checked_mul(whole, sizes[i].factor, &bytes) || !checked_add(bytes, fraction, &bytes))
            return false;
        *ret_number = bytes;
        return true;
    }
    return false;
}

static bool read_duration(const char *text, uint64_t plain, uint64_t *ret_number) {
    uint64_t number, factor = 0;

    if (!read_digits(&text, &number))
        return false;
    if (*text == '\0')
        factor = plain;
    for (size_t i = 0; i < sizeof(durations) / sizeof(durations[0]); i++)
        if (strcmp(text, durations[i].name) == 0)
            factor = durations[i].factor;
    return factor > 0 && checked_mul(number, factor, ret_number);
}

static bool read_double(const char *text, double *ret_real) {
    char *end;
    double real;

    /* strtod takes more than numbers: spaces, signs, hexadecimal, "inf" and "nan". */
    if (strspn(text, "0123456789.eE+-") != strlen(text) || strchr("0123456789.", *text) == NULL || *text == '\0')
        return false;
    real = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(real))
        return false;
    *ret_real = real;
    return true;
}

bool flag_value_read(enum flag_type type, const char *text, struct flag_value *ret_value) {
    uint64_t number = 0;
    double real = 0;
    bool good = false;

    switch (type) {
    case FLAG_BOOL:
        good = read_bool(text, &number);
        break;
    case FLAG_U64:
        good = checked_decimal(text, &number);
        break;
    case FLAG_INT:
        good = read_int(text, &number);
        break;
    case FLAG_PORT:
        good = checked_decimal(text, &number) && number <= UINT16_MAX;
        break;
    case FLAG_SIZE:
        good = read_size(text, &number);
        break;
    case FLAG_MS:
        good = read_duration(text, CLOCK_MILLISECOND, &number);
        break;
    case FLAG_SECONDS:
        good = read_duration(text, CLOCK_SECOND, &number);
        break;
    case FLAG_DOUBLE:
        good = read_double(text, &real);
        break;
    case FLAG_RATIO:
        good = read_double(text, &real) && real <= 1;
        break;
    case FLAG_TEXT:
        good = true;
        break;
    }
    if (good) {
        ret_value->number = number;
        ret_value->real = real;
    }
    return good;
}

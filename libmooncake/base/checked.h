/* base/checked.h - sums, products, ranges and digits that can't wrap, for every number that comes from outside. */
#ifndef MC_BASE_CHECKED_H
#define MC_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool checked_add(uint64_t a, uint64_t b, uint64_t *ret_sum) {
    return !__builtin_add_overflow(a, b, ret_sum);
}

static inline bool checked_mul(uint64_t a, uint64_t b, uint64_t *ret_product) {
    return !__builtin_mul_overflow(a, b, ret_product);
}

/* Digits and nothing else: no sign, no space, no prefix. */
static inline bool checked_decimal(const char *text, uint64_t *ret_value) {
    uint64_t value = 0;

    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++)
        if (*text < '0' || *text > '9' || !checked_mul(value, 10, &value) ||
            !checked_add(value, (uint64_t)(*text - '0'), &value))
            return false;
    *ret_value = value;
    return true;
}

/* Is [address, address + length) within [base, base + size)? The outer range must not wrap. */
static inline bool checked_within(uint64_t address, uint64_t length, uint64_t base, uint64_t size) {
    return address >= base && length <= size && address - base <= size - length;
}

#endif

/* value.h - values that say what they are: key, version and length, and a pattern in every byte that follows from these
 * three. A byte of another key's, another version's or another length's value is seen wherever it is.
 */
#ifndef MC_TESTS_FAULT_VALUE_H
#define MC_TESTS_FAULT_VALUE_H

#include <stdint.h>

#define VALUE_MIN 32u /* bytes: what a value says of itself */

/* `length` is at least VALUE_MIN. */
void value_make(void *bytes, uint64_t length, const char *key, uint64_t version);

/* The version, if these are all the bytes of a value of this key; else -1. */
int64_t value_version(const void *bytes, uint64_t length, const char *key);

/* An even spread of numbers. */
uint64_t value_mix(uint64_t number);

#endif

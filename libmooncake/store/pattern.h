/* store/pattern.h - a pattern that keys are matched with, by libpcre2: Perl's syntax, found anywhere in the key.
 *
 * Matching is bounded: a pattern that is slow at a key is given up, with words. One thread at a time.
 */
#ifndef MC_STORE_PATTERN_H
#define MC_STORE_PATTERN_H

#include <stddef.h>
#include <stdint.h>

#include <mooncake/error.h>

struct pattern;

/* MC_ERR_INVALID_ARGUMENT: it is none, or longer than 4096 bytes; MC_ERR_NOT_SUPPORTED: the library isn't there. */
int32_t pattern_new(const char *text, size_t length, struct pattern **ret_pattern, struct mc_error *error);

/* 1 or 0; MC_ERR_INVALID_ARGUMENT: that would take too long. */
int32_t pattern_matches(const struct pattern *pattern, const uint8_t *key, size_t length, struct mc_error *error);

/* NULL is fine; returns NULL. */
struct pattern *pattern_free(struct pattern *pattern);

#endif

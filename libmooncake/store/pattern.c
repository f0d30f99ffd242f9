/* store/pattern.c - patterns by libpcre2.
 *
 * Keys that are UTF-8 are matched by characters; bytes that are none match nothing, as in Perl's own rules for them.
 */
#include "store/pattern.h"

#include <stdlib.h>

#include "base/status.h"
#include "os/pcre2.h"

#define LENGTH_MAX 4096u
#define STEPS_MAX 100000u /* of matching one key: about a millisecond */
#define OPTIONS (PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_MATCH_INVALID_UTF)

struct pattern {
    struct pcre2_code *code;
    struct pcre2_match *match;
    struct pcre2_limits *limits;
};

int32_t pattern_new(const char *text, size_t length, struct pattern **ret_pattern, struct mc_error *error) {
    const char *unavailable = pcre2_unavailable();
    struct pattern *pattern;
    uint8_t words[128];
    size_t offset = 0;
    int code = 0;

    if (unavailable != NULL)
        return status_set(error, MC_ERR_NOT_SUPPORTED, 0, "patterns can't be matched: %s", unavailable);
    if (length > LENGTH_MAX)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "a pattern has at most %u bytes", LENGTH_MAX);
    pattern = calloc(1, sizeof(*pattern));
    if (pattern == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    pattern->code = pcre2.compile((const uint8_t *)text, length, OPTIONS, &code, &offset, NULL);
    if (pattern->code == NULL) {
        (void)pcre2.get_error_message(code, words, sizeof(words));
        pattern_free(pattern);
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "no pattern, at byte %zu: %s", offset, (char *)words);
    }
    pattern->match = pcre2.match_data_create(1, NULL);
    pattern->limits = pcre2.match_context_create(NULL);
    if (pattern->match == NULL || pattern->limits == NULL) {
        pattern_free(pattern);
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    }
    (void)pcre2.set_match_limit(pattern->limits, STEPS_MAX);
    *ret_pattern = pattern;
    return MC_OK;
}

int32_t pattern_matches(const struct pattern *pattern, const uint8_t *key, size_t length, struct mc_error *error) {
    int result = pcre2.match(pattern->code, key, length, 0, 0, pattern->match, pattern->limits);

    if (result >= 0)
        return 1;
    if (result == PCRE2_ERROR_NOMATCH)
        return 0;
    if (result == PCRE2_ERROR_NOMEMORY)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "the pattern takes too long at a key (libpcre2: %d)", result);
}

struct pattern *pattern_free(struct pattern *pattern) {
    if (pattern == NULL)
        return NULL;
    if (pattern->code != NULL)
        pcre2.code_free(pattern->code);
    if (pattern->match != NULL)
        pcre2.match_data_free(pattern->match);
    if (pattern->limits != NULL)
        pcre2.match_context_free(pattern->limits);
    free(pattern);
    return NULL;
}

/* os/pcre2.h - libpcre2, which matches patterns that come from outside; opened when first used. */
#ifndef MC_OS_PCRE2_H
#define MC_OS_PCRE2_H

#include <stddef.h>
#include <stdint.h>

/* Values of the library's; never looked into. */
struct pcre2_code;
struct pcre2_match;
struct pcre2_limits;

#define PCRE2_UTF 0x00080000u
#define PCRE2_NEVER_BACKSLASH_C 0x00100000u
#define PCRE2_MATCH_INVALID_UTF 0x04000000u
#define PCRE2_ERROR_NOMATCH (-1)
#define PCRE2_ERROR_NOMEMORY (-48)

/* What is used of it, of its 8-bit library; see its manual. The functions may be called once pcre2_unavailable has
 * answered NULL. */
struct pcre2 {
    struct pcre2_code *(*compile)(const uint8_t *pattern, size_t length, uint32_t options, int *error, size_t *offset,
                                  void *context);
    void (*code_free)(struct pcre2_code *code);
    struct pcre2_match *(*match_data_create)(uint32_t pairs, void *context);
    void (*match_data_free)(struct pcre2_match *match);
    struct pcre2_limits *(*match_context_create)(void *context);
    void (*match_context_free)(struct pcre2_limits *limits);
    int (*set_match_limit)(struct pcre2_limits *limits, uint32_t limit);
    int (*match)(const struct pcre2_code *code, const uint8_t *subject, size_t length, size_t start, uint32_t options,
                 struct pcre2_match *match, struct pcre2_limits *limits);
    int (*get_error_message)(int error, uint8_t *text, size_t size);
};

extern struct pcre2 pcre2;

/* NULL, or why patterns can't be matched in this process; words that live as long as it. Any thread. */
const char *pcre2_unavailable(void);

#endif

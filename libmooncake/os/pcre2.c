/* os/pcre2.c - the table of libpcre2's functions.
 *
 * Owns the table, which is filled in once and constant from then on. Any thread.
 */
#include "os/pcre2.h"

#include "os/dynlib.h"

struct pcre2 pcre2;

static const struct dynlib_symbol symbols[] = {
    {"pcre2_compile_8", (void **)(void *)&pcre2.compile},
    {"pcre2_code_free_8", (void **)(void *)&pcre2.code_free},
    {"pcre2_match_data_create_8", (void **)(void *)&pcre2.match_data_create},
    {"pcre2_match_data_free_8", (void **)(void *)&pcre2.match_data_free},
    {"pcre2_match_context_create_8", (void **)(void *)&pcre2.match_context_create},
    {"pcre2_match_context_free_8", (void **)(void *)&pcre2.match_context_free},
    {"pcre2_set_match_limit_8", (void **)(void *)&pcre2.set_match_limit},
    {"pcre2_match_8", (void **)(void *)&pcre2.match},
    {"pcre2_get_error_message_8", (void **)(void *)&pcre2.get_error_message},
    {NULL, NULL}};
static const char *const sonames[] = {"libpcre2-8.so.0", NULL};
static struct dynlib library = {.sonames = sonames, .symbols = symbols, .once = PTHREAD_ONCE_INIT};

const char *pcre2_unavailable(void) {
    return dynlib_open(&library);
}

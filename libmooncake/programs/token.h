/* programs/token.h - the token that writes over HTTP must show. */
#ifndef MC_PROGRAMS_TOKEN_H
#define MC_PROGRAMS_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mooncake/error.h>

#define TOKEN_MIN 16u
#define TOKEN_MAX 1024u

/* All zeros is none. */
struct token {
    size_t length;
    char bytes[TOKEN_MAX + 2]; /* room to see that one is too long */
};

/* Takes it from a file (a newline at its end isn't part of it), or, without a path, from the environment variable;
 * without both it is none. MC_ERR_SYSTEM, MC_ERR_INVALID_ARGUMENT (too short or long, or not printable). */
int32_t token_load(const char *path, const char *variable, struct token *ret_token, struct mc_error *error);

/* Does the header "Authorization: Bearer TOKEN" show it? How long that takes tells nothing but the length. */
bool token_shown(const struct token *token, const char *authorization);

#endif

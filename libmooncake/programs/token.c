/* programs/token.c - reads and compares the token. Owns nothing; any thread. */
#include "programs/token.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/status.h"
#include "base/text.h"

#define SCHEME "Bearer "

static int32_t check(const struct token *token, const char *source, struct mc_error *error) {
    if (token->length < TOKEN_MIN || token->length > TOKEN_MAX)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "the token in %.120s must have %u to %u bytes, not %s",
                          source, TOKEN_MIN, TOKEN_MAX, token->length < TOKEN_MIN ? "fewer" : "more");
    for (size_t i = 0; i < token->length; i++)
        if (token->bytes[i] <= ' ' || token->bytes[i] > '~')
            return status_set(error, MC_ERR_INVALID_ARGUMENT, 0,
                              "the token in %.120s must be printable, and have no space", source);
    return MC_OK;
}

static int32_t read_file(const char *path, struct token *token, struct mc_error *error) {
    FILE *file = fopen(path, "re");

    if (file == NULL)
        return status_set(error, MC_ERR_SYSTEM, errno, "the token in %.120s can't be read: %m", path);
    token->length = fread(token->bytes, 1, sizeof(token->bytes), file);
    (void)fclose(file);
    if (token->length > 0 && token->bytes[token->length - 1] == '\n')
        token->length--;
    return check(token, path, error);
}

int32_t token_load(const char *path, const char *variable, struct token *ret_token, struct mc_error *error) {
    const char *value = path == NULL ? getenv(variable) : NULL;
    struct token token = {0};
    int32_t status = MC_OK;

    if (path != NULL) {
        status = read_file(path, &token, error);
    } else if (value != NULL && value[0] != '\0') {
        text_copy(token.bytes, sizeof(token.bytes), value);
        token.length = strlen(token.bytes);
        status = check(&token, variable, error);
    }
    if (status == MC_OK)
        *ret_token = token;
    return status;
}

bool token_shown(const struct token *token, const char *authorization) {
    size_t scheme = sizeof(SCHEME) - 1;
    volatile unsigned char differing = 0;

    if (token->length == 0 || authorization == NULL || strncasecmp(authorization, SCHEME, scheme) != 0 ||
        strlen(authorization) - scheme != token->length)
        return false;
    for (size_t i = 0; i < token->length; i++)
        differing |= (unsigned char)(token->bytes[i] ^ authorization[scheme + i]);
    return differing == 0;
}

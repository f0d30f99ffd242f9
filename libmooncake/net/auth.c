/* net/auth.c - the cluster key, and the proofs of a preface.
 *
 * Owns: the key, from auth_load to auth_free; it is in no other place, shows in no words, and is wiped.
 * Threads: a struct auth is immutable, so any.
 */
#include "net/auth.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "os/dynlib.h"

#define ROLE_SIZE 16u
#define PROOF_SIZE 32u

struct auth {
    size_t length;
    uint8_t key[AUTH_KEY_MAX + 2]; /* room for the newline, and for one byte that shows that a file is too long */
};

static const char roles[][ROLE_SIZE] = {[AUTH_CLIENT] = "mooncake client", [AUTH_SERVER] = "mooncake server"};

typedef unsigned char *hmac_function(const void *digest, const void *key, int key_length, const unsigned char *data,
                                     size_t length, unsigned char *mac, unsigned int *mac_length);
typedef const void *digest_function(void);
typedef int compare_function(const void *one, const void *other, size_t length);

static void *hmac, *sha256, *compare;
static const struct dynlib_symbol symbols[] = {
    {"HMAC", &hmac}, {"EVP_sha256", &sha256}, {"CRYPTO_memcmp", &compare}, {NULL, NULL}};
static const char *const sonames[] = {"libcrypto.so.3", "libcrypto.so.1.1", NULL};
static struct dynlib libcrypto = {.sonames = sonames, .symbols = symbols, .once = PTHREAD_ONCE_INIT};

const char *auth_unavailable(void) {
    return dynlib_open(&libcrypto);
}

/* Reads until the end of the file or until the buffer is full. */
static int32_t read_all(int fd, struct auth *auth) {
    while (auth->length < sizeof(auth->key)) {
        ssize_t got = read(fd, auth->key + auth->length, sizeof(auth->key) - auth->length);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return MC_ERR_SYSTEM;
        if (got == 0)
            break;
        auth->length += (size_t)got;
    }
    return MC_OK;
}

static int32_t read_key(const char *path, struct auth *auth, struct mc_error *error) {
    /* Non-blocking, for the path may be that of a FIFO. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat about;
    int32_t status;

    if (fd < 0)
        return status_set(error, MC_ERR_SYSTEM, errno, "key file %s can't be opened: %s", path, strerror(errno));
    if (fstat(fd, &about) != 0)
        status = status_set(error, MC_ERR_SYSTEM, errno, "key file %s: %s", path, strerror(errno));
    else if (!S_ISREG(about.st_mode))
        status = status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "key file %s is not a regular file", path);
    else if (read_all(fd, auth) != MC_OK)
        status = status_set(error, MC_ERR_SYSTEM, errno, "key file %s can't be read: %s", path, strerror(errno));
    else
        status = MC_OK;
    close(fd);
    if (status != MC_OK)
        return status;
    if (auth->length > 0 && auth->key[auth->length - 1] == '\n')
        auth->length--;
    if (auth->length < AUTH_KEY_MIN || auth->length > AUTH_KEY_MAX)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "key file %s must have %u to %u bytes, not %s", path,
                          AUTH_KEY_MIN, AUTH_KEY_MAX, auth->length < AUTH_KEY_MIN ? "fewer" : "more");
    return MC_OK;
}

int32_t auth_load(const char *path, struct auth **ret_auth, struct mc_error *error) {
    const char *reason;
    struct auth *auth;
    int32_t status;

    if (path == NULL) {
        *ret_auth = NULL;
        return MC_OK;
    }
    auth = calloc(1, sizeof(*auth));
    if (auth == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "no memory for the key");
    status = read_key(path, auth, error);
    if (status != MC_OK)
        goto fail;
    reason = auth_unavailable();
    if (reason != NULL) {
        status = status_set(error, MC_ERR_NOT_SUPPORTED, 0, "a cluster key needs libcrypto: %s", reason);
        goto fail;
    }
    *ret_auth = auth;
    return MC_OK;
fail:
    auth_free(auth);
    return status;
}

struct auth *auth_free(struct auth *auth) {
    if (auth != NULL)
        explicit_bzero(auth, sizeof(*auth));
    free(auth);
    return NULL;
}

int32_t auth_hmac(const struct auth *auth, const void *bytes, size_t length, uint8_t ret_mac[32]) {
    uint8_t mac[64]; /* the largest that any digest has */
    unsigned int mac_length = 0;
    const void *digest = ((digest_function *)sha256)();

    if (((hmac_function *)hmac)(digest, auth->key, (int)auth->length, bytes, length, mac, &mac_length) == NULL)
        return MC_ERR_INTERNAL;
    if (mac_length != PROOF_SIZE)
        return MC_ERR_INTERNAL;
    memcpy(ret_mac, mac, PROOF_SIZE);
    return MC_OK;
}

int32_t auth_prove(const struct auth *auth, enum auth_role role, const uint8_t client[PREFACE_HELLO_SIZE],
                   const uint8_t server[PREFACE_HELLO_SIZE], uint8_t ret_proof[32]) {
    uint8_t text[ROLE_SIZE + 2 * PREFACE_HELLO_SIZE];

    if (auth == NULL) {
        memset(ret_proof, 0, PROOF_SIZE);
        return MC_OK;
    }
    memcpy(text, roles[role], ROLE_SIZE);
    memcpy(text + ROLE_SIZE, client, PREFACE_HELLO_SIZE);
    memcpy(text + ROLE_SIZE + PREFACE_HELLO_SIZE, server, PREFACE_HELLO_SIZE);
    return auth_hmac(auth, text, sizeof(text), ret_proof);
}

bool auth_check(const struct auth *auth, enum auth_role role, const uint8_t client[PREFACE_HELLO_SIZE],
                const uint8_t server[PREFACE_HELLO_SIZE], const uint8_t proof[32]) {
    uint8_t right[PROOF_SIZE];

    if (auth_prove(auth, role, client, server, right) != MC_OK)
        return false;
    if (auth == NULL)
        return memcmp(right, proof, PROOF_SIZE) == 0; /* zeros are no secret */
    return ((compare_function *)compare)(right, proof, PROOF_SIZE) == 0;
}

int32_t auth_random(void *bytes, size_t length) {
    uint8_t *next = bytes;

    while (length > 0) {
        ssize_t got = getrandom(next, length, 0);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return MC_ERR_SYSTEM;
        next += got;
        length -= (size_t)got;
    }
    return MC_OK;
}

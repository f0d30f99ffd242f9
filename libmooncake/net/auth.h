/* net/auth.h - the cluster key, and the proofs of a preface (HMAC-SHA-256 by libcrypto, opened at run time).
 *
 * proof = HMAC(key, role ‖ client HELLO ‖ server HELLO), role being "mooncake client\0" or "mooncake server\0", HELLOs
 * as sent. Both nonces are in it, so a proof can't be used again, nor by the other end.
 */
#ifndef MC_NET_AUTH_H
#define MC_NET_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mooncake/error.h>

#include "wire/preface.h"

#define AUTH_KEY_MIN 16u
#define AUTH_KEY_MAX 4096u

struct auth; /* immutable, NULL-safe: NULL stands for no key */

/* Reads the key file (a regular file with 16 to 4096 bytes of key, taken as it is but for one newline at its end, which
 * is not part of the key), and makes sure of libcrypto. `path` NULL gives NULL. MC_ERR_INVALID_ARGUMENT, MC_ERR_SYSTEM,
 * MC_ERR_NOT_SUPPORTED, with words that never show the key. */
int32_t auth_load(const char *path, struct auth **ret_auth, struct mc_error *error);
struct auth *auth_free(struct auth *auth); /* wipes the key; returns NULL */

/* HMAC-SHA-256 of `length` bytes with the key, which must be there. MC_ERR_INTERNAL if libcrypto fails. */
int32_t auth_hmac(const struct auth *auth, const void *bytes, size_t length, uint8_t ret_mac[32]);

enum auth_role { AUTH_CLIENT, AUTH_SERVER };

/* The proof of `role` over the HELLOs; zeros without a key. MC_ERR_INTERNAL if libcrypto fails. */
int32_t auth_prove(const struct auth *auth, enum auth_role role, const uint8_t client[PREFACE_HELLO_SIZE],
                   const uint8_t server[PREFACE_HELLO_SIZE], uint8_t ret_proof[32]);

/* Compares in constant time. True without a key only if the proof is zero. */
bool auth_check(const struct auth *auth, enum auth_role role, const uint8_t client[PREFACE_HELLO_SIZE],
                const uint8_t server[PREFACE_HELLO_SIZE], const uint8_t proof[32]);

/* Fills with random bytes from the kernel. MC_ERR_SYSTEM. */
int32_t auth_random(void *bytes, size_t length);

/* NULL if proofs with a key can be made, else why not. */
const char *auth_unavailable(void);

#endif

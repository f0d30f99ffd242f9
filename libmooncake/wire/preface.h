/* wire/preface.h - what both ends of a new connection say before the first frame.
 *
 * Client HELLO (96 bytes) → server HELLO (96 bytes) → client PROOF (64) → server ACCEPT (64); then frames.
 * Each end says its version range and incarnation, and proves with its PROOF or ACCEPT that it has the cluster key
 * (net/auth.h); without a key the proofs are zero, and the exchange is the same. An end with a key and one without
 * don't talk.
 *
 * Little-endian. HELLO:
 *    0 "mooncake"          8 u16 lowest version  10 u16 highest version  12 u32 flags
 *   16 incarnation, 16    32 expected, 16        48 nonce, 32            80 zeros, 12    92 u32 CRC32C of bytes 0 to 91
 * PROOF and ACCEPT:
 *    0 "mooncake"          8 i32 status          12 u16 version          14 zeros, 14
 *   28 proof, 32          60 u32 CRC32C of bytes 0 to 59
 * This layout is the same in all versions, for it is read before one is chosen.
 */
#ifndef MC_WIRE_PREFACE_H
#define MC_WIRE_PREFACE_H

#include <stdint.h>

#define PREFACE_HELLO_SIZE 96u
#define PREFACE_PROOF_SIZE 64u
#define PREFACE_VERSION_MIN 1u
#define PREFACE_VERSION_MAX 1u

#define PREFACE_FLAG_KEY 1u /* this end has a cluster key */

struct preface_hello {
    uint16_t version_min; /* 1 or more */
    uint16_t version_max;
    uint32_t flags;          /* unknown bits are to be ignored */
    uint8_t incarnation[16]; /* the sender's */
    uint8_t expected[16];    /* client: the incarnation it wants to talk to, zero: any. Server: zero */
    uint8_t nonce[32];
};

struct preface_proof {
    /* Server: MC_OK, or why it refuses: MC_ERR_AUTHENTICATION, _TOO_MANY, _VERSION, _STALE_PEER. Client: MC_OK. */
    int32_t status;
    uint16_t version; /* chosen by the server: the highest that both know. Client: 0 */
    uint8_t proof[32];
};

void preface_pack_hello(const struct preface_hello *hello, uint8_t bytes[PREFACE_HELLO_SIZE]);
void preface_pack_proof(const struct preface_proof *proof, uint8_t bytes[PREFACE_PROOF_SIZE]);

/* MC_ERR_PROTOCOL if magic, checksum, reserved bytes or an inverted range are wrong; output untouched then. */
int32_t preface_unpack_hello(const uint8_t bytes[PREFACE_HELLO_SIZE], struct preface_hello *ret_hello);
int32_t preface_unpack_proof(const uint8_t bytes[PREFACE_PROOF_SIZE], struct preface_proof *ret_proof);

/* The highest version that both ranges contain, 0 if there is none. */
uint16_t preface_choose(const struct preface_hello *one, const struct preface_hello *other);

#endif

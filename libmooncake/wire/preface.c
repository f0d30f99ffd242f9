/* wire/preface.c - HELLO, PROOF and ACCEPT to bytes and back.
 *
 * Owns nothing; any thread. The proofs themselves are made and checked in net/auth.c, over the bytes made here.
 */
#include "wire/preface.h"

#include <stdbool.h>
#include <string.h>

#include <mooncake/error.h>

#include "base/crc32c.h"
#include "wire/endian.h"

static const uint8_t MAGIC[8] = "mooncake"; /* without the NUL */

enum hello_offset {
    HELLO_MIN = 8,
    HELLO_MAX = 10,
    HELLO_FLAGS = 12,
    HELLO_INCARNATION = 16,
    HELLO_EXPECTED = 32,
    HELLO_NONCE = 48,
    HELLO_ZEROS = 80,
};

enum proof_offset { PROOF_STATUS = 8, PROOF_VERSION = 12, PROOF_ZEROS = 14, PROOF_PROOF = 28 };

/* Magic in front, checksum in the last four of `size` bytes. */
static void seal(uint8_t *bytes, size_t size) {
    memcpy(bytes, MAGIC, sizeof(MAGIC));
    endian_put32(bytes + size - 4, crc32c(0, bytes, size - 4));
}

static bool sealed(const uint8_t *bytes, size_t size) {
    return memcmp(bytes, MAGIC, sizeof(MAGIC)) == 0 && endian_get32(bytes + size - 4) == crc32c(0, bytes, size - 4);
}

static bool zeros(const uint8_t *bytes, size_t length) {
    uint8_t all = 0;

    for (size_t i = 0; i < length; i++)
        all |= bytes[i];
    return all == 0;
}

void preface_pack_hello(const struct preface_hello *hello, uint8_t bytes[PREFACE_HELLO_SIZE]) {
    memset(bytes, 0, PREFACE_HELLO_SIZE);
    endian_put16(bytes + HELLO_MIN, hello->version_min);
    endian_put16(bytes + HELLO_MAX, hello->version_max);
    endian_put32(bytes + HELLO_FLAGS, hello->flags);
    memcpy(bytes + HELLO_INCARNATION, hello->incarnation, sizeof(hello->incarnation));
    memcpy(bytes + HELLO_EXPECTED, hello->expected, sizeof(hello->expected));
    memcpy(bytes + HELLO_NONCE, hello->nonce, sizeof(hello->nonce));
    seal(bytes, PREFACE_HELLO_SIZE);
}

int32_t preface_unpack_hello(const uint8_t bytes[PREFACE_HELLO_SIZE], struct preface_hello *ret_hello) {
    struct preface_hello hello;

    if (!sealed(bytes, PREFACE_HELLO_SIZE) || !zeros(bytes + HELLO_ZEROS, PREFACE_HELLO_SIZE - 4 - HELLO_ZEROS))
        return MC_ERR_PROTOCOL;
    hello.version_min = endian_get16(bytes + HELLO_MIN);
    hello.version_max = endian_get16(bytes + HELLO_MAX);
    if (hello.version_min == 0 || hello.version_min > hello.version_max)
        return MC_ERR_PROTOCOL;
    hello.flags = endian_get32(bytes + HELLO_FLAGS);
    memcpy(hello.incarnation, bytes + HELLO_INCARNATION, sizeof(hello.incarnation));
    memcpy(hello.expected, bytes + HELLO_EXPECTED, sizeof(hello.expected));
    memcpy(hello.nonce, bytes + HELLO_NONCE, sizeof(hello.nonce));
    *ret_hello = hello;
    return MC_OK;
}

void preface_pack_proof(const struct preface_proof *proof, uint8_t bytes[PREFACE_PROOF_SIZE]) {
    memset(bytes, 0, PREFACE_PROOF_SIZE);
    endian_put32(bytes + PROOF_STATUS, (uint32_t)proof->status);
    endian_put16(bytes + PROOF_VERSION, proof->version);
    memcpy(bytes + PROOF_PROOF, proof->proof, sizeof(proof->proof));
    seal(bytes, PREFACE_PROOF_SIZE);
}

int32_t preface_unpack_proof(const uint8_t bytes[PREFACE_PROOF_SIZE], struct preface_proof *ret_proof) {
    if (!sealed(bytes, PREFACE_PROOF_SIZE) || !zeros(bytes + PROOF_ZEROS, PROOF_PROOF - PROOF_ZEROS))
        return MC_ERR_PROTOCOL;
    ret_proof->status = (int32_t)endian_get32(bytes + PROOF_STATUS);
    ret_proof->version = endian_get16(bytes + PROOF_VERSION);
    memcpy(ret_proof->proof, bytes + PROOF_PROOF, sizeof(ret_proof->proof));
    return MC_OK;
}

uint16_t preface_choose(const struct preface_hello *one, const struct preface_hello *other) {
    uint16_t lowest = one->version_min > other->version_min ? one->version_min : other->version_min;
    uint16_t highest = one->version_max < other->version_max ? one->version_max : other->version_max;

    return lowest <= highest ? highest : 0;
}

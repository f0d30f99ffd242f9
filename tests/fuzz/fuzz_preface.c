/* fuzz_preface.c - any bytes as a HELLO and as a PROOF, as they are and with a right checksum.
 *
 * What comes out must go in again to the very same bytes, and a HELLO must have a range of versions.
 */
#include "fuzz.h"

#include <string.h>

#include <mooncake/error.h>

#include "base/crc32c.h"
#include "wire/endian.h"
#include "wire/preface.h"

static void try_hello(const uint8_t bytes[PREFACE_HELLO_SIZE]) {
    const struct preface_hello own = {.version_min = PREFACE_VERSION_MIN, .version_max = PREFACE_VERSION_MAX};
    struct preface_hello hello;
    uint8_t again[PREFACE_HELLO_SIZE];
    uint16_t chosen;

    if (preface_unpack_hello(bytes, &hello) != MC_OK)
        return;
    preface_pack_hello(&hello, again);
    REQUIRE(memcmp(again, bytes, PREFACE_HELLO_SIZE) == 0);
    REQUIRE(hello.version_min >= 1 && hello.version_min <= hello.version_max);
    chosen = preface_choose(&own, &hello);
    REQUIRE(chosen == 0 || (chosen >= hello.version_min && chosen <= hello.version_max));
}

static void try_proof(const uint8_t bytes[PREFACE_PROOF_SIZE]) {
    struct preface_proof proof;
    uint8_t again[PREFACE_PROOF_SIZE];

    if (preface_unpack_proof(bytes, &proof) != MC_OK)
        return;
    preface_pack_proof(&proof, again);
    REQUIRE(memcmp(again, bytes, PREFACE_PROOF_SIZE) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t sealed[PREFACE_HELLO_SIZE];

    if (size >= PREFACE_HELLO_SIZE) {
        try_hello(data);
        memcpy(sealed, data, PREFACE_HELLO_SIZE);
        endian_put32(sealed + PREFACE_HELLO_SIZE - 4, crc32c(0, sealed, PREFACE_HELLO_SIZE - 4));
        try_hello(sealed);
    }
    if (size >= PREFACE_PROOF_SIZE) {
        try_proof(data);
        memcpy(sealed, data, PREFACE_PROOF_SIZE);
        endian_put32(sealed + PREFACE_PROOF_SIZE - 4, crc32c(0, sealed, PREFACE_PROOF_SIZE - 4));
        try_proof(sealed);
    }
    return 0;
}

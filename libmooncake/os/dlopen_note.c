/* os/dlopen_note.c - tells packagers, in the ELF file, which libraries are opened when used.
 *
 * The format is systemd's ELF dlopen metadata: notes of owner "FDO" in section .note.dlopen, each a JSON array. A tool
 * such as dh_dlopenlibdeps makes a package's recommendations from them. Nothing reads them at run time.
 */
#include <stdint.h>

#define NOTE_OWNER "FDO"
#define NOTE_TYPE 0x407c0c0au

#define CRYPTO_JSON                                                                                  \
    "[{\"feature\":\"authentication\",\"description\":\"Proof of the cluster key between engines\"," \
    "\"priority\":\"suggested\",\"soname\":[\"libcrypto.so.3\",\"libcrypto.so.1.1\"]}]"

static const struct {
    uint32_t owner_size, json_size, type;
    char owner[sizeof NOTE_OWNER];
    _Alignas(4) char json[sizeof CRYPTO_JSON];
} crypto_note __attribute__((used, aligned(4), section(".note.dlopen"))) = {
    sizeof NOTE_OWNER, sizeof CRYPTO_JSON, NOTE_TYPE, NOTE_OWNER, CRYPTO_JSON,
};

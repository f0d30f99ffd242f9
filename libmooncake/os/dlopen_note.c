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

#define CURL_JSON                                                                   \
    "[{\"feature\":\"directory\",\"description\":\"Directories of names by http\"," \
    "\"priority\":\"suggested\",\"soname\":[\"libcurl.so.4\",\"libcurl-gnutls.so.4\"]}]"

#define JANSSON_JSON                                                                                 \
    "[{\"feature\":\"json\",\"description\":\"JSON from outside: what directories by http answer\"," \
    "\"priority\":\"suggested\",\"soname\":[\"libjansson.so.4\"]}]"

#define PCRE2_JSON                                                             \
    "[{\"feature\":\"patterns\",\"description\":\"Removing keys by pattern\"," \
    "\"priority\":\"suggested\",\"soname\":[\"libpcre2-8.so.0\"]}]"

#define NOTE(name, words)                                                 \
    static const struct {                                                 \
        uint32_t owner_size, json_size, type;                             \
        char owner[sizeof NOTE_OWNER];                                    \
        _Alignas(4) char json[sizeof(words)];                             \
    } name __attribute__((used, aligned(4), section(".note.dlopen"))) = { \
        sizeof NOTE_OWNER, sizeof(words), NOTE_TYPE, NOTE_OWNER, words,   \
    }

NOTE(crypto_note, CRYPTO_JSON);
NOTE(curl_note, CURL_JSON);
NOTE(jansson_note, JANSSON_JSON);
NOTE(pcre2_note, PCRE2_JSON);

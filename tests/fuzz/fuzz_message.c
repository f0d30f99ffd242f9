/* fuzz_message.c - a byte that picks a message of messages.def (its number) or a record (from 0x80 on, in the order in
 * which they stand there), and any bytes as its body.
 *
 * A body that is taken must pack again, to bytes that unpack and pack to themselves.
 */
#include "fuzz.h"

#include <string.h>

#include <mooncake/error.h>

#include "wire/frame.h"
#include "wire/message.h"

#define RECORD(NAME, name, fields)                                                    \
    static void try_##name(const uint8_t *body, size_t length) {                      \
        struct message_##name message, other;                                         \
        int64_t size;                                                                 \
        uint8_t *packed, *again;                                                      \
                                                                                      \
        if (message_unpack_##name(body, length, &message) != MC_OK)                   \
            return;                                                                   \
        size = message_pack_##name(&message, NULL, 0);                                \
        if (size == MC_ERR_TOO_LARGE && length > FRAME_MESSAGE_MAX - sizeof(message)) \
            return;                                                                   \
        REQUIRE(size >= 0);                                                           \
        packed = malloc((size_t)size + 1);                                            \
        again = malloc((size_t)size + 1);                                             \
        REQUIRE(packed != NULL && again != NULL);                                     \
        REQUIRE(message_pack_##name(&message, packed, (size_t)size) == size);         \
        REQUIRE(message_unpack_##name(packed, (size_t)size, &other) == MC_OK);        \
        REQUIRE(message_pack_##name(&other, again, (size_t)size) == size);            \
        REQUIRE(memcmp(packed, again, (size_t)size) == 0);                            \
        REQUIRE(size > (int64_t)length || memcmp(packed, body, (size_t)size) == 0);   \
        free(packed);                                                                 \
        free(again);                                                                  \
    }
#define MESSAGE(NAME, name, number, fields) RECORD(NAME, name, fields)
#include "wire/messages.def"
#undef RECORD
#undef MESSAGE

enum {
    RECORDS_BEGIN = 0x7f,
#define MESSAGE(NAME, name, number, fields)
#define RECORD(NAME, name, fields) RECORD_##NAME,
#include "wire/messages.def"
#undef RECORD
#undef MESSAGE
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    switch (data[0]) {
#define MESSAGE(NAME, name, number, fields) \
    case number:                            \
        try_##name(data + 1, size - 1);     \
        break;
#define RECORD(NAME, name, fields)      \
    case RECORD_##NAME:                 \
        try_##name(data + 1, size - 1); \
        break;
#include "wire/messages.def"
#undef RECORD
#undef MESSAGE
    default:
        break;
    }
    return 0;
}

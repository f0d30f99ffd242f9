/* wire/message.h - the messages of messages.def as structs, packed and unpacked with every length checked.
 *
 * For each message NAME there is `struct message_name`, the number MESSAGE_NAME, and two functions:
 *
 * int64_t message_pack_name(const struct message_name *, uint8_t *buffer, size_t capacity)
 *     The packed size, or MC_ERR_TOO_LARGE if it exceeds `capacity` or FRAME_MESSAGE_MAX, with the buffer's contents
 *     then undefined. NULL and 0 measure.
 *
 * int32_t message_unpack_name(const uint8_t *bytes, size_t length, struct message_name *ret_message)
 *     MC_ERR_PROTOCOL for a body that ends within a field. One that ends between two fields leaves the rest zero,
 *     and a longer one is fine. BYTES fields point into `bytes`.
 */
#ifndef MC_WIRE_MESSAGE_H
#define MC_WIRE_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

struct message_bytes {
    const uint8_t *data;
    uint32_t length;
};

struct message_id {
    uint8_t bytes[16];
};

enum message_type {
#define MESSAGE(NAME, name, number, fields) MESSAGE_##NAME = (number),
#include "wire/messages.def"
#undef MESSAGE
};

#define MESSAGE_U32(field) uint32_t field;
#define MESSAGE_U64(field) uint64_t field;
#define MESSAGE_ID(field) struct message_id field;
#define MESSAGE_BYTES(field) struct message_bytes field;
/* The member keeps messages without fields from being empty structs, which C doesn't have. */
#define MESSAGE(NAME, name, number, fields)                                                              \
    struct message_##name {                                                                              \
        uint8_t unused;                                                                                  \
        fields(MESSAGE_U32, MESSAGE_U64, MESSAGE_ID, MESSAGE_BYTES)                                      \
    };                                                                                                   \
    int64_t message_pack_##name(const struct message_##name *message, uint8_t *buffer, size_t capacity); \
    int32_t message_unpack_##name(const uint8_t *bytes, size_t length, struct message_##name *ret_message);
#include "wire/messages.def"
#undef MESSAGE
#undef MESSAGE_U32
#undef MESSAGE_U64
#undef MESSAGE_ID
#undef MESSAGE_BYTES

#endif

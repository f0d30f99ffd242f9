/* wire/message.h - the messages of messages.def as structs, packed and unpacked with every length checked.
 *
 * For each message NAME there is `struct message_name`, the number MESSAGE_NAME, and two functions; for each record the
 * same without the number:
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

#define MESSAGE_ADDRESS_MAX 288u /* a "host:port" with its NUL */
#define MESSAGE_NAME_MAX 288u    /* a segment's name with its NUL */

struct message_bytes {
    const uint8_t *data;
    uint32_t length;
};

struct message_id {
    uint8_t bytes[16];
};

enum message_type {
#define MESSAGE(NAME, name, number, fields) MESSAGE_##NAME = (number),
#define RECORD(NAME, name, fields)
#include "wire/messages.def"
#undef MESSAGE
#undef RECORD
};

/* Flags of a PUBLICATION. */
#define PUBLISH_UPSERT 1u   /* takes the place of what is there */
#define PUBLISH_AGAIN 2u    /* it was first sent under an earlier epoch (rule 5: `re`) */
#define PUBLISH_SOFT_PIN 4u /* evicted last */
#define PUBLISH_HARD_PIN 8u /* never evicted */

/* Flags of a LOOKUP. */
#define LOOKUP_PROBE 1u /* doesn't count as a use */

/* Kinds of COMMAND: what the master wants of a slot (rules 7, 9, 15, 17). */
/* Of a segment: it serves, or (any other value) it drains: readers go on, and nothing new is placed in it. */
enum segment_state { SEGMENT_SERVES, SEGMENT_DRAINS };

enum message_command_kind { COMMAND_KILL = 1, COMMAND_PROMOTE, COMMAND_ASK, COMMAND_DROP };

/* Kinds of EVENT: the answers to KILL and PROMOTE (done, or not); to ASK: the slot is no longer RESERVED; and a
 * RESERVED slot whose holder is proved gone (rule 17). */
enum message_event_kind { EVENT_KILLED = 1, EVENT_PROMOTED, EVENT_NOT_PROMOTED, EVENT_NOT_RESERVED, EVENT_ORPHAN };

#define MESSAGE_U32(field) uint32_t field;
#define MESSAGE_U64(field) uint64_t field;
#define MESSAGE_ID(field) struct message_id field;
#define MESSAGE_BYTES(field) struct message_bytes field;
/* The member keeps messages without fields from being empty structs, which C doesn't have. */
#define MESSAGE(NAME, name, number, fields) RECORD(NAME, name, fields)
#define RECORD(NAME, name, fields)                                                                       \
    struct message_##name {                                                                              \
        uint8_t unused;                                                                                  \
        fields(MESSAGE_U32, MESSAGE_U64, MESSAGE_ID, MESSAGE_BYTES)                                      \
    };                                                                                                   \
    int64_t message_pack_##name(const struct message_##name *message, uint8_t *buffer, size_t capacity); \
    int32_t message_unpack_##name(const uint8_t *bytes, size_t length, struct message_##name *ret_message);
#include "wire/messages.def"
#undef MESSAGE
#undef RECORD
#undef MESSAGE_U32
#undef MESSAGE_U64
#undef MESSAGE_ID
#undef MESSAGE_BYTES

#endif

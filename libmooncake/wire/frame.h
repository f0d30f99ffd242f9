/* wire/frame.h - the fixed header in front of everything that follows the preface on a connection.
 *
 * 64 bytes, little-endian:
 *    0 u16 type            2 u16 flags           4 i32 status (replies; else 0)
 *    8 u64 request id     16 u64 address        24 u64 length
 *   32 u64 guard address  40 u64 guard value    48 u32 payload CRC32C  52 u32 payload bytes that follow this header
 *   56 u32 zero           60 u32 CRC32C of bytes 0 to 59
 */
#ifndef MC_WIRE_FRAME_H
#define MC_WIRE_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#define FRAME_SIZE 64u
#define FRAME_PAYLOAD_MAX (64u << 20) /* of READ and WRITE */
#define FRAME_MESSAGE_MAX (1u << 20)  /* of all other types */

/* A reply has its request's type with FRAME_REPLY, and its id. */
enum frame_type {
    FRAME_READ = 1,  /* length bytes at address → reply: that payload */
    FRAME_WRITE = 2, /* payload to address → reply, when it is applied */
    FRAME_REPLY = 0x8000,
};

#define FRAME_CALL 16u /* 16 + n: message type n of messages.def, packed as payload */

#define FRAME_FLAG_GUARD 1u    /* READ and WRITE: guard address and value count */
#define FRAME_FLAG_CHECKSUM 2u /* WRITE: payload CRC32C is given; READ: it is wanted; reply to a READ: it is given */
#define FRAME_FLAG_MORE 4u /* reply to a guarded READ: a second reply, without payload, follows; its status counts */

struct frame {
    uint16_t type;
    uint16_t flags;
    int32_t status;
    uint64_t id;
    uint64_t address;
    uint64_t length;
    uint64_t guard_address;
    uint64_t guard_value;
    uint32_t payload_crc;
    uint32_t payload;
};

void frame_pack(const struct frame *frame, uint8_t bytes[FRAME_SIZE]);

/* Puts the payload's CRC-32C into a packed header. */
void frame_seal(uint8_t bytes[FRAME_SIZE], uint32_t payload_crc);

/* Checks the header checksum, that `payload` is within the type's limit, and that reserved bytes are zero.
 * MC_ERR_PROTOCOL with *ret_frame untouched. Unknown types and flags are the receiver's business, and so are fields
 * that the type doesn't use. */
int32_t frame_unpack(const uint8_t bytes[FRAME_SIZE], struct frame *ret_frame);

#endif

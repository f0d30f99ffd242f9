/* wire/frame.c - the frame header to bytes and back.
 *
 * Owns nothing; any thread. The header checksum is looked at first, so that a damaged header is never half believed.
 */
#include "wire/frame.h"

#include <mooncake/error.h>

#include "base/crc32c.h"
#include "wire/endian.h"

enum offset {
    AT_TYPE = 0,
    AT_FLAGS = 2,
    AT_STATUS = 4,
    AT_ID = 8,
    AT_ADDRESS = 16,
    AT_LENGTH = 24,
    AT_GUARD_ADDRESS = 32,
    AT_GUARD_VALUE = 40,
    AT_PAYLOAD_CRC = 48,
    AT_PAYLOAD = 52,
    AT_ZERO = 56,
    AT_CHECKSUM = 60,
};

static uint32_t payload_limit(uint16_t type) {
    switch (type & ~FRAME_REPLY) {
    case FRAME_READ:
    case FRAME_WRITE:
        return FRAME_PAYLOAD_MAX;
    default:
        return FRAME_MESSAGE_MAX;
    }
}

void frame_pack(const struct frame *frame, uint8_t bytes[FRAME_SIZE]) {
    endian_put16(bytes + AT_TYPE, frame->type);
    endian_put16(bytes + AT_FLAGS, frame->flags);
    endian_put32(bytes + AT_STATUS, (uint32_t)frame->status);
    endian_put64(bytes + AT_ID, frame->id);
    endian_put64(bytes + AT_ADDRESS, frame->address);
    endian_put64(bytes + AT_LENGTH, frame->length);
    endian_put64(bytes + AT_GUARD_ADDRESS, frame->guard_address);
    endian_put64(bytes + AT_GUARD_VALUE, frame->guard_value);
    endian_put32(bytes + AT_PAYLOAD_CRC, frame->payload_crc);
    endian_put32(bytes + AT_PAYLOAD, frame->payload);
    endian_put32(bytes + AT_ZERO, 0);
    endian_put32(bytes + AT_CHECKSUM, crc32c(0, bytes, AT_CHECKSUM));
}

void frame_seal(uint8_t bytes[FRAME_SIZE], uint32_t payload_crc) {
    endian_put32(bytes + AT_PAYLOAD_CRC, payload_crc);
    endian_put32(bytes + AT_CHECKSUM, crc32c(0, bytes, AT_CHECKSUM));
}

int32_t frame_unpack(const uint8_t bytes[FRAME_SIZE], struct frame *ret_frame) {
    if (endian_get32(bytes + AT_CHECKSUM) != crc32c(0, bytes, AT_CHECKSUM) || endian_get32(bytes + AT_ZERO) != 0)
        return MC_ERR_PROTOCOL;
    if (endian_get32(bytes + AT_PAYLOAD) > payload_limit(endian_get16(bytes + AT_TYPE)))
        return MC_ERR_PROTOCOL;
    *ret_frame = (struct frame){
        .type = endian_get16(bytes + AT_TYPE),
        .flags = endian_get16(bytes + AT_FLAGS),
        .status = (int32_t)endian_get32(bytes + AT_STATUS),
        .id = endian_get64(bytes + AT_ID),
        .address = endian_get64(bytes + AT_ADDRESS),
        .length = endian_get64(bytes + AT_LENGTH),
        .guard_address = endian_get64(bytes + AT_GUARD_ADDRESS),
        .guard_value = endian_get64(bytes + AT_GUARD_VALUE),
        .payload_crc = endian_get32(bytes + AT_PAYLOAD_CRC),
        .payload = endian_get32(bytes + AT_PAYLOAD),
    };
    return MC_OK;
}

/* fuzz_frame.c - any stream of bytes as frames: headers and the payloads that they announce.
 *
 * A header that comes out must go in again to the very same bytes, and announce no more than the limits allow. One that is
 * refused is given a right checksum and tried again, so that a fuzzer gets behind it.
 */
#include "fuzz.h"

#include <string.h>

#include <mooncake/error.h>

#include "base/crc32c.h"
#include "wire/endian.h"
#include "wire/frame.h"

/* The announced payload; 0 if the header is refused. */
static size_t try_header(const uint8_t bytes[FRAME_SIZE]) {
    struct frame frame;
    uint8_t again[FRAME_SIZE];

    if (frame_unpack(bytes, &frame) != MC_OK)
        return 0;
    frame_pack(&frame, again);
    REQUIRE(memcmp(again, bytes, FRAME_SIZE) == 0);
    REQUIRE(frame.payload <= FRAME_PAYLOAD_MAX);
    return frame.payload;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    while (size >= FRAME_SIZE) {
        uint8_t sealed[FRAME_SIZE];
        size_t payload;

        memcpy(sealed, data, FRAME_SIZE);
        endian_put32(sealed + 60, crc32c(0, sealed, 60));
        try_header(sealed);
        payload = try_header(data);
        data += FRAME_SIZE;
        size -= FRAME_SIZE;
        if (payload > size)
            break;
        data += payload;
        size -= payload;
    }
    return 0;
}

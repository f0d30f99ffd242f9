/* wire/endian.h - little-endian numbers at any address; no alignment is assumed. */
#ifndef MC_WIRE_ENDIAN_H
#define MC_WIRE_ENDIAN_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline void endian_put16(uint8_t *bytes, uint16_t value) {
    value = htole16(value);
    memcpy(bytes, &value, sizeof(value));
}

static inline void endian_put32(uint8_t *bytes, uint32_t value) {
    value = htole32(value);
    memcpy(bytes, &value, sizeof(value));
}

static inline void endian_put64(uint8_t *bytes, uint64_t value) {
    value = htole64(value);
    memcpy(bytes, &value, sizeof(value));
}

static inline uint16_t endian_get16(const uint8_t *bytes) {
    uint16_t value;

    memcpy(&value, bytes, sizeof(value));
    return le16toh(value);
}

static inline uint32_t endian_get32(const uint8_t *bytes) {
    uint32_t value;

    memcpy(&value, bytes, sizeof(value));
    return le32toh(value);
}

static inline uint64_t endian_get64(const uint8_t *bytes) {
    uint64_t value;

    memcpy(&value, bytes, sizeof(value));
    return le64toh(value);
}

#endif

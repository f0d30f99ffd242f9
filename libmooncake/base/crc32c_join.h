/* base/crc32c_join.h - the CRC-32C of two runs of bytes, one behind the other, from those of each. */
#ifndef MC_BASE_CRC32C_JOIN_H
#define MC_BASE_CRC32C_JOIN_H

#include <stdint.h>

/* `first` and `second` as crc32c() tells them, the second begun with 0, and of `length` bytes. Any thread. */
uint32_t crc32c_join(uint32_t first, uint32_t second, uint64_t length);

#endif

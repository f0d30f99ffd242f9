/* base/crc32c.h - CRC-32C (Castagnoli), as in iSCSI and ext4. */
#ifndef MC_BASE_CRC32C_H
#define MC_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continues `crc` (0 to begin) over `length` bytes, by the processor's instruction where it has one. Any thread. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t length);

/* The same by table, on every processor; for machines without the instruction, and to test against. */
uint32_t crc32c_table(uint32_t crc, const void *bytes, size_t length);

/* x to the power of `exponent` modulo the polynomial, reflected: the factor that moves a sum past zero bits. */
uint32_t crc32c_power(unsigned exponent);

#endif

/* base/copy.h - copies of any size at the speed of the machine.
 *
 * Copies of bytes that are in no cache go past the caches from a measured size on (streaming stores, which don't read
 * what they overwrite); others are memcpy's. What a thread has copied lately counts as cached. A checksum costs no pass
 * of its own.
 *
 * Threads: any.
 */
#ifndef MC_BASE_COPY_H
#define MC_BASE_COPY_H

#include <stddef.h>
#include <stdint.h>

/* Copies `length` bytes between ranges that don't overlap; everything is there, for every thread and process, when it
 * returns. */
void copy_bytes(void *to, const void *from, size_t length);

/* The same; returns the CRC32C of what was copied, begun with `crc` as by crc32c. */
uint32_t copy_bytes_crc32c(uint32_t crc, void *to, const void *from, size_t length);

#endif

/* store/put_parts.h - which bytes of a value were written by parts, and their checksums.
 *
 * The parts are kept in order and don't overlap. Not safe for several threads.
 */
#ifndef MC_STORE_PUT_PARTS_H
#define MC_STORE_PUT_PARTS_H

#include <stdbool.h>
#include <stdint.h>

struct put_parts {
    struct put_part *parts;
    uint32_t count;
    uint32_t room;
};

/* Notes a part, which ends within 64 bits, with its CRC32C; one of no bytes is none. MC_ERR_INVALID_ARGUMENT: some of it is there
 * already. MC_ERR_TOO_MANY, MC_ERR_NO_MEMORY. */
int32_t put_parts_add(struct put_parts *parts, uint64_t offset, uint64_t length, uint32_t sum);

/* Forgets one that was added. */
void put_parts_remove(struct put_parts *parts, uint64_t offset, uint64_t length);

/* Are they all bytes of a value of that length? Its CRC32C. */
bool put_parts_join(const struct put_parts *parts, uint64_t length, uint32_t *ret_sum);

void put_parts_clear(struct put_parts *parts);

#endif

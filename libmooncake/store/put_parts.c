/* store/put_parts.c - the parts in an array, in the order of their offsets. */
#include "store/put_parts.h"

#include <stdlib.h>
#include <string.h>

#include <mooncake/error.h>
#include <mooncake/store.h>

#include "base/crc32c_join.h"

struct put_part {
    uint64_t offset;
    uint64_t length; /* not 0 */
    uint32_t sum;
};

/* The first part that doesn't begin before `offset`. */
static uint32_t find(const struct put_parts *parts, uint64_t offset) {
    uint32_t low = 0, high = parts->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (parts->parts[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int32_t make_room(struct put_parts *parts) {
    uint32_t room = parts->room == 0 ? 16 : parts->room * 2;
    struct put_part *more;

    if (parts->parts != NULL && parts->count < parts->room)
        return MC_OK;
    if (parts->count >= MC_STORE_PIECES_MAX)
        return MC_ERR_TOO_MANY;
    more = realloc(parts->parts, room * sizeof(*more));
    if (more == NULL)
        return MC_ERR_NO_MEMORY;
    parts->parts = more;
    parts->room = room;
    return MC_OK;
}

/* Would a part before the one at `index` share bytes with its neighbours? */
static bool overlaps(const struct put_parts *parts, uint32_t index, uint64_t offset, uint64_t length) {
    const struct put_part *all = parts->parts;

    if (all == NULL)
        return false;
    return (index > 0 && all[index - 1].offset + all[index - 1].length > offset) ||
           (index < parts->count && all[index].offset < offset + length);
}

int32_t put_parts_add(struct put_parts *parts, uint64_t offset, uint64_t length, uint32_t sum) {
    uint32_t index = find(parts, offset);
    int32_t status;

    if (length == 0)
        return MC_OK;
    if (overlaps(parts, index, offset, length))
        return MC_ERR_INVALID_ARGUMENT;
    status = make_room(parts);
    if (status != MC_OK)
        return status;
    memmove(&parts->parts[index + 1], &parts->parts[index], (parts->count - index) * sizeof(parts->parts[0]));
    parts->parts[index] = (struct put_part){.offset = offset, .length = length, .sum = sum};
    parts->count++;
    return MC_OK;
}

void put_parts_remove(struct put_parts *parts, uint64_t offset, uint64_t length) {
    uint32_t index = find(parts, offset);

    if (length == 0)
        return;
    parts->count--;
    memmove(&parts->parts[index], &parts->parts[index + 1], (parts->count - index) * sizeof(parts->parts[0]));
}

bool put_parts_join(const struct put_parts *parts, uint64_t length, uint32_t *ret_sum) {
    uint64_t end = 0;
    uint32_t sum = 0;

    for (uint32_t i = 0; i < parts->count; i++) {
        const struct put_part *part = &parts->parts[i];

        if (part->offset != end)
            return false;
        sum = crc32c_join(sum, part->sum, part->length);
        end += part->length;
    }
    *ret_sum = sum;
    return end == length;
}

void put_parts_clear(struct put_parts *parts) {
    free(parts->parts);
    *parts = (struct put_parts){0};
}

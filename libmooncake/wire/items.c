/* wire/items.c - lists in BYTES fields. Owns the memory of the lists it writes; not thread-safe. */
#include "wire/items.h"

#include <stdlib.h>
#include <string.h>

#include <mooncake/error.h>

#include "wire/endian.h"
#include "wire/frame.h"

#define LENGTH_SIZE 4u
#define FIRST_CAPACITY 256u

void items_init(struct items *items) {
    *items = (struct items){0};
}

void items_clear(struct items *items) {
    free(items->bytes);
    items_init(items);
}

/* Makes room for `more` bytes. */
static bool grow(struct items *items, uint32_t more) {
    uint32_t capacity = items->capacity == 0 ? FIRST_CAPACITY : items->capacity;
    uint8_t *bytes;

    if (more > FRAME_MESSAGE_MAX - items->length)
        return false;
    while (capacity < items->length + more)
        capacity *= 2;
    if (capacity == items->capacity)
        return true;
    bytes = realloc(items->bytes, capacity);
    if (bytes == NULL)
        return false;
    items->bytes = bytes;
    items->capacity = capacity;
    return true;
}

uint8_t *items_add(struct items *items, uint32_t length) {
    uint8_t *place;

    if (items->full || length > FRAME_MESSAGE_MAX - LENGTH_SIZE || !grow(items, LENGTH_SIZE + length)) {
        items->full = true;
        return NULL;
    }
    endian_put32(items->bytes + items->length, length);
    place = items->bytes + items->length + LENGTH_SIZE;
    items->length += LENGTH_SIZE + length;
    items->count++;
    return place;
}

bool items_append(struct items *items, const void *bytes, uint32_t length) {
    uint8_t *place = items_add(items, length);

    if (place != NULL && length > 0)
        memcpy(place, bytes, length);
    return place != NULL;
}

struct message_bytes items_bytes(const struct items *items) {
    return (struct message_bytes){.data = items->bytes, .length = items->length};
}

int32_t items_next(struct message_bytes *list, struct message_bytes *ret_item) {
    uint32_t length;

    if (list->length == 0)
        return 0;
    if (list->length < LENGTH_SIZE)
        return MC_ERR_PROTOCOL;
    length = endian_get32(list->data);
    if (length > list->length - LENGTH_SIZE)
        return MC_ERR_PROTOCOL;
    *ret_item = (struct message_bytes){.data = list->data + LENGTH_SIZE, .length = length};
    list->data += LENGTH_SIZE + length;
    list->length -= LENGTH_SIZE + length;
    return 1;
}

int64_t items_count(struct message_bytes list) {
    struct message_bytes item;
    int64_t count = 0;
    int32_t more;

    while ((more = items_next(&list, &item)) == 1)
        count++;
    return more < 0 ? more : count;
}

#define MESSAGE(NAME, name, number, fields)
#define RECORD(NAME, name, fields)                                                             \
    bool items_add_##name(struct items *items, const struct message_##name *record) {          \
        int64_t size = message_pack_##name(record, NULL, 0);                                   \
        uint8_t *place;                                                                        \
                                                                                               \
        if (size < 0) {                                                                        \
            items->full = true;                                                                \
            return false;                                                                      \
        }                                                                                      \
        place = items_add(items, (uint32_t)size);                                              \
        return place != NULL && message_pack_##name(record, place, (size_t)size) == size;      \
    }                                                                                          \
                                                                                               \
    int32_t items_next_##name(struct message_bytes *list, struct message_##name *ret_record) { \
        struct message_bytes item;                                                             \
        int32_t more = items_next(list, &item);                                                \
                                                                                               \
        if (more == 1 && message_unpack_##name(item.data, item.length, ret_record) != MC_OK)   \
            return MC_ERR_PROTOCOL;                                                            \
        return more;                                                                           \
    }
#include "wire/messages.def"
#undef MESSAGE
#undef RECORD

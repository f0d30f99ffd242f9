/* wire/items.h - lists in BYTES fields: items of any length, each a u32 length and its bytes.
 *
 * Writing goes to memory that grows; when that or the limit of a message is short, the writer is `full` and stays so.
 * Reading never passes the end of the list.
 */
#ifndef MC_WIRE_ITEMS_H
#define MC_WIRE_ITEMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/message.h"

struct items {
    uint8_t *bytes; /* malloc'd; freed by items_clear */
    uint32_t length;
    uint32_t capacity;
    uint32_t count;
    bool full;
};

void items_init(struct items *items);

/* Frees the memory; the list is empty. */
void items_clear(struct items *items);

/* Appends an item of `length` bytes and returns the place of its bytes, valid until the next call; NULL when full. */
uint8_t *items_add(struct items *items, uint32_t length);

/* Appends one as it is. False when full. */
bool items_append(struct items *items, const void *bytes, uint32_t length);

struct message_bytes items_bytes(const struct items *items);

/* Takes the next item off `list`. 1: *ret_item points into it; 0: the list has ended; MC_ERR_PROTOCOL: it ends within an
 * item. */
int32_t items_next(struct message_bytes *list, struct message_bytes *ret_item);

/* How many items the list has, or MC_ERR_PROTOCOL. */
int64_t items_count(struct message_bytes list);

/* For each RECORD of messages.def:
 * bool items_add_name(struct items *, const struct message_name *)      false when full
 * int32_t items_next_name(struct message_bytes *list, struct message_name *ret_record)   as items_next */
#define MESSAGE(NAME, name, number, fields)
#define RECORD(NAME, name, fields)                                                   \
    bool items_add_##name(struct items *items, const struct message_##name *record); \
    int32_t items_next_##name(struct message_bytes *list, struct message_##name *ret_record);
#include "wire/messages.def"
#undef MESSAGE
#undef RECORD

#endif

/* wire/outbox.c - letters in the order in which they were written; not thread-safe. */
#include "wire/outbox.h"

#include <stdlib.h>

#include <mooncake/error.h>

struct letter *outbox_take(struct outbox *outbox) {
    struct list *node = outbox->letters.next;

    if (list_empty(&outbox->letters))
        return NULL;
    list_remove(node);
    return list_entry(node, struct letter, node);
}

void outbox_clear(struct outbox *outbox) {
    struct list *node, *after;

    list_each (node, after, &outbox->letters)
        free(list_entry(node, struct letter, node));
    outbox_init(outbox);
}

struct letter *outbox_add(struct outbox *outbox, uint16_t type, uint64_t tag, uint32_t length) {
    struct letter *letter = malloc(sizeof(*letter) + length);

    if (letter == NULL)
        return NULL;
    *letter = (struct letter){.tag = tag, .type = type, .status = MC_OK, .length = length};
    list_append(&outbox->letters, &letter->node);
    return letter;
}

void outbox_refuse(struct outbox *outbox, uint16_t request_type, uint64_t tag, int32_t status) {
    struct letter *letter = outbox_add(outbox, (uint16_t)(request_type | 1u), tag, 0);

    if (letter != NULL)
        letter->status = status;
}

#define RECORD(NAME, name, fields)
#define MESSAGE(NAME, name, number, fields)                                                                   \
    struct letter *outbox_##name(struct outbox *outbox, uint64_t tag, const struct message_##name *message) { \
        int64_t size = message_pack_##name(message, NULL, 0);                                                 \
        struct letter *letter = size < 0 ? NULL : outbox_add(outbox, (number), tag, (uint32_t)size);          \
                                                                                                              \
        if (letter != NULL)                                                                                   \
            message_pack_##name(message, letter->body, (size_t)size);                                         \
        return letter;                                                                                        \
    }
#include "wire/messages.def"
#undef MESSAGE
#undef RECORD

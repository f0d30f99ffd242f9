/* wire/outbox.h - what a core wants sent: requests to others, and answers to theirs.
 *
 * The cores of the store have no sockets: they append letters to an outbox, and whoever called them sends them, or
 * loses them; the protocol stands that. So a letter for which memory is short is just not written.
 */
#ifndef MC_WIRE_OUTBOX_H
#define MC_WIRE_OUTBOX_H

#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "wire/items.h"
#include "wire/message.h"

struct letter {
    struct list node;
    /* A request: to the owner of this segment, or to the master (all zeros). An answer: unused. */
    struct message_id to;
    uint64_t tag;   /* a request: the sender's own number for it; an answer: the request's */
    uint16_t type;  /* of the message in the body; an answer has the odd number */
    int32_t status; /* of an answer; the body is empty unless MC_OK */
    uint32_t length;
    uint8_t body[];
};

struct outbox {
    struct list letters;
};

static inline void outbox_init(struct outbox *outbox) {
    list_init(&outbox->letters);
}

/* Frees what is in it. */
void outbox_clear(struct outbox *outbox);

/* The oldest letter, now the caller's to free; NULL if there is none. */
struct letter *outbox_take(struct outbox *outbox);

/* Appends a letter with `length` bytes of body, to be filled in. NULL if memory is short. */
struct letter *outbox_add(struct outbox *outbox, uint16_t type, uint64_t tag, uint32_t length);

/* Appends an answer that is only a status; its type is odd, whatever the request's was. */
void outbox_refuse(struct outbox *outbox, uint16_t request_type, uint64_t tag, int32_t status);

/* For each MESSAGE of messages.def, packed: struct letter *outbox_name(struct outbox *, uint64_t tag,
 * const struct message_name *). NULL if memory is short or the message too large. */
#define RECORD(NAME, name, fields)
#define MESSAGE(NAME, name, number, fields) \
    struct letter *outbox_##name(struct outbox *outbox, uint64_t tag, const struct message_##name *message);
#include "wire/messages.def"
#undef MESSAGE
#undef RECORD

#endif

/* fuzz_items.c - a byte that picks a message of messages.def with lists, and any bytes as its body, walked as a receiver
 * does: list by list, record by record, and the lists in those.
 *
 * Each walk ends, and reads nothing outside the body. The items of a whole list, written again, make the same list; its
 * records, written again, make a list that is read and written to itself.
 */
#include "fuzz.h"

#include <string.h>

#include <mooncake/error.h>

#include "wire/frame.h"
#include "wire/items.h"

/* Reads each byte, so that the address sanitizer sees those that aren't the body's. */
static void touch(struct message_bytes bytes) {
    static volatile uint8_t sink;

    REQUIRE(bytes.length == 0 || bytes.data != NULL);
    for (uint32_t i = 0; i < bytes.length; i++)
        sink = bytes.data[i];
    (void)sink;
}

static void walk(struct message_bytes list) {
    struct message_bytes rest = list, item;
    struct items again;
    int32_t more;

    items_init(&again);
    while ((more = items_next(&rest, &item)) == 1) {
        touch(item);
        REQUIRE(items_append(&again, item.data, item.length) || list.length > FRAME_MESSAGE_MAX);
    }
    REQUIRE(more == 0 || more == MC_ERR_PROTOCOL);
    REQUIRE(again.full || items_count(list) == (more == 0 ? (int64_t)again.count : MC_ERR_PROTOCOL));
    if (more == 0 && !again.full) {
        REQUIRE(again.length == list.length);
        REQUIRE(list.length == 0 || memcmp(again.bytes, list.data, list.length) == 0);
    }
    items_clear(&again);
}

/* Records that an older sender has cut short are written whole again, which may be more than a message takes. */
#define MAY_GROW_TOO_LARGE(list) ((list).length > FRAME_MESSAGE_MAX / 16)

/* walk_name: a list of RECORD name; `inside` does the lists in `record`. */
#define WALK(name, inside)                                                                 \
    static void walk_##name(struct message_bytes list) {                                   \
        struct message_bytes rest = list;                                                  \
        struct message_##name record;                                                      \
        struct items again, third;                                                         \
        int32_t more;                                                                      \
                                                                                           \
        items_init(&again);                                                                \
        items_init(&third);                                                                \
        while ((more = items_next_##name(&rest, &record)) == 1) {                          \
            REQUIRE(rest.length < list.length);                                            \
            inside;                                                                        \
            REQUIRE(items_add_##name(&again, &record) || MAY_GROW_TOO_LARGE(list));        \
        }                                                                                  \
        REQUIRE(more == 0 || more == MC_ERR_PROTOCOL);                                     \
        rest = items_bytes(&again);                                                        \
        while ((more = items_next_##name(&rest, &record)) == 1)                            \
            REQUIRE(items_add_##name(&third, &record));                                    \
        REQUIRE(more == 0 && third.count == again.count && third.length == again.length);  \
        REQUIRE(third.length == 0 || memcmp(third.bytes, again.bytes, third.length) == 0); \
        items_clear(&again);                                                               \
        items_clear(&third);                                                               \
        walk(list);                                                                        \
    }

WALK(place, (void)0)
WALK(floor, (void)0)
WALK(grant, (void)0)
WALK(cancel, (void)0)
WALK(verdict, (void)0)
WALK(event, (void)0)
WALK(command, (void)0)
WALK(removal, touch(record.key))
WALK(holding, touch(record.key))
WALK(owner, (touch(record.address), touch(record.name)))
WALK(publication, (touch(record.key), walk_place(record.places)))
WALK(location, walk_place(record.places))
WALK(finding, walk_location(record.locations))

static void walk_stamp(struct message_bytes bytes) {
    struct message_stamp stamp;

    if (message_unpack_stamp(bytes.data, bytes.length, &stamp) == MC_OK)
        walk_floor(stamp.floors);
}

/* The lists of each message that has any. */
#define TARGETS(X)                                                                                 \
    X(RESERVED, reserved, walk_grant(message.grants))                                              \
    X(RELEASE, release, (walk_grant(message.grants), walk_cancel(message.cancels)))                \
    X(PUBLISH, publish, walk_publication(message.items))                                           \
    X(PUBLISHED, published, (walk_stamp(message.stamp), walk_verdict(message.verdicts)))           \
    X(LOOKUP, lookup, walk(message.keys))                                                          \
    X(LOCATED, located, (walk_stamp(message.stamp), walk_finding(message.findings)))               \
    X(REMOVE, remove, walk_removal(message.items))                                                 \
    X(REMOVED, removed, (walk_stamp(message.stamp), walk_verdict(message.verdicts)))               \
    X(LISTED, listed, (walk_stamp(message.stamp), walk(message.keys)))                             \
    X(BEAT, beat, touch(message.reads))                                                            \
    X(BEATEN, beaten, (walk_stamp(message.stamp), walk_owner(message.owners)))                     \
    X(MOUNT, mount, (touch(message.address), touch(message.name), walk_holding(message.holdings))) \
    X(POLL, poll, walk_event(message.events))                                                      \
    X(COMMANDS, commands, walk_command(message.commands))

#define TARGET(NAME, name, inside)                                  \
    static void try_##name(const uint8_t *body, size_t length) {    \
        struct message_##name message;                              \
                                                                    \
        if (message_unpack_##name(body, length, &message) == MC_OK) \
            inside;                                                 \
    }
TARGETS(TARGET)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    switch (data[0]) {
#define CASE(NAME, name, inside)        \
    case MESSAGE_##NAME:                \
        try_##name(data + 1, size - 1); \
        break;
        TARGETS(CASE)
    default:
        break;
    }
    return 0;
}

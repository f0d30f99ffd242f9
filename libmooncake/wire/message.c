/* wire/message.c - the messages of messages.def to bytes and back; macros make a pack and an unpack function of each.
 *
 * Owns nothing; any thread. The functions are lists of calls on a writer or a reader, and only those two know lengths:
 * neither ever passes the end of its buffer, whatever a field says.
 */
#include "wire/message.h"

#include <stdbool.h>
#include <string.h>

#include <mooncake/error.h>

#include "wire/endian.h"
#include "wire/frame.h"

struct writer {
    uint8_t *buffer; /* NULL: only measures */
    size_t capacity;
    size_t size;
    bool full;
};

static struct writer writer_over(uint8_t *buffer, size_t capacity) {
    bool bounded = buffer != NULL && capacity < FRAME_MESSAGE_MAX;

    return (struct writer){.buffer = buffer, .capacity = bounded ? capacity : FRAME_MESSAGE_MAX};
}

static void write_raw(struct writer *writer, const void *bytes, size_t length) {
    if (writer->full || length > writer->capacity - writer->size) {
        writer->full = true;
        return;
    }
    if (writer->buffer != NULL && length != 0)
        memcpy(writer->buffer + writer->size, bytes, length);
    writer->size += length;
}

static void write_u32(struct writer *writer, uint32_t value) {
    uint8_t bytes[4];

    endian_put32(bytes, value);
    write_raw(writer, bytes, sizeof(bytes));
}

static void write_u64(struct writer *writer, uint64_t value) {
    uint8_t bytes[8];

    endian_put64(bytes, value);
    write_raw(writer, bytes, sizeof(bytes));
}

static void write_bytes(struct writer *writer, struct message_bytes bytes) {
    write_u32(writer, bytes.length);
    write_raw(writer, bytes.data, bytes.length);
}

static int64_t write_end(const struct writer *writer) {
    return writer->full ? (int64_t)MC_ERR_TOO_LARGE : (int64_t)writer->size;
}

struct reader {
    const uint8_t *next;
    size_t left;
    bool broken;
};

/* The next `length` bytes; NULL when the body is at its end, which is fine in front of a field, or broken. */
static const uint8_t *read_raw(struct reader *reader, size_t length, bool within_field) {
    const uint8_t *bytes = reader->next;

    if (length > reader->left) {
        reader->broken |= within_field || reader->left != 0;
        reader->left = 0;
        return NULL;
    }
    if (length != 0)
        reader->next += length;
    reader->left -= length;
    return bytes;
}

static uint32_t read_u32(struct reader *reader) {
    const uint8_t *bytes = read_raw(reader, 4, false);

    return bytes != NULL ? endian_get32(bytes) : 0;
}

static uint64_t read_u64(struct reader *reader) {
    const uint8_t *bytes = read_raw(reader, 8, false);

    return bytes != NULL ? endian_get64(bytes) : 0;
}

static struct message_id read_id(struct reader *reader) {
    const uint8_t *bytes = read_raw(reader, sizeof(struct message_id), false);
    struct message_id id = {0};

    if (bytes != NULL)
        memcpy(&id, bytes, sizeof(id));
    return id;
}

static struct message_bytes read_bytes(struct reader *reader) {
    uint32_t length = read_u32(reader);
    const uint8_t *bytes = read_raw(reader, length, true);

    return bytes != NULL ? (struct message_bytes){.data = bytes, .length = length} : (struct message_bytes){0};
}

#define PACK_U32(field) write_u32(&writer, message->field);
#define PACK_U64(field) write_u64(&writer, message->field);
#define PACK_ID(field) write_raw(&writer, message->field.bytes, sizeof(message->field.bytes));
#define PACK_BYTES(field) write_bytes(&writer, message->field);

#define UNPACK_U32(field) message.field = read_u32(&reader);
#define UNPACK_U64(field) message.field = read_u64(&reader);
#define UNPACK_ID(field) message.field = read_id(&reader);
#define UNPACK_BYTES(field) message.field = read_bytes(&reader);

#define MESSAGE(NAME, name, number, fields) RECORD(NAME, name, fields)
#define RECORD(NAME, name, fields)                                                                           \
    int64_t message_pack_##name(const struct message_##name *message, uint8_t *buffer, size_t capacity) {    \
        struct writer writer = writer_over(buffer, capacity);                                                \
                                                                                                             \
        (void)message;                                                                                       \
        fields(PACK_U32, PACK_U64, PACK_ID, PACK_BYTES);                                                     \
        return write_end(&writer);                                                                           \
    }                                                                                                        \
                                                                                                             \
    int32_t message_unpack_##name(const uint8_t *bytes, size_t length, struct message_##name *ret_message) { \
        struct reader reader = {.next = bytes, .left = length};                                              \
        struct message_##name message = {0};                                                                 \
                                                                                                             \
        fields(UNPACK_U32, UNPACK_U64, UNPACK_ID, UNPACK_BYTES);                                             \
        if (reader.broken)                                                                                   \
            return MC_ERR_PROTOCOL;                                                                          \
        *ret_message = message;                                                                              \
        return MC_OK;                                                                                        \
    }
#include "wire/messages.def"
#undef MESSAGE
#undef RECORD

/* store/master/describe.c - segments and objects as people are told of them. */
#include "store/master/describe.h"

#include "base/text.h"
#include "store/master/inside.h"

static void copy_text(char *text, size_t size, const char *string) {
    text_copy(text, size, string != NULL ? string : "");
}

size_t master_describe_segments(const struct master *master, struct segment_description *segments, size_t capacity) {
    struct list *node, *after;
    size_t count = 0;

    list_each (node, after, &master->members) {
        const struct member *member = list_entry(node, struct member, all);

        if (!member->announced)
            continue;
        if (count < capacity) {
            struct segment_description *segment = &segments[count];

            segment->id = member->id;
            segment->size = member->size;
            segment->drains = member->drains;
            segment->used = member->free < member->size ? member->size - member->free : 0;
            copy_text(segment->address, sizeof(segment->address), member->address);
            copy_text(segment->name, sizeof(segment->name), member->name);
        }
        count++;
    }
    return count;
}

/* Replicas whose owner is gone are not there any more, though they may not have been cleaned up. */
static bool describe(const struct record *record, struct object_description *object) {
    struct list *node, *after;

    object->count = 0;
    if (record == NULL)
        return false;
    object->length = record->length;
    list_each (node, after, &record->replicas) {
        const struct claim *claim = list_entry(node, struct claim, sibling);
        struct replica_description *replica = &object->replicas[object->count];

        if (claim->member->gone || object->count == REPLICAS_MAX)
            continue;
        replica->offset = claim->offset;
        copy_text(replica->address, sizeof(replica->address), claim->member->address);
        copy_text(replica->segment, sizeof(replica->segment), claim->member->name);
        object->count++;
    }
    return object->count > 0;
}

bool master_describe_object(const struct master *master, const void *key, uint32_t length,
                            struct object_description *ret_object) {
    const struct entry *entry = index_find(master, key, length);

    return entry != NULL && (describe(entry->pending, ret_object) || describe(entry->current, ret_object));
}

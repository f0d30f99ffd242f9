/* store/master/describe.h - what people are told of the master: segments, an object's replicas, keys.
 *
 * Nothing is changed by it, and nothing counts as a use. Each call takes time in proportion to what it stores.
 */
#ifndef MC_STORE_MASTER_DESCRIBE_H
#define MC_STORE_MASTER_DESCRIBE_H

#include "store/master/master.h"

struct segment_description {
    struct message_id id;
    char address[MESSAGE_ADDRESS_MAX]; /* of its owner */
    char name[MESSAGE_NAME_MAX];
    uint64_t size;
    uint64_t used; /* as the owner said last; at most its size */
    bool drains;   /* nothing new comes into it */
};

/* Stores the announced segments, at most `capacity`; how many there are. */
size_t master_describe_segments(const struct master *master, struct segment_description *segments, size_t capacity);

struct replica_description {
    char address[MESSAGE_ADDRESS_MAX];
    char segment[MESSAGE_NAME_MAX];
    uint64_t offset; /* of the payload in the segment */
};

struct object_description {
    uint64_t length;
    uint32_t count;
    struct replica_description replicas[REPLICAS_MAX];
};

/* The newest version of the object under this key. False if there is none. */
bool master_describe_object(const struct master *master, const void *key, uint32_t length,
                            struct object_description *ret_object);

/* list.c: appends about `limit` keys to `keys`, in the order of their hashes, from `cursor` on (0: the first). Where to
 * go on, or 0 at the end. */
uint64_t master_list_page(const struct master *master, uint64_t cursor, uint32_t limit, struct items *keys);

#endif

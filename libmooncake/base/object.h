/* base/object.h - counted objects that users name by a 64-bit id, all in one process-wide table.
 *
 * One table for all kinds, so that an id of the wrong kind is told from a live one. Ids made by a parent process are
 * answered with MC_ERR_FORKED in its child (the table is held over fork, and its objects are then foreign).
 */
#ifndef MC_BASE_OBJECT_H
#define MC_BASE_OBJECT_H

#include <stdint.h>

#include "base/ref.h"

enum object_kind {
    OBJECT_ENGINE = 1,
    OBJECT_QUEUE,
    OBJECT_BATCH,
    OBJECT_PEER,
    OBJECT_MEMORY,
    OBJECT_STORE,
    OBJECT_VIEW,
    OBJECT_OPERATION,
    OBJECT_PUT,
};

/* First member of every object. */
struct object {
    struct ref ref;
    uint32_t kind;
    uint32_t process; /* fork generation in which it was made, see object_process() */
};

/* Count 1, made in this process. `destroy` is called once, by whoever drops the last reference. */
void object_init(struct object *object, enum object_kind kind, void (*destroy)(struct ref *self));

/* Gives the object an id; the table takes a reference of its own. MC_ERR_TOO_MANY. */
int32_t object_publish(struct object *object, uint64_t *ret_id);

/* The object behind `id` with a new reference. MC_ERR_INVALID_HANDLE (stale, invented, of another kind), MC_ERR_FORKED.
 */
int32_t object_acquire(uint64_t id, enum object_kind kind, struct object **ret_object);

/* Takes the id away and hands the table's reference to the caller; of two racing callers one gets it. As
 * object_acquire. */
int32_t object_withdraw(uint64_t id, enum object_kind kind, struct object **ret_object);

/* How many forks lie between the process that loaded the library and this one; a relaxed load. */
uint32_t object_process(void);

#endif

/* store/operation.h - blocking operations on objects: batches of items, from their beginning to their results.
 *
 * Within a store call, any thread; the calling thread does all of it.
 */
#ifndef MC_STORE_OPERATION_H
#define MC_STORE_OPERATION_H

#include <stdint.h>

#include "store/copy.h"
#include "store/pattern.h"
#include "store/store.h"

/* What a batch call is about; as struct mc_store_operation, checked. */
struct operation {
    uint32_t kind; /* MC_STORE_PUT … */
    struct mc_keys keys;
    const void *const *values;
    void *const *buffers;
    const uint64_t *lengths;
    const struct mc_piece *pieces; /* instead of those three: of all objects behind each other … */
    const uint32_t *piece_counts;  /* … so many of each */
    bool ranges;                   /* the pieces are for parts of objects */
    struct mc_put_options put;     /* complete, but for its timeout_ns, which doesn't count */
    uint64_t deadline;
    uint64_t space_deadline; /* of a put's wait for space */
    /* Results, those that the kind has. */
    int32_t *statuses;
    int64_t *found;
    uint64_t *views;
    const void **data;
};

/* MC_OK if all items succeeded, else the status of the first that didn't, with its words in *error; *ret_failed is how
 * many didn't. */
int32_t operation_run(struct store *store, const struct operation *operation, uint32_t *ret_failed,
                      struct mc_error *error);

/* Until when an owner may take to accept so many bytes: one that takes nothing doesn't keep a put until its deadline, which
 * goes elsewhere (rule 3: by another slot). */
uint64_t operation_patience(uint64_t bytes, uint64_t deadline);

/* Carries out op->writes, each from the source of the same index. */
void operation_write(struct store *store, struct client_op *op, const struct copy_source *sources);

struct client_put_options operation_put_options(const struct mc_put_options *put, uint64_t space_deadline);

/* One page of keys; the list is the caller's to clear. */
int32_t operation_list(struct store *store, uint64_t *cursor, uint32_t limit, uint64_t deadline, struct items *ret_keys,
                       struct mc_error *error);

/* Removes every key that there is at the time, or (unless `pattern` is NULL) those that it is found in; how many, or a
 * negative status. */
int64_t operation_remove_all(struct store *store, const struct pattern *pattern, uint64_t deadline,
                             struct mc_error *error);

#endif

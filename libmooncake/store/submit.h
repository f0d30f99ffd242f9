/* store/submit.h - asynchronous operations: blocking ones on threads of the store, with a completion at their end.
 *
 * Threads: any.
 */
#ifndef MC_STORE_SUBMIT_H
#define MC_STORE_SUBMIT_H

#include <stdint.h>

#include "store/operation.h"
#include "transfer/queue.h"

/* Begins the operation, within a store call, and publishes its id. The queue must be open. MC_ERR_TOO_MANY, … */
int32_t submit_operation(struct store *store, const struct operation *operation, struct queue *queue,
                         uint64_t user_data, uint64_t *ret_id, struct mc_error *error);

/* As mc_operation_free. */
int32_t submit_free(uint64_t id);

#endif

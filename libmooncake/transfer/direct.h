/* transfer/direct.h - one request in the calling thread, without a batch: where the path is a copy. */
#ifndef MC_TRANSFER_DIRECT_H
#define MC_TRANSFER_DIRECT_H

#include <stdbool.h>

#include "transfer/peer.h"

/* Runs the request to its end, and stores its status in *ret_status. False, with nothing begun, if its bytes are moved
 * by others: then it needs a batch. Within an engine call, which it ends early (MC_ERR_CANCELLED) if the engine is
 * being closed. It takes no lock, allocates nothing, and makes no system call that the path doesn't. */
bool direct_run(struct peer *peer, const struct mc_request *wanted, uint64_t timeout, int32_t *ret_status,
                struct mc_error *error);

#endif

/* transfer/naming.h - an engine's name in its directory, and the names of its peers there. */
#ifndef MC_TRANSFER_NAMING_H
#define MC_TRANSFER_NAMING_H

#include <stdint.h>

#include "transfer/engine.h"
#include "transfer/peer.h"

/* Opens the directory and checks the name, as options and environment have them; asks nobody yet.
 * MC_ERR_INVALID_ARGUMENT, MC_ERR_NOT_SUPPORTED, MC_ERR_NO_MEMORY. */
int32_t naming_open(const struct mc_engine_options *options, struct naming **ret_naming, struct mc_error *error);

/* NULL is fine; returns NULL. Takes nothing out. */
struct naming *naming_free(struct naming *naming);

/* From now on the directory has the engine at `address`, under its name or else under this address. Waits until
 * `deadline`, 3 s at most. */
int32_t naming_publish(struct naming *naming, const char *address, uint64_t deadline, struct mc_error *error);

/* Takes it out again, unless another engine has put itself there. Waits 3 s at most; a failure is only logged. */
void naming_withdraw(struct naming *naming);

/* As peer_open, of a name in the engine's directory or, if it has none like that, of "host:port"; `timeout` is for both
 * steps. Within an engine call. */
int32_t naming_open_peer(struct engine *engine, const char *name, uint64_t timeout, struct peer **ret_peer,
                         struct mc_error *error);

#endif

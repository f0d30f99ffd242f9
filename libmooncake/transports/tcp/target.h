/* transports/tcp/target.h - the target's side of READ and WRITE frames. */
#ifndef MC_TRANSPORTS_TCP_TARGET_H
#define MC_TRANSPORTS_TCP_TARGET_H

#include "transports/guard.h"
#include "transports/transport.h"

struct tcp_target {
    const struct transport_host *host;
    struct guard_table guards;
    struct service read;
    struct service write;
};

/* Adds both services to the host's server. `target`, zeroed, and `host` outlive the server. */
void tcp_target_serve(struct tcp_target *target, const struct transport_host *host);

#endif

/* programs/metadata_server.h - a directory of engines over HTTP, as the reference's metadata server is one: values under
 * keys, which engines put there and look up. In memory only.
 *
 * The protocol has no authentication: whoever reaches it can read and write, within bounds of keys and bytes.
 */
#ifndef MC_PROGRAMS_METADATA_SERVER_H
#define MC_PROGRAMS_METADATA_SERVER_H

#include "programs/web.h"

struct metadata_server;

/* As web_open. */
int32_t metadata_server_open(const char *host, uint16_t port, struct metadata_server **ret_server,
                             struct mc_error *error);

/* NULL is fine; returns NULL. */
struct metadata_server *metadata_server_close(struct metadata_server *server);

const char *metadata_server_address(const struct metadata_server *server);

#endif

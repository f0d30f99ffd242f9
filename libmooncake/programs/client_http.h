/* programs/client_http.h - health and metrics of a memory owner over HTTP. */
#ifndef MC_PROGRAMS_CLIENT_HTTP_H
#define MC_PROGRAMS_CLIENT_HTTP_H

#include <mooncake/store.h>

#include "programs/web.h"

struct client_http;

/* As web_open. */
int32_t client_http_open(const char *host, uint16_t port, struct client_http **ret_http, struct mc_error *error);

/* From now on it tells of these; before that the owner isn't healthy. They outlive it. */
void client_http_set(struct client_http *http, mc_engine *engine, mc_store *store);

/* NULL is fine; returns NULL. */
struct client_http *client_http_close(struct client_http *http);

const char *client_http_address(const struct client_http *http);

#endif

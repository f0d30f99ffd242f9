/* programs/admin.h - the administration of a master over HTTP: health, metrics, segments, keys.
 *
 * Everybody who reaches it may read; what changes something needs the token. Its answers are those of the reference
 * where these are known, and never take the master's lock for longer than a page of keys.
 */
#ifndef MC_PROGRAMS_ADMIN_H
#define MC_PROGRAMS_ADMIN_H

#include "programs/token.h"
#include "programs/web.h"
#include "store/master_service.h"

struct admin;

struct admin_options {
    struct master_service *service; /* outlives it, as do the texts */
    const char *host;
    uint16_t port;
    const char *master;   /* where the master listens */
    const char *key_file; /* or NULL */
    struct token token;
};

/* As web_open. */
int32_t admin_open(const struct admin_options *options, struct admin **ret_admin, struct mc_error *error);

/* Ends what is in progress. NULL is fine; returns NULL. */
struct admin *admin_close(struct admin *admin);

const char *admin_address(const struct admin *admin);

/* programs/admin_metrics.c: Prometheus' text format; and some lines for people. Any thread. */
void admin_metrics(struct master_service *service, struct web_text *text);
void admin_summary(struct master_service *service, struct web_text *text);

#endif

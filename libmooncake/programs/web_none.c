/* programs/web_none.c - in place of web.c, where libmicrohttpd wasn't there when this was built. */
#include "programs/web.h"

#include "base/status.h"

const char *web_unavailable(void) {
    return "this build has none (libmicrohttpd was missing)";
}

int32_t web_open(const struct web_options *options, struct web **ret_web, struct mc_error *error) {
    (void)options;
    (void)ret_web;
    return status_set(error, MC_ERR_NOT_SUPPORTED, 0, "no HTTP: %s", web_unavailable());
}

struct web *web_close(struct web *web) {
    return web;
}

const char *web_address(const struct web *web) {
    (void)web;
    return "";
}

const char *web_argument(const struct web_request *request, const char *name) {
    (void)request;
    (void)name;
    return NULL;
}

const char *web_header(const struct web_request *request, const char *name) {
    (void)request;
    (void)name;
    return NULL;
}

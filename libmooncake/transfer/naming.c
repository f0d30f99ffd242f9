/* transfer/naming.c - how an engine uses its directory.
 *
 * Owns the directory, from naming_open to naming_free, and knows what was published there. What the directory says of a
 * peer is an address to connect to, and nothing else of it is kept.
 *
 * Threads: naming_publish and naming_withdraw are those of the engine's open and close; the rest any.
 */
#include "transfer/naming.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "metadata/directory.h"

struct naming {
    struct directory *directory;
    char name[ADDRESS_TEXT_MAX];    /* "" until it is known */
    char address[ADDRESS_TEXT_MAX]; /* "" until it is published */
};

int32_t naming_open(const struct mc_engine_options *options, struct naming **ret_naming, struct mc_error *error) {
    const char *name = options->name;
    struct naming *naming = calloc(1, sizeof(*naming));
    int32_t status = MC_OK;

    if (naming == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    if (name != NULL && *name != '\0')
        status = directory_check_name(name, error);
    if (status == MC_OK && name != NULL)
        text_copy(naming->name, sizeof(naming->name), name);
    if (status == MC_OK)
        status = directory_open(config_text(SETTING_DIRECTORY, options->directory), &naming->directory, error);
    if (status != MC_OK) {
        free(naming);
        return status;
    }
    *ret_naming = naming;
    return MC_OK;
}

struct naming *naming_free(struct naming *naming) {
    if (naming != NULL)
        directory_close(naming->directory);
    free(naming);
    return NULL;
}

int32_t naming_publish(struct naming *naming, const char *address, uint64_t deadline, struct mc_error *error) {
    int32_t status;

    if (naming->name[0] == '\0')
        text_copy(naming->name, sizeof(naming->name), address);
    status = directory_publish(naming->directory, naming->name, address, deadline, error);
    if (status == MC_OK)
        text_copy(naming->address, sizeof(naming->address), address);
    return status;
}

void naming_withdraw(struct naming *naming) {
    struct mc_error error = MC_ERROR_INIT;

    if (naming->address[0] != '\0' &&
        directory_withdraw(naming->directory, naming->name, naming->address, CLOCK_NEVER, &error) != MC_OK)
        log_warning("\"%s\" stays in the directory: %s", naming->name, error.message);
    naming->address[0] = '\0';
}

/* The address to connect to. *ret_named: it is the directory's. */
static int32_t find(struct naming *naming, const char *name, uint64_t deadline, char ret_address[ADDRESS_TEXT_MAX],
                    bool *ret_named, struct mc_error *error) {
    struct address_text parts;
    int32_t status = directory_find(naming->directory, name, deadline, ret_address, error);

    *ret_named = status == MC_OK && directory_keeps_names(naming->directory);
    if (status != MC_ERR_NAME_NOT_FOUND || address_parse(name, &parts, NULL) != MC_OK || parts.port < 1)
        return status;
    text_copy(ret_address, ADDRESS_TEXT_MAX, name);
    return MC_OK;
}

int32_t naming_open_peer(struct engine *engine, const char *name, uint64_t timeout, struct peer **ret_peer,
                         struct mc_error *error) {
    uint64_t now = clock_now(), deadline = clock_after(now, timeout);
    struct mc_error cause = MC_ERROR_INIT;
    char address[ADDRESS_TEXT_MAX];
    bool named = false;
    int32_t status;

    /* Names that are addresses are peer_open's to judge. */
    if (!directory_keeps_names(engine->naming->directory))
        return peer_open(engine, name, timeout, ret_peer, error);
    status = find(engine->naming, name, deadline, address, &named, error);
    if (status != MC_OK)
        return status;
    now = clock_now();
    status = peer_open(engine, address, deadline > now ? deadline - now : 1, ret_peer, &cause);
    if (status != MC_OK && named)
        return status_set(error, status, cause.system_errno, "\"%.64s\" is %s in the directory: %s", name, address,
                          cause.message);
    return status != MC_OK ? status_set(error, status, cause.system_errno, "%s", cause.message) : MC_OK;
}

/* metadata/p2p.c - the directory that isn't one: a name is the address itself. Any thread. */
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "metadata/directory.h"

static const char *p2p_unavailable(void) {
    return NULL;
}

static int32_t p2p_open(const char *where, struct directory **ret_directory, struct mc_error *error) {
    static struct directory directory = {.ops = &directory_p2p};

    (void)where;
    (void)error;
    *ret_directory = &directory;
    return MC_OK;
}

static void p2p_close(struct directory *directory) {
    (void)directory;
}

static int32_t p2p_publish(struct directory *directory, const char *name, const char *address, uint64_t deadline,
                           struct mc_error *error) {
    (void)directory;
    (void)deadline;
    if (strcmp(name, address) == 0)
        return MC_OK;
    return status_set(error, MC_ERR_INVALID_ARGUMENT, 0,
                      "\"%.120s\" can't be the name of an engine: without a directory it is its address", name);
}

static int32_t p2p_withdraw(struct directory *directory, const char *name, const char *address, uint64_t deadline,
                            struct mc_error *error) {
    (void)directory;
    (void)name;
    (void)address;
    (void)deadline;
    (void)error;
    return MC_OK;
}

static int32_t p2p_find(struct directory *directory, const char *name, uint64_t deadline,
                        char ret_address[ADDRESS_TEXT_MAX], struct mc_error *error) {
    struct address_text parts;
    int32_t status = address_parse(name, &parts, error);

    (void)directory;
    (void)deadline;
    if (status == MC_OK && parts.port < 1)
        status = status_set(error, MC_ERR_ADDRESS, 0, "\"%.120s\" has no port to connect to", name);
    if (status == MC_OK)
        text_copy(ret_address, ADDRESS_TEXT_MAX, name);
    return status;
}

const struct directory_ops directory_p2p = {
    .unavailable = p2p_unavailable,
    .open = p2p_open,
    .close = p2p_close,
    .publish = p2p_publish,
    .withdraw = p2p_withdraw,
    .find = p2p_find,
};

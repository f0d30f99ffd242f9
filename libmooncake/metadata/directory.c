/* metadata/directory.c - which kind of directory a connection string names, and what is the same for all kinds. */
#include "metadata/directory.h"

#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/status.h"

#define REQUEST_TIME (3 * CLOCK_SECOND)
#define ADDRESSES_MAX 4096u

static bool begins_with(const char *text, const char *prefix) {
    return strncasecmp(text, prefix, strlen(prefix)) == 0;
}

/* "host:port[,host:port…]", by which the reference's programs mean an etcd. */
static bool is_bare_addresses(const char *where) {
    struct address_text parts;
    char one[ADDRESS_TEXT_MAX];

    if (strlen(where) > ADDRESSES_MAX)
        return false;
    for (const char *at = where;; at++) {
        size_t length = strcspn(at, ",");

        if (length >= sizeof(one))
            return false;
        memcpy(one, at, length);
        one[length] = '\0';
        if (address_parse(one, &parts, NULL) != MC_OK || parts.port < 1)
            return false;
        at += length;
        if (*at == '\0')
            return true;
    }
}

static int32_t refuse_kind(const char *kind, const char *why, struct mc_error *error) {
    return status_set(error, MC_ERR_NOT_SUPPORTED, 0,
                      "%s%s: this version has no such directory; there are p2p and http://host:port/path", kind, why);
}

int32_t directory_open(const char *where, struct directory **ret_directory, struct mc_error *error) {
    if (where == NULL || *where == '\0' || strcasecmp(where, "p2p") == 0 || strcasecmp(where, "P2PHANDSHAKE") == 0)
        return directory_p2p.open("p2p", ret_directory, error);
    if (begins_with(where, "http://") || begins_with(where, "https://"))
        return directory_http.open(where, ret_directory, error);
    /* Not more of it: there may be a password. */
    if (begins_with(where, "redis://") || begins_with(where, "rediss://"))
        return refuse_kind("redis", "", error);
    if (begins_with(where, "etcd://"))
        return refuse_kind("etcd", "", error);
    if (is_bare_addresses(where))
        return refuse_kind("etcd", ", which a bare host:port means", error);
    return status_set(error, MC_ERR_INVALID_ARGUMENT, 0,
                      "no directory is called \"%.127s\"; there are p2p and http://host:port/path",
                      strchr(where, '@') != NULL ? "(with a password)" : where);
}

struct directory *directory_close(struct directory *directory) {
    if (directory != NULL)
        directory->ops->close(directory);
    return NULL;
}

bool directory_keeps_names(const struct directory *directory) {
    return directory->keeps_names;
}

int32_t directory_check_name(const char *name, struct mc_error *error) {
    size_t length = strnlen(name, DIRECTORY_NAME_MAX + 1);

    if (length == 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "the name of an engine is empty");
    if (length > DIRECTORY_NAME_MAX)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "the name of an engine has more than %u bytes: \"%.64s…\"",
                          DIRECTORY_NAME_MAX, name);
    for (const char *byte = name; *byte != '\0'; byte++)
        if (*byte < ' ' || *byte > '~')
            return status_set(error, MC_ERR_INVALID_ARGUMENT, 0,
                              "the name of an engine is printable ASCII; byte %zu of \"%.120s\" isn't",
                              (size_t)(byte - name), name);
    return MC_OK;
}

static uint64_t bounded(uint64_t deadline) {
    uint64_t latest = clock_after(clock_now(), REQUEST_TIME);

    return deadline < latest ? deadline : latest;
}

int32_t directory_publish(struct directory *directory, const char *name, const char *address, uint64_t deadline,
                          struct mc_error *error) {
    int32_t status = directory_check_name(name, error);

    return status == MC_OK ? directory->ops->publish(directory, name, address, bounded(deadline), error) : status;
}

int32_t directory_withdraw(struct directory *directory, const char *name, const char *address, uint64_t deadline,
                           struct mc_error *error) {
    int32_t status = directory_check_name(name, error);

    return status == MC_OK ? directory->ops->withdraw(directory, name, address, bounded(deadline), error) : status;
}

int32_t directory_find(struct directory *directory, const char *name, uint64_t deadline,
                       char ret_address[ADDRESS_TEXT_MAX], struct mc_error *error) {
    int32_t status = directory_check_name(name, error);

    return status == MC_OK ? directory->ops->find(directory, name, bounded(deadline), ret_address, error) : status;
}

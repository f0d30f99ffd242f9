/* metadata/directory.h - directories: which name stands for which address.
 *
 * What a directory says is an address and no more: who answers there is learned by connecting. Each kind is a table of
 * operations; a directory is immutable once it is open, so any thread may use it.
 */
#ifndef MC_METADATA_DIRECTORY_H
#define MC_METADATA_DIRECTORY_H

#include <stdbool.h>
#include <stdint.h>

#include <mooncake/error.h>

#include "os/address.h"

#define DIRECTORY_NAME_MAX 255u

struct directory;

/* Opens the directory that the connection string names; nothing is asked yet.
 *   NULL, "", "p2p", "P2PHANDSHAKE"   names are addresses, and nothing is kept
 *   "http://host:port/path", "https"  a metadata server
 *   "redis://…", "etcd://…", "host:port[,…]" (an etcd)   MC_ERR_NOT_SUPPORTED
 * MC_ERR_INVALID_ARGUMENT for anything else, MC_ERR_NOT_SUPPORTED where a library is missing, MC_ERR_NO_MEMORY. */
int32_t directory_open(const char *where, struct directory **ret_directory, struct mc_error *error);

/* NULL is fine; returns NULL. */
struct directory *directory_close(struct directory *directory);

/* False: names are addresses. */
bool directory_keeps_names(const struct directory *directory);

/* A name has 1 to 255 printable bytes of ASCII. MC_ERR_INVALID_ARGUMENT with words. */
int32_t directory_check_name(const char *name, struct mc_error *error);

/* The calls below wait until `deadline`, and not longer than 3 s. MC_ERR_UNREACHABLE, MC_ERR_PROTOCOL (answers that make
 * no sense), and MC_ERR_INVALID_ARGUMENT for a malformed name. */

/* From now on `name` stands for `address` ("host:port"), whatever it stood for before. */
int32_t directory_publish(struct directory *directory, const char *name, const char *address, uint64_t deadline,
                          struct mc_error *error);

/* Takes the name out if it still stands for `address`: another one's is left. MC_OK also if it wasn't there. */
int32_t directory_withdraw(struct directory *directory, const char *name, const char *address, uint64_t deadline,
                           struct mc_error *error);

/* The address that the name stands for. MC_ERR_NAME_NOT_FOUND; MC_ERR_ADDRESS where names are addresses. */
int32_t directory_find(struct directory *directory, const char *name, uint64_t deadline,
                       char ret_address[ADDRESS_TEXT_MAX], struct mc_error *error);

/* ---- Kinds ---- */

struct directory_ops {
    /* NULL, or why there is none in this process. */
    const char *(*unavailable)(void);
    int32_t (*open)(const char *where, struct directory **ret_directory, struct mc_error *error);
    void (*close)(struct directory *directory);
    int32_t (*publish)(struct directory *directory, const char *name, const char *address, uint64_t deadline,
                       struct mc_error *error);
    int32_t (*withdraw)(struct directory *directory, const char *name, const char *address, uint64_t deadline,
                        struct mc_error *error);
    int32_t (*find)(struct directory *directory, const char *name, uint64_t deadline,
                    char ret_address[ADDRESS_TEXT_MAX], struct mc_error *error);
};

/* First member of each kind's own. */
struct directory {
    const struct directory_ops *ops;
    bool keeps_names;
};

extern const struct directory_ops directory_p2p;
extern const struct directory_ops directory_http;

#endif

/* store/state_file.h - what a single master keeps over its restarts: its epoch, and the members' segments.
 *
 * A text file, one line each: "mooncake-master 1", "epoch N", "member <32 hex digits>" …; replaced as a whole.
 */
#ifndef MC_STORE_STATE_FILE_H
#define MC_STORE_STATE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include <mooncake/error.h>

#include "wire/message.h"

/* A file that doesn't exist, or path NULL: epoch 0 and no members. The array is the caller's to free.
 * MC_ERR_INVALID_ARGUMENT: it isn't such a file; MC_ERR_SYSTEM. */
int32_t state_file_load(const char *path, uint64_t *ret_epoch, struct message_id **ret_members, size_t *ret_count,
                        struct mc_error *error);

/* Path NULL: nothing. MC_ERR_SYSTEM, MC_ERR_NO_MEMORY. */
int32_t state_file_save(const char *path, uint64_t epoch, const struct message_id *members, size_t count);

#endif

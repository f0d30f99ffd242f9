/* programs/config_file_none.c - in place of config_file.c, where libyaml wasn't there when this was built. */
#include "programs/config_file.h"

#include "base/status.h"

int32_t config_file_read(const char *path, struct flags *flags, struct mc_error *error) {
    (void)flags;
    return status_set(error, MC_ERR_NOT_SUPPORTED, 0, "%.120s: this build reads no such files (libyaml was missing)",
                      path);
}

/* programs/config_file.h - a file of settings: a mapping of names of flags to their values, as YAML or JSON, which is a
 * part of YAML. */
#ifndef MC_PROGRAMS_CONFIG_FILE_H
#define MC_PROGRAMS_CONFIG_FILE_H

#include "programs/flags.h"

/* Takes what the file has, by flags_set. MC_ERR_SYSTEM (it can't be read), MC_ERR_INVALID_ARGUMENT with file and line,
 * MC_ERR_NOT_SUPPORTED (this build reads none), MC_ERR_NO_MEMORY. */
int32_t config_file_read(const char *path, struct flags *flags, struct mc_error *error);

#endif

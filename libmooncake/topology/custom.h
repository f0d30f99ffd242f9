/* topology/custom.h - a matrix that a user wrote. Threads: any. */
#ifndef MC_TOPOLOGY_CUSTOM_H
#define MC_TOPOLOGY_CUSTOM_H

#include <mooncake/error.h>

#include "topology/matrix.h"

struct json_value;

#define CUSTOM_SIZE_MAX ((size_t)1 << 20)

/* Reads and checks the file, of at most CUSTOM_SIZE_MAX bytes: an object of rows "location":[[cards],[cards]]. For
 * custom_free. As topology_matrix. */
int32_t custom_read(const char *path, struct json_value **ret_value, struct mc_error *error);
void custom_free(struct json_value *value);

/* Writes the rows in their order. */
void custom_write(struct json_value *value, struct matrix *matrix);

#endif

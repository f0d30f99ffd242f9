/* topology/topology.h - this host's memory, and the network cards that are near to it: mc_engine_topology.
 *
 * Threads: any.
 */
#ifndef MC_TOPOLOGY_TOPOLOGY_H
#define MC_TOPOLOGY_TOPOLOGY_H

#include <mooncake/error.h>

#define TOPOLOGY_SYSFS "/sys"

/* Stores the matrix as JSON, to be freed: what MC_CUSTOM_TOPO_JSON has, else what the sysfs tree below `root` has; of
 * the cards those that MC_TE_FILTERS names, if it does. Whatever the tree has is fine; MC_ERR_INVALID_ARGUMENT: the
 * file isn't a matrix, or can't be read, in words; MC_ERR_NOT_SUPPORTED: it can't be checked without libjansson;
 * MC_ERR_NO_MEMORY. */
int32_t topology_matrix(const char *root, char **ret_json, struct mc_error *error);

#endif

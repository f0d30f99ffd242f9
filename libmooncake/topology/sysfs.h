/* topology/sysfs.h - what a sysfs tree tells of a machine: nodes of memory, RDMA devices, GPUs, and where they are.
 *
 * The tree is believed as far as it makes sense: what is missing is absent, a number that is none is unknown, and a name
 * that no driver gives is skipped. Threads: any.
 */
#ifndef MC_TOPOLOGY_SYSFS_H
#define MC_TOPOLOGY_SYSFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mooncake/error.h>

#define TOPOLOGY_NODES_MAX 1024u
#define TOPOLOGY_DEVICES_MAX 256u /* of a kind; more are left out */
#define TOPOLOGY_NAME_MAX 64u
#define TOPOLOGY_PATH_MAX 256u

struct topology_device {
    char name[TOPOLOGY_NAME_MAX]; /* as RDMA devices are called; the PCI address of a GPU */
    int32_t node;                 /* -1: unknown */
    char path[TOPOLOGY_PATH_MAX]; /* of PCI bridges, "pci0000:00/0000:00:01.0/0000:01:00.0"; empty: unknown */
};

struct topology {
    uint32_t *nodes; /* ids, ascending; at least one */
    size_t node_count;
    struct topology_device *nics; /* by name, numbers as numbers */
    size_t nic_count;
    struct topology_device *gpus; /* by PCI address */
    size_t gpu_count;
};

/* Reads the tree below `root` into *ret_topology, for topology_free. MC_ERR_NO_MEMORY. */
int32_t topology_read(const char *root, struct topology *ret_topology);
void topology_free(struct topology *topology);

/* How many bridges and ends lie between two devices; UINT32_MAX if a path is unknown. */
uint32_t topology_distance(const struct topology_device *one, const struct topology_device *other);

/* Is it a name as drivers give: 1 to TOPOLOGY_NAME_MAX - 1 letters, digits, '_', '-', '.' and ':'? */
bool topology_is_name(const char *name, size_t length);

#endif

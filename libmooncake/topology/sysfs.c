/* topology/sysfs.c - reads /sys/devices/system/node, /sys/class/infiniband and /sys/bus/pci/devices.
 *
 * Owns nothing; a topology is its caller's. Any thread.
 */
#include "topology/sysfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/text.h"

#define NVIDIA "0x10de"
#define DISPLAY "0x03" /* PCI classes 03xx: VGA, 3D */

/* ---- Files ---- */

/* The begin of a file, without spaces behind it; empty if it can't be read. */
static void read_text(const char *root, const char *path, char *text, size_t size) {
    char whole[PATH_MAX];
    size_t length = 0;
    ssize_t got;
    int fd;

    text[0] = '\0';
    if ((size_t)snprintf(whole, sizeof(whole), "%s/%s", root, path) >= sizeof(whole))
        return;
    fd = open(whole, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    while (length < size - 1 && ((got = read(fd, text + length, size - 1 - length)) > 0 || (got < 0 && errno == EINTR)))
        length += got > 0 ? (size_t)got : 0;
    (void)close(fd);
    while (length > 0 && strchr(" \t\n", text[length - 1]) != NULL)
        length--;
    text[length] = '\0';
}

/* -1: unknown, which is also what sysfs says where a machine has no nodes. */
static int32_t read_node(const char *root, const char *path) {
    char text[32];
    uint64_t node;

    read_text(root, path, text, sizeof(text));
    return checked_decimal(text, &node) && node < TOPOLOGY_NODES_MAX ? (int32_t)node : -1;
}

bool topology_is_name(const char *name, size_t length) {
    if (length == 0 || length >= TOPOLOGY_NAME_MAX || name[0] == '.')
        return false;
    for (size_t i = 0; i < length; i++)
        if (!((name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
              (name[i] >= '0' && name[i] <= '9') || strchr("_-.:", name[i]) != NULL))
            return false;
    return true;
}

/* Calls `visit` with the name of each entry of a folder, until it returns false. */
static void each_entry(const char *root, const char *path, bool (*visit)(void *context, const char *name),
                       void *context) {
    char whole[PATH_MAX];
    struct dirent *entry;
    DIR *folder;

    if ((size_t)snprintf(whole, sizeof(whole), "%s/%s", root, path) >= sizeof(whole))
        return;
    folder = opendir(whole);
    if (folder == NULL)
        return;
    while ((entry = readdir(folder)) != NULL)
        if (topology_is_name(entry->d_name, strlen(entry->d_name)) && !visit(context, entry->d_name))
            break;
    (void)closedir(folder);
}

/* ---- Nodes ---- */

struct reading {
    const char *root;
    struct topology *topology;
    int32_t status;
};

/* Room for one more; false when there is none or shall be none. */
static bool grow(struct reading *reading, void **array, size_t count, size_t size, size_t maximum) {
    void *grown;

    if (count >= maximum)
        return false;
    if ((count & (count - 1)) != 0) /* it has grown to the next power of two */
        return true;
    grown = realloc(*array, (count > 0 ? 2 * count : 1) * size);
    if (grown == NULL) {
        reading->status = MC_ERR_NO_MEMORY;
        return false;
    }
    *array = grown;
    return true;
}

static bool visit_node(void *context, const char *name) {
    struct reading *reading = context;
    struct topology *topology = reading->topology;
    void *nodes = topology->nodes;
    uint64_t id;
    bool room;

    if (strncmp(name, "node", 4) != 0 || (name[4] == '0' && name[5] != '\0') || !checked_decimal(name + 4, &id) ||
        id >= TOPOLOGY_NODES_MAX)
        return true;
    room = grow(reading, &nodes, topology->node_count, sizeof(*topology->nodes), TOPOLOGY_NODES_MAX);
    topology->nodes = nodes;
    if (room)
        topology->nodes[topology->node_count++] = (uint32_t)id;
    return room;
}

/* ---- Devices ---- */

/* Where a device's link leads to below the root's "devices"; empty if that is unknown or too long. */
static void read_path(const char *root, const char *link, char path[TOPOLOGY_PATH_MAX]) {
    char whole[PATH_MAX];
    char *real, *begin;

    path[0] = '\0';
    if ((size_t)snprintf(whole, sizeof(whole), "%s/%s", root, link) >= sizeof(whole))
        return;
    real = realpath(whole, NULL);
    if (real == NULL)
        return;
    begin = strstr(real, "/devices/pci");
    if (begin != NULL && strlen(begin + strlen("/devices/")) < TOPOLOGY_PATH_MAX)
        text_copy(path, TOPOLOGY_PATH_MAX, begin + strlen("/devices/"));
    free(real);
}

static bool add_device(struct reading *reading, struct topology_device **devices, size_t *count, const char *name,
                       const char *folder) {
    struct topology_device *device;
    void *array = *devices;
    char path[PATH_MAX];
    bool room = grow(reading, &array, *count, sizeof(*device), TOPOLOGY_DEVICES_MAX);

    *devices = array;
    if (!room)
        return false;
    device = &(*devices)[(*count)++];
    text_copy(device->name, sizeof(device->name), name);
    (void)snprintf(path, sizeof(path), "%s/numa_node", folder);
    device->node = read_node(reading->root, path);
    read_path(reading->root, folder, device->path);
    return true;
}

static bool visit_nic(void *context, const char *name) {
    struct reading *reading = context;
    char folder[128];

    (void)snprintf(folder, sizeof(folder), "class/infiniband/%s/device", name);
    return add_device(reading, &reading->topology->nics, &reading->topology->nic_count, name, folder);
}

static bool visit_pci(void *context, const char *name) {
    struct reading *reading = context;
    char folder[128], path[160], text[32];

    (void)snprintf(folder, sizeof(folder), "bus/pci/devices/%s", name);
    (void)snprintf(path, sizeof(path), "%s/class", folder);
    read_text(reading->root, path, text, sizeof(text));
    if (strncmp(text, DISPLAY, strlen(DISPLAY)) != 0)
        return true;
    (void)snprintf(path, sizeof(path), "%s/vendor", folder);
    read_text(reading->root, path, text, sizeof(text));
    if (strcmp(text, NVIDIA) != 0)
        return true;
    return add_device(reading, &reading->topology->gpus, &reading->topology->gpu_count, name, folder);
}

/* Takes the first part of a path off, and returns its length. */
static size_t next_part(const char **path) {
    size_t length = strcspn(*path, "/");

    *path += length + ((*path)[length] == '/');
    return length;
}

uint32_t topology_distance(const struct topology_device *one, const struct topology_device *other) {
    const char *a = one->path, *b = other->path;
    uint32_t distance = 0;

    if (a[0] == '\0' || b[0] == '\0')
        return UINT32_MAX;
    while (a[0] != '\0' && b[0] != '\0') {
        const char *after_a = a, *after_b = b;
        size_t length = next_part(&after_a);

        if (next_part(&after_b) != length || strncmp(a, b, length) != 0)
            break;
        a = after_a;
        b = after_b;
    }
    for (; a[0] != '\0'; distance++)
        (void)next_part(&a);
    for (; b[0] != '\0'; distance++)
        (void)next_part(&b);
    return distance;
}

/* ---- All of it ---- */

static int by_id(const void *a, const void *b) {
    const uint32_t *one = a, *other = b;

    return *one < *other ? -1 : *one > *other;
}

/* mlx5_2 comes before mlx5_10. */
static int by_name(const void *a, const void *b) {
    const struct topology_device *one = a, *other = b;

    return strverscmp(one->name, other->name);
}

/* Domains are longer than four digits where they have to be. */
static int by_address(const void *a, const void *b) {
    const struct topology_device *one = a, *other = b;
    size_t length = strlen(one->name), other_length = strlen(other->name);

    return length != other_length ? (length < other_length ? -1 : 1) : strcmp(one->name, other->name);
}

/* On a machine of one node devices are on it, also where nothing says so. */
static void settle_nodes(const struct topology *topology, struct topology_device *devices, size_t count) {
    for (size_t i = 0; i < count && topology->node_count == 1; i++)
        if (devices[i].node < 0)
            devices[i].node = (int32_t)topology->nodes[0];
}

int32_t topology_read(const char *root, struct topology *ret_topology) {
    struct topology topology = {0};
    struct reading reading = {.root = root, .topology = &topology, .status = MC_OK};

    each_entry(root, "devices/system/node", visit_node, &reading);
    if (topology.node_count == 0 && reading.status == MC_OK) { /* a kernel for machines of one */
        topology.nodes = calloc(1, sizeof(*topology.nodes));
        topology.node_count = topology.nodes != NULL;
        reading.status = topology.nodes != NULL ? MC_OK : MC_ERR_NO_MEMORY;
    }
    each_entry(root, "class/infiniband", visit_nic, &reading);
    each_entry(root, "bus/pci/devices", visit_pci, &reading);
    if (reading.status != MC_OK) {
        topology_free(&topology);
        return reading.status;
    }
    qsort(topology.nodes, topology.node_count, sizeof(*topology.nodes), by_id);
    if (topology.nic_count > 0)
        qsort(topology.nics, topology.nic_count, sizeof(*topology.nics), by_name);
    if (topology.gpu_count > 0)
        qsort(topology.gpus, topology.gpu_count, sizeof(*topology.gpus), by_address);
    settle_nodes(&topology, topology.nics, topology.nic_count);
    settle_nodes(&topology, topology.gpus, topology.gpu_count);
    *ret_topology = topology;
    return MC_OK;
}

void topology_free(struct topology *topology) {
    free(topology->nodes);
    free(topology->nics);
    free(topology->gpus);
}

/* topology/topology.c - makes the matrix of what sysfs or a file tells.
 *
 * Owns nothing.
 *
 * Cards on a node are near to its memory. Of those on a GPU's node, the ones with the fewest bridges between are near to
 * it. All that isn't near is among the others, so that a row has every card once.
 */
#include "topology/topology.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/config.h"
#include "base/status.h"
#include "topology/custom.h"
#include "topology/matrix.h"
#include "topology/sysfs.h"

typedef bool (*is_near)(const struct topology *topology, const void *what, const struct topology_device *nic);

static bool near_node(const struct topology *topology, const void *what, const struct topology_device *nic) {
    const uint32_t *node = what;

    (void)topology;
    return nic->node == (int32_t)*node;
}

static bool near_gpu(const struct topology *topology, const void *what, const struct topology_device *nic) {
    const struct topology_device *gpu = what;
    uint32_t distance = topology_distance(gpu, nic);

    if (gpu->node < 0 || nic->node != gpu->node)
        return false;
    for (size_t i = 0; i < topology->nic_count; i++)
        if (topology->nics[i].node == gpu->node && topology_distance(gpu, &topology->nics[i]) < distance)
            return false;
    return true;
}

static void write_row(struct matrix *matrix, const char *location, const struct topology *topology, is_near near,
                      const void *what) {
    matrix_row(matrix, location);
    for (size_t i = 0; i < topology->nic_count; i++)
        if (near(topology, what, &topology->nics[i]))
            matrix_card(matrix, topology->nics[i].name);
    matrix_others(matrix);
    for (size_t i = 0; i < topology->nic_count; i++)
        if (!near(topology, what, &topology->nics[i]))
            matrix_card(matrix, topology->nics[i].name);
    matrix_row_end(matrix);
}

static void write_topology(const struct topology *topology, struct matrix *matrix) {
    char location[32];

    for (size_t i = 0; i < topology->node_count; i++) {
        (void)snprintf(location, sizeof(location), "cpu:%u", topology->nodes[i]);
        write_row(matrix, location, topology, near_node, &topology->nodes[i]);
    }
    for (size_t i = 0; i < topology->gpu_count; i++) {
        (void)snprintf(location, sizeof(location), "cuda:%zu", i);
        write_row(matrix, location, topology, near_gpu, &topology->gpus[i]);
    }
}

/* Of the one that there is. */
static size_t write_matrix(const struct topology *topology, struct json_value *custom, char *text, size_t size) {
    struct matrix matrix;

    matrix_begin(&matrix, config_text(SETTING_TOPOLOGY_FILTERS, NULL), text, size);
    if (custom != NULL)
        custom_write(custom, &matrix);
    else
        write_topology(topology, &matrix);
    return matrix_end(&matrix);
}

int32_t topology_matrix(const char *root, char **ret_json, struct mc_error *error) {
    const char *path = config_text(SETTING_TOPOLOGY_FILE, NULL);
    struct topology topology = {0};
    struct json_value *custom = NULL;
    int32_t status = path != NULL ? custom_read(path, &custom, error) : topology_read(root, &topology);
    char *text;
    size_t size;

    if (status != MC_OK)
        return path != NULL ? status : status_set(error, status, 0, "out of memory");
    size = write_matrix(&topology, custom, NULL, 0) + 1;
    text = malloc(size);
    if (text != NULL) {
        (void)write_matrix(&topology, custom, text, size);
        *ret_json = text;
    } else {
        status = status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    }
    topology_free(&topology);
    custom_free(custom);
    return status;
}

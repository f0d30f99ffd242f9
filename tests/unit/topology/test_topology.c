/* test_topology.c - what made-up sysfs trees, files and filters make of the matrix. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "os/jansson.h"
#include "topology/custom.h"
#include "topology/matrix.h"
#include "topology/sysfs.h"
#include "topology/topology.h"

static char root[64];

/* ---- Trees ---- */

static void whole_path(char whole[PATH_MAX], const char *path) {
    assert_true(snprintf(whole, PATH_MAX, "%s/%s", root, path) < PATH_MAX);
}

/* Makes the folders above a file. */
static void make_folders(char *whole) {
    for (char *slash = strchr(whole + strlen(root) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        assert_true(mkdir(whole, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
}

static void put_bytes(const char *path, const void *bytes, size_t length) {
    char whole[PATH_MAX];
    FILE *file;

    whole_path(whole, path);
    make_folders(whole);
    file = fopen(whole, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static void put(const char *path, const char *text) {
    put_bytes(path, text, strlen(text));
}

static void put_link(const char *path, const char *target) {
    char whole[PATH_MAX];

    whole_path(whole, path);
    make_folders(whole);
    assert_int_equal(symlink(target, whole), 0);
}

static void put_node(unsigned id) {
    char path[128];

    snprintf(path, sizeof(path), "devices/system/node/node%u/cpulist", id);
    put(path, "0-15\n");
}

/* A PCI device at a path below devices/, as "pci0000:00/0000:00:01.0/0000:01:00.0". */
static void put_pci(const char *place, const char *class, const char *vendor, const char *node) {
    const char *address = strrchr(place, '/') + 1;
    char path[512], target[512];

    snprintf(path, sizeof(path), "devices/%s/class", place);
    put(path, class);
    snprintf(path, sizeof(path), "devices/%s/vendor", place);
    put(path, vendor);
    snprintf(path, sizeof(path), "devices/%s/numa_node", place);
    put(path, node);
    snprintf(path, sizeof(path), "bus/pci/devices/%s", address);
    snprintf(target, sizeof(target), "../../../devices/%s", place);
    put_link(path, target);
}

static void put_gpu(const char *place, const char *node) {
    put_pci(place, "0x030200\n", "0x10de\n", node);
}

static void put_nic(const char *name, const char *place, const char *node) {
    char path[512], target[512];

    put_pci(place, "0x020700\n", "0x15b3\n", node);
    snprintf(path, sizeof(path), "class/infiniband/%s/device", name);
    snprintf(target, sizeof(target), "../../../devices/%s", place);
    put_link(path, target);
}

static int remove_one(const char *path, const struct stat *info, int flag, struct FTW *walk) {
    (void)info;
    (void)flag;
    (void)walk;
    return remove(path);
}

static int set_up(void **state) {
    (void)state;
    strcpy(root, "/tmp/mooncake-topology-XXXXXX");
    assert_non_null(mkdtemp(root));
    unsetenv("MC_CUSTOM_TOPO_JSON");
    unsetenv("MC_TE_FILTERS");
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    unsetenv("MC_CUSTOM_TOPO_JSON");
    unsetenv("MC_TE_FILTERS");
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void assert_matrix(const char *wanted) {
    struct mc_error error = MC_ERROR_INIT;
    char *json = NULL;

    if (topology_matrix(root, &json, &error) != MC_OK)
        fail_msg("%s", error.message);
    assert_string_equal(json, wanted);
    free(json);
}

/* Two sockets; two cards and two GPUs at each, of which the first ones share a switch. */
static void put_two_sockets(void) {
    put_node(0);
    put_node(1);
    put_nic("mlx5_0", "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0", "0\n");
    put_nic("mlx5_1", "pci0000:20/0000:20:01.0/0000:21:00.0", "0\n");
    put_nic("mlx5_2", "pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0", "1\n");
    put_nic("mlx5_10", "pci0000:a0/0000:a0:01.0/0000:a1:00.0", "1\n");
    put_gpu("pci0000:00/0000:00:01.0/0000:01:00.0/0000:03:00.0", "0\n");
    put_gpu("pci0000:40/0000:40:01.0/0000:41:00.0", "0\n");
    put_gpu("pci0000:80/0000:80:01.0/0000:81:00.0/0000:83:00.0", "1\n");
    put_gpu("pci0000:a0/0000:a0:02.0/0000:a2:00.0", "1\n");
    put_pci("pci0000:00/0000:00:1f.0", "0x060100\n", "0x8086\n", "0\n");
    put_pci("pci0000:00/0000:00:02.0", "0x030000\n", "0x1a03\n", "0\n"); /* a display of another maker */
    put_pci("pci0000:00/0000:00:03.0", "0x020000\n", "0x10de\n", "0\n"); /* another thing of this maker */
}

static void two_sockets_with_cards_and_gpus_make_the_matrix(void **state) {
    (void)state;
    put_two_sockets();
    assert_matrix("{\"cpu:0\":[[\"mlx5_0\",\"mlx5_1\"],[\"mlx5_2\",\"mlx5_10\"]],"
                  "\"cpu:1\":[[\"mlx5_2\",\"mlx5_10\"],[\"mlx5_0\",\"mlx5_1\"]],"
                  "\"cuda:0\":[[\"mlx5_0\"],[\"mlx5_1\",\"mlx5_2\",\"mlx5_10\"]],"
                  "\"cuda:1\":[[\"mlx5_1\"],[\"mlx5_0\",\"mlx5_2\",\"mlx5_10\"]],"
                  "\"cuda:2\":[[\"mlx5_2\"],[\"mlx5_0\",\"mlx5_1\",\"mlx5_10\"]],"
                  "\"cuda:3\":[[\"mlx5_10\"],[\"mlx5_0\",\"mlx5_1\",\"mlx5_2\"]]}");
}

static void nodes_and_devices_are_in_order(void **state) {
    struct topology topology;

    (void)state;
    put_two_sockets();
    put_node(4); /* a number is missing between */
    assert_int_equal(topology_read(root, &topology), MC_OK);
    assert_int_equal(topology.node_count, 3);
    assert_int_equal(topology.nodes[0], 0);
    assert_int_equal(topology.nodes[1], 1);
    assert_int_equal(topology.nodes[2], 4);
    assert_int_equal(topology.nic_count, 4);
    assert_int_equal(topology.gpu_count, 4);
    topology_free(&topology);
}

static void distance_counts_what_is_between(void **state) {
    static const struct {
        const char *one, *other;
        uint32_t distance;
    } table[] = {
        {"pci0000:00/a/b", "pci0000:00/a/b", 0}, {"pci0000:00/a/b", "pci0000:00/a/c", 2},
        {"pci0000:00/a/b", "pci0000:00/a", 1},   {"pci0000:00/a", "pci0000:00/a/b/c", 2},
        {"pci0000:00/a", "pci0000:00/ab", 2},    {"pci0000:00/a", "pci0000:01/a", 4},
        {"", "pci0000:01/a", UINT32_MAX},        {"", "", UINT32_MAX},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct topology_device one = {0}, other = {0};

        strcpy(one.path, table[i].one);
        strcpy(other.path, table[i].other);
        assert_int_equal(topology_distance(&one, &other), table[i].distance);
        assert_int_equal(topology_distance(&other, &one), table[i].distance);
    }
}

static void an_empty_tree_is_one_node_without_cards(void **state) {
    (void)state;
    assert_matrix("{\"cpu:0\":[[],[]]}");
    strcat(root, "/nothing");
    assert_matrix("{\"cpu:0\":[[],[]]}");
    *strrchr(root, '/') = '\0';
}

static void on_one_node_cards_without_a_node_are_near(void **state) {
    (void)state;
    put_node(0);
    put_nic("rxe0", "pci0000:00/0000:00:01.0", "-1\n");
    put("class/infiniband/rxe1/node_type", "1: CA\n"); /* a software device has no PCI device */
    put_gpu("pci0000:00/0000:00:02.0", "-1\n");
    assert_matrix("{\"cpu:0\":[[\"rxe0\",\"rxe1\"],[]],\"cuda:0\":[[\"rxe0\"],[\"rxe1\"]]}");
}

static void on_two_nodes_cards_without_a_node_are_near_to_none(void **state) {
    (void)state;
    put_node(0);
    put_node(1);
    put_nic("mlx5_0", "pci0000:00/0000:00:01.0", "-1\n");
    put_gpu("pci0000:00/0000:00:02.0", "-1\n");
    assert_matrix("{\"cpu:0\":[[],[\"mlx5_0\"]],\"cpu:1\":[[],[\"mlx5_0\"]],\"cuda:0\":[[],[\"mlx5_0\"]]}");
}

static void what_makes_no_sense_is_unknown_or_skipped(void **state) {
    static const char *const nodes[] = {"", "\n", "x", "99999999999999999999", "1024", "0x1", "-2", "1 1", "+1"};

    (void)state;
    put_node(0);
    put_node(1);
    put("devices/system/node/node01/cpulist", "7\n");
    put("devices/system/node/node9999/cpulist", "7\n");
    put("devices/system/node/nodex/cpulist", "7\n");
    put("devices/system/node/node/cpulist", "7\n");
    put("devices/system/node/node18446744073709551616/cpulist", "7\n");
    put("class/infiniband/a b/device/numa_node", "0\n");
    put("class/infiniband/\"],[\"/device/numa_node", "0\n");
    put("class/infiniband/\xff\x01/device/numa_node", "0\n");
    put("class/infiniband/0123456789012345678901234567890123456789012345678901234567890123/device/numa_node", "0\n");
    put_gpu("pci0000:00/0000:00:02.0", "seven\n");
    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        char name[128];

        snprintf(name, sizeof(name), "class/infiniband/n%zu/device/numa_node", i);
        put(name, nodes[i]);
    }
    assert_matrix("{\"cpu:0\":[[],[\"n0\",\"n1\",\"n2\",\"n3\",\"n4\",\"n5\",\"n6\",\"n7\",\"n8\"]],"
                  "\"cpu:1\":[[],[\"n0\",\"n1\",\"n2\",\"n3\",\"n4\",\"n5\",\"n6\",\"n7\",\"n8\"]],"
                  "\"cuda:0\":[[],[\"n0\",\"n1\",\"n2\",\"n3\",\"n4\",\"n5\",\"n6\",\"n7\",\"n8\"]]}");
}

static void more_devices_than_are_kept_are_left_out(void **state) {
    struct topology topology;

    (void)state;
    for (unsigned i = 0; i < TOPOLOGY_DEVICES_MAX + 10; i++) {
        char path[128];

        snprintf(path, sizeof(path), "class/infiniband/n%u/device/numa_node", i);
        put(path, "0\n");
    }
    assert_int_equal(topology_read(root, &topology), MC_OK);
    assert_int_equal(topology.nic_count, TOPOLOGY_DEVICES_MAX);
    topology_free(&topology);
}

/* ---- Filters ---- */

static void a_filter_leaves_the_cards_that_it_names(void **state) {
    static const struct {
        const char *filters, *matrix;
    } table[] = {
        {"mlx5_1", "{\"cpu:0\":[[\"mlx5_1\"],[]]}"},
        {"mlx5_10,mlx5_1", "{\"cpu:0\":[[\"mlx5_1\",\"mlx5_10\"],[]]}"},
        {" mlx5_10 ,, other,", "{\"cpu:0\":[[\"mlx5_10\"],[]]}"},
        {"mlx5_", "{\"cpu:0\":[[],[]]}"},
        {",", "{\"cpu:0\":[[],[]]}"},
        {"", "{\"cpu:0\":[[\"mlx5_1\",\"mlx5_10\"],[]]}"},
    };

    (void)state;
    put_node(0);
    put_nic("mlx5_1", "pci0000:00/0000:00:01.0", "0\n");
    put_nic("mlx5_10", "pci0000:00/0000:00:02.0", "0\n");
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        setenv("MC_TE_FILTERS", table[i].filters, 1);
        assert_matrix(table[i].matrix);
    }
}

/* ---- A file in the tree's place ---- */

static void set_file(const char *text, size_t length) {
    char whole[PATH_MAX];

    put_bytes("custom.json", text, length);
    whole_path(whole, "custom.json");
    setenv("MC_CUSTOM_TOPO_JSON", whole, 1);
}

static void need_jansson(void) {
    const char *unavailable = jansson_unavailable();

    if (unavailable == NULL)
        return;
    printf("# %s\n", unavailable);
    skip();
}

static void a_file_replaces_what_the_system_tells(void **state) {
    const char *text = " { \"cuda:0\": [[\"mlx5_3\"], [\"mlx5_2\", \"mlx5_1\"]],\n \"*\": [[], [\"mlx5_1\"]] }\n";

    (void)state;
    need_jansson();
    put_two_sockets();
    set_file(text, strlen(text));
    assert_matrix("{\"cuda:0\":[[\"mlx5_3\"],[\"mlx5_2\",\"mlx5_1\"]],\"*\":[[],[\"mlx5_1\"]]}");
    setenv("MC_TE_FILTERS", "mlx5_1,mlx5_3", 1);
    assert_matrix("{\"cuda:0\":[[\"mlx5_3\"],[\"mlx5_1\"]],\"*\":[[],[\"mlx5_1\"]]}");
    set_file("{}", 2);
    assert_matrix("{}");
}

static void assert_refused(const char *words) {
    struct mc_error error = MC_ERROR_INIT;
    char *json = NULL;

    assert_int_equal(topology_matrix(root, &json, &error), MC_ERR_INVALID_ARGUMENT);
    assert_null(json);
    assert_non_null(strstr(error.message, "MC_CUSTOM_TOPO_JSON"));
    if (strstr(error.message, words) == NULL)
        fail_msg("\"%s\" isn't in \"%s\"", words, error.message);
}

static void a_file_that_is_no_matrix_is_refused_with_words(void **state) {
    static const struct {
        const char *text, *words;
    } table[] = {
        {"", "no JSON"},
        {"{", "no JSON"},
        {"{} {}", "no JSON"},
        {"[]", "no object"},
        {"{\"cpu:0\":[[],[]],\"cpu:0\":[[],[]]}", "no JSON"},
        {"{\"cpu:0\":[[\"a\\u0000b\"],[]]}", "no JSON"},
        {"{\"cpu:0\":{}}", "has not two lists"},
        {"{\"cpu:0\":[[]]}", "has not two lists"},
        {"{\"cpu:0\":[[],[],[]]}", "has not two lists"},
        {"{\"cpu:0\":[[],{}]}", "is not a list"},
        {"{\"cpu:0\":[\"mlx5_0\",[]]}", "is not a list"},
        {"{\"cpu:0\":[[1],[]]}", "no name of a device"},
        {"{\"cpu:0\":[[],[\"\"]]}", "no name of a device"},
        {"{\"cpu:0\":[[],[\"a b\"]]}", "no name of a device"},
        {"{\"cpu 0\":[[],[]]}", "no location"},
        {"{\"\":[[],[]]}", "no location"},
    };
    static char deep[100000];

    (void)state;
    need_jansson();
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        set_file(table[i].text, strlen(table[i].text));
        assert_refused(table[i].words);
    }
    memset(deep, '[', sizeof(deep));
    set_file(deep, sizeof(deep));
    assert_refused("no JSON");
}

static void a_file_that_is_missing_or_too_long_is_refused_with_words(void **state) {
    size_t size = CUSTOM_SIZE_MAX + 1;
    char *text = malloc(size);

    (void)state;
    assert_non_null(text);
    memset(text, ' ', size);
    memcpy(text, "{}", 2);
    need_jansson();
    set_file(text, size - 1);
    assert_matrix("{}");
    set_file(text, size);
    assert_refused("too large");
    free(text);
    setenv("MC_CUSTOM_TOPO_JSON", "/nowhere/at/all", 1);
    assert_refused("No such file");
    setenv("MC_CUSTOM_TOPO_JSON", "/", 1);
    assert_refused("directory");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(two_sockets_with_cards_and_gpus_make_the_matrix, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nodes_and_devices_are_in_order, set_up, tear_down),
        cmocka_unit_test(distance_counts_what_is_between),
        cmocka_unit_test_setup_teardown(an_empty_tree_is_one_node_without_cards, set_up, tear_down),
        cmocka_unit_test_setup_teardown(on_one_node_cards_without_a_node_are_near, set_up, tear_down),
        cmocka_unit_test_setup_teardown(on_two_nodes_cards_without_a_node_are_near_to_none, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_makes_no_sense_is_unknown_or_skipped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(more_devices_than_are_kept_are_left_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_filter_leaves_the_cards_that_it_names, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_replaces_what_the_system_tells, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_is_no_matrix_is_refused_with_words, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_that_is_missing_or_too_long_is_refused_with_words, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

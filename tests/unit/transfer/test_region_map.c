/* test_region_map.c - the map of regions: order, floors, and looks beside changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <cmocka.h>

#include "transfer/region_map.h"

#define NODES 2000u

/* A made-up order of 0 … NODES - 1: 777 and NODES have no common factor. */
static uint64_t shuffled(uint64_t index) {
    return index * 777u % NODES;
}

static void insert(struct region_map *map, struct region_node *node, uint64_t base) {
    region_map_begin(map);
    region_map_insert(map, node, base);
    region_map_end(map);
}

static void erase(struct region_map *map, struct region_node *node) {
    region_map_begin(map);
    region_map_erase(map, node);
    region_map_end(map);
}

static void the_floor_is_the_last_node_at_or_below(void **state) {
    struct region_node *nodes = calloc(NODES, sizeof(*nodes));
    struct region_map map;

    (void)state;
    region_map_init(&map);
    assert_null(region_map_floor(&map, UINT64_MAX));
    for (uint64_t i = 0; i < NODES; i++)
        insert(&map, &nodes[shuffled(i)], shuffled(i) * 10 + 5);
    assert_null(region_map_floor(&map, 4));
    for (uint64_t i = 0; i < NODES; i++) {
        assert_ptr_equal(region_map_floor(&map, i * 10 + 5), &nodes[i]);
        assert_ptr_equal(region_map_floor(&map, i * 10 + 14), &nodes[i]);
        assert_ptr_equal(region_map_next(&nodes[i]), i + 1 < NODES ? &nodes[i + 1] : NULL);
    }
    assert_ptr_equal(region_map_floor(&map, UINT64_MAX), &nodes[NODES - 1]);
    free(nodes);
}

static void what_is_taken_out_is_found_no_more(void **state) {
    struct region_node *nodes = calloc(NODES, sizeof(*nodes));
    struct region_map map;

    (void)state;
    region_map_init(&map);
    for (uint64_t i = 0; i < NODES; i++)
        insert(&map, &nodes[i], i);
    for (uint64_t i = 0; i < NODES; i++)
        if (shuffled(i) % 2 == 1)
            erase(&map, &nodes[shuffled(i)]);
    for (uint64_t i = 0; i < NODES; i++)
        assert_ptr_equal(region_map_floor(&map, i), &nodes[i - i % 2]);
    for (uint64_t i = 0; i < NODES; i += 2)
        erase(&map, &nodes[i]);
    assert_null(region_map_floor(&map, UINT64_MAX));
    assert_null(region_map_next(&map.head));
    free(nodes);
}

static void a_look_does_not_hold_over_a_change(void **state) {
    struct region_node node;
    struct region_map map;
    uint64_t sequence;

    (void)state;
    region_map_init(&map);
    sequence = region_map_look(&map);
    assert_true(region_map_holds(&map, sequence));
    region_map_begin(&map);
    assert_false(region_map_holds(&map, sequence));
    region_map_insert(&map, &node, 1);
    region_map_end(&map);
    assert_false(region_map_holds(&map, sequence));
    assert_true(region_map_holds(&map, region_map_look(&map)));
}

struct race {
    struct region_map map;
    struct region_node nodes[64];
    atomic_bool over;
};

/* Nodes are 100 apart, and move by 50 and back. */
static void *move_nodes(void *context) {
    struct race *race = context;

    for (uint64_t i = 0; i < 20000; i++) {
        struct region_node *node = &race->nodes[i % 64];
        uint64_t base = (i % 64 + 1) * 100 + (i / 64 % 2 == 0 ? 50 : 0);

        region_map_begin(&race->map);
        region_map_erase(&race->map, node);
        region_map_insert(&race->map, node, base);
        region_map_end(&race->map);
    }
    atomic_store(&race->over, true);
    return NULL;
}

static void looks_that_hold_are_right_beside_changes(void **state) {
    static struct race race;
    pthread_t mover;
    uint64_t held = 0;

    (void)state;
    region_map_init(&race.map);
    for (uint64_t i = 0; i < 64; i++)
        insert(&race.map, &race.nodes[i], (i + 1) * 100);
    assert_int_equal(pthread_create(&mover, NULL, move_nodes, &race), 0);
    for (uint64_t i = 0; !atomic_load(&race.over) || held == 0; i++) {
        uint64_t address = (i % 64 + 1) * 100 + 75;
        uint64_t sequence = region_map_look(&race.map);
        struct region_node *found = region_map_floor(&race.map, address);

        if (!region_map_holds(&race.map, sequence))
            continue;
        held++;
        assert_ptr_equal(found, &race.nodes[i % 64]);
    }
    pthread_join(mover, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_floor_is_the_last_node_at_or_below),
        cmocka_unit_test(what_is_taken_out_is_found_no_more),
        cmocka_unit_test(a_look_does_not_hold_over_a_change),
        cmocka_unit_test(looks_that_hold_are_right_beside_changes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

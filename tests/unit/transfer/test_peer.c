/* test_peer.c - which path is taken, and what is said when a better one has stopped working. The paths are fakes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <mooncake/log.h>

#include "transfer/peer.h"

static bool reaches;
static const char *trouble;

static bool reach(struct transport_link *link, const struct slice *slice) {
    (void)link;
    (void)slice;
    return reaches;
}

static const char *trouble_of(struct transport_link *link) {
    (void)link;
    return trouble;
}

static const struct transport_ops near = {.name = "near", .cost = 1, .reach = reach, .trouble = trouble_of};
static const struct transport_ops far = {.name = "far", .cost = 2};

struct said {
    int lines;
    char line[300];
};

static void keep(int32_t level, const char *line, void *context) {
    struct said *said = context;

    assert_int_equal(level, MC_LOG_WARNING);
    said->lines++;
    snprintf(said->line, sizeof(said->line), "%s", line);
}

static struct peer new_peer(void) {
    struct transport_link *some = (struct transport_link *)(void *)&reaches;

    return (struct peer){
        .address = "10.0.0.1:7",
        .links = {{.ops = &transport_self}, {.ops = &near, .link = some}, {.ops = &far, .link = some}},
    };
}

static void the_cheapest_path_that_reaches_is_taken(void **state) {
    struct peer peer = new_peer();
    struct slice slice = {.length = 1};

    (void)state;
    reaches = true;
    assert_ptr_equal(peer_choose(&peer, &slice), &peer.links[1]);
    reaches = false;
    assert_ptr_equal(peer_choose(&peer, &slice), &peer.links[2]);
    peer.links[2].link = NULL;
    assert_null(peer_choose(&peer, &slice));
}

static void a_path_that_has_stopped_working_is_named_once_with_its_reason(void **state) {
    struct peer peer = new_peer();
    struct slice slice = {.length = 1};
    struct said said = {0};

    (void)state;
    reaches = false;
    trouble = NULL;
    mc_log_set(MC_LOG_WARNING, keep, &said);
    peer_choose(&peer, &slice); /* it leads elsewhere, which is no trouble */
    assert_int_equal(said.lines, 0);
    trouble = "its process has ended";
    for (int i = 0; i < 3; i++)
        assert_ptr_equal(peer_choose(&peer, &slice), &peer.links[2]);
    mc_log_set(MC_LOG_WARNING, NULL, NULL);
    assert_int_equal(said.lines, 1);
    assert_string_equal(said.line, "near to 10.0.0.1:7 fails, far is tried: its process has ended");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cheapest_path_that_reaches_is_taken),
        cmocka_unit_test(a_path_that_has_stopped_working_is_named_once_with_its_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

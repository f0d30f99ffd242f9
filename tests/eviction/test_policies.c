/* test_policies.c - the policy that learns beside LRU, on workloads that are made here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random.h"
#include "cache.h"

enum { CAPACITY = 1000, LONG = 200000 };

/* Requests of 1 to 8 blocks that nobody has seen before; those of others have ids below. */
#define FRESH (1ull << 40)

static void add_fresh(struct trace *trace, struct random *random, uint64_t *fresh) {
    for (uint64_t left = 1 + random_below(random, 8); left > 0; left--)
        trace_add(trace, FRESH + (*fresh)++);
    trace_end(trace);
}

/* A block of a hot set of so many, the first more often than the last. */
static void add_hot(struct trace *trace, struct random *random, uint64_t begin, uint64_t size) {
    uint64_t one = random_below(random, size), other = random_below(random, size);

    trace_add(trace, begin + (one < other ? one : other));
    trace_end(trace);
}

/* The ratios of both policies, as said for people, too. */
static void compare(const char *name, struct trace *trace, double *ret_lru, double *ret_hazard) {
    double accesses = (double)trace->id_count;

    *ret_lru = (double)cache_hits(&policy_lru, trace, CAPACITY) / accesses;
    *ret_hazard = (double)cache_hits(&policy_hazard, trace, CAPACITY) / accesses;
    print_message("%s: lru %.4f, hazard %.4f\n", name, *ret_lru, *ret_hazard);
    trace_clear(trace);
}

static void of_a_loop_longer_than_the_cache_a_part_stays(void **state) {
    struct trace trace = {0};
    double lru, hazard;

    (void)state;
    for (uint64_t i = 0; i < LONG; i++) {
        trace_add(&trace, i % (CAPACITY * 3 / 2));
        trace_end(&trace);
    }
    compare("loop", &trace, &lru, &hazard);
    assert_true(lru == 0 && hazard > 0.4); /* at best two of three */
}

static void a_scan_does_not_sweep_out_what_is_hot(void **state) {
    struct random random = {.state = 1};
    struct trace trace = {0};
    uint64_t fresh = 0;
    double lru, hazard;

    (void)state;
    while (trace.id_count < LONG) {
        for (int i = 0; i < 2000; i++)
            add_hot(&trace, &random, 0, CAPACITY * 3 / 4);
        for (int i = 0; i < 2000; i++) {
            trace_add(&trace, FRESH + fresh++);
            trace_end(&trace);
        }
    }
    compare("scans", &trace, &lru, &hazard);
    assert_true(hazard > lru + 0.03);
}

static void one_hit_wonders_are_given_up_first(void **state) {
    struct random random = {.state = 2};
    struct trace trace = {0};
    uint64_t fresh = 0;
    double lru, hazard;

    (void)state;
    while (trace.id_count < LONG) {
        add_hot(&trace, &random, 0, CAPACITY * 2);
        add_fresh(&trace, &random, &fresh);
    }
    compare("one-hit wonders", &trace, &lru, &hazard);
    assert_true(hazard > lru * 1.2);
}

/* What is often used, and then never again. */
static void a_hot_set_that_moves_is_followed(void **state) {
    struct random random = {.state = 3};
    struct trace trace = {0};
    double lru, hazard;

    (void)state;
    for (uint64_t i = 0; i < LONG; i++)
        add_hot(&trace, &random, i / 10000 * 100000, CAPACITY * 3 / 2);
    compare("a hot set that moves", &trace, &lru, &hazard);
    assert_true(hazard > lru - 0.02); /* what is learned of the old set holds for a while */
}

/* LRU is the best there is: what was read last is read next. */
static void where_lru_is_right_little_is_lost(void **state) {
    struct random random = {.state = 4};
    struct trace trace = {0};
    double lru, hazard;

    (void)state;
    for (uint64_t i = 0; i < LONG; i++) {
        uint64_t back = random_below(&random, 4) == 0 ? 0 : 1 + random_below(&random, CAPACITY * 9 / 10);

        trace_add(&trace, back == 0 || back > trace.id_count ? FRESH + i : trace.ids[trace.id_count - back]);
        trace_end(&trace);
    }
    compare("recency alone", &trace, &lru, &hazard);
    assert_true(hazard > lru - 0.02);
}

/* Conversations: a prompt is an earlier one without its last block, and some more; most end soon. */
static void prefixes_of_conversations_are_kept(void **state) {
    struct random random = {.state = 5};
    struct trace trace = {0};
    uint64_t fresh = 1;
    double lru, hazard;

    (void)state;
    while (trace.id_count < LONG) {
        uint64_t back = 1 + random_below(&random, 1 + random_below(&random, 2000));
        size_t old = trace.count, begin, length;

        if (old > back && random_below(&random, 5) < 2) {
            old -= back;
            begin = old > 0 ? trace.ends[old - 1] : 0;
            length = trace.ends[old] - begin;
            for (size_t i = 0; i + 1 < length && i < 100; i++)
                trace_add(&trace, trace.ids[begin + i]);
        } else {
            trace_add(&trace, 0);
        }
        for (uint64_t left = 1 + random_below(&random, 20); left > 0; left--)
            trace_add(&trace, fresh++);
        trace_end(&trace);
    }
    compare("conversations", &trace, &lru, &hazard);
    assert_true(hazard > lru);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_a_loop_longer_than_the_cache_a_part_stays),
        cmocka_unit_test(a_scan_does_not_sweep_out_what_is_hot),
        cmocka_unit_test(one_hit_wonders_are_given_up_first),
        cmocka_unit_test(a_hot_set_that_moves_is_followed),
        cmocka_unit_test(where_lru_is_right_little_is_lost),
        cmocka_unit_test(prefixes_of_conversations_are_kept),
    };

    return cmocka_run_group_tests_name("eviction", tests, NULL, NULL);
}

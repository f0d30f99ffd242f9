/* tests/simulation/test_simulation.c - seeds are clean, and each planted mistake is found. `make simulate` runs more. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

/* Every test also runs under sanitizers, where one seed takes many times as long. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static const struct planted {
    const char *name;
    uint64_t bit;
    uint64_t seeds;
} mistakes[] = {
#define PLANTED(NAME, seeds) {#NAME, 1ull << MISTAKE_##NAME, seeds},
#include "mistakes.def"
#undef PLANTED
};

#define COUNT (sizeof(mistakes) / sizeof(mistakes[0]))

static struct sim *sim;

static int set_up(void **state) {
    (void)state;
    sim = sim_new();
    return sim == NULL;
}

static int tear_down(void **state) {
    (void)state;
    sim = sim_free(sim);
    return 0;
}

static void run_clean(uint64_t first, uint64_t count) {
    mistakes_planted = 0;
    for (uint64_t seed = first; seed < first + count; seed++)
        if (!sim_run(sim, seed, false))
            fail_msg("seed %lu at %.3f: %s (simulate --first %lu --trace)", seed, (double)sim->now / UNIT,
                     sim->violation, seed);
}

static void seeds_are_clean(void **state) {
    (void)state;
    run_clean(1, SANITIZED ? 150 : 4000);
}

static void the_same_seed_gives_the_same_run(void **state) {
    uint64_t steps[2], numbers[2];

    (void)state;
    mistakes_planted = 0;
    for (size_t i = 0; i < 2; i++) {
        assert_true(sim_run(sim, 17, false));
        steps[i] = sim->steps;
        numbers[i] = sim->random.state;
    }
    assert_int_equal(steps[0], steps[1]);
    assert_int_equal(numbers[0], numbers[1]);
}

static void much_happens_in_the_runs(void **state) {
    uint64_t reads = 0, puts = 0, epochs = 0;

    (void)state;
    mistakes_planted = 0;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        assert_true(sim_run(sim, seed, false));
        reads += sim->reads;
        puts += sim->puts;
        epochs += sim->epoch;
    }
    assert_true(reads > 200);
    assert_true(puts > 200);
    assert_true(epochs > 75);
}

static void a_planted_mistake_is_found(void **state) {
    const struct planted *planted = *state;
    uint64_t seed = 1;

    mistakes_planted = planted->bit;
    while (seed <= planted->seeds && sim_run(sim, seed, false))
        seed++;
    mistakes_planted = 0;
    if (seed > planted->seeds)
        fail_msg("%s isn't found in %lu seeds", planted->name, planted->seeds);
}

/* A mistake that no line speaks of would never be looked for. */
static void every_mistake_is_listed(void **state) {
    uint64_t listed = 0;

    (void)state;
    for (size_t i = 0; i < COUNT; i++)
        listed |= mistakes[i].bit;
    assert_int_equal(listed, (1ull << MISTAKE_COUNT) - 1);
}

int main(void) {
    struct CMUnitTest tests[COUNT + 4] = {
        cmocka_unit_test(seeds_are_clean),
        cmocka_unit_test(the_same_seed_gives_the_same_run),
        cmocka_unit_test(much_happens_in_the_runs),
        cmocka_unit_test(every_mistake_is_listed),
    };
    static char names[COUNT][64];
    size_t count = 4;

    for (size_t i = 0; i < COUNT; i++) {
        if (mistakes[i].seeds > (SANITIZED ? 300 : 4000))
            continue; /* `make simulate` looks for those that are rare */
        snprintf(names[i], sizeof(names[i]), "a_planted_mistake_is_found: %s", mistakes[i].name);
        tests[count++] = (struct CMUnitTest){
            .name = names[i], .test_func = a_planted_mistake_is_found, .initial_state = (void *)&mistakes[i]};
    }
    return _cmocka_run_group_tests("simulation", tests, count, set_up, tear_down);
}

/* tests/simulation/simulate.c - runs seeds: simulate [--mistake NAME,…] [--first N] [--seeds N] [--jobs N] [--trace]
 *
 * Without a mistake, each seed must be clean; a violation is printed with its seed. With mistakes, they are planted, and
 * the first seed that finds each is printed; it is a failure if none does, of as many as mistakes.def allows where
 * --seeds says nothing else. --mistake all: each of them. --trace prints the history of the first seed. --jobs divides the seeds, or the mistakes, among processes.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const names[] = {
#define MISTAKE_NAME(NAME, words) #NAME,
    MISTAKE_TABLE(MISTAKE_NAME)
#undef MISTAKE_NAME
};

/* How many seeds may be needed to find each. */
static const uint64_t bounds[] = {
#define PLANTED(NAME, seeds) [MISTAKE_##NAME] = (seeds),
#include "mistakes.def"
#undef PLANTED
};

struct options {
    uint64_t planted;
    bool each;
    uint64_t first;
    uint64_t seeds; /* 0: as many as each mistake may need */
    uint64_t jobs;
    uint64_t shown; /* violations, at most */
    bool trace;
};

static int usage(void) {
    fprintf(stderr, "simulate [--mistake NAME,...|all] [--first N] [--seeds N] [--jobs N] [--shown N] [--trace]\n"
                    "mistakes:");
    for (size_t i = 0; i < MISTAKE_COUNT; i++)
        fprintf(stderr, " %s", names[i]);
    fputc('\n', stderr);
    return 2;
}

static bool parse_mistakes(const char *text, struct options *options) {
    char *copy = strdup(text), *rest = copy;
    bool known = copy != NULL;

    for (char *name; known && (name = strsep(&rest, ",")) != NULL;) {
        size_t i = 0;

        while (i < MISTAKE_COUNT && strcmp(names[i], name) != 0)
            i++;
        if (i < MISTAKE_COUNT)
            options->planted |= 1ull << i;
        else if (strcmp(name, "all") == 0)
            options->each = true;
        else
            known = false;
    }
    free(copy);
    return known;
}

static bool parse(int count, char **words, struct options *options) {
    for (int i = 1; i < count; i++) {
        uint64_t *number = strcmp(words[i], "--first") == 0   ? &options->first
                           : strcmp(words[i], "--seeds") == 0 ? &options->seeds
                           : strcmp(words[i], "--jobs") == 0  ? &options->jobs
                           : strcmp(words[i], "--shown") == 0 ? &options->shown
                                                              : NULL;

        if (strcmp(words[i], "--trace") == 0)
            options->trace = true;
        else if (i + 1 == count)
            return false;
        else if (strcmp(words[i], "--mistake") == 0 ? !parse_mistakes(words[++i], options)
                                                    : number == NULL || (*number = strtoull(words[++i], NULL, 10)) == 0)
            return false;
    }
    return true;
}

/* Runs every `step`th seed. How many violated something. */
static uint64_t run_some(const struct options *options, uint64_t from, uint64_t step) {
    struct sim *sim = sim_new();
    uint64_t bad = 0, reads = 0, puts = 0;

    if (sim == NULL)
        return 1;
    for (uint64_t seed = from; seed < options->first + options->seeds; seed += step) {
        if (!sim_run(sim, seed, options->trace)) {
            if (bad++ < options->shown)
                printf("seed %lu at %.3f: %s\n", seed, (double)sim->now / UNIT, sim->violation);
            fflush(stdout);
        }
        reads += sim->reads;
        puts += sim->puts;
        if (options->trace)
            break;
    }
    if (step == 1)
        printf("%lu seeds, %lu violated; %lu puts, %lu reads\n", options->seeds, bad, puts, reads);
    sim_free(sim);
    return bad;
}

/* The first of so many seeds that finds what is planted; 0: none does. */
static uint64_t first_found(struct sim *sim, const struct options *options, uint64_t planted, uint64_t seeds) {
    uint64_t seed = options->first;

    mistakes_planted = planted;
    while (seed < options->first + seeds && sim_run(sim, seed, options->trace))
        seed++;
    return seed < options->first + seeds ? seed : 0;
}

/* Every `step`th mistake. */
static int run_mistakes(const struct options *options, size_t from, size_t step) {
    struct sim *sim = sim_new();
    int missed = 0;

    if (sim == NULL)
        return 1;
    for (size_t i = from; i < MISTAKE_COUNT; i += step) {
        uint64_t seeds = options->seeds != 0 ? options->seeds : bounds[i];
        uint64_t seed;

        if (!options->each && (options->planted >> i & 1) == 0)
            continue;
        seed = first_found(sim, options, 1ull << i, seeds);
        if (seed != 0)
            printf("%-26s seed %lu: %s\n", names[i], seed, sim->violation);
        else
            printf("%-26s NOT FOUND in %lu seeds\n", names[i], seeds);
        fflush(stdout);
        missed |= seed == 0;
    }
    sim_free(sim);
    return missed;
}

static int run(const struct options *options) {
    bool planted = options->planted != 0 || options->each;
    int bad = 0;

    if (options->jobs == 1 || options->trace)
        return planted ? run_mistakes(options, 0, 1) : run_some(options, options->first, 1) != 0;
    for (uint64_t i = 0; i < options->jobs; i++)
        if (fork() == 0)
            exit(planted ? run_mistakes(options, i, options->jobs)
                         : run_some(options, options->first + i, options->jobs) != 0);
    for (int status; wait(&status) > 0;)
        bad |= status != 0;
    if (!planted)
        printf("%lu seeds: %s\n", options->seeds, bad ? "violations" : "clean");
    return bad;
}

int main(int count, char **words) {
    struct options options = {.first = 1, .jobs = 1, .shown = 5};

    if (!parse(count, words, &options))
        return usage();
    if (options.seeds == 0 && options.planted == 0 && !options.each)
        options.seeds = 1000;
    return run(&options);
}

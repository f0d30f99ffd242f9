/* tests/bench/compare.c - rounds in random order. */
#include "compare.h"

#include <stdlib.h>

#define ROUNDS_MAX 15

struct contest {
    const struct subject *subjects[1 + LIMITS_MAX];
    uint32_t threads[1 + LIMITS_MAX];
    size_t count;
};

static double run(const struct contest *contest, size_t who, const struct work *work) {
    struct work mine = *work;

    if (contest->threads[who] != work->threads) {
        mine.calls = work->calls * work->threads / contest->threads[who];
        mine.threads = contest->threads[who];
    }
    return work_time(contest->subjects[who], &mine);
}

/* How many calls make a round. Also brings lanes up and caches into the state of the pattern. */
static uint64_t calibrate(const struct contest *contest, struct work *work, double seconds) {
    double slowest;

    work_time(contest->subjects[0], work);
    for (work->calls = 1;; work->calls *= 2) {
        slowest = 0;
        for (size_t i = 0; i < contest->count; i++) {
            double mine = run(contest, i, work);

            slowest = mine > slowest ? mine : slowest;
        }
        if (slowest * 4 >= seconds)
            break;
    }
    slowest /= (double)work->calls;
    return slowest > seconds ? 1 : (uint64_t)(seconds / slowest);
}

static void shuffle(size_t *order, size_t count) {
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    for (size_t i = count - 1; i > 0; i--) {
        size_t other = (size_t)random() % (i + 1), kept = order[i];

        order[i] = order[other];
        order[other] = kept;
    }
}

struct comparison compare(const struct subject *subject, const struct limit *limits, size_t limit_count,
                          struct work work, const struct effort *effort) {
    double times[1 + LIMITS_MAX][ROUNDS_MAX], ratios[ROUNDS_MAX];
    struct contest contest = {.subjects = {subject}, .threads = {work.threads}, .count = 1 + limit_count};
    struct comparison result = {0};

    CHECK_SYSTEM(effort->rounds <= ROUNDS_MAX && limit_count <= LIMITS_MAX);
    for (size_t i = 0; i < limit_count; i++) {
        contest.subjects[1 + i] = &limits[i].subject;
        contest.threads[1 + i] = limits[i].threads > 0 ? limits[i].threads : work.threads;
    }
    work.calls = calibrate(&contest, &work, effort->seconds);
    for (unsigned round = 0; round < effort->rounds; round++) {
        size_t order[1 + LIMITS_MAX];

        shuffle(order, contest.count);
        for (size_t i = 0; i < contest.count; i++) {
            times[order[i]][round] = run(&contest, order[i], &work) / (double)work.calls;
            work.first = (work.first + work.calls * work_bytes(&work)) % work.span;
        }
    }
    for (size_t i = 0; i < limit_count; i++) {
        for (unsigned round = 0; round < effort->rounds; round++)
            ratios[round] = times[1 + i][round] / times[0][round];
        result.ratios[i] = work_median(ratios, effort->rounds);
        result.limits[i] = work_median(times[1 + i], effort->rounds);
    }
    result.seconds = work_median(times[0], effort->rounds);
    return result;
}

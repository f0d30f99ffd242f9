/* tests/bench/compare.h - the same work by several, in rounds that take turns, and the ratio of their times. */
#ifndef MC_BENCH_COMPARE_H
#define MC_BENCH_COMPARE_H

#include "work.h"

#define LIMITS_MAX 2

/* What something is compared with. */
struct limit {
    const char *versus;
    struct subject subject;
    uint32_t threads; /* the same bytes in as many threads; 0: as the work says */
};

struct effort {
    unsigned rounds;
    double seconds; /* of a round of the slowest, about */
};

struct comparison {
    double seconds; /* a call of the subject */
    double limits[LIMITS_MAX];
    double ratios[LIMITS_MAX]; /* of the limit's time to the subject's */
};

/* Medians over rounds; in each round the order of all is drawn anew, and the walk goes on from one to the next. */
struct comparison compare(const struct subject *subject, const struct limit *limits, size_t limit_count,
                          struct work work, const struct effort *effort);

#endif

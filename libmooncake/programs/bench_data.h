/* programs/bench_data.h - bytes that are told apart by key and place, and times counted in buckets.
 *
 * Nothing owned; a histogram belongs to one thread.
 */
#ifndef MC_PROGRAMS_BENCH_DATA_H
#define MC_PROGRAMS_BENCH_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes the bytes that belong to offset `place`, a multiple of 8, under a key. */
void bench_fill(uint8_t *bytes, uint64_t length, uint64_t key, uint64_t place);

/* The first byte that isn't as bench_fill has it; `length` if all are. */
uint64_t bench_compare(const uint8_t *bytes, uint64_t length, uint64_t key, uint64_t place);

/* Nanoseconds in buckets that are at most 1/32 wide of what they hold. */
#define BENCH_SUB_BUCKETS 32u
#define BENCH_BUCKETS (BENCH_SUB_BUCKETS * 60u)

struct bench_histogram {
    uint64_t counts[BENCH_BUCKETS];
    uint64_t total;
    uint64_t largest;
};

void bench_count(struct bench_histogram *histogram, uint64_t nanoseconds);
void bench_add(struct bench_histogram *sum, const struct bench_histogram *more);

/* What so many of a thousand stay at or below, in nanoseconds; 0 where nothing was counted. */
uint64_t bench_quantile(const struct bench_histogram *histogram, uint64_t thousandths);

#endif

/* programs/bench_data.c - see bench_data.h. */
#include "programs/bench_data.h"

#include <string.h>

#include "base/random.h"

/* The eight bytes at a place. */
static uint64_t word_at(uint64_t key, uint64_t place) {
    struct random random = {key * 0x9e3779b97f4a7c15ull ^ place};

    return random_next(&random);
}

void bench_fill(uint8_t *bytes, uint64_t length, uint64_t key, uint64_t place) {
    uint64_t word, done = 0;

    for (; length - done >= sizeof(word); done += sizeof(word)) {
        word = word_at(key, place + done);
        memcpy(bytes + done, &word, sizeof(word));
    }
    word = word_at(key, place + done);
    memcpy(bytes + done, &word, length - done);
}

uint64_t bench_compare(const uint8_t *bytes, uint64_t length, uint64_t key, uint64_t place) {
    uint64_t done = 0;

    while (done < length) {
        uint64_t size = length - done < sizeof(uint64_t) ? length - done : sizeof(uint64_t);
        uint64_t word = word_at(key, place + done);

        if (memcmp(bytes + done, &word, size) != 0) {
            const uint8_t *wanted = (const uint8_t *)&word;

            while (bytes[done] == *wanted++)
                done++;
            return done;
        }
        done += size;
    }
    return length;
}

/* Below BENCH_SUB_BUCKETS each number has a bucket; then each power of two has BENCH_SUB_BUCKETS. */
static size_t bucket_of(uint64_t value) {
    unsigned shift = 0;

    while (value >> shift >= 2 * BENCH_SUB_BUCKETS)
        shift++;
    return shift * BENCH_SUB_BUCKETS + (size_t)(value >> shift);
}

/* The largest number in a bucket. */
static uint64_t top_of(size_t bucket) {
    size_t shift = bucket < 2 * BENCH_SUB_BUCKETS ? 0 : bucket / BENCH_SUB_BUCKETS - 1;

    return ((bucket - shift * BENCH_SUB_BUCKETS + 1) << shift) - 1;
}

void bench_count(struct bench_histogram *histogram, uint64_t nanoseconds) {
    size_t bucket = bucket_of(nanoseconds);

    histogram->counts[bucket < BENCH_BUCKETS ? bucket : BENCH_BUCKETS - 1]++;
    histogram->total++;
    if (nanoseconds > histogram->largest)
        histogram->largest = nanoseconds;
}

void bench_add(struct bench_histogram *sum, const struct bench_histogram *more) {
    for (size_t i = 0; i < BENCH_BUCKETS; i++)
        sum->counts[i] += more->counts[i];
    sum->total += more->total;
    if (more->largest > sum->largest)
        sum->largest = more->largest;
}

uint64_t bench_quantile(const struct bench_histogram *histogram, uint64_t thousandths) {
    uint64_t rank = (uint64_t)(((unsigned __int128)histogram->total * thousandths + 999) / 1000);
    uint64_t seen = 0;

    for (size_t i = 0; i < BENCH_BUCKETS; i++) {
        seen += histogram->counts[i];
        if (histogram->counts[i] > 0 && seen >= rank)
            return top_of(i) < histogram->largest ? top_of(i) : histogram->largest;
    }
    return 0;
}

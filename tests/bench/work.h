/* tests/bench/work.h - what one measured round does, the same for all that are compared, and what times it.
 *
 * Owns: nothing. A failure ends the process: a benchmark has nothing to go on with.
 */
#ifndef MC_BENCH_WORK_H
#define MC_BENCH_WORK_H

#include <stddef.h>
#include <stdint.h>

#include <mooncake/mooncake.h>

#define SPAN ((uint64_t)256 << 20) /* bytes of memory on each side */
#define LANES_MAX 2

#define CHECK(call)                                                             \
    do {                                                                        \
        int32_t check_status = (call);                                          \
        if (check_status < 0)                                                   \
            work_fail(__FILE__, __LINE__, #call, mc_status_name(check_status)); \
    } while (0)
#define CHECK_SYSTEM(good)                              \
    do {                                                \
        if (!(good))                                    \
            work_fail(__FILE__, __LINE__, #good, NULL); \
    } while (0)

/* A number of calls, each of `items` items of `size` bytes that lie one behind the other. Call number i begins at
 * base + (first + i * items * size) % span, on both sides. */
struct work {
    uint32_t opcode; /* MC_READ, MC_WRITE */
    uint32_t items;
    uint32_t threads; /* that do such work at once, each in a part of the memory of its own */
    uint64_t size;
    uint64_t base;
    uint64_t span;
    uint64_t first;
    uint64_t calls;
};

static inline uint64_t work_bytes(const struct work *work) {
    return work->size * work->items;
}

static inline uint64_t work_offset(const struct work *work, uint64_t call) {
    return work->base + (work->first + call * work_bytes(work)) % work->span;
}

/* Something that does the work: memcpy, sockets or the engine. */
struct subject {
    /* Call number `index` of the work. */
    void (*call)(const struct subject *subject, const struct work *work, uint64_t index);
    /* Once before a round, outside the measured time; may be NULL. */
    void (*prepare)(const struct subject *subject, const struct work *work);
    void *context;
};

/* Prints "file:line: what: why" (the error number's text if `why` is NULL) and ends the process. */
_Noreturn void work_fail(const char *file, int line, const char *what, const char *why);

double work_seconds(void);

/* Seconds that the subject takes for the work, in as many threads as it says. */
double work_time(const struct subject *subject, const struct work *work);

/* Does the work in this thread, and stores the seconds of each call; what the clock takes is in them. */
void work_time_each(const struct subject *subject, const struct work *work, double *ret_each);

/* Of `size` bytes: "64B", "4KiB", "1MiB". */
void work_size_name(uint64_t size, char name[32]);

/* Of `count` values, which are sorted by it. */
double work_median(double *values, size_t count);

#endif

/* tests/bench/footprint.h - what a process takes: memory, threads, processor time. Of /proc, so of any process. */
#ifndef MC_BENCH_FOOTPRINT_H
#define MC_BENCH_FOOTPRINT_H

#include <stdint.h>
#include <sys/types.h>

struct footprint {
    uint64_t private_bytes; /* resident, and of no file and no shared memory: its own */
    uint64_t shared_bytes;  /* resident in shared memory, all of it */
    uint64_t file_bytes;    /* resident of programs and libraries */
    unsigned threads;
    double cpu_seconds; /* of all its threads so far */
};

struct footprint footprint_of(pid_t process);

#endif

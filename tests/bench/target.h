/* tests/bench/target.h - the other process: an engine with registered memory, and the servers of the raw sockets. */
#ifndef MC_BENCH_TARGET_H
#define MC_BENCH_TARGET_H

#include <stdint.h>
#include <sys/types.h>

#include "work.h"

struct target {
    pid_t process;
    int control;             /* its end ends the process */
    unsigned char *memory;   /* the target's memory, mapped here too */
    uint64_t address;        /* the same, in the target */
    unsigned char *ordinary; /* as much memory that isn't the library's: shared by the fork, at the same address */
    uint16_t raw_port;
    char engine[MC_ADDRESS_MAX];      /* "host:port" */
    char busy_engine[MC_ADDRESS_MAX]; /* of another with the same memory, that polls busily */
};

#define TARGET_BUSY_POLL_US 200

/* Forks; call it before anything of the library is used. */
void target_start(struct target *ret_target);

/* Ends the process and waits for its end. */
void target_stop(struct target *target);

#endif

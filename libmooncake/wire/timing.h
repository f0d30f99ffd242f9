/* wire/timing.h - the times of the store's protocol, in one place, so that simulated and real clusters differ in
 * nothing else. Nanoseconds. */
#ifndef MC_WIRE_TIMING_H
#define MC_WIRE_TIMING_H

#include <stdint.h>

struct store_timing {
    uint64_t lease;       /* of cached locations (rule 11) */
    uint64_t lease_slack; /* by which clients end it earlier: clocks may run at slightly different rates */
    uint64_t kill_wait;   /* that a KILL may stay unanswered before the lease is waited out */
    uint64_t resend;      /* before an unanswered command or request is sent again */
    uint64_t poll;        /* that an owner's POLL waits for commands */
    uint64_t promote;     /* between two answers to an owner's POLLs while nobody waits for what they command */
    uint64_t beat;        /* between a client's signs of life */
    uint64_t settle_beat; /* the same, while it has unsettled publications (rule 13) */
    uint64_t owner_ttl;   /* without a sign of life before an owner is expelled */
    uint64_t client_ttl;  /* that a client still tries to give back what it has in a segment that is listed no more */
    uint64_t grace;       /* that a new master waits for announcements (rule 14) */
    uint64_t retry;       /* before a client asks again where the answer was "not now" */
    uint64_t stock_age;   /* that unused reservations are kept in stock */
};

/* Those of real clusters. */
#define STORE_TIMING_DEFAULT                                                                                    \
    (struct store_timing) {                                                                                     \
        .lease = 5000000000ull, .lease_slack = 50000000ull, .kill_wait = 200000000ull, .resend = 1000000000ull, \
        .poll = 1000000000ull, .promote = 1000000ull, .beat = 1000000000ull, .settle_beat = 100000000ull,       \
        .owner_ttl = 10000000000ull, .client_ttl = 60000000000ull, .grace = 3000000000ull, .retry = 5000000ull, \
        .stock_age = 2000000000ull                                                                              \
    }

#endif

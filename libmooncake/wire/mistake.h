/* wire/mistake.h - mistakes that can be planted in the store's cores, to prove that the simulator finds them.
 *
 * MISTAKE(NAME) is false, and costs nothing, except in the simulator's own build of the cores (MOONCAKE_MISTAKES), where
 * it is true if that mistake is planted. Most are errors that the model checker found in earlier versions of the
 * protocol (docs/store-protocol.md); the place where it is asked is the place where the rule is kept.
 */
#ifndef MC_WIRE_MISTAKE_H
#define MC_WIRE_MISTAKE_H

#include <stdbool.h>
#include <stdint.h>

/* X(NAME, words) */
#define MISTAKE_TABLE(X)                                                              \
    X(EARLY_PUBLISH, "published before the last write is acknowledged")               \
    X(REFILL, "a slot refilled after a timed-out write")                              \
    X(REPEATED_WRITE, "a repeated remote WRITE executed after publish")               \
    X(TIME_IS_PROOF, "time taken as proof of death")                                  \
    X(GENERATION_REUSED, "a generation reused")                                       \
    X(NO_SECOND_LOOK, "no second look at the word")                                   \
    X(PINS_NOT_SCANNED, "pins not scanned before reuse")                              \
    X(PIN_NOT_RECHECKED, "the word not looked at after pinning")                      \
    X(NO_DEDUPE, "requests not deduplicated")                                         \
    X(DEDUPE_WITHOUT_GENERATION, "requests deduplicated across a client's restart")   \
    X(GRANTED_AFTER_FULL, "a RESERVE granted after it was refused")                   \
    X(OWNER_IGNORES_EPOCH, "epoch not checked by owners")                             \
    X(OLD_EPOCH_BELIEVED, "replies of a lower epoch believed")                        \
    X(SERVES_TOO_EARLY, "a master serving before the announcements")                  \
    X(LEADERSHIP_NOT_CHECKED, "a master that doesn't check its leadership")           \
    X(LEASE_FROM_RECEIPT, "a location lease counted from receipt")                    \
    X(LEASE_RENEWED_BY_ANYTHING, "a location lease renewed by any message")           \
    X(KILLS_DROPPED, "KILLs dropped after the wait")                                  \
    X(OLD_KILLED_FIRST, "the old version killed before the new one is promoted")      \
    X(PUT_DURING_KILL, "a fresh put answered while a KILL of the key is outstanding") \
    X(NEW_VERSION_AGAIN, "a re-publication given a new version")                      \
    X(DOUBTS_NOT_ANNOUNCED, "RESERVED slots not announced")                           \
    X(DROPPED_UNASKED, "a dead holder's slot reclaimed without asking the master")    \
    X(PUBLISH_AFTER_DROP, "a delayed PUBLISH accepted after DROP")                    \
    X(ONE_PIN_CELL, "one pin cell for two views")                                     \
    X(GRANTED_WHILE_DRAINING, "a slot reserved in a segment that drains")

enum mistake {
#define MISTAKE_CONSTANT(NAME, words) MISTAKE_##NAME,
    MISTAKE_TABLE(MISTAKE_CONSTANT)
#undef MISTAKE_CONSTANT
        MISTAKE_COUNT
};

#ifdef MOONCAKE_MISTAKES
extern uint64_t mistakes_planted; /* bit n: mistake n */
#define MISTAKE(NAME) ((mistakes_planted >> MISTAKE_##NAME & 1) != 0)
#else
#define MISTAKE(NAME) false
#endif

#endif

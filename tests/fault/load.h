/* load.h - writers and readers that check what they get, and the table that all of a cluster's load shares.
 *
 * The table is a file that every process maps. A subject is a key's number: its present name is "NUMBER.life", and only
 * one writer writes it. `issued` is the highest version that was ever begun, `settled` the lowest that may still be read
 * under the present name: raised when an upsert or a remove has returned. Where a call's outcome isn't known, the name
 * is given up and the next life begins. A place is one process's account of its load, readable also when it is dead.
 */
#ifndef MC_TESTS_FAULT_LOAD_H
#define MC_TESTS_FAULT_LOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <mooncake/mooncake.h>

#define SUBJECTS 256u
#define PLACES 64u
#define BATCH 8u

struct subject {
    _Atomic uint64_t life;
    _Atomic uint64_t issued;
    _Atomic uint64_t settled;
    uint64_t unused;
};

struct place {
    _Atomic uint64_t calls;
    _Atomic uint64_t good;    /* values read, or puts done */
    _Atomic uint64_t missing; /* not found, or found to be there */
    _Atomic uint64_t failed;  /* other statuses */
    _Atomic uint64_t wrong;   /* values with a wrong byte */
    _Atomic uint64_t stale;   /* values that a put or a remove had replaced before the read began */
    _Atomic uint64_t began;   /* when the call in progress began, ns; 0: there is none */
    _Atomic uint64_t longest; /* call, ns */
    _Atomic int64_t status;   /* the last failure's */
    _Atomic uint64_t full;    /* NO_SPACE */
    uint64_t unused[6];
};

struct table {
    struct subject subjects[SUBJECTS];
    struct place places[PLACES];
};

struct load {
    mc_store *store;
    struct table *table;
    struct place *place;
    uint64_t seed;
    uint64_t patience; /* of each call, ns */
    uint32_t subjects; /* how many there are … */
    uint32_t part;     /* … of which a writer writes those whose number modulo `parts` is `part` */
    uint32_t parts;
    uint64_t longest; /* value */
    _Atomic bool stop;
};

/* Run until `stop` is set. The third puts values of the one length `longest` under new keys all the time. */
void load_write(struct load *load);
void load_read(struct load *load);
void load_fresh(struct load *load);

uint64_t load_now(void);
void load_begin(struct place *place);
void load_end(struct place *place);

#endif

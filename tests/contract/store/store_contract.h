/* store_contract.h - what the tests of the store's contract share: a cluster on the path under test, actors, values.
 *
 * The suite is one program, run once for each path: "embedded" (the master, the pool and the client in one store), "host"
 * (each in a process of its own, memory mapped), "tcp" (the same over TCP alone). Most tests use one cluster, which is
 * empty when a test begins; those that fill or close it open their own. Errors, patterns and threads are those of
 * ../contract.h.
 */
#ifndef MC_TESTS_STORE_CONTRACT_H
#define MC_TESTS_STORE_CONTRACT_H

#include "../contract.h"

#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define POOL (64 * MIB)                                              /* of the shared cluster */
#define PROMPT (contract_scaled(10) < 10 ? 20 * SECOND : 5 * SECOND) /* until what goes on behind the scenes is done */

/* ---- Actors: stores in processes of their own (actor.c) ---- */

struct actor {
    pid_t pid;
    FILE *in, *out;
    char address[ADDRESS_TEXT]; /* of its store */
    char reply[4096];           /* the last one */
};

extern const char *actor_program;

/* Opens a store in a new process, on the path under test. `master` NULL: inside it. */
struct actor *actor_start(const char *master, uint64_t segment_size, const char *name);

/* Sends one line; actor_hear waits for the number, or with actor->reply the text, that comes back. */
void actor_tell(struct actor *actor, const char *format, ...) __attribute__((format(printf, 2, 3)));
long long actor_hear(struct actor *actor);
/* Both. */
long long actor_ask(struct actor *actor, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Closes its store; it must end without complaint. NULL is fine; returns NULL. */
struct actor *actor_stop(struct actor *actor);
struct actor *actor_kill(struct actor *actor);
void actor_freeze(struct actor *actor);
void actor_thaw(struct actor *actor);

/* ---- Clusters ---- */

struct cluster {
    mc_store *store;            /* of this process */
    struct actor *master;       /* NULL: in `store` */
    struct actor *owner;        /* of the pool; NULL: master or store */
    char address[ADDRESS_TEXT]; /* of the master */
};

/* A cluster with a pool of that size, in as few processes as the path allows. */
struct cluster *cluster_open(uint64_t pool);
/* Each role in a process of its own. */
struct cluster *cluster_open_apart(uint64_t pool);
/* Stores that are closed already may be set to NULL. */
void cluster_close(struct cluster *cluster);

/* Another store of this process in the cluster, with `size` bytes of segment (0: none) under that name (or NULL). */
mc_store *cluster_join(const struct cluster *cluster, uint32_t flags, uint64_t size, const char *name);

/* A number of mc_store_stats, like "live", of the segments of the pool (apart from those that joined later). */
uint64_t cluster_number(const struct cluster *cluster, const char *name);
uint64_t store_number(mc_store *store, const char *name);
/* Waits until the pool holds so many objects and nothing is on its way out. */
void cluster_await_live(const struct cluster *cluster, uint64_t count);

/* setup and teardown of the group; of a test that finds the shared cluster as *state, and leaves it empty. */
int store_open_shared(void **state);
int store_close_shared(void **state);
int store_clean(void **state);
#define STORE_TEST(test) cmocka_unit_test_teardown(test, store_clean)

/* ---- Values ---- */

/* A value says what it is in its first bytes, as far as it has so many, and every other byte follows from that. */
void value_make(void *bytes, uint64_t length, uint32_t key, uint32_t version);
/* Is it the value of that key, whole, of whatever version? */
bool value_is_of(const void *bytes, uint64_t length, uint32_t key);
uint32_t value_version(const void *bytes);
#define VALUE_HEAD 24u

#define TEXT(key) (key), strlen(key)
#define PUT(store, key, value, length) mc_store_put((store), TEXT(key), (value), (length), NULL, contract_error())
#define UPSERT(store, key, value, length) mc_store_upsert((store), TEXT(key), (value), (length), NULL, contract_error())
#define GET(store, key, buffer, capacity) mc_store_get((store), TEXT(key), (buffer), (capacity), 0, contract_error())
#define SIZE(store, key) mc_store_size((store), TEXT(key), 0, contract_error())
#define EXISTS(store, key) mc_store_exists((store), TEXT(key), 0, contract_error())
#define REMOVE(store, key) mc_store_remove((store), TEXT(key), 0, contract_error())
#define VIEW(store, key, ret_view, ret_data) \
    mc_store_view((store), TEXT(key), 0, (ret_view), (ret_data), contract_error())

/* Keys "NAME-0", "NAME-1", … as one blob. Freed with keys_free. */
struct mc_keys keys_make(const char *name, size_t count);
void keys_free(struct mc_keys *keys);

/* ---- The parts of the suite ---- */

extern const struct contract_part store_values;
extern const struct contract_part store_views;
extern const struct contract_part store_batches;
extern const struct contract_part store_pieces;
extern const struct contract_part store_puts;
extern const struct contract_part store_tenants;
extern const struct contract_part store_lists;
extern const struct contract_part store_pools;
extern const struct contract_part store_replicas;
extern const struct contract_part store_segments;
extern const struct contract_part store_races;
extern const struct contract_part store_damage;
extern const struct contract_part store_async;
extern const struct contract_part store_arguments;
extern const struct contract_part store_closing;
extern const struct contract_part store_trips;

#endif

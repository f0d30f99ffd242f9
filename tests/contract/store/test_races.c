/* test_races.c - many at once: writers of one key, and readers beside eviction, upserts and removes. Values say what they
 * are, and every byte of what is read is looked at. */
#include "store_contract.h"

#include <stdatomic.h>

/* ---- One key ---- */

enum { WRITERS = 16, ACTORS = 4, THREADS_OF_ACTOR = 4, CONTESTS = 5 };

struct contest {
    mc_store *stores[2];
    const char *key;
    pthread_barrier_t begin;
    int32_t statuses[WRITERS];
};

static void *contend(void *context) {
    struct worker *worker = context;
    struct contest *contest = worker->context;
    uint32_t version = (uint32_t)worker->index + 1;
    uint8_t value[200];

    value_make(value, 100 + version, (uint32_t)strlen(contest->key), version);
    pthread_barrier_wait(&contest->begin);
    contest->statuses[worker->index] =
        mc_store_put(contest->stores[worker->index % 2], TEXT(contest->key), value, 100 + version, NULL, NULL);
    return NULL;
}

/* 16 threads with two stores here, and 4 in each of 4 other processes. Returns the version that has won. */
static uint32_t hold_contest(struct contest *contest, struct actor *actors[ACTORS]) {
    struct worker workers[WRITERS];
    uint32_t winner = 0;

    assert_int_equal(pthread_barrier_init(&contest->begin, NULL, WRITERS + 1), 0);
    for (size_t i = 0; i < WRITERS; i++) {
        workers[i] = (struct worker){.index = i, .context = contest};
        worker_start(&workers[i], contend);
    }
    for (unsigned i = 0; i < ACTORS; i++)
        actor_tell(actors[i], "race %s %d %u", contest->key, THREADS_OF_ACTOR, 20 + i * THREADS_OF_ACTOR);
    pthread_barrier_wait(&contest->begin);
    for (size_t i = 0; i < WRITERS; i++) {
        worker_join(&workers[i]);
        if (contest->statuses[i] == MC_ERR_ALREADY_EXISTS)
            continue;
        OK(contest->statuses[i]);
        assert_int_equal(winner, 0);
        winner = (uint32_t)i + 1;
    }
    for (size_t i = 0; i < ACTORS; i++) {
        long long version = actor_hear(actors[i]);

        assert_true(version >= 0);
        if (version > 0) {
            assert_int_equal(winner, 0);
            winner = (uint32_t)version;
        }
    }
    assert_int_not_equal(winner, 0);
    pthread_barrier_destroy(&contest->begin);
    return winner;
}

static void of_32_writers_of_a_key_one_wins_and_its_value_is_read(void **state) {
    static const char *const keys[CONTESTS] = {"k", "ke", "key", "key4", "key55"};
    const struct cluster *cluster = *state;
    struct contest contest = {.stores = {cluster->store, cluster_join(cluster, 0, 0, NULL)}};
    struct actor *actors[ACTORS];
    uint8_t got[200];

    for (size_t i = 0; i < ACTORS; i++)
        actors[i] = actor_start(cluster->address, 0, NULL);
    for (size_t i = 0; i < CONTESTS; i++) {
        uint32_t winner, number = (uint32_t)strlen(keys[i]);

        contest.key = keys[i];
        winner = hold_contest(&contest, actors);
        for (size_t k = 0; k < 2; k++) {
            IS((int32_t)(100 + winner), GET(contest.stores[k], keys[i], got, sizeof(got)));
            assert_true(value_is_of(got, 100 + winner, number));
            assert_int_equal(value_version(got), winner);
        }
        for (size_t k = 0; k < ACTORS; k++)
            assert_int_equal(actor_ask(actors[k], "get %s %u", keys[i], number), winner);
    }
    cluster_await_live(cluster, CONTESTS); /* the losers' slots have come to nothing */
    for (size_t i = 0; i < ACTORS; i++)
        actor_stop(actors[i]);
    OK(mc_store_close(contest.stores[1]));
}

/* ---- Readers beside writers ---- */

enum { CHANGERS = 3, READERS = 3, EACH = 6, OBJECTS = CHANGERS * EACH };

#define LARGEST ((size_t)300000)

struct turmoil {
    mc_store *stores[3];
    _Atomic uint32_t floors[OBJECTS]; /* an older version must not be found any more */
    atomic_uint changing;
    atomic_ulong reads;
};

static const char *name_of(uint32_t number, char text[16]) {
    snprintf(text, 16, "object-%u", number);
    return text;
}

/* The only one to write its objects. Half of them change by upserts, half by removes and puts. */
static void *change(void *context) {
    struct worker *worker = context;
    struct turmoil *turmoil = worker->context;
    mc_store *store = turmoil->stores[worker->index % 3];
    uint64_t random = worker->index + 1;
    uint8_t *value = malloc(LARGEST);
    char key[16];

    for (uint32_t round = 1; round <= contract_scaled(300); round++) {
        uint32_t slot = (uint32_t)(random_next(&random) % EACH), number = (uint32_t)worker->index * EACH + slot;
        uint64_t length = VALUE_HEAD + random_next(&random) % (LARGEST - VALUE_HEAD);
        int32_t status = MC_OK;

        name_of(number, key);
        value_make(value, length, number, round);
        if (slot % 2 == 0) {
            status = mc_store_upsert(store, TEXT(key), value, length, NULL, NULL);
        } else {
            status = mc_store_remove(store, TEXT(key), 0, NULL);
            EXPECT(worker, status == MC_OK || status == MC_ERR_NOT_FOUND);
            atomic_store(&turmoil->floors[number], round);
            status = mc_store_put(store, TEXT(key), value, length, NULL, NULL);
        }
        EXPECT(worker, status == MC_OK);
        atomic_store(&turmoil->floors[number], round);
    }
    atomic_fetch_sub(&turmoil->changing, 1);
    free(value);
    return NULL;
}

/* Is this what may be read of the object, when `floor` was looked at before? */
static bool is_right(const void *data, int64_t length, uint32_t number, uint32_t floor) {
    if (length < 0)
        return length == MC_ERR_NOT_FOUND || length == MC_ERR_UNAVAILABLE;
    return value_is_of(data, (uint64_t)length, number) && value_version(data) >= floor;
}

static void read_one(struct worker *worker, mc_store *store, uint32_t number, uint8_t *buffer) {
    struct turmoil *turmoil = worker->context;
    uint32_t floor = atomic_load(&turmoil->floors[number]);
    int64_t length;
    char key[16];

    name_of(number, key);
    length = mc_store_get(store, TEXT(key), buffer, LARGEST, 0, NULL);
    EXPECT(worker, is_right(buffer, length, number, floor));
}

static void view_one(struct worker *worker, mc_store *store, uint32_t number) {
    struct turmoil *turmoil = worker->context;
    uint32_t floor = atomic_load(&turmoil->floors[number]);
    const void *data = NULL;
    uint64_t view = 0;
    int64_t length;
    char key[16];

    name_of(number, key);
    length = mc_store_view(store, TEXT(key), 0, &view, &data, NULL);
    EXPECT(worker, is_right(data, length, number, floor));
    if (length >= 0) {
        EXPECT(worker, value_is_of(data, (uint64_t)length, number)); /* still */
        EXPECT(worker, mc_view_release(view) == MC_OK);
    }
}

static void read_all(struct worker *worker, mc_store *store, uint8_t *buffer) {
    struct turmoil *turmoil = worker->context;
    char keys[OBJECTS * 16];
    uint32_t lengths[OBJECTS], floors[OBJECTS];
    const struct mc_keys batch = {.bytes = keys, .lengths = lengths, .count = OBJECTS};
    void *buffers[OBJECTS];
    uint64_t capacities[OBJECTS];
    int64_t found[OBJECTS];
    size_t used = 0;

    for (uint32_t i = 0; i < OBJECTS; i++) {
        char key[16];

        lengths[i] = (uint32_t)strlen(name_of(i, key));
        memcpy(keys + used, key, lengths[i]);
        used += lengths[i];
        buffers[i] = buffer + i * LARGEST;
        capacities[i] = LARGEST;
        floors[i] = atomic_load(&turmoil->floors[i]);
    }
    (void)mc_store_get_batch(store, &batch, buffers, capacities, 0, found, NULL);
    for (uint32_t i = 0; i < OBJECTS; i++)
        EXPECT(worker, is_right(buffers[i], found[i], i, floors[i]));
}

static void *observe(void *context) {
    struct worker *worker = context;
    struct turmoil *turmoil = worker->context;
    mc_store *store = turmoil->stores[worker->index % 3];
    uint8_t *buffer = malloc(OBJECTS * LARGEST);
    uint64_t random = 100 + worker->index;

    while (atomic_load(&turmoil->changing) > 0) {
        uint32_t number = (uint32_t)(random_next(&random) % OBJECTS);

        if (worker->index % 3 == 0)
            read_one(worker, store, number, buffer);
        else if (worker->index % 3 == 1)
            view_one(worker, store, number);
        else
            read_all(worker, store, buffer);
        atomic_fetch_add(&turmoil->reads, 1);
    }
    free(buffer);
    return NULL;
}

static void reads_beside_eviction_upserts_and_removes_are_right_or_fail(void **state) {
    struct cluster *cluster = cluster_open(2 * MIB); /* half of what there would be */
    struct turmoil turmoil = {.changing = CHANGERS};
    struct worker workers[CHANGERS + READERS];

    (void)state;
    turmoil.stores[0] = cluster->store;
    turmoil.stores[1] = cluster_join(cluster, 0, 0, NULL);
    turmoil.stores[2] = cluster_join(cluster, MC_STORE_VERIFY, 0, NULL);
    for (size_t i = 0; i < CHANGERS + READERS; i++) {
        workers[i] = (struct worker){.index = i, .context = &turmoil};
        worker_start(&workers[i], i < CHANGERS ? change : observe);
    }
    for (size_t i = 0; i < CHANGERS + READERS; i++)
        worker_join(&workers[i]);
    assert_true(atomic_load(&turmoil.reads) > 10);
    OK(mc_store_close(turmoil.stores[1]));
    OK(mc_store_close(turmoil.stores[2]));
    cluster_close(cluster);
}

/* ---- The master's own process and another one, at the same keys ---- */

/* Each waits for what the other one does: the master answers one's request in the other's thread. */
static void *quarrel(void *context) {
    struct worker *worker = context;
    mc_store *store = worker->context;
    uint8_t value[100];
    int32_t status;
    char key[8];

    for (unsigned i = 0; i < contract_scaled(300); i++) {
        snprintf(key, sizeof(key), "k%u", i % 3);
        value_make(value, sizeof(value), i % 3, i);
        status = mc_store_upsert(store, TEXT(key), value, sizeof(value), NULL, NULL);
        EXPECT(worker, status == MC_OK); /* also if it was overtaken before it was promoted */
        if (i % 2 == 0) {
            status = mc_store_remove(store, TEXT(key), 0, NULL);
            EXPECT(worker, status == MC_OK || status == MC_ERR_NOT_FOUND);
        }
    }
    return NULL;
}

static void a_request_may_be_answered_by_whatever_thread_brings_what_it_waits_for(void **state) {
    struct cluster *cluster = *state;
    struct worker workers[4];
    mc_store *other = cluster_join(cluster, 0, 0, NULL);

    for (size_t i = 0; i < 4; i++) {
        workers[i] = (struct worker){.index = i, .context = i % 2 == 0 ? cluster->store : other};
        worker_start(&workers[i], quarrel);
    }
    for (size_t i = 0; i < 4; i++)
        worker_join(&workers[i]);
    OK(mc_store_close(other));
}

static const struct CMUnitTest tests[] = {
    STORE_TEST(of_32_writers_of_a_key_one_wins_and_its_value_is_read),
    STORE_TEST(reads_beside_eviction_upserts_and_removes_are_right_or_fail),
    STORE_TEST(a_request_may_be_answered_by_whatever_thread_brings_what_it_waits_for),
};

CONTRACT_PART(store_races, tests);

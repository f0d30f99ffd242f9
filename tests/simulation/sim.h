/* tests/simulation/sim.h - a cluster of the store's real cores in virtual time, under one seeded scheduler.
 *
 * Nodes are masters, owners and clients, each of them a core and a stand-in for its I/O. Everything that happens is an
 * event of one queue: a letter arrives, a core is due, a copy goes on by a piece, the weather changes. The same seed
 * gives the same run. One thread; all of it belongs to the run (struct sim).
 *
 * sim.c      the queue, clocks, lives, and the loop         network.c  letters between nodes, calls and their answers
 * weather.c  pauses, partitions, crashes                    masters.c  masters and the election record
 * owners.c   owners, remote reads and writes, proofs        clients.c  clients' I/O
 * users.c    operations: what is asked                      copies.c   one-sided writes, reads and views, by pieces
 * ghost.c    memory and reservations, checked at each step  truth.c    values: what may be read, and what must be
 * watch.c    what letters say: for the ghosts, for a trace  finale.c   what must be true in the end
 */
#ifndef MC_TESTS_SIMULATION_SIM_H
#define MC_TESTS_SIMULATION_SIM_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <mooncake/error.h>

#include "base/clock.h"
#include "base/random.h"
#include "store/client/client.h"
#include "store/master/master.h"
#include "store/owner/owner.h"
#include "wire/mistake.h"
#include "wire/outbox.h"
#include "wire/slot.h"
#include "wire/timing.h"

#define UNIT 1000u /* ticks; a letter takes 1 to 12 units */
#define FAULTS_END (1500u * UNIT)
#define SETTLE_MAX (4000u * UNIT)

/* Times of the simulated cluster, in units. */
#define LEASE 120u
#define LEAD 160u /* of a leader, from the renewal */

#define MASTERS 2u
#define OWNERS_MAX 2u
#define CLIENTS_MAX 3u
#define NODES_MAX (MASTERS + OWNERS_MAX + CLIENTS_MAX)
#define LOOPS 3u /* users of one client */
#define BATCH_MAX 3u
#define PIN_TABLES 6u
#define HOT_KEYS 3u /* are upserted and removed; all others only put */
#define KEYS_MAX 1024u
#define VIDS_MAX 4096u
#define MUTATIONS_MAX 4096u
#define GRANTS_MAX 4096u
#define SEGMENTS_MAX 128u
#define PIECES 3u
#define VALUE_MAX 2048u
#define SEQUENCES 512u

/* Messages between the I/O of clients and owners. */
#define SIM_WRITE 0xf000u
#define SIM_READ 0xf002u

struct sim;

struct version {
    uint64_t epoch;
    uint64_t counter;
};

static inline bool version_below(struct version one, struct version other) {
    return one.epoch != other.epoch ? one.epoch < other.epoch : one.counter < other.counter;
}

/* ---- What the ghosts know ---- */

/* A value that some put wrote or wants to write; its number is in each word of the payload. */
struct vid {
    uint32_t key;
    uint32_t length;
    bool upsert;
    uint8_t client; /* node */
    uint32_t life;
    uint64_t begun;
    uint64_t ended; /* when the put returned; 0: not yet */
    int32_t status; /* what it returned */
    bool refused;   /* a master answered ALREADY_EXISTS */
    bool published;
    bool killed;       /* a leading master sent a KILL for a replica */
    uint64_t residue;  /* epoch of a mutation that returned while a replica could be read; 0: none */
    uint64_t accepted; /* the last epoch in which a master answered OK; 0: none */
    struct version version;
    uint32_t grants[REPLICAS_MAX]; /* indices of struct grant */
    uint32_t grant_count;
};

/* A remove or an upsert. */
struct mutation {
    uint32_t key;
    uint32_t vid; /* of an upsert; else 0 */
    uint64_t begun;
    uint64_t ended; /* CLOCK_NEVER: may still come to pass */
    bool returned;  /* and was done */
    bool put;       /* that an upsert or remove must not come after; it replaces nothing */
    struct version version;
    uint64_t epoch;
};

/* A reservation, by (memory, generation). */
struct grant {
    struct memory *memory;
    uint64_t slot;
    uint64_t generation;
    uint64_t offset;
    uint64_t capacity;
    struct message_id client;
    uint8_t holder; /* node */
    uint32_t life;
    uint64_t sequence;
    uint64_t seen;  /* the word, last */
    uint64_t ended; /* when it couldn't be read any more; 0: it can */
    bool freed;
    bool published;
    uint8_t written; /* remotely: 0 no, 1 begun, 2 done */
    uint8_t inflight;
    bool promoted;
    uint8_t views;
    uint32_t vid;   /* 0: none yet */
    uint32_t chain; /* in the table of generations; index + 1 */
};

/* An owner's memory; survives its process for those who mapped it. */
struct memory {
    uint8_t *base;
    uint64_t size;
    struct pin_table *pins;
    uint8_t owner; /* node */
    uint32_t life;
    bool alive;
    bool drains;
    uint32_t active[GRANTS_MAX / 8]; /* grants that aren't freed */
    uint32_t active_count;
    struct memory *next;
};

/* A segment's id; an owner that was expelled has a new one for the same memory. */
struct segment {
    struct message_id id;
    struct memory *memory;
    bool member;
    bool lost;        /* the owner died, or the masters gave it up */
    bool late;        /* a master began to serve before it had announced */
    uint64_t mounted; /* the epoch in which it has announced */
};

/* ---- Nodes ---- */

enum role { MASTER_NODE, OWNER_NODE, CLIENT_NODE };

enum loop_state { LOOP_IDLE, LOOP_NEXT, LOOP_SENT, LOOP_ATTACH, LOOP_WRITE, LOOP_READ, LOOP_WAIT, LOOP_VIEW };

struct view {
    struct memory *memory; /* NULL: none; it outlives what the client knows of its segment */
    uint32_t grant;
    _Atomic uint64_t *cell;
    uint64_t generation;
    const uint8_t *bytes;
    uint32_t length;
    uint32_t vid;
};

/* One user of a client: one operation after the other. */
struct loop {
    struct node *node;
    uint8_t index;
    enum loop_state state;
    uint32_t serial; /* of the operation */
    struct client_op op;
    struct client_item items[BATCH_MAX];
    uint32_t keys[BATCH_MAX];
    uint32_t vids[BATCH_MAX];
    uint32_t mutations[BATCH_MAX]; /* index + 1 */
    uint8_t values[BATCH_MAX][VALUE_MAX];
    uint64_t begun;
    uint32_t awaited; /* answers */
    bool begun_op;
    /* The copying. */
    size_t at;      /* which write or read */
    uint32_t piece; /* of it */
    uint32_t call;  /* of a remote one, or of an attach */
    bool looked;
    _Atomic uint64_t *cell;
    struct view views[BATCH_MAX];
    uint32_t stays;
};

struct node {
    struct sim *sim;
    enum role role;
    uint8_t index;
    char name[8];
    bool alive;
    uint32_t life;
    uint64_t paused; /* until */
    uint64_t offset; /* of its clock */
    uint64_t rate;   /* of its clock, thousandths */
    uint64_t wake;   /* when its core is called next; 0: not at all */
    uint8_t guess;   /* the node that it takes for the leading master */
    uint64_t guided; /* when that answered last, as one that leads */
    /* A master. */
    struct master *master;
    uint64_t renewing; /* its own time when the renewal was sent; 0: none is on its way */
    uint64_t lost_at;  /* the record named another leader */
    uint64_t led_at;
    bool served;
    bool kept; /* the members could be kept in the record */
    /* An owner. */
    struct owner *owner;
    struct memory *memory;
    uint64_t heard[NODES_MAX];  /* from each client, last */
    uint32_t closed[NODES_MAX]; /* the last life that is proved gone */
    uint32_t farewells;         /* UNMOUNTs sent */
    /* A client. */
    struct client *client;
    struct message_id id;
    struct loop loops[LOOPS];
    bool mapped[NODES_MAX];
    bool retired;
    /* What it has asked the masters for, by sequence number. */
    struct asked {
        uint64_t sequence;
        uint32_t vid;
        uint32_t mutation; /* index + 1 */
    } asked[SEQUENCES];
};

/* ---- Events, calls ---- */

enum event_kind {
    EVENT_ARRIVAL,
    EVENT_WAKE,
    EVENT_TIMEOUT,
    EVENT_LOOP,
    EVENT_LEAD,
    EVENT_RENEWED,
    EVENT_REMOTE,
    EVENT_PROBE,
    EVENT_LEAVE,
    EVENT_FORGET,
    EVENT_REBORN,
    EVENT_DEATH_KNOWN,
    EVENT_WEATHER,
};

struct event {
    uint64_t time;
    uint64_t order;
    uint8_t kind;
    uint8_t node;
    uint8_t from;
    bool answer;
    uint32_t life;
    uint32_t call;
    uint32_t copy;
    int32_t status;
    struct letter *letter;
    void *what;
};

#define ORIGIN_CORE 0xff /* else: the loop whose operation it is */

/* A request and who waits for its answer. */
struct call {
    uint8_t from;
    uint8_t to;
    uint8_t origin;
    bool io; /* of the client's I/O, not of its core */
    bool answered;
    bool last; /* MOUNT: the last part */
    uint16_t type;
    uint32_t from_life;
    uint32_t serial;
    uint64_t tag;
    uint64_t sequence; /* RESERVE; of a MOUNT the epoch */
    uint64_t capacity;
    uint32_t segment;
    struct message_id client;
};

/* What the weather of a run is like. */
struct weather {
    uint32_t owners;
    uint32_t clients;
    uint64_t segment_size;
    bool small; /* the pool: objects are evicted */
    uint32_t value_min;
    uint32_t value_max;
    bool master_crashes; /* many */
    bool expels;         /* the masters' patience with owners is short */
    bool leaves;         /* owners drain their segments, and take them away */
    uint32_t replicas;   /* at most */
    uint32_t fault_gap;  /* units */
    uint32_t late;       /* thousandths of letters */
    uint32_t lost;       /* the same */
    uint32_t hot_keys;   /* how many are in use */
    uint32_t hot;        /* thousandths of operations on them */
    uint32_t stock_bytes;
    bool patient; /* answers may be very late, and are waited for */
    bool echoes;  /* the same for what masters have found, while masters change and owners are out of their reach */
};

struct key {
    char name[16];
    uint32_t length;
    struct key_hash hash;
};

struct sim {
    uint64_t seed;
    struct random random;
    uint64_t now;
    uint64_t order;
    bool faults;
    bool trace;
    bool failed;
    char violation[512];
    struct weather weather;
    struct store_timing timing;
    struct node nodes[NODES_MAX];
    uint32_t node_count;
    bool cut[NODES_MAX][NODES_MAX];
    struct event *events;
    size_t event_count;
    size_t event_capacity;
    struct call *calls; /* from 1 */
    uint32_t call_count;
    uint32_t call_capacity;
    uint64_t steps;
    /* The election record. */
    uint64_t epoch;
    uint8_t leader;
    uint64_t lead_until;
    struct message_id members[SEGMENTS_MAX];
    size_t member_count;
    /* Ghosts. */
    struct segment segments[SEGMENTS_MAX];
    uint32_t segment_count;
    struct memory *memories;
    struct grant *grants;
    uint32_t grant_count;
    uint32_t by_generation[GRANTS_MAX];
    struct vid *vids; /* from 1 */
    uint32_t vid_count;
    struct mutation *mutations;
    uint32_t mutation_count;
    struct key keys[KEYS_MAX];
    uint32_t key_count;
    uint64_t evicted_at; /* when objects were evicted last */
    uint64_t evicted[NODES_MAX];
    uint32_t reads; /* checked */
    uint32_t puts;  /* acknowledged */
    uint32_t ops;
};

/* sim.c */
struct sim *sim_new(void);
struct sim *sim_free(struct sim *sim);
/* Runs one seed. True if nothing was violated; else sim->violation says what. */
bool sim_run(struct sim *sim, uint64_t seed, bool trace);
void sim_fail(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_trace(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define TRACE(sim, ...)                    \
    do {                                   \
        if ((sim)->trace)                  \
            sim_trace((sim), __VA_ARGS__); \
    } while (0)
uint64_t sim_below(struct sim *sim, uint64_t bound);
bool sim_chance(struct sim *sim, uint32_t thousandths);
/* Between `least` and `most` units, in ticks. */
uint64_t sim_units(struct sim *sim, uint64_t least, uint64_t most);
/* Queues an event of the node's present life. */
void sim_at(struct sim *sim, uint64_t time, struct event event);
void sim_id(struct sim *sim, uint8_t node, struct message_id *ret_id);
uint64_t node_now(const struct node *node);
void node_wake(struct node *node, uint64_t local);
void node_kill(struct node *node);

/* network.c */
uint32_t network_call(struct node *from, uint8_t to, uint8_t origin, bool io, struct letter *letter);
void network_send_all(struct node *from, struct outbox *out, uint8_t origin, uint32_t *ret_sent);
void network_answer(struct node *from, uint64_t tag, struct letter *letter);
void network_answer_all(struct node *from, struct outbox *out);
void network_arrive(struct node *node, struct event *event);
void network_timeout(struct node *node, struct event *event);
void network_forget(struct node *node, struct event *event);
struct letter *network_letter(uint16_t type, int32_t status, size_t length);

/* weather.c */
void weather_choose(struct sim *sim);
void weather_change(struct sim *sim);
void weather_clear(struct sim *sim);
bool weather_isolates(const struct sim *sim);

/* masters.c */
void masters_born(struct node *node);
void masters_dies(struct node *node);
void masters_election(struct node *node, struct event *event);
void masters_call(struct node *node, uint64_t tag, const struct letter *letter);
void masters_due(struct node *node);
struct node *masters_leading(struct sim *sim);
/* The owner of this segment is proved dead. */
void masters_owner_died(struct sim *sim, struct event *event);

/* owners.c */
void owners_born(struct node *node);
void owners_dies(struct node *node);
void owners_call(struct node *node, uint32_t call, uint64_t tag, uint8_t from, uint32_t life,
                 const struct letter *letter);
void owners_answered(struct node *node, struct call *call, const struct letter *letter, int32_t status);
void owners_due(struct node *node);
void owners_probe(struct node *node);
/* The segment drains from now on, and goes some time later; the owner comes again with another one. */
void owners_drain(struct node *node);
void owners_leave(struct node *node);
void owners_remote(struct node *node, struct event *event);

struct remote_request {
    uint64_t slot;
    uint64_t generation;
    uint64_t offset;
    uint64_t length; /* of the value */
    uint32_t key_length;
    struct slot_description description;
    struct message_id segment;
};

/* clients.c */
void clients_born(struct node *node);
void clients_dies(struct node *node);
void clients_due(struct node *node);
void clients_answered(struct node *node, struct call *call, const struct letter *letter, int32_t status);
/* After each call of its core. */
void clients_post(struct node *node);

/* users.c */
void users_step(struct loop *loop);
void users_answered(struct loop *loop, struct call *call, const struct letter *letter, int32_t status);
void users_dies(struct loop *loop);
void users_wake(struct loop *loop, uint64_t ticks);
bool users_idle(const struct node *node);

/* copies.c */
void copies_write(struct loop *loop); /* a piece of op.writes; LOOP_NEXT after the last */
void copies_read(struct loop *loop);
void copies_answered(struct loop *loop, const struct letter *letter, int32_t status);
void copies_view(struct loop *loop); /* looks at the views again; LOOP_IDLE when they end */
void copies_drop_views(struct loop *loop, bool dies);

/* ghost.c, truth.c */
void ghost_reset(struct sim *sim);
struct memory *ghost_memory(struct sim *sim, struct node *owner, uint64_t size);
struct segment *ghost_segment(struct sim *sim, const struct message_id *id);
struct segment *ghost_add_segment(struct sim *sim, const struct message_id *id, struct memory *memory);
void ghost_members(struct sim *sim);
struct grant *ghost_grant(struct sim *sim, const struct memory *memory, uint64_t generation);
void ghost_granted(struct sim *sim, struct memory *memory, const struct call *call, const struct message_grant *grant);
void ghost_scan(struct sim *sim, struct memory *memory);
void ghost_store(struct sim *sim, struct memory *memory, uint64_t slot, uint64_t generation, const char *what);
uint32_t ghost_vid(struct sim *sim, struct node *client, uint32_t key, uint32_t length, bool upsert);
void ghost_fill(uint32_t vid, uint8_t *value, uint32_t length);
/* The value that all of these bytes are of; 0 if they aren't of one. */
uint32_t ghost_whole(const struct sim *sim, const uint8_t *value, uint32_t length);
uint32_t ghost_key(struct sim *sim, const void *key, uint32_t length);
void ghost_check_read(struct sim *sim, uint32_t key, uint64_t begun, const uint8_t *value, uint32_t length,
                      const char *how);
void ghost_check_missing(struct sim *sim, uint32_t key, uint64_t begun, const char *how);
void ghost_check_exists(struct sim *sim, uint32_t own, uint64_t begun);
void ghost_check_refusal(struct sim *sim, uint32_t own);
void ghost_check_put(struct sim *sim, uint32_t own, uint64_t begun);
void ghost_accepted(struct sim *sim, struct vid *vid, uint64_t epoch, struct version version);
void ghost_version(struct sim *sim, struct vid *vid, struct version version);
bool ghost_must_exist(struct sim *sim, const struct vid *vid, uint64_t at);
uint32_t ghost_mutation(struct sim *sim, uint32_t key, uint32_t vid);
void ghost_mutated(struct sim *sim, struct mutation *mutation, bool done, bool over);
/* Some value of the key must be there: this one, or one that replaced it. */
bool ghost_must_have_heir(struct sim *sim, const struct vid *vid, uint64_t at);
bool grant_readable(const struct grant *grant);

/* watch.c */
void watch_request(struct node *from, struct call *call, const struct letter *letter);
void watch_delivered(struct node *to, struct call *call, const struct letter *letter);
void watch_answer(struct node *from, struct call *call, const struct letter *letter);
const char *watch_name(uint16_t type);

/* finale.c */
bool finale_quiet(struct sim *sim, char *why, size_t size);
void finale_check(struct sim *sim);
void finale_check_retired(struct sim *sim);

#endif

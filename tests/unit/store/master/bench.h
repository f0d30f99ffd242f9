/* tests/unit/store/master/bench.h - a master on a bench: messages go in by hand, answers are looked for by tag.
 *
 * Owners and clients are numbers from 1 on. Helpers assert what every test needs to be so.
 */
#ifndef MC_TESTS_STORE_MASTER_BENCH_H
#define MC_TESTS_STORE_MASTER_BENCH_H

#include <stdarg.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "store/master/master.h"
#include "wire/items.h"
#include "wire/outbox.h"

#define EPOCH 7u
#define SEGMENT_SIZE (UINT64_C(1) << 30)
#define MS UINT64_C(1000000)
#define SILENT INT32_MAX /* no answer yet */

struct bench {
    struct master *master;
    struct outbox out;
    uint64_t now;
    uint64_t tag;
    uint64_t epoch;     /* that requests name */
    uint64_t floors[8]; /* that clients name */
    uint32_t changes;   /* calls of members_changed */
};

struct bench_options {
    struct store_timing timing;
    uint32_t high_watermark;
    uint32_t eviction;
    bool keep_soft_pinned;
    uint64_t soft_pin_ttl;
};

/* A master that doesn't lead yet. The times are those of real clusters. */
/* NULL: a master that tells owners at once what they are to do, whether or not anybody waits for it. */
struct bench *bench_open(const struct bench_options *options);
void bench_close(struct bench *bench);

/* One that serves, with owners 1 to `owners` mounted. */
struct bench *bench_serving(uint32_t owners);

struct message_id bench_owner(uint32_t owner);
struct message_id bench_client(uint32_t client);
struct message_place bench_place(uint32_t owner, uint64_t generation);

/* Packs and sends; the tag. */
uint64_t bench_send(struct bench *bench, uint16_t type, const void *body, size_t length);
#define RECORD(NAME, name, fields)
#define MESSAGE(NAME, name, number, fields) \
    uint64_t bench_send_##name(struct bench *bench, const struct message_##name *message);
#include "wire/messages.def"
#undef MESSAGE
#undef RECORD

/* The answer's letter, the caller's to free, or NULL. */
struct letter *bench_take(struct bench *bench, uint64_t tag);
/* Its status; SILENT if there is none yet. */
int32_t bench_status(struct bench *bench, uint64_t tag);

/* ---- Clients ---- */

/* Publishes one object with these replicas; the request's tag. */
uint64_t bench_publish(struct bench *bench, uint32_t client, uint64_t sequence, const char *key, uint32_t flags,
                       uint64_t version_epoch, uint64_t version_counter, const struct message_place *places,
                       uint32_t count);
/* The same with one replica, fresh. */
uint64_t bench_put(struct bench *bench, uint32_t client, uint64_t sequence, const char *key, uint32_t flags,
                   uint32_t owner, uint64_t generation);
uint64_t bench_remove(struct bench *bench, uint32_t client, uint64_t sequence, const char *key);

/* The one verdict of a PUBLISHED or REMOVED, or the answer's status; SILENT. */
int32_t bench_verdict(struct bench *bench, uint64_t tag, struct message_verdict *ret_verdict);

/* Asks and reads at once: how many places the key has, with the first of them; or a negative status; or SILENT. */
int32_t bench_lookup(struct bench *bench, const char *key, uint32_t flags, struct message_place *ret_places);

/* Asks whether it is there: 1, 0, a negative status, or SILENT. bench_lookup does so too, and the two must agree. */
int32_t bench_probe(struct bench *bench, const char *key);

/* The stamp of an answer to a BEAT; floors point into memory that stays until the next call. */
struct message_stamp bench_beat(struct bench *bench, uint32_t client);
/* The floor of an owner in a stamp; 0 if there is none. */
uint64_t bench_floor(const struct message_stamp *stamp, uint32_t owner);

/* ---- Owners ---- */

struct bench_holding {
    uint32_t state;
    uint64_t generation;
    uint64_t version_epoch;
    uint64_t version_counter;
    const char *key;
};

/* Announces in one part; the answer's status. */
int32_t bench_mount(struct bench *bench, uint32_t owner, const struct bench_holding *holdings, uint32_t count);

/* A POLL with one event (kind 0: none). Returns the tag. */
uint64_t bench_poll(struct bench *bench, uint32_t owner, uint32_t kind, uint64_t generation);
uint64_t bench_poll_full(struct bench *bench, uint32_t owner, uint32_t kind, uint64_t generation, uint64_t free,
                         uint64_t wanted);
/* The commands of its answer, at most `capacity`; -1: no answer yet; -2: refused. */
int bench_commands(struct bench *bench, uint64_t tag, struct message_command *commands, int capacity);
/* Does what the master says, having nothing RESERVED that it asks for, until it says nothing more; how
 * many commands that were. No POLL is left waiting. */
int bench_obey(struct bench *bench, uint32_t owner);

void bench_step(struct bench *bench);
/* Steps until nothing is due. */
void bench_advance(struct bench *bench, uint64_t duration);

#endif

/* transfer/metrics.h - what an engine counts: requests, bytes, failures and latencies for each peer and path.
 *
 * Owns one row of counters for each address that peers were opened by; they live as long as the engine, also when the
 * peer is closed, so that a counter never falls. From METRICS_PEERS addresses on, further ones share the row "other".
 *
 * Threads: any. Counting takes no lock, but atomic additions. `lock` is for new rows and for who walks over them.
 */
#ifndef MC_TRANSFER_METRICS_H
#define MC_TRANSFER_METRICS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include <mooncake/transfer.h>

#include "base/list.h"
#include "base/writer.h"
#include "net/lane.h"
#include "net/server.h"
#include "os/address.h"

#define METRICS_PEERS 4096u
#define METRICS_TRANSPORTS 3u
#define METRICS_STATUSES 48u /* at least as many as there are codes */

/* Requests of at most so many bytes are small. */
#define METRICS_SMALL 65536u
/* The latency of one in so many small requests is observed, and of all others. */
#define METRICS_SAMPLE 16u

/* Bucket i has what took at most METRICS_FIRST_BUCKET << i ns, and longer than the one before. The last has the rest. */
#define METRICS_FIRST_BUCKET UINT64_C(125)
#define METRICS_BUCKETS 31u

struct metrics_histogram {
    _Atomic uint64_t sum; /* ns */
    _Atomic uint64_t buckets[METRICS_BUCKETS];
};

enum { METRICS_OF_SMALL, METRICS_OF_LARGE, METRICS_SIZES };

/* Of one path to one peer; by opcode, and by size. */
struct link_metrics {
    _Atomic uint64_t requests[2][METRICS_SIZES];
    _Atomic uint64_t bytes[2];
    _Atomic uint64_t failures[METRICS_STATUSES]; /* they are in `requests`, too */
    struct metrics_histogram latency[METRICS_SIZES];
};

/* Of one address. */
struct metrics_peer {
    struct list node;
    uint32_t users; /* peers that are open; with the lock held */
    char address[ADDRESS_TEXT_MAX];
    struct link_metrics *links[METRICS_TRANSPORTS]; /* NULL: never used */
    struct lane_counters lanes;
    _Atomic uint64_t notified;
    _Atomic uint64_t unnotified; /* notifications that weren't delivered */
};

struct metrics {
    pthread_mutex_t lock;
    uint64_t opened; /* clock_now's time */
    struct list peers;
    uint32_t peer_count;
};

struct metrics *metrics_new(void);                     /* NULL if memory is short */
struct metrics *metrics_free(struct metrics *metrics); /* when nothing counts any more; NULL is fine, returns NULL */

/* The row of an address, for one peer that is being opened; NULL if memory is short. And when the peer is gone: a row of
 * which no path was ever there goes, too. */
struct metrics_peer *metrics_join(struct metrics *metrics, const char *address);
void metrics_leave(struct metrics *metrics, struct metrics_peer *peer);

/* The counters of one of its paths, by the transport's place in the engine; NULL if memory is short. */
struct link_metrics *metrics_link(struct metrics *metrics, struct metrics_peer *peer, size_t transport);

/* ---- Counting ---- */

/* clock_now, if the latency of a request that begins now will be observed, else 0: the clock costs more than counting
 * does. For requests that need no clock otherwise. */
uint64_t metrics_begin(const struct link_metrics *link, uint32_t opcode, uint64_t length);

/* A request of `length` bytes has ended, after `bytes` of them were moved. `start`: when it was submitted, or 0. */
void metrics_ended(struct link_metrics *link, uint32_t opcode, uint64_t length, uint64_t bytes, int32_t status,
                   uint64_t start);

/* A notification to the peer has been delivered, or not. */
void metrics_notified(struct metrics_peer *peer, int32_t status);

/* ---- Reading ---- */

/* What others count of the engine. */
struct metrics_engine {
    const char *address;
    const char *transports[METRICS_TRANSPORTS];
    struct server_counters sessions;
    uint64_t received;   /* notifications */
    uint64_t overflowed; /* refused because the queue was full */
    uint64_t regions;
    uint64_t region_bytes;
    uint64_t batches; /* in flight */
    uint64_t peers;   /* open */
};

/* The values of a link at one moment, or their sum over several. */
struct link_values {
    uint64_t requests[2];
    uint64_t bytes[2];
    uint64_t failed; /* the sum of: */
    uint64_t failures[METRICS_STATUSES];
    struct {
        uint64_t sum;
        uint64_t count; /* the sum of: */
        uint64_t buckets[METRICS_BUCKETS];
    } latency[METRICS_SIZES];
};

/* Adds them to *values. */
void metrics_add_values(const struct link_metrics *link, struct link_values *values);

/* The status behind an index of `failures`; MC_OK for one that stands for none. */
int32_t metrics_status(size_t index);

/* Writes all of it, in a format of mc_engine_metrics. */
void metrics_write(struct metrics *metrics, uint32_t format, const struct metrics_engine *engine,
                   struct writer *writer);

#endif

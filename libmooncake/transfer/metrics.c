/* transfer/metrics.c - counters of an engine; see metrics.h. */
#include "transfer/metrics.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"

#define OTHER "other"

static inline void add(_Atomic uint64_t *counter, uint64_t value) {
    atomic_fetch_add_explicit(counter, value, memory_order_relaxed);
}

static inline uint64_t get(const _Atomic uint64_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* ---- Rows ---- */

struct metrics *metrics_new(void) {
    struct metrics *metrics = calloc(1, sizeof(*metrics));

    if (metrics == NULL)
        return NULL;
    pthread_mutex_init(&metrics->lock, NULL);
    list_init(&metrics->peers);
    metrics->opened = clock_now();
    return metrics;
}

struct metrics *metrics_free(struct metrics *metrics) {
    struct list *node, *after;

    if (metrics == NULL)
        return NULL;
    list_each (node, after, &metrics->peers) {
        struct metrics_peer *peer = list_entry(node, struct metrics_peer, node);

        for (size_t i = 0; i < METRICS_TRANSPORTS; i++)
            free(peer->links[i]);
        free(peer);
    }
    pthread_mutex_destroy(&metrics->lock);
    free(metrics);
    return NULL;
}

/* With the lock held. */
static struct metrics_peer *find_peer(struct metrics *metrics, const char *address) {
    struct list *node, *after;

    list_each (node, after, &metrics->peers) {
        struct metrics_peer *peer = list_entry(node, struct metrics_peer, node);

        if (strcmp(peer->address, address) == 0)
            return peer;
    }
    return NULL;
}

struct metrics_peer *metrics_join(struct metrics *metrics, const char *address) {
    struct metrics_peer *peer;

    pthread_mutex_lock(&metrics->lock);
    peer = find_peer(metrics, address);
    if (peer == NULL && metrics->peer_count >= METRICS_PEERS) {
        address = OTHER;
        peer = find_peer(metrics, address);
    }
    if (peer == NULL)
        peer = calloc(1, sizeof(*peer));
    if (peer != NULL && peer->address[0] == '\0') {
        text_copy(peer->address, sizeof(peer->address), address);
        list_append(&metrics->peers, &peer->node);
        metrics->peer_count++;
    }
    if (peer != NULL)
        peer->users++;
    pthread_mutex_unlock(&metrics->lock);
    return peer;
}

void metrics_leave(struct metrics *metrics, struct metrics_peer *peer) {
    bool used = false;

    pthread_mutex_lock(&metrics->lock);
    for (size_t i = 0; i < METRICS_TRANSPORTS; i++)
        used = used || peer->links[i] != NULL;
    if (--peer->users == 0 && !used) {
        list_remove(&peer->node);
        metrics->peer_count--;
        free(peer);
    }
    pthread_mutex_unlock(&metrics->lock);
}

struct link_metrics *metrics_link(struct metrics *metrics, struct metrics_peer *peer, size_t transport) {
    struct link_metrics *link;

    pthread_mutex_lock(&metrics->lock);
    link = peer->links[transport];
    if (link == NULL)
        link = calloc(1, sizeof(*link));
    peer->links[transport] = link;
    pthread_mutex_unlock(&metrics->lock);
    return link;
}

/* ---- Counting ---- */

/* Codes by a dense index, so that a row needs few counters. */
enum status_index {
#define STATUS_INDEX(name, code, retryable, python, text) INDEX_##name,
    MC_STATUS_TABLE(STATUS_INDEX)
#undef STATUS_INDEX
        INDEX_COUNT
};

_Static_assert(INDEX_COUNT <= METRICS_STATUSES, "more codes than counters");

static size_t index_of(int32_t status) {
    switch (status) {
#define STATUS_CASE(name, code, retryable, python, text) \
    case (code):                                         \
        return INDEX_##name;
        MC_STATUS_TABLE(STATUS_CASE)
#undef STATUS_CASE
    default: /* of a peer that knows more codes */
        return INDEX_ERR_INTERNAL;
    }
}

int32_t metrics_status(size_t index) {
    static const int32_t codes[] = {
#define STATUS_CODE(name, code, retryable, python, text) (code),
        MC_STATUS_TABLE(STATUS_CODE)
#undef STATUS_CODE
    };

    return index < INDEX_COUNT ? codes[index] : MC_OK;
}

static size_t bucket_of(uint64_t time) {
    uint64_t units = time > 0 ? (time - 1) / METRICS_FIRST_BUCKET : 0;
    size_t bucket = units > 0 ? 64 - (size_t)__builtin_clzll(units) : 0;

    return bucket < METRICS_BUCKETS ? bucket : METRICS_BUCKETS - 1;
}

static void observe(struct metrics_histogram *latency, uint64_t start) {
    uint64_t now = clock_now(), time = now > start ? now - start : 0;

    add(&latency->sum, time);
    add(&latency->buckets[bucket_of(time)], 1);
}

static size_t size_of(uint64_t length) {
    return length > METRICS_SMALL ? METRICS_OF_LARGE : METRICS_OF_SMALL;
}

/* Of the request that comes after `count` of its size. */
static bool is_observed(size_t size, uint64_t count) {
    return size == METRICS_OF_LARGE || count % METRICS_SAMPLE == 0;
}

uint64_t metrics_begin(const struct link_metrics *link, uint32_t opcode, uint64_t length) {
    size_t size = size_of(length);

    return is_observed(size, get(&link->requests[opcode][size])) ? clock_now() : 0;
}

void metrics_ended(struct link_metrics *link, uint32_t opcode, uint64_t length, uint64_t bytes, int32_t status,
                   uint64_t start) {
    size_t size = size_of(length);
    uint64_t before = atomic_fetch_add_explicit(&link->requests[opcode][size], 1, memory_order_relaxed);

    add(&link->bytes[opcode], bytes);
    if (status != MC_OK)
        add(&link->failures[index_of(status)], 1);
    else if (start != 0 && is_observed(size, before))
        observe(&link->latency[size], start);
}

void metrics_notified(struct metrics_peer *peer, int32_t status) {
    add(status == MC_OK ? &peer->notified : &peer->unnotified, 1);
}

/* ---- Reading ---- */

void metrics_add_values(const struct link_metrics *link, struct link_values *values) {
    /* Failures first: they are counted last, so they are never more than the requests. */
    for (size_t i = 0; i < METRICS_STATUSES; i++) {
        uint64_t failures = get(&link->failures[i]);

        values->failures[i] += failures;
        values->failed += failures;
    }
    atomic_thread_fence(memory_order_acquire);
    for (size_t i = 0; i < 2; i++) {
        for (size_t j = 0; j < METRICS_SIZES; j++)
            values->requests[i] += get(&link->requests[i][j]);
        values->bytes[i] += get(&link->bytes[i]);
    }
    for (size_t i = 0; i < METRICS_SIZES; i++) {
        values->latency[i].sum += get(&link->latency[i].sum);
        for (size_t j = 0; j < METRICS_BUCKETS; j++) {
            uint64_t count = get(&link->latency[i].buckets[j]);

            values->latency[i].buckets[j] += count;
            values->latency[i].count += count;
        }
    }
}

/* transfer/metrics_text.c - writes an engine's counters as JSON and as Prometheus text.
 *
 * With the lock of the counters held, so that rows stay; who counts doesn't wait for it. Each counter is read once for each line, so a text is consistent in each of them, not among them.
 */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "transfer/metrics.h"

static const char *const opcodes[] = {[MC_READ] = "read", [MC_WRITE] = "write"};
static const char *const sizes[] = {[METRICS_OF_SMALL] = "small", [METRICS_OF_LARGE] = "large"};

/* The upper bound of a bucket but the last. */
static double bound(size_t bucket) {
    return (double)(METRICS_FIRST_BUCKET << bucket) / (double)CLOCK_SECOND;
}

static double seconds(uint64_t time) {
    return (double)time / (double)CLOCK_SECOND;
}

/* ---- JSON ---- */

/* A member's name, after a comma but for the first. */
static void write_name(struct writer *writer, bool *first, const char *name) {
    writer_print(writer, *first ? "\"%s\":" : ",\"%s\":", name);
    *first = false;
}

/* {"count":…,"sum":…,"buckets":[[bound, count],…]}, without buckets that have none; the bound of the last is null. */
static void write_latency(struct writer *writer, const struct link_values *values, size_t size) {
    bool first = true;

    writer_print(writer, "{\"count\":%" PRIu64 ",\"sum\":%.9g,\"buckets\":[", values->latency[size].count,
                 seconds(values->latency[size].sum));
    for (size_t i = 0; i < METRICS_BUCKETS; i++) {
        uint64_t count = values->latency[size].buckets[i];

        if (count == 0)
            continue;
        if (i < METRICS_BUCKETS - 1)
            writer_print(writer, "%s[%.9g,%" PRIu64 "]", first ? "" : ",", bound(i), count);
        else
            writer_print(writer, "%s[null,%" PRIu64 "]", first ? "" : ",", count);
        first = false;
    }
    writer_print(writer, "]}");
}

/* The members of a link, without braces. */
static void write_values(struct writer *writer, const struct link_values *values) {
    uint64_t requests = values->requests[MC_READ] + values->requests[MC_WRITE];
    bool first = true;

    writer_print(writer, "\"requests\":{\"read\":%" PRIu64 ",\"write\":%" PRIu64 "}", values->requests[MC_READ],
                 values->requests[MC_WRITE]);
    writer_print(writer, ",\"bytes\":{\"read\":%" PRIu64 ",\"write\":%" PRIu64 "}", values->bytes[MC_READ],
                 values->bytes[MC_WRITE]);
    writer_print(writer, ",\"completed\":%" PRIu64 ",\"failed\":%" PRIu64 ",\"failures\":{", requests - values->failed,
                 values->failed);
    for (size_t i = 0; i < METRICS_STATUSES; i++) {
        if (values->failures[i] == 0)
            continue;
        write_name(writer, &first, status_name(metrics_status(i)));
        writer_print(writer, "%" PRIu64, values->failures[i]);
    }
    writer_print(writer, "},\"latency\":{");
    first = true;
    for (size_t i = 0; i < METRICS_SIZES; i++) {
        write_name(writer, &first, sizes[i]);
        write_latency(writer, values, i);
    }
    writer_print(writer, "}");
}

/* Adds them up in *total, too. */
static void write_links(struct writer *writer, struct metrics *metrics, const struct metrics_engine *engine,
                        struct link_values *total) {
    struct list *node, *after;
    bool first = true;

    writer_print(writer, "\"links\":[");
    list_each (node, after, &metrics->peers) {
        const struct metrics_peer *peer = list_entry(node, struct metrics_peer, node);

        for (size_t i = 0; i < METRICS_TRANSPORTS; i++) {
            struct link_values values = {0};

            if (peer->links[i] == NULL)
                continue;
            metrics_add_values(peer->links[i], &values);
            metrics_add_values(peer->links[i], total);
            writer_print(writer, "%s{\"peer\":", first ? "" : ",");
            writer_json_string(writer, peer->address);
            writer_print(writer, ",\"transport\":\"%s\",", engine->transports[i]);
            write_values(writer, &values);
            writer_print(writer, "}");
            first = false;
        }
    }
    writer_print(writer, "]");
}

static void write_peers(struct writer *writer, struct metrics *metrics) {
    struct list *node, *after;
    bool first = true;

    writer_print(writer, ",\"peers\":[");
    list_each (node, after, &metrics->peers) {
        struct metrics_peer *peer = list_entry(node, struct metrics_peer, node);

        writer_print(writer, "%s{\"peer\":", first ? "" : ",");
        writer_json_string(writer, peer->address);
        writer_print(writer,
                     ",\"connects\":%" PRIu64 ",\"losses\":%" PRIu64 ",\"notified\":%" PRIu64 ",\"unnotified\":%" PRIu64
                     "}",
                     atomic_load(&peer->lanes.connects), atomic_load(&peer->lanes.losses), atomic_load(&peer->notified),
                     atomic_load(&peer->unnotified));
        first = false;
    }
    writer_print(writer, "]");
}

static void write_json(struct metrics *metrics, const struct metrics_engine *engine, struct writer *writer) {
    struct link_values total = {0};

    writer_print(writer, "{\"address\":");
    writer_json_string(writer, engine->address);
    writer_print(writer, ",\"uptime\":%.3f,", seconds(clock_now() - metrics->opened));
    write_links(writer, metrics, engine, &total);
    writer_print(writer, ",\"total\":{");
    write_values(writer, &total);
    writer_print(writer, "}");
    write_peers(writer, metrics);
    writer_print(writer, ",\"open_peers\":%" PRIu64 ",\"batches_in_flight\":%" PRIu64, engine->peers, engine->batches);
    writer_print(writer, ",\"notifications\":{\"received\":%" PRIu64 ",\"overflowed\":%" PRIu64 "}", engine->received,
                 engine->overflowed);
    writer_print(writer, ",\"sessions\":{\"accepted\":%" PRIu64 ",\"refused\":%" PRIu64 ",\"broken\":%" PRIu64 "}",
                 engine->sessions.accepted, engine->sessions.refused, engine->sessions.broken);
    writer_print(writer, ",\"regions\":{\"count\":%" PRIu64 ",\"bytes\":%" PRIu64 "}}", engine->regions,
                 engine->region_bytes);
}

/* ---- Prometheus text, version 0.0.4 ---- */

#define PREFIX "mooncake_transfer_"

static void write_head(struct writer *writer, const char *name, const char *kind, const char *help) {
    writer_print(writer, "# HELP " PREFIX "%s %s\n# TYPE " PREFIX "%s %s\n", name, help, name, kind);
}

static void write_label(struct writer *writer, const char *value) {
    writer_print(writer, "\"");
    for (; *value != '\0'; value++) {
        if (*value == '\n')
            writer_print(writer, "\\n");
        else if (*value == '"' || *value == '\\')
            writer_print(writer, "\\%c", *value);
        else
            writer_print(writer, "%c", *value);
    }
    writer_print(writer, "\"");
}

/* The line of a link up to its last label: "name{peer="…",transport="…",key="value"". */
static void begin_line(struct writer *writer, const char *name, const struct metrics_peer *peer, const char *transport,
                       const char *key, const char *value) {
    writer_print(writer, PREFIX "%s{peer=", name);
    write_label(writer, peer->address);
    writer_print(writer, ",transport=\"%s\",%s=\"%s\"", transport, key, value);
}

static void write_line(struct writer *writer, const char *name, const struct metrics_peer *peer, const char *transport,
                       const char *key, const char *value, uint64_t number) {
    begin_line(writer, name, peer, transport, key, value);
    writer_print(writer, "} %" PRIu64 "\n", number);
}

typedef void line_writer(struct writer *writer, const struct metrics_peer *peer, const char *transport,
                         const struct link_values *values);

static void requests_lines(struct writer *writer, const struct metrics_peer *peer, const char *transport,
                           const struct link_values *values) {
    for (size_t i = 0; i < 2; i++)
        write_line(writer, "requests_total", peer, transport, "opcode", opcodes[i], values->requests[i]);
}

static void bytes_lines(struct writer *writer, const struct metrics_peer *peer, const char *transport,
                        const struct link_values *values) {
    for (size_t i = 0; i < 2; i++)
        write_line(writer, "bytes_total", peer, transport, "opcode", opcodes[i], values->bytes[i]);
}

static void failures_lines(struct writer *writer, const struct metrics_peer *peer, const char *transport,
                           const struct link_values *values) {
    for (size_t i = 0; i < METRICS_STATUSES; i++)
        if (values->failures[i] > 0)
            write_line(writer, "failures_total", peer, transport, "status", status_name(metrics_status(i)),
                       values->failures[i]);
}

/* A histogram's buckets are cumulative; those of the same height as the one before are left out. */
static void latency_lines(struct writer *writer, const struct metrics_peer *peer, const char *transport,
                          const struct link_values *values) {
    for (size_t size = 0; size < METRICS_SIZES; size++) {
        uint64_t below = 0, count = values->latency[size].count;

        for (size_t i = 0; i < METRICS_BUCKETS - 1 && count > 0; i++) {
            if (values->latency[size].buckets[i] == 0)
                continue;
            below += values->latency[size].buckets[i];
            begin_line(writer, "latency_seconds_bucket", peer, transport, "size", sizes[size]);
            writer_print(writer, ",le=\"%.9g\"} %" PRIu64 "\n", bound(i), below);
        }
        if (count == 0)
            continue;
        begin_line(writer, "latency_seconds_bucket", peer, transport, "size", sizes[size]);
        writer_print(writer, ",le=\"+Inf\"} %" PRIu64 "\n", count);
        begin_line(writer, "latency_seconds_sum", peer, transport, "size", sizes[size]);
        writer_print(writer, "} %.9g\n", seconds(values->latency[size].sum));
        write_line(writer, "latency_seconds_count", peer, transport, "size", sizes[size], count);
    }
}

static void write_family(struct writer *writer, struct metrics *metrics, const struct metrics_engine *engine,
                         line_writer *write_lines) {
    struct list *node, *after;

    list_each (node, after, &metrics->peers) {
        const struct metrics_peer *peer = list_entry(node, struct metrics_peer, node);

        for (size_t i = 0; i < METRICS_TRANSPORTS; i++) {
            struct link_values values = {0};

            if (peer->links[i] == NULL)
                continue;
            metrics_add_values(peer->links[i], &values);
            write_lines(writer, peer, engine->transports[i], &values);
        }
    }
}

/* One counter of each peer, `offset` bytes into its row. */
static void write_peer_family(struct writer *writer, struct metrics *metrics, const char *name, const char *help,
                              size_t offset) {
    struct list *node, *after;

    write_head(writer, name, "counter", help);
    list_each (node, after, &metrics->peers) {
        struct metrics_peer *peer = list_entry(node, struct metrics_peer, node);
        _Atomic uint64_t *counter = (_Atomic uint64_t *)(void *)((char *)peer + offset);

        writer_print(writer, PREFIX "%s{peer=", name);
        write_label(writer, peer->address);
        writer_print(writer, "} %" PRIu64 "\n", atomic_load(counter));
    }
}

static void write_one(struct writer *writer, const char *name, const char *kind, const char *help, uint64_t value) {
    write_head(writer, name, kind, help);
    writer_print(writer, PREFIX "%s %" PRIu64 "\n", name, value);
}

static void write_prometheus(struct metrics *metrics, const struct metrics_engine *engine, struct writer *writer) {
    write_head(writer, "requests_total", "counter", "Requests that have ended, completed or not.");
    write_family(writer, metrics, engine, requests_lines);
    write_head(writer, "bytes_total", "counter", "Bytes that requests have moved.");
    write_family(writer, metrics, engine, bytes_lines);
    write_head(writer, "failures_total", "counter", "Requests that have not completed, by their status.");
    write_family(writer, metrics, engine, failures_lines);
    write_head(writer, "latency_seconds", "histogram",
               "Time from submission to completion; of small requests, up to 64 KiB, one in 16 is observed.");
    write_family(writer, metrics, engine, latency_lines);
    write_peer_family(writer, metrics, "connects_total", "Connections that were made to the peer.",
                      offsetof(struct metrics_peer, lanes.connects));
    write_peer_family(writer, metrics, "losses_total", "Connections to the peer that were lost.",
                      offsetof(struct metrics_peer, lanes.losses));
    write_peer_family(writer, metrics, "notifications_sent_total", "Notifications that the peer has taken.",
                      offsetof(struct metrics_peer, notified));
    write_peer_family(writer, metrics, "notifications_unsent_total", "Notifications that could not be delivered.",
                      offsetof(struct metrics_peer, unnotified));
    write_one(writer, "notifications_received_total", "counter", "Notifications that peers have delivered.",
              engine->received);
    write_one(writer, "notifications_overflowed_total", "counter",
              "Notifications of peers that were refused because the queue was full.", engine->overflowed);
    write_one(writer, "sessions_accepted_total", "counter", "Connections that peers have opened.",
              engine->sessions.accepted);
    write_one(writer, "sessions_refused_total", "counter", "Connections that were refused.", engine->sessions.refused);
    write_one(writer, "sessions_broken_total", "counter", "Connections that were closed for garbage or a stall.",
              engine->sessions.broken);
    write_one(writer, "registered_regions", "gauge", "Regions that are registered.", engine->regions);
    write_one(writer, "registered_bytes", "gauge", "Bytes that are registered.", engine->region_bytes);
    write_one(writer, "batches_in_flight", "gauge", "Batches that have not ended.", engine->batches);
    write_one(writer, "open_peers", "gauge", "Peers that are open.", engine->peers);
}

void metrics_write(struct metrics *metrics, uint32_t format, const struct metrics_engine *engine,
                   struct writer *writer) {
    pthread_mutex_lock(&metrics->lock);
    if (format == MC_METRICS_JSON)
        write_json(metrics, engine, writer);
    else
        write_prometheus(metrics, engine, writer);
    pthread_mutex_unlock(&metrics->lock);
}

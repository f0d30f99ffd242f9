/* programs/admin_metrics.c - a master's metrics: names of the reference where they mean the same, else mooncake_master_*.
 *
 * Owns nothing; any thread. The master's lock is taken for moments: its counts are kept, not made here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/admin.h"
#include "programs/admin_pages.h"
#include "store/master/describe.h"

#define PERCENT 100.0

/* Requests of the master's protocol, by the reference's name of the call that means the same. */
static const struct {
    uint16_t type;
    const char *name;
} calls[] = {
    {MESSAGE_PUBLISH, "batch_put_end"},   {MESSAGE_LOOKUP, "batch_get_replica_list"},
    {MESSAGE_PROBE, "batch_exist_key"},   {MESSAGE_REMOVE, "batch_remove"},
    {MESSAGE_LIST, "list_keys"},          {MESSAGE_BEAT, "ping"},
    {MESSAGE_MOUNT, "mount_segment"},     {MESSAGE_POLL, "poll"},
    {MESSAGE_UNMOUNT, "unmount_segment"},
};

#define CALLS (sizeof(calls) / sizeof(calls[0]))

static void metric(struct web_text *text, const char *name, const char *type, const char *words, uint64_t value) {
    web_text_print(text, "# HELP %s %s\n# TYPE %s %s\n%s %llu\n", name, words, name, type, name,
                   (unsigned long long)value);
}

static void print_counts(struct web_text *text, const struct master_count *count, bool serves) {
    const struct master_total *total = &count->total;

    metric(text, "mooncake_master_serves", "gauge", "1 while the master serves", serves);
    metric(text, "master_key_count", "gauge", "Objects in the index", count->keys);
    metric(text, "mooncake_master_owners", "gauge", "Segments that are members of the pool", count->members);
    metric(text, "mooncake_master_clients", "gauge", "Clients seen under this epoch", count->clients);
    metric(text, "mooncake_master_waiting_requests", "gauge", "Requests that wait for a key to change", count->waiting);
    metric(text, "mooncake_master_kills", "gauge", "Replicas whose removal isn't acknowledged yet", count->kills);
    metric(text, "mooncake_master_doubts", "gauge", "Reservations of an earlier epoch that aren't settled",
           count->doubts);
    metric(text, "mooncake_master_evicted_replicas_total", "counter", "Replicas given up for space", count->evicted);
    metric(text, "mooncake_master_keys_put_total", "counter", "Keys published and accepted", total->put);
    metric(text, "mooncake_master_keys_removed_total", "counter", "Keys removed by clients", total->removed);
    metric(text, "mooncake_master_keys_looked_up_total", "counter", "Keys that readers asked for", total->looked_up);
    metric(text, "mooncake_master_keys_found_total", "counter", "Of those looked up, keys that were there",
           total->found);
    metric(text, "mooncake_master_keys_probed_total", "counter", "Keys whose existence was asked for", total->probed);
    metric(text, "mooncake_master_keys_present_total", "counter", "Of those probed, keys that were there",
           total->present);
    metric(text, "mooncake_master_cached_reads_total", "counter", "Reads by locations that clients had already",
           total->read);
}

static void print_traffic(struct master_service *service, struct web_text *text) {
    for (size_t i = 0; i < CALLS; i++) {
        struct master_traffic traffic = master_service_traffic(service, calls[i].type);
        char name[64];

        snprintf(name, sizeof(name), "master_%s_requests_total", calls[i].name);
        metric(text, name, "counter", "Requests of this kind", traffic.requests);
        snprintf(name, sizeof(name), "master_%s_failures_total", calls[i].name);
        metric(text, name, "counter", "Of those, refused ones", traffic.failures);
    }
}

/* Several segments may have one name, and a scraper wants each series once: they are told apart by their ids. */
static void print_label(struct web_text *text, const char *name, const struct segment_description *list, size_t count,
                        size_t index) {
    bool alone = true;

    for (size_t i = 0; i < count && alone; i++)
        alone = i == index || strcmp(list[i].name, list[index].name) != 0;
    web_text_print(text, "%s{segment=", name);
    web_text_label(text, list[index].name);
    if (!alone) {
        web_text_print(text, ",id=\"");
        for (size_t i = 0; i < sizeof(list[index].id.bytes); i++)
            web_text_print(text, "%02x", list[index].id.bytes[i]);
        web_text_print(text, "\"");
    }
    web_text_print(text, "} ");
}

static void print_segments(struct web_text *text, const struct segment_description *list, size_t count, bool used) {
    const char *name = used ? "segment_allocated_bytes" : "segment_total_capacity_bytes";

    web_text_print(text, "# HELP %s %s\n# TYPE %s gauge\n", name, used ? "Bytes in use" : "Bytes of the segment", name);
    for (size_t i = 0; i < count; i++) {
        print_label(text, name, list, count, i);
        web_text_print(text, "%llu\n", (unsigned long long)(used ? list[i].used : list[i].size));
    }
}

static void sum(const struct segment_description *list, size_t count, uint64_t *ret_used, uint64_t *ret_size) {
    *ret_used = *ret_size = 0;
    for (size_t i = 0; i < count; i++) {
        *ret_used += list[i].used;
        *ret_size += list[i].size;
    }
}

void admin_metrics(struct master_service *service, struct web_text *text) {
    struct master_count counts = master_service_count(service);
    struct segment_description *list;
    uint64_t used, size;
    size_t count;
    bool serves;

    list = admin_segments(service, &count, &serves);
    sum(list, count, &used, &size);
    print_counts(text, &counts, serves);
    metric(text, "master_allocated_bytes", "gauge", "Bytes in use in all segments", used);
    metric(text, "master_total_capacity_bytes", "gauge", "Bytes of all segments", size);
    if (count > 0) {
        print_segments(text, list, count, true);
        print_segments(text, list, count, false);
    }
    print_traffic(service, text);
    free(list);
}

static double part(uint64_t some, uint64_t all) {
    return all > 0 ? PERCENT * (double)some / (double)all : 0.0;
}

void admin_summary(struct master_service *service, struct web_text *text) {
    struct master_count counts = master_service_count(service);
    const struct master_total *total = &counts.total;
    struct segment_description *list;
    uint64_t used, size;
    size_t count;
    bool serves;

    list = admin_segments(service, &count, &serves);
    sum(list, count, &used, &size);
    web_text_print(text, "mooncake_master %s, %s\n", MOONCAKE_VERSION, serves ? "serves" : "doesn't serve");
    web_text_print(text, "Memory: %llu of %llu bytes in use (%.1f %%), in %zu segments\n", (unsigned long long)used,
                   (unsigned long long)size, part(used, size), count);
    web_text_print(text, "Keys: %llu; put %llu, removed %llu, replicas evicted %llu\n", (unsigned long long)counts.keys,
                   (unsigned long long)total->put, (unsigned long long)total->removed,
                   (unsigned long long)counts.evicted);
    web_text_print(text, "Reads: looked up %llu (%.1f %% found), by known locations %llu\n",
                   (unsigned long long)total->looked_up, part(total->found, total->looked_up),
                   (unsigned long long)total->read);
    web_text_print(text, "Clients: %llu; requests that wait: %llu\n", (unsigned long long)counts.clients,
                   (unsigned long long)counts.waiting);
    for (size_t i = 0; i < CALLS; i++) {
        struct master_traffic traffic = master_service_traffic(service, calls[i].type);

        web_text_print(text, "%s: %llu requests, %llu refused\n", calls[i].name, (unsigned long long)traffic.requests,
                       (unsigned long long)traffic.failures);
    }
    free(list);
}

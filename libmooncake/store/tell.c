/* store/tell.c - see tell.h. Looks only: nothing is sent, and nothing changes. */
#include "store/tell.h"

#include <inttypes.h>
#include <string.h>

#include "base/writer.h"
#include "store/master_service.h"

static void note_unmounted(void *context, const struct owner_description *description) {
    if (!description->mounted)
        *(bool *)context = true;
}

int32_t store_health(struct store *store) {
    bool unmounted = false;

    owners_each(&store->owners, note_unmounted, &unmounted);
    return !unmounted && client_side_healthy(&store->client) ? MC_OK : MC_ERR_UNAVAILABLE;
}

/* ---- Counters ---- */

struct sum {
    uint32_t count;
    struct owner_usage usage;
};

static void add(void *context, const struct owner_description *description) {
    const struct owner_usage *one = &description->usage;
    struct sum *sum = context;

    sum->count++;
    sum->usage.size += one->size;
    sum->usage.used += one->used;
    sum->usage.largest = one->largest > sum->usage.largest ? one->largest : sum->usage.largest;
    sum->usage.live += one->live;
    sum->usage.reserved += one->reserved;
    sum->usage.dead += one->dead;
}

static void print_sum(struct writer *writer, struct store *store) {
    struct sum sum = {0};

    owners_each(&store->owners, add, &sum);
    if (sum.count == 0)
        return;
    writer_print(writer, ",\"segment\":{\"size\":%" PRIu64 ",\"used\":%" PRIu64 ",\"largest\":%" PRIu64, sum.usage.size,
                 sum.usage.used, sum.usage.largest);
    writer_print(writer, ",\"live\":%" PRIu64 ",\"reserved\":%" PRIu64 ",\"dead\":%" PRIu64 "}", sum.usage.live,
                 sum.usage.reserved, sum.usage.dead);
}

int64_t store_stats(struct store *store, char *text, size_t size) {
    struct client_count client;
    struct writer writer;

    pthread_mutex_lock(&store->client.lock);
    client = client_count(store->client.core);
    pthread_mutex_unlock(&store->client.lock);
    writer_init(&writer, text, size);
    writer_print(&writer, "{\"stock\":%" PRIu64 ",\"unsettled\":%" PRIu64 ",\"returns\":%" PRIu64, client.stock,
                 client.unsettled, client.returns);
    writer_print(&writer, ",\"cache\":{\"locations\":%" PRIu64 ",\"hits\":%" PRIu64 ",\"lookups\":%" PRIu64 "}",
                 client.cached, client.cache_hits, client.lookups);
    print_sum(&writer, store);
    if (store->master != NULL) {
        struct master_count master = master_service_count(store->master);

        writer_print(&writer, ",\"master\":{\"keys\":%" PRIu64 ",\"evicted\":%" PRIu64 ",\"segments\":%" PRIu64 "}",
                     master.keys, master.evicted, master.members);
    }
    writer_print(&writer, ",\"viewed\":%" PRIu64 "}", (uint64_t)store->engine->viewed);
    return (int64_t)writer.length;
}

/* ---- Segments ---- */

struct list_of_segments {
    struct writer writer;
    const char *own; /* this process's address */
    bool any;
};

static void print_segment(struct list_of_segments *list, const struct message_id *id, const char *name,
                          const char *address, uint64_t size, uint64_t used, const char *state, bool own) {
    char text[SEGMENT_ID_TEXT];

    segment_id_print(id, text);
    writer_print(&list->writer, "%s{\"id\":\"%s\",\"name\":", list->any ? "," : "", text);
    writer_json_string(&list->writer, name);
    writer_print(&list->writer, ",\"address\":");
    writer_json_string(&list->writer, address);
    writer_print(&list->writer, ",\"size\":%" PRIu64 ",\"used\":%" PRIu64 ",\"state\":\"%s\",\"own\":%s}", size, used,
                 state, own ? "true" : "false");
    list->any = true;
}

static const char *state_name(bool mounted, bool drains) {
    if (drains)
        return "draining";
    return mounted ? "serving" : "mounting";
}

static void print_own(void *context, const struct owner_description *description) {
    struct list_of_segments *list = context;

    print_segment(list, &description->segment, description->name, list->own, description->usage.size,
                  description->usage.used, state_name(description->mounted, description->drains), true);
}

/* This store's own ones first, as they are now; then the others, as the master said last. */
int64_t store_segments(struct store *store, char *text, size_t size) {
    struct list_of_segments list = {.own = store->engine->engine->address};
    struct client_segment *segment = NULL;

    writer_init(&list.writer, text, size);
    writer_print(&list.writer, "[");
    owners_each(&store->owners, print_own, &list);
    pthread_mutex_lock(&store->client.lock);
    while ((segment = client_segments(store->client.core, segment)) != NULL)
        if (strcmp(segment->address, list.own) != 0)
            print_segment(&list, &segment->id, segment->name, segment->address, segment->size,
                          segment->size - segment->free, state_name(true, segment->drains), false);
    pthread_mutex_unlock(&store->client.lock);
    writer_print(&list.writer, "]");
    return (int64_t)list.writer.length;
}

/* cache.c - see cache.h. */
#include "cache.h"

#include <stdlib.h>
#include <string.h>

static void need(const void *memory) {
    if (memory == NULL)
        abort();
}

void trace_add(struct trace *trace, uint64_t id) {
    if (trace->id_count == trace->id_room) {
        trace->id_room = trace->id_room == 0 ? 1024 : trace->id_room * 2;
        trace->ids = realloc(trace->ids, trace->id_room * sizeof(*trace->ids));
        need(trace->ids);
    }
    trace->ids[trace->id_count++] = id;
}

void trace_end(struct trace *trace) {
    if (trace->count == trace->room) {
        trace->room = trace->room == 0 ? 1024 : trace->room * 2;
        trace->ends = realloc(trace->ends, trace->room * sizeof(*trace->ends));
        need(trace->ends);
    }
    trace->ends[trace->count++] = trace->id_count;
}

void trace_clear(struct trace *trace) {
    free(trace->ids);
    free(trace->ends);
    *trace = (struct trace){0};
}

/* A block of the trace; there while `held`. */
struct block {
    struct policy_entry entry;
    uint64_t id;
    struct block *next;
    bool held;
};

struct cache {
    const struct policy_ops *policy;
    struct policy_book *book;
    struct block **buckets;
    size_t bucket_mask;
    struct block *blocks;
    size_t block_count, held, capacity;
};

static uint64_t mix(uint64_t x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    return x ^ x >> 33;
}

static struct block *block_of(struct cache *cache, uint64_t id) {
    struct block **bucket = &cache->buckets[mix(id) & cache->bucket_mask], *block;

    for (block = *bucket; block != NULL; block = block->next)
        if (block->id == id)
            return block;
    block = &cache->blocks[cache->block_count++];
    *block = (struct block){.id = id, .next = *bucket};
    *bucket = block;
    return block;
}

static void put(struct cache *cache, struct block *block, bool last) {
    const struct policy_news news = {.key = mix(block->id), .last = last};

    block->entry = (struct policy_entry){.charge = 1};
    list_init(&block->entry.node);
    cache->policy->insert(cache->book, &block->entry, &news);
    block->held = true;
    cache->held++;
}

static void evict(struct cache *cache) {
    struct policy_entry *victim = cache->policy->victim(cache->book, POLICY_SOFT_PINNED);
    struct block *block = list_entry(victim, struct block, entry);

    cache->policy->evict(cache->book, victim, mix(block->id));
    block->held = false;
    cache->held--;
}

/* The blocks are accessed in order, so a put may evict what the same request finds later on. */
static uint64_t request(struct cache *cache, const uint64_t *ids, size_t count) {
    uint64_t hits = 0;
    bool prefix = true;

    for (size_t i = 0; i < count; i++) {
        struct block *block = block_of(cache, ids[i]);

        if (block->held) {
            cache->policy->touch(cache->book, &block->entry);
            hits += prefix;
            continue;
        }
        prefix = false;
        put(cache, block, i + 1 == count);
        if (cache->held > cache->capacity)
            evict(cache);
    }
    return hits;
}

uint64_t cache_hits(const struct policy_ops *policy, const struct trace *trace, size_t capacity) {
    struct cache cache = {.policy = policy, .book = policy->open(), .capacity = capacity, .bucket_mask = 1023};
    uint64_t hits = 0;
    size_t begin = 0;

    while (cache.bucket_mask < trace->id_count)
        cache.bucket_mask = cache.bucket_mask * 2 + 1;
    cache.buckets = calloc(cache.bucket_mask + 1, sizeof(struct block *));
    cache.blocks = calloc(trace->id_count + 1, sizeof(*cache.blocks));
    need(cache.book);
    need(cache.buckets);
    need(cache.blocks);
    for (size_t i = 0; i < trace->count; begin = trace->ends[i++])
        hits += request(&cache, trace->ids + begin, trace->ends[i] - begin);
    while (cache.held > 0) {
        struct policy_entry *entry = policy->any(cache.book);

        policy->remove(cache.book, entry);
        list_entry(entry, struct block, entry)->held = false;
        cache.held--;
    }
    policy->close(cache.book);
    free(cache.buckets);
    free(cache.blocks);
    return hits;
}

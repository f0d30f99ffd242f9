/* store/operation.c - blocking operations.
 *
 * The client's core says what is needed next, client_side sends and waits for it, and here the bytes are moved and the
 * results handed over.
 */
#include "store/operation.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/status.h"
#include "store/copy.h"

#define FEW 8u                        /* items that need no memory of the heap */
#define PAGE_KEYS 4096u               /* removed at a time */
#define WRITE_TIME (3 * CLOCK_SECOND) /* that an owner may take for all writes of a stage … */
#define WRITE_TIME_A_BYTE 100u        /* … and this for each byte, ns */

struct run {
    struct store *store;
    const struct operation *operation;
    struct client_op op;
    struct mc_keys keys; /* as they are stored */
    void *key_memory;
    struct client_item *items;
    struct copy_memory *memories; /* MC_STORE_PUT, MC_STORE_GET: of each item */
    struct mc_piece *ones;        /* the same where each is one piece */
    struct view **views;          /* MC_STORE_VIEW: of each item */
    struct client_item few[FEW];
    struct copy_memory few_memories[FEW];
    struct mc_piece few_ones[FEW];
    struct view *few_views[FEW];
};

/* ---- Items ---- */

static bool has_memory(const struct operation *operation) {
    return operation->kind == MC_STORE_PUT || operation->kind == MC_STORE_GET;
}

/* `few` if that is enough; NULL if memory is short. */
static void *room_for(size_t count, void *few, size_t size) {
    return count <= FEW ? few : calloc(count, size);
}

static bool make_room(struct run *run) {
    const struct operation *operation = run->operation;
    size_t count = operation->keys.count;
    bool memory = has_memory(operation), whole = operation->pieces == NULL;

    if (tenant_wrap(&run->store->tenant, &operation->keys, &run->keys, &run->key_memory) != MC_OK)
        return false;
    run->items = room_for(count, run->few, sizeof(run->items[0]));
    run->memories = memory ? room_for(count, run->few_memories, sizeof(run->memories[0])) : NULL;
    run->ones = memory && whole ? room_for(count, run->few_ones, sizeof(run->ones[0])) : NULL;
    run->views = operation->kind == MC_STORE_VIEW ? room_for(count, run->few_views, sizeof(run->views[0])) : NULL;
    return run->items != NULL && (run->memories != NULL || !memory) && (run->ones != NULL || !memory || !whole) &&
           (run->views != NULL || operation->kind != MC_STORE_VIEW);
}

static void free_room(struct run *run) {
    free(run->key_memory);
    if (run->items != run->few)
        free(run->items);
    if (run->memories != run->few_memories)
        free(run->memories);
    if (run->ones != run->few_ones)
        free(run->ones);
    if (run->views != run->few_views)
        free(run->views);
}

/* How much it is; false: it is no memory at all, or more than there is. */
static bool memory_length(const struct copy_memory *memory, uint64_t *ret_length) {
    uint64_t length = 0, end;

    for (uint32_t i = 0; i < memory->count; i++) {
        const struct mc_piece *piece = &memory->pieces[i];

        if (piece->length > 0 &&
            (piece->address == NULL || !checked_add((uint64_t)(uintptr_t)piece->address, piece->length, &end)))
            return false;
        if (!checked_add(length, piece->length, &length))
            return false;
    }
    *ret_length = length;
    return true;
}

static void take_memory(struct run *run, size_t i, size_t *first) {
    const struct operation *operation = run->operation;
    struct copy_memory *memory = &run->memories[i];

    *memory = (struct copy_memory){.count = 1, .ranges = operation->ranges};
    if (run->ones == NULL) {
        memory->pieces = operation->pieces + *first;
        memory->count = operation->piece_counts[i];
        *first += memory->count;
        return;
    }
    run->ones[i] = (struct mc_piece){
        .address = operation->values != NULL ? (void *)(uintptr_t)operation->values[i] : operation->buffers[i],
        .length = operation->lengths[i],
    };
    memory->pieces = &run->ones[i];
}

/* One whose memory is none begins as one without a key, and so fails by itself. */
static bool make_items(struct run *run) {
    const struct operation *operation = run->operation;
    const uint8_t *key;
    size_t first = 0;

    if (!make_room(run))
        return false;
    key = run->keys.bytes;
    for (size_t i = 0; i < operation->keys.count; i++) {
        struct client_item *item = &run->items[i];

        item->key = key;
        item->key_length = run->keys.lengths[i];
        key += item->key_length;
        item->length = UINT64_MAX;
        if (run->memories == NULL)
            continue;
        take_memory(run, i, &first);
        if (!memory_length(&run->memories[i], &item->length))
            item->key_length = 0;
        if (operation->ranges) /* whatever the length of the whole is */
            item->length = UINT64_MAX;
    }
    return true;
}

/* ---- Bytes ---- */

static size_t index_of(const struct run *run, const struct client_read *read) {
    return (size_t)(read->item - run->items);
}

/* Prepares a read: pinned at once, or with a place to be copied to, which for a view `copy` describes. False: its status
 * is final. */
static bool prepare_read(struct run *run, struct client_read *read, struct copy_target *ret_target,
                         struct mc_piece *copy) {
    size_t index = index_of(run, read);
    struct view **view;

    ret_target->read = read;
    if (run->operation->kind == MC_STORE_GET) {
        ret_target->memory = run->memories[index];
        return true;
    }
    view = &run->views[index];
    if (*view != NULL) /* the copy of a replica that turned out bad */
        ref_drop(&(*view)->object.ref);
    *view = NULL;
    read->status = view_pin(run->store->engine, read, run->store->verify, view);
    if (read->status != MC_ERR_NOT_SUPPORTED)
        return false;
    read->status = view_copy(run->store->engine, read->length, view);
    if (read->status != MC_OK)
        return false;
    *copy = (struct mc_piece){.address = (*view)->copy, .length = read->length};
    ret_target->memory = (struct copy_memory){.pieces = copy, .count = 1};
    return true;
}

static void read_all(struct run *run) {
    size_t count = 0, all = run->op.read_count;
    struct copy_target few[FEW], *targets = room_for(all, few, sizeof(few[0]));
    struct mc_piece few_copies[FEW], *copies = room_for(all, few_copies, sizeof(few_copies[0]));

    for (size_t i = 0; i < all; i++) {
        struct client_read *read = &run->op.reads[i];

        if (targets == NULL || copies == NULL)
            read->status = MC_ERR_NO_MEMORY;
        else if (prepare_read(run, read, &targets[count], &copies[count]))
            count++;
    }
    if (count > 0)
        copy_reads(run->store->engine->engine, targets, count, run->store->verify, run->op.deadline);
    if (targets != few)
        free(targets);
    if (copies != few_copies)
        free(copies);
}

uint64_t operation_patience(uint64_t bytes, uint64_t deadline) {
    uint64_t most = bytes < UINT64_MAX / WRITE_TIME_A_BYTE ? bytes * WRITE_TIME_A_BYTE : UINT64_MAX;
    uint64_t until = clock_after(clock_now(), clock_after(WRITE_TIME, most));

    return until < deadline ? until : deadline;
}

void operation_write(struct store *store, struct client_op *op, const struct copy_source *sources) {
    uint64_t bytes = 0;

    for (size_t i = 0; i < op->write_count; i++)
        if (!checked_add(bytes, op->writes[i].item->length, &bytes))
            bytes = UINT64_MAX;
    copy_writes(store->engine->engine, sources, op->write_count, operation_patience(bytes, op->deadline));
    for (size_t i = 0; i < op->write_count; i++)
        if (op->writes[i].status == MC_ERR_TIMEOUT && clock_now() < op->deadline)
            op->writes[i].status = MC_ERR_UNREACHABLE;
}

static void write_all(struct run *run) {
    size_t count = run->op.write_count;
    struct copy_source few[FEW], *sources = room_for(count, few, sizeof(few[0]));

    for (size_t i = 0; i < count; i++) {
        struct client_write *write = &run->op.writes[i];

        if (sources != NULL)
            sources[i] =
                (struct copy_source){.write = write, .memory = run->memories[(size_t)(write->item - run->items)]};
        else
            write->status = MC_ERR_NO_MEMORY;
    }
    if (sources != NULL)
        operation_write(run->store, &run->op, sources);
    if (sources != few)
        free(sources);
}

/* Reads the objects whose places are known and mapped: one look at the cache, and the copies. How many are left; these
 * are an operation's. */
static size_t read_known(struct run *run) {
    size_t count = run->operation->keys.count, left = count;
    struct client_hit few[FEW];
    struct client_side_hits hits = {.hits = count <= FEW ? few : malloc(count * sizeof(few[0]))};

    if (hits.hits == NULL)
        return left;
    for (size_t i = 0; i < count; i++)
        run->items[i].hash = key_hash(run->items[i].key, run->items[i].key_length);
    client_side_find(&run->store->client, run->items, count, &hits);
    for (size_t i = 0; i < count; i++) {
        struct client_item *item = &run->items[i];
        struct client_hit *hit = &hits.hits[i];

        if (hit->segment == NULL || item->key_length == 0)
            continue;
        item->status =
            copy_from_slot(item, hit->memory, &hit->place, hit->length, &run->memories[i], run->store->verify);
        item->known = item->status == MC_OK;
        item->found = hit->length;
        left -= item->known;
    }
    client_side_let_go(&hits);
    if (hits.hits != few)
        free(hits.hits);
    return left;
}

static void drive(struct run *run) {
    struct client_side *side = &run->store->client;
    enum client_need need;

    while ((need = client_side_run(side, &run->op)) != CLIENT_DONE) {
        if (need == CLIENT_READ)
            read_all(run);
        else if (need == CLIENT_WRITE)
            write_all(run);
        if (side->closing)
            break;
    }
}

/* ---- Results ---- */

static int32_t hand_over_view(struct run *run, size_t i, int32_t status) {
    struct view *view = run->views[i];

    if (view == NULL)
        return status != MC_OK ? status : MC_ERR_INTERNAL;
    if (status == MC_OK)
        status = object_publish(&view->object, &run->operation->views[i]);
    if (status == MC_OK)
        run->operation->data[i] = view->data;
    ref_drop(&view->object.ref);
    return status;
}

/* Of the value; or how much was read of it. */
static uint64_t length_of(const struct run *run, size_t i) {
    uint64_t length = run->items[i].found;

    if (run->operation->ranges)
        (void)memory_length(&run->memories[i], &length);
    return length;
}

/* Stores the result of item i where the kind has it; its status. */
static int32_t hand_over(struct run *run, size_t i) {
    const struct operation *operation = run->operation;
    const struct client_item *item = &run->items[i];
    bool refused = item->key_length == 0 && operation->keys.lengths[i] > 0;
    int32_t status = refused ? MC_ERR_INVALID_ARGUMENT : item->status;

    if (operation->kind == MC_STORE_VIEW)
        status = hand_over_view(run, i, status);
    switch (operation->kind) {
    case MC_STORE_EXISTS:
        operation->statuses[i] = status == MC_OK ? 1 : status == MC_ERR_NOT_FOUND ? 0 : status;
        return status == MC_ERR_NOT_FOUND ? MC_OK : status;
    case MC_STORE_PUT:
    case MC_STORE_REMOVE:
        operation->statuses[i] = status;
        return status;
    default:
        operation->found[i] = status == MC_OK ? (int64_t)length_of(run, i) : status;
        return status;
    }
}

static enum client_kind kind_of(uint32_t kind) {
    switch (kind) {
    case MC_STORE_PUT:
        return CLIENT_PUT;
    case MC_STORE_GET:
        return CLIENT_GET;
    case MC_STORE_VIEW:
        return CLIENT_VIEW;
    case MC_STORE_SIZE:
        return CLIENT_SIZE;
    case MC_STORE_EXISTS:
        return CLIENT_EXISTS;
    default:
        return CLIENT_REMOVE;
    }
}

struct client_put_options operation_put_options(const struct mc_put_options *put, uint64_t space_deadline) {
    return (struct client_put_options){
        .flags = ((put->flags & MC_PUT_UPSERT) != 0 ? PUBLISH_UPSERT : 0) |
                 ((put->flags & MC_PUT_SOFT_PIN) != 0 ? PUBLISH_SOFT_PIN : 0) |
                 ((put->flags & MC_PUT_HARD_PIN) != 0 ? PUBLISH_HARD_PIN : 0),
        .replicas = put->replicas > 0 ? put->replicas : 1,
        .space_deadline = space_deadline,
        .preferred = put->preferred,
        .preferred_count = put->preferred_count,
    };
}

static const char *why_no_space(struct store *store, const struct client_item *item) {
    struct client_segment *segment = NULL;
    uint64_t largest = 0;

    pthread_mutex_lock(&store->client.lock);
    while ((segment = client_segments(store->client.core, segment)) != NULL)
        if (segment->size > largest)
            largest = segment->size;
    pthread_mutex_unlock(&store->client.lock);
    if (largest == 0)
        return "the pool has no memory: no owner has joined it";
    if (item->length >= largest)
        return "the value is larger than any segment of the pool";
    return "no space came free in the pool in time";
}

/* The words for the first item that failed. */
static int32_t explain(const struct run *run, size_t index, int32_t status, uint32_t failed, struct mc_error *error) {
    const struct client_item *item = &run->items[index];

    if (status == MC_ERR_BUFFER_TOO_SMALL)
        return status_set(error, status, 0, "item %zu: the value has %" PRIu64 " bytes, the buffer %" PRIu64, index,
                          item->found, item->length);
    if (status == MC_ERR_NO_SPACE)
        return status_set(error, status, 0, "item %zu: %s", index, why_no_space(run->store, item));
    if (run->operation->keys.count == 1)
        return status_set(error, status, 0, "%s", status_text(status));
    return status_set(error, status, 0, "item %zu (and %u more): %s", index, failed - 1, status_text(status));
}

int32_t operation_run(struct store *store, const struct operation *operation, uint32_t *ret_failed,
                      struct mc_error *error) {
    struct run run = {.store = store, .operation = operation};
    const struct client_put_options put = operation_put_options(&operation->put, operation->space_deadline);
    int32_t first = MC_OK;
    size_t first_index = 0;

    *ret_failed = 0;
    if (!make_items(&run)) {
        free_room(&run);
        return status_set(error, MC_ERR_NO_MEMORY, 0, "no memory for %zu items", operation->keys.count);
    }
    if (operation->kind != MC_STORE_GET || read_known(&run) > 0) {
        client_side_begin(&store->client, &run.op, kind_of(operation->kind), run.items, operation->keys.count, &put,
                          operation->deadline);
        drive(&run);
        client_side_end(&store->client, &run.op);
    }
    for (size_t i = 0; i < operation->keys.count; i++) {
        int32_t status = hand_over(&run, i);

        if (status != MC_OK && (*ret_failed)++ == 0) {
            first = status;
            first_index = i;
        }
    }
    if (first != MC_OK)
        explain(&run, first_index, first, *ret_failed, error);
    free_room(&run);
    return first;
}

/* A page of keys of all tenants, as they are stored. */
static int32_t list_stored(struct store *store, uint64_t *cursor, uint32_t limit, uint64_t deadline,
                           struct items *ret_keys, struct mc_error *error) {
    struct client_op op = {0};

    client_side_begin(&store->client, &op, CLIENT_LIST, NULL, 0, NULL, deadline);
    op.cursor = *cursor;
    op.limit = limit;
    (void)client_side_run(&store->client, &op);
    client_side_end(&store->client, &op);
    if (op.status != MC_OK) {
        items_clear(&op.listed);
        return status_set(error, op.status, 0, "%s", status_text(op.status));
    }
    *cursor = op.cursor;
    *ret_keys = op.listed;
    return MC_OK;
}

int32_t operation_list(struct store *store, uint64_t *cursor, uint32_t limit, uint64_t deadline, struct items *ret_keys,
                       struct mc_error *error) {
    struct items page = {0}, own;
    struct message_bytes list, key;
    int32_t status = list_stored(store, cursor, limit, deadline, &page, error);

    items_init(&own);
    list = items_bytes(&page);
    while (status == MC_OK && items_next(&list, &key) == 1)
        if (tenant_strip(&store->tenant, &key) && !items_append(&own, key.data, key.length))
            status = status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    items_clear(&page);
    if (status == MC_OK)
        *ret_keys = own;
    else
        items_clear(&own);
    return status;
}

/* Removes the keys of a list, which are as they are stored. */
static int64_t remove_keys(struct store *store, const struct items *keys, uint64_t deadline, struct mc_error *error) {
    struct client_item *items = calloc(keys->count, sizeof(*items));
    struct message_bytes list = items_bytes(keys), key;
    struct client_op op = {0};
    int64_t removed = 0;

    if (items == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    for (size_t i = 0; items_next(&list, &key) == 1; i++)
        items[i] = (struct client_item){.key = key.data, .key_length = key.length};
    client_side_begin(&store->client, &op, CLIENT_REMOVE, items, keys->count, NULL, deadline);
    (void)client_side_run(&store->client, &op);
    client_side_end(&store->client, &op);
    for (size_t i = 0; i < keys->count && removed >= 0; i++) {
        if (items[i].status == MC_OK)
            removed++;
        else if (items[i].status != MC_ERR_NOT_FOUND) /* which another has removed meanwhile */
            removed = status_set(error, items[i].status, 0, "%s", status_text(items[i].status));
    }
    free(items);
    return removed;
}

/* Those keys of a page that are the tenant's, and that the pattern (unless it is NULL) is found in. */
static int32_t select_keys(const struct store *store, const struct items *page, const struct pattern *pattern,
                           struct items *ret_found, struct mc_error *error) {
    struct message_bytes list = items_bytes(page), key, own;

    while (items_next(&list, &key) == 1) {
        int32_t matches = 1;

        own = key;
        if (!tenant_strip(&store->tenant, &own))
            continue;
        if (pattern != NULL)
            matches = pattern_matches(pattern, own.data, own.length, error);
        if (matches < 0)
            return matches;
        if (matches == 1 && !items_append(ret_found, key.data, key.length))
            return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    }
    return MC_OK;
}

static int64_t remove_page(struct store *store, const struct items *page, const struct pattern *pattern,
                           uint64_t deadline, struct mc_error *error) {
    struct items found;
    int64_t removed;

    items_init(&found);
    removed = select_keys(store, page, pattern, &found, error);
    if (removed == MC_OK && found.count > 0)
        removed = remove_keys(store, &found, deadline, error);
    items_clear(&found);
    return removed;
}

int64_t operation_remove_all(struct store *store, const struct pattern *pattern, uint64_t deadline,
                             struct mc_error *error) {
    uint64_t cursor = 0;
    int64_t removed = 0;

    do {
        struct items page = {0};
        int64_t count = list_stored(store, &cursor, PAGE_KEYS, deadline, &page, error);

        if (count != MC_OK)
            return count;
        count = remove_page(store, &page, pattern, deadline, error);
        items_clear(&page);
        if (count < 0)
            return count;
        removed += count;
    } while (cursor != 0);
    return removed;
}

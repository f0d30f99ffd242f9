/* store/put_session.c - puts in steps.
 *
 * Owns: one struct put_session for each put that was begun and not ended; its item holds the places that CLIENT_RESERVE
 * gave it, until CLIENT_COMMIT takes them over or they are given back. What was written is noted (put_parts.h), so the
 * value's checksum is that of its parts joined, and what is missing is known.
 *
 * Threads: `lock` is the session's own; the list of a store's sessions is under the store's. Bytes are moved outside of
 * both: `writing` keeps the places meanwhile.
 */
#include "store/put_session.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/crc32c.h"
#include "base/status.h"
#include "store/copy.h"
#include "store/operation.h"
#include "store/put_parts.h"

struct put_session {
    struct object object;
    struct list node; /* in store->puts */
    struct store *store;
    uint64_t id;
    uint8_t *key;
    struct client_put_options options;
    pthread_mutex_t lock;
    struct client_item item;
    struct put_parts parts;
    uint32_t writing; /* calls that move bytes of it */
    bool ended;
};

static struct put_session *session_of(struct object *object) {
    return list_entry(object, struct put_session, object);
}

static void destroy(struct ref *ref) {
    struct put_session *session = list_entry(ref, struct put_session, object.ref);

    pthread_mutex_destroy(&session->lock);
    put_parts_clear(&session->parts);
    free(session->key);
    free(session);
}

/* Takes over the item's places; NULL if memory is short. */
static struct put_session *session_new(struct store *store, struct client_item *item,
                                       const struct client_put_options *options) {
    struct put_session *session = calloc(1, sizeof(*session));

    if (session == NULL || (session->key = malloc(item->key_length)) == NULL) {
        free(session);
        return NULL;
    }
    object_init(&session->object, OBJECT_PUT, destroy);
    pthread_mutex_init(&session->lock, NULL);
    session->store = store;
    session->options = (struct client_put_options){.flags = options->flags, .replicas = options->replicas};
    client_item_move(&session->item, item);
    memcpy(session->key, item->key, item->key_length);
    session->item.key = session->key;
    for (uint32_t i = 0; i < session->item.place_count; i++)
        session->item.places[i].status = MC_ERR_PENDING;
    pthread_mutex_lock(&store->lock);
    list_append(&store->puts, &session->node);
    pthread_mutex_unlock(&store->lock);
    return session;
}

/* Drops the caller's reference; nobody finds it any more. */
static void session_forget(struct put_session *session) {
    pthread_mutex_lock(&session->store->lock);
    list_remove(&session->node);
    pthread_mutex_unlock(&session->store->lock);
    ref_drop(&session->object.ref);
}

static void session_give_back(struct put_session *session) {
    client_side_give_back(&session->store->client, &session->item);
}

/* A session of this store with a reference, or NULL. */
static struct put_session *session_acquire(struct store *store, uint64_t id, int32_t *ret_status) {
    struct object *object;

    *ret_status = object_acquire(id, OBJECT_PUT, &object);
    if (*ret_status != MC_OK)
        return NULL;
    if (session_of(object)->store == store)
        return session_of(object);
    ref_drop(&object->ref);
    *ret_status = MC_ERR_INVALID_HANDLE;
    return NULL;
}

/* ---- The results of a call ---- */

struct outcome {
    int32_t first; /* failure, or MC_OK */
    size_t index;
    size_t failed;
    const char *words; /* of the first, or NULL */
};

static void outcome_add(struct outcome *outcome, size_t index, int32_t status, const char *words) {
    if (status >= 0)
        return;
    if (outcome->failed++ == 0) {
        outcome->first = status;
        outcome->index = index;
        outcome->words = words;
    }
}

static int32_t outcome_tell(const struct outcome *outcome, struct mc_error *error) {
    if (outcome->first == MC_OK)
        return MC_OK;
    return status_set(error, outcome->first, 0, "item %zu (of %zu that failed): %s", outcome->index, outcome->failed,
                      outcome->words != NULL ? outcome->words : status_text(outcome->first));
}

/* ---- Begin ---- */

/* Items of keys that are there have their result already. */
static int32_t find_known(struct store *store, const struct mc_keys *keys, uint64_t deadline, int32_t *found,
                          struct mc_error *error) {
    struct operation operation = {.kind = MC_STORE_EXISTS, .keys = *keys, .deadline = deadline, .statuses = found};
    uint32_t failed;
    int32_t status = operation_run(store, &operation, &failed, error);

    return status == MC_ERR_INVALID_KEY ? MC_OK : status; /* an item's own failure comes again */
}

static int32_t session_publish(struct store *store, struct client_item *item, const struct client_put_options *options,
                               uint64_t *ret_put) {
    struct put_session *session = session_new(store, item, options);
    int32_t status;

    if (session == NULL) {
        client_side_give_back(&store->client, item);
        return MC_ERR_NO_MEMORY;
    }
    status = object_publish(&session->object, &session->id);
    if (status == MC_OK) {
        *ret_put = session->id;
        ref_drop(&session->object.ref); /* the table has its own */
        return MC_OK;
    }
    session_give_back(session);
    session_forget(session);
    return status;
}

int32_t put_sessions_begin(struct store *store, const struct mc_keys *keys, const uint64_t *lengths,
                           const struct mc_put_options *put, uint64_t deadline, uint64_t space_deadline,
                           uint64_t *ret_puts, int32_t *ret_statuses, struct mc_error *error) {
    const struct client_put_options options = operation_put_options(put, space_deadline);
    struct client_item *items = calloc(keys->count, sizeof(*items));
    struct mc_keys stored = {0};
    void *memory = NULL;
    const uint8_t *key;
    struct outcome outcome = {0};
    struct client_op op = {0};
    bool fresh = (options.flags & PUBLISH_UPSERT) == 0;
    int32_t status = items != NULL ? tenant_wrap(&store->tenant, keys, &stored, &memory) : MC_ERR_NO_MEMORY;

    if (status != MC_OK)
        status_set(error, status, 0, "out of memory");
    if (status == MC_OK && fresh)
        status = find_known(store, keys, deadline, ret_statuses, error);
    if (status != MC_OK) {
        free(memory);
        free(items);
        return status;
    }
    key = stored.bytes;
    for (size_t i = 0; i < keys->count; i++) {
        items[i] = (struct client_item){.key = key, .key_length = stored.lengths[i], .length = lengths[i]};
        key += stored.lengths[i];
        items[i].known = fresh && ret_statuses[i] == 1;
        items[i].status = MC_ERR_ALREADY_EXISTS; /* if known */
    }
    client_side_begin(&store->client, &op, CLIENT_RESERVE, items, keys->count, &options, deadline);
    (void)client_side_run(&store->client, &op);
    client_side_end(&store->client, &op);
    for (size_t i = 0; i < keys->count; i++) {
        ret_statuses[i] = items[i].status;
        if (items[i].status == MC_OK)
            ret_statuses[i] = session_publish(store, &items[i], &options, &ret_puts[i]);
        outcome_add(&outcome, i, ret_statuses[i], NULL);
    }
    free(memory);
    free(items);
    return outcome_tell(&outcome, error);
}

/* ---- Write ---- */

/* One put in a call that writes. */
struct writing {
    struct put_session *session; /* a reference; NULL: the put can't be written */
    const struct mc_piece *pieces;
    uint32_t count;
    size_t first_write; /* of its places */
    size_t write_count;
    int64_t result;
};

/* Does the piece lie in memory, and in the value? */
static bool piece_fits(const struct mc_piece *piece, uint64_t length) {
    uint64_t end;

    return checked_within(piece->offset, piece->length, 0, length) &&
           (piece->length == 0 ||
            (piece->address != NULL && checked_add((uint64_t)(uintptr_t)piece->address, piece->length, &end)));
}

static int32_t pieces_check(const struct writing *writing) {
    for (uint32_t i = 0; i < writing->count; i++)
        if (!piece_fits(&writing->pieces[i], writing->session->item.length))
            return MC_ERR_INVALID_ARGUMENT;
    return MC_OK;
}

/* Notes all pieces as parts, or none. The session is locked. */
static int32_t parts_note(struct put_session *session, const struct writing *writing, const uint32_t *sums) {
    for (uint32_t i = 0; i < writing->count; i++) {
        const struct mc_piece *piece = &writing->pieces[i];
        int32_t status = put_parts_add(&session->parts, piece->offset, piece->length, sums[i]);

        if (status == MC_OK)
            continue;
        while (i-- > 0)
            put_parts_remove(&session->parts, writing->pieces[i].offset, writing->pieces[i].length);
        return status;
    }
    return MC_OK;
}

/* Begins to write; `sums` has room for the pieces' sums. */
static int32_t writing_begin(struct writing *writing, uint32_t *sums) {
    struct put_session *session = writing->session;
    int32_t status = pieces_check(writing);

    if (status != MC_OK)
        return status;
    for (uint32_t i = 0; i < writing->count; i++)
        sums[i] = crc32c(0, writing->pieces[i].address, writing->pieces[i].length);
    pthread_mutex_lock(&session->lock);
    status = session->ended ? MC_ERR_INVALID_HANDLE : parts_note(session, writing, sums);
    session->writing += status == MC_OK;
    pthread_mutex_unlock(&session->lock);
    return status;
}

/* A write for each place that is still good. */
static void writing_add(struct writing *writing, struct client_write *writes, struct copy_source *sources,
                        size_t *count) {
    struct put_session *session = writing->session;
    struct client_item *item = &session->item;

    writing->first_write = *count;
    pthread_mutex_lock(&session->lock);
    for (uint32_t i = 0; i < item->place_count; i++) {
        const struct client_place *place = &item->places[i];

        if (place->status != MC_ERR_PENDING)
            continue;
        writes[*count] = (struct client_write){
            .segment = place->segment, .place = place->place, .item = item, .status = MC_ERR_PENDING};
        sources[*count] = (struct copy_source){
            .write = &writes[*count], .memory = {.pieces = writing->pieces, .count = writing->count, .ranges = true}};
        (*count)++;
    }
    pthread_mutex_unlock(&session->lock);
    writing->write_count = *count - writing->first_write;
}

/* Notes which places failed; when all have, the value can't be finished. */
static void writing_end(struct writing *writing, const struct client_write *writes) {
    struct put_session *session = writing->session;
    struct client_item *item = &session->item;
    int32_t failure = MC_ERR_GONE;
    bool good = false;

    pthread_mutex_lock(&session->lock);
    for (size_t i = writing->first_write; i < writing->first_write + writing->write_count; i++)
        for (uint32_t k = 0; k < item->place_count && writes[i].status != MC_OK; k++)
            if (item->places[k].place.generation == writes[i].place.generation &&
                item->places[k].segment == writes[i].segment)
                failure = item->places[k].status = writes[i].status;
    for (uint32_t k = 0; k < item->place_count; k++)
        good = good || item->places[k].status == MC_ERR_PENDING;
    session->writing--;
    pthread_mutex_unlock(&session->lock);
    writing->result = 0;
    for (uint32_t i = 0; i < writing->count; i++)
        writing->result += (int64_t)writing->pieces[i].length;
    if (!good)
        writing->result = failure;
}

/* Moves the bytes of all that began well. */
static void write_begun(struct store *store, const struct put_step *step, struct writing *writings,
                        struct client_write *writes, struct copy_source *sources) {
    size_t count = 0;
    uint64_t bytes = 0;

    for (size_t i = 0; i < step->count; i++)
        if (writings[i].result == MC_OK) {
            bytes += writings[i].session->item.length; /* only a measure of patience */
            writing_add(&writings[i], writes, sources, &count);
        }
    copy_parts(store->engine->engine, sources, count, operation_patience(bytes, step->deadline));
    for (size_t i = 0; i < step->count; i++)
        if (writings[i].result == MC_OK)
            writing_end(&writings[i], writes);
}

/* What a call that writes needs of memory. */
struct write_room {
    struct writing *writings;
    struct client_write *writes;
    struct copy_source *sources;
    uint32_t *sums;
};

static void room_free(struct write_room *room) {
    free(room->writings);
    free(room->writes);
    free(room->sources);
    free(room->sums);
}

static bool room_make(struct write_room *room, const struct put_step *step) {
    size_t most = 1;

    for (size_t i = 0; i < step->count; i++)
        most = step->piece_counts[i] > most ? step->piece_counts[i] : most;
    room->writings = calloc(step->count + 1, sizeof(*room->writings));
    room->writes = calloc(step->count + 1, MC_REPLICAS_MAX * sizeof(*room->writes));
    room->sources = calloc(step->count + 1, MC_REPLICAS_MAX * sizeof(*room->sources));
    room->sums = calloc(most, sizeof(*room->sums));
    return room->writings != NULL && room->writes != NULL && room->sources != NULL && room->sums != NULL;
}

int32_t put_sessions_write(struct store *store, const struct put_step *step, int64_t *ret_lengths,
                           struct mc_error *error) {
    struct outcome outcome = {0};
    struct write_room room = {0};
    size_t first = 0;

    if (!room_make(&room, step)) {
        room_free(&room);
        return status_set(error, MC_ERR_NO_MEMORY, 0, "no memory for %zu puts", step->count);
    }
    for (size_t i = 0; i < step->count; i++) {
        struct writing *writing = &room.writings[i];
        int32_t begun;

        writing->pieces = step->pieces + first;
        writing->count = step->piece_counts[i];
        first += step->piece_counts[i];
        writing->session = session_acquire(store, step->puts[i], &begun);
        writing->result = writing->session == NULL ? begun : writing_begin(writing, room.sums);
    }
    write_begun(store, step, room.writings, room.writes, room.sources);
    for (size_t i = 0; i < step->count; i++) {
        ret_lengths[i] = room.writings[i].result;
        outcome_add(&outcome, i, ret_lengths[i] < 0 ? (int32_t)ret_lengths[i] : MC_OK, NULL);
        if (room.writings[i].session != NULL)
            ref_drop(&room.writings[i].session->object.ref);
    }
    room_free(&room);
    return outcome_tell(&outcome, error);
}

/* ---- End ---- */

/* Takes a put away from its id; the caller has a reference then. `whole`: only if all bytes are there. */
static int32_t session_take(struct store *store, uint64_t id, bool whole, struct put_session **ret_session,
                            uint32_t *ret_sum) {
    int32_t status;
    struct put_session *session = session_acquire(store, id, &status);
    struct object *withdrawn;

    if (session == NULL)
        return status;
    pthread_mutex_lock(&session->lock);
    if (session->ended)
        status = MC_ERR_INVALID_HANDLE;
    else if (session->writing > 0)
        status = MC_ERR_BUSY;
    else if (whole && !put_parts_join(&session->parts, session->item.length, ret_sum))
        status = MC_ERR_INVALID_ARGUMENT;
    else
        status = object_withdraw(id, OBJECT_PUT, &withdrawn);
    session->ended = session->ended || status == MC_OK;
    pthread_mutex_unlock(&session->lock);
    ref_drop(&session->object.ref); /* the table's is the caller's now */
    if (status == MC_OK)
        *ret_session = session;
    return status;
}

/* The puts that are ended together. */
struct ending {
    struct put_session **sessions; /* NULL: this one isn't */
    uint32_t *sums;
    struct client_item *items; /* of those that are, behind each other */
    struct copy_source *sources;
    size_t *indices; /* of them in the call */
    size_t count;
};

static bool ending_room(struct ending *ending, size_t count) {
    ending->sessions = calloc(count, sizeof(*ending->sessions));
    ending->sums = calloc(count, sizeof(*ending->sums));
    ending->items = calloc(count, sizeof(*ending->items));
    ending->sources = calloc(count * MC_REPLICAS_MAX, sizeof(*ending->sources));
    ending->indices = calloc(count, sizeof(*ending->indices));
    return ending->sessions != NULL && ending->sums != NULL && ending->items != NULL && ending->sources != NULL &&
           ending->indices != NULL;
}

static void ending_free(struct ending *ending) {
    free(ending->sessions);
    free(ending->sums);
    free(ending->items);
    free(ending->sources);
    free(ending->indices);
}

static void commit(struct store *store, struct ending *ending, const struct client_put_options *options,
                   uint64_t deadline) {
    struct client_op op = {0};

    client_side_begin(&store->client, &op, CLIENT_COMMIT, ending->items, ending->count, options, deadline);
    while (client_side_run(&store->client, &op) == CLIENT_WRITE && !store->client.closing) {
        for (size_t i = 0; i < op.write_count; i++)
            ending->sources[i] =
                (struct copy_source){.write = &op.writes[i],
                                     .sum = ending->sums[ending->indices[(size_t)(op.writes[i].item - ending->items)]]};
        operation_write(store, &op, ending->sources);
    }
    client_side_end(&store->client, &op);
}

/* Commits those of the sessions that have these options, as one operation. */
static void commit_alike(struct store *store, struct ending *ending, size_t count, uint32_t flags, uint64_t deadline,
                         int32_t *ret_statuses) {
    struct client_put_options options = {.flags = flags, .replicas = MC_REPLICAS_MAX};

    ending->count = 0;
    for (size_t i = 0; i < count; i++) {
        struct put_session *session = ending->sessions[i];

        if (session == NULL || session->options.flags != flags)
            continue;
        client_item_move(&ending->items[ending->count], &session->item);
        ending->indices[ending->count++] = i;
    }
    commit(store, ending, &options, deadline);
    for (size_t i = 0; i < ending->count; i++) {
        size_t index = ending->indices[i];

        ret_statuses[index] = ending->items[i].status;
        session_forget(ending->sessions[index]);
        ending->sessions[index] = NULL;
    }
}

int32_t put_sessions_end(struct store *store, const struct put_step *step, int32_t *ret_statuses,
                         struct mc_error *error) {
    struct ending ending = {0};
    struct outcome outcome = {0};

    if (!ending_room(&ending, step->count)) {
        ending_free(&ending);
        return status_set(error, MC_ERR_NO_MEMORY, 0, "no memory for %zu puts", step->count);
    }
    for (size_t i = 0; i < step->count; i++)
        ret_statuses[i] = session_take(store, step->puts[i], true, &ending.sessions[i], &ending.sums[i]);
    for (size_t i = 0; i < step->count; i++)
        if (ending.sessions[i] != NULL)
            commit_alike(store, &ending, step->count, ending.sessions[i]->options.flags, step->deadline, ret_statuses);
    for (size_t i = 0; i < step->count; i++)
        outcome_add(&outcome, i, ret_statuses[i],
                    ret_statuses[i] == MC_ERR_INVALID_ARGUMENT ? "not all bytes of the value were written" : NULL);
    ending_free(&ending);
    return outcome_tell(&outcome, error);
}

int32_t put_sessions_revoke(struct store *store, const struct put_step *step, int32_t *ret_statuses,
                            struct mc_error *error) {
    struct outcome outcome = {0};

    for (size_t i = 0; i < step->count; i++) {
        struct put_session *session;
        uint32_t sum;

        ret_statuses[i] = session_take(store, step->puts[i], false, &session, &sum);
        outcome_add(&outcome, i, ret_statuses[i], NULL);
        if (ret_statuses[i] != MC_OK)
            continue;
        session_give_back(session);
        session_forget(session);
    }
    return outcome_tell(&outcome, error);
}

static struct put_session *any_session(struct store *store) {
    struct put_session *session = NULL;

    pthread_mutex_lock(&store->lock);
    if (!list_empty(&store->puts))
        session = list_entry(store->puts.next, struct put_session, node);
    pthread_mutex_unlock(&store->lock);
    return session;
}

void put_sessions_close(struct store *store) {
    struct put_session *session;
    struct object *withdrawn;

    while ((session = any_session(store)) != NULL) {
        (void)object_withdraw(session->id, OBJECT_PUT, &withdrawn);
        session_give_back(session);
        session_forget(session);
    }
}

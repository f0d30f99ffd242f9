/* compat/transfer_engine/segments.c - peers under the numbers and names that the reference's interface has.
 *
 * Owns the segments of an engine. A segment stands for one incarnation of a peer, for ever, as in the library. Its name
 * leads to it until another incarnation is found there; then the name leads to a new segment, with a new number, and
 * whoever holds the old one gets errors. Numbers are never used again.
 *
 * Threads: any. Of the calls that open one name one is at it at a time: it has set `asking`. The others wait until that
 * is cleared, so that they get the same number. Such a segment isn't closed meanwhile.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compat/words.h"

#include "compat/transfer_engine/inside.h"

#define SIGN_OF_LIFE UINT64_C(1000000000)

struct segment {
    int32_t number;
    bool asking;
    bool current; /* the name leads to it */
    uint32_t users;
    uint64_t peer;                /* 0: not open yet */
    char address[MC_ADDRESS_MAX]; /* where the peer was found; "" if it isn't known */
    char name[];
};

/* ---- The list; with the lock held ---- */

static struct segment *at_number(const struct engine *engine, int32_t number) {
    size_t low = 0, high = engine->segment_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (engine->segments[middle]->number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < engine->segment_count && engine->segments[low]->number == number ? engine->segments[low] : NULL;
}

static struct segment *at_name(const struct engine *engine, const char *name) {
    for (size_t i = engine->segment_count; i-- > 0;)
        if (engine->segments[i]->current && strcmp(engine->segments[i]->name, name) == 0)
            return engine->segments[i];
    return NULL;
}

/* Adds a segment that is being opened; NULL if memory or numbers are short. */
static struct segment *append(struct engine *engine, const char *name) {
    size_t length = strlen(name);
    struct segment *segment;

    if (engine->segment_count == engine->segment_room) {
        size_t room = engine->segment_room == 0 ? 8 : engine->segment_room * 2;
        struct segment **grown = realloc(engine->segments, room * sizeof(*grown));

        if (grown == NULL)
            return NULL;
        engine->segments = grown;
        engine->segment_room = room;
    }
    if (engine->last_segment == INT32_MAX)
        return NULL;
    segment = calloc(1, sizeof(*segment) + length + 1);
    if (segment == NULL)
        return NULL;
    memcpy(segment->name, name, length);
    segment->number = ++engine->last_segment;
    segment->asking = true;
    segment->current = true;
    engine->segments[engine->segment_count++] = segment;
    return segment;
}

static void take_out(struct engine *engine, struct segment *segment) {
    size_t index = 0;

    while (engine->segments[index] != segment)
        index++;
    engine->segment_count--;
    memmove(&engine->segments[index], &engine->segments[index + 1],
            (engine->segment_count - index) * sizeof(engine->segments[0]));
    free(segment);
}

static void asked(struct engine *engine, struct segment *segment) {
    segment->asking = false;
    pthread_cond_broadcast(&engine->asked);
}

/* ---- Opening; these wait, without the lock ---- */

/* The peer's address, from what the library tells of it: {"peer":"host:port",…}. */
static void find_address(uint64_t peer, char address[MC_ADDRESS_MAX]) {
    static const char key[] = "\"peer\":\"";
    char text[MC_ADDRESS_MAX + sizeof(key)] = "";
    const char *begin;

    address[0] = '\0';
    if (mc_peer_explain(peer, text, sizeof(text)) < 0)
        return;
    begin = strstr(text, key);
    if (begin == NULL)
        return;
    begin += sizeof(key) - 1;
    memcpy(address, begin, strcspn(begin, "\""));
    address[strcspn(begin, "\"")] = '\0';
}

/* Does a segment still stand for what its name leads to? If not, *ret_peer is the new peer, found at `address`, unless
 * a status says that there is none. */
static int32_t look_again(struct engine *engine, const struct segment *segment, bool fresh, uint64_t *ret_peer,
                          char address[MC_ADDRESS_MAX], struct mc_error *error) {
    int32_t alive = mc_peer_probe(segment->peer, SIGN_OF_LIFE, NULL);
    uint64_t peer;
    int32_t status;

    *ret_peer = 0;
    /* One that is there but doesn't answer now is no other one. */
    if (!fresh && (alive == MC_OK || alive == MC_ERR_TIMEOUT))
        return MC_OK;
    status = mc_peer_open(engine->engine, segment->name, &peer, error);
    if (status != MC_OK)
        return status;
    find_address(peer, address);
    if (strcmp(address, segment->address) == 0 && alive != MC_ERR_STALE_PEER)
        alive = mc_peer_probe(segment->peer, SIGN_OF_LIFE, NULL);
    else
        alive = MC_ERR_STALE_PEER;
    if (alive == MC_OK)
        (void)mc_peer_close(peer);
    else
        *ret_peer = peer;
    return MC_OK;
}

/* A name that isn't open. Takes the lock back, and gives it up while it waits. */
static int32_t open_first(struct engine *engine, const char *name, int32_t *ret_number, struct mc_error *error) {
    struct segment *segment = append(engine, name);
    uint64_t peer = 0;
    int32_t status;

    if (segment == NULL)
        return MC_ERR_NO_MEMORY;
    pthread_mutex_unlock(&engine->lock);
    status = mc_peer_open(engine->engine, name, &peer, error);
    if (status == MC_OK)
        find_address(peer, segment->address);
    pthread_mutex_lock(&engine->lock);
    asked(engine, segment);
    if (status != MC_OK) {
        take_out(engine, segment);
        return status;
    }
    segment->peer = peer;
    segment->users = 1;
    *ret_number = segment->number;
    return MC_OK;
}

/* One that is open, of which nobody else asks now. The lock as above. */
static int32_t open_again(struct engine *engine, struct segment *segment, bool fresh, int32_t *ret_number,
                          struct mc_error *error) {
    struct segment *replacement = segment;
    char address[MC_ADDRESS_MAX];
    uint64_t peer;
    int32_t status;

    segment->asking = true;
    pthread_mutex_unlock(&engine->lock);
    status = look_again(engine, segment, fresh, &peer, address, error);
    pthread_mutex_lock(&engine->lock);
    if (status == MC_OK && peer != 0) {
        replacement = append(engine, segment->name);
        if (replacement == NULL) {
            pthread_mutex_unlock(&engine->lock);
            (void)mc_peer_close(peer);
            pthread_mutex_lock(&engine->lock);
            status = MC_ERR_NO_MEMORY;
        } else {
            segment->current = false;
            replacement->asking = false;
            replacement->peer = peer;
            memcpy(replacement->address, address, sizeof(address));
        }
    }
    if (status == MC_OK) {
        replacement->users++;
        *ret_number = replacement->number;
    }
    asked(engine, segment);
    return status;
}

static int32_t open_segment(struct engine *engine, const char *name, bool fresh, int32_t *ret_number,
                            struct mc_error *error) {
    struct segment *segment;
    int32_t status;

    pthread_mutex_lock(&engine->lock);
    while ((segment = at_name(engine, name)) != NULL && segment->asking)
        pthread_cond_wait(&engine->asked, &engine->lock);
    if (segment == NULL)
        status = open_first(engine, name, ret_number, error);
    else
        status = open_again(engine, segment, fresh, ret_number, error);
    pthread_mutex_unlock(&engine->lock);
    return status;
}

static segment_handle_t open_named(transfer_engine_t handle, const char *name, bool fresh, const char *what) {
    struct engine *engine = engine_enter(handle, what);
    struct mc_error error = MC_ERROR_INIT;
    int32_t number = 0;
    int32_t status;

    if (engine == NULL)
        return result_of(MC_ERR_INVALID_HANDLE);
    if (name == NULL)
        status = MC_ERR_INVALID_ARGUMENT;
    else
        status = open_segment(engine, name, fresh, &number, &error);
    engine_leave(engine);
    return status == MC_OK ? number : result_say(what, status, &error);
}

segment_handle_t openSegment(transfer_engine_t handle, const char *name) {
    return open_named(handle, name, false, __func__);
}

segment_handle_t openSegmentNoCache(transfer_engine_t handle, const char *name) {
    return open_named(handle, name, true, __func__);
}

/* ---- Closing and using ---- */

static int32_t no_segment(int32_t number, struct mc_error *error) {
    return result_words(error, MC_ERR_INVALID_HANDLE, "no segment %" PRId32 ": it was closed, or never opened", number);
}

/* A status; *ret_peer is to be closed, if it isn't 0. */
static int32_t close_segment(struct engine *engine, int32_t number, uint64_t *ret_peer, struct mc_error *error) {
    struct segment *segment;
    int32_t status = MC_OK;

    *ret_peer = 0;
    pthread_mutex_lock(&engine->lock);
    while ((segment = at_number(engine, number)) != NULL && segment->asking)
        pthread_cond_wait(&engine->asked, &engine->lock);
    if (segment == NULL) {
        status = no_segment(number, error);
    } else if (--segment->users == 0) {
        *ret_peer = segment->peer;
        take_out(engine, segment);
    }
    pthread_mutex_unlock(&engine->lock);
    return status;
}

int closeSegment(transfer_engine_t handle, segment_handle_t number) {
    struct engine *engine = engine_enter(handle, __func__);
    struct mc_error error = MC_ERROR_INIT;
    uint64_t peer = 0;
    int32_t status = MC_OK;

    if (engine == NULL)
        return result_of(MC_ERR_INVALID_HANDLE);
    if (number != LOCAL_SEGMENT)
        status = close_segment(engine, number, &peer, &error);
    if (peer != 0)
        (void)mc_peer_close(peer);
    engine_leave(engine);
    return status == MC_OK ? 0 : result_say(__func__, status, &error);
}

int warmupEfaSegment(transfer_engine_t handle, const char *name) {
    segment_handle_t number = open_named(handle, name, false, __func__);

    return number < 0 ? number : closeSegment(handle, number);
}

/* The engine as its own peer, which is opened when it is first used. */
static int32_t self_peer(struct engine *engine, uint64_t *ret_peer) {
    char address[MC_ADDRESS_MAX] = "";
    uint64_t peer = 0, surplus = 0;
    int32_t status = MC_OK;

    pthread_mutex_lock(&engine->lock);
    *ret_peer = engine->self;
    pthread_mutex_unlock(&engine->lock);
    if (*ret_peer != 0)
        return MC_OK;
    if (mc_engine_address(engine->engine, address, sizeof(address)) < 0)
        return MC_ERR_CLOSED;
    status = mc_peer_open(engine->engine, address, &peer, NULL);
    if (status != MC_OK)
        return status;
    pthread_mutex_lock(&engine->lock);
    if (engine->self == 0)
        engine->self = peer;
    else
        surplus = peer;
    *ret_peer = engine->self;
    pthread_mutex_unlock(&engine->lock);
    if (surplus != 0)
        (void)mc_peer_close(surplus);
    return MC_OK;
}

int32_t segment_peer(struct engine *engine, int32_t number, uint64_t *ret_peer, struct mc_error *error) {
    const struct segment *segment;

    if (number == LOCAL_SEGMENT)
        return self_peer(engine, ret_peer);
    pthread_mutex_lock(&engine->lock);
    segment = at_number(engine, number);
    *ret_peer = segment != NULL ? segment->peer : 0;
    pthread_mutex_unlock(&engine->lock);
    return *ret_peer != 0 ? MC_OK : no_segment(number, error);
}

void segments_each(struct engine *engine, void (*each)(void *context, int32_t number, const char *name, uint64_t peer),
                   void *context) {
    pthread_mutex_lock(&engine->lock);
    for (size_t i = 0; i < engine->segment_count; i++)
        if (engine->segments[i]->peer != 0)
            each(context, engine->segments[i]->number, engine->segments[i]->name, engine->segments[i]->peer);
    pthread_mutex_unlock(&engine->lock);
}

void segments_free(struct engine *engine) {
    for (size_t i = 0; i < engine->segment_count; i++) {
        (void)mc_peer_close(engine->segments[i]->peer);
        free(engine->segments[i]);
    }
    if (engine->self != 0)
        (void)mc_peer_close(engine->self);
    engine->self = 0;
    free(engine->segments);
    engine->segments = NULL;
    engine->segment_count = 0;
}

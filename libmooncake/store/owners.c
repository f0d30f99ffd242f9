/* store/owners.c - the segments of a store.
 *
 * Owns: the mounts, in `mounts` under `lock`, which is taken before that of an owner and never held over a wait. A mount
 * goes by its chore alone: so nothing else of its owner runs on the chores' thread meanwhile.
 */
#include "store/owners.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "os/thread.h"

#define FAREWELL_TIME CLOCK_SECOND /* for telling the master that a segment goes */

struct mount {
    struct list node;
    struct owners *owners;
    struct owner_service *service; /* a reference */
    uint64_t serial;
    struct chore end;
};

/* ---- Finding ---- */

/* With the lock held. */
static struct mount *find(struct owners *owners, const struct message_id *segment) {
    static const struct message_id none;
    bool any = message_id_equal(segment, &none);
    struct list *node, *after;

    list_each (node, after, &owners->mounts) {
        struct mount *mount = list_entry(node, struct mount, node);

        if (any || owner_service_answers_to(mount->service, segment))
            return mount;
    }
    return NULL;
}

struct owner_service *owners_find(struct owners *owners, const struct message_id *segment) {
    struct owner_service *service = NULL;
    struct mount *mount;

    pthread_mutex_lock(&owners->lock);
    mount = find(owners, segment);
    if (mount != NULL) {
        service = mount->service;
        owner_service_take(service);
    }
    pthread_mutex_unlock(&owners->lock);
    return service;
}

void owners_each(struct owners *owners, void (*visit)(void *context, const struct owner_description *description),
                 void *context) {
    struct owner_description description;
    struct list *node, *after;

    pthread_mutex_lock(&owners->lock);
    list_each (node, after, &owners->mounts)
        if (owner_service_describe(list_entry(node, struct mount, node)->service, &description))
            visit(context, &description);
    pthread_mutex_unlock(&owners->lock);
}

/* With the lock held. */
static bool is_listed(struct owners *owners, uint64_t serial) {
    struct list *node, *after;

    list_each (node, after, &owners->mounts)
        if (list_entry(node, struct mount, node)->serial == serial)
            return true;
    return false;
}

/* ---- Going ---- */

/* Its owner is closed: nobody posts its end any more. */
static void mount_free(struct mount *mount) {
    struct owners *owners = mount->owners;

    chores_withdraw(owners->chores, &mount->end);
    pthread_mutex_lock(&owners->lock);
    list_remove(&mount->node);
    pthread_cond_broadcast(&owners->left);
    pthread_mutex_unlock(&owners->lock);
    owner_service_drop(mount->service);
    free(mount);
}

/* A master in this process is told until it has heard: else it would keep the owner's last POLL. */
static void end(struct chore *chore) {
    struct mount *mount = list_entry(chore, struct mount, end);
    struct owners *owners = mount->owners;
    struct owner_description description;
    int32_t status = owner_service_leave(mount->service, clock_after(clock_now(), FAREWELL_TIME));

    if (status != MC_OK && master_link_is_inside(owners->link)) {
        chores_post(owners->chores, chore);
        return;
    }
    (void)owner_service_describe(mount->service, &description);
    owner_service_close(mount->service);
    if (owners->gone != NULL)
        owners->gone(owners->context, &description.segment);
    mount_free(mount);
}

/* Waits until it has gone. */
static bool await_end(struct owners *owners, uint64_t serial, uint64_t deadline) {
    bool listed;

    pthread_mutex_lock(&owners->lock);
    while (is_listed(owners, serial) && thread_cond_wait(&owners->left, &owners->lock, deadline) == 0)
        continue;
    listed = is_listed(owners, serial);
    pthread_mutex_unlock(&owners->lock);
    return !listed;
}

int32_t owners_unmount(struct owners *owners, const struct message_id *segment, uint64_t grace, uint64_t deadline,
                       struct mc_error *error) {
    static const struct message_id none;
    struct mount *mount;
    uint64_t serial = 0;

    pthread_mutex_lock(&owners->lock);
    mount = message_id_equal(segment, &none) ? NULL : find(owners, segment);
    if (mount != NULL) {
        serial = mount->serial;
        owner_service_drain(mount->service, clock_after(clock_now(), grace));
    }
    pthread_mutex_unlock(&owners->lock);
    if (serial == 0)
        return status_set(error, MC_ERR_SEGMENT_NOT_FOUND, 0, "this store has no segment of that id");
    if (grace == 0 && !await_end(owners, serial, deadline))
        return status_set(error, MC_ERR_TIMEOUT, 0, "the segment has not gone in time, but will");
    return MC_OK;
}

/* The owner behind the one with this serial number, with a reference; NULL behind the last. */
static struct owner_service *take_next(struct owners *owners, uint64_t *serial) {
    struct owner_service *service = NULL;
    struct list *node, *after;

    pthread_mutex_lock(&owners->lock);
    list_each (node, after, &owners->mounts) {
        struct mount *mount = list_entry(node, struct mount, node);

        if (mount->serial <= *serial)
            continue;
        *serial = mount->serial;
        service = mount->service;
        owner_service_take(service);
        break;
    }
    pthread_mutex_unlock(&owners->lock);
    return service;
}

void owners_leave(struct owners *owners, uint64_t deadline) {
    struct owner_service *service;
    uint64_t serial = 0;

    while ((service = take_next(owners, &serial)) != NULL) {
        (void)owner_service_leave(service, deadline);
        owner_service_drop(service);
    }
}

/* ---- Coming ---- */

static bool await_mounted(struct owner_service *service, uint64_t deadline) {
    while (!owner_service_mounted(service)) {
        struct timespec pause = {.tv_nsec = 200000};

        if (clock_now() >= deadline)
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

int32_t owners_mount(struct owners *owners, const struct segment_source *source, const char *name, uint64_t deadline,
                     struct message_id *ret_segment, struct mc_error *error) {
    struct mount *mount = calloc(1, sizeof(*mount));
    struct owner_service_options options = {
        .engine = owners->engine,
        .chores = owners->chores,
        .link = owners->link,
        .name = name,
        .source = *source,
        .timing = STORE_TIMING_DEFAULT,
    };
    struct owner_description description;
    struct owner_service *service;
    int32_t status = MC_OK;

    if (mount == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    mount->owners = owners;
    chore_init(&mount->end, end);
    options.end = &mount->end;
    status = owner_service_open(&options, &service, error);
    if (status != MC_OK) {
        free(mount);
        return status;
    }
    mount->service = service;
    owner_service_take(service); /* it may be unmounted meanwhile */
    pthread_mutex_lock(&owners->lock);
    mount->serial = ++owners->serial;
    list_append(&owners->mounts, &mount->node);
    pthread_mutex_unlock(&owners->lock);
    if (!await_mounted(service, deadline)) {
        owner_service_drain(service, clock_now());
        status = status_set(error, MC_ERR_UNAVAILABLE, 0, "the master did not take the segment in time");
    } else if (!owner_service_describe(service, &description)) {
        status = status_set(error, MC_ERR_SEGMENT_NOT_FOUND, 0, "the segment was unmounted meanwhile");
    } else {
        *ret_segment = description.segment;
    }
    owner_service_drop(service);
    return status;
}

/* ---- Peers. On the loop's thread. ---- */

/* Which segment a client's message is about. */
static int32_t segment_named(uint16_t type, const uint8_t *body, size_t length, struct message_id *ret_segment) {
    struct message_attach attach;
    struct message_reserve reserve;
    struct message_release release;
    int32_t status;

    if (type == MESSAGE_ATTACH) {
        status = message_unpack_attach(body, length, &attach);
        *ret_segment = attach.segment;
    } else if (type == MESSAGE_RESERVE) {
        status = message_unpack_reserve(body, length, &reserve);
        *ret_segment = reserve.segment;
    } else {
        status = message_unpack_release(body, length, &release);
        *ret_segment = release.segment;
    }
    return status;
}

static int32_t serve_message(struct exchange *exchange) {
    struct owners *owners = exchange->service->context;
    uint16_t type = (uint16_t)(exchange->request.type - FRAME_CALL);
    uint32_t length = exchange->request.payload;
    struct owner_service *service;
    struct message_id segment;
    struct letter *answer = NULL;
    int32_t status;

    /* All three messages begin with the client's id, which is the sender's incarnation: nobody speaks for others. */
    if (length < sizeof(struct message_id) || memcmp(exchange->body, exchange->client, sizeof(struct message_id)) != 0)
        return MC_ERR_ACCESS_DENIED;
    status = segment_named(type, exchange->body, length, &segment);
    if (status != MC_OK)
        return status;
    service = owners_find(owners, &segment);
    if (service == NULL)
        return MC_ERR_SEGMENT_NOT_FOUND;
    status = owner_service_call(service, type, exchange->body, length, &answer);
    if (status == MC_OK)
        status = errand_reply(exchange, answer);
    free(answer);
    owner_service_drop(service);
    return status;
}

static void client_lost(void *context, const uint8_t incarnation[16]) {
    struct owners *owners = context;
    struct list *node, *after;

    (void)incarnation;
    pthread_mutex_lock(&owners->lock);
    list_each (node, after, &owners->mounts)
        owner_service_suspect(list_entry(node, struct mount, node)->service);
    pthread_mutex_unlock(&owners->lock);
}

static void add_services(void *context) {
    static const uint16_t types[OWNERS_SERVICES] = {MESSAGE_ATTACH, MESSAGE_RESERVE, MESSAGE_RELEASE};
    struct owners *owners = context;

    owners->added = MC_OK;
    for (size_t i = 0; i < OWNERS_SERVICES && owners->added == MC_OK; i++) {
        owners->services[i] = (struct service){
            .type = (uint16_t)(FRAME_CALL + types[i]),
            .context = owners,
            .begin = exchange_take_body,
            .serve = serve_message,
        };
        owners->added = server_add(owners->engine->server, &owners->services[i]);
    }
}

static void remove_services(void *context) {
    struct owners *owners = context;

    for (size_t i = 0; i < OWNERS_SERVICES; i++)
        server_remove(owners->engine->server, &owners->services[i]);
}

/* ---- Opening and closing ---- */

int32_t owners_open(struct owners *owners, struct mc_error *error) {
    pthread_mutex_init(&owners->lock, NULL);
    thread_cond_init(&owners->left);
    list_init(&owners->mounts);
    loop_run(owners->engine->loop, add_services, owners);
    if (owners->added != MC_OK) {
        loop_run(owners->engine->loop, remove_services, owners);
        pthread_cond_destroy(&owners->left);
        pthread_mutex_destroy(&owners->lock);
        return status_set(error, owners->added, 0, "the engine serves segments already");
    }
    engine_watch_clients(owners->engine, client_lost, owners);
    return MC_OK;
}

void owners_stop(struct owners *owners) {
    struct list *node, *after;

    engine_watch_clients(owners->engine, NULL, NULL);
    pthread_mutex_lock(&owners->lock);
    list_each (node, after, &owners->mounts)
        owner_service_stop(list_entry(node, struct mount, node)->service);
    pthread_mutex_unlock(&owners->lock);
}

void owners_close(struct owners *owners) {
    struct list *node, *after;

    loop_run(owners->engine->loop, remove_services, owners);
    list_each (node, after, &owners->mounts) {
        struct mount *mount = list_entry(node, struct mount, node);

        owner_service_close(mount->service);
        mount_free(mount);
    }
    pthread_cond_destroy(&owners->left);
    pthread_mutex_destroy(&owners->lock);
}

/* ---- What is given, and told ---- */

int32_t segment_check(const struct segment_source *source, const char *name, struct mc_error *error) {
    bool whole_file = source->path != NULL && source->size == 0;

    if (!whole_file && (source->size < SEGMENT_MIN || source->size > INT64_MAX))
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "a segment has at least %u bytes, not %llu", SEGMENT_MIN,
                          (unsigned long long)source->size);
    if (source->offset > INT64_MAX - source->size || (source->path == NULL && source->offset != 0))
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "offset %llu is of no file",
                          (unsigned long long)source->offset);
    if (name != NULL && strlen(name) >= MESSAGE_NAME_MAX)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "a segment's name has at most %u bytes",
                          MESSAGE_NAME_MAX - 1);
    return MC_OK;
}

static bool has_dash(size_t byte) {
    return byte == 4 || byte == 6 || byte == 8 || byte == 10;
}

void segment_id_print(const struct message_id *id, char text[SEGMENT_ID_TEXT]) {
    size_t at = 0;

    for (size_t i = 0; i < sizeof(id->bytes); i++)
        at += (size_t)snprintf(text + at, SEGMENT_ID_TEXT - at, "%s%02x", has_dash(i) ? "-" : "", id->bytes[i]);
}

static int digit(char letter) {
    const char *digits = "0123456789abcdef";
    const char *found = letter != '\0' ? strchr(digits, letter) : NULL;

    return found != NULL ? (int)(found - digits) : -1;
}

bool segment_id_scan(const char *text, struct message_id *ret_id) {
    for (size_t i = 0; i < sizeof(ret_id->bytes); i++) {
        int high, low;

        if (has_dash(i) && *text++ != '-')
            return false;
        high = digit(text[0]);
        low = high < 0 ? -1 : digit(text[1]);
        if (low < 0)
            return false;
        ret_id->bytes[i] = (uint8_t)(high * 16 + low);
        text += 2;
    }
    return *text == '\0';
}

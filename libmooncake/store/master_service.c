/* store/master_service.c - a master at work.
 *
 * `lock` guards the core and the askers. An asker is whoever waits for an answer: a peer's exchange, a thread of this
 * process, or an errand. Answers for exchanges are handed to the loop's thread, which alone may touch them.
 */
#include "store/master_service.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "os/event.h"
#include "store/state_file.h"

#define ASKER_LISTS 256u
#define FIRST_MESSAGE MESSAGE_PUBLISH
#define MESSAGES ((MESSAGE_PROBE - MESSAGE_PUBLISH) / 2 + 1)

struct asker {
    struct list node; /* in one of service->askers */
    uint64_t tag;
    bool counts; /* as waiting: all but POLLs, which always wait */
    /* With the lock held: takes the letter (NULL: it is over, MC_ERR_CLOSED), and may free the asker. */
    void (*answered)(struct master_service *service, struct asker *asker, struct letter *letter);
};

/* A peer's request. Freed when its exchange has ended. */
struct visitor {
    struct asker asker;
    struct exchange *exchange;
    struct list ready; /* in service->ready: the answer is there */
    bool answered;
    struct letter *letter; /* NULL: it is over */
};

struct master_service {
    struct engine *engine;
    pthread_mutex_t lock;
    struct master *core;
    uint64_t tag; /* the last one */
    struct list askers[ASKER_LISTS];
    uint64_t waiting;
    bool draining;
    bool closed;
    struct list ready; /* visitors to be answered by the loop */
    struct loop_task answer_task;
    struct loop_timer timer;
    uint64_t armed; /* when the timer is set to fire */
    char *state_file;
    struct master_traffic traffic[MESSAGES];
    struct service services[MESSAGES];
    int32_t added; /* of the services: MC_OK, or why they aren't there */
};

/* ---- Askers. With the lock held. ---- */

static void asker_add(struct master_service *service, struct asker *asker, uint16_t type) {
    asker->tag = ++service->tag;
    asker->counts = type != MESSAGE_POLL;
    list_append(&service->askers[asker->tag % ASKER_LISTS], &asker->node);
    service->waiting += asker->counts;
}

static void asker_remove(struct master_service *service, struct asker *asker) {
    list_remove(&asker->node);
    service->waiting -= asker->counts;
}

static struct asker *asker_find(struct master_service *service, uint64_t tag) {
    struct list *node, *after;

    list_each (node, after, &service->askers[tag % ASKER_LISTS]) {
        struct asker *asker = list_entry(node, struct asker, node);

        if (asker->tag == tag)
            return asker;
    }
    return NULL;
}

/* The count for a message that the core knows, or its answer. */
static struct master_traffic *traffic_of(struct master_service *service, uint16_t type) {
    size_t index = type < FIRST_MESSAGE ? MESSAGES : (size_t)(type - FIRST_MESSAGE) / 2;

    return index < MESSAGES ? &service->traffic[index] : NULL;
}

/* Hands out the core's answers. */
static void deliver(struct master_service *service, struct outbox *out) {
    struct letter *letter;

    while ((letter = outbox_take(out)) != NULL) {
        struct asker *asker = asker_find(service, letter->tag);
        struct master_traffic *traffic = traffic_of(service, letter->type);

        if (traffic != NULL)
            traffic->failures += letter->status != MC_OK;
        if (asker == NULL) {
            free(letter);
            continue;
        }
        asker_remove(service, asker);
        asker->answered(service, asker, letter);
    }
}

/* Sets the timer for what falls due next. */
static void arm(struct master_service *service) {
    uint64_t wake = master_wake(service->core);

    if (wake < service->armed) {
        service->armed = wake;
        loop_timer_set(service->engine->loop, &service->timer, wake);
    }
}

/* A master without its state has begun too low: owners and clients know better, and get time to come back. */
static void lead_above(struct master_service *service, uint64_t now, uint64_t higher) {
    log_line(MC_LOG_INFO, "the master leads anew: somebody knows epoch %llu", (unsigned long long)higher);
    state_file_save(service->state_file, higher + 1, NULL, 0);
    master_lead(service->core, now, higher + 1, CLOCK_NEVER, NULL, 0, true);
}

/* A request for the core. */
static void ask(struct master_service *service, uint64_t tag, uint16_t type, const uint8_t *body, size_t length) {
    struct master_traffic *traffic = traffic_of(service, type);
    uint64_t now = clock_now();
    uint64_t higher;
    struct outbox out;

    if (traffic != NULL)
        traffic->requests++;
    outbox_init(&out);
    if (service->closed || service->draining)
        outbox_refuse(&out, type, tag, service->closed ? MC_ERR_CLOSED : MC_ERR_UNAVAILABLE);
    else
        master_request(service->core, now, tag, type, body, length, &out);
    higher = master_higher_epoch(service->core);
    if (higher > 0)
        lead_above(service, now, higher);
    deliver(service, &out);
    outbox_clear(&out);
    arm(service);
}

static void on_timer(struct loop_timer *timer, uint64_t now) {
    struct master_service *service = list_entry(timer, struct master_service, timer);
    struct outbox out;

    outbox_init(&out);
    pthread_mutex_lock(&service->lock);
    service->armed = CLOCK_NEVER;
    if (!service->closed) {
        master_step(service->core, now, &out);
        deliver(service, &out);
        arm(service);
    }
    pthread_mutex_unlock(&service->lock);
}

/* ---- Peers. On the loop's thread. ---- */

static void visitor_answered(struct master_service *service, struct asker *asker, struct letter *letter) {
    struct visitor *visitor = list_entry(asker, struct visitor, asker);

    visitor->letter = letter;
    visitor->answered = true;
    list_append(&service->ready, &visitor->ready);
    loop_post(service->engine->loop, &service->answer_task);
}

static int32_t serve_message(struct exchange *exchange) {
    struct master_service *service = exchange->service->context;
    struct visitor *visitor = calloc(1, sizeof(*visitor));
    uint16_t type = (uint16_t)(exchange->request.type - FRAME_CALL);
    bool answered;
    int32_t status;

    if (visitor == NULL)
        return MC_ERR_NO_MEMORY;
    visitor->exchange = exchange;
    visitor->asker.answered = visitor_answered;
    list_init(&visitor->asker.node);
    list_init(&visitor->ready);
    pthread_mutex_lock(&service->lock);
    asker_add(service, &visitor->asker, type);
    ask(service, visitor->asker.tag, type, exchange->body, exchange->request.payload);
    list_remove(&visitor->ready);
    answered = visitor->answered;
    if (!answered)
        exchange->pin = visitor; /* from here on any thread may answer it, by way of the loop */
    pthread_mutex_unlock(&service->lock);
    if (!answered) {
        free(exchange->body); /* the core has what it needs of it */
        exchange->body = NULL;
        return MC_ERR_PENDING;
    }
    status = errand_reply(exchange, visitor->letter);
    free(visitor->letter);
    free(visitor);
    return status;
}

static void message_ended(struct exchange *exchange) {
    struct master_service *service = exchange->service->context;
    struct visitor *visitor = exchange->pin;

    if (visitor == NULL)
        return;
    pthread_mutex_lock(&service->lock);
    list_remove(&visitor->ready);
    if (!list_empty(&visitor->asker.node)) {
        asker_remove(service, &visitor->asker);
        master_forget(service->core, visitor->asker.tag);
    }
    pthread_mutex_unlock(&service->lock);
    exchange->pin = NULL;
    free(visitor->letter);
    free(visitor);
}

static void answer_visitors(struct loop_task *task) {
    struct master_service *service = list_entry(task, struct master_service, answer_task);

    for (;;) {
        struct visitor *visitor = NULL;

        pthread_mutex_lock(&service->lock);
        if (!list_empty(&service->ready)) {
            visitor = list_entry(service->ready.next, struct visitor, ready);
            list_remove(&visitor->ready);
        }
        pthread_mutex_unlock(&service->lock);
        if (visitor == NULL)
            return;
        exchange_finish(visitor->exchange, errand_reply(visitor->exchange, visitor->letter));
    }
}

/* ---- This process ---- */

struct local {
    struct asker asker;
    struct event done;
    struct letter *letter;
    bool closed;
};

static void local_answered(struct master_service *service, struct asker *asker, struct letter *letter) {
    struct local *local = list_entry(asker, struct local, asker);

    (void)service;
    local->letter = letter;
    local->closed = letter == NULL;
    event_set(&local->done);
}

int32_t master_service_call(struct master_service *service, const struct letter *request, uint64_t deadline,
                            struct letter **ret_answer) {
    struct local local = {.asker = {.answered = local_answered}};
    int32_t status;

    event_init(&local.done);
    pthread_mutex_lock(&service->lock);
    asker_add(service, &local.asker, request->type);
    ask(service, local.asker.tag, request->type, request->body, request->length);
    pthread_mutex_unlock(&service->lock);
    if (!event_wait(&local.done, deadline)) {
        pthread_mutex_lock(&service->lock);
        if (!list_empty(&local.asker.node)) {
            asker_remove(service, &local.asker);
            master_forget(service->core, local.asker.tag);
        }
        pthread_mutex_unlock(&service->lock);
    }
    event_destroy(&local.done);
    if (local.letter == NULL)
        return local.closed ? MC_ERR_CLOSED : MC_ERR_TIMEOUT;
    status = local.letter->status;
    if (status == MC_OK)
        *ret_answer = local.letter;
    else
        free(local.letter);
    return status;
}

struct errand_asker {
    struct asker asker;
    struct errand *errand;
};

static void errand_answered(struct master_service *service, struct asker *asker, struct letter *letter) {
    struct errand_asker *waiting = list_entry(asker, struct errand_asker, asker);
    struct errand *errand = waiting->errand;

    (void)service;
    free(waiting);
    errand->status = letter != NULL ? letter->status : MC_ERR_CLOSED;
    if (errand->status == MC_OK) {
        errand->answer = letter;
    } else {
        errand->answer = NULL;
        free(letter);
    }
    errand->done(errand);
}

void master_service_begin(struct master_service *service, struct errand *errand) {
    struct errand_asker *waiting = calloc(1, sizeof(*waiting));

    if (waiting == NULL) {
        errand_fail(errand, MC_ERR_NO_MEMORY);
        return;
    }
    waiting->asker.answered = errand_answered;
    waiting->errand = errand;
    pthread_mutex_lock(&service->lock);
    asker_add(service, &waiting->asker, errand->request->type);
    ask(service, waiting->asker.tag, errand->request->type, errand->request->body, errand->request->length);
    pthread_mutex_unlock(&service->lock);
}

/* ---- Opening and closing ---- */

static void members_changed(void *context, struct master *core) {
    struct master_service *service = context;
    size_t count = master_members(core, NULL, 0);
    struct message_id *members;

    if (service->state_file == NULL)
        return;
    members = calloc(count > 0 ? count : 1, sizeof(*members));
    if (members == NULL)
        return;
    count = master_members(core, members, count);
    state_file_save(service->state_file, master_epoch(core), members, count);
    free(members);
}

/* One that no earlier life of this master has had, as far as the wall clock tells; what it tells wrongly, owners and
 * clients of that life set right. */
static uint64_t fresh_epoch(uint64_t saved) {
    struct timespec now = {0};
    uint64_t epoch;

    clock_gettime(CLOCK_REALTIME, &now);
    epoch = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    return epoch > saved ? epoch : saved + 1;
}

static int32_t begin_to_lead(struct master_service *service, bool alone, struct mc_error *error) {
    struct message_id *members = NULL;
    uint64_t epoch = 0;
    size_t count = 0;
    int32_t status = state_file_load(service->state_file, &epoch, &members, &count, error);

    if (status == MC_OK) {
        epoch = fresh_epoch(epoch);
        status = state_file_save(service->state_file, epoch, members, count);
        if (status != MC_OK)
            status_set(error, status, errno, "the state can't be kept in %s: %m", service->state_file);
    }
    if (status != MC_OK) {
        free(members);
        return status;
    }
    master_lead(service->core, clock_now(), epoch, CLOCK_NEVER, members, count, !alone);
    free(members);
    return MC_OK;
}

static void add_services(void *context) {
    struct master_service *service = context;

    service->added = MC_OK;
    for (size_t i = 0; i < MESSAGES && service->added == MC_OK; i++) {
        service->services[i] = (struct service){
            .type = (uint16_t)(FRAME_CALL + FIRST_MESSAGE + 2 * i),
            .context = service,
            .begin = exchange_take_body,
            .serve = serve_message,
            .ended = message_ended,
        };
        service->added = server_add(service->engine->server, &service->services[i]);
    }
}

static void remove_services(void *context) {
    struct master_service *service = context;

    for (size_t i = 0; i < MESSAGES; i++)
        server_remove(service->engine->server, &service->services[i]);
}

static void service_free(struct master_service *service) {
    master_free(service->core);
    pthread_mutex_destroy(&service->lock);
    free(service->state_file);
    free(service);
}

int32_t master_service_open(const struct master_service_options *options, struct master_service **ret_service,
                            struct mc_error *error) {
    struct master_service *service = calloc(1, sizeof(*service));
    struct master_options core = options->core;
    int32_t status;

    if (service == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    service->engine = options->engine;
    pthread_mutex_init(&service->lock, NULL);
    for (size_t i = 0; i < ASKER_LISTS; i++)
        list_init(&service->askers[i]);
    list_init(&service->ready);
    list_init(&service->answer_task.node);
    service->answer_task.run = answer_visitors;
    service->armed = CLOCK_NEVER;
    loop_timer_init(&service->timer, on_timer);
    core.members_changed = members_changed;
    core.context = service;
    status = master_new(&core, &service->core);
    if (status == MC_OK && options->state_file != NULL) {
        service->state_file = strdup(options->state_file);
        status = service->state_file != NULL ? MC_OK : MC_ERR_NO_MEMORY;
    }
    if (status != MC_OK)
        status_set(error, status, 0, "the master can't be made: %s", status_text(status));
    if (status == MC_OK)
        status = begin_to_lead(service, options->alone, error);
    if (status != MC_OK) {
        service_free(service);
        return status;
    }
    loop_run(service->engine->loop, add_services, service);
    if (service->added != MC_OK) {
        status = status_set(error, service->added, 0, "the engine serves a store already");
        master_service_close(service);
        return status;
    }
    pthread_mutex_lock(&service->lock);
    arm(service);
    pthread_mutex_unlock(&service->lock);
    *ret_service = service;
    return MC_OK;
}

/* Tells those who wait, all or only threads of this process, that it is over. With the lock held. */
static void refuse(struct master_service *service, bool all) {
    struct list *node, *after;

    for (size_t i = 0; i < ASKER_LISTS; i++) {
        list_each (node, after, &service->askers[i]) {
            struct asker *asker = list_entry(node, struct asker, node);

            if (!all && asker->answered != local_answered)
                continue;
            master_forget(service->core, asker->tag);
            asker_remove(service, asker);
            asker->answered(service, asker, NULL);
        }
    }
}

void master_service_interrupt(struct master_service *service) {
    pthread_mutex_lock(&service->lock);
    refuse(service, false);
    pthread_mutex_unlock(&service->lock);
}

void master_service_shut(struct master_service *service) {
    pthread_mutex_lock(&service->lock);
    service->closed = true;
    refuse(service, true);
    pthread_mutex_unlock(&service->lock);
}

struct master_service *master_service_close(struct master_service *service) {
    if (service == NULL)
        return NULL;
    master_service_shut(service);
    loop_run(service->engine->loop, remove_services, service);
    loop_timer_cancel_sync(service->engine->loop, &service->timer);
    loop_unpost_sync(service->engine->loop, &service->answer_task);
    service_free(service);
    return NULL;
}

uint64_t master_service_drain(struct master_service *service) {
    uint64_t waiting;

    pthread_mutex_lock(&service->lock);
    service->draining = true;
    waiting = service->waiting;
    pthread_mutex_unlock(&service->lock);
    return waiting;
}

static bool serves(const struct master_service *service) {
    return !service->closed && !service->draining && master_serves(service->core, clock_now());
}

bool master_service_serves(struct master_service *service) {
    bool answer;

    pthread_mutex_lock(&service->lock);
    answer = serves(service);
    pthread_mutex_unlock(&service->lock);
    return answer;
}

struct master_count master_service_count(struct master_service *service) {
    struct master_count count;

    pthread_mutex_lock(&service->lock);
    count = master_count(service->core);
    pthread_mutex_unlock(&service->lock);
    return count;
}

struct master_traffic master_service_traffic(struct master_service *service, uint16_t type) {
    struct master_traffic *traffic = traffic_of(service, type);
    struct master_traffic copy = {0};

    pthread_mutex_lock(&service->lock);
    if (traffic != NULL)
        copy = *traffic;
    pthread_mutex_unlock(&service->lock);
    return copy;
}

bool master_service_look(struct master_service *service, void (*look)(void *context, const struct master *core),
                         void *context) {
    bool may;

    pthread_mutex_lock(&service->lock);
    may = serves(service);
    if (may)
        look(context, service->core);
    pthread_mutex_unlock(&service->lock);
    return may;
}

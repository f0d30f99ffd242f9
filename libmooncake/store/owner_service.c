/* store/owner_service.c - an owner at work.
 *
 * `lock` guards the core. The tender steps it and brings the master's answers. A client whose last connection has ended
 * is asked for at its address by a chore, until it is proved gone (rule 17) or comes back.
 */
#include "store/owner_service.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/host_memory.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"
#include "net/auth.h"
#include "store/tender.h"
#include "transfer/registry.h"

#define PIN_TABLES 128u
#define SERVICES 3u
#define PROOF_EVERY CLOCK_SECOND /* while a client without connections isn't proved gone */
#define PROOF_TIME (500 * CLOCK_MILLISECOND)
#define FAULT_IN_PIECE (16u << 20)
#define UNREGISTER_TIME CLOCK_SECOND

/* A client that may be gone. */
struct suspect {
    struct list node;
    struct message_id client;
    char address[MESSAGE_ADDRESS_MAX];
};

struct owner_service {
    struct engine *engine;
    struct chores *chores;
    struct master_link *link;
    struct segment_memory *memory; /* a reference */
    pthread_mutex_t lock;
    struct owner *core;
    struct tender tender;
    struct service services[SERVICES];
    int32_t added; /* of the services: MC_OK, or why they aren't there */
    struct chore prove;
    struct list suspects; /* that this round hasn't asked for yet; the chore's own */
    struct chore fault_in;
    uint64_t faulted_in; /* bytes; the chore's own */
    _Atomic uint64_t prove_at;
    atomic_bool closing;
};

/* ---- Memory ---- */

static void memory_destroy(struct ref *ref) {
    struct segment_memory *memory = list_entry(ref, struct segment_memory, ref);
    void *const address[2] = {memory->base, memory->pins};

    for (size_t i = 0; i < 2; i++) {
        if (memory->registered[i])
            (void)registry_remove(memory->engine->registry, (uint64_t)(uintptr_t)address[i],
                                  clock_after(clock_now(), UNREGISTER_TIME), NULL);
        if (address[i] != NULL)
            (void)host_memory_free(memory->ids[i]);
    }
    free(memory);
}

static int32_t memory_new(struct engine *engine, uint64_t size, struct segment_memory **ret_memory,
                          struct mc_error *error) {
    struct segment_memory *memory = calloc(1, sizeof(*memory));
    uint64_t sizes[2] = {size, PIN_TABLES * sizeof(struct pin_table)};
    void *address[2] = {NULL, NULL};
    int32_t status = MC_OK;

    if (memory == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    ref_init(&memory->ref, memory_destroy);
    memory->engine = engine;
    for (size_t i = 0; i < 2 && status == MC_OK; i++)
        status = host_memory_reserve(sizes[i], &memory->ids[i], &address[i], error);
    memory->base = address[0];
    memory->size = size;
    memory->pins = address[1];
    memory->pin_tables = PIN_TABLES;
    for (size_t i = 0; i < 2 && status == MC_OK; i++) {
        status = registry_add(engine->registry, (uint64_t)(uintptr_t)address[i], sizes[i], "*",
                              MC_REMOTE_READ | MC_REMOTE_WRITE, error);
        memory->registered[i] = status == MC_OK;
    }
    if (status != MC_OK)
        ref_drop(&memory->ref);
    else
        *ret_memory = memory;
    return status;
}

/* Gives the segment its pages, piece by piece, so that a large one opens at once and puts meet no page faults later. */
static void fault_in(struct chore *chore) {
    struct owner_service *service = list_entry(chore, struct owner_service, fault_in);
    uint64_t left = service->memory->size - service->faulted_in;
    uint64_t piece = left < FAULT_IN_PIECE ? left : FAULT_IN_PIECE;

    if (piece == 0 || atomic_load(&service->closing) ||
        host_memory_fault_in(service->memory->base + service->faulted_in, piece) != MC_OK)
        return;
    service->faulted_in += piece;
    chores_post(service->chores, chore);
}

/* ---- Clients that may be gone ---- */

/* With the lock held: a client without any connection. */
static void suspect(void *context, const struct message_id *client, const char *address) {
    struct owner_service *service = context;
    struct engine *engine = service->engine;
    struct suspect *one;

    if (memcmp(client->bytes, engine->identity.incarnation, sizeof(client->bytes)) == 0 ||
        engine_client_count(engine, client->bytes) > 0)
        return;
    one = calloc(1, sizeof(*one));
    if (one == NULL)
        return;
    one->client = *client;
    text_copy(one->address, sizeof(one->address), address);
    list_append(&service->suspects, &one->node);
}

/* Is this one gone? Asks at its address. */
static void prove_one(struct owner_service *service, const struct suspect *one) {
    if (atomic_load(&service->closing) ||
        !engine_prove_gone(service->engine, one->address, one->client.bytes, PROOF_TIME) ||
        engine_client_count(service->engine, one->client.bytes) > 0)
        return;
    pthread_mutex_lock(&service->lock);
    owner_client_gone(service->core, clock_now(), &one->client);
    pthread_mutex_unlock(&service->lock);
    tender_kick(&service->tender);
}

/* One suspect at a time, so that other chores get their turn; all of them once a round. */
static void prove(struct chore *chore) {
    struct owner_service *service = list_entry(chore, struct owner_service, prove);
    struct suspect *one;

    if (list_empty(&service->suspects)) {
        pthread_mutex_lock(&service->lock);
        owner_each_client(service->core, suspect, service);
        pthread_mutex_unlock(&service->lock);
    }
    if (list_empty(&service->suspects)) {
        atomic_store(&service->prove_at, CLOCK_NEVER);
        return;
    }
    one = list_entry(service->suspects.next, struct suspect, node);
    list_remove(&one->node);
    prove_one(service, one);
    free(one);
    if (!list_empty(&service->suspects)) {
        chores_post(service->chores, chore);
        return;
    }
    atomic_store(&service->prove_at, clock_after(clock_now(), PROOF_EVERY));
    tender_kick(&service->tender);
}

/* On the loop's thread. */
static void client_lost(void *context, const uint8_t incarnation[16]) {
    struct owner_service *service = context;

    (void)incarnation;
    chores_post(service->chores, &service->prove);
}

/* ---- The core ---- */

static bool in_flight(void *context, const struct slot *slot) {
    struct owner_service *service = context;

    return engine_in_flight(service->engine, &slot->word);
}

static int32_t ask(struct owner_service *service, uint16_t type, const uint8_t *body, uint32_t length,
                   struct letter **ret_answer) {
    struct letter *answer;
    struct outbox out;
    uint64_t now = clock_now(), wake;
    int32_t status;

    outbox_init(&out);
    pthread_mutex_lock(&service->lock);
    owner_request(service->core, now, 0, type, body, length, &out);
    wake = owner_wake(service->core);
    pthread_mutex_unlock(&service->lock);
    tender_wake(&service->tender, wake);
    answer = outbox_take(&out);
    status = answer == NULL ? MC_ERR_NO_MEMORY : answer->status;
    if (status == MC_OK)
        *ret_answer = answer;
    else
        free(answer);
    return status;
}

int32_t owner_service_call(struct owner_service *service, const struct letter *request, struct letter **ret_answer) {
    return ask(service, request->type, request->body, request->length, ret_answer);
}

static int32_t serve_message(struct exchange *exchange) {
    struct owner_service *service = exchange->service->context;
    uint32_t length = exchange->request.payload;
    struct letter *answer = NULL;
    int32_t status;

    /* All three messages begin with the client's id, which is the sender's incarnation: nobody speaks for others. */
    if (length < sizeof(struct message_id) || memcmp(exchange->body, exchange->client, sizeof(struct message_id)) != 0)
        return MC_ERR_ACCESS_DENIED;
    status = ask(service, (uint16_t)(exchange->request.type - FRAME_CALL), exchange->body, length, &answer);
    if (status == MC_OK)
        status = errand_reply(exchange, answer);
    free(answer);
    return status;
}

/* ---- The master ---- */

static uint64_t step(void *context, uint64_t now, struct outbox *out) {
    struct owner_service *service = context;
    uint64_t prove_at = atomic_load(&service->prove_at);
    uint64_t wake;

    pthread_mutex_lock(&service->lock);
    owner_step(service->core, now, out);
    wake = owner_wake(service->core);
    pthread_mutex_unlock(&service->lock);
    if (prove_at <= now)
        chores_post(service->chores, &service->prove);
    else if (prove_at < wake)
        wake = prove_at;
    return wake;
}

static void send_errand(void *context, struct errand *errand) {
    struct owner_service *service = context;

    master_link_begin(service->link, errand);
}

static void answered(void *context, uint64_t now, struct errand *errand) {
    struct owner_service *service = context;
    const struct letter *answer = errand->answer;

    master_link_end(service->link, errand);
    pthread_mutex_lock(&service->lock);
    owner_answer(service->core, now, errand->request->tag, errand->status, (uint16_t)(errand->request->type + 1),
                 answer != NULL ? answer->body : NULL, answer != NULL ? answer->length : 0);
    pthread_mutex_unlock(&service->lock);
}

static const struct tender_ops tender_ops = {step, send_errand, answered};

/* ---- Opening and closing ---- */

static void add_services(void *context) {
    static const uint16_t types[SERVICES] = {MESSAGE_ATTACH, MESSAGE_RESERVE, MESSAGE_RELEASE};
    struct owner_service *service = context;

    service->added = MC_OK;
    for (size_t i = 0; i < SERVICES && service->added == MC_OK; i++) {
        service->services[i] = (struct service){
            .type = (uint16_t)(FRAME_CALL + types[i]),
            .context = service,
            .begin = exchange_take_body,
            .serve = serve_message,
        };
        service->added = server_add(service->engine->server, &service->services[i]);
    }
}

static void remove_services(void *context) {
    struct owner_service *service = context;

    for (size_t i = 0; i < SERVICES; i++)
        server_remove(service->engine->server, &service->services[i]);
}

static int32_t make_core(struct owner_service *service, const struct owner_service_options *options,
                         struct mc_error *error) {
    struct segment_memory *memory = service->memory;
    struct owner_options core = {
        .base = memory->base,
        .size = memory->size,
        .address = service->engine->address,
        .name = options->name != NULL ? options->name : service->engine->address,
        .pins = memory->pins,
        .pin_tables = memory->pin_tables,
        .pins_address = (uint64_t)(uintptr_t)memory->pins,
        .base_address = (uint64_t)(uintptr_t)memory->base,
        .timing = options->timing,
        .in_flight = in_flight,
        .context = service,
    };
    int32_t status = auth_random(core.segment.bytes, sizeof(core.segment.bytes));

    if (status == MC_OK)
        status = owner_new(&core, &service->core);
    if (status != MC_OK)
        status_set(error, status, 0, "no segment of %llu bytes: %s", (unsigned long long)memory->size,
                   status_text(status));
    return status;
}

int32_t owner_service_open(const struct owner_service_options *options, struct owner_service **ret_service,
                           struct mc_error *error) {
    struct owner_service *service = calloc(1, sizeof(*service));
    int32_t status;

    if (service == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    service->engine = options->engine;
    service->chores = options->chores;
    service->link = options->link;
    pthread_mutex_init(&service->lock, NULL);
    chore_init(&service->prove, prove);
    list_init(&service->suspects);
    chore_init(&service->fault_in, fault_in);
    atomic_store(&service->prove_at, CLOCK_NEVER);
    status = memory_new(service->engine, (options->size + 4095) / 4096 * 4096, &service->memory, error);
    if (status == MC_OK)
        status = make_core(service, options, error);
    if (status != MC_OK) {
        if (service->memory != NULL)
            ref_drop(&service->memory->ref);
        pthread_mutex_destroy(&service->lock);
        free(service);
        return status;
    }
    loop_run(service->engine->loop, add_services, service);
    if (service->added != MC_OK) {
        loop_run(service->engine->loop, remove_services, service);
        owner_free(service->core);
        ref_drop(&service->memory->ref);
        pthread_mutex_destroy(&service->lock);
        status = status_set(error, service->added, 0, "the engine serves a segment already");
        free(service);
        return status;
    }
    engine_watch_clients(service->engine, client_lost, service);
    tender_start(&service->tender, service->engine, &tender_ops, service);
    chores_post(service->chores, &service->fault_in);
    *ret_service = service;
    return MC_OK;
}

void owner_service_leave(struct owner_service *service, uint64_t deadline) {
    struct message_unmount unmount = {0};
    struct letter *request, *answer;
    struct outbox out;

    outbox_init(&out);
    pthread_mutex_lock(&service->lock);
    owner_retire(service->core);
    unmount.segment = *owner_segment(service->core);
    pthread_mutex_unlock(&service->lock);
    request = outbox_unmount(&out, 0, &unmount);
    if (request != NULL && master_link_call(service->link, request, deadline, &answer) == MC_OK)
        free(answer);
    outbox_clear(&out);
}

void owner_service_stop(struct owner_service *service) {
    if (service == NULL)
        return;
    atomic_store(&service->closing, true);
    engine_watch_clients(service->engine, NULL, NULL);
}

struct owner_service *owner_service_close(struct owner_service *service) {
    struct list *node, *after;

    if (service == NULL)
        return NULL;
    owner_service_stop(service);
    loop_run(service->engine->loop, remove_services, service);
    tender_stop(&service->tender);
    list_each (node, after, &service->suspects)
        free(list_entry(node, struct suspect, node));
    owner_free(service->core);
    ref_drop(&service->memory->ref);
    pthread_mutex_destroy(&service->lock);
    free(service);
    return NULL;
}

struct segment_memory *owner_service_memory(struct owner_service *service) {
    return service->memory;
}

bool owner_service_mounted(struct owner_service *service) {
    bool mounted;

    pthread_mutex_lock(&service->lock);
    mounted = owner_mounted(service->core);
    pthread_mutex_unlock(&service->lock);
    return mounted;
}

struct owner_usage owner_service_usage(struct owner_service *service) {
    struct owner_usage usage;

    pthread_mutex_lock(&service->lock);
    usage = owner_usage(service->core);
    pthread_mutex_unlock(&service->lock);
    return usage;
}

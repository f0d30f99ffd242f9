/* store/owner_service.c - an owner at work.
 *
 * `lock` guards the core, which is no more when the service was closed; whoever has a reference hears then that the
 * segment isn't there. The tender steps it and brings the master's answers. A client whose last connection has ended is
 * asked for at its address by a chore, until it is proved gone (rule 17) or comes back.
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

#define PROOF_EVERY CLOCK_SECOND /* while a client without connections isn't proved gone */
#define PROOF_TIME (500 * CLOCK_MILLISECOND)
#define FAULT_IN_PIECE (16u << 20)
#define GENERATIONS_SHIFT 44u /* generations of this process's segments begin so far apart */
#define SEGMENTS_MAX (1u << 17)

/* A client that may be gone. */
struct suspect {
    struct list node;
    struct message_id client;
    char address[MESSAGE_ADDRESS_MAX];
};

struct owner_service {
    struct ref ref;
    struct engine *engine;
    struct chores *chores;
    struct master_link *link;
    struct chore *end; /* to be posted when ends_at has come */
    pthread_mutex_t lock;
    struct owner *core;            /* NULL: closed */
    struct segment_memory *memory; /* a reference; NULL: closed */
    char name[MESSAGE_NAME_MAX];
    struct tender tender;
    struct chore prove;
    struct list suspects; /* that this round hasn't asked for yet; the chore's own */
    struct chore fault_in;
    uint64_t faulted_in; /* bytes; the chore's own */
    _Atomic uint64_t prove_at;
    _Atomic uint64_t ends_at;
    atomic_bool closing;
};

static atomic_uint segments_made;

static void destroy(struct ref *ref) {
    struct owner_service *service = list_entry(ref, struct owner_service, ref);

    pthread_mutex_destroy(&service->lock);
    free(service);
}

/* ---- Memory ---- */

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

void owner_service_suspect(struct owner_service *service) {
    chores_post(service->chores, &service->prove);
}

/* ---- The core ---- */

static bool in_flight(void *context, const struct slot *slot) {
    struct owner_service *service = context;

    return engine_in_flight(service->engine, &slot->word);
}

int32_t owner_service_call(struct owner_service *service, uint16_t type, const uint8_t *body, uint32_t length,
                           struct letter **ret_answer) {
    struct letter *answer;
    struct outbox out;
    int32_t status = MC_ERR_SEGMENT_NOT_FOUND;

    outbox_init(&out);
    pthread_mutex_lock(&service->lock);
    if (service->core != NULL) {
        owner_request(service->core, clock_now(), 0, type, body, length, &out);
        tender_wake(&service->tender, owner_wake(service->core));
        status = MC_OK;
    }
    pthread_mutex_unlock(&service->lock);
    answer = outbox_take(&out);
    if (status == MC_OK)
        status = answer == NULL ? MC_ERR_NO_MEMORY : answer->status;
    if (status == MC_OK)
        *ret_answer = answer;
    else
        free(answer);
    return status;
}

/* ---- The master ---- */

static uint64_t step(void *context, uint64_t now, struct outbox *out) {
    struct owner_service *service = context;
    uint64_t prove_at = atomic_load(&service->prove_at), ends_at = atomic_load(&service->ends_at);
    uint64_t wake = CLOCK_NEVER;

    pthread_mutex_lock(&service->lock);
    if (service->core != NULL) {
        owner_step(service->core, now, out);
        wake = owner_wake(service->core);
    }
    pthread_mutex_unlock(&service->lock);
    if (ends_at <= now) {
        atomic_store(&service->ends_at, CLOCK_NEVER);
        chores_post(service->chores, service->end);
    } else if (ends_at < wake) {
        wake = ends_at;
    }
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
    if (service->core != NULL)
        owner_answer(service->core, now, errand->request->tag, errand->status, (uint16_t)(errand->request->type + 1),
                     answer != NULL ? answer->body : NULL, answer != NULL ? answer->length : 0);
    pthread_mutex_unlock(&service->lock);
}

static const struct tender_ops tender_ops = {step, send_errand, answered};

/* ---- Opening and closing ---- */

static int32_t make_core(struct owner_service *service, const struct owner_service_options *options,
                         struct mc_error *error) {
    struct segment_memory *memory = service->memory;
    struct owner_options core = {
        .base = memory->base,
        .size = memory->size,
        .address = service->engine->address,
        .name = service->name,
        .pins = memory->pins,
        .pin_tables = memory->pin_tables,
        .pins_address = (uint64_t)(uintptr_t)memory->pins,
        .base_address = (uint64_t)(uintptr_t)memory->base,
        .generation = ((uint64_t)atomic_fetch_add(&segments_made, 1) << GENERATIONS_SHIFT) + 1,
        .timing = options->timing,
        .in_flight = in_flight,
        .context = service,
    };
    int32_t status = auth_random(core.segment.bytes, sizeof(core.segment.bytes));

    if (status == MC_OK && core.generation >> GENERATIONS_SHIFT >= SEGMENTS_MAX)
        status = MC_ERR_TOO_MANY;
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
    ref_init(&service->ref, destroy);
    service->engine = options->engine;
    service->chores = options->chores;
    service->link = options->link;
    service->end = options->end;
    pthread_mutex_init(&service->lock, NULL);
    chore_init(&service->prove, prove);
    list_init(&service->suspects);
    chore_init(&service->fault_in, fault_in);
    atomic_store(&service->prove_at, CLOCK_NEVER);
    atomic_store(&service->ends_at, CLOCK_NEVER);
    text_copy(service->name, sizeof(service->name), options->name != NULL ? options->name : service->engine->address);
    status = segment_memory_new(service->engine, &options->source, &service->memory, error);
    if (status == MC_OK)
        status = make_core(service, options, error);
    if (status != MC_OK) {
        if (service->memory != NULL)
            ref_drop(&service->memory->ref);
        ref_drop(&service->ref);
        return status;
    }
    tender_start(&service->tender, service->engine, &tender_ops, service);
    if (options->source.path == NULL)
        chores_post(service->chores, &service->fault_in);
    *ret_service = service;
    return MC_OK;
}

void owner_service_take(struct owner_service *service) {
    ref_take(&service->ref);
}

void owner_service_drop(struct owner_service *service) {
    ref_drop(&service->ref);
}

void owner_service_drain(struct owner_service *service, uint64_t ends_at) {
    pthread_mutex_lock(&service->lock);
    if (service->core != NULL) {
        owner_drain(service->core);
        if (ends_at < atomic_load(&service->ends_at))
            atomic_store(&service->ends_at, ends_at);
        tender_kick(&service->tender);
    }
    pthread_mutex_unlock(&service->lock);
}

int32_t owner_service_leave(struct owner_service *service, uint64_t deadline) {
    struct message_unmount unmount = {0};
    struct letter *request, *answer = NULL;
    struct outbox out;
    int32_t status = MC_ERR_NO_MEMORY;

    outbox_init(&out);
    pthread_mutex_lock(&service->lock);
    if (service->core != NULL) {
        owner_retire(service->core);
        unmount.segment = *owner_segment(service->core);
    }
    pthread_mutex_unlock(&service->lock);
    request = outbox_unmount(&out, 0, &unmount);
    if (request != NULL)
        status = master_link_call(service->link, request, deadline, &answer);
    free(answer);
    outbox_clear(&out);
    return status;
}

void owner_service_stop(struct owner_service *service) {
    atomic_store(&service->closing, true);
}

void owner_service_close(struct owner_service *service) {
    struct segment_memory *memory;
    struct list *node, *after;
    struct owner *core;

    owner_service_stop(service);
    pthread_mutex_lock(&service->lock);
    core = service->core;
    memory = service->memory;
    service->core = NULL;
    service->memory = NULL;
    pthread_mutex_unlock(&service->lock);
    tender_stop(&service->tender);
    chores_withdraw(service->chores, &service->prove);
    chores_withdraw(service->chores, &service->fault_in);
    list_each (node, after, &service->suspects)
        free(list_entry(node, struct suspect, node));
    owner_free(core);
    segment_memory_withdraw(memory);
    ref_drop(&memory->ref);
}

struct segment_memory *owner_service_take_memory(struct owner_service *service) {
    struct segment_memory *memory;

    pthread_mutex_lock(&service->lock);
    memory = service->memory;
    if (memory != NULL)
        ref_take(&memory->ref);
    pthread_mutex_unlock(&service->lock);
    return memory;
}

bool owner_service_answers_to(struct owner_service *service, const struct message_id *segment) {
    bool answers;

    pthread_mutex_lock(&service->lock);
    answers = service->core != NULL && owner_answers_to(service->core, segment);
    pthread_mutex_unlock(&service->lock);
    return answers;
}

bool owner_service_describe(struct owner_service *service, struct owner_description *ret_description) {
    bool there;

    pthread_mutex_lock(&service->lock);
    there = service->core != NULL;
    if (there) {
        *ret_description = (struct owner_description){
            .segment = *owner_segment(service->core),
            .usage = owner_usage(service->core),
            .mounted = owner_mounted(service->core),
            .drains = owner_drains(service->core),
        };
        text_copy(ret_description->name, sizeof(ret_description->name), service->name);
    }
    pthread_mutex_unlock(&service->lock);
    return there;
}

bool owner_service_mounted(struct owner_service *service) {
    bool mounted;

    pthread_mutex_lock(&service->lock);
    mounted = service->core != NULL && owner_mounted(service->core);
    pthread_mutex_unlock(&service->lock);
    return mounted;
}

/* tests/simulation/owners.c - owners: a core each, its memory, and its I/O: remote reads and writes, proofs of death.
 *
 * A remote write is executed piece by piece under its guard (the slot's word), once per generation; while it goes on,
 * the core learns so by in_flight. A dead client is proved gone some time later, when nothing of it is under way.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

#define SILENCE (150u * UNIT) /* that TIME_IS_PROOF takes for death */

struct remote {
    uint64_t tag;
    struct memory *memory;
    struct grant *grant;
    bool write;
    bool counted; /* as being in flight */
    uint32_t piece;
    struct remote_request request;
    uint8_t bytes[]; /* value and key; or what is read */
};

static bool in_flight(void *context, const struct slot *slot) {
    struct node *node = context;
    const struct grant *grant = ghost_grant(node->sim, node->memory, slot_word_generation(slot->word));

    return grant != NULL && grant->inflight > 0;
}

#define FAREWELLS 3u /* that UNMOUNT is sent, before the owner goes without an answer */

/* Whatever the segment had need not be there any more. */
static void lose(struct node *node) {
    struct sim *sim = node->sim;

    for (uint32_t i = 0; i < sim->segment_count; i++)
        if (sim->segments[i].memory == node->memory)
            sim->segments[i].lost = true;
}

/* After each call of the core. */
static void post(struct node *node) {
    struct sim *sim = node->sim;
    struct segment *segment = ghost_segment(sim, owner_segment(node->owner));

    if (segment == NULL) {
        TRACE(sim, "%s begins anew: its segment had been given up", node->name);
        lose(node);
        ghost_add_segment(sim, owner_segment(node->owner), node->memory);
    }
    ghost_scan(sim, node->memory);
    node_wake(node, owner_wake(node->owner));
}

void owners_born(struct node *node) {
    struct sim *sim = node->sim;
    struct owner_options options = {
        .address = node->name,
        .name = node->name,
        .pin_tables = PIN_TABLES,
        .timing = sim->timing,
        .in_flight = in_flight,
        .context = node,
    };

    node->memory = ghost_memory(sim, node, sim->weather.segment_size);
    sim_id(sim, node->index, &options.segment);
    options.base = node->memory->base;
    options.size = node->memory->size;
    options.pins = node->memory->pins;
    options.pins_address = (uintptr_t)node->memory->pins;
    options.base_address = (uintptr_t)node->memory->base;
    node->farewells = 0;
    memset(node->heard, 0, sizeof(node->heard));
    memset(node->closed, 0, sizeof(node->closed));
    if (owner_new(&options, &node->owner) != MC_OK) {
        sim_fail(sim, "no memory for an owner");
        return;
    }
    ghost_add_segment(sim, &options.segment, node->memory);
    sim_at(sim, sim->now + sim_units(sim, 20, 100),
           (struct event){.kind = EVENT_PROBE, .node = node->index, .life = node->life});
    node_wake(node, node_now(node));
}

void owners_dies(struct node *node) {
    struct sim *sim = node->sim;
    uint64_t known = sim->now + sim_units(sim, 20, 200);

    node->memory->alive = false;
    lose(node);
    for (uint32_t i = 0; i < sim->segment_count; i++)
        if (sim->segments[i].memory == node->memory) {
            sim_at(sim, known, (struct event){.kind = EVENT_DEATH_KNOWN, .call = i});
        }
    node->owner = owner_free(node->owner);
}

void owners_due(struct node *node) {
    struct outbox out;

    outbox_init(&out);
    owner_step(node->owner, node_now(node), &out);
    network_send_all(node, &out, ORIGIN_CORE, NULL);
    post(node);
}

/* ---- Going ---- */

void owners_drain(struct node *node) {
    struct sim *sim = node->sim;

    TRACE(sim, "%s drains its segment", node->name);
    node->memory->drains = true;
    owner_drain(node->owner);
    post(node);
    sim_at(sim, sim->now + sim_units(sim, 10, 300),
           (struct event){.kind = EVENT_LEAVE, .node = node->index, .life = node->life});
}

void owners_leave(struct node *node) {
    struct message_unmount message = {0};
    struct outbox out;

    TRACE(node->sim, "%s takes its segment away", node->name);
    owner_retire(node->owner);
    lose(node);
    post(node);
    message.segment = *owner_segment(node->owner);
    node->farewells++;
    outbox_init(&out);
    outbox_unmount(&out, 0, &message);
    network_send_all(node, &out, ORIGIN_CORE, NULL);
}

static void farewell_answered(struct node *node, int32_t status) {
    if (status == MC_OK || node->farewells == FAREWELLS)
        node_kill(node);
    else
        owners_leave(node);
}

void owners_answered(struct node *node, struct call *call, const struct letter *letter, int32_t status) {
    if (call->type == MESSAGE_UNMOUNT) {
        farewell_answered(node, status);
        return;
    }
    owner_answer(node->owner, node_now(node), call->tag, status, (uint16_t)(call->type | 1u),
                 letter != NULL ? letter->body : NULL, letter != NULL ? letter->length : 0);
    post(node);
}

/* ---- Death ---- */

struct known {
    struct node *node;
    struct message_id ids[PIN_TABLES * 8];
    size_t count;
};

static void collect(void *context, const struct message_id *client, const char *address) {
    struct known *known = context;

    (void)address;
    if (known->count < sizeof(known->ids) / sizeof(known->ids[0]))
        known->ids[known->count++] = *client;
}

static bool writes_under_way(struct node *node, const struct message_id *client) {
    for (uint32_t i = 0; i < node->memory->active_count; i++) {
        const struct grant *grant = &node->sim->grants[node->memory->active[i]];

        if (grant->inflight > 0 && message_id_equal(&grant->client, client))
            return true;
    }
    return false;
}

void owners_probe(struct node *node) {
    struct sim *sim = node->sim;
    struct known known = {.node = node};

    owner_each_client(node->owner, collect, &known);
    for (size_t i = 0; i < known.count; i++) {
        struct node *client = &sim->nodes[known.ids[i].bytes[0] - 1];
        bool lives = client->alive && message_id_equal(&client->id, &known.ids[i]);
        bool silent = MISTAKE(TIME_IS_PROOF) && node->heard[client->index] + SILENCE < sim->now;

        if (!silent && (lives || writes_under_way(node, &known.ids[i]) || (sim->faults && sim_chance(sim, 400))))
            continue;
        if (!lives)
            node->closed[client->index] = client->alive ? client->life - 1 : client->life;
        TRACE(sim, "%s has proof that %s is gone", node->name, client->name);
        owner_client_gone(node->owner, node_now(node), &known.ids[i]);
        post(node);
    }
    sim_at(sim, sim->now + sim_units(sim, 20, 100),
           (struct event){.kind = EVENT_PROBE, .node = node->index, .life = node->life});
}

/* ---- Remote reads and writes ---- */

static void remote_answer(struct node *node, struct remote *remote, int32_t status) {
    uint64_t length = !remote->write && status == MC_OK ? remote->request.length : 0;
    struct letter *letter = network_letter((uint16_t)((remote->write ? SIM_WRITE : SIM_READ) | 1u), status,
                                           sizeof(remote->request) + length);

    memcpy(letter->body, &remote->request, sizeof(remote->request));
    memcpy(letter->body + sizeof(remote->request), remote->bytes, length);
    network_answer(node, remote->tag, letter);
}

static void remote_end(struct node *node, struct remote *remote, int32_t status) {
    if (remote->counted)
        remote->grant->inflight--;
    remote_answer(node, remote, status);
    free(remote);
    node_wake(node, node_now(node));
}

static bool guard(const struct remote *remote) {
    const struct slot *slot = (const struct slot *)(remote->memory->base + remote->request.slot);
    uint64_t word = slot->word;

    return remote->write ? word == slot_word(remote->request.generation, SLOT_RESERVED)
                         : slot_word_readable(word, remote->request.generation);
}

static void remote_next(struct node *node, struct remote *remote) {
    struct sim *sim = node->sim;
    uint64_t pause = sim->faults && sim_chance(sim, 330) ? sim_units(sim, 0, 40) : sim_units(sim, 0, 1);

    sim_at(sim, sim->now + pause,
           (struct event){.kind = EVENT_REMOTE, .node = node->index, .life = node->life, .what = remote});
}

/* Piece 1 to PIECES of the value; for a write also the key and the description. */
static void copy_piece(struct sim *sim, struct remote *remote) {
    const struct remote_request *request = &remote->request;
    uint64_t from = request->length * (remote->piece - 1) / PIECES;
    uint64_t to = request->length * remote->piece / PIECES;
    uint8_t *place = remote->memory->base + request->offset;
    struct slot *slot = (struct slot *)(remote->memory->base + request->slot);

    if (!remote->write) {
        memcpy(remote->bytes + from, place + from, to - from);
        if (remote->piece == 1)
            remote->request.description = slot->described;
        return;
    }
    ghost_store(sim, remote->memory, request->slot, request->generation, "remote write");
    memcpy(place + from, remote->bytes + from, to - from);
    if (remote->piece == PIECES) {
        memcpy(place + request->length, remote->bytes + request->length, request->key_length);
        slot->described = request->description;
    }
}

void owners_remote(struct node *node, struct event *event) {
    struct remote *remote = event->what;

    if (remote->piece == PIECES) {
        bool fits = guard(remote) || (!remote->write && MISTAKE(NO_SECOND_LOOK));

        if (remote->write)
            remote->grant->written = 2;
        remote_end(node, remote, fits ? MC_OK : MC_ERR_GUARD_MISMATCH);
        return;
    }
    remote->piece++;
    copy_piece(node->sim, remote);
    remote_next(node, remote);
}

/* Executed, only acknowledged, or refused: once per generation, and only while the guard fits. */
static void remote_begin(struct node *node, struct remote *remote) {
    struct remote_request *request = &remote->request;
    struct segment *segment = ghost_segment(node->sim, &request->segment);

    remote->memory = node->memory;
    if (segment == NULL || segment->memory != node->memory ||
        !checked_within(request->slot, sizeof(struct slot), 0, node->memory->size) ||
        !checked_within(request->offset, request->length, 0, node->memory->size)) {
        remote_end(node, remote, MC_ERR_STALE_PEER);
        return;
    }
    remote->grant = ghost_grant(node->sim, node->memory, request->generation);
    if (remote->grant == NULL || !guard(remote)) {
        remote_end(node, remote, MC_ERR_GUARD_MISMATCH);
        return;
    }
    if (remote->write && remote->grant->written != 0 && !MISTAKE(REPEATED_WRITE)) {
        if (remote->grant->written == 2)
            remote_end(node, remote, MC_OK);
        else
            free(remote); /* the first is under way, and will be answered */
        return;
    }
    if (remote->write)
        remote->grant->written = 1;
    remote->counted = true;
    remote->grant->inflight++;
    remote_next(node, remote);
}

void owners_call(struct node *node, uint32_t call, uint64_t tag, uint8_t from, uint32_t life,
                 const struct letter *letter) {
    struct sim *sim = node->sim;
    bool remote = letter->type == SIM_WRITE || letter->type == SIM_READ;

    (void)call;
    node->heard[from] = sim->now;
    if (remote) {
        struct remote_request request; /* the body isn't aligned */
        struct remote *begun;
        size_t length;

        if (life <= node->closed[from])
            return;
        memcpy(&request, letter->body, sizeof(request));
        length = letter->type == SIM_WRITE ? letter->length - sizeof(request) : request.length;
        begun = calloc(1, sizeof(*begun) + length);
        if (begun == NULL)
            abort();
        begun->tag = tag;
        begun->write = letter->type == SIM_WRITE;
        begun->request = request;
        if (begun->write)
            memcpy(begun->bytes, letter->body + sizeof(request), length);
        remote_begin(node, begun);
    } else {
        struct outbox out;

        outbox_init(&out);
        owner_request(node->owner, node_now(node), tag, letter->type, letter->body, letter->length, &out);
        network_answer_all(node, &out);
        post(node);
    }
}

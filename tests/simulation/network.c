/* tests/simulation/network.c - letters between nodes: late, lost, doubled, reordered, cut off; and who waits for what.
 *
 * A request is a call; its tag at the receiver is unique per copy that arrives (tag = call << 2 | copy). The asker hears
 * of each call at least once: an answer, or MC_ERR_TIMEOUT or MC_ERR_CONNECTION_LOST from its own I/O. Later answers and
 * second copies of one reach it all the same, unless the operation that asked has ended.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

struct letter *network_letter(uint16_t type, int32_t status, size_t length) {
    struct letter *letter = malloc(sizeof(*letter) + length);

    if (letter == NULL)
        abort();
    *letter = (struct letter){.type = type, .status = status, .length = (uint32_t)length};
    return letter;
}

static struct letter *copy_letter(const struct letter *letter) {
    struct letter *copy = network_letter(letter->type, letter->status, letter->length);

    memcpy(copy->body, letter->body, letter->length);
    return copy;
}

/* How long a letter takes that answers this type, or none. */
static uint64_t travel(struct sim *sim, uint16_t answered) {
    if (sim->faults && sim->weather.echoes && answered == MESSAGE_LOOKUP && sim_chance(sim, 600))
        return sim_units(sim, 150, 400); /* another master may lead by then */
    return sim->faults && sim_chance(sim, sim->weather.late) ? sim_units(sim, 10, 400) : sim_units(sim, 1, 12);
}

/* Sends, or loses. Takes the letter. */
static void transmit(struct node *from, uint8_t to, uint32_t call, bool answer, struct letter *letter) {
    struct sim *sim = from->sim;
    uint64_t chance = sim_below(sim, 1000);
    uint32_t copies = 1;

    if (sim->faults) {
        copies = chance < sim->weather.lost ? 0 : chance < sim->weather.lost + 60u ? 2 : 1;
        if (sim->cut[from->index][to])
            copies = 0;
    }
    for (uint32_t copy = 0; copy < copies; copy++) {
        uint64_t delay = travel(sim, answer ? sim->calls[call].type : 0);

        sim_at(sim, sim->now + delay,
               (struct event){.kind = EVENT_ARRIVAL,
                              .node = to,
                              .from = from->index,
                              .answer = answer,
                              .life = from->life,
                              .call = call,
                              .copy = copy,
                              .letter = copy + 1 == copies ? letter : copy_letter(letter)});
    }
    if (copies == 0)
        free(letter);
}

static struct call *add_call(struct sim *sim) {
    if (++sim->call_count >= sim->call_capacity) {
        sim->call_capacity = sim->call_capacity == 0 ? 4096 : 2 * sim->call_capacity;
        sim->calls = realloc(sim->calls, sim->call_capacity * sizeof(*sim->calls));
        if (sim->calls == NULL)
            abort();
    }
    sim->calls[sim->call_count] = (struct call){0};
    return &sim->calls[sim->call_count];
}

/* How long the asker's I/O waits. */
static uint64_t patience(struct sim *sim, uint16_t type) {
    if (sim->faults && sim->weather.echoes && type == MESSAGE_LOOKUP)
        return 500 * UNIT;
    if (sim->faults && sim_chance(sim, sim->weather.patient ? 500 : 40) && type != MESSAGE_POLL)
        return sim_units(sim, 100, 400);
    switch (type) {
    case MESSAGE_POLL:
        return sim_units(sim, 60, 80);
    case MESSAGE_PUBLISH:
    case MESSAGE_REMOVE:
    case MESSAGE_LOOKUP:
    case MESSAGE_PROBE:
        return sim_units(sim, 25, 60);
    case SIM_WRITE:
        return sim_units(sim, 60, 120);
    default:
        return sim_units(sim, 25, 35);
    }
}

/* Sends a request of `from`; takes the letter. */
uint32_t network_call(struct node *from, uint8_t to, uint8_t origin, bool io, struct letter *letter) {
    struct sim *sim = from->sim;
    struct call *call = add_call(sim);
    uint32_t number = sim->call_count;

    *call = (struct call){.from = from->index,
                          .to = to,
                          .origin = origin,
                          .io = io,
                          .type = letter->type,
                          .from_life = from->life,
                          .serial = origin == ORIGIN_CORE ? 0 : from->loops[origin].serial,
                          .tag = letter->tag};
    watch_request(from, call, letter);
    sim_at(
        sim, sim->now + patience(sim, letter->type),
        (struct event){
            .kind = EVENT_TIMEOUT, .node = from->index, .life = from->life, .call = number, .status = MC_ERR_TIMEOUT});
    transmit(from, to, number, false, letter);
    return number;
}

/* Sends the requests that a core has put into `out`. */
void network_send_all(struct node *from, struct outbox *out, uint8_t origin, uint32_t *ret_sent) {
    static const struct message_id nobody;
    struct sim *sim = from->sim;
    struct letter *letter;
    uint32_t sent = 0;

    while ((letter = outbox_take(out)) != NULL) {
        const struct segment *segment = NULL;
        uint8_t to = from->guess;

        if (!message_id_equal(&letter->to, &nobody)) {
            segment = ghost_segment(sim, &letter->to);
            if (segment == NULL) {
                sim_fail(sim, "%s sends a letter to a segment that never was", from->name);
                free(letter);
                continue;
            }
            to = segment->memory->owner;
        }
        network_call(from, to, origin, false, letter);
        sent++;
    }
    if (ret_sent != NULL)
        *ret_sent = sent;
}

/* Answers the request with this tag; takes the letter. */
void network_answer(struct node *from, uint64_t tag, struct letter *letter) {
    struct sim *sim = from->sim;
    uint32_t number = (uint32_t)(tag >> 2);

    if (number == 0 || number > sim->call_count || sim->calls[number].to != from->index) {
        sim_fail(sim, "%s answers a request that it didn't get", from->name);
        free(letter);
        return;
    }
    watch_answer(from, &sim->calls[number], letter);
    transmit(from, sim->calls[number].from, number, true, letter);
}

void network_answer_all(struct node *from, struct outbox *out) {
    struct letter *letter;

    while ((letter = outbox_take(out)) != NULL)
        network_answer(from, letter->tag, letter);
}

/* A master that doesn't lead, or hasn't answered for a while, is given up for the other one. */
static void guess(struct node *node, uint8_t master, int32_t status, bool answered) {
    struct sim *sim = node->sim;

    if (node->guess != master)
        return;
    if (answered && status != MC_ERR_UNAVAILABLE)
        node->guided = sim->now;
    else if ((answered || node->guided + 60u * UNIT < sim->now) && sim_chance(sim, 800))
        node->guess = (uint8_t)((node->guess + 1) % MASTERS);
}

/* The asker hears. */
static void hear(struct node *node, uint32_t number, const struct letter *letter, int32_t status) {
    struct sim *sim = node->sim;
    struct call call = sim->calls[number]; /* the table may move meanwhile */

    sim->calls[number].answered = true;
    if (call.to < MASTERS)
        guess(node, call.to, status, letter != NULL);
    if (node->role == OWNER_NODE)
        owners_answered(node, &call, letter, status);
    else
        clients_answered(node, &call, letter, status);
}

/* The receiver is dead: a connection that ends is noticed, or not. */
static void refuse(struct node *node, struct event *event) {
    struct sim *sim = node->sim;
    struct call *call = &sim->calls[event->call];

    if (!event->answer && sim_chance(sim, 500))
        sim_at(sim, sim->now + sim_units(sim, 1, 12),
               (struct event){.kind = EVENT_TIMEOUT,
                              .node = call->from,
                              .life = call->from_life,
                              .call = event->call,
                              .status = MC_ERR_CONNECTION_LOST});
    free(event->letter);
}

void network_arrive(struct node *node, struct event *event) {
    struct sim *sim = node->sim;
    struct call *call = &sim->calls[event->call];
    struct letter *letter = event->letter;

    if (sim->faults && sim->cut[event->from][node->index]) {
        free(letter);
        return;
    }
    if (!node->alive) {
        refuse(node, event);
        return;
    }
    if (event->answer) {
        if (node->life == call->from_life) {
            TRACE(sim, "%s <- %s answer #%u %s %d", node->name, sim->nodes[event->from].name, event->call,
                  watch_name(call->type), letter->status);
            hear(node, event->call, letter, letter->status);
        }
        free(letter);
        return;
    }
    TRACE(sim, "%s <- %s request #%u %s", node->name, sim->nodes[event->from].name, event->call,
          watch_name(letter->type));
    watch_delivered(node, call, letter);
    if (node->role == MASTER_NODE)
        masters_call(node, (uint64_t)event->call << 2 | event->copy, letter);
    else
        owners_call(node, event->call, (uint64_t)event->call << 2 | event->copy, event->from, event->life, letter);
    free(letter);
}

void network_timeout(struct node *node, struct event *event) {
    struct sim *sim = node->sim;
    struct call *call = &sim->calls[event->call];
    uint8_t to;

    if (call->answered)
        return;
    TRACE(sim, "%s waits no more for #%u %s: %s", node->name, event->call, watch_name(call->type),
          event->status == MC_ERR_TIMEOUT ? "time is up" : "connection lost");
    to = call->to;
    hear(node, event->call, NULL, event->status);
    if (to < MASTERS && sim_chance(sim, 500)) /* the connection's end tells the master, some time later */
        sim_at(sim, sim->now + sim_units(sim, 1, 100),
               (struct event){.kind = EVENT_FORGET, .node = to, .call = event->call});
}

void network_forget(struct node *node, struct event *event) {
    if (!node->alive)
        return;
    for (uint64_t copy = 0; copy < 2; copy++)
        master_forget(node->master, (uint64_t)event->call << 2 | copy);
}

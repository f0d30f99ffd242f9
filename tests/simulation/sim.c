/* tests/simulation/sim.c - the queue of events, the clocks, the nodes' lives, and the loop of a run. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 400000u /* a run that needs more spins on the spot */

uint64_t mistakes_planted;

/* ---- Words ---- */

void sim_fail(struct sim *sim, const char *format, ...) {
    va_list arguments;

    if (sim->failed)
        return;
    sim->failed = true;
    va_start(arguments, format);
    vsnprintf(sim->violation, sizeof(sim->violation), format, arguments);
    va_end(arguments);
    TRACE(sim, "VIOLATION %s", sim->violation);
}

void sim_trace(struct sim *sim, const char *format, ...) {
    va_list arguments;

    printf("%9.3f ", (double)sim->now / UNIT);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

/* ---- Chance ---- */

uint64_t sim_below(struct sim *sim, uint64_t bound) {
    return random_below(&sim->random, bound);
}

bool sim_chance(struct sim *sim, uint32_t thousandths) {
    return sim_below(sim, 1000) < thousandths;
}

uint64_t sim_units(struct sim *sim, uint64_t least, uint64_t most) {
    return least * UNIT + sim_below(sim, (most - least) * UNIT + 1);
}

void sim_id(struct sim *sim, uint8_t node, struct message_id *ret_id) {
    uint64_t halves[2] = {random_next(&sim->random), random_next(&sim->random)};

    memcpy(ret_id->bytes, halves, sizeof(halves));
    ret_id->bytes[0] = (uint8_t)(node + 1);
}

/* ---- The queue: a heap ---- */

static bool earlier(const struct event *one, const struct event *other) {
    return one->time != other->time ? one->time < other->time : one->order < other->order;
}

static void push(struct sim *sim, const struct event *event) {
    size_t place = sim->event_count++;

    if (sim->event_count > sim->event_capacity) {
        sim->event_capacity = sim->event_capacity == 0 ? 1024 : 2 * sim->event_capacity;
        sim->events = realloc(sim->events, sim->event_capacity * sizeof(*sim->events));
        if (sim->events == NULL)
            abort();
    }
    while (place > 0 && earlier(event, &sim->events[(place - 1) / 2])) {
        sim->events[place] = sim->events[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    sim->events[place] = *event;
}

static struct event pop(struct sim *sim) {
    struct event first = sim->events[0];
    struct event last = sim->events[--sim->event_count];
    size_t place = 0;

    for (;;) {
        size_t child = 2 * place + 1;

        if (child >= sim->event_count)
            break;
        if (child + 1 < sim->event_count && earlier(&sim->events[child + 1], &sim->events[child]))
            child++;
        if (!earlier(&sim->events[child], &last))
            break;
        sim->events[place] = sim->events[child];
        place = child;
    }
    if (sim->event_count > 0)
        sim->events[place] = last;
    return first;
}

void sim_at(struct sim *sim, uint64_t time, struct event event) {
    event.time = time;
    event.order = ++sim->order;
    push(sim, &event);
}

/* ---- Clocks ---- */

uint64_t node_now(const struct node *node) {
    return node->offset + node->sim->now * node->rate / 1000;
}

/* The node's core wants to be called at this time of its clock; it is, some time later. */
void node_wake(struct node *node, uint64_t local) {
    struct sim *sim = node->sim;
    uint64_t time;

    if (local == CLOCK_NEVER)
        return;
    time = local <= node->offset ? 0 : (local - node->offset) * 1000 / node->rate + 1;
    time = (time < sim->now ? sim->now : time) + 1 + sim_below(sim, UNIT / 2);
    if (node->wake != 0 && node->wake <= time)
        return;
    node->wake = time;
    sim_at(sim, time, (struct event){.kind = EVENT_WAKE, .node = node->index, .life = node->life});
}

/* ---- Lives ---- */

static void born(struct node *node) {
    node->alive = true;
    node->life++;
    node->paused = 0;
    node->wake = 0;
    node->guess = (uint8_t)sim_below(node->sim, MASTERS);
    TRACE(node->sim, "%s is born, life %u", node->name, node->life);
    if (node->role == MASTER_NODE)
        masters_born(node);
    else if (node->role == OWNER_NODE)
        owners_born(node);
    else
        clients_born(node);
}

static void dies(struct node *node) {
    if (!node->alive)
        return;
    if (node->role == MASTER_NODE)
        masters_dies(node);
    else if (node->role == OWNER_NODE)
        owners_dies(node);
    else
        clients_dies(node);
    node->alive = false;
}

void node_kill(struct node *node) {
    struct sim *sim = node->sim;

    TRACE(sim, "%s is killed", node->name);
    dies(node);
    sim_at(sim, sim->now + sim_units(sim, 20, 300),
           (struct event){.kind = EVENT_REBORN, .node = node->index, .life = node->life});
}

/* ---- The loop ---- */

/* True if the event must wait, or is nobody's any more. */
static bool put_off(struct sim *sim, struct event *event) {
    struct node *node = &sim->nodes[event->node];

    if (event->kind == EVENT_WEATHER || event->kind == EVENT_REBORN || event->kind == EVENT_DEATH_KNOWN)
        return false;
    if (event->kind != EVENT_ARRIVAL && event->kind != EVENT_FORGET && (!node->alive || node->life != event->life)) {
        if (event->kind == EVENT_REMOTE) {
            free(event->letter);
            free(event->what);
        }
        return true;
    }
    if (!node->alive || node->paused <= sim->now)
        return false;
    if (event->kind == EVENT_WAKE)
        node->wake = 0;
    event->time = node->paused + sim_below(sim, 5 * UNIT);
    if (event->kind == EVENT_WAKE)
        node->wake = event->time;
    event->order = ++sim->order;
    push(sim, event);
    return true;
}

static void wake(struct node *node, const struct event *event) {
    if (node->wake == event->time)
        node->wake = 0;
    if (node->role == MASTER_NODE)
        masters_due(node);
    else if (node->role == OWNER_NODE)
        owners_due(node);
    else
        clients_due(node);
}

static void handle(struct sim *sim, struct event *event) {
    struct node *node = &sim->nodes[event->node];

    switch ((enum event_kind)event->kind) {
    case EVENT_ARRIVAL:
        network_arrive(node, event);
        break;
    case EVENT_WAKE:
        wake(node, event);
        break;
    case EVENT_TIMEOUT:
        network_timeout(node, event);
        break;
    case EVENT_FORGET:
        network_forget(node, event);
        break;
    case EVENT_LOOP:
        users_step(event->what);
        break;
    case EVENT_LEAD:
    case EVENT_RENEWED:
        masters_election(node, event);
        break;
    case EVENT_REMOTE:
        owners_remote(node, event);
        break;
    case EVENT_PROBE:
        owners_probe(node);
        break;
    case EVENT_LEAVE:
        owners_leave(node);
        break;
    case EVENT_REBORN:
        if (!node->alive && node->life == event->life)
            born(node);
        break;
    case EVENT_DEATH_KNOWN:
        masters_owner_died(sim, event);
        break;
    case EVENT_WEATHER:
        weather_change(sim);
        break;
    }
}

/* Goes on until `until`, or until the cluster is quiet when `quiet`. */
static void run_until(struct sim *sim, uint64_t until, bool quiet) {
    uint64_t look = sim->now + 600u * UNIT;

    while (!sim->failed && sim->event_count > 0 && sim->events[0].time <= until) {
        struct event event = pop(sim);

        sim->now = event.time;
        if (++sim->steps > STEPS_MAX) {
            sim_fail(sim, "liveness: the cluster spins on the spot");
            free(event.letter);
            return;
        }
        if (!put_off(sim, &event))
            handle(sim, &event);
        if (quiet && sim->now >= look) {
            look = sim->now + 20u * UNIT;
            if (finale_quiet(sim, NULL, 0))
                return;
        }
    }
    if (sim->now < until && !sim->failed)
        sim->now = until;
}

static void settle(struct sim *sim, const char *what) {
    char why[256];

    run_until(sim, sim->now + SETTLE_MAX, true);
    if (!sim->failed && !finale_quiet(sim, why, sizeof(why)))
        sim_fail(sim, "liveness: %s the cluster doesn't settle: %s", what, why);
}

static void begin(struct sim *sim, uint64_t seed, bool trace) {
    sim->seed = seed;
    sim->random.state = seed * 0x2545f4914f6cdd1dull + 1;
    sim->now = UNIT;
    sim->order = 0;
    sim->steps = 0;
    sim->faults = true;
    sim->trace = trace;
    sim->failed = false;
    sim->event_count = 0;
    sim->call_count = 0;
    sim->epoch = 0;
    sim->lead_until = 0;
    sim->leader = 0;
    sim->member_count = 0;
    sim->reads = sim->puts = sim->ops = 0;
    memset(sim->cut, 0, sizeof(sim->cut));
    memset(sim->nodes, 0, sizeof(sim->nodes));
    ghost_reset(sim);
    weather_choose(sim);
}

static void people(struct sim *sim) {
    sim->node_count = 0;
    for (uint32_t i = 0; i < MASTERS + sim->weather.owners + sim->weather.clients; i++) {
        struct node *node = &sim->nodes[sim->node_count];

        node->sim = sim;
        node->index = (uint8_t)sim->node_count++;
        node->role = i < MASTERS ? MASTER_NODE : i < MASTERS + sim->weather.owners ? OWNER_NODE : CLIENT_NODE;
        snprintf(node->name, sizeof(node->name), "%c%u", "MOC"[node->role],
                 (i - (node->role == MASTER_NODE  ? 0
                       : node->role == OWNER_NODE ? MASTERS
                                                  : MASTERS + sim->weather.owners)) %
                     10);
        node->offset = 1 + sim_below(sim, 1000000u * UNIT);
        node->rate = 990 + sim_below(sim, 21);
        for (uint32_t other = 0; other < NODES_MAX; other++)
            node->mapped[other] = sim_chance(sim, 600);
        sim_id(sim, node->index, &node->id);
    }
    for (uint32_t i = 0; i < sim->node_count; i++)
        born(&sim->nodes[i]);
}

static void end(struct sim *sim) {
    for (uint32_t i = 0; i < sim->node_count; i++)
        dies(&sim->nodes[i]);
    for (size_t i = 0; i < sim->event_count; i++) {
        if (sim->events[i].kind == EVENT_REMOTE)
            free(sim->events[i].what);
        free(sim->events[i].letter);
    }
    sim->event_count = 0;
}

bool sim_run(struct sim *sim, uint64_t seed, bool trace) {
    begin(sim, seed, trace);
    people(sim);
    sim_at(sim, sim->now, (struct event){.kind = EVENT_WEATHER});
    run_until(sim, sim->weather.echoes ? 2 * FAULTS_END : FAULTS_END, false);
    weather_clear(sim);
    settle(sim, "after the faults");
    if (!sim->failed)
        finale_check(sim);
    for (uint32_t i = 0; i < sim->node_count && !sim->failed; i++)
        if (sim->nodes[i].role == CLIENT_NODE && sim->nodes[i].alive) {
            sim->nodes[i].retired = true;
            client_retire(sim->nodes[i].client, node_now(&sim->nodes[i]));
            node_wake(&sim->nodes[i], 0);
        }
    if (!sim->failed)
        settle(sim, "with all clients retired");
    if (!sim->failed)
        finale_check_retired(sim);
    end(sim);
    return !sim->failed;
}

struct sim *sim_new(void) {
    struct sim *sim = calloc(1, sizeof(*sim));

    if (sim == NULL)
        return NULL;
    sim->grants = calloc(GRANTS_MAX, sizeof(*sim->grants));
    sim->vids = calloc(VIDS_MAX, sizeof(*sim->vids));
    sim->mutations = calloc(MUTATIONS_MAX, sizeof(*sim->mutations));
    if (sim->grants == NULL || sim->vids == NULL || sim->mutations == NULL)
        return sim_free(sim);
    return sim;
}

struct sim *sim_free(struct sim *sim) {
    if (sim == NULL)
        return NULL;
    ghost_reset(sim);
    free(sim->grants);
    free(sim->vids);
    free(sim->mutations);
    free(sim->calls);
    free(sim->events);
    free(sim);
    return NULL;
}

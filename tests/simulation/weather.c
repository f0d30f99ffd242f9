/* tests/simulation/weather.c - what a run is like, and what goes wrong in it. */
#include "sim.h"

#include <string.h>

void weather_choose(struct sim *sim) {
    struct weather *weather = &sim->weather;

    *weather = (struct weather){
        .owners = 1 + (uint32_t)sim_below(sim, 2),
        .clients = 2 + (uint32_t)sim_below(sim, 2),
        .small = sim_chance(sim, 500),
        .master_crashes = sim_chance(sim, 350),
        .expels = sim_chance(sim, 150),
        .replicas = sim_chance(sim, 300) ? 2 : 1,
        .fault_gap = 25 + (uint32_t)sim_below(sim, sim_chance(sim, 400) ? 50 : 400),
        .lost = sim_chance(sim, 500) ? 80 : 20,
        .hot_keys = 1 + (uint32_t)sim_below(sim, HOT_KEYS),
        .hot = sim_chance(sim, 500) ? 550 : 900,
        .late = sim_chance(sim, 300) ? 150 : 60,
    };
    if (sim->seed % 10 == 7) {
        weather->patient = weather->master_crashes = true;
        weather->late = 200;
        weather->lost = 20;
    }
    if (sim->seed % 10 == 3) { /* what a deposed master has answered is still on its way */
        weather->echoes = true;
        weather->owners = 2;
        weather->clients = 3;
        weather->small = weather->expels = false;
        weather->fault_gap = 60;
        weather->lost = 20;
        weather->hot = 850;
        weather->hot_keys = 2;
    }
    if (sim->seed % 10 == 5 || sim->seed % 10 == 8) {
        weather->leaves = true;
        weather->owners = 2;
    }
    if (weather->small) {
        weather->segment_size = 4096 * (2 + sim_below(sim, 3));
        weather->value_min = 400;
        weather->value_max = 1800;
        weather->stock_bytes = sim_chance(sim, 500) ? 0 : 4096;
    } else {
        weather->segment_size = 4096 * 24;
        weather->value_min = 8;
        weather->value_max = sim_chance(sim, 500) ? 120 : 400;
        weather->stock_bytes = sim_chance(sim, 300) ? 0 : 8192;
    }
    sim->timing = (struct store_timing){
        .lease = (weather->echoes ? 60u : LEASE) * UNIT,
        .lease_slack = 5 * UNIT,
        .kill_wait = 40 * UNIT,
        .resend = 20 * UNIT,
        .poll = 20 * UNIT,
        .promote = 4 * UNIT,
        .beat = 25 * UNIT,
        .settle_beat = 15 * UNIT,
        .owner_ttl = (weather->expels ? 300u : 3000u) * UNIT,
        .client_ttl = 4000 * UNIT,
        .grace = 150 * UNIT,
        .retry = 5 * UNIT,
        .stock_age = 300 * UNIT,
    };
}

static struct node *any_node(struct sim *sim) {
    return &sim->nodes[sim_below(sim, sim->node_count)];
}

static void pause_node(struct sim *sim, struct node *node) {
    static const uint32_t lengths[] = {20, 60, 200, 400};
    uint64_t until = sim->now + lengths[sim_below(sim, 4)] * UNIT;

    if (!node->alive)
        return;
    node->paused = until;
    TRACE(sim, "%s pauses until %.1f", node->name, (double)until / UNIT);
}

static void partition(struct sim *sim) {
    struct node *one = any_node(sim), *other = any_node(sim);

    if (one == other)
        return;
    sim->cut[one->index][other->index] = sim->cut[other->index][one->index] = true;
    TRACE(sim, "%s and %s don't reach each other", one->name, other->name);
}

/* An owner is out of the masters' reach, or a client; the others reach it. */
static void isolate(struct sim *sim, struct node *node) {
    for (uint32_t i = 0; i < MASTERS; i++)
        sim->cut[node->index][i] = sim->cut[i][node->index] = true;
    TRACE(sim, "%s and the masters don't reach each other", node->name);
}

/* Is an owner out of a master's reach? */
bool weather_isolates(const struct sim *sim) {
    for (uint32_t i = 0; i < sim->weather.owners; i++)
        if (sim->cut[0][MASTERS + i] || sim->cut[1][MASTERS + i])
            return true;
    return false;
}

static void heal(struct sim *sim) {
    memset(sim->cut, 0, sizeof(sim->cut));
    TRACE(sim, "all reach each other again");
}

static void crash(struct sim *sim) {
    struct node *node = any_node(sim);

    if (sim->weather.master_crashes && sim_chance(sim, 600) && masters_leading(sim) != NULL)
        node = masters_leading(sim);
    if (node->alive)
        node_kill(node);
}

/* A master that has led for a while goes; when its successor serves, owners are out of its reach for long. */
static void change_echoing(struct sim *sim) {
    struct node *leader = masters_leading(sim);
    bool serves = leader != NULL && leader->served;
    uint64_t chance = sim_below(sim, 1000);

    if (serves && sim->now > leader->led_at + 250 * UNIT && chance < 600) {
        heal(sim);
        node_kill(leader);
    } else if (serves && chance < 900) {
        isolate(sim, &sim->nodes[MASTERS + sim_below(sim, sim->weather.owners)]);
    }
}

/* An owner takes its segment away, while the other one has its own. */
static void drain(struct sim *sim) {
    struct node *owners = &sim->nodes[MASTERS];
    uint32_t goes = (uint32_t)sim_below(sim, 2);

    if (owners[0].alive && owners[1].alive && !owners[0].memory->drains && !owners[1].memory->drains &&
        owners[goes].paused <= sim->now)
        owners_drain(&owners[goes]);
}

void weather_change(struct sim *sim) {
    uint64_t chance = sim_below(sim, 1000);

    if (!sim->faults)
        return;
    if (sim->weather.master_crashes && sim_chance(sim, 500))
        chance = 900;
    if (sim->weather.echoes) {
        change_echoing(sim);
    } else if (sim->now > 60 * UNIT && sim->weather.leaves && sim_chance(sim, 300)) {
        drain(sim);
    } else if (sim->now > 60 * UNIT) {
        if (chance < 400)
            pause_node(sim, any_node(sim));
        else if (chance < 520)
            partition(sim);
        else if (chance < 650)
            isolate(sim, &sim->nodes[MASTERS + sim_below(sim, sim->node_count - MASTERS)]);
        else if (chance < 860)
            heal(sim);
        else
            crash(sim);
    }
    sim_at(sim, sim->now + sim_units(sim, 0, 2 * sim->weather.fault_gap), (struct event){.kind = EVENT_WEATHER});
}

void weather_clear(struct sim *sim) {
    sim->faults = false;
    heal(sim);
    for (uint32_t i = 0; i < sim->node_count; i++)
        if (sim->nodes[i].paused > sim->now)
            sim->nodes[i].paused = sim->now;
    TRACE(sim, "the faults end");
}

/* tests/simulation/masters.c - masters: a core each, and the election record that makes one of them leader.
 *
 * The record (epoch, leader, until when, members) stands for a store like etcd: it is read and written at once, also
 * during partitions, but a renewal is sent at one time and carried out at a later one. A leader counts from the first.
 */
#include "sim.h"

#include <string.h>

/* By which a master ends its leadership earlier than the record: clocks differ by up to 2 %. */
#define LEAD_SLACK (5u * UNIT)

struct node *masters_leading(struct sim *sim) {
    struct node *node = &sim->nodes[sim->leader];

    return sim->epoch > 0 && node->alive && master_epoch(node->master) == sim->epoch ? node : NULL;
}

/* The core's list of members goes to the record; where another leads by now, that is refused. */
static void keep_members(void *context, struct master *master) {
    struct node *node = context;
    struct sim *sim = node->sim;

    if (sim->leader != node->index || sim->epoch != master_epoch(master)) {
        node->kept = MISTAKE(LEADERSHIP_NOT_CHECKED);
        return;
    }
    sim->member_count = master_members(master, sim->members, SEGMENTS_MAX);
    ghost_members(sim);
}

/* After each call of the core: its answers go, unless the members couldn't be kept. */
static void post(struct node *node, struct outbox *out) {
    struct sim *sim = node->sim;
    bool serves = master_serves(node->master, node_now(node));

    if (!node->kept) {
        TRACE(sim, "%s can't keep its members and steps down", node->name);
        outbox_clear(out);
        master_step_down(node->master);
        node->kept = true;
        serves = false;
    }
    if (serves && !node->served && masters_leading(sim) == node) {
        TRACE(sim, "%s serves", node->name);
        /* Only when the grace time is over may some not have announced. */
        for (uint32_t i = 0; i < sim->segment_count && sim->now - node->led_at > 145u * UNIT; i++)
            if (sim->segments[i].member && sim->segments[i].mounted != sim->epoch)
                sim->segments[i].late = true;
    }
    node->served = serves;
    if (master_count(node->master).evicted > sim->evicted[node->index]) {
        sim->evicted[node->index] = master_count(node->master).evicted;
        sim->evicted_at = sim->now;
    }
    network_answer_all(node, out);
    node_wake(node, master_wake(node->master));
}

void masters_born(struct node *node) {
    struct sim *sim = node->sim;
    struct master_options options = {
        .timing = sim->timing,
        .policy = sim_chance(sim, 500) ? "hazard" : "lru",
        .high_watermark = sim->weather.small ? 850 : 1000,
        .eviction = sim->weather.small ? 50 : 0,
        .keep_soft_pinned = sim_chance(sim, 500),
        .members_changed = keep_members,
        .context = node,
    };

    if (master_new(&options, &node->master) != MC_OK)
        sim_fail(sim, "no memory for a master");
    node->renewing = 0;
    node->lost_at = 0;
    node->served = false;
    node->kept = true;
    sim->evicted[node->index] = 0;
    sim_at(sim, sim->now + sim_units(sim, 1, 40),
           (struct event){.kind = EVENT_LEAD, .node = node->index, .life = node->life});
}

void masters_dies(struct node *node) {
    node->master = master_free(node->master);
}

/* The renewal, or the bid, reaches the record. */
static void carry_out(struct node *node) {
    struct sim *sim = node->sim;
    uint64_t until = node->renewing + LEAD * UNIT - LEAD_SLACK;
    struct outbox out;

    outbox_init(&out);
    if (master_epoch(node->master) != 0 && sim->leader == node->index && sim->epoch == master_epoch(node->master)) {
        sim->lead_until = sim->now + LEAD * UNIT;
        master_lead(node->master, node_now(node), sim->epoch, until, NULL, 0, false);
    } else if (sim->lead_until < sim->now && master_epoch(node->master) == 0) {
        sim->epoch++;
        sim->leader = node->index;
        sim->lead_until = sim->now + LEAD * UNIT;
        node->served = false;
        node->led_at = sim->now;
        TRACE(sim, "%s leads epoch %lu with %zu members", node->name, sim->epoch, sim->member_count);
        master_lead(node->master, node_now(node), sim->epoch, until, sim->members, sim->member_count, sim->epoch > 1);
        master_step(node->master, node_now(node), &out);
    } else if (master_epoch(node->master) != 0) {
        if (node->lost_at == 0)
            node->lost_at = sim->now;
        if (!MISTAKE(LEADERSHIP_NOT_CHECKED) || sim->now > node->lost_at + 400u * UNIT) {
            TRACE(sim, "%s leads no more", node->name);
            master_step_down(node->master);
            node->lost_at = 0;
        }
    }
    post(node, &out);
}

void masters_election(struct node *node, struct event *event) {
    struct sim *sim = node->sim;
    uint64_t next;

    if (event->kind == EVENT_RENEWED) {
        carry_out(node);
        node->renewing = 0;
        next = master_epoch(node->master) != 0 ? sim_units(sim, 40, 55) : sim_units(sim, 5, 40);
        event->kind = EVENT_LEAD;
    } else {
        node->renewing = node_now(node);
        next = sim_chance(sim, 50) && sim->faults ? sim_units(sim, 20, 150) : sim_units(sim, 0, 5);
        event->kind = EVENT_RENEWED;
    }
    sim_at(sim, sim->now + next, (struct event){.kind = event->kind, .node = node->index, .life = node->life});
}

void masters_call(struct node *node, uint64_t tag, const struct letter *letter) {
    struct outbox out;

    outbox_init(&out);
    master_request(node->master, node_now(node), tag, letter->type, letter->body, letter->length, &out);
    post(node, &out);
}

void masters_due(struct node *node) {
    struct outbox out;

    outbox_init(&out);
    master_step(node->master, node_now(node), &out);
    post(node, &out);
}

/* The leader is told, or the record is changed where nobody leads; else again a while later. */
void masters_owner_died(struct sim *sim, struct event *event) {
    struct segment *segment = &sim->segments[event->call];
    struct node *leader = masters_leading(sim);
    struct outbox out;

    if (!segment->member)
        return;
    outbox_init(&out);
    if (leader != NULL && leader->paused <= sim->now && sim->lead_until > sim->now) {
        TRACE(sim, "%s hears that %s's segment is gone", leader->name, sim->nodes[segment->memory->owner].name);
        master_expel(leader->master, node_now(leader), &segment->id);
        master_step(leader->master, node_now(leader), &out);
        post(leader, &out);
    } else if (leader == NULL && sim->lead_until < sim->now) {
        for (size_t i = 0; i < sim->member_count; i++)
            if (message_id_equal(&sim->members[i], &segment->id))
                sim->members[i--] = sim->members[--sim->member_count];
        ghost_members(sim);
    }
    if (segment->member)
        sim_at(sim, sim->now + sim_units(sim, 20, 60), *event);
}

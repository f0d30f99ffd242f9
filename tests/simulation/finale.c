/* tests/simulation/finale.c - when the faults are over: everything settles, all that was acknowledged is there, and no
 * slot is lost. */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

static bool say(char *why, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

static bool say(char *why, size_t size, const char *format, ...) {
    va_list arguments;

    va_start(arguments, format);
    if (why != NULL)
        vsnprintf(why, size, format, arguments);
    va_end(arguments);
    return false;
}

static bool client_settled(const struct node *node, char *why, size_t size) {
    struct client_count count = client_count(node->client);

    for (uint32_t i = 0; i < LOOPS; i++)
        if (node->loops[i].state != LOOP_IDLE)
            return say(why, size, "%s.%u is in state %d of operation %u (kind %d)", node->name, i, node->loops[i].state,
                       node->loops[i].serial, node->loops[i].op.kind);
    if (node->retired && count.stock > 0)
        return say(why, size, "%s is retired and has %lu slots in stock", node->name, count.stock);
    if (!client_quiet(node->client))
        return say(why, size, "%s isn't quiet: %lu unsettled, %lu to be returned", node->name, count.unsettled,
                   count.returns);
    return true;
}

static bool owner_settled(const struct node *node, char *why, size_t size) {
    struct sim *sim = node->sim;
    struct owner_usage usage = owner_usage(node->owner);
    const struct segment *segment = ghost_segment(sim, owner_segment(node->owner));

    if (owner_drains(node->owner))
        return say(why, size, "%s has yet to go", node->name);
    if (!owner_mounted(node->owner) || segment == NULL || !segment->member)
        return say(why, size, "%s isn't mounted", node->name);
    if (usage.dead > 0)
        return say(why, size, "%s has %lu DEAD slots", node->name, usage.dead);
    for (uint32_t i = 0; i < node->memory->active_count; i++) {
        const struct grant *grant = &sim->grants[node->memory->active[i]];
        const struct node *holder = &sim->nodes[grant->holder];

        if (grant->seen == slot_word(grant->generation, SLOT_RESERVED) &&
            (!holder->alive || holder->life != grant->life))
            return say(why, size, "slot %lu of %s is still reserved for a dead %s", grant->slot, node->name,
                       holder->name);
    }
    return true;
}

/* Is there nothing left to do? Else `why` says what, for people. */
bool finale_quiet(struct sim *sim, char *why, size_t size) {
    struct node *leader = masters_leading(sim);
    struct master_count count;

    for (uint32_t i = 0; i < sim->node_count; i++) {
        struct node *node = &sim->nodes[i];

        if (!node->alive)
            return say(why, size, "%s is dead", node->name);
        if (node->role == CLIENT_NODE && !client_settled(node, why, size))
            return false;
        if (node->role == OWNER_NODE && !owner_settled(node, why, size))
            return false;
    }
    if (leader == NULL || !master_serves(leader->master, node_now(leader)))
        return say(why, size, "no master serves");
    count = master_count(leader->master);
    if (count.kills > 0 || count.doubts > 0 || count.waiting > 0)
        return say(why, size, "%s has %lu kills, %lu doubts, %lu waiting requests", leader->name, count.kills,
                   count.doubts, count.waiting);
    return true;
}

/* ---- The index ---- */

/* Asks the leading master's core for a key; what it lists is marked, and must be LIVE and of the key. */
static void check_key(struct sim *sim, struct node *leader, uint32_t key, bool *listed, uint32_t *ret_vid) {
    struct message_lookup message = {.epoch = sim->epoch};
    struct message_located located;
    struct message_finding finding;
    struct message_location location;
    struct message_place place;
    struct outbox out;
    struct letter *letter;
    struct items keys;
    uint8_t body[256];
    int64_t size;

    items_init(&keys);
    items_append(&keys, sim->keys[key].name, sim->keys[key].length);
    message.keys = items_bytes(&keys);
    message.client.bytes[0] = 0xff;
    size = message_pack_lookup(&message, body, sizeof(body));
    outbox_init(&out);
    master_request(leader->master, node_now(leader), UINT64_MAX, MESSAGE_LOOKUP, body, (size_t)size, &out);
    items_clear(&keys);
    letter = outbox_take(&out);
    *ret_vid = 0;
    if (letter == NULL || letter->status != MC_OK) {
        sim_fail(sim, "liveness: a lookup of %s gets %s in the end", sim->keys[key].name,
                 letter == NULL ? "no answer" : mc_status_name(letter->status));
        goto out;
    }
    message_unpack_located(letter->body, letter->length, &located);
    if (items_next_finding(&located.findings, &finding) != 1 || finding.status != MC_OK)
        goto out;
    while (items_next_location(&finding.locations, &location) == 1)
        while (items_next_place(&location.places, &place) == 1) {
            const struct segment *segment = ghost_segment(sim, &place.segment);
            const struct grant *grant = segment != NULL ? ghost_grant(sim, segment->memory, place.generation) : NULL;
            const struct slot *slot;

            if (grant == NULL || !segment->memory->alive || !segment->member) {
                sim_fail(sim, "I4 the index names a place of %s on an owner that is gone", sim->keys[key].name);
                continue;
            }
            slot = (const struct slot *)(segment->memory->base + grant->slot);
            if (slot->word != slot_word(place.generation, SLOT_LIVE) ||
                !key_hash_equal(&slot->described.hash, &sim->keys[key].hash) || grant->vid == 0)
                sim_fail(sim, "I4 the index names slot %lu generation %lu for %s, and its word is %lu:%lu", grant->slot,
                         place.generation, sim->keys[key].name, slot->word >> 2, slot->word & 3);
            listed[grant - sim->grants] = true;
            if (*ret_vid == 0)
                *ret_vid = grant->vid;
        }
out:
    outbox_clear(&out);
    if (letter != NULL)
        free(letter);
}

static void check_slots(struct sim *sim, const bool *listed, bool retired) {
    uint64_t stock[NODES_MAX] = {0}, stale[NODES_MAX] = {0}; /* stale: on owners that are gone */

    for (uint32_t i = 0; i < sim->node_count; i++) {
        const struct node *node = &sim->nodes[i];

        for (uint32_t j = 0; node->role == OWNER_NODE && j < node->memory->active_count; j++) {
            const struct grant *grant = &sim->grants[node->memory->active[j]];

            if (listed[node->memory->active[j]])
                continue;
            if (slot_word_state(grant->seen) == SLOT_RESERVED && !grant->published && !retired)
                stock[grant->holder]++;
            else
                sim_fail(sim, "I5 slot %lu of %s is lost: generation %lu, state %u, vid %u, granted to %s", grant->slot,
                         node->name, grant->generation, slot_word_state(grant->seen), grant->vid,
                         sim->nodes[grant->holder].name);
        }
    }
    for (uint32_t i = 0; i < sim->node_count; i++) {
        const struct node *node = &sim->nodes[i];

        uint64_t count = node->role == CLIENT_NODE ? client_count(node->client).stock : 0;

        if (count < stock[i] || count > stock[i] + stale[i])
            sim_fail(sim, "I5 %s has %lu slots in stock, and %lu are reserved for it", node->name, count, stock[i]);
    }
}

static void check(struct sim *sim, bool retired) {
    static bool listed[GRANTS_MAX];
    struct node *leader = masters_leading(sim);

    memset(listed, 0, sizeof(listed[0]) * sim->grant_count);
    for (uint32_t key = 0; key < sim->key_count && !sim->failed; key++) {
        uint32_t found;

        check_key(sim, leader, key, listed, &found);
        for (uint32_t i = 1; i <= sim->vid_count && !sim->failed; i++)
            if (i != found && sim->vids[i].key == key &&
                (ghost_must_exist(sim, &sim->vids[i], sim->now) ||
                 (found == 0 && ghost_must_have_heir(sim, &sim->vids[i], sim->now))))
                sim_fail(sim, "I4 acknowledged vid %u of %s is lost", i, sim->keys[key].name);
    }
    if (!sim->failed)
        check_slots(sim, listed, retired);
}

void finale_check(struct sim *sim) {
    check(sim, false);
}

void finale_check_retired(struct sim *sim) {
    check(sim, true);
}

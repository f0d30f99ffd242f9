/* tests/simulation/ghost.c - what is true of memory and reservations, kept beside the cores and compared after each step.
 *
 * A grant is one reservation; it is over when its slot's word is FREE or has another generation. Two grants that aren't
 * over never share a byte, a generation is granted once, no holder stores into one that is over or published, and none
 * ends under a view or under a remote access.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

void ghost_reset(struct sim *sim) {
    while (sim->memories != NULL) {
        struct memory *memory = sim->memories;

        sim->memories = memory->next;
        free(memory->base);
        free(memory->pins);
        free(memory);
    }
    sim->segment_count = 0;
    sim->grant_count = 0;
    sim->vid_count = 0;
    sim->mutation_count = 0;
    sim->key_count = 0;
    sim->evicted_at = 0;
    memset(sim->by_generation, 0, sizeof(sim->by_generation));
    memset(sim->evicted, 0, sizeof(sim->evicted));
    for (uint32_t i = 0; i < HOT_KEYS; i++) {
        char name[16];

        snprintf(name, sizeof(name), "hot-%u", i);
        ghost_key(sim, name, (uint32_t)strlen(name));
    }
}

struct memory *ghost_memory(struct sim *sim, struct node *owner, uint64_t size) {
    struct memory *memory = calloc(1, sizeof(*memory));

    if (memory == NULL || posix_memalign((void **)&memory->base, 4096, size) != 0 ||
        posix_memalign((void **)&memory->pins, 64, PIN_TABLES * sizeof(*memory->pins)) != 0)
        abort();
    memset(memory->base, 0, size);
    memset(memory->pins, 0, PIN_TABLES * sizeof(*memory->pins));
    memory->size = size;
    memory->owner = owner->index;
    memory->life = owner->life;
    memory->alive = true;
    memory->next = sim->memories;
    sim->memories = memory;
    return memory;
}

struct segment *ghost_segment(struct sim *sim, const struct message_id *id) {
    for (uint32_t i = sim->segment_count; i > 0; i--)
        if (message_id_equal(&sim->segments[i - 1].id, id))
            return &sim->segments[i - 1];
    return NULL;
}

struct segment *ghost_add_segment(struct sim *sim, const struct message_id *id, struct memory *memory) {
    struct segment *segment = &sim->segments[sim->segment_count];

    if (sim->segment_count + 1 < SEGMENTS_MAX)
        sim->segment_count++;
    *segment = (struct segment){.id = *id, .memory = memory};
    return segment;
}

/* The election record's members have changed. */
void ghost_members(struct sim *sim) {
    for (uint32_t i = 0; i < sim->segment_count; i++) {
        struct segment *segment = &sim->segments[i];
        bool member = false;

        for (size_t j = 0; j < sim->member_count; j++)
            member = member || message_id_equal(&sim->members[j], &segment->id);
        if (segment->member && !member) {
            TRACE(sim, "%s's segment %u is no member any more", sim->nodes[segment->memory->owner].name, i);
            segment->lost = true;
        }
        segment->member = member;
    }
}

/* ---- Grants ---- */

static uint32_t *bucket(struct sim *sim, const struct memory *memory, uint64_t generation) {
    return &sim->by_generation[(generation * 31 + memory->owner * 7u + memory->life * 131u) % GRANTS_MAX];
}

struct grant *ghost_grant(struct sim *sim, const struct memory *memory, uint64_t generation) {
    for (uint32_t i = *bucket(sim, memory, generation); i != 0; i = sim->grants[i - 1].chain)
        if (sim->grants[i - 1].memory == memory && sim->grants[i - 1].generation == generation)
            return &sim->grants[i - 1];
    return NULL;
}

static uint64_t word_of(const struct grant *grant) {
    return ((const struct slot *)(grant->memory->base + grant->slot))->word;
}

bool grant_readable(const struct grant *grant) {
    return slot_word_readable(word_of(grant), grant->generation);
}

static bool overlap(uint64_t one, uint64_t length, uint64_t other, uint64_t other_length) {
    return one < other + other_length && other < one + length;
}

static void check_new(struct sim *sim, const struct grant *grant) {
    const struct memory *memory = grant->memory;
    const char *name = sim->nodes[memory->owner].name;

    if (grant->slot % sizeof(struct slot) != 0 || grant->slot > memory->size - sizeof(struct slot) ||
        grant->offset > memory->size || grant->capacity > memory->size - grant->offset)
        sim_fail(sim, "I2 %s grants what lies outside of its segment", name);
    else if (slot_word_generation(word_of(grant)) != grant->generation)
        sim_fail(sim, "I2 %s grants generation %lu, and the word says %lu", name, grant->generation,
                 slot_word_generation(word_of(grant)));
    for (uint32_t i = 0; i < memory->active_count; i++) {
        const struct grant *other = &sim->grants[memory->active[i]];

        if (other->slot == grant->slot)
            sim_fail(sim, "I2 %s grants slot %lu twice", name, grant->slot);
        else if (overlap(grant->offset, grant->capacity, other->offset, other->capacity) ||
                 overlap(grant->slot, sizeof(struct slot), other->offset, other->capacity) ||
                 overlap(other->slot, sizeof(struct slot), grant->offset, grant->capacity))
            sim_fail(sim, "I2 %s grants an extent that overlaps another", name);
    }
}

/* An owner grants; the same grant may be answered again to the same request. */
void ghost_granted(struct sim *sim, struct memory *memory, const struct call *call,
                   const struct message_grant *granted) {
    struct grant *grant = ghost_grant(sim, memory, granted->generation);
    const char *name = sim->nodes[memory->owner].name;
    uint32_t *first;

    ghost_scan(sim, memory);
    if (grant != NULL) {
        if (grant->slot != granted->slot || grant->sequence != call->sequence || grant->life != call->from_life ||
            grant->holder != call->from)
            sim_fail(sim, "I2 %s grants generation %lu of slot %lu twice, to %s and %s", name, grant->generation,
                     grant->slot, sim->nodes[grant->holder].name, sim->nodes[call->from].name);
        return;
    }
    if (memory->drains)
        sim_fail(sim, "I2 %s, which drains, grants slot %lu to %s", name, granted->slot, sim->nodes[call->from].name);
    if (sim->grant_count >= GRANTS_MAX || memory->active_count >= GRANTS_MAX / 8) {
        sim_fail(sim, "the simulator's table of grants is full");
        return;
    }
    grant = &sim->grants[sim->grant_count++];
    first = bucket(sim, memory, granted->generation);
    *grant = (struct grant){.memory = memory,
                            .slot = granted->slot,
                            .generation = granted->generation,
                            .offset = granted->offset,
                            .capacity = call->capacity,
                            .client = call->client,
                            .holder = call->from,
                            .life = call->from_life,
                            .sequence = call->sequence,
                            .seen = slot_word(granted->generation, SLOT_RESERVED),
                            .chain = *first};
    check_new(sim, grant);
    *first = sim->grant_count;
    memory->active[memory->active_count++] = sim->grant_count - 1;
    TRACE(sim, "%s grants slot %lu generation %lu at %lu+%lu to %s", name, grant->slot, grant->generation,
          grant->offset, grant->capacity, sim->nodes[call->from].name);
}

static void freed(struct sim *sim, struct grant *grant) {
    const char *name = sim->nodes[grant->memory->owner].name;

    TRACE(sim, "%s frees slot %lu generation %lu (vid %u)", name, grant->slot, grant->generation, grant->vid);
    grant->freed = true;
    if (grant->views > 0)
        sim_fail(sim, "I2 %s frees slot %lu under a view", name, grant->slot);
    if (grant->inflight > 0)
        sim_fail(sim, "I2 %s frees slot %lu under a remote access", name, grant->slot);
}

static void went_live(struct sim *sim, struct grant *grant) {
    const struct slot *slot = (const struct slot *)(grant->memory->base + grant->slot);
    uint32_t vid = ghost_whole(sim, grant->memory->base + grant->offset, (uint32_t)slot->described.length);
    const char *name = sim->nodes[grant->memory->owner].name;

    TRACE(sim, "%s: slot %lu generation %lu is LIVE (vid %u, version %lu.%lu)", name, grant->slot, grant->generation,
          grant->vid, slot->version_epoch, slot->version_counter);
    if (vid == 0 || vid != grant->vid || slot->described.length != sim->vids[vid].length) {
        sim_fail(sim, "I1 %s: slot %lu is LIVE without a whole payload", name, grant->slot);
        return;
    }
    grant->promoted = true;
    ghost_version(sim, &sim->vids[vid], (struct version){slot->version_epoch, slot->version_counter});
}

static void went_dead(struct sim *sim, struct grant *grant, bool live) {
    const char *name = sim->nodes[grant->memory->owner].name;
    struct vid *vid = grant->vid != 0 ? &sim->vids[grant->vid] : NULL;

    TRACE(sim, "%s: slot %lu generation %lu is DEAD (vid %u)", name, grant->slot, grant->generation, grant->vid);
    grant->ended = sim->now;
    if (live || vid == NULL || !grant->published)
        return;
    /* Released, cancelled or dropped: not killed. */
    if (vid->grant_count == 1 && &sim->grants[vid->grants[0]] == grant && ghost_must_exist(sim, vid, sim->now) &&
        !vid->killed)
        sim_fail(sim, "I4 %s drops slot %lu of acknowledged vid %u", name, grant->slot, grant->vid);
}

/* Compares all words of the memory with those seen last. */
void ghost_scan(struct sim *sim, struct memory *memory) {
    for (uint32_t i = 0; i < memory->active_count; i++) {
        struct grant *grant = &sim->grants[memory->active[i]];
        uint64_t word = word_of(grant);
        uint64_t seen = grant->seen;

        if (word == seen)
            continue;
        grant->seen = word;
        if (slot_word_generation(word) != grant->generation || slot_word_state(word) == SLOT_FREE) {
            if (slot_word_state(seen) != SLOT_DEAD)
                went_dead(sim, grant, slot_word_state(seen) == SLOT_LIVE);
            freed(sim, grant);
            memory->active[i--] = memory->active[--memory->active_count];
        } else if (slot_word_state(word) == SLOT_LIVE && slot_word_state(seen) == SLOT_RESERVED) {
            went_live(sim, grant);
        } else if (slot_word_state(word) == SLOT_DEAD) {
            went_dead(sim, grant, slot_word_state(seen) == SLOT_LIVE);
        } else {
            sim_fail(sim, "I2 slot %lu goes from state %u to %u", grant->slot, slot_word_state(seen),
                     slot_word_state(word));
        }
    }
}

/* A holder stores into its slot's space; all such stores pass here. */
void ghost_store(struct sim *sim, struct memory *memory, uint64_t slot, uint64_t generation, const char *what) {
    const struct grant *grant = ghost_grant(sim, memory, generation);

    if (!memory->alive)
        return;
    if (grant == NULL)
        sim_fail(sim, "I2 a %s to slot %lu, that wasn't granted", what, slot);
    else if (grant->freed)
        sim_fail(sim, "I2 a late %s lands on reused slot %lu (vid %u)", what, slot, grant->vid);
    else if (grant->published)
        sim_fail(sim, "I2 a %s to slot %lu after publish (vid %u)", what, slot, grant->vid);
}

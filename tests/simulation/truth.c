/* tests/simulation/truth.c - values: which may be read, which must be there, which refusals are true.
 *
 * Each put writes a value of its own (a vid), so a read says whose value it is. A vid has the version that a master gave
 * it, and a mutation (a remove or an upsert) too. What docs/store-protocol.md calls residue is allowed, no more: a copy
 * that could still be read when the mutation returned may be read again under a later epoch.
 */
#include "sim.h"

#include <string.h>

uint32_t ghost_key(struct sim *sim, const void *name, uint32_t length) {
    struct key *key;

    for (uint32_t i = 0; i < sim->key_count; i++)
        if (sim->keys[i].length == length && memcmp(sim->keys[i].name, name, length) == 0)
            return i;
    if (length > sizeof(key->name) || sim->key_count == KEYS_MAX) {
        sim_fail(sim, "a key that nobody has put");
        return 0;
    }
    key = &sim->keys[sim->key_count];
    *key = (struct key){.length = length, .hash = key_hash(name, length)};
    memcpy(key->name, name, length);
    return sim->key_count++;
}

uint32_t ghost_vid(struct sim *sim, struct node *client, uint32_t key, uint32_t length, bool upsert) {
    if (sim->vid_count + 1 >= VIDS_MAX) {
        sim_fail(sim, "the simulator's table of values is full");
        return 1;
    }
    sim->vids[++sim->vid_count] = (struct vid){.key = key,
                                               .length = length,
                                               .upsert = upsert,
                                               .client = client->index,
                                               .life = client->life,
                                               .begun = sim->now,
                                               .status = MC_ERR_PENDING};
    return sim->vid_count;
}

void ghost_fill(uint32_t vid, uint8_t *value, uint32_t length) {
    for (uint32_t i = 0; i < length / 8; i++) {
        uint64_t word = (uint64_t)vid << 32 | i;

        memcpy(value + 8u * i, &word, sizeof(word));
    }
}

uint32_t ghost_whole(const struct sim *sim, const uint8_t *value, uint32_t length) {
    uint32_t vid = 0;

    for (uint32_t i = 0; i < length / 8; i++) {
        uint64_t word;

        memcpy(&word, value + 8u * i, sizeof(word));
        if ((uint32_t)word != i || (i > 0 && (uint32_t)(word >> 32) != vid))
            return 0;
        vid = (uint32_t)(word >> 32);
    }
    return vid <= sim->vid_count ? vid : 0;
}

/* ---- Versions ---- */

void ghost_version(struct sim *sim, struct vid *vid, struct version version) {
    (void)sim;
    if (version_below(vid->version, version))
        vid->version = version;
}

/* A master answered OK, or listed it. */
void ghost_accepted(struct sim *sim, struct vid *vid, uint64_t epoch, struct version version) {
    uint32_t number = (uint32_t)(vid - sim->vids);

    for (uint32_t i = 0; i < vid->grant_count; i++) {
        const struct grant *grant = &sim->grants[vid->grants[i]];
        const uint8_t *value = grant->memory->base + grant->offset;

        if (grant_readable(grant) && ghost_whole(sim, value, vid->length) != number)
            sim_fail(sim, "I1 vid %u is accepted without a whole payload", number);
    }
    if (vid->accepted < epoch)
        vid->accepted = epoch;
    ghost_version(sim, vid, version);
}

/* ---- Mutations ---- */

uint32_t ghost_mutation(struct sim *sim, uint32_t key, uint32_t vid) {
    if (sim->mutation_count == MUTATIONS_MAX) {
        sim_fail(sim, "the simulator's table of mutations is full");
        return 0;
    }
    sim->mutations[sim->mutation_count] =
        (struct mutation){.key = key, .vid = vid, .begun = sim->now, .ended = CLOCK_NEVER};
    return sim->mutation_count++;
}

static bool any_readable(const struct sim *sim, const struct vid *vid) {
    for (uint32_t i = 0; i < vid->grant_count; i++)
        if (grant_readable(&sim->grants[vid->grants[i]]))
            return true;
    return false;
}

/* It has returned: done; or not, and then it is `over`, or may still come to pass. */
void ghost_mutated(struct sim *sim, struct mutation *mutation, bool done, bool over) {
    if (!done) {
        mutation->ended = over ? sim->now : CLOCK_NEVER;
        return;
    }
    mutation->returned = true;
    mutation->ended = sim->now;
    if (mutation->vid != 0)
        mutation->version = sim->vids[mutation->vid].version;
    mutation->epoch = mutation->version.epoch != 0 ? mutation->version.epoch : sim->epoch;
    for (uint32_t i = 0; i < sim->grant_count; i++) { /* also those of a value that was put again elsewhere */
        struct vid *vid = &sim->vids[sim->grants[i].vid];

        if (sim->grants[i].vid != 0 && vid->key == mutation->key && sim->grants[i].vid != mutation->vid &&
            grant_readable(&sim->grants[i]) && (vid->residue == 0 || vid->residue > mutation->epoch))
            vid->residue = mutation->epoch;
    }
}

static bool memory_lost(const struct sim *sim, const struct memory *memory, bool *late) {
    bool lost = !memory->alive;

    for (uint32_t i = 0; i < sim->segment_count; i++)
        if (sim->segments[i].memory == memory) {
            lost = lost || sim->segments[i].lost;
            *late = *late || sim->segments[i].late;
        }
    return lost;
}

/* Was an owner of it so late that a put was accepted beside it? It is found behind that one until that is promoted. */
static bool was_late(const struct sim *sim, const struct vid *vid) {
    bool late = false;

    for (uint32_t i = 0; i < vid->grant_count; i++)
        memory_lost(sim, sim->grants[vid->grants[i]].memory, &late);
    return late;
}

/* Was the value removed or replaced by a mutation that had returned before `begun`? */
static const struct mutation *superseded(struct sim *sim, const struct vid *vid, uint64_t begun) {
    if (vid->residue != 0 && sim->epoch > vid->residue)
        return NULL;
    for (uint32_t i = 0; i < sim->mutation_count; i++) {
        const struct mutation *mutation = &sim->mutations[i];

        if (mutation->key != vid->key || !mutation->returned || mutation->ended >= begun ||
            &sim->vids[mutation->vid] == vid || (mutation->put && was_late(sim, vid)))
            continue;
        if (vid->version.epoch != 0 && mutation->version.epoch != 0
                ? version_below(vid->version, mutation->version)
                : vid->status == MC_OK && vid->ended < mutation->begun)
            return mutation;
    }
    return NULL;
}

/* ---- What must be there ---- */

static bool mutated_meanwhile(const struct sim *sim, const struct vid *vid) {
    for (uint32_t i = 0; i < sim->mutation_count; i++)
        if (sim->mutations[i].key == vid->key && &sim->vids[sim->mutations[i].vid] != vid && !sim->mutations[i].put &&
            sim->mutations[i].ended >= vid->begun)
            return true;
    return false;
}

/* The same, but upserts count only if what they wrote may be lost. */
static bool lost_meanwhile(const struct sim *sim, const struct vid *vid) {
    for (uint32_t i = 0; i < sim->mutation_count; i++) {
        const struct mutation *mutation = &sim->mutations[i];
        const struct vid *heir = &sim->vids[mutation->vid];
        bool lost = mutation->vid == 0;

        if (mutation->key != vid->key || mutation->put || heir == vid || mutation->ended < vid->begun)
            continue;
        for (uint32_t j = 0; j < heir->grant_count && !lost; j++)
            lost = memory_lost(sim, sim->grants[heir->grants[j]].memory, &lost) || lost;
        if (lost)
            return true;
    }
    return false;
}

/* Its put had returned OK before `at`, and nothing allows that it isn't found: no mutation of the key, no eviction, a
 * replica on an owner that lives and was never late or given up; and its holder or the master that accepted it is still
 * there, or it was promoted. */
static bool must_exist(struct sim *sim, const struct vid *vid, uint64_t at, bool meanwhile) {
    const struct node *holder = &sim->nodes[vid->client];
    bool safe = vid->accepted >= sim->epoch || (holder->alive && holder->life == vid->life);
    bool there = false, late = false;

    if (vid->status != MC_OK || vid->ended > at || sim->evicted_at >= vid->begun || meanwhile)
        return false;
    for (uint32_t i = 0; i < vid->grant_count; i++) {
        const struct grant *grant = &sim->grants[vid->grants[i]];

        if (!memory_lost(sim, grant->memory, &late) && (safe || grant->promoted))
            there = true;
    }
    return there && !late;
}

bool ghost_must_exist(struct sim *sim, const struct vid *vid, uint64_t at) {
    return vid->status == MC_OK && must_exist(sim, vid, at, mutated_meanwhile(sim, vid));
}

bool ghost_must_have_heir(struct sim *sim, const struct vid *vid, uint64_t at) {
    return vid->status == MC_OK && must_exist(sim, vid, at, lost_meanwhile(sim, vid));
}

/* ---- Results ---- */

void ghost_check_read(struct sim *sim, uint32_t key, uint64_t begun, const uint8_t *value, uint32_t length,
                      const char *how) {
    uint32_t number = ghost_whole(sim, value, length);
    const struct vid *vid = &sim->vids[number];
    const struct mutation *mutation;

    sim->reads++;
    if (number == 0)
        sim_fail(sim, "I1 a torn %s of %s: %u bytes that begin with vid %u", how, sim->keys[key].name, length,
                 length >= 8 ? ((const uint32_t *)(const void *)value)[1] : 0);
    else if (vid->key != key || vid->length != length)
        sim_fail(sim, "I1 a %s of %s gives vid %u, which is of %s", how, sim->keys[key].name, number,
                 sim->keys[vid->key].name);
    else if (!vid->published)
        sim_fail(sim, "I1 a %s of vid %u, which wasn't published", how, number);
    else if ((mutation = superseded(sim, vid, begun)) != NULL)
        sim_fail(sim,
                 "I3 a %s of %s, begun at %.3f, gives vid %u of version %lu.%lu; mutation %lu.%lu had returned at %.3f",
                 how, sim->keys[key].name, (double)begun / UNIT, number, vid->version.epoch, vid->version.counter,
                 mutation->version.epoch, mutation->version.counter, (double)mutation->ended / UNIT);
    TRACE(sim, "a %s of %s gives vid %u", how, sim->keys[key].name, number);
}

void ghost_check_missing(struct sim *sim, uint32_t key, uint64_t begun, const char *how) {
    for (uint32_t i = 1; i <= sim->vid_count; i++)
        if (sim->vids[i].key == key && ghost_must_have_heir(sim, &sim->vids[i], begun))
            sim_fail(sim, "I4 a %s of %s finds nothing, but vid %u was put", how, sim->keys[key].name, i);
}

/* A put was answered OK: nothing else may be there. */
void ghost_check_put(struct sim *sim, uint32_t own, uint64_t begun) {
    uint32_t key = sim->vids[own].key;

    for (uint32_t i = 1; i <= sim->vid_count; i++)
        if (i != own && sim->vids[i].key == key && ghost_must_exist(sim, &sim->vids[i], begun))
            sim_fail(sim, "I6 put of vid %u is accepted beside vid %u of %s", own, i, sim->keys[key].name);
}

/* A put was answered ALREADY_EXISTS: some other value may have been there. */
void ghost_check_exists(struct sim *sim, uint32_t own, uint64_t begun) {
    uint32_t key = sim->vids[own].key;

    for (uint32_t i = 1; i <= sim->vid_count; i++)
        if (i != own && sim->vids[i].key == key && sim->vids[i].published &&
            superseded(sim, &sim->vids[i], begun) == NULL)
            return;
    sim_fail(sim, "I6 a put of %s (vid %u) is told that it exists, falsely", sim->keys[key].name, own);
}

/* A master says that there is another: it is, or was since this put began, in a slot that could be read, or its owner
 * is gone. */
void ghost_check_refusal(struct sim *sim, uint32_t own) {
    uint32_t key = sim->vids[own].key;
    bool late = false;

    for (uint32_t i = 1; i <= sim->vid_count; i++) {
        const struct vid *vid = &sim->vids[i];

        if (i == own || vid->key != key)
            continue;
        if (any_readable(sim, vid))
            return;
        for (uint32_t j = 0; j < vid->grant_count; j++)
            if (sim->grants[vid->grants[j]].ended >= sim->vids[own].begun ||
                memory_lost(sim, sim->grants[vid->grants[j]].memory, &late))
                return;
    }
    sim_fail(sim, "I6 a master refuses vid %u: %s exists; but it is in no slot", own, sim->keys[key].name);
}

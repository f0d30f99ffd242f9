/* tests/simulation/watch.c - reads the letters that pass, and tells the ghosts what was granted, published, given a
 * version, killed and announced. Letters are also written to the trace. */
#include "sim.h"

#include <string.h>

const char *watch_name(uint16_t type) {
    switch (type & ~1u) {
#define RECORD(NAME, name, fields)
#define MESSAGE(NAME, name, number, fields) \
    case number:                            \
        return #NAME;
#include "wire/messages.def"
#undef MESSAGE
#undef RECORD
    case SIM_WRITE:
        return "WRITE";
    case SIM_READ:
        return "READ";
    default:
        return "?";
    }
}

static struct asked *asked(struct node *client, uint64_t sequence) {
    return &client->asked[sequence % SEQUENCES];
}

/* The grant of a place; NULL if it was never granted. */
static struct grant *grant_of(struct sim *sim, const struct message_place *place) {
    struct segment *segment = ghost_segment(sim, &place->segment);

    return segment != NULL ? ghost_grant(sim, segment->memory, place->generation) : NULL;
}

/* ---- Requests, as they are sent ---- */

static void publication(struct node *from, const struct message_publication *publication) {
    struct sim *sim = from->sim;
    struct message_bytes places = publication->places;
    struct message_place place;
    struct vid *vid = NULL;
    uint32_t grants[REPLICAS_MAX], count = 0;

    while (items_next_place(&places, &place) == 1 && count < REPLICAS_MAX) {
        struct grant *grant = grant_of(sim, &place);

        if (grant == NULL || grant->holder != from->index || grant->life != from->life) {
            sim_fail(sim, "I2 %s publishes a slot that isn't its own", from->name);
            return;
        }
        grant->published = true;
        grants[count++] = (uint32_t)(grant - sim->grants);
        if (grant->vid != 0)
            vid = &sim->vids[grant->vid];
    }
    if (vid == NULL)
        return;
    if (asked(from, publication->sequence)->sequence != publication->sequence)
        vid->version = (struct version){0}; /* the first time, or put again in other slots */
    vid->published = true;
    memcpy(vid->grants, grants, sizeof(grants[0]) * count);
    vid->grant_count = count;
    *asked(from, publication->sequence) =
        (struct asked){.sequence = publication->sequence, .vid = (uint32_t)(vid - sim->vids)};
    TRACE(sim, "  %s publishes %s vid %u seq %lu flags %u version %lu.%lu%s", from->name, sim->keys[vid->key].name,
          (uint32_t)(vid - sim->vids), publication->sequence, publication->flags, publication->version_epoch,
          publication->version_counter, count > 1 ? " replicated" : "");
}

static void removal(struct node *from, const struct call *call, const struct message_removal *removal) {
    struct sim *sim = from->sim;
    struct loop *loop = &from->loops[call->origin % LOOPS];

    for (size_t i = 0; call->origin != ORIGIN_CORE && i < loop->op.count; i++) {
        const struct client_item *item = &loop->items[i];
        struct asked *entry = asked(from, removal->sequence);

        if (loop->mutations[i] == 0 || item->key_length != removal->key.length ||
            memcmp(item->key, removal->key.data, item->key_length) != 0)
            continue;
        if (entry->sequence == removal->sequence && entry->mutation != 0)
            return;
        if (item->sequence != 0 && item->sequence != removal->sequence)
            continue;
        *entry = (struct asked){.sequence = removal->sequence, .mutation = loop->mutations[i]};
        TRACE(sim, "  %s removes %s seq %lu", from->name, sim->keys[loop->keys[i]].name, removal->sequence);
        return;
    }
}

void watch_request(struct node *from, struct call *call, const struct letter *letter) {
    struct message_publish publish;
    struct message_publication item;
    struct message_remove remove;
    struct message_removal gone;
    struct message_mount mount;
    struct sim *sim = from->sim;

    TRACE(sim, "%s -> %s request #%u %s", from->name, sim->nodes[call->to].name, (uint32_t)(call - sim->calls),
          watch_name(letter->type));
    if (letter->type == MESSAGE_PUBLISH) {
        message_unpack_publish(letter->body, letter->length, &publish);
        while (items_next_publication(&publish.items, &item) == 1)
            publication(from, &item);
    } else if (letter->type == MESSAGE_REMOVE) {
        message_unpack_remove(letter->body, letter->length, &remove);
        while (items_next_removal(&remove.items, &gone) == 1)
            removal(from, call, &gone);
    } else if (letter->type == MESSAGE_MOUNT) {
        const struct segment *segment;

        message_unpack_mount(letter->body, letter->length, &mount);
        segment = ghost_segment(sim, &mount.segment);
        call->last = mount.last != 0 && segment != NULL;
        call->sequence = mount.epoch;
        if (segment != NULL)
            call->segment = (uint32_t)(segment - sim->segments);
        TRACE(sim, "  epoch %lu part %u%s, %ld holdings", mount.epoch, mount.part, mount.last ? " (last)" : "",
              items_count(mount.holdings));
    }
}

/* A request arrives: what its answer will be about. */
void watch_delivered(struct node *to, struct call *call, const struct letter *letter) {
    struct message_reserve reserve;
    struct message_poll poll;
    struct message_event event;
    struct sim *sim = to->sim;

    if (letter->type == MESSAGE_RESERVE) {
        message_unpack_reserve(letter->body, letter->length, &reserve);
        call->sequence = reserve.sequence;
        call->capacity = reserve.capacity;
        call->client = reserve.client;
    } else if (letter->type == MESSAGE_POLL) {
        const struct segment *segment;

        message_unpack_poll(letter->body, letter->length, &poll);
        segment = ghost_segment(sim, &poll.segment);
        call->segment = segment != NULL ? (uint32_t)(segment - sim->segments) : 0;
        while (sim->trace && items_next_event(&poll.events, &event) == 1)
            sim_trace(
                sim, "  event %s slot %lu generation %lu",
                (const char *[]){"?", "KILLED", "PROMOTED", "NOT_PROMOTED", "NOT_RESERVED", "ORPHAN"}[event.kind % 6],
                event.slot, event.generation);
    }
}

/* ---- Answers, as they are sent ---- */

static void verdicts(struct node *from, const struct call *call, struct message_bytes list, uint64_t epoch) {
    struct sim *sim = from->sim;
    struct node *client = &sim->nodes[call->from];
    struct message_verdict verdict;

    while (items_next_verdict(&list, &verdict) == 1) {
        struct version version = {verdict.version_epoch, verdict.version_counter};
        int32_t status = (int32_t)verdict.status;
        const struct asked *entry = asked(client, verdict.sequence);

        TRACE(sim, "  verdict seq %lu %s version %lu.%lu", verdict.sequence, mc_status_name(status), version.epoch,
              version.counter);
        if (client->life != call->from_life || entry->sequence != verdict.sequence)
            continue;
        if (entry->vid != 0 && status == MC_OK)
            ghost_accepted(sim, &sim->vids[entry->vid], epoch, version);
        if (entry->vid != 0 && status == MC_ERR_ALREADY_EXISTS && !sim->vids[entry->vid].refused) {
            sim->vids[entry->vid].refused = true;
            ghost_check_refusal(sim, entry->vid);
        }
        if (entry->mutation != 0 && version_below(sim->mutations[entry->mutation - 1].version, version))
            sim->mutations[entry->mutation - 1].version = version;
    }
}

static void findings(struct node *from, struct message_bytes list) {
    struct sim *sim = from->sim;
    struct message_finding finding;
    struct message_location location;
    struct message_place place;

    while (items_next_finding(&list, &finding) == 1)
        while (finding.status == MC_OK && items_next_location(&finding.locations, &location) == 1)
            while (items_next_place(&location.places, &place) == 1) {
                const struct grant *grant = grant_of(sim, &place);

                if (grant == NULL) {
                    sim_fail(sim, "I4 %s locates what was never granted", from->name);
                    return;
                }
                if (grant->slot != place.slot || grant->offset != place.offset)
                    sim_fail(sim, "I4 %s locates slot %lu at %lu, and it is at %lu", from->name, place.slot,
                             place.offset, grant->offset);
                TRACE(sim, "  at slot %lu generation %lu (vid %u) version %lu.%lu", place.slot, place.generation,
                      grant->vid, location.version_epoch, location.version_counter);
                if (grant->vid != 0)
                    ghost_version(sim, &sim->vids[grant->vid],
                                  (struct version){location.version_epoch, location.version_counter});
            }
}

static void commands(struct node *from, const struct call *call, struct message_bytes list, uint64_t epoch) {
    struct sim *sim = from->sim;
    struct memory *memory = sim->segments[call->segment].memory;
    struct message_command command;

    while (items_next_command(&list, &command) == 1) {
        const struct grant *grant = ghost_grant(sim, memory, command.generation);

        TRACE(sim, "  command %s slot %lu generation %lu (vid %u) version %lu.%lu epoch %lu",
              (const char *[]){"?", "KILL", "PROMOTE", "ASK", "DROP"}[command.kind % 5], command.slot,
              command.generation, grant != NULL ? grant->vid : 0, command.version_epoch, command.version_counter,
              epoch);
        if (grant == NULL || grant->vid == 0)
            continue;
        if (command.kind == COMMAND_KILL && epoch == sim->epoch) {
            const struct vid *vid = &sim->vids[grant->vid];

            if (vid->grant_count == 1 && ghost_must_exist(sim, vid, sim->now))
                sim_fail(sim, "I4 %s kills acknowledged vid %u without a reason", from->name, grant->vid);
            sim->vids[grant->vid].killed = true;
        }
        if (command.kind == COMMAND_PROMOTE && command.version_epoch != 0)
            ghost_version(sim, &sim->vids[grant->vid],
                          (struct version){command.version_epoch, command.version_counter});
    }
}

void watch_answer(struct node *from, struct call *call, const struct letter *letter) {
    struct sim *sim = from->sim;
    struct message_reserved reserved;
    struct message_grant grant;
    struct message_published published;
    struct message_removed removed;
    struct message_located located;
    struct message_commands ordered;
    struct message_stamp stamp = {0};

    TRACE(sim, "%s -> %s answer #%u %s %s", from->name, sim->nodes[call->from].name, (uint32_t)(call - sim->calls),
          watch_name(call->type), mc_status_name(letter->status));
    if (letter->status != MC_OK)
        return;
    switch (call->type) {
    case MESSAGE_RESERVE:
        message_unpack_reserved(letter->body, letter->length, &reserved);
        while (items_next_grant(&reserved.grants, &grant) == 1)
            ghost_granted(sim, from->memory, call, &grant);
        break;
    case MESSAGE_PUBLISH:
        message_unpack_published(letter->body, letter->length, &published);
        message_unpack_stamp(published.stamp.data, published.stamp.length, &stamp);
        verdicts(from, call, published.verdicts, stamp.epoch);
        break;
    case MESSAGE_REMOVE:
        message_unpack_removed(letter->body, letter->length, &removed);
        message_unpack_stamp(removed.stamp.data, removed.stamp.length, &stamp);
        verdicts(from, call, removed.verdicts, stamp.epoch);
        break;
    case MESSAGE_LOOKUP:
        message_unpack_located(letter->body, letter->length, &located);
        findings(from, located.findings);
        break;
    case MESSAGE_POLL:
        message_unpack_commands(letter->body, letter->length, &ordered);
        commands(from, call, ordered.commands, ordered.epoch);
        break;
    case MESSAGE_MOUNT:
        if (call->last && call->sequence == master_epoch(from->master))
            sim->segments[call->segment].mounted = call->sequence;
        break;
    default:
        break;
    }
}

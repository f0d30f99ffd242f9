/* tests/simulation/copies.c - what a client's I/O does with an owner's memory, a piece at a time: writes, reads, views.
 *
 * Mapped memory is touched directly, with a yield before each piece, where the client may be paused or killed; else the
 * owner's I/O is asked (owners.c).
 */
#include "sim.h"

#include <string.h>

#include "base/checked.h"

static void yield(struct loop *loop) {
    struct sim *sim = loop->node->sim;

    users_wake(loop, sim->faults && sim_chance(sim, 200) ? sim_units(sim, 0, 40) : sim_units(sim, 0, 1));
}

static size_t item_of(const struct loop *loop, const struct client_item *item) {
    return (size_t)(item - loop->items);
}

/* The next write or read, or back to the operation. */
static void next(struct loop *loop, size_t count) {
    loop->at++;
    loop->piece = 0;
    loop->looked = false;
    loop->call = 0;
    if (loop->at == count)
        loop->state = LOOP_NEXT;
    yield(loop);
}

static struct remote_request request_of(const struct message_place *place, const struct client_item *item,
                                        uint64_t length) {
    return (struct remote_request){.slot = place->slot,
                                   .generation = place->generation,
                                   .offset = place->offset,
                                   .length = length,
                                   .key_length = item->key_length,
                                   .segment = place->segment};
}

/* ---- Writes ---- */

static void begin_write(struct loop *loop, const struct client_write *write) {
    struct sim *sim = loop->node->sim;
    const struct segment *segment = ghost_segment(sim, &write->place.segment);
    struct grant *grant = segment != NULL ? ghost_grant(sim, segment->memory, write->place.generation) : NULL;
    size_t item = item_of(loop, write->item);

    if (grant == NULL || grant->slot != write->place.slot || grant->offset != write->place.offset ||
        write->description.length + write->item->key_length > grant->capacity) {
        sim_fail(sim, "I2 %s wants to write what it wasn't granted", loop->node->name);
        return;
    }
    if (grant->vid != 0 && !grant->freed && grant->memory->alive && grant->vid != loop->vids[item])
        TRACE(sim, "%s refills slot %lu", loop->node->name, grant->slot);
    grant->vid = loop->vids[item];
    TRACE(sim, "%s.%u writes vid %u to slot %lu generation %lu of %s", loop->node->name, loop->index, grant->vid,
          grant->slot, grant->generation, sim->nodes[grant->memory->owner].name);
}

static void write_remotely(struct loop *loop, const struct client_write *write) {
    struct node *node = loop->node;
    struct remote_request request = request_of(&write->place, write->item, write->item->length);
    const struct segment *segment = ghost_segment(node->sim, &write->place.segment);
    struct letter *letter =
        network_letter(SIM_WRITE, MC_OK, sizeof(request) + write->item->length + write->item->key_length);
    uint8_t *body = letter->body + sizeof(request);

    request.description = write->description;
    memcpy(letter->body, &request, sizeof(request));
    memcpy(body, write->item->value, write->item->length);
    memcpy(body + write->item->length, write->item->key, write->item->key_length);
    loop->call = network_call(node, segment->memory->owner, loop->index, true, letter);
}

static void write_piece(struct loop *loop, const struct client_write *write) {
    struct sim *sim = loop->node->sim;
    const struct segment *segment = ghost_segment(sim, &write->place.segment);
    uint64_t length = write->item->length;
    uint64_t from = length * loop->piece / PIECES, to = length * (loop->piece + 1) / PIECES;
    uint8_t *place = write->segment->memory + write->place.offset;
    struct slot *slot = (struct slot *)(write->segment->memory + write->place.slot);

    ghost_store(sim, segment->memory, write->place.slot, write->place.generation, "store");
    if (loop->piece < PIECES) {
        memcpy(place + from, (const uint8_t *)write->item->value + from, to - from);
    } else {
        memcpy(place + length, write->item->key, write->item->key_length);
        slot->described = write->description;
    }
}

void copies_write(struct loop *loop) {
    struct client_write *write = &loop->op.writes[loop->at];

    if (loop->call != 0)
        return; /* the owner is asked */
    if (!loop->looked) {
        begin_write(loop, write);
        loop->looked = true;
        if (write->segment->memory == NULL) {
            write_remotely(loop, write);
            return;
        }
    } else if (loop->piece <= PIECES) {
        write_piece(loop, write);
        loop->piece++;
    } else {
        write->status = MC_OK;
        next(loop, loop->op.write_count);
        return;
    }
    yield(loop);
}

/* ---- Reads ---- */

static const struct slot *slot_of(const struct client_read *read) {
    const struct message_place *place = &read->place;

    if (!checked_within(place->slot, sizeof(struct slot), 0, read->segment->size) ||
        !checked_within(place->offset, read->length, 0, read->segment->size))
        return NULL;
    return (const struct slot *)(read->segment->memory + place->slot);
}

static void end_read(struct loop *loop, struct client_read *read, int32_t status) {
    read->status = status;
    TRACE(loop->node->sim, "%s.%u has read slot %lu generation %lu: %s", loop->node->name, loop->index,
          read->place.slot, read->place.generation, mc_status_name(status));
    next(loop, loop->op.read_count);
}

static void read_remotely(struct loop *loop, const struct client_read *read) {
    struct node *node = loop->node;
    struct remote_request request = request_of(&read->place, read->item, read->length);
    const struct segment *segment = ghost_segment(node->sim, &read->place.segment);
    struct letter *letter = network_letter(SIM_READ, MC_OK, sizeof(request));

    memcpy(letter->body, &request, sizeof(request));
    loop->call = network_call(node, segment->memory->owner, loop->index, true, letter);
}

static bool looks_good(const struct loop *loop, const struct client_read *read) {
    const struct slot *slot = slot_of(read);

    return slot != NULL && slot_look(slot, read->place.generation,
                                     &loop->node->sim->keys[loop->keys[item_of(loop, read->item)]].hash, read->length);
}

static void read_piece(struct loop *loop, struct client_read *read) {
    uint64_t from = read->length * loop->piece / PIECES, to = read->length * (loop->piece + 1) / PIECES;

    if (loop->piece == PIECES) {
        bool again = slot_look_again(slot_of(read), read->place.generation) || MISTAKE(NO_SECOND_LOOK);

        end_read(loop, read, again ? MC_OK : MC_ERR_GUARD_MISMATCH);
        return;
    }
    memcpy(loop->values[item_of(loop, read->item)] + from, read->segment->memory + read->place.offset + from,
           to - from);
    loop->piece++;
    yield(loop);
}

/* ---- Views ---- */

static void view_begins(struct loop *loop, struct client_read *read) {
    struct node *node = loop->node;
    struct sim *sim = node->sim;
    size_t item = item_of(loop, read->item);
    const struct segment *segment = ghost_segment(sim, &read->place.segment);
    struct grant *grant = ghost_grant(sim, segment->memory, read->place.generation);
    struct view *view = &loop->views[item];

    if (view->memory != NULL) {
        sim_fail(sim, "%s is told twice to view one item", node->name);
        return;
    }
    if (grant == NULL || grant->freed) {
        sim_fail(sim, "I2 %s views space that is free", node->name);
        return;
    }
    grant->views++;
    TRACE(sim, "%s.%u views slot %lu generation %lu of %s (vid %u)", node->name, loop->index, grant->slot,
          grant->generation, sim->nodes[grant->memory->owner].name, grant->vid);
    *view = (struct view){.memory = segment->memory,
                          .grant = (uint32_t)(grant - sim->grants),
                          .cell = loop->cell,
                          .generation = read->place.generation,
                          .bytes = segment->memory->base + read->place.offset,
                          .length = (uint32_t)read->length};
    view->vid = ghost_whole(sim, view->bytes, view->length);
    loop->cell = NULL;
    end_read(loop, read, MC_OK);
}

static _Atomic uint64_t *free_cell(const struct client_segment *segment) {
    if (MISTAKE(ONE_PIN_CELL))
        return &segment->pins->cells[0];
    for (uint32_t i = 0; i < 64; i++)
        if (segment->pins->cells[i] == 0)
            return &segment->pins->cells[i];
    return NULL;
}

static void pin(struct loop *loop, const struct client_read *read) {
    loop->cell = free_cell(read->segment);
    if (loop->cell != NULL)
        *loop->cell = read->place.generation;
}

/* Pins, then looks; the mistake looks, then pins. */
static void view_step(struct loop *loop, struct client_read *read) {
    bool look_last = !MISTAKE(PIN_NOT_RECHECKED);

    if (loop->piece++ == 0) {
        if (look_last)
            pin(loop, read);
        if (look_last ? loop->cell == NULL : !looks_good(loop, read)) {
            end_read(loop, read, MC_ERR_GUARD_MISMATCH);
            return;
        }
        yield(loop);
        return;
    }
    if (!look_last)
        pin(loop, read);
    if (loop->cell != NULL && (!look_last || looks_good(loop, read))) {
        view_begins(loop, read);
        return;
    }
    if (loop->cell != NULL)
        *loop->cell = 0;
    loop->cell = NULL;
    end_read(loop, read, MC_ERR_GUARD_MISMATCH);
}

void copies_read(struct loop *loop) {
    struct client_read *read = &loop->op.reads[loop->at];

    if (loop->call != 0)
        return;
    if (read->segment->memory == NULL) {
        read_remotely(loop, read);
    } else if (loop->op.kind == CLIENT_VIEW && read->segment->pins != NULL) {
        view_step(loop, read);
    } else if (!loop->looked) {
        loop->looked = true;
        if (!looks_good(loop, read))
            end_read(loop, read, MC_ERR_GUARD_MISMATCH);
        else
            yield(loop);
    } else {
        read_piece(loop, read);
    }
}

/* The owner's I/O has answered, or not. */
void copies_answered(struct loop *loop, const struct letter *letter, int32_t status) {
    if (loop->state == LOOP_WRITE) {
        loop->op.writes[loop->at].status = letter != NULL ? letter->status : status;
        next(loop, loop->op.write_count);
        return;
    }
    if (letter != NULL && letter->status == MC_OK) {
        const struct client_read *read = &loop->op.reads[loop->at];
        size_t item = item_of(loop, read->item);
        struct remote_request request;

        memcpy(&request, letter->body, sizeof(request)); /* the body isn't aligned */
        if (!key_hash_equal(&request.description.hash, &loop->node->sim->keys[loop->keys[item]].hash) ||
            request.description.length != read->length)
            status = MC_ERR_GUARD_MISMATCH;
        else
            memcpy(loop->values[item], letter->body + sizeof(request), read->length);
    }
    end_read(loop, &loop->op.reads[loop->at], status);
}

static void drop_view(struct loop *loop, struct view *view, bool dies) {
    struct node *node = loop->node;

    node->sim->grants[view->grant].views--;
    if (!dies) {
        *view->cell = 0;
        if (node->sim->nodes[view->memory->owner].alive)
            node_wake(&node->sim->nodes[view->memory->owner], 0);
    }
    view->memory = NULL;
}

void copies_drop_views(struct loop *loop, bool dies) {
    for (size_t i = 0; i < BATCH_MAX; i++)
        if (loop->views[i].memory != NULL)
            drop_view(loop, &loop->views[i], dies);
}

void copies_view(struct loop *loop) {
    struct sim *sim = loop->node->sim;
    bool any = false;

    for (size_t i = 0; i < BATCH_MAX; i++) {
        const struct view *view = &loop->views[i];

        if (view->memory == NULL)
            continue;
        any = true;
        if (ghost_whole(sim, view->bytes, view->length) != view->vid)
            sim_fail(sim, "I2 bytes change under a view of vid %u", view->vid);
    }
    if (any && loop->stays-- > 0) {
        users_wake(loop, sim_units(sim, 1, 10));
        return;
    }
    copies_drop_views(loop, false);
    loop->state = LOOP_IDLE;
    users_wake(loop, sim_units(sim, 1, 12));
}

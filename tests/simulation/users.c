/* tests/simulation/users.c - the users of a client: each runs one operation after the other, as the core says. */
#include "sim.h"

#include <string.h>

void users_wake(struct loop *loop, uint64_t ticks) {
    struct node *node = loop->node;

    sim_at(node->sim, node->sim->now + ticks,
           (struct event){
               .kind = EVENT_LOOP, .node = node->index, .life = node->life, .call = loop->serial, .what = loop});
}

bool users_idle(const struct node *node) {
    for (uint32_t i = 0; i < LOOPS; i++)
        if (node->loops[i].state != LOOP_IDLE)
            return false;
    return true;
}

/* ---- Beginning ---- */

static uint32_t new_key(struct sim *sim) {
    char name[16];

    snprintf(name, sizeof(name), "key-%u", sim->key_count);
    return ghost_key(sim, name, (uint32_t)strlen(name));
}

static uint32_t choose_key(struct sim *sim, enum client_kind kind, bool upsert) {
    uint32_t recent = sim->key_count - HOT_KEYS < 12 ? sim->key_count - HOT_KEYS : 12;

    if (upsert || kind == CLIENT_REMOVE || recent == 0 || sim_chance(sim, sim->weather.hot))
        return (uint32_t)sim_below(sim, sim->weather.hot_keys);
    if (kind == CLIENT_PUT && sim->key_count < KEYS_MAX && sim_chance(sim, 600))
        return new_key(sim);
    return sim->key_count - 1 - (uint32_t)sim_below(sim, recent);
}

static void fill_item(struct loop *loop, size_t i, enum client_kind kind, bool upsert) {
    struct sim *sim = loop->node->sim;
    const struct weather *weather = &sim->weather;
    struct client_item *item = &loop->items[i];
    uint32_t key = choose_key(sim, kind, upsert);
    uint32_t length =
        8 * ((weather->value_min + (uint32_t)sim_below(sim, weather->value_max - weather->value_min)) / 8);

    if (kind == CLIENT_PUT && sim->key_count == HOT_KEYS && !upsert)
        key = new_key(sim);
    memset(item, 0, sizeof(*item));
    loop->keys[i] = key;
    loop->vids[i] = 0;
    loop->mutations[i] = 0;
    item->key = sim->keys[key].name;
    item->key_length = sim->keys[key].length;
    item->value = loop->values[i];
    item->length = VALUE_MAX;
    if (kind == CLIENT_PUT) {
        item->length = length;
        loop->vids[i] = ghost_vid(sim, loop->node, key, length, upsert);
        ghost_fill(loop->vids[i], loop->values[i], length);
    }
    if (kind == CLIENT_REMOVE || upsert)
        loop->mutations[i] = 1 + ghost_mutation(sim, key, loop->vids[i]);
}

/* In such weather, what a client finds in one epoch, where much is put and little goes, should still be there in the
 * next, and then go while owners are out of the master's reach. */
static enum client_kind echoing(struct sim *sim, bool mutates, enum client_kind kind) {
    bool isolates = weather_isolates(sim);

    if ((isolates ? mutates || kind != CLIENT_PUT : !mutates) || sim_chance(sim, 150))
        return kind;
    return isolates || sim_chance(sim, 500) ? CLIENT_GET : CLIENT_PUT;
}

static void begin(struct loop *loop) {
    struct node *node = loop->node;
    struct sim *sim = node->sim;
    uint64_t chance = sim_below(sim, 1000);
    enum client_kind first = chance < 450   ? CLIENT_PUT
                             : chance < 570 ? CLIENT_REMOVE
                             : chance < 800 ? CLIENT_GET
                             : chance < 950 ? CLIENT_VIEW
                             : chance < 970 ? CLIENT_SIZE
                             : chance < 985 ? CLIENT_EXISTS
                                            : CLIENT_LIST;
    bool mutates = chance < 150 || first == CLIENT_REMOVE;
    enum client_kind kind = sim->weather.echoes ? echoing(sim, mutates, first) : first;
    bool upsert = kind == CLIENT_PUT && chance < 150 && (!sim->weather.echoes || weather_isolates(sim));
    size_t count = kind == CLIENT_LIST ? 0 : sim_chance(sim, 750) ? 1 : 2 + sim_below(sim, BATCH_MAX - 1);
    uint64_t patience = sim_chance(sim, 200) ? sim_units(sim, 20, 150) : 400u * UNIT;
    struct client_put_options options = {
        .flags = (upsert ? PUBLISH_UPSERT : 0) | (sim_chance(sim, 40) ? PUBLISH_SOFT_PIN : 0) |
                 (sim_chance(sim, 10) ? PUBLISH_HARD_PIN : 0),
        .replicas = 1 + (uint32_t)sim_below(sim, sim->weather.replicas),
    };

    loop->serial++;
    loop->begun = sim->now;
    memset(loop->views, 0, sizeof(loop->views));
    memset(&loop->op, 0, sizeof(loop->op));
    for (size_t i = 0; i < count; i++)
        fill_item(loop, i, kind, upsert);
    TRACE(sim, "%s.%u begins operation %u (kind %d%s) of %zu: %s", node->name, loop->index, loop->serial, kind,
          upsert ? ", upsert" : "", count, count > 0 ? sim->keys[loop->keys[0]].name : "");
    client_begin(node->client, node_now(node), &loop->op, kind, loop->items, count,
                 kind == CLIENT_PUT ? &options : NULL, node_now(node) + patience);
    loop->op.limit = 3;
    loop->begun_op = true;
    loop->awaited = 0;
    loop->call = 0;
    loop->state = LOOP_NEXT;
}

/* ---- Ending ---- */

static void end_put(struct loop *loop, size_t i, bool abandoned) {
    struct sim *sim = loop->node->sim;
    struct vid *vid = &sim->vids[loop->vids[i]];
    int32_t status = abandoned ? MC_ERR_INDETERMINATE : loop->items[i].status;

    vid->status = status;
    vid->ended = sim->now;
    if (loop->mutations[i] != 0)
        ghost_mutated(sim, &sim->mutations[loop->mutations[i] - 1], status == MC_OK,
                      status == MC_ERR_NO_SPACE && !vid->published);
    if (status == MC_OK) {
        sim->puts++;
        if (!vid->published || vid->accepted == 0)
            sim_fail(sim, "I6 put of vid %u is OK, but no master said so", loop->vids[i]);
        if (!vid->upsert) {
            struct mutation *mutation = &sim->mutations[ghost_mutation(sim, vid->key, loop->vids[i])];

            mutation->put = true;
            ghost_mutated(sim, mutation, true, true);
            ghost_check_put(sim, loop->vids[i], loop->begun);
        }
    } else if (status == MC_ERR_ALREADY_EXISTS) {
        if (vid->upsert)
            sim_fail(sim, "I6 an upsert (vid %u) is told that the key exists", loop->vids[i]);
        ghost_check_exists(sim, loop->vids[i], loop->begun);
    }
}

static void end_read(struct loop *loop, size_t i) {
    struct sim *sim = loop->node->sim;
    const struct client_item *item = &loop->items[i];
    enum client_kind kind = loop->op.kind;

    if (item->status == MC_ERR_NOT_FOUND)
        ghost_check_missing(sim, loop->keys[i], loop->begun, kind == CLIENT_EXISTS ? "probe" : "read");
    if (item->status != MC_OK || (kind != CLIENT_GET && kind != CLIENT_VIEW))
        return;
    if (item->found > VALUE_MAX)
        sim_fail(sim, "a read finds more than there is room for");
    else if (loop->views[i].memory != NULL)
        ghost_check_read(sim, loop->keys[i], loop->begun, loop->views[i].bytes, (uint32_t)item->found, "view");
    else
        ghost_check_read(sim, loop->keys[i], loop->begun, loop->values[i], (uint32_t)item->found,
                         item->from_cache ? "cached read" : "read");
}

static void end_remove(struct loop *loop, size_t i, bool abandoned) {
    struct sim *sim = loop->node->sim;
    struct mutation *mutation = &sim->mutations[loop->mutations[i] - 1];
    int32_t status = abandoned ? MC_ERR_INDETERMINATE : loop->items[i].status;

    ghost_mutated(sim, mutation, status == MC_OK || status == MC_ERR_NOT_FOUND, false);
    if (!mutation->returned) /* it may still be on its way */
        mutation->ended = sim->now + 2000u * UNIT;
}

static void check_status(struct loop *loop, int32_t status) {
    if (status == MC_ERR_INTERNAL || status == MC_ERR_PROTOCOL || status == MC_ERR_INVALID_ARGUMENT ||
        status == MC_ERR_INVALID_KEY || status == MC_ERR_NO_MEMORY || status == MC_ERR_BUFFER_TOO_SMALL || status > 0)
        sim_fail(loop->node->sim, "%s.%u: an operation ends with %s", loop->node->name, loop->index,
                 mc_status_name(status));
}

static void finish(struct loop *loop, bool abandoned) {
    struct node *node = loop->node;
    struct sim *sim = node->sim;

    for (size_t i = 0; i < loop->op.count; i++) {
        TRACE(sim, "%s.%u ends operation %u: %s %s%s", node->name, loop->index, loop->serial,
              sim->keys[loop->keys[i]].name, mc_status_name(loop->items[i].status), abandoned ? " (given up)" : "");
        if (!abandoned)
            check_status(loop, loop->items[i].status);
        if (loop->op.kind == CLIENT_PUT)
            end_put(loop, i, abandoned);
        else if (loop->op.kind == CLIENT_REMOVE)
            end_remove(loop, i, abandoned);
        else if (!abandoned)
            end_read(loop, i);
    }
    sim->ops++;
    client_end(node->client, node_now(node), &loop->op);
    items_clear(&loop->op.listed);
    loop->begun_op = false;
    loop->serial++;
    loop->call = 0;
    loop->state = LOOP_VIEW;
    loop->stays = 1 + (uint32_t)sim_below(sim, 8);
    copies_view(loop);
    clients_post(node);
}

/* ---- Going on ---- */

static void ask_to_attach(struct loop *loop) {
    struct node *node = loop->node;
    const struct segment *segment = ghost_segment(node->sim, &loop->op.attach->id);
    struct message_attach message = {.client = node->id, .address = {(const uint8_t *)node->name, 2}};
    struct letter *letter;
    struct outbox out;

    if (segment == NULL) {
        sim_fail(node->sim, "%s attaches to a segment that never was", node->name);
        return;
    }
    outbox_init(&out);
    outbox_attach(&out, 0, &message);
    letter = outbox_take(&out);
    loop->state = LOOP_ATTACH;
    loop->call = network_call(node, segment->memory->owner, loop->index, true, letter);
}

/* What the core needs next. */
static void next(struct loop *loop) {
    struct node *node = loop->node;
    struct sim *sim = node->sim;
    enum client_need need;
    struct outbox out;

    outbox_init(&out);
    need = client_next(node->client, node_now(node), &loop->op, &out);
    if (need == CLIENT_SEND)
        loop->state = LOOP_SENT;
    network_send_all(node, &out, loop->index, &loop->awaited);
    clients_post(node);
    loop->at = loop->piece = loop->call = 0;
    loop->looked = false;
    switch (need) {
    case CLIENT_DONE:
        finish(loop, false);
        return;
    case CLIENT_SEND:
        if (loop->awaited == 0)
            sim_fail(sim, "%s.%u has nothing to send", node->name, loop->index);
        return;
    case CLIENT_ATTACH:
        ask_to_attach(loop);
        return;
    case CLIENT_WRITE:
        loop->state = LOOP_WRITE;
        if (loop->op.write_count == 0)
            sim_fail(sim, "%s.%u has nothing to write", node->name, loop->index);
        break;
    case CLIENT_READ:
        loop->state = LOOP_READ;
        if (loop->op.read_count == 0)
            sim_fail(sim, "%s.%u has nothing to read", node->name, loop->index);
        break;
    case CLIENT_WAIT: {
        uint64_t now = node_now(node);
        uint64_t wait = loop->op.wake > now ? (loop->op.wake - now) * 1000 / node->rate + 1 : 1 + sim_below(sim, 300);

        users_wake(loop, wait < 10000u * UNIT ? wait : 10000u * UNIT);
        return;
    }
    }
    users_wake(loop, sim_units(sim, 0, 1));
}

void users_step(struct loop *loop) {
    struct sim *sim = loop->node->sim;

    switch (loop->state) {
    case LOOP_IDLE:
        if (!sim->faults)
            return;
        begin(loop);
        next(loop);
        break;
    case LOOP_NEXT:
        if (sim->faults && loop->op.kind != CLIENT_VIEW && sim_chance(sim, 4))
            finish(loop, true);
        else
            next(loop);
        break;
    case LOOP_WRITE:
        copies_write(loop);
        break;
    case LOOP_READ:
        copies_read(loop);
        break;
    case LOOP_VIEW:
        copies_view(loop);
        break;
    case LOOP_SENT:
    case LOOP_ATTACH:
    case LOOP_WAIT:
        break;
    }
}

/* An answer to the client's I/O: of an ATTACH, or of a copy. */
void users_answered(struct loop *loop, struct call *call, const struct letter *letter, int32_t status) {
    struct node *node = loop->node;
    struct client_segment *to = loop->op.attach;
    struct message_attached attached;

    if (call->answered || loop->call == 0)
        return;
    if (loop->state != LOOP_ATTACH) {
        copies_answered(loop, letter, status);
        return;
    }
    if (letter != NULL && status == MC_OK &&
        message_unpack_attached(letter->body, letter->length, &attached) == MC_OK &&
        message_id_equal(&attached.segment, &to->id)) {
        struct memory *memory = ghost_segment(node->sim, &to->id)->memory;

        to->size = attached.size;
        if (!to->attached) {
            to->memory = node->mapped[memory->owner] ? (uint8_t *)(uintptr_t)attached.base : NULL;
            to->pins = to->memory != NULL ? (struct pin_table *)(uintptr_t)attached.pins : NULL;
            to->user = memory;
        }
        client_attached(node->client, node_now(node), to);
    } else {
        client_unreachable(node->client, node_now(node), to);
    }
    loop->call = 0;
    loop->state = LOOP_NEXT;
    clients_post(node);
    users_wake(loop, 1);
}

/* Its process is killed. */
void users_dies(struct loop *loop) {
    struct sim *sim = loop->node->sim;

    for (size_t i = 0; loop->begun_op && i < loop->op.count; i++) {
        if (loop->mutations[i] == 0)
            continue;
        sim->mutations[loop->mutations[i] - 1].ended = sim->now + 2000u * UNIT;
    }
    copies_drop_views(loop, true);
    if (loop->begun_op) {
        client_end(loop->node->client, node_now(loop->node), &loop->op);
        items_clear(&loop->op.listed);
    }
    loop->begun_op = false;
    loop->state = LOOP_IDLE;
    loop->call = 0;
}

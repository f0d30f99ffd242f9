/* tests/simulation/clients.c - clients: a core each, what goes on behind its users' backs, and whose answer is whose. */
#include "sim.h"

#include <string.h>

static void detach(void *context, struct client_segment *segment) {
    (void)context;
    segment->user = NULL;
}

void clients_post(struct node *node) {
    node_wake(node, client_wake(node->client));
}

void clients_born(struct node *node) {
    struct sim *sim = node->sim;
    struct client_options options = {
        .timing = sim->timing,
        .seed = random_next(&sim->random),
        .stock_bytes = sim->weather.stock_bytes,
        .cached = sim_chance(sim, 300) ? 2 : 64,
        .detach = detach,
        .context = node,
    };

    if (node->life > 1 && !MISTAKE(DEDUPE_WITHOUT_GENERATION))
        sim_id(sim, node->index, &node->id);
    options.id = node->id;
    memset(node->asked, 0, sizeof(node->asked));
    if (client_new(&options, &node->client) != MC_OK) {
        sim_fail(sim, "no memory for a client");
        return;
    }
    node->retired = false;
    for (uint8_t i = 0; i < LOOPS; i++) {
        struct loop *loop = &node->loops[i];

        loop->node = node;
        loop->index = i;
        loop->serial++;
        loop->state = LOOP_IDLE;
        loop->begun_op = false;
        loop->call = 0;
        users_wake(loop, sim_units(sim, 1, 40));
    }
    clients_post(node);
}

void clients_dies(struct node *node) {
    for (uint32_t i = 0; i < LOOPS; i++)
        users_dies(&node->loops[i]);
    node->client = client_free(node->client);
}

void clients_due(struct node *node) {
    struct outbox out;

    outbox_init(&out);
    client_step(node->client, node_now(node), &out);
    network_send_all(node, &out, ORIGIN_CORE, NULL);
    clients_post(node);
}

void clients_answered(struct node *node, struct call *call, const struct letter *letter, int32_t status) {
    struct loop *loop = call->origin == ORIGIN_CORE ? NULL : &node->loops[call->origin];

    if (loop != NULL && (!loop->begun_op || loop->serial != call->serial))
        loop = NULL; /* the operation has ended */
    if (call->io && loop == NULL)
        return;
    if (call->io) {
        users_answered(loop, call, letter, status);
        return;
    }
    client_answer(node->client, node_now(node), loop != NULL ? &loop->op : NULL, call->tag, status,
                  (uint16_t)(call->type | 1u), letter != NULL ? letter->body : NULL,
                  letter != NULL ? letter->length : 0);
    if (loop != NULL && !call->answered && --loop->awaited == 0 && loop->state == LOOP_SENT) {
        loop->state = LOOP_NEXT;
        users_wake(loop, 1);
    }
    clients_post(node);
}

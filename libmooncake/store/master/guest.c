/* store/master/guest.c - clients: the answers they were given, and what they have published that isn't settled.
 *
 * Owns the guests, answers and unsettled publications. An answer is kept until the client's floor has passed it
 * (rule 5), and a guest for as long as the epoch lasts: a client that was paused for long may still repeat an old
 * PUBLISH, which must not be taken for a new one. `unsettled` is in the order of sequences; rule 13's "settled up to"
 * is what lies before its first.
 */
#include "store/master/inside.h"

#include <stdlib.h>
#include <string.h>

#define ANSWERS_MAX (1u << 22)

static uint64_t id_hash(const struct message_id *id) {
    uint64_t half[2];

    memcpy(half, id->bytes, sizeof(half));
    return table_hash(half[0] ^ table_hash(half[1]));
}

struct guest *guest_obtain(struct master *master, const struct message_id *id) {
    uint64_t hash = id_hash(id);
    struct table_node *node = table_chain(&master->guests, hash);
    struct guest *guest;

    for (; node != NULL; node = node->next)
        if (node->hash == hash && message_id_equal(&table_entry(node, struct guest, node)->id, id))
            return table_entry(node, struct guest, node);
    guest = calloc(1, sizeof(*guest));
    if (guest == NULL)
        return NULL;
    guest->id = *id;
    guest->node.hash = hash;
    list_init(&guest->unsettled);
    list_init(&guest->answered);
    list_init(&guest->parked);
    if (!table_insert(&master->guests, &guest->node)) {
        free(guest);
        return NULL;
    }
    list_append(&master->guest_list, &guest->all);
    master->counts.clients++;
    return guest;
}

void guest_raise_floor(struct guest *guest, uint64_t floor) {
    if (floor <= guest->floor)
        return;
    guest->floor = floor;
    while (!list_empty(&guest->answered)) {
        struct answer *answer = list_entry(guest->answered.next, struct answer, order);

        if (answer->sequence >= floor)
            break; /* what is behind it and below the floor is not asked for, and goes later */
        list_remove(&answer->order);
        table_remove(&guest->answers, &answer->node);
        free(answer);
    }
}

struct answer *guest_answer(struct guest *guest, uint64_t sequence, uint16_t type) {
    uint64_t hash = table_hash(sequence);
    struct table_node *node = table_chain(&guest->answers, hash);
    struct answer *answer;

    for (; node != NULL; node = node->next)
        if (node->hash == hash && table_entry(node, struct answer, node)->sequence == sequence)
            return table_entry(node, struct answer, node);
    answer = guest->answers.count >= ANSWERS_MAX ? NULL : calloc(1, sizeof(*answer));
    if (answer == NULL)
        return NULL;
    answer->node.hash = hash;
    answer->sequence = sequence;
    answer->type = type;
    if (!table_insert(&guest->answers, &answer->node)) {
        free(answer);
        return NULL;
    }
    list_append(&guest->answered, &answer->order);
    return answer;
}

/* Sequences nearly come in order, so the place is near the end. */
struct unsettled *guest_unsettled(struct guest *guest, uint64_t sequence) {
    struct unsettled *unsettled = calloc(1, sizeof(*unsettled));
    struct list *place = &guest->unsettled;

    if (unsettled == NULL)
        return NULL;
    unsettled->sequence = sequence;
    while (place->prev != &guest->unsettled && list_entry(place->prev, struct unsettled, node)->sequence > sequence)
        place = place->prev;
    list_insert_before(place, &unsettled->node);
    if (sequence > guest->last)
        guest->last = sequence;
    return unsettled;
}

void unsettled_drop(struct unsettled *unsettled) {
    if (--unsettled->open > 0)
        return;
    list_remove(&unsettled->node);
    free(unsettled);
}

uint64_t guest_settled(const struct guest *guest) {
    if (list_empty(&guest->unsettled))
        return guest->last;
    return list_entry(guest->unsettled.next, struct unsettled, node)->sequence - 1;
}

static void guest_free(struct guest *guest) {
    struct list *node, *after;

    list_each (node, after, &guest->answered)
        free(list_entry(node, struct answer, order));
    list_each (node, after, &guest->unsettled)
        free(list_entry(node, struct unsettled, node));
    table_clear(&guest->answers);
    free(guest);
}

/* The claims, which refer to what is unsettled, are gone by now, and nothing is parked for these guests. */
void guest_clear(struct master *master) {
    struct list *node, *after;

    list_each (node, after, &master->guest_list)
        guest_free(list_entry(node, struct guest, all));
    list_init(&master->guest_list);
    table_clear(&master->guests);
}

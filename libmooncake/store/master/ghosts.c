/* store/master/ghosts.c - the ring and its index. */
#include "store/master/ghosts.h"

#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST 256u
#define ROOM_MOST (1u << 27)

static uint32_t short_key(uint64_t key) {
    uint32_t low = (uint32_t)(key ^ key >> 32);

    return low != 0 ? low : 1;
}

static uint32_t *head_of(const struct ghosts *ghosts, uint32_t key) {
    return &ghosts->heads[(key * 2654435769u >> 3) & (ghosts->room - 1)];
}

static void link_in(struct ghosts *ghosts, uint32_t position) {
    struct ghost *ghost = &ghosts->ring[position];
    uint32_t *head = head_of(ghosts, ghost->key);

    ghost->next = *head;
    *head = position + 1;
}

static void unlink_from(struct ghosts *ghosts, uint32_t position) {
    uint32_t *link = head_of(ghosts, ghosts->ring[position].key);

    while (*link != position + 1)
        link = &ghosts->ring[*link - 1].next;
    *link = ghosts->ring[position].next;
    ghosts->ring[position].key = 0;
}

void ghosts_clear(struct ghosts *ghosts) {
    free(ghosts->ring);
    free(ghosts->heads);
    *ghosts = (struct ghosts){0};
}

/* Twice the room, with the oldest at its beginning. */
static bool grow(struct ghosts *ghosts) {
    uint32_t room = ghosts->room == 0 ? ROOM_FIRST : ghosts->room * 2;
    struct ghosts larger = {.room = room}, smaller;

    if (room > ROOM_MOST)
        return false;
    larger.ring = malloc(room * sizeof(*larger.ring));
    larger.heads = calloc(room, sizeof(*larger.heads));
    if (larger.ring == NULL || larger.heads == NULL) {
        ghosts_clear(&larger);
        return false;
    }
    for (uint32_t i = 0; i < ghosts->count; i++) {
        const struct ghost *ghost = &ghosts->ring[(ghosts->first + i) & (ghosts->room - 1)];

        if (ghost->key == 0)
            continue;
        larger.ring[larger.count] = *ghost;
        link_in(&larger, larger.count++);
    }
    smaller = *ghosts;
    *ghosts = larger;
    ghosts_clear(&smaller);
    return true;
}

void ghosts_add(struct ghosts *ghosts, uint64_t key, uint64_t state) {
    uint32_t position;

    if (ghosts->count == ghosts->room && !grow(ghosts))
        return;
    position = (ghosts->first + ghosts->count++) & (ghosts->room - 1);
    ghosts->ring[position] = (struct ghost){.key = short_key(key), .state = state};
    link_in(ghosts, position);
}

bool ghosts_take(struct ghosts *ghosts, uint64_t key, uint64_t *ret_state) {
    uint32_t wanted = short_key(key);

    if (ghosts->room == 0)
        return false;
    for (uint32_t link = *head_of(ghosts, wanted); link != 0; link = ghosts->ring[link - 1].next) {
        if (ghosts->ring[link - 1].key != wanted)
            continue;
        *ret_state = ghosts->ring[link - 1].state;
        unlink_from(ghosts, link - 1);
        return true;
    }
    return false;
}

bool ghosts_shrink(struct ghosts *ghosts, uint32_t most, uint64_t *ret_state) {
    while (ghosts->count > 0) {
        uint32_t position = ghosts->first;
        struct ghost *ghost = &ghosts->ring[position];

        if (ghost->key != 0 && ghosts->count <= most)
            return false;
        ghosts->first = (position + 1) & (ghosts->room - 1);
        ghosts->count--;
        if (ghost->key == 0)
            continue;
        *ret_state = ghost->state;
        /* It is out of the ring already, but its place is untouched. */
        unlink_from(ghosts, position);
        return true;
    }
    return false;
}

/* net/inflight.c - an array of slots that doubles when it is full; the free ones form a list through next_free. */
#include "net/inflight.h"

#include <stdlib.h>

#define NO_SLOT UINT32_MAX
#define SLOTS_FIRST 64u
#define SLOTS_MAX (1u << 24)

void inflight_init(struct inflight *inflight) {
    *inflight = (struct inflight){.free = NO_SLOT};
}

void inflight_destroy(struct inflight *inflight) {
    free(inflight->slots);
    inflight_init(inflight);
}

static bool grow(struct inflight *inflight) {
    uint32_t count = inflight->count == 0 ? SLOTS_FIRST : inflight->count * 2;
    struct inflight_slot *slots;

    if (count > SLOTS_MAX)
        return false;
    slots = realloc(inflight->slots, count * sizeof(*slots));
    if (slots == NULL)
        return false;
    for (uint32_t i = inflight->count; i < count; i++)
        slots[i] = (struct inflight_slot){.id = i, .next_free = i + 1 < count ? i + 1 : NO_SLOT};
    inflight->free = inflight->count;
    inflight->slots = slots;
    inflight->count = count;
    return true;
}

bool inflight_add(struct inflight *inflight, void *request, uint64_t bytes, uint64_t *ret_id) {
    struct inflight_slot *slot;

    if (inflight->free == NO_SLOT && !grow(inflight))
        return false;
    slot = &inflight->slots[inflight->free];
    inflight->free = slot->next_free;
    slot->id += (uint64_t)1 << 32;
    slot->request = request;
    slot->bytes = bytes;
    slot->used = true;
    inflight->awaited++;
    inflight->bytes += bytes;
    *ret_id = slot->id;
    return true;
}

struct inflight_slot *inflight_find(struct inflight *inflight, uint64_t id) {
    uint32_t index = (uint32_t)id;

    if (index >= inflight->count || !inflight->slots[index].used || inflight->slots[index].id != id)
        return NULL;
    return &inflight->slots[index];
}

void inflight_release(struct inflight *inflight, struct inflight_slot *slot) {
    slot->request = NULL;
    slot->used = false;
    slot->next_free = inflight->free;
    inflight->free = (uint32_t)slot->id;
    inflight->awaited--;
    inflight->bytes -= slot->bytes;
}

void inflight_release_all(struct inflight *inflight) {
    for (uint32_t i = 0; i < inflight->count && inflight->awaited > 0; i++)
        if (inflight->slots[i].used)
            inflight_release(inflight, &inflight->slots[i]);
}

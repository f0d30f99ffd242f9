/* store/owner/sweep.c - DEAD slots become FREE when nothing can use what they held (rule 1 of docs/store-protocol.md).
 *
 * Owns nothing; the owner's thread. Readers set pins meanwhile: a view stores its pin, fences, and looks at the word;
 * here the words are DEAD, then comes the fence, then the pins are read. One of the two sees the other.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "store/owner/state.h"
#include "wire/mistake.h"

#define PAUSE_MIN CLOCK_MILLISECOND
#define PAUSE_MAX (64 * CLOCK_MILLISECOND)
#define FIRST_CAPACITY 64u

/* The generations that are pinned, in order. */
struct pinned {
    uint64_t *generations;
    size_t count;
    size_t capacity;
};

static bool pinned_add(struct pinned *pinned, uint64_t generation) {
    if (pinned->count == pinned->capacity) {
        size_t capacity = pinned->capacity == 0 ? FIRST_CAPACITY : 2 * pinned->capacity;
        uint64_t *generations = realloc(pinned->generations, capacity * sizeof(*generations));

        if (generations == NULL)
            return false;
        pinned->generations = generations;
        pinned->capacity = capacity;
    }
    pinned->generations[pinned->count++] = generation;
    return true;
}

static int compare(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

    return a < b ? -1 : a > b;
}

/* Reads the tables that clients have. False if memory is short. */
static bool pinned_collect(const struct owner *owner, struct pinned *pinned) {
    for (uint32_t i = 0; i < owner->options.pin_tables; i++) {
        struct pin_table *table = &owner->options.pins[i];

        if (owner->holders.tables[i] == NULL)
            continue;
        for (size_t cell = 0; cell < PIN_CELLS; cell++) {
            uint64_t generation = atomic_load_explicit(&table->cells[cell], memory_order_acquire);

            if (generation != 0 && !pinned_add(pinned, generation))
                return false;
        }
    }
    if (pinned->count > 1)
        qsort(pinned->generations, pinned->count, sizeof(uint64_t), compare);
    return true;
}

static bool pinned_has(const struct pinned *pinned, uint64_t generation) {
    return pinned->count > 0 &&
           bsearch(&generation, pinned->generations, pinned->count, sizeof(uint64_t), compare) != NULL;
}

/* Frees what can be; true if something was. */
static bool sweep(struct owner *owner) {
    const struct owner_options *options = &owner->options;
    struct pinned pinned = {0};
    struct list *node, *after;
    bool freed = false;

    atomic_thread_fence(memory_order_seq_cst);
    if (pinned_collect(owner, &pinned))
        list_each (node, after, &owner->slots.dead) {
            struct record *record = list_entry(node, struct record, node);

            if (pinned_has(&pinned, slots_generation(record)) && !MISTAKE(PINS_NOT_SCANNED))
                continue;
            if (options->in_flight != NULL && options->in_flight(options->context, record->slot))
                continue;
            slots_release(owner, record);
            freed = true;
        }
    free(pinned.generations);
    return freed;
}

void sweep_step(struct owner *owner, uint64_t now) {
    if (now < sweep_wake(owner))
        return;
    if (sweep(owner) || owner->sweep_at == 0)
        owner->sweep_pause = PAUSE_MIN;
    else if (owner->sweep_pause < PAUSE_MAX)
        owner->sweep_pause *= 2;
    owner->sweep_at = clock_after(now, owner->sweep_pause);
}

uint64_t sweep_wake(const struct owner *owner) {
    return list_empty(&owner->slots.dead) ? CLOCK_NEVER : owner->sweep_at;
}

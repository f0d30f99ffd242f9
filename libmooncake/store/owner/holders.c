/* store/owner/holders.c - the clients that an owner knows.
 *
 * Owns: a record for each client, until it is proved gone, has no RESERVED slot, and enough others have gone after it.
 * A proof says that the client's connections are drained, so what still comes from it is an oddity; one that comes
 * after even that many others went would make the client known anew, to be proved gone again: space is late then, and
 * nothing is lost.
 * Threads: the owner's.
 * Invariants: a client that is gone has no pin table; a table belongs to one client at most.
 */
#include <stdlib.h>
#include <string.h>

#include <mooncake/error.h>

#include "store/owner/state.h"

#define GRAVES_MAX 4096u
#define SEEN_MAX 4096u
#define FIRST_SEEN 8u

int32_t holders_init(struct owner *owner) {
    struct holders *holders = &owner->holders;

    for (size_t i = 0; i < HOLDER_BUCKETS; i++)
        list_init(&holders->buckets[i]);
    list_init(&holders->orphaned);
    list_init(&holders->graves);
    if (owner->options.pin_tables == 0)
        return MC_OK;
    holders->tables = calloc(owner->options.pin_tables, sizeof(struct holder *));
    return holders->tables != NULL ? MC_OK : MC_ERR_NO_MEMORY;
}

static void holder_free(struct owner *owner, struct holder *holder) {
    list_remove(&holder->chain);
    list_remove(&holder->node);
    owner->holders.count--;
    free(holder->address);
    free(holder->seen);
    free(holder);
}

void holders_clear(struct owner *owner) {
    struct list *node, *after;

    for (size_t i = 0; i < HOLDER_BUCKETS; i++)
        list_each (node, after, &owner->holders.buckets[i])
            holder_free(owner, list_entry(node, struct holder, chain));
    free(owner->holders.tables);
}

static struct list *bucket_of(const struct owner *owner, const struct message_id *id) {
    struct key_hash hash = key_hash(id->bytes, sizeof(id->bytes));

    return (struct list *)&owner->holders.buckets[hash.low % HOLDER_BUCKETS];
}

struct holder *holders_find(const struct owner *owner, const struct message_id *id) {
    struct list *bucket = bucket_of(owner, id);
    struct list *node, *after;

    list_each (node, after, bucket) {
        struct holder *holder = list_entry(node, struct holder, chain);

        if (message_id_equal(&holder->id, id))
            return holder;
    }
    return NULL;
}

int32_t holders_get(struct owner *owner, const struct message_id *id, struct holder **ret_holder) {
    struct holder *holder = holders_find(owner, id);

    if (holder == NULL) {
        if (owner->holders.count >= HOLDERS_MAX)
            return MC_ERR_TOO_MANY;
        holder = calloc(1, sizeof(*holder));
        if (holder == NULL)
            return MC_ERR_NO_MEMORY;
        holder->id = *id;
        holder->pins = NO_PINS;
        list_init(&holder->node);
        list_init(&holder->reserved);
        list_append(bucket_of(owner, id), &holder->chain);
        owner->holders.count++;
    }
    *ret_holder = holder;
    return MC_OK;
}

void holders_give_pins(struct owner *owner, struct holder *holder) {
    for (uint32_t i = 0; i < owner->options.pin_tables && holder->pins == NO_PINS; i++)
        if (owner->holders.tables[i] == NULL) {
            owner->holders.tables[i] = holder;
            holder->pins = i;
        }
}

static void take_pins(struct owner *owner, struct holder *holder) {
    struct pin_table *table;

    if (holder->pins == NO_PINS)
        return;
    table = &owner->options.pins[holder->pins];
    for (size_t i = 0; i < PIN_CELLS; i++)
        atomic_store_explicit(&table->cells[i], 0, memory_order_relaxed);
    owner->holders.tables[holder->pins] = NULL;
    holder->pins = NO_PINS;
    owner->sweep_at = 0;
}

/* Moves one that is gone to where it belongs now. */
static void settle(struct owner *owner, struct holder *holder) {
    struct holders *holders = &owner->holders;

    list_remove(&holder->node);
    if (!list_empty(&holder->reserved)) {
        list_append(&holders->orphaned, &holder->node);
        return;
    }
    list_append(&holders->graves, &holder->node);
    if (++holders->grave_count > GRAVES_MAX) {
        holders->grave_count--;
        holder_free(owner, list_entry(holders->graves.next, struct holder, node));
    }
}

void holders_bury(struct owner *owner, struct holder *holder) {
    if (holder->gone)
        return;
    holder->gone = true;
    take_pins(owner, holder);
    holder_forget_all(holder);
    settle(owner, holder);
}

void holders_slot_left(struct owner *owner, struct holder *holder) {
    if (holder->gone && list_empty(&holder->reserved))
        settle(owner, holder);
}

/* ---- Reservations that were answered ---- */

/* The first of `sequence` and above. */
static size_t seen_place(const struct holder *holder, uint64_t sequence) {
    size_t low = 0, high = holder->seen_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (holder->seen[middle].sequence < sequence)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void drop_first(struct holder *holder, size_t count) {
    holder->seen_count -= count;
    if (count > 0 && holder->seen_count > 0)
        memmove(holder->seen, holder->seen + count, holder->seen_count * sizeof(*holder->seen));
}

int32_t holder_make_room(struct holder *holder) {
    size_t capacity = holder->seen_capacity == 0 ? FIRST_SEEN : 2 * holder->seen_capacity;
    struct seen *seen;

    if (holder->seen_count < holder->seen_capacity)
        return MC_OK;
    if (holder->seen_count >= SEEN_MAX) {
        holder_raise_floor(holder, holder->seen[holder->seen_count / 2].sequence);
        return MC_OK;
    }
    seen = realloc(holder->seen, capacity * sizeof(*seen));
    if (seen == NULL)
        return MC_ERR_NO_MEMORY;
    holder->seen = seen;
    holder->seen_capacity = capacity;
    return MC_OK;
}

struct seen *holder_seen(struct holder *holder, uint64_t sequence) {
    size_t place = seen_place(holder, sequence);

    return place < holder->seen_count && holder->seen[place].sequence == sequence ? &holder->seen[place] : NULL;
}

void holder_remember(struct holder *holder, uint64_t sequence, uint64_t granted) {
    size_t place = seen_place(holder, sequence);

    if (sequence < holder->floor)
        return;
    if (place == holder->seen_count || holder->seen[place].sequence != sequence) {
        memmove(&holder->seen[place + 1], &holder->seen[place], (holder->seen_count - place) * sizeof(*holder->seen));
        holder->seen_count++;
    }
    holder->seen[place] = (struct seen){.sequence = sequence, .granted = granted};
}

void holder_raise_floor(struct holder *holder, uint64_t floor) {
    if (floor <= holder->floor)
        return;
    holder->floor = floor;
    drop_first(holder, seen_place(holder, floor));
}

void holder_forget_all(struct holder *holder) {
    free(holder->seen);
    holder->seen = NULL;
    holder->seen_count = holder->seen_capacity = 0;
    holder->floor = 0;
}

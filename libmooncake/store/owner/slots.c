/* store/owner/slots.c - the slots of a segment and their words (rule 1 of docs/store-protocol.md).
 *
 * Owns: pages of slots, which are cut out of the segment when needed and stay; a private record for each slot.
 * Threads: the owner's alone changes; clients read words and write descriptions meanwhile.
 * Invariants: a word's generation is the segment's next one whenever the slot becomes RESERVED, so that it names one
 * reservation for ever; a slot that isn't FREE has one extent, and no two slots share one.
 */
#include <stdlib.h>
#include <string.h>

#include <mooncake/error.h>

#include "store/owner/state.h"
#include "wire/mistake.h"

#define LARGE_SEGMENT (16u << 20)
#define LARGE_PAGE (64u << 10)
#define SMALL_PAGE (4u << 10)
#define FIRST_CAPACITY 16u

static size_t slots_per_page(const struct owner *owner) {
    return (size_t)(owner->slots.page_size / sizeof(struct slot));
}

/* Makes room for the number of one more page. */
static bool grow_pages(struct slots *slots) {
    size_t capacity = slots->page_capacity == 0 ? FIRST_CAPACITY : 2 * slots->page_capacity;
    struct record **pages;

    if (slots->page_count < slots->page_capacity)
        return true;
    pages = realloc(slots->pages, capacity * sizeof(struct record *));
    if (pages == NULL)
        return false;
    slots->pages = pages;
    slots->page_capacity = capacity;
    return true;
}

/* Cuts one more page of slots out of the segment. */
static bool add_page(struct owner *owner) {
    struct slots *slots = &owner->slots;
    size_t count = slots_per_page(owner);
    struct record *records = NULL;
    struct extent *extent = NULL;
    struct slot *first;

    if (grow_pages(slots))
        records = calloc(count, sizeof(*records));
    if (records != NULL)
        extent = space_take(owner->space, slots->page_size, slots->page_size);
    if (extent == NULL) {
        free(records);
        return false;
    }
    first = (struct slot *)(void *)(owner->options.base + extent_offset(extent));
    memset(first, 0, (size_t)slots->page_size);
    for (size_t i = 0; i < count; i++) {
        records[i].slot = first + i;
        list_append(&slots->free, &records[i].node);
    }
    slots->pages[slots->page_count++] = records;
    slots->page_at[extent_offset(extent) / slots->page_size] = (uint32_t)slots->page_count;
    return true;
}

int32_t slots_init(struct owner *owner) {
    struct slots *slots = &owner->slots;

    slots->page_size = owner->options.size >= LARGE_SEGMENT ? LARGE_PAGE : SMALL_PAGE;
    slots->next_generation = owner->options.generation > 0 ? owner->options.generation : 1;
    list_init(&slots->free);
    list_init(&slots->dead);
    slots->page_at = calloc((size_t)(owner->options.size / slots->page_size), sizeof(uint32_t));
    return slots->page_at != NULL && add_page(owner) ? MC_OK : MC_ERR_NO_MEMORY;
}

void slots_clear(struct owner *owner) {
    for (size_t i = 0; i < owner->slots.page_count; i++)
        free(owner->slots.pages[i]);
    free(owner->slots.pages);
    free(owner->slots.page_at);
}

size_t slots_count(const struct owner *owner) {
    return owner->slots.page_count * slots_per_page(owner);
}

struct record *slots_at(const struct owner *owner, size_t number) {
    return &owner->slots.pages[number / slots_per_page(owner)][number % slots_per_page(owner)];
}

struct record *slots_find(const struct owner *owner, uint64_t offset, uint64_t generation) {
    const struct slots *slots = &owner->slots;
    struct record *record;
    uint32_t page;

    /* The last piece of the segment may be shorter than a page, and is none then. */
    if (offset % sizeof(struct slot) != 0 || offset / slots->page_size >= owner->options.size / slots->page_size)
        return NULL;
    page = slots->page_at[offset / slots->page_size];
    if (page == 0)
        return NULL;
    record = &slots->pages[page - 1][offset % slots->page_size / sizeof(struct slot)];
    return slots_generation(record) == generation ? record : NULL;
}

uint64_t slots_offset(const struct owner *owner, const struct record *record) {
    return (uint64_t)((uint8_t *)record->slot - owner->options.base);
}

enum slot_state slots_state(const struct record *record) {
    return slot_word_state(record->word);
}

uint64_t slots_generation(const struct record *record) {
    return slot_word_generation(record->word);
}

/* Rule 1: the only place where a word changes. */
static void set_word(struct owner *owner, struct record *record, uint64_t generation, enum slot_state state) {
    struct slots *slots = &owner->slots;
    uint64_t *counts[] = {NULL, &slots->reserved, &slots->live, &slots->dead_count};
    enum slot_state before = slots_state(record);

    if (before != SLOT_FREE)
        --*counts[before];
    if (state != SLOT_FREE)
        ++*counts[state];
    record->word = slot_word(generation, state);
    atomic_store_explicit(&record->slot->word, record->word, memory_order_release);
}

static uint64_t new_generation(struct owner *owner, const struct record *record) {
    if (MISTAKE(GENERATION_REUSED) && slots_generation(record) != 0)
        return slots_generation(record);
    return owner->slots.next_generation++;
}

struct record *slots_reserve(struct owner *owner, struct holder *holder, uint64_t sequence, uint64_t capacity) {
    struct slots *slots = &owner->slots;
    struct extent *extent;
    struct record *record;
    struct slot *slot;

    if (list_empty(&slots->free) && !add_page(owner))
        return NULL;
    extent = space_take(owner->space, capacity, SPACE_UNIT);
    if (extent == NULL)
        return NULL;
    record = list_entry(slots->free.next, struct record, node);
    list_remove(&record->node);
    list_append(&holder->reserved, &record->node);
    record->extent = extent;
    record->holder = holder;
    record->sequence = sequence;
    record->life = owner->life;
    slot = record->slot;
    slot_describe(slot, &(struct slot_description){0}); /* a late reader may be looking */
    atomic_store_explicit(&slot->version_epoch, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->version_counter, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->offset, extent_offset(extent), memory_order_relaxed);
    set_word(owner, record, new_generation(owner, record), SLOT_RESERVED);
    return record;
}

/* The slot is no longer RESERVED. */
static void leave_holder(struct owner *owner, struct record *record) {
    struct holder *holder = record->holder;

    list_remove(&record->node);
    record->holder = NULL;
    if (holder != NULL)
        holders_slot_left(owner, holder);
}

void slots_promote(struct owner *owner, struct record *record, uint64_t version_epoch, uint64_t version_counter) {
    atomic_store_explicit(&record->slot->version_epoch, version_epoch, memory_order_relaxed);
    atomic_store_explicit(&record->slot->version_counter, version_counter, memory_order_relaxed);
    set_word(owner, record, slots_generation(record), SLOT_LIVE);
    leave_holder(owner, record);
}

void slots_kill(struct owner *owner, struct record *record) {
    set_word(owner, record, slots_generation(record), SLOT_DEAD);
    leave_holder(owner, record);
    list_append(&owner->slots.dead, &record->node);
    owner->sweep_at = 0;
}

void slots_release(struct owner *owner, struct record *record) {
    set_word(owner, record, slots_generation(record), SLOT_FREE);
    list_remove(&record->node);
    list_append(&owner->slots.free, &record->node);
    space_give(owner->space, record->extent);
    record->extent = NULL;
}

/* store/master/policy_hazard.c - the object goes first that is least likely to be read soon, as learned from what was.
 *
 * Objects are of classes: by how often they were used so far, those that were put once and ended their batch (a request's
 * last block is rarely read again) being one of their own. A book owns, for plain objects, a list for each class and age,
 * oldest first; for pinned ones a list for each tier; the hazards; and the ghosts of what was evicted, which tell when it
 * would have been read. Ages count the accesses to the book's segment. Everything is learned, nothing is set.
 *
 * Not thread-safe. An entry's state is last access << 16 | used << 8 | bin << 1 | last of its batch.
 */
#include "store/master/policy.h"

#include <stdlib.h>
#include <string.h>

#include "store/master/ghosts.h"
#include "store/master/hazard.h"

#define LEARN_EVERY 512u /* accesses */
#define GHOSTS_EACH 6u   /* for each object of the book */
#define GHOSTS_LEAST 256u
#define SAMPLES 1024u /* of the ghosts are looked at when learning */
#define NO_CELL 0x7fu /* in no cell */

enum { CLASS_LAST, CLASS_ONCE, CLASS_TWICE, CLASS_THRICE, CLASS_OFTEN };

struct policy_book {
    uint64_t now; /* accesses so far */
    uint64_t learn_at;
    uint64_t plain; /* objects in cells */
    struct list cells[HAZARD_CELLS];
    uint32_t counts[HAZARD_CELLS];    /* of them */
    struct list pinned[POLICY_TIERS]; /* by tier; [POLICY_PLAIN] is empty */
    float present[HAZARD_CLASSES][HAZARD_BINS];
    struct hazard hazard;
    struct ghosts ghosts;
};

static uint64_t state_of(uint64_t last_access, uint32_t used, uint32_t bin, bool last) {
    return last_access << 16 | (uint64_t)used << 8 | (uint64_t)bin << 1 | (last ? 1u : 0u);
}

static uint64_t accessed(uint64_t state) {
    return state >> 16;
}

static uint32_t used(uint64_t state) {
    return (uint32_t)(state >> 8) & 0xff;
}

static uint32_t bin_of(uint64_t state) {
    return (uint32_t)(state >> 1) & 0x7f;
}

static uint32_t class_of(uint64_t state) {
    uint32_t times = used(state);

    if (times <= 1)
        return (state & 1) != 0 ? CLASS_LAST : CLASS_ONCE;
    return times >= 4 ? CLASS_OFTEN : times == 3 ? CLASS_THRICE : CLASS_TWICE;
}

static uint32_t cell_of(uint64_t state) {
    return class_of(state) * HAZARD_BINS + bin_of(state);
}

/* ---- Cells ---- */

static void cell_enter(struct policy_book *book, struct policy_entry *entry, uint32_t bin) {
    entry->state = state_of(accessed(entry->state), used(entry->state), bin, (entry->state & 1) != 0);
    list_append(&book->cells[cell_of(entry->state)], &entry->node);
    book->counts[cell_of(entry->state)]++;
    book->plain++;
}

static void leave(struct policy_book *book, struct policy_entry *entry) {
    list_remove(&entry->node);
    if (bin_of(entry->state) != NO_CELL) {
        book->counts[cell_of(entry->state)]--;
        book->plain--;
    }
    entry->state |= (uint64_t)NO_CELL << 1;
}

static void enter(struct policy_book *book, struct policy_entry *entry) {
    if (entry->tier == POLICY_PLAIN)
        cell_enter(book, entry, hazard_bin(book->now - accessed(entry->state)));
    else
        list_append(&book->pinned[entry->tier], &entry->node);
}

/* Moves what has become older than its cell. */
static void grow_older(struct policy_book *book) {
    for (uint32_t number = HAZARD_CELLS; number-- > 0;) {
        struct list *cell = &book->cells[number], *node, *after;
        uint32_t bin = number % HAZARD_BINS;

        list_each (node, after, cell) {
            struct policy_entry *entry = list_entry(node, struct policy_entry, node);
            uint32_t now_in = hazard_bin(book->now - accessed(entry->state));

            if (now_in <= bin)
                break;
            leave(book, entry);
            cell_enter(book, entry, now_in);
        }
    }
}

/* ---- Learning ---- */

static void count_entries(struct policy_book *book) {
    for (uint32_t number = 0; number < HAZARD_CELLS; number++)
        book->present[number / HAZARD_BINS][number % HAZARD_BINS] = (float)book->counts[number];
}

static void count_ghosts(struct policy_book *book) {
    const struct ghosts *ghosts = &book->ghosts;
    uint32_t step = ghosts->count / SAMPLES + 1;

    for (uint32_t i = (uint32_t)(book->now % step); i < ghosts->count; i += step) {
        const struct ghost *ghost = &ghosts->ring[(ghosts->first + i) & (ghosts->room - 1)];

        if (ghost->key != 0)
            book->present[class_of(ghost->state)][hazard_bin(book->now - accessed(ghost->state))] += (float)step;
    }
}

static void learn(struct policy_book *book) {
    book->learn_at = book->now + LEARN_EVERY;
    grow_older(book);
    count_entries(book);
    count_ghosts(book);
    hazard_learn(&book->hazard, (const float(*)[HAZARD_BINS])book->present);
}

static void tick(struct policy_book *book) {
    if (++book->now >= book->learn_at)
        learn(book);
}

/* ---- The policy ---- */

static struct policy_book *hazard_open(void) {
    struct policy_book *book = calloc(1, sizeof(*book));

    if (book == NULL)
        return NULL;
    for (uint32_t number = 0; number < HAZARD_CELLS; number++)
        list_init(&book->cells[number]);
    for (int tier = 0; tier < POLICY_TIERS; tier++)
        list_init(&book->pinned[tier]);
    hazard_init(&book->hazard);
    book->learn_at = LEARN_EVERY;
    return book;
}

static void hazard_close(struct policy_book *book) {
    if (book != NULL)
        ghosts_clear(&book->ghosts);
    free(book);
}

/* One that was evicted before goes on as what it was. */
static void hazard_insert(struct policy_book *book, struct policy_entry *entry, const struct policy_news *news) {
    uint64_t ghost;
    uint32_t times = 1;

    tick(book);
    if (ghosts_take(&book->ghosts, news->key, &ghost)) {
        hazard_note(&book->hazard, class_of(ghost), book->now - accessed(ghost), true);
        times = used(ghost) + (used(ghost) < 4);
    }
    entry->state = state_of(book->now, times, NO_CELL, news->last);
    enter(book, entry);
}

static void hazard_remove(struct policy_book *book, struct policy_entry *entry) {
    leave(book, entry);
}

static void hazard_evict(struct policy_book *book, struct policy_entry *entry, uint64_t key) {
    uint64_t most = book->plain * GHOSTS_EACH, ghost;

    leave(book, entry);
    ghosts_add(&book->ghosts, key, entry->state);
    if (most < GHOSTS_LEAST)
        most = GHOSTS_LEAST;
    while (ghosts_shrink(&book->ghosts, most < UINT32_MAX ? (uint32_t)most : UINT32_MAX, &ghost))
        hazard_note(&book->hazard, class_of(ghost), book->now - accessed(ghost), false);
}

static void hazard_touch(struct policy_book *book, struct policy_entry *entry) {
    uint64_t age;

    tick(book);
    age = book->now - accessed(entry->state);
    if (entry->tier == POLICY_PLAIN)
        hazard_note(&book->hazard, class_of(entry->state), age, true);
    leave(book, entry);
    entry->state = state_of(book->now, used(entry->state) + (used(entry->state) < 4), NO_CELL, (entry->state & 1) != 0);
    enter(book, entry);
}

static void hazard_move(struct policy_book *book, struct policy_entry *entry, enum policy_tier tier) {
    leave(book, entry);
    entry->tier = tier;
    enter(book, entry);
}

static struct policy_entry *first_of(struct list *list) {
    return list_empty(list) ? NULL : list_entry(list->next, struct policy_entry, node);
}

static struct policy_entry *hazard_victim(struct policy_book *book, enum policy_tier highest) {
    struct policy_entry *entry = NULL;

    for (uint32_t i = 0; i < HAZARD_CELLS && entry == NULL; i++)
        entry = first_of(&book->cells[book->hazard.ranked[i]]);
    for (int tier = POLICY_PLAIN + 1; tier <= (int)highest && tier < POLICY_TIERS && entry == NULL; tier++)
        entry = first_of(&book->pinned[tier]);
    return entry;
}

static struct policy_entry *hazard_any(struct policy_book *book) {
    return hazard_victim(book, POLICY_HARD_PINNED);
}

const struct policy_ops policy_hazard = {
    .name = "hazard",
    .open = hazard_open,
    .close = hazard_close,
    .insert = hazard_insert,
    .remove = hazard_remove,
    .evict = hazard_evict,
    .touch = hazard_touch,
    .move = hazard_move,
    .victim = hazard_victim,
    .any = hazard_any,
};

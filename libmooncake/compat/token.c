/* compat/token.c - the table of handles and ids of a shim.
 *
 * Owns the slots. A token is generation << 32 | slot; a slot's generation grows when it is given back, and a slot whose
 * generations are used up is given up. `lock` is held for moments, and over fork; the child begins with an empty table
 * whose generations are above all that there were: locks of the objects themselves may be those of threads that the
 * child doesn't have.
 */
#include "compat/token.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

#define SLOTS_MAX (1u << 24)
#define SLOTS_FIRST 64u
#define GENERATION_MAX 0xfffffffeu
#define NO_SLOT UINT32_MAX

struct slot {
    struct token_object *object; /* NULL: free */
    uint32_t generation;
    uint32_t next_free;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    struct slot *slots;
    uint32_t count; /* that were ever used */
    uint32_t room;
    uint32_t first_free;
    uint32_t born; /* the generation that new slots begin with */
} table = {.first_free = NO_SLOT, .born = 1};

void token_init(struct token_object *object, enum token_kind kind, void (*destroy)(struct token_object *object)) {
    atomic_init(&object->references, 1);
    object->kind = kind;
    object->destroy = destroy;
}

void token_hold(struct token_object *object) {
    atomic_fetch_add_explicit(&object->references, 1, memory_order_relaxed);
}

void token_drop(struct token_object *object) {
    if (atomic_fetch_sub_explicit(&object->references, 1, memory_order_acq_rel) == 1)
        object->destroy(object);
}

/* With the lock held. */
static int grow(void) {
    uint32_t room = table.room == 0 ? SLOTS_FIRST : table.room * 2;
    struct slot *slots = room > SLOTS_MAX ? NULL : realloc(table.slots, room * sizeof(*slots));

    if (slots == NULL)
        return -1;
    table.slots = slots;
    table.room = room;
    return 0;
}

uint64_t token_publish(struct token_object *object) {
    uint64_t token = 0;
    uint32_t index;

    pthread_mutex_lock(&lock);
    index = table.first_free;
    if (index != NO_SLOT) {
        table.first_free = table.slots[index].next_free;
    } else if (table.count < table.room || grow() == 0) {
        index = table.count++;
        table.slots[index].generation = table.born;
    }
    if (index != NO_SLOT) {
        token_hold(object);
        table.slots[index].object = object;
        token = (uint64_t)table.slots[index].generation << 32 | index;
    }
    pthread_mutex_unlock(&lock);
    return token;
}

/* With the lock held. */
static struct slot *find(uint64_t token, enum token_kind kind) {
    uint32_t index = (uint32_t)token;
    struct slot *slot = index < table.count ? &table.slots[index] : NULL;

    if (slot == NULL || slot->object == NULL || slot->generation != token >> 32 || slot->object->kind != kind)
        return NULL;
    return slot;
}

struct token_object *token_acquire(uint64_t token, enum token_kind kind) {
    struct token_object *object = NULL;
    struct slot *slot;

    pthread_mutex_lock(&lock);
    slot = find(token, kind);
    if (slot != NULL) {
        object = slot->object;
        token_hold(object);
    }
    pthread_mutex_unlock(&lock);
    return object;
}

struct token_object *token_withdraw(uint64_t token, enum token_kind kind) {
    struct token_object *object = NULL;
    struct slot *slot;

    pthread_mutex_lock(&lock);
    slot = find(token, kind);
    if (slot != NULL) {
        object = slot->object;
        slot->object = NULL;
        if (slot->generation < GENERATION_MAX) {
            slot->generation++;
            slot->next_free = table.first_free;
            table.first_free = (uint32_t)(slot - table.slots);
        }
    }
    pthread_mutex_unlock(&lock);
    return object;
}

static void before_fork(void) {
    pthread_mutex_lock(&lock);
}

static void in_parent(void) {
    pthread_mutex_unlock(&lock);
}

static void in_child(void) {
    for (uint32_t i = 0; i < table.count; i++)
        if (table.slots[i].generation >= table.born && table.slots[i].generation < GENERATION_MAX)
            table.born = table.slots[i].generation + 1;
    table.count = 0;
    table.first_free = NO_SLOT;
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void token_start(void) {
    (void)pthread_atfork(before_fork, in_parent, in_child);
}

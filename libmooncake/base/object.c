/* base/object.c - the table of ids: slots in chunks that are made when needed, and a queue of the free ones.
 *
 * An id is a slot number (low 32 bits) and the generation of that slot (high 32 bits).
 *
 * Owns: the slots, and one reference on each object in them. Chunks are never freed.
 *
 * Threads: any. Looking an id up takes no lock: whoever looks counts himself in the slot's word while he takes his
 * reference, and whoever withdraws the id changes the word first and then waits for those. `lock` guards the rest, and
 * is held for a few instructions only. It is held over fork, so that the child finds the table whole; the objects in it
 * are then foreign there, which `process` tells, and stay in it for ever.
 *
 * Invariants: a slot's generation is odd if and only if it holds an object, so 0 is never an id. The slot that has been
 * free longest is used first, which spreads the generations over all slots; a slot whose generations are used up is
 * retired. Generations begin at a random number, so that another process's id is hardly ever a live one here.
 */
#include "base/object.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/random.h>

#include <mooncake/error.h>

#define CHUNK_SLOTS 512u
#define CHUNKS 2048u /* 2^20 slots in all */
#define NO_SLOT UINT32_MAX
#define LAST_GENERATION (UINT32_MAX - 1)

#define GENERATION ((uint64_t)1 << 32)

struct slot {
    _Atomic uint64_t word; /* generation << 32 | how many are looking at it */
    struct object *object; /* written while the generation is even and nobody looks */
    uint32_t next;         /* in the queue of free slots */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slot *chunks[CHUNKS];
static _Atomic uint32_t chunk_count; /* grows with the lock held, after the chunk is there */
static uint32_t first_generation;
static uint32_t free_head = NO_SLOT;
static uint32_t free_tail = NO_SLOT;
static _Atomic uint32_t process;

static struct slot *slot_at(uint32_t index) {
    return &chunks[index / CHUNK_SLOTS][index % CHUNK_SLOTS];
}

/* Appends a slot to the queue of free ones. Call with the lock held. */
static void put_free(uint32_t index) {
    slot_at(index)->next = NO_SLOT;
    if (free_head == NO_SLOT)
        free_head = index;
    else
        slot_at(free_tail)->next = index;
    free_tail = index;
}

/* Adds a chunk of free slots, if there may be one more and memory allows. Call with the lock held. */
static void grow(void) {
    uint32_t count = atomic_load_explicit(&chunk_count, memory_order_relaxed);
    struct slot *slots;

    if (count == CHUNKS)
        return;
    slots = calloc(CHUNK_SLOTS, sizeof(*slots));
    if (slots == NULL)
        return;
    if (count == 0 && getrandom(&first_generation, sizeof(first_generation), GRND_NONBLOCK) > 0)
        first_generation = first_generation % (1u << 30) & ~1u;
    chunks[count] = slots;
    for (uint32_t i = 0; i < CHUNK_SLOTS; i++) {
        atomic_init(&slots[i].word, first_generation * GENERATION);
        put_free(count * CHUNK_SLOTS + i);
    }
    atomic_store_explicit(&chunk_count, count + 1, memory_order_release);
}

static void look_away(struct slot *slot) {
    atomic_fetch_sub_explicit(&slot->word, 1, memory_order_release);
}

/* The slot that `id` names, if it holds an object of this kind made in this process: then its object stays in it until
 * look_away. */
static int32_t look(uint64_t id, enum object_kind kind, struct slot **ret_slot) {
    uint32_t index = (uint32_t)id;
    uint32_t generation = (uint32_t)(id >> 32);
    int32_t status = MC_OK;
    struct slot *slot;

    if (generation % 2 == 0 || index / CHUNK_SLOTS >= atomic_load_explicit(&chunk_count, memory_order_acquire))
        return MC_ERR_INVALID_HANDLE;
    slot = slot_at(index);
    if (atomic_fetch_add_explicit(&slot->word, 1, memory_order_acquire) / GENERATION != generation ||
        slot->object->kind != (uint32_t)kind)
        status = MC_ERR_INVALID_HANDLE;
    else if (slot->object->process != object_process())
        status = MC_ERR_FORKED;
    if (status == MC_OK)
        *ret_slot = slot;
    else
        look_away(slot);
    return status;
}

void object_init(struct object *object, enum object_kind kind, void (*destroy)(struct ref *self)) {
    ref_init(&object->ref, destroy);
    object->kind = (uint32_t)kind;
    object->process = object_process();
}

int32_t object_publish(struct object *object, uint64_t *ret_id) {
    int32_t status = MC_ERR_TOO_MANY;

    pthread_mutex_lock(&lock);
    if (free_head == NO_SLOT)
        grow();
    if (free_head != NO_SLOT) {
        uint32_t index = free_head;
        struct slot *slot = slot_at(index);
        uint64_t before;

        free_head = slot->next;
        ref_take(&object->ref);
        slot->object = object;
        before = atomic_fetch_add_explicit(&slot->word, GENERATION, memory_order_release); /* even to odd: in use */
        *ret_id = (before / GENERATION + 1) * GENERATION | index;
        status = MC_OK;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int32_t object_acquire(uint64_t id, enum object_kind kind, struct object **ret_object) {
    struct slot *slot;
    int32_t status = look(id, kind, &slot);

    if (status != MC_OK)
        return status;
    ref_take(&slot->object->ref);
    *ret_object = slot->object;
    look_away(slot);
    return MC_OK;
}

/* Takes the object out of a slot whose generation has just become even, when nobody looks any more. Call with the lock
 * held. */
static struct object *empty(struct slot *slot) {
    struct object *object = slot->object;

    while ((atomic_load_explicit(&slot->word, memory_order_acquire) & (GENERATION - 1)) != 0)
        (void)sched_yield();
    slot->object = NULL;
    return object;
}

int32_t object_withdraw(uint64_t id, enum object_kind kind, struct object **ret_object) {
    struct slot *slot;
    int32_t status;

    pthread_mutex_lock(&lock); /* so only one of two finds it */
    status = look(id, kind, &slot);
    if (status == MC_OK) {
        /* Odd to even, and this thread looks away: free, and every copy of the id is stale. */
        uint64_t word = atomic_fetch_add_explicit(&slot->word, GENERATION - 1, memory_order_acq_rel);

        *ret_object = empty(slot);
        if (word / GENERATION + 1 < LAST_GENERATION)
            put_free((uint32_t)id);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

uint32_t object_process(void) {
    return atomic_load_explicit(&process, memory_order_relaxed);
}

static void lock_for_fork(void) {
    pthread_mutex_lock(&lock);
}

static void unlock_in_parent(void) {
    pthread_mutex_unlock(&lock);
}

/* Who was looking in the parent isn't here. */
static void unlock_in_child(void) {
    uint32_t count = atomic_load(&chunk_count) * CHUNK_SLOTS;

    for (uint32_t i = 0; i < count; i++)
        atomic_fetch_and(&slot_at(i)->word, ~(GENERATION - 1));
    atomic_fetch_add_explicit(&process, 1, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor(102))) static void object_start(void) {
    (void)pthread_atfork(lock_for_fork, unlock_in_parent, unlock_in_child);
}

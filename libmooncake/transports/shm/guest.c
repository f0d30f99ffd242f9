/* transports/shm/guest.c - the side that maps a peer's memory and copies.
 *
 * Owns: the UNIX connection, both pages, and a table of the peer's regions. `lock` guards the table, and is never held
 * while something waits: a copy from mapped memory needs nothing else, and holds a reference on its mapping. Memory is
 * mapped before the first copy, by shm_guest_reach alone: one thread at a time is `asking`, which means that the socket
 * and `owed` are its own. The loop watches the socket for its end only: that is how the peer's death is learnt.
 */
#include "transports/shm/guest.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/ref.h"
#include "os/fork.h"
#include "os/memfd.h"
#include "os/socket.h"
#include "os/thread.h"
#include "transports/guard.h"
#include "transports/shm/enter.h"
#include "transports/shm/page.h"

#define MAP_TIME (200 * CLOCK_MILLISECOND) /* that a region's first use may wait */

/* One region of the peer. Immutable but for its memory, which is mapped once, by who is asking. */
struct mapping {
    struct ref ref;
    uint64_t key;
    uint64_t base;
    uint64_t length;
    uint64_t memory_offset;
    uint64_t memory_size;
    uint32_t access;
    uint32_t slot;
    atomic_bool refused;       /* it can't be mapped: not asked again */
    _Atomic(uint8_t *) memory; /* the whole memfd; NULL until mapped */
};

struct shm_guest {
    pthread_mutex_t lock;
    struct loop *loop;
    struct loop_watch watch;
    atomic_bool dead;
    pthread_cond_t asked; /* `asking` has become false */
    bool asking;          /* with the lock held */
    struct mapping *owed; /* a reference: the answer for it hasn't come */
    atomic_bool late;     /* and not for some time */
    const struct shm_page *page;
    struct shm_counters *counters;
    uint64_t seen;          /* page->changes when the table was made */
    bool fresh;             /* the table was made at all */
    struct mapping **table; /* by base address */
    size_t count;
    struct mapping *by_slot[SHM_SLOTS]; /* the same; no references of its own */
};

/* ---- The table of regions. With the lock held. ---- */

static void mapping_destroy(struct ref *ref) {
    struct mapping *mapping = list_entry(ref, struct mapping, ref);

    if (mapping->memory != NULL)
        memfd_unmap(mapping->memory, mapping->memory_size);
    free(mapping);
}

/* A mapping made from one slot as it is now; NULL if the slot isn't open, or what it says makes no sense. */
static struct mapping *read_slot(const struct shm_guest *guest, uint32_t index) {
    const struct shm_slot *slot = &guest->page->slots[index];
    uint64_t key = atomic_load(&slot->key);
    struct mapping *mapping;
    uint64_t end;

    if (key % SHM_STATES != SHM_OPEN)
        return NULL;
    mapping = calloc(1, sizeof(*mapping));
    if (mapping == NULL)
        return NULL;
    ref_init(&mapping->ref, mapping_destroy);
    mapping->key = key;
    mapping->base = slot->base;
    mapping->length = slot->length;
    mapping->memory_offset = slot->memory_offset;
    mapping->memory_size = slot->memory_size;
    mapping->access = (uint32_t)slot->access;
    mapping->slot = index;
    if (atomic_load(&slot->key) != key || mapping->length == 0 || mapping->memory_size > SIZE_MAX ||
        !checked_add(mapping->base, mapping->length - 1, &end) ||
        !checked_within(mapping->memory_offset, mapping->length, 0, mapping->memory_size) ||
        (mapping->memory_offset - mapping->base) % sizeof(uint64_t) != 0) { /* an aligned guard stays so when mapped */
        free(mapping);
        return NULL;
    }
    return mapping;
}

static int by_base(const void *a, const void *b) {
    const struct mapping *one = *(struct mapping *const *)a, *other = *(struct mapping *const *)b;

    return one->base < other->base ? -1 : one->base > other->base;
}

static void drop_table(struct shm_guest *guest) {
    for (size_t i = 0; i < guest->count; i++)
        ref_drop(&guest->table[i]->ref);
    free(guest->table);
    guest->table = NULL;
    guest->count = 0;
}

/* Is it the region that was read? One that is CLOSING may be open again: it keeps what is mapped. */
static bool is_same(const struct mapping *mapping, uint64_t key) {
    return mapping != NULL && mapping->key / SHM_STATES == key / SHM_STATES && key % SHM_STATES != SHM_FREE;
}

/* Makes the table anew if the peer's regions have changed. */
static void refresh(struct shm_guest *guest) {
    uint64_t changes = atomic_load(&guest->page->changes);
    struct mapping **table;
    size_t count = 0;

    if (guest->fresh && changes == guest->seen)
        return;
    table = calloc(SHM_SLOTS, sizeof(*table));
    if (table == NULL)
        return;
    for (uint32_t i = 0; i < SHM_SLOTS; i++) {
        struct mapping *mapping = guest->by_slot[i];

        if (is_same(mapping, atomic_load(&guest->page->slots[i].key)))
            ref_take(&mapping->ref);
        else
            mapping = read_slot(guest, i);
        guest->by_slot[i] = mapping;
        if (mapping != NULL)
            table[count++] = mapping;
    }
    qsort(table, count, sizeof(*table), by_base);
    drop_table(guest);
    guest->table = table;
    guest->count = count;
    guest->seen = changes;
    guest->fresh = true;
}

/* The region that contains [address, address + length) with the rights, else NULL. */
static struct mapping *find_region(const struct shm_guest *guest, uint64_t address, uint64_t length, uint32_t access) {
    size_t low = 0, high = guest->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (guest->table[middle]->base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || !checked_within(address, length, guest->table[low - 1]->base, guest->table[low - 1]->length) ||
        (guest->table[low - 1]->access & access) != access)
        return NULL;
    return guest->table[low - 1];
}

/* The same with a reference. Takes the lock. */
static struct mapping *take_region(struct shm_guest *guest, uint64_t address, uint64_t length, uint32_t access) {
    struct mapping *mapping;

    pthread_mutex_lock(&guest->lock);
    refresh(guest);
    mapping = find_region(guest, address, length, access);
    if (mapping != NULL)
        ref_take(&mapping->ref);
    pthread_mutex_unlock(&guest->lock);
    return mapping;
}

static bool is_open(const struct shm_guest *guest, const struct mapping *mapping) {
    return atomic_load(&guest->page->slots[mapping->slot].key) == mapping->key;
}

/* ---- Mapping ---- */

/* Becomes the one who is asking; false if others are until `deadline`. */
static bool begin_asking(struct shm_guest *guest, uint64_t deadline) {
    bool mine;

    pthread_mutex_lock(&guest->lock);
    while (guest->asking && thread_cond_wait(&guest->asked, &guest->lock, deadline) == 0)
        continue;
    mine = !guest->asking;
    guest->asking = true;
    pthread_mutex_unlock(&guest->lock);
    return mine;
}

static void end_asking(struct shm_guest *guest) {
    pthread_mutex_lock(&guest->lock);
    guest->asking = false;
    pthread_cond_broadcast(&guest->asked);
    pthread_mutex_unlock(&guest->lock);
}

/* Takes the answer that is owed, if it comes by `deadline`. */
static void take_answer(struct shm_guest *guest, uint64_t deadline) {
    struct mapping *mapping = guest->owed;
    struct shm_packet answer;
    size_t count = 0;
    void *memory;
    int fd;

    if (!shm_receive(guest->watch.fd, SHM_MAPPED, deadline, &answer, &fd, 1, &count)) {
        atomic_store(errno == ETIMEDOUT ? &guest->late : &guest->dead, true);
        return;
    }
    if (answer.status == MC_OK && answer.key == mapping->key && count == 1 &&
        memfd_map(fd, 0, mapping->memory_size, (mapping->access & MC_REMOTE_WRITE) != 0, &memory) == 0)
        atomic_store(&mapping->memory, memory);
    else if (answer.status != MC_ERR_NOT_REGISTERED) /* which may be for a moment: an unregistration that fails */
        atomic_store(&mapping->refused, true);
    if (count == 1)
        fork_close(fd);
    guest->owed = NULL;
    ref_drop(&mapping->ref);
    atomic_store(&guest->late, false);
}

static void ask(struct shm_guest *guest, struct mapping *mapping, uint64_t deadline) {
    struct shm_packet packet = {.kind = SHM_MAP, .slot = mapping->slot, .key = mapping->key};

    if (socket_send_fds(guest->watch.fd, &packet, sizeof(packet), NULL, 0) < 0) {
        atomic_store(&guest->dead, true);
        return;
    }
    ref_take(&mapping->ref);
    guest->owed = mapping;
    take_answer(guest, deadline);
}

/* Maps the region's memory, if it isn't. A peer that is late is waited for once: until its answer has come nothing new
 * is asked, and what is mapped is used as before. */
static bool map(struct shm_guest *guest, struct mapping *mapping, uint64_t deadline) {
    if (atomic_load(&mapping->memory) != NULL && !atomic_load(&guest->late))
        return true;
    if (!atomic_load(&mapping->refused) && begin_asking(guest, deadline)) {
        if (guest->owed != NULL)
            take_answer(guest, 0);
        if (guest->owed == NULL && atomic_load(&mapping->memory) == NULL && !atomic_load(&mapping->refused) &&
            !atomic_load(&guest->dead))
            ask(guest, mapping, deadline);
        end_asking(guest);
    }
    return atomic_load(&mapping->memory) != NULL;
}

/* ---- Copies ---- */

/* One of the peer's addresses, mapped and counted as under copy. */
struct hold {
    struct mapping *mapping;
    uint8_t *at;
};

static void let_go(struct shm_guest *guest, struct hold *hold) {
    atomic_fetch_sub(&guest->counters->copies[hold->mapping->slot], 1);
    ref_drop(&hold->mapping->ref);
}

/* MC_OK; MC_ERR_NOT_REGISTERED if there is no such region any more (or never was), or it isn't mapped. Never waits. */
static int32_t hold(struct shm_guest *guest, uint64_t address, uint64_t length, uint32_t access,
                    struct hold *ret_hold) {
    struct mapping *mapping = take_region(guest, address, length, access);

    if (mapping == NULL)
        return MC_ERR_NOT_REGISTERED;
    ret_hold->mapping = mapping;
    atomic_fetch_add(&guest->counters->copies[mapping->slot], 1);
    if (is_open(guest, mapping) && atomic_load(&mapping->memory) != NULL) {
        ret_hold->at = atomic_load(&mapping->memory) + mapping->memory_offset + (address - mapping->base);
        return MC_OK;
    }
    let_go(guest, ret_hold);
    return MC_ERR_NOT_REGISTERED;
}

static int32_t check_guard(const struct slice *slice, const struct hold *guard) {
    return !slice->guarded || guard_holds(guard->at, slice->guard_value) ? MC_OK : MC_ERR_GUARD_MISMATCH;
}

static uint32_t right_for(const struct slice *slice) {
    return slice->opcode == MC_READ ? MC_REMOTE_READ : MC_REMOTE_WRITE;
}

const char *shm_guest_trouble(struct shm_guest *guest) {
    if (atomic_load(&guest->dead))
        return "the connection to the peer's UNIX socket has ended";
    if (atomic_load(&guest->late))
        return "the peer doesn't answer on its UNIX socket: regions that aren't mapped yet take another path";
    return NULL;
}

/* Can a copy begin there? Maps what isn't mapped, and waits for that until `deadline`. */
static bool reach(struct shm_guest *guest, uint64_t address, uint64_t length, uint32_t access, uint64_t deadline) {
    struct mapping *mapping = take_region(guest, address, length, access);
    bool reached;

    if (mapping == NULL)
        return false;
    reached = is_open(guest, mapping) && map(guest, mapping, deadline);
    ref_drop(&mapping->ref);
    return reached;
}

bool shm_guest_reach(struct shm_guest *guest, const struct slice *slice) {
    uint64_t deadline = clock_after(clock_now(), MAP_TIME);

    if (atomic_load(&guest->dead) || !reach(guest, slice->remote, slice->length, right_for(slice), deadline))
        return false;
    return !slice->guarded || (slice->guard_address % sizeof(uint64_t) == 0 &&
                               reach(guest, slice->guard_address, sizeof(uint64_t), MC_REMOTE_READ, deadline));
}

int32_t shm_guest_map(struct shm_guest *guest, uint64_t address, uint64_t length, uint32_t access, void **ret_memory,
                      struct ref **ret_hold) {
    struct mapping *mapping = NULL;

    if (!atomic_load(&guest->dead))
        mapping = take_region(guest, address, length, access);
    if (mapping == NULL)
        return MC_ERR_NOT_SUPPORTED;
    if (!is_open(guest, mapping) || !map(guest, mapping, clock_after(clock_now(), MAP_TIME))) {
        ref_drop(&mapping->ref);
        return MC_ERR_NOT_SUPPORTED;
    }
    *ret_memory = atomic_load(&mapping->memory) + mapping->memory_offset + (address - mapping->base);
    *ret_hold = &mapping->ref;
    return MC_OK;
}

/* Copies the next piece; its guard is held. */
static int32_t copy_piece(struct shm_guest *guest, struct slice *slice) {
    uint64_t left = slice->length - slice->moved;
    uint64_t piece = left < TRANSPORT_PIECE ? left : TRANSPORT_PIECE;
    struct hold remote;
    int32_t status = hold(guest, slice->remote + slice->moved, piece, right_for(slice), &remote);

    if (status != MC_OK)
        return status;
    slice->indeterminate = slice->opcode == MC_WRITE;
    if (slice->opcode == MC_READ)
        memcpy(slice->local + slice->moved, remote.at, piece);
    else
        memcpy(remote.at, slice->local + slice->moved, piece);
    let_go(guest, &remote);
    slice->moved += piece;
    return MC_OK;
}

/* A guard is looked at before each piece, and its region counted as under copy until the piece is copied: so the host
 * knows, when it has changed the word, whether anybody goes on who found it unchanged. */
int32_t shm_guest_step(struct shm_guest *guest, struct slice *slice) {
    struct hold guard;
    int32_t status = MC_OK;

    if (atomic_load(&guest->dead))
        return MC_ERR_CONNECTION_LOST;
    if (slice->guarded)
        status = hold(guest, slice->guard_address, sizeof(uint64_t), MC_REMOTE_READ, &guard);
    if (status != MC_OK)
        return status;
    status = check_guard(slice, &guard);
    if (status == MC_OK)
        status = copy_piece(guest, slice);
    if (status == MC_OK)
        status = slice->moved < slice->length ? MC_ERR_PENDING : check_guard(slice, &guard);
    if (slice->guarded)
        let_go(guest, &guard);
    return status;
}

/* ---- Opening and closing ---- */

static void on_end(struct loop_watch *watch, uint32_t events) {
    struct shm_guest *guest = list_entry(watch, struct shm_guest, watch);

    (void)events;
    atomic_store(&guest->dead, true);
    loop_remove(guest->loop, watch);
}

int32_t shm_guest_open(const struct transport_host *host, struct channel *channel, struct shm_guest **ret_guest,
                       char reason[TRANSPORT_REASON_MAX]) {
    struct shm_guest *guest = calloc(1, sizeof(*guest));
    struct shm_entry entry;
    int32_t status;

    if (guest == NULL)
        return MC_ERR_NO_MEMORY;
    status = shm_enter(host, channel, &entry, reason);
    if (status != MC_OK) {
        free(guest);
        return status;
    }
    pthread_mutex_init(&guest->lock, NULL);
    thread_cond_init(&guest->asked);
    guest->loop = host->loop;
    guest->page = entry.page;
    guest->counters = entry.counters;
    guest->watch.ready = on_end;
    guest->watch.fd = entry.fd;
    status = loop_add(guest->loop, &guest->watch, EPOLLRDHUP);
    if (status != MC_OK) {
        shm_guest_close(guest);
        return status;
    }
    *ret_guest = guest;
    return MC_OK;
}

void shm_guest_close(struct shm_guest *guest) {
    loop_remove_sync(guest->loop, &guest->watch);
    drop_table(guest);
    if (guest->owed != NULL)
        ref_drop(&guest->owed->ref);
    memfd_unmap((void *)(uintptr_t)guest->page, memfd_round(sizeof(*guest->page)));
    memfd_unmap(guest->counters, memfd_round(sizeof(*guest->counters)));
    socket_close(guest->watch.fd);
    pthread_cond_destroy(&guest->asked);
    pthread_mutex_destroy(&guest->lock);
    free(guest);
}

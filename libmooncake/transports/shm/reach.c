/* transports/shm/reach.c - can a guest copy there? Before the first copy it maps the memory, or tries to read it.
 *
 * One thread at a time is `asking`, which means that the socket, `owes` and `owed` are its own. It holds no lock while
 * it waits for an answer, so what it asks for may be gone when that comes: then the answer is for nobody.
 */
#include <errno.h>

#include "base/clock.h"
#include "os/fork.h"
#include "os/memfd.h"
#include "os/socket.h"
#include "os/thread.h"
#include "transports/shm/enter.h"
#include "transports/shm/inside.h"

#define MAP_TIME (200 * CLOCK_MILLISECOND) /* that a region's first use may wait */

/* ---- Asking for memory ---- */

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

/* Gives the memory, if there is one, to the region for which it was asked; else that can't be mapped. */
static void settle_answer(struct shm_guest *guest, const struct shm_wanted *wanted, void *address, bool refused) {
    struct shm_memory *memory = NULL;
    struct shm_region *region;

    pthread_mutex_lock(&guest->lock);
    if (address != NULL)
        memory = shm_regions_add_memory(&guest->regions, wanted->number, wanted->size, wanted->writable, address);
    region = shm_regions_at(&guest->regions, wanted->slot, wanted->key);
    if (region != NULL && region->memory == NULL && memory != NULL)
        shm_regions_use_memory(region, memory);
    else if (region != NULL && refused)
        atomic_store(&region->refused, true);
    if (memory != NULL)
        shm_regions_drop_memory(&guest->regions, memory);
    pthread_mutex_unlock(&guest->lock);
}

/* Takes the answer that is owed, if it comes by `deadline`. */
static void take_answer(struct shm_guest *guest, uint64_t deadline) {
    const struct shm_wanted *owed = &guest->owed;
    struct shm_packet answer;
    void *address = NULL;
    size_t count = 0;
    int fd;

    if (!shm_receive(guest->watch.fd, SHM_MAPPED, deadline, &answer, &fd, 1, &count)) {
        atomic_store(errno == ETIMEDOUT ? &guest->late : &guest->dead, true);
        return;
    }
    if (answer.status != MC_OK || answer.key != owed->key || count != 1 ||
        memfd_map(fd, 0, owed->size, owed->writable, &address) != 0)
        address = NULL;
    if (count == 1)
        fork_close(fd);
    /* NOT_REGISTERED may be for a moment: an unregistration that fails. */
    settle_answer(guest, owed, address, address == NULL && answer.status != MC_ERR_NOT_REGISTERED);
    guest->owes = false;
    atomic_store(&guest->late, false);
}

static void ask(struct shm_guest *guest, const struct shm_wanted *wanted, uint64_t deadline) {
    struct shm_packet packet = {.kind = SHM_MAP, .slot = wanted->slot, .key = wanted->key};

    if (socket_send_fds(guest->watch.fd, &packet, sizeof(packet), NULL, 0) < 0) {
        atomic_store(&guest->dead, true);
        return;
    }
    guest->owes = true;
    guest->owed = *wanted;
    take_answer(guest, deadline);
}

/* Does the region still need its memory? It gets one that is mapped already. */
static bool still_wanted(struct shm_guest *guest, const struct shm_wanted *wanted) {
    struct shm_region *region;
    struct shm_memory *memory;
    bool still = false;

    pthread_mutex_lock(&guest->lock);
    region = shm_regions_at(&guest->regions, wanted->slot, wanted->key);
    if (region != NULL && region->memory == NULL && !atomic_load(&region->refused)) {
        memory = shm_regions_memory(&guest->regions, wanted->number, wanted->size, wanted->writable);
        if (memory != NULL)
            shm_regions_use_memory(region, memory);
        still = memory == NULL;
    }
    pthread_mutex_unlock(&guest->lock);
    return still && !atomic_load(&guest->dead);
}

/* Maps the region's memory. A peer that is late is waited for once: until its answer has come nothing new is asked. */
static void map(struct shm_guest *guest, const struct shm_wanted *wanted, uint64_t deadline) {
    if (!begin_asking(guest, deadline))
        return;
    if (guest->owes)
        take_answer(guest, 0);
    if (!guest->owes && still_wanted(guest, wanted))
        ask(guest, wanted, deadline);
    end_asking(guest);
}

/* ---- Reaching ---- */

enum reached { NOWHERE, UNKNOWN, REACHED };

/* Can a copy begin there, as far as is known? Fills `ret_wanted` if the region's memory is yet to be mapped, else its
 * number is 0. Takes no lock. */
static enum reached look(struct shm_guest *guest, uint64_t address, uint64_t length, uint32_t access,
                         struct shm_wanted *ret_wanted) {
    _Atomic uint32_t *inside = shm_regions_enter(&guest->regions);
    const struct shm_region *region = shm_regions_find(&guest->regions, address, length, access);
    enum reached reached = NOWHERE;

    ret_wanted->number = 0;
    if (region != NULL && shm_regions_open(&guest->regions, region)) {
        int direct = atomic_load_explicit(&region->direct, memory_order_relaxed);

        if (atomic_load(&region->at) != NULL)
            reached = REACHED;
        else if (region->number != 0 && !atomic_load(&region->refused))
            *ret_wanted = (struct shm_wanted){.slot = region->slot,
                                              .key = region->key,
                                              .number = region->number,
                                              .size = region->memory_size,
                                              .writable = (region->access & MC_REMOTE_WRITE) != 0};
        if (reached == NOWHERE && shm_direct_obstacle(&guest->direct) == NULL && direct != SHM_DIRECT_REFUSED)
            reached = direct == SHM_DIRECT_GOOD && ret_wanted->number == 0 ? REACHED : UNKNOWN;
        else if (reached == NOWHERE && ret_wanted->number != 0)
            reached = UNKNOWN;
    }
    shm_regions_leave(inside);
    return reached;
}

/* Tries to read a region that isn't mapped, if that is yet to be tried. True if it can be copied to or from so. */
static bool reach_directly(struct shm_guest *guest, uint64_t address, uint64_t length, uint32_t access) {
    _Atomic uint32_t *inside = shm_regions_enter(&guest->regions);
    struct shm_region *region = shm_regions_find(&guest->regions, address, length, access);
    bool reached = false;

    if (region != NULL && atomic_load(&region->direct) == SHM_DIRECT_UNKNOWN &&
        shm_direct_obstacle(&guest->direct) == NULL)
        atomic_store(&region->direct, shm_direct_probe(&guest->direct, region->base, region->length)
                                          ? SHM_DIRECT_GOOD
                                          : SHM_DIRECT_REFUSED);
    if (region != NULL)
        reached = shm_regions_open(&guest->regions, region) && shm_direct_obstacle(&guest->direct) == NULL &&
                  atomic_load(&region->direct) == SHM_DIRECT_GOOD;
    shm_regions_leave(inside);
    return reached;
}

/* Can a copy begin there, after all? Maps what isn't mapped, and waits for that until MAP_TIME from now. */
static bool reach_at_length(struct shm_guest *guest, uint64_t address, uint64_t length, uint32_t access) {
    struct shm_wanted wanted;
    enum reached reached = look(guest, address, length, access, &wanted);

    if (reached == UNKNOWN && wanted.number != 0) {
        map(guest, &wanted, clock_after(clock_now(), MAP_TIME));
        reached = look(guest, address, length, access, &wanted);
    }
    return reached == REACHED || (reached == UNKNOWN && reach_directly(guest, address, length, access));
}

/* A peer that is late may have answered meanwhile. */
static void listen_for_late_answer(struct shm_guest *guest) {
    if (!begin_asking(guest, 0))
        return;
    if (guest->owes)
        take_answer(guest, 0);
    end_asking(guest);
}

static bool reach(struct shm_guest *guest, uint64_t address, uint64_t length, uint32_t access) {
    struct shm_wanted wanted;

    if (shm_regions_stale(&guest->regions) && pthread_mutex_trylock(&guest->lock) == 0) {
        shm_regions_refresh(&guest->regions);
        pthread_mutex_unlock(&guest->lock);
    }
    if (atomic_load(&guest->late))
        listen_for_late_answer(guest);
    if (look(guest, address, length, access, &wanted) == REACHED)
        return true;
    if (shm_regions_stale(&guest->regions)) /* another thread is at it */
        shm_guest_refresh(guest);
    return reach_at_length(guest, address, length, access);
}

bool shm_guest_reach(struct shm_guest *guest, const struct slice *slice) {
    if (atomic_load(&guest->dead) || !reach(guest, slice->remote, slice->length, shm_right_for(slice)))
        return false;
    return !slice->guarded || (slice->guard_address % sizeof(uint64_t) == 0 &&
                               reach(guest, slice->guard_address, sizeof(uint64_t), MC_REMOTE_READ));
}

int32_t shm_guest_map(struct shm_guest *guest, uint64_t address, uint64_t length, uint32_t access, void **ret_memory,
                      struct ref **ret_hold) {
    int32_t status = MC_ERR_NOT_SUPPORTED;
    _Atomic uint32_t *inside;
    struct shm_region *region;

    if (atomic_load(&guest->dead) || !reach(guest, address, length, access))
        return MC_ERR_NOT_SUPPORTED;
    inside = shm_regions_enter(&guest->regions);
    region = shm_regions_find(&guest->regions, address, length, access);
    if (region != NULL && atomic_load(&region->at) != NULL && shm_regions_open(&guest->regions, region)) {
        ref_take(&region->memory->ref); /* the region's own is dropped after everybody is out */
        *ret_hold = &region->memory->ref;
        *ret_memory = atomic_load(&region->at) + (address - region->base);
        status = MC_OK;
    }
    shm_regions_leave(inside);
    return status;
}

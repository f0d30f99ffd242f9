/* transports/shm/move.c - the copies of a guest, piece by piece.
 *
 * A guard is looked at before each piece, and its region counted as under copy until the piece is copied: so the host
 * knows, when it has changed the word, whether anybody goes on who found it unchanged.
 */
#include <sys/uio.h>

#include "base/copy.h"
#include "base/crc32c.h"
#include "transports/guard.h"
#include "transports/shm/inside.h"

/* Some of the peer's memory, counted as under copy. */
struct hold {
    uint32_t slot;
    uint8_t *at; /* NULL: not mapped, but to be reached by process_vm */
    uint64_t address;
    struct shm_region *region; /* while inside */
};

static void let_go(struct shm_guest *guest, const struct hold *hold) {
    atomic_fetch_sub(&guest->counters->copies[hold->slot], 1);
}

/* MC_OK; MC_ERR_NOT_REGISTERED if there is no such region any more (or never was), or it wasn't reached. Never waits.
 * Inside. */
static int32_t hold(struct shm_guest *guest, uint64_t address, uint64_t length, uint32_t access,
                    struct hold *ret_hold) {
    for (int attempt = 0; attempt < 2; attempt++) {
        struct shm_region *region = shm_regions_find(&guest->regions, address, length, access);

        if (region != NULL) {
            *ret_hold = (struct hold){.slot = region->slot, .address = address, .region = region};
            atomic_fetch_add(&guest->counters->copies[region->slot], 1);
            if (shm_regions_open(&guest->regions, region)) {
                uint8_t *at = atomic_load(&region->at);

                if (at != NULL)
                    ret_hold->at = at + (address - region->base);
                if (at != NULL || atomic_load(&region->direct) == SHM_DIRECT_GOOD)
                    return MC_OK;
            }
            let_go(guest, ret_hold);
        }
        if (attempt == 0 && shm_regions_stale(&guest->regions))
            shm_guest_refresh(guest);
        else
            break;
    }
    return MC_ERR_NOT_REGISTERED;
}

/* MC_OK if the word is as it should be, else MC_ERR_GUARD_MISMATCH, or why it can't be read. */
static int32_t check_guard(struct shm_guest *guest, const struct slice *slice, const struct hold *guard) {
    uint64_t word, moved;
    int32_t status;

    if (guard->at != NULL)
        return guard_holds(guard->at, slice->guard_value) ? MC_OK : MC_ERR_GUARD_MISMATCH;
    status = shm_direct_move_all(&guest->direct, false, (uint8_t *)&word, guard->address, sizeof(word), &moved);
    if (status == MC_OK && word != slice->guard_value)
        status = MC_ERR_GUARD_MISMATCH;
    return status;
}

static void copy_mapped(struct slice *slice, uint8_t *remote, uint64_t length) {
    uint8_t *local = slice->local + slice->moved;
    uint8_t *to = slice->opcode == MC_READ ? local : remote;
    const uint8_t *from = slice->opcode == MC_READ ? remote : local;

    if (slice->summed)
        slice->checksum = copy_bytes_crc32c(slice->checksum, to, from, length);
    else
        copy_bytes(to, from, length);
    slice->moved += length;
}

/* What was moved by process_vm counts. */
static void add_moved(struct slice *slice, uint64_t length) {
    if (slice->summed)
        slice->checksum = crc32c(slice->checksum, slice->local + slice->moved, length);
    slice->moved += length;
}

/* What a failure at that address of the held memory means. The kernel doesn't say which side it couldn't get at. If it is
 * the peer's, which was registered, another path may do it the next time. */
static int32_t judge(struct shm_guest *guest, const struct hold *remote, uint64_t address, int32_t status) {
    if (status != MC_ERR_NOT_REGISTERED)
        return status;
    if (shm_direct_probe(&guest->direct, address, 1))
        return MC_ERR_INVALID_ARGUMENT;
    atomic_store(&remote->region->direct, SHM_DIRECT_REFUSED);
    return status;
}

static int32_t copy_directly(struct shm_guest *guest, struct slice *slice, const struct hold *remote, uint64_t length) {
    uint64_t moved;
    int32_t status = shm_direct_move_all(&guest->direct, slice->opcode == MC_WRITE, slice->local + slice->moved,
                                         remote->address, length, &moved);

    add_moved(slice, moved);
    return judge(guest, remote, remote->address + moved, status);
}

/* Copies the next piece; its guard is held. */
static int32_t copy_piece(struct shm_guest *guest, struct slice *slice) {
    uint64_t left = slice->length - slice->moved;
    uint64_t piece = left < TRANSPORT_PIECE ? left : TRANSPORT_PIECE;
    struct hold remote;
    int32_t status = hold(guest, slice->remote + slice->moved, piece, shm_right_for(slice), &remote);

    if (status != MC_OK)
        return status;
    slice->indeterminate = slice->opcode == MC_WRITE;
    if (remote.at != NULL)
        copy_mapped(slice, remote.at, piece);
    else
        status = copy_directly(guest, slice, &remote, piece);
    let_go(guest, &remote);
    return status;
}

/* Inside. */
static int32_t step(struct shm_guest *guest, struct slice *slice) {
    struct hold guard;
    int32_t status;

    if (!slice->guarded) {
        status = copy_piece(guest, slice);
        return status == MC_OK && slice->moved < slice->length ? MC_ERR_PENDING : status;
    }
    status = hold(guest, slice->guard_address, sizeof(uint64_t), MC_REMOTE_READ, &guard);
    if (status != MC_OK)
        return status;
    status = check_guard(guest, slice, &guard);
    if (status == MC_OK)
        status = copy_piece(guest, slice);
    if (status == MC_OK)
        status = slice->moved < slice->length ? MC_ERR_PENDING : check_guard(guest, slice, &guard);
    let_go(guest, &guard);
    return status;
}

int32_t shm_guest_step(struct shm_guest *guest, struct slice *slice) {
    _Atomic uint32_t *inside;
    int32_t status;

    if (atomic_load(&guest->dead))
        return MC_ERR_CONNECTION_LOST;
    inside = shm_regions_enter(&guest->regions);
    status = step(guest, slice);
    shm_regions_leave(inside);
    return status;
}

/* ---- Groups ---- */

/* Slices that go by process_vm in one direction, and their guards; all are held. */
struct group {
    size_t count;
    bool write;
    struct slice *slices[TRANSPORT_GROUP];
    int32_t *statuses[TRANSPORT_GROUP]; /* MC_ERR_PENDING while there is something to do */
    struct hold remotes[TRANSPORT_GROUP];
    struct hold guards[TRANSPORT_GROUP];
    uint64_t words[TRANSPORT_GROUP];
    struct iovec local[TRANSPORT_GROUP], remote[TRANSPORT_GROUP];
};

/* Reads the guards' words that aren't mapped by one call, and gives those slices whose guards don't hold their status.
 * `wanted` is the status of those that are looked at. */
static void check_guards(struct shm_guest *guest, struct group *group, int32_t wanted) {
    uint64_t moved = 0;
    size_t count = 0;

    for (size_t i = 0; i < group->count; i++) {
        if (*group->statuses[i] != wanted || !group->slices[i]->guarded || group->guards[i].at != NULL)
            continue;
        group->words[i] = 0;
        group->local[count] = (struct iovec){&group->words[i], sizeof(uint64_t)};
        group->remote[count++] = (struct iovec){(void *)(uintptr_t)group->guards[i].address, sizeof(uint64_t)};
    }
    if (count > 0 &&
        (shm_direct_move(&guest->direct, false, group->local, count, group->remote, count, &moved) != MC_OK))
        moved = 0;
    for (size_t i = 0, at = 0; i < group->count; i++) {
        const struct slice *slice = group->slices[i];
        int32_t status;

        if (*group->statuses[i] != wanted || !slice->guarded)
            continue;
        if (group->guards[i].at == NULL && ++at * sizeof(uint64_t) <= moved)
            status = group->words[i] == slice->guard_value ? MC_OK : MC_ERR_GUARD_MISMATCH;
        else
            status = check_guard(guest, slice, &group->guards[i]);
        if (status != MC_OK)
            *group->statuses[i] = status;
    }
}

/* What the call has moved, spread over the slices from `first`, one after the other. */
static void spread(struct group *group, size_t first, uint64_t moved) {
    for (size_t i = first; i < group->count && moved > 0; i++) {
        struct slice *slice = group->slices[i];
        uint64_t left = slice->length - slice->moved;

        if (*group->statuses[i] != MC_ERR_PENDING)
            continue;
        add_moved(slice, left < moved ? left : moved);
        moved -= left < moved ? left : moved;
        if (slice->moved == slice->length)
            *group->statuses[i] = MC_OK;
    }
}

/* Moves the bytes of those that are pending, by as few calls as it takes. */
static void move_group(struct shm_guest *guest, struct group *group) {
    for (;;) {
        size_t count = 0, first = 0;
        uint64_t moved = 0;
        int32_t status;

        for (size_t i = 0; i < group->count; i++) {
            struct slice *slice = group->slices[i];

            if (*group->statuses[i] != MC_ERR_PENDING)
                continue;
            if (count == 0)
                first = i;
            slice->indeterminate = group->write;
            group->local[count] = (struct iovec){slice->local + slice->moved, slice->length - slice->moved};
            group->remote[count++] =
                (struct iovec){(void *)(uintptr_t)(slice->remote + slice->moved), slice->length - slice->moved};
        }
        if (count == 0)
            return;
        status = shm_direct_move(&guest->direct, group->write, group->local, count, group->remote, count, &moved);
        if (status == MC_OK)
            spread(group, first, moved);
        else /* of the first; the others are tried without it */
            *group->statuses[first] = judge(guest, &group->remotes[first],
                                            group->slices[first]->remote + group->slices[first]->moved, status);
    }
}

static void end_group(struct shm_guest *guest, struct group *group) {
    check_guards(guest, group, MC_ERR_PENDING);
    move_group(guest, group);
    check_guards(guest, group, MC_OK);
    for (size_t i = 0; i < group->count; i++) {
        let_go(guest, &group->remotes[i]);
        if (group->slices[i]->guarded)
            let_go(guest, &group->guards[i]);
    }
    group->count = 0;
}

/* Holds a slice's memory and guard. False if there is nothing that process_vm could do for it: then nothing is held. */
static bool join(struct shm_guest *guest, struct group *group, struct slice *slice) {
    struct hold *remote = &group->remotes[group->count], *guard = &group->guards[group->count];

    if (slice->length == 0 || slice->length > TRANSPORT_PIECE ||
        hold(guest, slice->remote, slice->length, shm_right_for(slice), remote) != MC_OK)
        return false;
    if (remote->at == NULL &&
        (!slice->guarded || hold(guest, slice->guard_address, sizeof(uint64_t), MC_REMOTE_READ, guard) == MC_OK))
        return true;
    let_go(guest, remote);
    return false;
}

static int32_t step_to_the_end(struct shm_guest *guest, struct slice *slice) {
    int32_t status;

    do
        status = step(guest, slice);
    while (status == MC_ERR_PENDING);
    return status;
}

void shm_guest_step_group(struct shm_guest *guest, struct slice *const *slices, size_t count, int32_t *ret_statuses) {
    _Atomic uint32_t *inside;
    struct group group;

    group.count = 0;
    group.write = false;
    inside = shm_regions_enter(&guest->regions);
    for (size_t i = 0; i < count; i++) {
        bool write = slices[i]->opcode == MC_WRITE;

        if (atomic_load(&guest->dead)) {
            ret_statuses[i] = MC_ERR_CONNECTION_LOST;
            continue;
        }
        if (group.count > 0 && (write != group.write || group.count == TRANSPORT_GROUP))
            end_group(guest, &group);
        if (!join(guest, &group, slices[i])) {
            ret_statuses[i] = step_to_the_end(guest, slices[i]);
            continue;
        }
        group.write = write;
        group.slices[group.count] = slices[i];
        group.statuses[group.count++] = &ret_statuses[i];
        ret_statuses[i] = MC_ERR_PENDING;
    }
    if (group.count > 0)
        end_group(guest, &group);
    shm_regions_leave(inside);
}

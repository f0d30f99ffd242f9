/* transports/shm/guest.c - the side that maps a peer's memory and copies.
 *
 * Owns: the UNIX connection, both pages, and a table of the peer's regions, mapped when first used. `lock` guards the
 * table and the socket; a copy holds a reference on its mapping and no lock. The loop watches the socket for its end
 * only: that is how the peer's death is learnt.
 */
#include "transports/shm/guest.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/ref.h"
#include "base/status.h"
#include "base/text.h"
#include "os/fork.h"
#include "os/memfd.h"
#include "os/socket.h"
#include "transports/guard.h"
#include "transports/shm/page.h"
#include "wire/message.h"

#define ANSWER_TIME (2 * CLOCK_SECOND)

/* One region of the peer. Immutable but for its memory, which is mapped once, with the guest's lock held. */
struct mapping {
    struct ref ref;
    uint64_t key;
    uint64_t base;
    uint64_t length;
    uint64_t memory_offset;
    uint64_t memory_size;
    uint32_t access;
    uint32_t slot;
    bool refused;    /* it can't be mapped: not asked again */
    uint8_t *memory; /* the whole memfd; NULL until mapped */
};

struct shm_guest {
    pthread_mutex_t lock;
    struct loop *loop;
    struct loop_watch watch;
    atomic_bool dead;
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

        /* What is unchanged may be mapped already. */
        if (mapping != NULL && mapping->key == atomic_load(&guest->page->slots[i].key))
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

/* ---- The socket. With the lock held. ---- */

/* Sends a packet and waits for the answer of the kind given. False with errno. */
static bool ask(int fd, const struct shm_packet *packet, enum shm_kind kind, struct shm_packet *ret_answer, int *fds,
                size_t capacity, size_t *ret_count) {
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    uint64_t deadline = clock_after(clock_now(), ANSWER_TIME);
    ptrdiff_t got = -1;

    if (socket_send_fds(fd, packet, sizeof(*packet), NULL, 0) < 0)
        return false;
    while (got < 0) {
        if (poll(&polled, 1, clock_poll_ms(deadline, clock_now(), -1)) == 0) {
            errno = ETIMEDOUT;
            return false;
        }
        got = socket_receive_fds(fd, ret_answer, sizeof(*ret_answer), fds, capacity, ret_count);
        if (got < 0 && errno != EAGAIN && errno != EINTR)
            return false;
    }
    if (got == (ptrdiff_t)sizeof(*ret_answer) && ret_answer->kind == (uint32_t)kind)
        return true;
    while (*ret_count > 0)
        fork_close(fds[--*ret_count]);
    errno = got == 0 ? ECONNRESET : EPROTO;
    return false;
}

/* Maps the region's memory, if it isn't. */
static bool map(struct shm_guest *guest, struct mapping *mapping) {
    struct shm_packet packet = {.kind = SHM_MAP, .slot = mapping->slot, .key = mapping->key}, answer;
    size_t count = 0;
    void *memory;
    int fd;

    if (mapping->memory != NULL || mapping->refused)
        return mapping->memory != NULL;
    if (!ask(guest->watch.fd, &packet, SHM_MAPPED, &answer, &fd, 1, &count)) {
        /* The answer may still come: this socket can't be understood any more. */
        atomic_store(&guest->dead, true);
        return false;
    }
    if (answer.status == MC_OK && answer.key == mapping->key && count == 1 &&
        memfd_map(fd, 0, mapping->memory_size, (mapping->access & MC_REMOTE_WRITE) != 0, &memory) == 0)
        mapping->memory = memory;
    else if (answer.status != MC_ERR_NOT_REGISTERED) /* which may be for a moment: an unregistration that fails */
        mapping->refused = true;
    if (count == 1)
        fork_close(fd);
    return mapping->memory != NULL;
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

/* MC_OK; MC_ERR_NOT_REGISTERED if there is no such region any more (or never was). */
static int32_t hold(struct shm_guest *guest, uint64_t address, uint64_t length, uint32_t access,
                    struct hold *ret_hold) {
    struct mapping *mapping;
    bool mapped;

    pthread_mutex_lock(&guest->lock);
    refresh(guest);
    mapping = find_region(guest, address, length, access);
    mapped = mapping != NULL && map(guest, mapping);
    if (mapped)
        ref_take(&mapping->ref);
    pthread_mutex_unlock(&guest->lock);
    if (!mapped)
        return atomic_load(&guest->dead) ? MC_ERR_CONNECTION_LOST : MC_ERR_NOT_REGISTERED;
    ret_hold->mapping = mapping;
    ret_hold->at = mapping->memory + mapping->memory_offset + (address - mapping->base);
    atomic_fetch_add(&guest->counters->copies[mapping->slot], 1);
    if (atomic_load(&guest->page->slots[mapping->slot].key) == mapping->key)
        return MC_OK;
    let_go(guest, ret_hold);
    return MC_ERR_NOT_REGISTERED;
}

static int32_t check_guard(struct shm_guest *guest, const struct slice *slice) {
    struct hold guard;
    int32_t status;

    if (!slice->guarded)
        return MC_OK;
    status = hold(guest, slice->guard_address, sizeof(uint64_t), MC_REMOTE_READ, &guard);
    if (status != MC_OK)
        return status;
    if (!guard_holds(guard.at, slice->guard_value))
        status = MC_ERR_GUARD_MISMATCH;
    let_go(guest, &guard);
    return status;
}

static uint32_t right_for(const struct slice *slice) {
    return slice->opcode == MC_READ ? MC_REMOTE_READ : MC_REMOTE_WRITE;
}

const char *shm_guest_trouble(struct shm_guest *guest) {
    return atomic_load(&guest->dead) ? "the connection to the peer's UNIX socket has ended" : NULL;
}

bool shm_guest_reach(struct shm_guest *guest, const struct slice *slice) {
    struct mapping *region, *guard = NULL;
    bool reached;

    if (atomic_load(&guest->dead))
        return false;
    pthread_mutex_lock(&guest->lock);
    refresh(guest);
    region = find_region(guest, slice->remote, slice->length, right_for(slice));
    if (slice->guarded && slice->guard_address % sizeof(uint64_t) == 0)
        guard = find_region(guest, slice->guard_address, sizeof(uint64_t), MC_REMOTE_READ);
    reached = region != NULL && map(guest, region) && (!slice->guarded || (guard != NULL && map(guest, guard)));
    pthread_mutex_unlock(&guest->lock);
    return reached;
}

int32_t shm_guest_step(struct shm_guest *guest, struct slice *slice) {
    uint64_t left = slice->length - slice->moved;
    uint64_t piece = left < TRANSPORT_PIECE ? left : TRANSPORT_PIECE;
    struct hold remote;
    int32_t status = MC_OK;

    if (atomic_load(&guest->dead))
        return MC_ERR_CONNECTION_LOST;
    if (slice->moved == 0)
        status = check_guard(guest, slice);
    if (status == MC_OK)
        status = hold(guest, slice->remote + slice->moved, piece, right_for(slice), &remote);
    if (status != MC_OK)
        return status;
    slice->indeterminate = slice->opcode == MC_WRITE;
    if (slice->opcode == MC_READ)
        memcpy(slice->local + slice->moved, remote.at, piece);
    else
        memcpy(remote.at, slice->local + slice->moved, piece);
    let_go(guest, &remote);
    slice->moved += piece;
    return slice->moved < slice->length ? MC_ERR_PENDING : check_guard(guest, slice);
}

/* ---- Opening and closing ---- */

static void on_end(struct loop_watch *watch, uint32_t events) {
    struct shm_guest *guest = list_entry(watch, struct shm_guest, watch);

    (void)events;
    atomic_store(&guest->dead, true);
    loop_remove(guest->loop, watch);
}

static int32_t invite(struct channel *channel, char name[64], struct message_invitation *ret_invitation) {
    uint8_t reply[512];
    uint32_t length = 0;
    int32_t status = channel_call(channel, MESSAGE_INVITE, NULL, 0, clock_after(clock_now(), ANSWER_TIME), reply,
                                  sizeof(reply), &length);

    if (status == MC_OK)
        status = message_unpack_invitation(reply, length, ret_invitation);
    if (status == MC_OK && (ret_invitation->name.length == 0 || ret_invitation->name.length > 63))
        status = MC_ERR_PROTOCOL;
    if (status != MC_OK)
        return status;
    memcpy(name, ret_invitation->name.data, ret_invitation->name.length);
    name[ret_invitation->name.length] = '\0';
    return MC_OK;
}

/* Shows the token at the UNIX socket, and takes the two pages. */
static bool enter(struct shm_guest *guest, const struct message_invitation *invitation,
                  char reason[TRANSPORT_REASON_MAX]) {
    struct shm_packet hello = {.kind = SHM_HELLO}, welcome;
    void *page = NULL, *counters = NULL;
    uint32_t user;
    size_t count = 0;
    int fds[2];
    bool good;

    memcpy(hello.token, invitation->token.bytes, 16);
    if (socket_peer_user(guest->watch.fd, &user) != 0 || user != geteuid()) {
        text_copy(reason, TRANSPORT_REASON_MAX, "the peer runs as another user");
        return false;
    }
    if (!ask(guest->watch.fd, &hello, SHM_WELCOME, &welcome, fds, 2, &count)) {
        snprintf(reason, TRANSPORT_REASON_MAX, "the peer's UNIX socket doesn't answer: %s", strerror(errno));
        return false;
    }
    good = welcome.status == MC_OK && memcmp(welcome.token, invitation->answer.bytes, 16) == 0 && count == 2 &&
           memfd_map(fds[0], 0, memfd_round(sizeof(struct shm_page)), false, &page) == 0 &&
           memfd_map(fds[1], 0, memfd_round(sizeof(struct shm_counters)), true, &counters) == 0;
    guest->page = page;
    guest->counters = counters;
    while (count > 0)
        fork_close(fds[--count]);
    if (!good || guest->page->magic != SHM_MAGIC) {
        text_copy(reason, TRANSPORT_REASON_MAX, "the peer's answer on the UNIX socket is not the one it announced");
        return false;
    }
    return true;
}

int32_t shm_guest_open(const struct transport_host *host, struct channel *channel, struct shm_guest **ret_guest,
                       char reason[TRANSPORT_REASON_MAX]) {
    struct message_invitation invitation;
    struct shm_guest *guest;
    char name[64];
    int32_t status = invite(channel, name, &invitation);

    if (status != MC_OK) {
        snprintf(reason, TRANSPORT_REASON_MAX, "the peer gives no invitation: %s", status_text(status));
        return MC_ERR_NOT_SUPPORTED;
    }
    guest = calloc(1, sizeof(*guest));
    if (guest == NULL)
        return MC_ERR_NO_MEMORY;
    pthread_mutex_init(&guest->lock, NULL);
    guest->loop = host->loop;
    guest->watch.ready = on_end;
    guest->watch.fd = socket_unix_connect(name);
    if (guest->watch.fd < 0) {
        text_copy(reason, TRANSPORT_REASON_MAX, "the peer is on another host, or in another network namespace");
        status = MC_ERR_NOT_SUPPORTED;
    } else if (!enter(guest, &invitation, reason)) {
        status = MC_ERR_NOT_SUPPORTED;
    } else {
        status = loop_add(guest->loop, &guest->watch, EPOLLRDHUP);
    }
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
    if (guest->page != NULL)
        memfd_unmap((void *)(uintptr_t)guest->page, memfd_round(sizeof(*guest->page)));
    if (guest->counters != NULL)
        memfd_unmap(guest->counters, memfd_round(sizeof(*guest->counters)));
    socket_close(guest->watch.fd);
    pthread_mutex_destroy(&guest->lock);
    free(guest);
}

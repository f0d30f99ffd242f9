/* transports/shm/host.c - the side whose memory is reached.
 *
 * Owns: the region page, the listener, one counter page per guest. `lock` guards the slots and the list of guests; invitations and sockets are used on the loop's thread only. A guest's socket is closed by the kernel after its
 * last thread has ended, so the end of the stream proves that its copies have ended too.
 *
 * Invariant: nothing that a guest sends makes the loop wait. Closing a descriptor may (a socket that lingers), so none
 * is taken from guests: the kernel refuses to pass them (Linux 6.16), or drops them before this process has them.
 */
#include "transports/shm/host.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "os/fork.h"
#include "os/memfd.h"
#include "os/socket.h"
#include "transports/shm/control.h"
#include "transports/shm/invitations.h"
#include "transports/shm/slots.h"
#include "wire/message.h"

#define GUESTS_MAX 1024u
#define NAME_MAX_LENGTH 64u
#define BACKLOG 4096 /* which the kernel cuts to what it allows */
#define ACCEPTS_AT_ONCE 64
#define PAUSE_WITHOUT_DESCRIPTORS (100 * CLOCK_MILLISECOND)

struct guest {
    struct list node;
    struct shm_host *host;
    struct loop_watch watch;
    struct loop_timer timer;       /* to say HELLO */
    struct shm_counters *counters; /* NULL before HELLO */
    uint8_t client[16];            /* its incarnation, once it has counters */
    bool has_ring;                 /* or was told why not */
};

struct shm_host {
    const struct transport_host *host;
    struct service invite;
    pthread_mutex_t lock;
    struct shm_slots *slots;
    struct loop_watch listener;
    struct loop_timer pause; /* of the listener, while descriptors are short */
    char name[NAME_MAX_LENGTH];
    struct shm_invitations invitations;
    struct list guests;
    uint32_t guest_count;
};

/* ---- Regions ---- */

void shm_host_publish(struct shm_host *shm, struct region *region) {
    region->page_slot = SHM_SLOTS;
    if (region->access == 0)
        return;
    pthread_mutex_lock(&shm->lock);
    shm_slots_open(shm->slots, region);
    pthread_mutex_unlock(&shm->lock);
}

/* Does any guest copy to or from the slot's region now? With the lock held. */
static bool is_copied(struct shm_host *shm, uint32_t slot) {
    struct list *node, *after;
    bool copied = false;

    list_each (node, after, &shm->guests) {
        struct guest *guest = list_entry(node, struct guest, node);

        if (guest->counters != NULL && atomic_load(&guest->counters->copies[slot]) != 0)
            copied = true;
    }
    return copied;
}

static bool in_use(struct shm_host *shm, uint32_t slot) {
    bool used;

    pthread_mutex_lock(&shm->lock);
    used = is_copied(shm, slot);
    pthread_mutex_unlock(&shm->lock);
    return used;
}

bool shm_host_in_flight(struct shm_host *shm, const void *guard) {
    uint32_t slot;
    bool found;

    atomic_thread_fence(memory_order_seq_cst);
    pthread_mutex_lock(&shm->lock);
    slot = shm_slots_find(shm->slots, (uint64_t)(uintptr_t)guard);
    found = slot < SHM_SLOTS && is_copied(shm, slot);
    pthread_mutex_unlock(&shm->lock);
    return found;
}

int32_t shm_host_withdraw(struct shm_host *shm, struct region *region, uint64_t deadline) {
    static const struct timespec pause = {.tv_nsec = 50000};
    uint32_t slot = region->page_slot;
    int32_t status = MC_OK;

    if (slot >= SHM_SLOTS)
        return MC_OK;
    shm_slots_set_state(shm->slots, slot, SHM_CLOSING);
    while (status == MC_OK && in_use(shm, slot)) {
        if (clock_now() >= deadline)
            status = MC_ERR_BUSY;
        else
            nanosleep(&pause, NULL);
    }
    pthread_mutex_lock(&shm->lock);
    if (status == MC_OK) {
        shm_slots_close(shm->slots, region);
    } else {
        shm_slots_set_state(shm->slots, slot, SHM_OPEN);
        shm_slots_note(shm->slots, slot);
    }
    pthread_mutex_unlock(&shm->lock);
    return status;
}

/* ---- Guests: on the loop's thread ---- */

/* One packet, without descriptors: bytes, or -1 with errno (EPROTO: some came, or the packet was longer). No buffer for
 * them, so the kernel closes them itself. */
static ssize_t receive(int fd, struct shm_packet *ret_packet) {
    struct iovec part = {.iov_base = ret_packet, .iov_len = sizeof(*ret_packet)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t got;

    do
        got = recvmsg(fd, &message, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got >= 0 && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        errno = EPROTO;
        return -1;
    }
    return got;
}

/* Closes a guest's socket. In its queue there may be descriptors whose closing waits, which must not happen with forks
 * paused; a child that is forked in between has a socket that is shut down. */
static void show_out(int fd) {
    if (fd < 0)
        return;
    (void)shutdown(fd, SHUT_RDWR);
    fork_forget(fd);
    (void)close(fd);
}

static void guest_end(struct guest *guest) {
    struct shm_host *shm = guest->host;

    loop_timer_cancel_sync(shm->host->loop, &guest->timer);
    loop_remove(shm->host->loop, &guest->watch);
    pthread_mutex_lock(&shm->lock);
    list_remove(&guest->node);
    shm->guest_count--;
    pthread_mutex_unlock(&shm->lock);
    show_out(guest->watch.fd);
    if (guest->counters != NULL) {
        memfd_unmap(guest->counters, memfd_round(sizeof(*guest->counters)));
        clients_leave(server_clients(shm->host->server), guest->client);
    }
    free(guest);
}

/* HELLO: checks the token, makes the guest's counters, sends both pages. */
static bool welcome(struct guest *guest, const struct shm_packet *hello) {
    struct shm_host *shm = guest->host;
    struct shm_packet reply = {.kind = SHM_WELCOME};
    int fds[2] = {shm_slots_fd(shm->slots), -1};
    void *counters;
    bool sent;

    if (!shm_invitations_redeem(&shm->invitations, hello->token, clock_now(), guest->client, reply.token))
        return false;
    if (memfd_reserve("mooncake-copies", memfd_round(sizeof(struct shm_counters)), &fds[1], &counters) == 0 &&
        clients_join(server_clients(shm->host->server), guest->client) != MC_OK) {
        fork_close(fds[1]);
        memfd_unmap(counters, memfd_round(sizeof(struct shm_counters)));
        fds[1] = -1;
    }
    if (fds[1] < 0) {
        reply.status = MC_ERR_NO_MEMORY;
        return socket_send_fds(guest->watch.fd, &reply, sizeof(reply), NULL, 0) > 0;
    }
    pthread_mutex_lock(&shm->lock);
    guest->counters = counters;
    pthread_mutex_unlock(&shm->lock);
    loop_timer_cancel_sync(shm->host->loop, &guest->timer);
    sent = socket_send_fds(guest->watch.fd, &reply, sizeof(reply), fds, 2) > 0;
    fork_close(fds[1]);
    return sent;
}

/* MAP: sends the descriptor of the slot's memory, read-only unless peers may write there. */
static bool give_memory(struct guest *guest, const struct shm_packet *ask) {
    struct shm_host *shm = guest->host;
    struct shm_packet reply = {.kind = SHM_MAPPED, .slot = ask->slot, .key = ask->key, .status = MC_ERR_NOT_REGISTERED};
    const struct region *region;
    int read_only = -1, fd = -1;
    bool sent;

    if (ask->slot >= SHM_SLOTS)
        return false;
    /* The lock keeps the region, and with it the descriptor. */
    pthread_mutex_lock(&shm->lock);
    region = shm_slots_region(shm->slots, ask->slot, ask->key);
    if (region != NULL) {
        if (region->memory_fd < 0 || (region->access & MC_REMOTE_WRITE) != 0)
            fd = region->memory_fd;
        else
            fd = read_only = memfd_read_only(region->memory_fd);
        reply.status = fd >= 0 ? MC_OK : MC_ERR_SYSTEM;
    }
    sent = socket_send_fds(guest->watch.fd, &reply, sizeof(reply), &fd, fd >= 0 ? 1 : 0) > 0;
    pthread_mutex_unlock(&shm->lock);
    fork_close(read_only);
    return sent;
}

static void guest_ready(struct loop_watch *watch, uint32_t events) {
    struct guest *guest = list_entry(watch, struct guest, watch);
    struct shm_packet packet;
    ssize_t got = receive(watch->fd, &packet);
    bool good = false;

    (void)events;
    if (got < 0 && errno == EAGAIN)
        return;
    if (got == (ssize_t)sizeof(packet) && packet.kind == SHM_HELLO && guest->counters == NULL)
        good = welcome(guest, &packet);
    else if (got == (ssize_t)sizeof(packet) && packet.kind == SHM_MAP && guest->counters != NULL)
        good = give_memory(guest, &packet);
    else if (got == (ssize_t)sizeof(packet) && packet.kind == SHM_RING && guest->counters != NULL && !guest->has_ring)
        good = guest->has_ring = shm_control_give(watch->fd, guest->host->host->server, guest->client);
    if (!good)
        guest_end(guest);
}

static void guest_late(struct loop_timer *timer, uint64_t now) {
    (void)now;
    guest_end(list_entry(timer, struct guest, timer));
}

/* Begins to wait for HELLO. A process of another user, which the kernel names, is nobody's guest: none of its packets
 * is read. */
static void admit(struct shm_host *shm, int fd) {
    struct guest *guest = NULL;
    uint32_t user;

    if (socket_peer_user(fd, &user) == 0 && user == geteuid() && shm->guest_count < GUESTS_MAX)
        guest = calloc(1, sizeof(*guest));
    if (guest == NULL) {
        show_out(fd);
        return;
    }
    socket_refuse_fds(fd);
    guest->host = shm;
    guest->watch.fd = fd;
    guest->watch.ready = guest_ready;
    loop_timer_init(&guest->timer, guest_late);
    if (loop_add(shm->host->loop, &guest->watch, EPOLLIN) != MC_OK) {
        show_out(fd);
        free(guest);
        return;
    }
    loop_timer_set(shm->host->loop, &guest->timer, clock_after(clock_now(), SHM_INVITATION_TIME));
    pthread_mutex_lock(&shm->lock);
    list_append(&shm->guests, &guest->node);
    shm->guest_count++;
    pthread_mutex_unlock(&shm->lock);
}

static void accept_guests(struct loop_watch *watch, uint32_t events) {
    struct shm_host *shm = list_entry(watch, struct shm_host, listener);

    (void)events;
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        int fd = socket_accept(watch->fd);

        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
            loop_change(shm->host->loop, watch, 0);
            loop_timer_set(shm->host->loop, &shm->pause, clock_after(clock_now(), PAUSE_WITHOUT_DESCRIPTORS));
        }
        if (fd < 0)
            return;
        admit(shm, fd);
    }
}

static void accept_again(struct loop_timer *timer, uint64_t now) {
    struct shm_host *shm = list_entry(timer, struct shm_host, pause);

    (void)now;
    loop_change(shm->host->loop, &shm->listener, EPOLLIN);
}

/* ---- Invitations ---- */

static void begin_invite(struct exchange *exchange) {
    exchange_take_body(exchange);
}

static int32_t serve_invite(struct exchange *exchange) {
    struct shm_host *shm = exchange->service->context;
    struct message_invitation message = {.name = {(const uint8_t *)shm->name, (uint32_t)strlen(shm->name)}};
    uint8_t *body;
    int32_t status;
    int64_t size;

    if (shm->guest_count >= GUESTS_MAX)
        return MC_ERR_BUSY;
    status = shm_invitations_give(&shm->invitations, exchange->client, clock_now(), message.token.bytes,
                                  message.answer.bytes);
    if (status != MC_OK)
        return status;
    size = message_pack_invitation(&message, NULL, 0);
    body = size > 0 ? exchange_reply_body(exchange, (uint32_t)size) : NULL;
    if (body == NULL)
        return MC_ERR_NO_MEMORY;
    message_pack_invitation(&message, body, (size_t)size);
    return MC_OK;
}

/* ---- Opening and closing ---- */

static int32_t listen_for_guests(struct shm_host *shm, char reason[TRANSPORT_REASON_MAX]) {
    uint8_t random[16];
    int used = snprintf(shm->name, sizeof(shm->name), "mooncake-");
    int fd;

    if (auth_random(random, sizeof(random)) != MC_OK) {
        text_copy(reason, TRANSPORT_REASON_MAX, "no random numbers from the kernel");
        return MC_ERR_NOT_SUPPORTED;
    }
    for (size_t i = 0; i < sizeof(random); i++)
        used += snprintf(shm->name + used, sizeof(shm->name) - (size_t)used, "%02x", random[i]);
    fd = socket_unix_listen(shm->name, BACKLOG);
    if (fd < 0) {
        snprintf(reason, TRANSPORT_REASON_MAX, "no UNIX socket: %s", strerror(errno));
        return MC_ERR_NOT_SUPPORTED;
    }
    socket_refuse_fds(fd); /* also to connections that wait to be accepted */
    shm->listener.ready = accept_guests;
    shm->listener.fd = fd;
    if (loop_add(shm->host->loop, &shm->listener, EPOLLIN) != MC_OK) {
        shm->listener.fd = socket_close(fd);
        text_copy(reason, TRANSPORT_REASON_MAX, "the UNIX socket can't be watched");
        return MC_ERR_NOT_SUPPORTED;
    }
    return MC_OK;
}

int32_t shm_host_open(const struct transport_host *host, struct shm_host **ret_shm, char reason[TRANSPORT_REASON_MAX]) {
    struct shm_host *shm = calloc(1, sizeof(*shm));
    int32_t status = MC_OK;

    if (shm == NULL)
        return MC_ERR_NO_MEMORY;
    shm->host = host;
    shm->listener.fd = -1;
    pthread_mutex_init(&shm->lock, NULL);
    list_init(&shm->guests);
    loop_timer_init(&shm->pause, accept_again);
    if (shm_slots_new(&shm->slots) != 0) {
        snprintf(reason, TRANSPORT_REASON_MAX, "no memory that can be shared (is /proc there?): %s", strerror(errno));
        status = MC_ERR_NOT_SUPPORTED;
    }
    if (status == MC_OK)
        status = listen_for_guests(shm, reason);
    if (status != MC_OK) {
        shm_host_close(shm);
        return status;
    }
    shm->invite = (struct service){
        .type = FRAME_CALL + MESSAGE_INVITE,
        .context = shm,
        .begin = begin_invite,
        .serve = serve_invite,
    };
    server_add(host->server, &shm->invite);
    *ret_shm = shm;
    return MC_OK;
}

void shm_host_stop(struct shm_host *shm) {
    struct list *node, *after;

    loop_timer_cancel_sync(shm->host->loop, &shm->pause);
    loop_remove(shm->host->loop, &shm->listener);
    show_out(shm->listener.fd);
    shm->listener.fd = -1;
    list_each (node, after, &shm->guests)
        guest_end(list_entry(node, struct guest, node));
}

void shm_host_close(struct shm_host *shm) {
    shm_slots_free(shm->slots);
    socket_close(shm->listener.fd);
    pthread_mutex_destroy(&shm->lock);
    free(shm);
}

/* transports/shm/host.c - the side whose memory is mapped.
 *
 * Owns: the region page, the listener, one counter page per guest. `lock` guards the slots' bookkeeping, the
 * invitations and the list of guests; sockets are used on the loop's thread only. A guest's socket is closed by the
 * kernel after its last thread has ended, so the end of the stream proves that its copies have ended too.
 */
#include "transports/shm/host.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "os/fork.h"
#include "os/memfd.h"
#include "os/socket.h"
#include "transports/shm/page.h"
#include "wire/message.h"

#define INVITATIONS 64u
#define INVITATION_TIME (10 * CLOCK_SECOND)
#define GUESTS_MAX 1024u
#define NAME_MAX_LENGTH 64u

struct invitation {
    uint8_t token[16];
    uint8_t answer[16];
    uint64_t ends; /* 0: not given, or used */
};

struct guest {
    struct list node;
    struct shm_host *host;
    struct loop_watch watch;
    struct loop_timer timer; /* to say HELLO */
    int counters_fd;
    struct shm_counters *counters; /* NULL before HELLO */
};

struct shm_host {
    const struct transport_host *host;
    struct service invite;
    pthread_mutex_t lock;
    struct shm_page *page;
    int page_fd;
    int page_fd_read_only;
    struct region *regions[SHM_SLOTS]; /* published, by slot */
    uint32_t next_slot;                /* where the search for a free one begins */
    struct loop_watch listener;
    char name[NAME_MAX_LENGTH];
    struct invitation invitations[INVITATIONS];
    uint32_t next_invitation;
    struct list guests;
    uint32_t guest_count;
};

/* ---- Regions ---- */

/* A free slot, or SHM_SLOTS. With the lock held. */
static uint32_t find_free_slot(struct shm_host *shm) {
    for (uint32_t i = 0; i < SHM_SLOTS; i++) {
        uint32_t slot = (shm->next_slot + i) % SHM_SLOTS;

        if (shm->regions[slot] == NULL) {
            shm->next_slot = (slot + 1) % SHM_SLOTS;
            return slot;
        }
    }
    return SHM_SLOTS;
}

static void set_state(struct shm_slot *slot, enum shm_state state) {
    uint64_t key = atomic_load(&slot->key);

    atomic_store(&slot->key, key - key % SHM_STATES + (uint64_t)state);
}

void shm_host_publish(struct shm_host *shm, struct region *region) {
    uint32_t index = SHM_SLOTS;

    region->page_slot = SHM_SLOTS;
    if (region->memory_fd < 0 || region->access == 0)
        return;
    pthread_mutex_lock(&shm->lock);
    index = find_free_slot(shm);
    if (index < SHM_SLOTS) {
        struct shm_slot *slot = &shm->page->slots[index];

        shm->regions[index] = region;
        region->page_slot = index;
        slot->base = region->base;
        slot->length = region->length;
        slot->memory_offset = region->memory_offset;
        slot->memory_size = region->memory_size;
        slot->access = region->access;
        atomic_fetch_add(&slot->key, SHM_STATES); /* a new generation, still FREE */
        set_state(slot, SHM_OPEN);
        atomic_fetch_add(&shm->page->changes, 1);
    }
    pthread_mutex_unlock(&shm->lock);
}

/* Does any guest copy to or from the slot's region now? */
static bool in_use(struct shm_host *shm, uint32_t slot) {
    struct list *node, *after;
    bool used = false;

    pthread_mutex_lock(&shm->lock);
    list_each (node, after, &shm->guests) {
        struct guest *guest = list_entry(node, struct guest, node);

        if (guest->counters != NULL && atomic_load(&guest->counters->copies[slot]) != 0)
            used = true;
    }
    pthread_mutex_unlock(&shm->lock);
    return used;
}

int32_t shm_host_withdraw(struct shm_host *shm, struct region *region, uint64_t deadline) {
    static const struct timespec pause = {.tv_nsec = 50000};
    uint32_t index = region->page_slot;
    struct shm_slot *slot;

    if (index >= SHM_SLOTS)
        return MC_OK;
    slot = &shm->page->slots[index];
    set_state(slot, SHM_CLOSING);
    while (in_use(shm, index)) {
        if (clock_now() >= deadline) {
            set_state(slot, SHM_OPEN);
            atomic_fetch_add(&shm->page->changes, 1); /* for whoever looked meanwhile and found it closed */
            return MC_ERR_BUSY;
        }
        nanosleep(&pause, NULL);
    }
    pthread_mutex_lock(&shm->lock);
    set_state(slot, SHM_FREE);
    shm->regions[index] = NULL;
    region->page_slot = SHM_SLOTS;
    atomic_fetch_add(&shm->page->changes, 1);
    pthread_mutex_unlock(&shm->lock);
    return MC_OK;
}

/* ---- Guests: on the loop's thread ---- */

static void guest_end(struct guest *guest) {
    struct shm_host *shm = guest->host;

    loop_timer_cancel_sync(shm->host->loop, &guest->timer);
    loop_remove(shm->host->loop, &guest->watch);
    pthread_mutex_lock(&shm->lock);
    list_remove(&guest->node);
    shm->guest_count--;
    pthread_mutex_unlock(&shm->lock);
    if (guest->counters != NULL)
        memfd_unmap(guest->counters, memfd_round(sizeof(*guest->counters)));
    fork_close(guest->counters_fd);
    socket_close(guest->watch.fd);
    free(guest);
}

/* Uses the invitation up. False if there is none with that token. */
static bool redeem(struct shm_host *shm, const uint8_t token[16], uint8_t ret_answer[16]) {
    uint64_t now = clock_now();
    bool found = false;

    pthread_mutex_lock(&shm->lock);
    for (uint32_t i = 0; i < INVITATIONS && !found; i++) {
        struct invitation *invitation = &shm->invitations[i];

        if (invitation->ends > now && memcmp(invitation->token, token, 16) == 0) {
            memcpy(ret_answer, invitation->answer, 16);
            memset(invitation, 0, sizeof(*invitation));
            found = true;
        }
    }
    pthread_mutex_unlock(&shm->lock);
    return found;
}

/* HELLO: checks user and token, makes the guest's counters, sends both pages. */
static bool welcome(struct guest *guest, const struct shm_packet *hello) {
    struct shm_host *shm = guest->host;
    struct shm_packet reply = {.kind = SHM_WELCOME};
    void *counters;
    uint32_t user;
    int fds[2];

    if (socket_peer_user(guest->watch.fd, &user) != 0 || !redeem(shm, hello->token, reply.token))
        return false;
    if (user != geteuid())
        reply.status = MC_ERR_ACCESS_DENIED;
    else if (memfd_make("mooncake-copies", memfd_round(sizeof(struct shm_counters)), &guest->counters_fd, &counters) !=
             0)
        reply.status = MC_ERR_NO_MEMORY;
    if (reply.status != MC_OK)
        return socket_send_fds(guest->watch.fd, &reply, sizeof(reply), NULL, 0) > 0;
    pthread_mutex_lock(&shm->lock);
    guest->counters = counters;
    pthread_mutex_unlock(&shm->lock);
    loop_timer_cancel_sync(shm->host->loop, &guest->timer);
    fds[0] = shm->page_fd_read_only;
    fds[1] = guest->counters_fd;
    return socket_send_fds(guest->watch.fd, &reply, sizeof(reply), fds, 2) > 0;
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
    region = shm->regions[ask->slot];
    if (region != NULL && atomic_load(&shm->page->slots[ask->slot].key) == ask->key) {
        if ((region->access & MC_REMOTE_WRITE) != 0)
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
    size_t descriptors;
    ptrdiff_t got = socket_receive_fds(watch->fd, &packet, sizeof(packet), NULL, 0, &descriptors);
    bool good = false;

    (void)events;
    if (got < 0 && errno == EAGAIN)
        return;
    if (got == (ptrdiff_t)sizeof(packet) && packet.kind == SHM_HELLO && guest->counters == NULL)
        good = welcome(guest, &packet);
    else if (got == (ptrdiff_t)sizeof(packet) && packet.kind == SHM_MAP && guest->counters != NULL)
        good = give_memory(guest, &packet);
    if (!good)
        guest_end(guest);
}

static void guest_late(struct loop_timer *timer, uint64_t now) {
    (void)now;
    guest_end(list_entry(timer, struct guest, timer));
}

static void accept_guest(struct loop_watch *watch, uint32_t events) {
    struct shm_host *shm = list_entry(watch, struct shm_host, listener);
    int fd = socket_accept(watch->fd);
    struct guest *guest = fd >= 0 && shm->guest_count < GUESTS_MAX ? calloc(1, sizeof(*guest)) : NULL;

    (void)events;
    if (guest == NULL) {
        socket_close(fd);
        return;
    }
    guest->host = shm;
    guest->counters_fd = -1;
    guest->watch.fd = fd;
    guest->watch.ready = guest_ready;
    loop_timer_init(&guest->timer, guest_late);
    if (loop_add(shm->host->loop, &guest->watch, EPOLLIN) != MC_OK) {
        socket_close(fd);
        free(guest);
        return;
    }
    loop_timer_set(shm->host->loop, &guest->timer, clock_after(clock_now(), INVITATION_TIME));
    pthread_mutex_lock(&shm->lock);
    list_append(&shm->guests, &guest->node);
    shm->guest_count++;
    pthread_mutex_unlock(&shm->lock);
}

/* ---- Invitations ---- */

static void begin_invite(struct exchange *exchange) {
    exchange_take_body(exchange);
}

static int32_t serve_invite(struct exchange *exchange) {
    struct shm_host *shm = exchange->service->context;
    struct message_invitation message = {.name = {(const uint8_t *)shm->name, (uint32_t)strlen(shm->name)}};
    struct invitation *invitation;
    uint8_t *body;
    int64_t size;

    if (auth_random(&message.token, sizeof(message.token)) != MC_OK ||
        auth_random(&message.answer, sizeof(message.answer)) != MC_OK)
        return MC_ERR_SYSTEM;
    size = message_pack_invitation(&message, NULL, 0);
    body = size > 0 ? exchange_reply_body(exchange, (uint32_t)size) : NULL;
    if (body == NULL)
        return MC_ERR_NO_MEMORY;
    message_pack_invitation(&message, body, (size_t)size);
    pthread_mutex_lock(&shm->lock);
    invitation = &shm->invitations[shm->next_invitation++ % INVITATIONS];
    memcpy(invitation->token, message.token.bytes, 16);
    memcpy(invitation->answer, message.answer.bytes, 16);
    invitation->ends = clock_after(clock_now(), INVITATION_TIME);
    pthread_mutex_unlock(&shm->lock);
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
    fd = socket_unix_listen(shm->name, 128);
    if (fd < 0) {
        snprintf(reason, TRANSPORT_REASON_MAX, "no UNIX socket: %s", strerror(errno));
        return MC_ERR_NOT_SUPPORTED;
    }
    shm->listener.ready = accept_guest;
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
    void *page;
    int32_t status = MC_OK;

    if (shm == NULL)
        return MC_ERR_NO_MEMORY;
    shm->host = host;
    shm->page_fd = shm->page_fd_read_only = shm->listener.fd = -1;
    pthread_mutex_init(&shm->lock, NULL);
    list_init(&shm->guests);
    if (memfd_make("mooncake-regions", memfd_round(sizeof(struct shm_page)), &shm->page_fd, &page) != 0) {
        snprintf(reason, TRANSPORT_REASON_MAX, "no memory that can be shared: %s", strerror(errno));
        status = MC_ERR_NOT_SUPPORTED;
    } else {
        shm->page = page;
        shm->page->magic = SHM_MAGIC;
        shm->page_fd_read_only = memfd_read_only(shm->page_fd);
    }
    if (status == MC_OK && shm->page_fd_read_only < 0) {
        snprintf(reason, TRANSPORT_REASON_MAX, "no read-only descriptor (is /proc there?): %s", strerror(errno));
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

    loop_remove(shm->host->loop, &shm->listener);
    shm->listener.fd = socket_close(shm->listener.fd);
    list_each (node, after, &shm->guests)
        guest_end(list_entry(node, struct guest, node));
}

void shm_host_close(struct shm_host *shm) {
    if (shm->page != NULL)
        memfd_unmap(shm->page, memfd_round(sizeof(*shm->page)));
    fork_close(shm->page_fd);
    fork_close(shm->page_fd_read_only);
    socket_close(shm->listener.fd);
    pthread_mutex_destroy(&shm->lock);
    free(shm);
}

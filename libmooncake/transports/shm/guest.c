/* transports/shm/guest.c - the side that reaches a peer's memory: opening, closing, and what it says of itself.
 *
 * Owns: the UNIX connection, both pages, what is known of the peer's regions and process. Looking a region up and
 * copying takes no lock: see regions.h. `lock` guards the rest of the regions, and is never held while something waits.
 * The loop watches the socket for its end only: that is how the peer's death is learnt.
 */
#include "transports/shm/guest.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "os/memfd.h"
#include "os/socket.h"
#include "os/thread.h"
#include "transports/shm/control.h"
#include "transports/shm/enter.h"
#include "transports/shm/inside.h"

/* ---- What it says ---- */

const char *shm_guest_trouble(struct shm_guest *guest) {
    if (atomic_load(&guest->dead))
        return "the connection to the peer's UNIX socket has ended";
    if (atomic_load(&guest->late))
        return "the peer doesn't answer on its UNIX socket: regions that aren't mapped yet take another path";
    return NULL;
}

struct explanation {
    struct shm_guest *guest;
    struct writer *writer;
    bool begun;
};

static const char *access_words(uint32_t access) {
    static const char *const words[] = {"", "r", "w", "rw"};

    return words[access & (MC_REMOTE_READ | MC_REMOTE_WRITE)];
}

static void explain_region(void *context, const struct shm_region *region) {
    struct explanation *explanation = context;
    struct shm_guest *guest = explanation->guest;
    const char *obstacle = shm_direct_obstacle(&guest->direct), *reason = "";
    bool mapped = region->number != 0 && !atomic_load(&region->refused);
    bool direct;

    if (obstacle == NULL && atomic_load(&region->direct) == SHM_DIRECT_REFUSED)
        obstacle = "the kernel doesn't let process_vm_readv read this memory";
    direct = !mapped && obstacle == NULL;
    if (region->number != 0 && !mapped)
        reason = "the memory could not be mapped";
    else if (!mapped)
        reason = direct ? "the memory is not of mc_memory_alloc" : obstacle;
    writer_print(explanation->writer,
                 "%s{\"base\":%llu,\"length\":%llu,\"access\":\"%s\",\"path\":%s,\"how\":%s,\"reason\":",
                 explanation->begun ? "," : "", (unsigned long long)region->base, (unsigned long long)region->length,
                 access_words(region->access), mapped || direct ? "\"shm\"" : "null",
                 mapped   ? "\"mapped\""
                 : direct ? "\"process_vm\""
                          : "null");
    writer_json_string(explanation->writer, reason);
    writer_print(explanation->writer, "}");
    explanation->begun = true;
}

void shm_guest_explain(struct shm_guest *guest, struct writer *writer) {
    struct explanation explanation = {.guest = guest, .writer = writer};

    if (atomic_load(&guest->dead))
        return;
    pthread_mutex_lock(&guest->lock);
    shm_regions_refresh(&guest->regions);
    shm_regions_each(&guest->regions, explain_region, &explanation);
    pthread_mutex_unlock(&guest->lock);
}

/* ---- Opening and closing ---- */

static void on_end(struct loop_watch *watch, uint32_t events) {
    struct shm_guest *guest = list_entry(watch, struct shm_guest, watch);

    (void)events;
    atomic_store(&guest->dead, true);
    loop_remove(guest->loop, watch);
}

/* Zeroed, and aligned as the stripes want it. */
static struct shm_guest *guest_new(void) {
    struct shm_guest *guest = aligned_alloc(_Alignof(struct shm_guest), sizeof(*guest));

    if (guest != NULL)
        memset(guest, 0, sizeof(*guest));
    return guest;
}

int32_t shm_guest_open(const struct transport_host *host, struct channel *channel, struct shm_guest **ret_guest,
                       char reason[TRANSPORT_REASON_MAX]) {
    struct shm_guest *guest = guest_new();
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
    shm_direct_open(&guest->direct, entry.fd, entry.page);
    status = shm_regions_init(&guest->regions, entry.page);
    if (status == MC_OK)
        status = loop_add(guest->loop, &guest->watch, EPOLLRDHUP);
    if (status != MC_OK) {
        shm_guest_close(guest);
        return status;
    }
    *ret_guest = guest;
    return MC_OK;
}

void shm_guest_control(struct shm_guest *guest, struct channel *channel) {
    if (!shm_control_take(guest->watch.fd, channel))
        atomic_store(&guest->dead, true);
}

void shm_guest_close(struct shm_guest *guest) {
    loop_remove_sync(guest->loop, &guest->watch);
    shm_regions_destroy(&guest->regions);
    shm_direct_close(&guest->direct);
    memfd_unmap((void *)(uintptr_t)guest->page, memfd_round(sizeof(*guest->page)));
    memfd_unmap(guest->counters, memfd_round(sizeof(*guest->counters)));
    socket_close(guest->watch.fd);
    pthread_cond_destroy(&guest->asked);
    pthread_mutex_destroy(&guest->lock);
    free(guest);
}

/* transports/shm/shm.c - memory of another process on this host, mapped or by process_vm: a copy in the calling thread.
 *
 * An instance is a host for the engine's own memory; a link is a guest of a peer's.
 */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "os/fork.h"
#include "os/memfd.h"
#include "transports/shm/control.h"
#include "transports/shm/guest.h"
#include "transports/shm/host.h"

struct transport {
    const struct transport_host *host;
    struct shm_host *shm;
};

struct transport_link; /* is a struct shm_guest */

static struct shm_guest *guest_of(struct transport_link *link) {
    return (struct shm_guest *)(void *)link;
}

static int32_t shm_open_transport(const struct transport_host *host, struct transport **ret_transport,
                                  char reason[TRANSPORT_REASON_MAX]) {
    struct transport *transport = calloc(1, sizeof(*transport));
    int32_t status;

    if (transport == NULL)
        return MC_ERR_NO_MEMORY;
    transport->host = host;
    status = shm_host_open(host, &transport->shm, reason);
    if (status != MC_OK) {
        free(transport);
        return status;
    }
    *ret_transport = transport;
    return MC_OK;
}

static void shm_stop_serving(struct transport *transport) {
    shm_host_stop(transport->shm);
}

static void shm_close(struct transport *transport) {
    shm_host_close(transport->shm);
    free(transport);
}

static void shm_publish(struct transport *transport, struct region *region) {
    shm_host_publish(transport->shm, region);
}

static int32_t shm_withdraw(struct transport *transport, struct region *region, uint64_t deadline) {
    return shm_host_withdraw(transport->shm, region, deadline);
}

static bool shm_in_flight(struct transport *transport, const void *guard) {
    return shm_host_in_flight(transport->shm, guard);
}

static int32_t shm_connect(struct transport *transport, struct channel *channel, struct transport_link **ret_link,
                           char reason[TRANSPORT_REASON_MAX]) {
    struct shm_guest *guest;
    int32_t status;

    if (memcmp(channel_incarnation(channel), transport->host->self->incarnation, 16) == 0) {
        text_copy(reason, TRANSPORT_REASON_MAX, "the peer is this engine itself");
        return MC_ERR_NOT_SUPPORTED;
    }
    status = shm_guest_open(transport->host, channel, &guest, reason);
    if (status == MC_OK) {
        if (transport->host->rings)
            shm_guest_control(guest, channel);
        *ret_link = (struct transport_link *)(void *)guest;
    }
    return status;
}

static void shm_speed_up(struct transport *transport, struct channel *channel) {
    if (transport->host->rings && memcmp(channel_incarnation(channel), transport->host->self->incarnation, 16) != 0)
        shm_control_open(transport->host, channel);
}

static void shm_disconnect(struct transport_link *link) {
    shm_guest_close(guest_of(link));
}

static const char *shm_trouble(struct transport_link *link) {
    return shm_guest_trouble(guest_of(link));
}

static bool shm_reach(struct transport_link *link, const struct slice *slice) {
    return shm_guest_reach(guest_of(link), slice);
}

static int32_t shm_map(struct transport_link *link, uint64_t address, uint64_t length, uint32_t access,
                       void **ret_memory, struct ref **ret_hold) {
    return shm_guest_map(guest_of(link), address, length, access, ret_memory, ret_hold);
}

static int32_t shm_step(struct transport_link *link, struct slice *slice) {
    return shm_guest_step(guest_of(link), slice);
}

static void shm_step_group(struct transport_link *link, struct slice *const *slices, size_t count,
                           int32_t *ret_statuses) {
    shm_guest_step_group(guest_of(link), slices, count, ret_statuses);
}

static void shm_explain(struct transport_link *link, struct writer *writer) {
    shm_guest_explain(guest_of(link), writer);
}

/* What it takes: memory that can be sealed, and /proc for read-only descriptors. */
static const char *shm_unavailable(void) {
    const char *reason = NULL;
    int fd, read_only;
    void *page;

    if (memfd_make("mooncake-probe", memfd_page_size(), &fd, &page) != 0)
        return "no memory that can be shared and sealed (memfd_create)";
    read_only = memfd_read_only(fd);
    if (read_only < 0)
        reason = "no read-only descriptors (/proc is not mounted)";
    fork_close(read_only);
    fork_close(fd);
    memfd_unmap(page, memfd_page_size());
    return reason;
}

const struct transport_ops transport_shm = {
    .name = "shm",
    .cost = 10,
    .unavailable = shm_unavailable,
    .open = shm_open_transport,
    .stop_serving = shm_stop_serving,
    .close = shm_close,
    .publish = shm_publish,
    .withdraw = shm_withdraw,
    .in_flight = shm_in_flight,
    .connect = shm_connect,
    .disconnect = shm_disconnect,
    .speed_up = shm_speed_up,
    .trouble = shm_trouble,
    .explain = shm_explain,
    .reach = shm_reach,
    .map = shm_map,
    .step = shm_step,
    .step_group = shm_step_group,
};

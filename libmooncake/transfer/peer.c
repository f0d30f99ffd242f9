/* transfer/peer.c - an engine's view of one peer incarnation.
 *
 * The links are made once, when the peer is opened, and never change until it is shut down; so choosing one takes no
 * lock here.
 */
#include "transfer/peer.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "base/writer.h"
#include "wire/message.h"

struct peer *peer_of(struct object *object) {
    return list_entry(object, struct peer, object);
}

void peer_shutdown(struct peer *peer) {
    for (size_t i = 0; i < ENGINE_TRANSPORTS; i++) {
        if (peer->links[i].link != NULL)
            peer->links[i].ops->disconnect(peer->links[i].link);
        peer->links[i].link = NULL;
    }
    peer->channel = channel_close(peer->channel);
}

/* The last reference is dropped within an engine call, or when the engine is closed and has shut the peer down. */
static void destroy(struct ref *ref) {
    struct peer *peer = list_entry(ref, struct peer, object.ref);

    pthread_mutex_lock(&peer->engine->lock);
    list_remove(&peer->node);
    pthread_mutex_unlock(&peer->engine->lock);
    peer_shutdown(peer);
    if (peer->metrics != NULL)
        metrics_leave(peer->engine->metrics, peer->metrics);
    ref_drop(&peer->engine->object.ref);
    free(peer);
}

static int32_t connect_links(struct peer *peer) {
    for (size_t i = 0; i < ENGINE_TRANSPORTS; i++) {
        const struct engine_transport *transport = &peer->engine->transports[i];
        struct peer_link *link = &peer->links[i];
        int32_t status;

        link->ops = transport->ops;
        if (transport->transport == NULL) {
            text_copy(link->reason, sizeof(link->reason), transport->reason);
            continue;
        }
        status = transport->ops->connect(transport->transport, peer->channel, &link->link, link->reason);
        if (status != MC_OK && status != MC_ERR_NOT_SUPPORTED)
            return status;
        if (link->link == NULL && link->ops != &transport_self)
            log_sometimes(MC_LOG_INFO, "no %s to %s: %s", link->ops->name, peer->address, link->reason);
        if (link->link != NULL) {
            link->metrics = metrics_link(peer->engine->metrics, peer->metrics, i);
            if (link->metrics == NULL)
                return MC_ERR_NO_MEMORY;
        }
    }
    return MC_OK;
}

int32_t peer_open(struct engine *engine, const char *address, uint64_t timeout, struct peer **ret_peer,
                  struct mc_error *error) {
    struct channel_options options = {
        .loop = engine->loop,
        .self = &engine->identity,
        .connect_timeout = timeout,
        .lanes = engine->lanes,
    };
    struct peer *peer = calloc(1, sizeof(*peer));
    int32_t status;

    if (peer == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    object_init(&peer->object, OBJECT_PEER, destroy);
    list_init(&peer->node);
    ref_take(&engine->object.ref);
    peer->engine = engine;
    text_copy(peer->address, sizeof(peer->address), address);
    peer->metrics = metrics_join(engine->metrics, address);
    if (peer->metrics == NULL) {
        ref_drop(&peer->object.ref);
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    }
    options.counters = &peer->metrics->lanes;
    status = channel_new(address, &options, &peer->channel, error);
    if (status == MC_OK) {
        /* From now on the engine's close finds it, and ends the wait for an answer. */
        pthread_mutex_lock(&engine->lock);
        list_append(&engine->peers, &peer->node);
        pthread_mutex_unlock(&engine->lock);
        status = channel_greet(peer->channel, error);
    }
    if (status == MC_OK) {
        status = connect_links(peer);
        if (status != MC_OK)
            status_set(error, status, 0, "%s: %s", address, status_text(status));
    }
    if (status != MC_OK) {
        ref_drop(&peer->object.ref);
        return status;
    }
    *ret_peer = peer;
    return MC_OK;
}

/* Says once of each path before `taken` that it has stopped working. */
static void tell_of_trouble(struct peer *peer, const struct peer_link *taken) {
    for (struct peer_link *link = peer->links; link < taken; link++) {
        const char *trouble = link->link != NULL && link->ops->trouble != NULL ? link->ops->trouble(link->link) : NULL;

        if (trouble != NULL && !atomic_exchange(&link->told, true))
            log_warning("%s to %s fails, %s is tried: %s", link->ops->name, peer->address, taken->ops->name, trouble);
    }
}

const struct peer_link *peer_choose(struct peer *peer, const struct slice *slice) {
    for (size_t i = 0; i < ENGINE_TRANSPORTS; i++) {
        const struct peer_link *link = &peer->links[i];

        if (link->link == NULL || (link->ops->reach != NULL && !link->ops->reach(link->link, slice)))
            continue;
        tell_of_trouble(peer, link);
        return link;
    }
    return NULL;
}

int32_t peer_map(struct peer *peer, uint64_t address, uint64_t length, uint32_t access, void **ret_memory,
                 struct ref **ret_hold) {
    int32_t status = MC_ERR_NOT_SUPPORTED;

    for (size_t i = 0; i < ENGINE_TRANSPORTS && status == MC_ERR_NOT_SUPPORTED; i++) {
        const struct peer_link *link = &peer->links[i];

        if (link->link != NULL && link->ops->map != NULL)
            status = link->ops->map(link->link, address, length, access, ret_memory, ret_hold);
    }
    return status;
}

int32_t peer_probe(struct peer *peer, uint64_t deadline, struct mc_error *error) {
    int32_t status = channel_call(peer->channel, MESSAGE_PING, NULL, 0, deadline, NULL, 0, NULL);

    if (status != MC_OK)
        status_set(error, status, 0, "%s: %s", peer->address, status_text(status));
    return status;
}

int32_t notice_check(const struct notice *notice, struct mc_error *error) {
    if ((notice->name == NULL && notice->name_length > 0) || (notice->message == NULL && notice->message_length > 0))
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "name or message is NULL");
    if (notice->name_length > MC_NOTIFICATION_MAX || notice->message_length > MC_NOTIFICATION_MAX - notice->name_length)
        return status_set(error, MC_ERR_TOO_LARGE, 0, "name and message have more than %u bytes", MC_NOTIFICATION_MAX);
    return MC_OK;
}

uint8_t *notice_pack(const struct notice *notice, const struct engine *sender, uint32_t *ret_length) {
    const struct message_notify message = {
        .sender = {(const uint8_t *)sender->address, (uint32_t)strlen(sender->address)},
        .name = {notice->name, (uint32_t)notice->name_length},
        .message = {notice->message, (uint32_t)notice->message_length},
    };
    int64_t size = message_pack_notify(&message, NULL, 0);
    uint8_t *body = size > 0 ? malloc((size_t)size) : NULL;

    if (body == NULL)
        return NULL;
    message_pack_notify(&message, body, (size_t)size);
    *ret_length = (uint32_t)size;
    return body;
}

int32_t peer_notify(struct peer *peer, const struct notice *notice, uint64_t deadline, struct mc_error *error) {
    uint32_t length;
    uint8_t *body = notice_pack(notice, peer->engine, &length);
    int32_t status;

    if (body == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    status = channel_call(peer->channel, MESSAGE_NOTIFY, body, length, deadline, NULL, 0, NULL);
    metrics_notified(peer->metrics, status);
    if (status != MC_OK)
        status_set(error, status, 0, "%s: %s", peer->address, status_text(status));
    free(body);
    return status;
}

static void explain_link(const struct peer_link *link, struct writer *writer) {
    const char *trouble = link->reason;
    bool usable = link->link != NULL;

    if (usable && link->ops->trouble != NULL && link->ops->trouble(link->link) != NULL) {
        trouble = link->ops->trouble(link->link);
        usable = false;
    }
    writer_print(writer, "{\"transport\":\"%s\",\"cost\":%u,\"usable\":%s,\"reason\":", link->ops->name,
                 link->ops->cost, usable ? "true" : "false");
    writer_json_string(writer, trouble);
    writer_print(writer, "}");
}

int64_t peer_explain(const struct peer *peer, char *text, size_t size) {
    struct writer writer;

    writer_init(&writer, text, size);
    writer_print(&writer, "{\"peer\":");
    writer_json_string(&writer, peer->address);
    for (size_t i = 0; i < ENGINE_TRANSPORTS; i++) {
        writer_print(&writer, "%s", i == 0 ? ",\"transports\":[" : ",");
        explain_link(&peer->links[i], &writer);
    }
    writer_print(&writer, "],\"regions\":[");
    for (size_t i = 0; i < ENGINE_TRANSPORTS; i++)
        if (peer->links[i].link != NULL && peer->links[i].ops->explain != NULL)
            peer->links[i].ops->explain(peer->links[i].link, &writer);
    writer_print(&writer, "]}");
    return (int64_t)writer.length;
}

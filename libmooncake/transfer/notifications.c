/* transfer/notifications.c - a bounded queue of what peers told. `lock` guards it. */
#include "transfer/notifications.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "os/address.h"
#include "os/flag.h"
#include "os/fork.h"
#include "os/thread.h"
#include "wire/message.h"

struct received {
    struct mc_notification public; /* first: what the caller gets and frees */
    struct list node;
    char text[]; /* three strings, each with a NUL */
};

struct notifications {
    struct service service;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct list queue;
    uint32_t count;
    uint32_t capacity;
    uint64_t received;   /* since the beginning */
    uint64_t overflowed; /* refused since then */
    bool closed;
    int fd; /* readable while the queue isn't empty; -1 until somebody asks for it */
};

struct notifications *notifications_new(uint32_t capacity) {
    struct notifications *notifications = calloc(1, sizeof(*notifications));

    if (notifications == NULL)
        return NULL;
    pthread_mutex_init(&notifications->lock, NULL);
    thread_cond_init(&notifications->changed);
    list_init(&notifications->queue);
    notifications->capacity = capacity;
    notifications->fd = -1;
    return notifications;
}

struct notifications *notifications_free(struct notifications *notifications) {
    struct list *node, *after;

    if (notifications == NULL)
        return NULL;
    list_each (node, after, &notifications->queue)
        free(list_entry(node, struct received, node));
    fork_close(notifications->fd);
    pthread_cond_destroy(&notifications->changed);
    pthread_mutex_destroy(&notifications->lock);
    free(notifications);
    return NULL;
}

void notifications_close(struct notifications *notifications, bool closed) {
    pthread_mutex_lock(&notifications->lock);
    notifications->closed = closed;
    pthread_cond_broadcast(&notifications->changed);
    pthread_mutex_unlock(&notifications->lock);
}

/* Copies the bytes and a NUL to *at, and moves it on. */
static const char *place(char **at, const struct message_bytes *bytes) {
    char *begin = *at;

    if (bytes->length > 0)
        memcpy(begin, bytes->data, bytes->length);
    begin[bytes->length] = '\0';
    *at += bytes->length + 1;
    return begin;
}

static struct received *received_new(const struct message_notify *message) {
    size_t length = (size_t)message->sender.length + message->name.length + message->message.length + 3;
    struct received *received = malloc(sizeof(*received) + length);
    char *at;

    if (received == NULL)
        return NULL;
    at = received->text;
    list_init(&received->node);
    received->public.sender = place(&at, &message->sender);
    received->public.name = place(&at, &message->name);
    received->public.message = place(&at, &message->message);
    received->public.sender_length = message->sender.length;
    received->public.name_length = message->name.length;
    received->public.message_length = message->message.length;
    return received;
}

static void begin_notify(struct exchange *exchange) {
    exchange_take_body(exchange);
}

static int32_t serve_notify(struct exchange *exchange) {
    struct notifications *notifications = exchange->service->context;
    struct message_notify message;
    struct received *received;
    int32_t status = message_unpack_notify(exchange->body, exchange->request.payload, &message);

    if (status != MC_OK)
        return status;
    if ((uint64_t)message.name.length + message.message.length > MC_NOTIFICATION_MAX ||
        message.sender.length >= ADDRESS_TEXT_MAX)
        return MC_ERR_TOO_LARGE;
    received = received_new(&message);
    if (received == NULL)
        return MC_ERR_NO_MEMORY;
    pthread_mutex_lock(&notifications->lock);
    if (notifications->count < notifications->capacity) {
        list_append(&notifications->queue, &received->node);
        notifications->count++;
        notifications->received++;
        if (notifications->fd >= 0)
            flag_raise(notifications->fd);
        pthread_cond_signal(&notifications->changed);
    } else {
        notifications->overflowed++;
        status = MC_ERR_QUEUE_FULL;
    }
    pthread_mutex_unlock(&notifications->lock);
    if (status != MC_OK)
        free(received);
    return status;
}

void notifications_serve(struct notifications *notifications, struct server *server) {
    notifications->service = (struct service){
        .type = FRAME_CALL + MESSAGE_NOTIFY,
        .context = notifications,
        .begin = begin_notify,
        .serve = serve_notify,
    };
    server_add(server, &notifications->service);
}

void notifications_count(struct notifications *notifications, uint64_t *ret_received, uint64_t *ret_overflowed) {
    pthread_mutex_lock(&notifications->lock);
    *ret_received = notifications->received;
    *ret_overflowed = notifications->overflowed;
    pthread_mutex_unlock(&notifications->lock);
}

int notifications_fd(struct notifications *notifications) {
    int fd;

    pthread_mutex_lock(&notifications->lock);
    if (notifications->fd < 0) {
        notifications->fd = flag_open();
        if (notifications->fd >= 0 && !list_empty(&notifications->queue))
            flag_raise(notifications->fd);
    }
    fd = notifications->fd >= 0 ? notifications->fd : MC_ERR_SYSTEM;
    pthread_mutex_unlock(&notifications->lock);
    return fd;
}

int32_t notifications_take(struct notifications *notifications, uint64_t deadline,
                           struct mc_notification **ret_notification) {
    int32_t status = MC_OK;

    pthread_mutex_lock(&notifications->lock);
    while (status == MC_OK && list_empty(&notifications->queue)) {
        if (notifications->closed)
            status = MC_ERR_CLOSED;
        else if (thread_cond_wait(&notifications->changed, &notifications->lock, deadline) == ETIMEDOUT)
            status = list_empty(&notifications->queue) ? MC_ERR_PENDING : MC_OK;
    }
    if (status == MC_OK) {
        struct received *received = list_entry(notifications->queue.next, struct received, node);

        list_remove(&received->node);
        notifications->count--;
        if (notifications->fd >= 0 && list_empty(&notifications->queue))
            flag_lower(notifications->fd);
        *ret_notification = &received->public;
    }
    pthread_mutex_unlock(&notifications->lock);
    return status;
}

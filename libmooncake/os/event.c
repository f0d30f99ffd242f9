/* os/event.c - a flag under a lock, so that seeing it set means that its setter is done with it. */
#include "os/event.h"

#include <errno.h>

#include "os/thread.h"

void event_init(struct event *event) {
    pthread_mutex_init(&event->lock, NULL);
    thread_cond_init(&event->changed);
    event->set = false;
}

void event_destroy(struct event *event) {
    pthread_cond_destroy(&event->changed);
    pthread_mutex_destroy(&event->lock);
}

void event_set(struct event *event) {
    pthread_mutex_lock(&event->lock);
    event->set = true;
    pthread_cond_broadcast(&event->changed);
    pthread_mutex_unlock(&event->lock);
}

bool event_is_set(struct event *event) {
    bool set;

    pthread_mutex_lock(&event->lock);
    set = event->set;
    pthread_mutex_unlock(&event->lock);
    return set;
}

bool event_wait(struct event *event, uint64_t deadline) {
    bool set;

    pthread_mutex_lock(&event->lock);
    while (!event->set && thread_cond_wait(&event->changed, &event->lock, deadline) != ETIMEDOUT)
        ;
    set = event->set;
    pthread_mutex_unlock(&event->lock);
    return set;
}

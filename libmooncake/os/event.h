/* os/event.h - a flag that threads can wait for. Set once, or set and cleared by one owner. */
#ifndef MC_OS_EVENT_H
#define MC_OS_EVENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct event {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool set;
};

void event_init(struct event *event);
void event_destroy(struct event *event);

/* When a waiter has seen the event set, the setter no longer touches it: it may be destroyed. */
void event_set(struct event *event);
bool event_is_set(struct event *event);

/* Waits until it is set; false if `deadline` (clock_now's time) came first. */
bool event_wait(struct event *event, uint64_t deadline);

#endif

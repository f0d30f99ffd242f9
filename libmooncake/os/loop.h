/* os/loop.h - one thread that sleeps in epoll and calls the owners of descriptors, timers and posted work.
 *
 * After an event it may stay awake for a while, and look again without sleeping: at its descriptors for the time that
 * was set (busy polling; none by default), and at watches that can be looked at by themselves. Nothing is looked at
 * longer than that after the last event, so an idle loop sleeps and makes no system calls.
 *
 * Threads: loop_add … loop_remove and the timer calls may be made from any thread; callbacks run on the loop's thread
 * only. After loop_remove returned on the loop's own thread, or loop_remove_sync on another, the watch's callback is
 * not running and never runs again.
 */
#ifndef MC_OS_LOOP_H
#define MC_OS_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

struct loop;

/* Embedded in its owner. `events` are EPOLLIN … as epoll reports them. */
struct loop_watch {
    void (*ready)(struct loop_watch *watch, uint32_t events);
    /* For one that can be looked at without epoll; else NULL. After an event of it, the loop calls this again and again
     * for a while: does what can be done without waiting. Was there anything? (Also if it removed the watch.) `last`:
     * the time is over, so what comes next must make the descriptor ready; true if something has come meanwhile. */
    bool (*look)(struct loop_watch *watch, bool last);
    int fd;
    uint32_t slot; /* private to the loop: generation-checked, so that stale events find nobody */
    bool hot;      /* private, too: it is being looked at */
    struct list node;
};

/* A piece of work for the loop's thread; embedded in its owner, posted again only after it ran (or it is a no-op). */
struct loop_task {
    void (*run)(struct loop_task *task);
    struct list node;
    bool queued; /* with the loop's lock held */
};

/* Called on the loop's thread at or soon after `when`; once for each loop_timer_set. */
struct loop_timer {
    void (*fire)(struct loop_timer *timer, uint64_t now);
    uint64_t when; /* CLOCK_NEVER when idle; with the loop's lock held */
    struct list node;
};

/* Starts the thread, with all signals blocked. MC_ERR_SYSTEM, MC_ERR_NO_MEMORY. */
int32_t loop_start(struct loop **ret_loop);

/* How long the thread stays awake after an event, in ns; 0 at first. Before the loop has anything to do. */
void loop_set_busy_poll(struct loop *loop, uint64_t time);
uint64_t loop_busy_poll(const struct loop *loop);

/* How long one stays awake for what may come at once, in ns: about what waking up would take, or the time for busy
 * polling if that is longer; 0 where there is a single processor. */
uint64_t loop_spin_time(const struct loop *loop);

/* Ends and joins the thread; nothing is called any more. Not from the loop's own thread. NULL is fine. Returns NULL. */
struct loop *loop_stop(struct loop *loop);

bool loop_on_thread(const struct loop *loop);

/* Watches watch->fd for `events` (level-triggered; 0 is fine: errors and hang-ups are still reported). MC_ERR_SYSTEM.
 */
int32_t loop_add(struct loop *loop, struct loop_watch *watch, uint32_t events);
void loop_change(struct loop *loop, struct loop_watch *watch, uint32_t events);

/* Ends the watch; the owner closes the descriptor afterwards. A watch that isn't added is fine. */
void loop_remove(struct loop *loop, struct loop_watch *watch);

/* As loop_remove, and waits until its callback is not running; at once on the loop's own thread. */
void loop_remove_sync(struct loop *loop, struct loop_watch *watch);

/* Runs the task on the loop's thread soon, in the order of posting. */
void loop_post(struct loop *loop, struct loop_task *task);

/* Takes a posted task back, and waits until it is not running; at once on the loop's own thread. */
void loop_unpost_sync(struct loop *loop, struct loop_task *task);

/* Runs the function on the loop's thread and waits for it; at once on that thread. */
void loop_run(struct loop *loop, void (*run_there)(void *context), void *context);

void loop_timer_init(struct loop_timer *timer, void (*fire)(struct loop_timer *timer, uint64_t now));

/* Sets or moves the timer. Wakes the loop only if it would sleep past `when`. */
void loop_timer_set(struct loop *loop, struct loop_timer *timer, uint64_t when);

/* Ends the timer, and waits until it is not firing; at once on the loop's own thread. */
void loop_timer_cancel_sync(struct loop *loop, struct loop_timer *timer);

#endif

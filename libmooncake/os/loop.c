/* os/loop.c - the event loop: one thread, epoll, a sorted list of timers, a queue of posted work.
 *
 * Owns: the thread, the epoll descriptor, an eventfd that wakes it, and the slots that stand for watches in epoll.
 * Watches, tasks and timers are embedded in their owners.
 *
 * Threads: any; `lock` guards everything, and is free while a callback runs. An event costs one lock and unlock:
 * marking the last callback as done and the next as running is one step.
 *
 * Invariants: watch->slot is the index of its slot plus 1, or 0 when it isn't added. A slot's generation changes when
 * its watch is removed, so that an event that epoll reported earlier finds nobody, though slot and descriptor are used
 * again. A task is in `posted` or `batch` if and only if `queued`; a timer in `timers` or `due` if and only if its
 * `when` isn't CLOCK_NEVER. `timers` is sorted, equal times in the order of setting. A watch is in `hot` if and only if
 * its `hot` says so; `hot_count` counts them.
 */
#include "os/loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <mooncake/error.h>

#include "base/clock.h"
#include "base/log.h"
#include "os/event.h"
#include "os/fork.h"
#include "os/spin.h"
#include "os/thread.h"

#define EVENTS_MAX 64
#define HOT_MAX 8u                                /* watches that are looked at; more would keep each other waiting */
#define HOT_TIME (50 * CLOCK_MILLISECOND / 1000)  /* after an event of theirs */
#define HOT_SLICE (50 * CLOCK_MILLISECOND / 1000) /* between two looks at all descriptors */
#define LOOKS 32u                                 /* at all hot ones, in one round */
#define WAKE_DATA UINT64_MAX
#define NO_SLOT UINT32_MAX

struct slot {
    struct loop_watch *watch; /* NULL when free */
    uint32_t generation;
    uint32_t next; /* free slots */
};

struct loop {
    pthread_mutex_t lock;
    pthread_cond_t idle; /* a callback ended, and somebody waits for that */
    pthread_t thread;
    int epoll_fd;
    int wake_fd;
    bool stopping;
    bool asleep; /* in epoll_wait, or about to be, until `wake_at` */
    bool woken;  /* the eventfd was written since */
    uint64_t wake_at;
    const void *running; /* the watch, task or timer whose callback runs; maybe freed by it, so never dereferenced */
    uint32_t waiting;    /* threads that wait on `idle` */
    struct list posted;  /* tasks for the next round */
    struct list batch;   /* tasks of this round */
    struct list timers;
    struct list due; /* timers of this round */
    struct list hot; /* watches that are looked at until `awake_until` */
    uint32_t hot_count;
    bool may_spin;
    struct spin spin; /* of looking at hot watches, beyond busy polling */
    bool hoping;      /* that it is worth it */
    uint64_t awake_until;
    uint64_t busy_poll;
    struct slot *slots;
    uint32_t slot_count;
    uint32_t slot_free;
};

bool loop_on_thread(const struct loop *loop) {
    return pthread_equal(loop->thread, pthread_self()) != 0;
}

/* Wakes the thread if it sleeps past `when`. Call with the lock held. */
static void wake(struct loop *loop, uint64_t when) {
    uint64_t one = 1;

    if (!loop->asleep || loop->woken || when >= loop->wake_at)
        return;
    loop->woken = true;
    while (write(loop->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        continue;
}

/* Waits until the callback of `subject` doesn't run; false if it didn't. Call with the lock held, which is released
 * meanwhile. */
static bool await_idle(struct loop *loop, const void *subject) {
    if (loop->running != subject || loop_on_thread(loop))
        return false;
    loop->waiting++;
    while (loop->running == subject)
        pthread_cond_wait(&loop->idle, &loop->lock);
    loop->waiting--;
    return true;
}

/* Around a callback. Call with the lock held, which is free between the two. */
static void begin(struct loop *loop, const void *subject) {
    loop->running = subject;
    pthread_mutex_unlock(&loop->lock);
}

static void end(struct loop *loop) {
    pthread_mutex_lock(&loop->lock);
    loop->running = NULL;
    if (loop->waiting > 0)
        pthread_cond_broadcast(&loop->idle);
}

/* ---- Watches ---- */

/* Takes a free slot; NO_SLOT with errno. Call with the lock held. */
static uint32_t take_slot(struct loop *loop) {
    uint32_t index = loop->slot_free;

    if (index == NO_SLOT) {
        uint32_t count = loop->slot_count == 0 ? 16 : loop->slot_count * 2;
        struct slot *slots = realloc(loop->slots, count * sizeof(*slots));

        if (slots == NULL)
            return NO_SLOT;
        loop->slots = slots;
        for (; loop->slot_count < count; loop->slot_count++) {
            slots[loop->slot_count] = (struct slot){.next = loop->slot_free};
            loop->slot_free = loop->slot_count;
        }
        index = loop->slot_free;
    }
    loop->slot_free = loop->slots[index].next;
    return index;
}

/* Call with the lock held. */
static void free_slot(struct loop *loop, uint32_t index) {
    struct slot *slot = &loop->slots[index];

    slot->watch = NULL;
    slot->generation++;
    slot->next = loop->slot_free;
    loop->slot_free = index;
}

/* Call with the lock held. */
static int control(struct loop *loop, int operation, int fd, uint32_t index, uint32_t events) {
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)loop->slots[index].generation << 32 | index};

    return epoll_ctl(loop->epoll_fd, operation, fd, &event);
}

int32_t loop_add(struct loop *loop, struct loop_watch *watch, uint32_t events) {
    int32_t status = MC_ERR_SYSTEM;
    uint32_t index = NO_SLOT;

    pthread_mutex_lock(&loop->lock);
    if (watch->slot != 0)
        errno = EEXIST;
    else
        index = take_slot(loop);
    if (index != NO_SLOT && control(loop, EPOLL_CTL_ADD, watch->fd, index, events) == 0) {
        loop->slots[index].watch = watch;
        watch->slot = index + 1;
        status = MC_OK;
    } else if (index != NO_SLOT) {
        free_slot(loop, index);
    }
    pthread_mutex_unlock(&loop->lock);
    return status;
}

void loop_change(struct loop *loop, struct loop_watch *watch, uint32_t events) {
    pthread_mutex_lock(&loop->lock);
    if (watch->slot != 0)
        (void)control(loop, EPOLL_CTL_MOD, watch->fd, watch->slot - 1, events);
    pthread_mutex_unlock(&loop->lock);
}

/* Call with the lock held. */
static void cool(struct loop *loop, struct loop_watch *watch) {
    if (!watch->hot)
        return;
    list_remove(&watch->node);
    watch->hot = false;
    loop->hot_count--;
}

/* Call with the lock held. */
static void remove_watch(struct loop *loop, struct loop_watch *watch) {
    if (watch->slot == 0)
        return;
    cool(loop, watch);
    (void)control(loop, EPOLL_CTL_DEL, watch->fd, watch->slot - 1, 0);
    free_slot(loop, watch->slot - 1);
    watch->slot = 0;
}

void loop_remove(struct loop *loop, struct loop_watch *watch) {
    pthread_mutex_lock(&loop->lock);
    remove_watch(loop, watch);
    pthread_mutex_unlock(&loop->lock);
}

void loop_remove_sync(struct loop *loop, struct loop_watch *watch) {
    pthread_mutex_lock(&loop->lock);
    do
        remove_watch(loop, watch);
    while (await_idle(loop, watch));
    pthread_mutex_unlock(&loop->lock);
}

/* The watch that an event of epoll's is for; NULL if it was removed since. Call with the lock held. */
static struct loop_watch *watch_of(const struct loop *loop, uint64_t data) {
    const struct slot *slot = &loop->slots[(uint32_t)data];

    return slot->generation == (uint32_t)(data >> 32) ? slot->watch : NULL;
}

/* ---- Staying awake. All with the lock held. ---- */

void loop_set_busy_poll(struct loop *loop, uint64_t time) {
    pthread_mutex_lock(&loop->lock);
    loop->busy_poll = time;
    pthread_mutex_unlock(&loop->lock);
}

uint64_t loop_busy_poll(const struct loop *loop) {
    return loop->busy_poll;
}

uint64_t loop_spin_time(const struct loop *loop) {
    if (!loop->may_spin)
        return 0;
    return loop->busy_poll > HOT_TIME ? loop->busy_poll : HOT_TIME;
}

/* Something has happened: the thread stays awake for `time` from now on. */
static void stay_awake(struct loop *loop, uint64_t now, uint64_t time) {
    uint64_t until = clock_after(now, time);

    if (until > loop->awake_until)
        loop->awake_until = until;
}

/* Until when the thread may sleep. */
static uint64_t next_wake(const struct loop *loop) {
    if (!list_empty(&loop->posted))
        return 0;
    return list_empty(&loop->timers) ? CLOCK_NEVER : list_entry(loop->timers.next, struct loop_timer, node)->when;
}

/* How long the hot watches are looked at from now on. */
static uint64_t hot_time(struct loop *loop) {
    uint64_t time = loop->may_spin && spin_try(&loop->spin) ? HOT_TIME : 0;

    loop->hoping = time > 0;
    return time > loop->busy_poll ? time : loop->busy_poll;
}

/* A look at the hot watches has found something: it was worth it, and is again. */
static void found_hot(struct loop *loop, uint64_t now) {
    if (loop->hoping)
        spin_learn(&loop->spin, true);
    stay_awake(loop, now, hot_time(loop));
}

/* From now on the watch is looked at. */
static void heat(struct loop *loop, struct loop_watch *watch, uint64_t now) {
    if (watch->hot)
        list_remove(&watch->node);
    else
        loop->hot_count++;
    watch->hot = true;
    list_append(&loop->hot, &watch->node);
    stay_awake(loop, now, hot_time(loop));
}

/* Looks at the watch that wasn't looked at for longest, and puts it behind the others; or for the last time, and then
 * it stays only if there was something. Was there? The watch may be removed and freed meanwhile. Looks several times,
 * so that the lock is free for most of the time. */
static bool look_at_next(struct loop *loop, bool last) {
    struct loop_watch *watch = list_entry(loop->hot.next, struct loop_watch, node);
    uint32_t index = watch->slot - 1, generation = loop->slots[index].generation;
    uint32_t looks = last || loop->hot_count > LOOKS ? 1 : LOOKS / loop->hot_count;
    bool found;

    cool(loop, watch);
    begin(loop, watch);
    do
        found = watch->look(watch, last);
    while (!found && --looks > 0);
    end(loop);
    if (loop->slots[index].generation == generation && (found || !last)) {
        watch->hot = true;
        loop->hot_count++;
        list_append(&loop->hot, &watch->node);
    }
    return found;
}

/* Looks at the hot watches, as long as there is nothing else to do, but for a slice of time; or for the last time,
 * when all that was awaited hasn't come. May the thread sleep? */
static bool look_around(struct loop *loop) {
    uint64_t now = clock_now(), end_of_slice = now + HOT_SLICE;

    for (uint32_t excess = loop->hot_count > HOT_MAX ? loop->hot_count - HOT_MAX : 0; excess > 0 && loop->hot_count > 0;
         excess--)
        look_at_next(loop, true);
    if (now >= loop->awake_until) {
        for (uint32_t left = loop->hot_count; left > 0 && loop->hot_count > 0; left--)
            look_at_next(loop, true);
        if (loop->hoping)
            spin_learn(&loop->spin, loop->hot_count > 0);
        loop->hoping = false;
        return loop->hot_count == 0;
    }
    while (now < loop->awake_until && now < end_of_slice && loop->hot_count > 0 && next_wake(loop) > now &&
           !loop->stopping) {
        for (uint32_t left = loop->hot_count; left > 0 && loop->hot_count > 0; left--)
            if (look_at_next(loop, false))
                found_hot(loop, now);
        now = clock_now();
    }
    return false;
}

/* Calls the watches of the events that epoll reported. */
static void run_watches(struct loop *loop, const struct epoll_event *events, int count) {
    uint64_t now = count > 0 ? clock_now() : 0;

    for (int i = 0; i < count && !loop->stopping; i++) {
        uint64_t data = events[i].data.u64;
        struct loop_watch *watch = data == WAKE_DATA ? NULL : watch_of(loop, data);

        if (watch == NULL)
            continue;
        begin(loop, watch);
        watch->ready(watch, events[i].events);
        end(loop);
        if (watch_of(loop, data) == watch && watch->look != NULL)
            heat(loop, watch, now);
        else if (loop->busy_poll > 0)
            stay_awake(loop, now, loop->busy_poll);
    }
}

/* ---- Tasks ---- */

void loop_post(struct loop *loop, struct loop_task *task) {
    pthread_mutex_lock(&loop->lock);
    if (!task->queued) {
        task->queued = true;
        list_append(&loop->posted, &task->node);
        wake(loop, 0);
    }
    pthread_mutex_unlock(&loop->lock);
}

/* Call with the lock held. */
static void unqueue(struct loop_task *task) {
    if (!task->queued)
        return;
    list_remove(&task->node);
    task->queued = false;
}

void loop_unpost_sync(struct loop *loop, struct loop_task *task) {
    pthread_mutex_lock(&loop->lock);
    do
        unqueue(task);
    while (await_idle(loop, task));
    pthread_mutex_unlock(&loop->lock);
}

/* Moves all nodes of a list to an empty one. */
static void move_all(struct list *from, struct list *to) {
    if (list_empty(from))
        return;
    list_insert_before(from, to);
    list_remove(from);
}

/* Runs what was posted up to now; what those tasks post waits for the next round, so that descriptors get their turn.
 * Call with the lock held. */
static void run_tasks(struct loop *loop) {
    move_all(&loop->posted, &loop->batch);
    while (!list_empty(&loop->batch) && !loop->stopping) {
        struct loop_task *task = list_entry(loop->batch.next, struct loop_task, node);

        unqueue(task);
        begin(loop, task);
        task->run(task);
        end(loop);
    }
}

/* A function that somebody waits for. */
struct visit {
    struct loop_task task;
    void (*run)(void *context);
    void *context;
    struct event done;
};

static void run_visit(struct loop_task *task) {
    struct visit *visit = list_entry(task, struct visit, task);

    visit->run(visit->context);
    event_set(&visit->done);
}

void loop_run(struct loop *loop, void (*run_there)(void *context), void *context) {
    struct visit visit = {.task = {.run = run_visit}, .run = run_there, .context = context};

    if (loop_on_thread(loop)) {
        run_there(context);
        return;
    }
    event_init(&visit.done);
    list_init(&visit.task.node);
    loop_post(loop, &visit.task);
    event_wait(&visit.done, CLOCK_NEVER);
    loop_unpost_sync(loop, &visit.task);
    event_destroy(&visit.done);
}

/* ---- Timers ---- */

void loop_timer_init(struct loop_timer *timer, void (*fire)(struct loop_timer *timer, uint64_t now)) {
    timer->fire = fire;
    timer->when = CLOCK_NEVER;
    list_init(&timer->node);
}

/* Call with the lock held. */
static void unset(struct loop_timer *timer) {
    if (timer->when == CLOCK_NEVER)
        return;
    list_remove(&timer->node);
    timer->when = CLOCK_NEVER;
}

void loop_timer_set(struct loop *loop, struct loop_timer *timer, uint64_t when) {
    struct list *place = &loop->timers;

    pthread_mutex_lock(&loop->lock);
    unset(timer);
    if (when != CLOCK_NEVER) {
        /* New timers mostly end last. */
        while (place->prev != &loop->timers && list_entry(place->prev, struct loop_timer, node)->when > when)
            place = place->prev;
        list_insert_before(place, &timer->node);
        timer->when = when;
        wake(loop, when);
    }
    pthread_mutex_unlock(&loop->lock);
}

void loop_timer_cancel_sync(struct loop *loop, struct loop_timer *timer) {
    pthread_mutex_lock(&loop->lock);
    do
        unset(timer);
    while (await_idle(loop, timer));
    pthread_mutex_unlock(&loop->lock);
}

/* Fires the timers that are due; those that they set again wait for the next round. Call with the lock held. */
static void run_timers(struct loop *loop) {
    uint64_t now;

    if (list_empty(&loop->timers))
        return;
    now = clock_now();
    while (!list_empty(&loop->timers)) {
        struct loop_timer *timer = list_entry(loop->timers.next, struct loop_timer, node);

        if (timer->when > now)
            break;
        list_remove(&timer->node);
        list_append(&loop->due, &timer->node);
    }
    while (!list_empty(&loop->due) && !loop->stopping) {
        struct loop_timer *timer = list_entry(loop->due.next, struct loop_timer, node);

        unset(timer);
        begin(loop, timer);
        timer->fire(timer, now);
        end(loop);
    }
}

/* ---- The thread ---- */

static void *run(void *context) {
    struct loop *loop = context;
    struct epoll_event events[EVENTS_MAX];
    int count = 0;

    pthread_mutex_lock(&loop->lock);
    while (!loop->stopping) {
        bool tired = loop->awake_until == 0 || look_around(loop);
        uint64_t until = next_wake(loop);
        int timeout = !tired || until == 0 ? 0 : until == CLOCK_NEVER ? -1 : clock_poll_ms(until, clock_now(), -1);

        if (tired)
            loop->awake_until = 0;
        loop->asleep = timeout != 0;
        loop->woken = false;
        loop->wake_at = until;
        pthread_mutex_unlock(&loop->lock);
        count = epoll_wait(loop->epoll_fd, events, EVENTS_MAX, timeout);
        if (count < 0 && errno != EINTR) {
            log_line(MC_LOG_ERROR, "an event loop ends: epoll_wait fails with errno %d", errno);
            pthread_mutex_lock(&loop->lock);
            break;
        }
        pthread_mutex_lock(&loop->lock);
        loop->asleep = false;
        run_watches(loop, events, count);
        run_tasks(loop);
        run_timers(loop);
    }
    pthread_mutex_unlock(&loop->lock);
    return NULL;
}

/* Makes the two descriptors and joins them. The eventfd is edge-triggered, so that it is never read. */
static int open_descriptors(struct loop *loop) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = WAKE_DATA};

    fork_pause();
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fork_close_in_child_paused(loop->epoll_fd);
    fork_close_in_child_paused(loop->wake_fd);
    fork_resume();
    if (loop->epoll_fd < 0 || loop->wake_fd < 0)
        return -1;
    return epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, loop->wake_fd, &event);
}

static void release(struct loop *loop) {
    fork_close(loop->epoll_fd);
    fork_close(loop->wake_fd);
    pthread_cond_destroy(&loop->idle);
    pthread_mutex_destroy(&loop->lock);
    free(loop->slots);
    free(loop);
}

int32_t loop_start(struct loop **ret_loop) {
    struct loop *loop = calloc(1, sizeof(*loop));
    int error;

    if (loop == NULL)
        return MC_ERR_NO_MEMORY;
    pthread_mutex_init(&loop->lock, NULL);
    thread_cond_init(&loop->idle);
    list_init(&loop->posted);
    list_init(&loop->batch);
    list_init(&loop->timers);
    list_init(&loop->due);
    list_init(&loop->hot);
    loop->may_spin = sysconf(_SC_NPROCESSORS_ONLN) > 1;
    loop->slot_free = NO_SLOT;
    if (open_descriptors(loop) < 0) {
        release(loop);
        return MC_ERR_SYSTEM;
    }
    /* The new thread waits for the lock, and finds `thread` set. */
    pthread_mutex_lock(&loop->lock);
    error = thread_start(&loop->thread, "mooncake-loop", run, loop);
    pthread_mutex_unlock(&loop->lock);
    if (error != 0) {
        release(loop);
        errno = error;
        return error == ENOMEM ? MC_ERR_NO_MEMORY : MC_ERR_SYSTEM;
    }
    *ret_loop = loop;
    return MC_OK;
}

struct loop *loop_stop(struct loop *loop) {
    if (loop == NULL)
        return NULL;
    pthread_mutex_lock(&loop->lock);
    loop->stopping = true;
    wake(loop, 0);
    pthread_mutex_unlock(&loop->lock);
    (void)pthread_join(loop->thread, NULL);
    release(loop);
    return NULL;
}

/* test_loop.c - the loop calls who is due, in order, once, and nobody who was taken out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "base/clock.h"
#include "os/loop.h"
#include "os/thread.h"

/* A counter that threads wait on. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int count;
};

static void gate_init(struct gate *gate) {
    pthread_mutex_init(&gate->lock, NULL);
    thread_cond_init(&gate->changed);
    gate->count = 0;
}

static void gate_destroy(struct gate *gate) {
    pthread_cond_destroy(&gate->changed);
    pthread_mutex_destroy(&gate->lock);
}

static void gate_step(struct gate *gate) {
    pthread_mutex_lock(&gate->lock);
    gate->count++;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

static void gate_await(struct gate *gate, int count) {
    uint64_t deadline = clock_after(clock_now(), 20 * CLOCK_SECOND);

    pthread_mutex_lock(&gate->lock);
    while (gate->count < count)
        if (thread_cond_wait(&gate->changed, &gate->lock, deadline) == ETIMEDOUT)
            abort(); /* which shows where, in each thread */
    pthread_mutex_unlock(&gate->lock);
}

static int start(void **state) {
    struct loop *loop = NULL;

    assert_int_equal(loop_start(&loop), MC_OK);
    *state = loop;
    return 0;
}

static int stop(void **state) {
    assert_null(loop_stop(*state));
    return 0;
}

/* ---- Tasks ---- */

struct job {
    struct loop_task task;
    struct loop *loop;
    struct gate gate;  /* steps with each run */
    struct gate *hold; /* waits for its first step, if set */
    int again;         /* posts itself so often */
    atomic_int runs;
    int on_thread;
};

static void job_run(struct loop_task *task) {
    struct job *job = (struct job *)task;

    job->on_thread = loop_on_thread(job->loop);
    atomic_fetch_add(&job->runs, 1);
    gate_step(&job->gate);
    if (job->hold != NULL)
        gate_await(job->hold, 1);
    if (job->again > 0) {
        job->again--;
        loop_post(job->loop, task);
    }
}

static void job_init(struct job *job, struct loop *loop) {
    memset(job, 0, sizeof(*job));
    job->task.run = job_run;
    job->loop = loop;
    gate_init(&job->gate);
}

/* Returns when the loop has done all that was due or posted before. */
static void flush(struct loop *loop) {
    struct job job;

    for (int round = 0; round < 2; round++) {
        job_init(&job, loop);
        loop_post(loop, &job.task);
        gate_await(&job.gate, 1);
        loop_unpost_sync(loop, &job.task);
        gate_destroy(&job.gate);
    }
}

static void a_posted_task_runs_once_on_the_loops_thread(void **state) {
    struct job job;

    job_init(&job, *state);
    assert_false(loop_on_thread(*state));
    loop_post(*state, &job.task);
    flush(*state);
    assert_int_equal(atomic_load(&job.runs), 1);
    assert_true(job.on_thread);
    gate_destroy(&job.gate);
}

struct numbered {
    struct loop_task task;
    int number;
};

static int order[100];
static int order_count;

static void note_number(struct loop_task *task) {
    order[order_count++] = ((struct numbered *)task)->number;
}

static void tasks_run_in_the_order_of_posting(void **state) {
    struct numbered tasks[100];

    order_count = 0;
    for (int i = 0; i < 100; i++) {
        tasks[i] = (struct numbered){.task.run = note_number, .number = i};
        loop_post(*state, &tasks[i].task);
    }
    flush(*state);
    assert_int_equal(order_count, 100);
    for (int i = 0; i < 100; i++)
        assert_int_equal(order[i], i);
}

static void a_task_may_post_itself_again(void **state) {
    struct job job;

    job_init(&job, *state);
    job.again = 99;
    loop_post(*state, &job.task);
    gate_await(&job.gate, 100);
    loop_unpost_sync(*state, &job.task);
    assert_int_equal(atomic_load(&job.runs), 100);
    gate_destroy(&job.gate);
}

static void a_task_taken_back_never_runs_and_one_posted_twice_runs_once(void **state) {
    struct job blocker, taken, twice;
    struct gate hold;

    gate_init(&hold);
    job_init(&blocker, *state);
    job_init(&taken, *state);
    job_init(&twice, *state);
    blocker.hold = &hold;
    loop_post(*state, &blocker.task);
    gate_await(&blocker.gate, 1);
    loop_post(*state, &taken.task);
    loop_post(*state, &twice.task);
    loop_post(*state, &twice.task);
    loop_unpost_sync(*state, &taken.task);
    loop_unpost_sync(*state, &taken.task);
    gate_step(&hold);
    flush(*state);
    assert_int_equal(atomic_load(&taken.runs), 0);
    assert_int_equal(atomic_load(&twice.runs), 1);
    gate_destroy(&hold);
    gate_destroy(&blocker.gate);
    gate_destroy(&taken.gate);
    gate_destroy(&twice.gate);
}

struct freed {
    struct loop_task task;
    struct gate *gate;
};

static void free_itself(struct loop_task *task) {
    struct gate *gate = ((struct freed *)task)->gate;

    free(task);
    gate_step(gate);
}

static void a_task_may_free_itself(void **state) {
    struct freed *freed = calloc(1, sizeof(*freed));
    struct gate gate;

    assert_non_null(freed);
    gate_init(&gate);
    freed->task.run = free_itself;
    freed->gate = &gate;
    loop_post(*state, &freed->task);
    gate_await(&gate, 1);
    flush(*state);
    gate_destroy(&gate);
}

/* What a thread does that ends something while its callback runs. */
struct ender {
    void (*end)(struct ender *ender);
    struct loop *loop;
    void *subject;
    struct gate begun;
    atomic_bool ended;
};

static void *run_ender(void *context) {
    struct ender *ender = context;

    gate_step(&ender->begun);
    ender->end(ender);
    atomic_store(&ender->ended, true);
    return NULL;
}

/* Ends `subject`, whose callback waits for `hold`, on another thread, which must not come back before the callback. */
static void assert_waits(struct loop *loop, void (*end)(struct ender *ender), void *subject, struct gate *hold) {
    struct ender ender = {.end = end, .loop = loop, .subject = subject};
    struct timespec moment = {.tv_nsec = 5000000};
    pthread_t thread;

    gate_init(&ender.begun);
    assert_int_equal(thread_start(&thread, "ender", run_ender, &ender), 0);
    gate_await(&ender.begun, 1);
    (void)nanosleep(&moment, NULL); /* a chance to be wrong; being right doesn't depend on it */
    assert_false(atomic_load(&ender.ended));
    gate_step(hold);
    pthread_join(thread, NULL);
    gate_destroy(&ender.begun);
}

static void end_task(struct ender *ender) {
    struct job *job = ender->subject;

    loop_unpost_sync(ender->loop, &job->task);
    job->loop = NULL; /* a race, unless the callback has ended */
}

static void unpost_waits_for_a_running_task_and_the_one_it_posts(void **state) {
    struct gate hold;
    struct job job;

    gate_init(&hold);
    job_init(&job, *state);
    job.hold = &hold;
    job.again = 1;
    loop_post(*state, &job.task);
    gate_await(&job.gate, 1);
    assert_waits(*state, end_task, &job, &hold);
    flush(*state);
    assert_in_range(atomic_load(&job.runs), 1, 2);
    gate_destroy(&hold);
    gate_destroy(&job.gate);
}

/* ---- Watches ---- */

struct source {
    struct loop_watch watch;
    struct loop *loop;
    struct gate gate;          /* steps with each call */
    struct gate *hold;         /* waits for its first step, if set */
    struct source *victims[8]; /* removed in the callback */
    int victim_count;
    atomic_int calls;
    uint32_t events;
    bool drain;
};

static void source_ready(struct loop_watch *watch, uint32_t events) {
    struct source *source = (struct source *)watch;
    uint64_t value;

    atomic_fetch_add(&source->calls, 1);
    source->events = events;
    if (source->drain && read(watch->fd, &value, sizeof(value)) < 0)
        abort();
    for (int i = 0; i < source->victim_count; i++)
        loop_remove(source->loop, &source->victims[i]->watch);
    gate_step(&source->gate);
    if (source->hold != NULL)
        gate_await(source->hold, 1);
}

static void source_init(struct source *source, struct loop *loop) {
    memset(source, 0, sizeof(*source));
    source->watch.ready = source_ready;
    source->watch.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(source->watch.fd >= 0);
    source->loop = loop;
    source->drain = true;
    gate_init(&source->gate);
}

static void source_drop(struct source *source) {
    loop_remove_sync(source->loop, &source->watch);
    (void)close(source->watch.fd);
    gate_destroy(&source->gate);
}

static void trigger(struct source *source) {
    uint64_t one = 1;

    assert_int_equal(write(source->watch.fd, &one, sizeof(one)), sizeof(one));
}

static void a_ready_descriptor_calls_its_watch(void **state) {
    struct source source;

    source_init(&source, *state);
    assert_int_equal(loop_add(*state, &source.watch, EPOLLIN), MC_OK);
    for (int i = 1; i <= 100; i++) {
        trigger(&source);
        gate_await(&source.gate, i);
    }
    loop_remove_sync(*state, &source.watch);
    assert_true((source.events & EPOLLIN) != 0);
    assert_int_equal(atomic_load(&source.calls), 100);
    source_drop(&source);
}

static void watching_for_nothing_and_changing_takes_effect(void **state) {
    struct source source;

    source_init(&source, *state);
    assert_int_equal(loop_add(*state, &source.watch, 0), MC_OK);
    trigger(&source);
    flush(*state);
    assert_int_equal(atomic_load(&source.calls), 0);
    loop_change(*state, &source.watch, EPOLLIN);
    gate_await(&source.gate, 1);
    loop_change(*state, &source.watch, 0);
    trigger(&source);
    flush(*state);
    assert_int_equal(atomic_load(&source.calls), 1);
    source_drop(&source);
}

static void a_hang_up_is_reported_unasked(void **state) {
    struct source source;
    int ends[2];

    source_init(&source, *state);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    (void)close(source.watch.fd);
    source.watch.fd = ends[0];
    source.drain = false;
    source.victims[source.victim_count++] = &source;
    assert_int_equal(loop_add(*state, &source.watch, 0), MC_OK);
    (void)close(ends[1]);
    gate_await(&source.gate, 1);
    loop_remove_sync(*state, &source.watch);
    assert_true((source.events & EPOLLHUP) != 0);
    source_drop(&source);
}

static void a_watch_may_remove_itself_in_its_callback(void **state) {
    struct source source;

    source_init(&source, *state);
    source.drain = false; /* so that it stays readable */
    source.victims[source.victim_count++] = &source;
    assert_int_equal(loop_add(*state, &source.watch, EPOLLIN), MC_OK);
    trigger(&source);
    gate_await(&source.gate, 1);
    flush(*state);
    assert_int_equal(atomic_load(&source.calls), 1);
    assert_int_equal(loop_add(*state, &source.watch, EPOLLIN), MC_OK);
    gate_await(&source.gate, 2);
    source_drop(&source);
}

static void a_watch_removed_by_another_of_the_same_round_is_not_called(void **state) {
    enum { SOURCES = 8 };
    struct source sources[SOURCES];
    struct gate hold;
    struct job blocker;
    int calls = 0;

    gate_init(&hold);
    job_init(&blocker, *state);
    blocker.hold = &hold;
    for (int i = 0; i < SOURCES; i++) {
        source_init(&sources[i], *state);
        for (int k = 0; k < SOURCES; k++)
            sources[i].victims[sources[i].victim_count++] = &sources[k];
        assert_int_equal(loop_add(*state, &sources[i].watch, EPOLLIN), MC_OK);
    }
    /* While the loop is kept busy all become ready, so that epoll reports them at once. */
    loop_post(*state, &blocker.task);
    gate_await(&blocker.gate, 1);
    for (int i = 0; i < SOURCES; i++)
        trigger(&sources[i]);
    gate_step(&hold);
    flush(*state);
    for (int i = 0; i < SOURCES; i++)
        calls += atomic_load(&sources[i].calls);
    assert_int_equal(calls, 1);
    for (int i = 0; i < SOURCES; i++)
        source_drop(&sources[i]);
    gate_destroy(&hold);
    gate_destroy(&blocker.gate);
}

/* Removes its neighbour, closes the descriptor, and adds a new watch that gets the same descriptor and the same slot. */
struct replacer {
    struct loop_watch watch;
    struct loop *loop;
    struct replacer *other;
    struct source *fresh;
    atomic_int calls;
};

static void replace(struct loop_watch *watch, uint32_t events) {
    struct replacer *self = (struct replacer *)watch;

    (void)events;
    atomic_fetch_add(&self->calls, 1);
    loop_remove(self->loop, watch);
    loop_remove(self->loop, &self->other->watch);
    (void)close(self->other->watch.fd);
    self->fresh->watch.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->fresh->watch.fd != self->other->watch.fd)
        abort();
    if (loop_add(self->loop, &self->fresh->watch, EPOLLIN) != MC_OK)
        abort();
}

static void an_old_event_never_reaches_a_new_watch_of_the_same_descriptor(void **state) {
    struct replacer pair[2];
    struct source fresh;
    struct gate hold;
    struct job blocker;
    uint64_t one = 1;

    gate_init(&hold);
    job_init(&blocker, *state);
    blocker.hold = &hold;
    source_init(&fresh, *state);
    (void)close(fresh.watch.fd);
    for (int i = 0; i < 2; i++) {
        memset(&pair[i], 0, sizeof(pair[i]));
        pair[i].watch.ready = replace;
        pair[i].watch.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        pair[i].loop = *state;
        pair[i].other = &pair[1 - i];
        pair[i].fresh = &fresh;
        assert_int_equal(loop_add(*state, &pair[i].watch, EPOLLIN), MC_OK);
    }
    loop_post(*state, &blocker.task);
    gate_await(&blocker.gate, 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(write(pair[i].watch.fd, &one, sizeof(one)), sizeof(one));
    gate_step(&hold);
    flush(*state);
    assert_int_equal(atomic_load(&pair[0].calls) + atomic_load(&pair[1].calls), 1);
    assert_int_equal(atomic_load(&fresh.calls), 0);
    trigger(&fresh);
    gate_await(&fresh.gate, 1);
    (void)close(atomic_load(&pair[0].calls) == 1 ? pair[0].watch.fd : pair[1].watch.fd);
    source_drop(&fresh);
    gate_destroy(&hold);
    gate_destroy(&blocker.gate);
}

static void end_watch(struct ender *ender) {
    struct source *source = ender->subject;

    loop_remove_sync(ender->loop, &source->watch);
    source->events = 0; /* a race, unless the callback has ended */
}

static void remove_sync_waits_for_a_running_callback(void **state) {
    struct source source;
    struct gate hold;

    gate_init(&hold);
    source_init(&source, *state);
    source.hold = &hold;
    assert_int_equal(loop_add(*state, &source.watch, EPOLLIN), MC_OK);
    trigger(&source);
    gate_await(&source.gate, 1);
    assert_waits(*state, end_watch, &source, &hold);
    trigger(&source);
    flush(*state);
    assert_int_equal(atomic_load(&source.calls), 1);
    source_drop(&source);
    gate_destroy(&hold);
}

static void a_watch_is_added_once_removed_often_and_not_on_a_bad_descriptor(void **state) {
    struct source source;
    struct loop_watch bad = {.ready = source_ready, .fd = -1};

    source_init(&source, *state);
    loop_remove(*state, &source.watch);
    loop_change(*state, &source.watch, EPOLLIN);
    assert_int_equal(loop_add(*state, &source.watch, EPOLLIN), MC_OK);
    assert_int_equal(loop_add(*state, &source.watch, EPOLLIN), MC_ERR_SYSTEM);
    assert_int_equal(errno, EEXIST);
    loop_remove(*state, &source.watch);
    loop_remove(*state, &source.watch);
    assert_int_equal(loop_add(*state, &bad, EPOLLIN), MC_ERR_SYSTEM);
    assert_int_equal(errno, EBADF);
    loop_remove_sync(*state, &bad);
    source_drop(&source);
}

static void many_watches_each_find_their_own(void **state) {
    enum { SOURCES = 300 };
    struct source *sources = calloc(SOURCES, sizeof(*sources));

    assert_non_null(sources);
    for (int i = 0; i < SOURCES; i++) {
        source_init(&sources[i], *state);
        assert_int_equal(loop_add(*state, &sources[i].watch, EPOLLIN), MC_OK);
    }
    for (int i = 0; i < SOURCES; i += 3)
        loop_remove(*state, &sources[i].watch);
    for (int i = 0; i < SOURCES; i++)
        trigger(&sources[i]);
    for (int i = 0; i < SOURCES; i++)
        if (i % 3 != 0)
            gate_await(&sources[i].gate, 1);
    for (int i = 0; i < SOURCES; i++) {
        loop_remove_sync(*state, &sources[i].watch);
        assert_int_equal(atomic_load(&sources[i].calls), i % 3 != 0);
        source_drop(&sources[i]);
    }
    free(sources);
}

/* ---- Timers ---- */

struct alarm_clock {
    struct loop_timer timer;
    struct loop *loop;
    struct gate gate;
    struct gate *hold;
    uint64_t fired; /* the loop's time */
    int number;
    int again;
    atomic_int fires;
};

static void ring(struct loop_timer *timer, uint64_t now) {
    struct alarm_clock *alarm = (struct alarm_clock *)timer;

    alarm->fired = now;
    if (order_count < 100)
        order[order_count++] = alarm->number;
    atomic_fetch_add(&alarm->fires, 1);
    if (alarm->again > 0) {
        alarm->again--;
        loop_timer_set(alarm->loop, timer, 0);
    }
    gate_step(&alarm->gate);
    if (alarm->hold != NULL)
        gate_await(alarm->hold, 1);
}

static void alarm_init(struct alarm_clock *alarm, struct loop *loop, int number) {
    memset(alarm, 0, sizeof(*alarm));
    loop_timer_init(&alarm->timer, ring);
    alarm->loop = loop;
    alarm->number = number;
    gate_init(&alarm->gate);
}

static void alarm_drop(struct alarm_clock *alarm) {
    loop_timer_cancel_sync(alarm->loop, &alarm->timer);
    gate_destroy(&alarm->gate);
}

static void a_timer_fires_once_and_not_early(void **state) {
    uint64_t when = clock_after(clock_now(), 5 * CLOCK_MILLISECOND);
    struct alarm_clock alarm;

    alarm_init(&alarm, *state, 0);
    loop_timer_set(*state, &alarm.timer, when);
    gate_await(&alarm.gate, 1);
    flush(*state);
    assert_true(alarm.fired >= when);
    assert_int_equal(atomic_load(&alarm.fires), 1);
    alarm_drop(&alarm);
}

static void timers_fire_in_the_order_of_their_times(void **state) {
    static const int offsets[] = {5, 1, 3, 3, 9, 0, 7, 2, 8, 4};
    static const int expected[] = {5, 1, 7, 2, 3, 9, 0, 6, 8, 4};
    struct alarm_clock alarms[10];
    struct job blocker;
    struct gate hold;
    uint64_t base;

    gate_init(&hold);
    job_init(&blocker, *state);
    blocker.hold = &hold;
    loop_post(*state, &blocker.task);
    gate_await(&blocker.gate, 1);
    base = clock_now();
    order_count = 0;
    for (int i = 0; i < 10; i++) {
        alarm_init(&alarms[i], *state, i);
        loop_timer_set(*state, &alarms[i].timer, base + (uint64_t)offsets[i] * 1000);
    }
    gate_step(&hold);
    for (int i = 0; i < 10; i++)
        gate_await(&alarms[i].gate, 1);
    for (int i = 0; i < 10; i++) {
        alarm_drop(&alarms[i]);
        assert_int_equal(order[i], expected[i]);
    }
    gate_destroy(&hold);
    gate_destroy(&blocker.gate);
}

static void an_earlier_timer_wakes_a_loop_that_sleeps_for_a_later_one(void **state) {
    struct alarm_clock late, early;

    alarm_init(&late, *state, 0);
    alarm_init(&early, *state, 1);
    loop_timer_set(*state, &late.timer, clock_after(clock_now(), 3600 * CLOCK_SECOND));
    flush(*state);
    loop_timer_set(*state, &early.timer, clock_after(clock_now(), CLOCK_MILLISECOND));
    gate_await(&early.gate, 1);
    assert_int_equal(atomic_load(&late.fires), 0);
    alarm_drop(&early);
    alarm_drop(&late);
}

static void a_moved_timer_fires_at_its_new_time_and_a_cancelled_one_never(void **state) {
    struct alarm_clock moved, cancelled;

    alarm_init(&moved, *state, 0);
    alarm_init(&cancelled, *state, 1);
    loop_timer_set(*state, &moved.timer, clock_after(clock_now(), 3600 * CLOCK_SECOND));
    loop_timer_set(*state, &cancelled.timer, clock_after(clock_now(), 3600 * CLOCK_SECOND));
    loop_timer_cancel_sync(*state, &cancelled.timer);
    loop_timer_cancel_sync(*state, &cancelled.timer);
    loop_timer_set(*state, &moved.timer, 1);
    gate_await(&moved.gate, 1);
    loop_timer_set(*state, &moved.timer, 1);
    gate_await(&moved.gate, 2);
    loop_timer_set(*state, &moved.timer, clock_after(clock_now(), 3600 * CLOCK_SECOND));
    loop_timer_set(*state, &moved.timer, CLOCK_NEVER);
    flush(*state);
    assert_int_equal(atomic_load(&moved.fires), 2);
    assert_int_equal(atomic_load(&cancelled.fires), 0);
    alarm_drop(&moved);
    alarm_drop(&cancelled);
}

static void a_timer_that_is_always_due_lets_others_run(void **state) {
    struct alarm_clock alarm;

    alarm_init(&alarm, *state, 0);
    alarm.again = INT32_MAX;
    loop_timer_set(*state, &alarm.timer, 0);
    gate_await(&alarm.gate, 10);
    flush(*state);
    alarm_drop(&alarm);
    flush(*state);
    assert_true(atomic_load(&alarm.fires) >= 10);
}

static void end_timer(struct ender *ender) {
    struct alarm_clock *alarm = ender->subject;

    loop_timer_cancel_sync(ender->loop, &alarm->timer);
    alarm->fired = 0; /* a race, unless the callback has ended */
}

static void cancel_sync_waits_for_a_firing_timer(void **state) {
    struct alarm_clock alarm;
    struct gate hold;

    gate_init(&hold);
    alarm_init(&alarm, *state, 0);
    alarm.hold = &hold;
    alarm.again = 1;
    loop_timer_set(*state, &alarm.timer, 1);
    gate_await(&alarm.gate, 1);
    assert_waits(*state, end_timer, &alarm, &hold);
    flush(*state);
    assert_int_equal(atomic_load(&alarm.fires), 1);
    alarm_drop(&alarm);
    gate_destroy(&hold);
}

/* ---- The whole ---- */

static void nothing_is_called_after_stop(void **state) {
    struct alarm_clock alarm;
    struct job blocker, waiting;
    struct source source;
    struct loop *loop = NULL;

    (void)state;
    assert_null(loop_stop(NULL));
    assert_int_equal(loop_start(&loop), MC_OK);
    source_init(&source, loop);
    assert_int_equal(loop_add(loop, &source.watch, EPOLLIN), MC_OK);
    alarm_init(&alarm, loop, 0);
    job_init(&blocker, loop);
    job_init(&waiting, loop);
    blocker.again = INT32_MAX; /* stop comes between two of its runs */
    loop_post(loop, &blocker.task);
    gate_await(&blocker.gate, 1);
    loop_timer_set(loop, &alarm.timer, clock_after(clock_now(), 3600 * CLOCK_SECOND));
    assert_null(loop_stop(loop));
    int runs = atomic_load(&blocker.runs);
    trigger(&source);
    assert_int_equal(atomic_load(&blocker.runs), runs);
    assert_int_equal(atomic_load(&source.calls), 0);
    assert_int_equal(atomic_load(&alarm.fires), 0);
    (void)close(source.watch.fd);
    gate_destroy(&source.gate);
    gate_destroy(&alarm.gate);
    gate_destroy(&blocker.gate);
    gate_destroy(&waiting.gate);
}

struct stress {
    struct loop *loop;
    atomic_int wrong;
};

static void *add_and_remove(void *context) {
    struct stress *stress = context;

    for (int i = 0; i < 300; i++) {
        struct source source;
        struct alarm_clock alarm;
        struct job job;
        uint64_t one = 1;

        source_init(&source, stress->loop);
        alarm_init(&alarm, stress->loop, 0);
        job_init(&job, stress->loop);
        if (loop_add(stress->loop, &source.watch, EPOLLIN) != MC_OK ||
            write(source.watch.fd, &one, sizeof(one)) != sizeof(one))
            atomic_fetch_add(&stress->wrong, 1);
        loop_post(stress->loop, &job.task);
        loop_timer_set(stress->loop, &alarm.timer, clock_now());
        if (i % 2 == 0) {
            gate_await(&source.gate, 1);
            gate_await(&job.gate, 1);
            gate_await(&alarm.gate, 1);
        }
        loop_unpost_sync(stress->loop, &job.task);
        alarm_drop(&alarm);
        source_drop(&source); /* the owner's memory goes away here, so that a late call would be seen */
        gate_destroy(&job.gate);
    }
    return NULL;
}

static void threads_that_add_and_remove_at_once_meet_no_late_call(void **state) {
    struct stress stress = {.loop = *state};
    pthread_t threads[4];

    for (int i = 0; i < 4; i++)
        assert_int_equal(thread_start(&threads[i], "stress", add_and_remove, &stress), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&stress.wrong), 0);
}

static int descriptors_up_to(int limit) {
    int count = 0;

    for (int fd = 0; fd < limit; fd++)
        count += fcntl(fd, F_GETFD) != -1;
    return count;
}

static void a_loops_descriptors_are_closed_in_a_child_and_by_stop(void **state) {
    int before = descriptors_up_to(256), status = 0;
    struct loop *loop = NULL;
    pid_t child;

    (void)state;
    assert_int_equal(loop_start(&loop), MC_OK);
    assert_true(descriptors_up_to(256) > before);
    child = fork();
    if (child == 0)
        _exit(descriptors_up_to(256) == before ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    (void)loop_stop(loop);
    assert_int_equal(descriptors_up_to(256), before);
}

static void a_loop_without_descriptors_for_it_fails_whole(void **state) {
    struct rlimit limit, none;
    struct loop *loop = NULL;
    int32_t status;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    status = loop_start(&loop);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(status, MC_ERR_SYSTEM);
    assert_null(loop);
}

#define WITH_LOOP(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_LOOP(a_posted_task_runs_once_on_the_loops_thread),
        WITH_LOOP(tasks_run_in_the_order_of_posting),
        WITH_LOOP(a_task_may_post_itself_again),
        WITH_LOOP(a_task_taken_back_never_runs_and_one_posted_twice_runs_once),
        WITH_LOOP(a_task_may_free_itself),
        WITH_LOOP(unpost_waits_for_a_running_task_and_the_one_it_posts),
        WITH_LOOP(a_ready_descriptor_calls_its_watch),
        WITH_LOOP(watching_for_nothing_and_changing_takes_effect),
        WITH_LOOP(a_hang_up_is_reported_unasked),
        WITH_LOOP(a_watch_may_remove_itself_in_its_callback),
        WITH_LOOP(a_watch_removed_by_another_of_the_same_round_is_not_called),
        WITH_LOOP(an_old_event_never_reaches_a_new_watch_of_the_same_descriptor),
        WITH_LOOP(remove_sync_waits_for_a_running_callback),
        WITH_LOOP(a_watch_is_added_once_removed_often_and_not_on_a_bad_descriptor),
        WITH_LOOP(many_watches_each_find_their_own),
        WITH_LOOP(a_timer_fires_once_and_not_early),
        WITH_LOOP(timers_fire_in_the_order_of_their_times),
        WITH_LOOP(an_earlier_timer_wakes_a_loop_that_sleeps_for_a_later_one),
        WITH_LOOP(a_moved_timer_fires_at_its_new_time_and_a_cancelled_one_never),
        WITH_LOOP(a_timer_that_is_always_due_lets_others_run),
        WITH_LOOP(cancel_sync_waits_for_a_firing_timer),
        WITH_LOOP(threads_that_add_and_remove_at_once_meet_no_late_call),
        cmocka_unit_test(nothing_is_called_after_stop),
        cmocka_unit_test(a_loops_descriptors_are_closed_in_a_child_and_by_stop),
        cmocka_unit_test(a_loop_without_descriptors_for_it_fails_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_loop_awake.c - a loop stays awake after an event for as long as it may, misses nothing when it goes to sleep, and
 * then makes no system calls. The linker's --wrap counts its calls of epoll_wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "base/clock.h"
#include "os/loop.h"

#define PATIENCE (20 * CLOCK_SECOND)
#define MANY 20

static _Atomic uint64_t waits; /* calls of epoll_wait that have begun */

int __real_epoll_wait(int fd, struct epoll_event *events, int count, int timeout);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int count, int timeout);

int __wrap_epoll_wait(int fd, struct epoll_event *events, int count, int timeout) {
    waits++;
    return __real_epoll_wait(fd, events, count, timeout);
}

/* A watch that is looked at, and what it has seen. */
struct thing {
    struct loop_watch watch;
    struct loop *loop;
    atomic_int events, looks, last_looks;
    atomic_int to_find;      /* looks that will find something */
    atomic_int to_find_last; /* those, but for the last time */
    atomic_int ends;         /* found something in the last look, and is gone */
    clockid_t clock;         /* of the loop's thread */
};

static void await(atomic_int *count, int least) {
    uint64_t end = clock_after(clock_now(), PATIENCE);

    while (*count < least) {
        assert_true(clock_now() < end);
        sched_yield();
    }
}

static void on_event(struct loop_watch *watch, uint32_t events) {
    struct thing *thing = list_entry(watch, struct thing, watch);
    uint64_t value;

    (void)events;
    if (read(watch->fd, &value, sizeof(value)) != sizeof(value) ||
        pthread_getcpuclockid(pthread_self(), &thing->clock) != 0)
        abort();
    thing->events++;
}

static bool take_one(atomic_int *count) {
    if (*count <= 0)
        return false;
    (*count)--;
    return true;
}

static bool on_look(struct loop_watch *watch, bool last) {
    struct thing *thing = list_entry(watch, struct thing, watch);

    if (last)
        thing->last_looks++;
    else
        thing->looks++;
    return take_one(last ? &thing->to_find_last : &thing->to_find);
}

static void thing_open(struct thing *thing, struct loop *loop, bool (*look)(struct loop_watch *watch, bool last)) {
    memset(thing, 0, sizeof(*thing));
    thing->loop = loop;
    thing->watch.ready = on_event;
    thing->watch.look = look;
    thing->watch.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(thing->watch.fd >= 0);
    assert_int_equal(loop_add(loop, &thing->watch, EPOLLIN), MC_OK);
}

static void thing_close(struct thing *thing) {
    loop_remove_sync(thing->loop, &thing->watch);
    close(thing->watch.fd);
}

static void poke(struct thing *thing) {
    uint64_t one = 1;

    assert_int_equal(write(thing->watch.fd, &one, sizeof(one)), sizeof(one));
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

static uint64_t processor_time(const struct thing *thing) {
    struct timespec used;

    assert_int_equal(clock_gettime(thing->clock, &used), 0);
    return (uint64_t)used.tv_sec * CLOCK_SECOND + (uint64_t)used.tv_nsec;
}

/* The loop's thread doesn't run at all for 30 ms, within the patience. */
static void assert_falls_asleep(const struct thing *thing) {
    static const struct timespec pause = {.tv_nsec = 30000000};
    uint64_t end = clock_after(clock_now(), PATIENCE), before, calls;

    do {
        assert_true(clock_now() < end);
        before = processor_time(thing);
        calls = waits;
        nanosleep(&pause, NULL);
    } while (processor_time(thing) != before || waits != calls);
}

/* ---- Looking ---- */

static void a_watch_is_looked_at_after_its_event_until_the_last_time(void **state) {
    struct thing thing;

    thing_open(&thing, *state, on_look);
    poke(&thing);
    await(&thing.last_looks, 1);
    assert_falls_asleep(&thing);
    assert_int_equal(thing.last_looks, 1);
    assert_int_equal(thing.events, 1);
    poke(&thing);
    await(&thing.last_looks, 2);
    thing_close(&thing);
}

static void what_the_last_look_finds_is_not_the_last_look(void **state) {
    struct thing thing;

    thing_open(&thing, *state, on_look);
    thing.to_find_last = 5;
    poke(&thing);
    await(&thing.last_looks, 6);
    assert_falls_asleep(&thing);
    assert_int_equal(thing.last_looks, 6);
    assert_int_equal(thing.to_find_last, 0);
    thing_close(&thing);
}

static void what_a_look_finds_keeps_the_watch_looked_at(void **state) {
    struct thing thing;

    if (loop_spin_time(*state) == 0) {
        print_message("one processor: nothing is looked at\n");
        skip();
    }
    thing_open(&thing, *state, on_look);
    thing.to_find = 1000;
    poke(&thing);
    await(&thing.last_looks, 1);
    assert_true(thing.looks > 0);
    assert_falls_asleep(&thing);
    thing_close(&thing);
}

static void who_looked_in_vain_does_not_look_the_next_times(void **state) {
    struct thing thing;

    thing_open(&thing, *state, on_look);
    for (int i = 1; i <= 10; i++) {
        poke(&thing);
        await(&thing.last_looks, i);
        if (i == 1)
            thing.looks = 0;
    }
    assert_int_equal(thing.looks, 0);
    thing_close(&thing);
}

static bool end_at_the_last_look(struct loop_watch *watch, bool last) {
    struct thing *thing = list_entry(watch, struct thing, watch);

    if (!last)
        return false;
    loop_remove(thing->loop, watch);
    close(watch->fd);
    thing->ends++; /* after which the test frees it */
    return true;
}

static void a_watch_may_end_in_a_look(void **state) {
    for (int i = 0; i < 20; i++) {
        struct thing *thing = malloc(sizeof(*thing));

        assert_non_null(thing);
        thing_open(thing, *state, end_at_the_last_look);
        poke(thing);
        await(&thing->ends, 1);
        free(thing);
    }
}

static void a_removed_watch_is_not_looked_at(void **state) {
    static const struct timespec pause = {.tv_nsec = 1000000};

    loop_set_busy_poll(*state, CLOCK_SECOND);
    for (int i = 0; i < 20; i++) {
        struct thing thing;
        int looks;

        thing_open(&thing, *state, on_look);
        poke(&thing);
        await(&thing.looks, 10);
        thing_close(&thing);
        looks = thing.looks;
        nanosleep(&pause, NULL);
        assert_int_equal(thing.looks, looks);
    }
}

static void of_many_watches_each_has_its_last_look(void **state) {
    static struct thing things[MANY];

    for (int i = 0; i < MANY; i++)
        thing_open(&things[i], *state, on_look);
    for (int round = 1; round <= 5; round++) {
        for (int i = 0; i < MANY; i++)
            poke(&things[i]);
        for (int i = 0; i < MANY; i++)
            await(&things[i].last_looks, round);
    }
    assert_falls_asleep(&things[0]);
    for (int i = 0; i < MANY; i++)
        thing_close(&things[i]);
}

/* ---- Busy polling ---- */

static void a_loop_without_busy_polling_waits_once_for_each_event(void **state) {
    struct thing thing;
    uint64_t before;

    thing_open(&thing, *state, NULL);
    poke(&thing);
    await(&thing.events, 1);
    assert_falls_asleep(&thing);
    before = waits;
    for (int i = 0; i < 20; i++) {
        poke(&thing);
        await(&thing.events, i + 2);
        assert_falls_asleep(&thing);
    }
    assert_int_equal(waits - before, 20);
    thing_close(&thing);
}

static void a_loop_that_polls_stays_awake_and_then_sleeps(void **state) {
    struct thing thing;
    uint64_t before;

    loop_set_busy_poll(*state, 500 * CLOCK_MILLISECOND);
    thing_open(&thing, *state, NULL);
    before = waits;
    poke(&thing);
    await(&thing.events, 1);
    for (uint64_t end = clock_after(clock_now(), PATIENCE); waits < before + 10;)
        assert_true(clock_now() < end);
    assert_falls_asleep(&thing);
    thing_close(&thing);
}

struct job {
    struct loop_task task;
    struct loop_timer timer;
    atomic_int runs, fires;
};

static void run_job(struct loop_task *task) {
    list_entry(task, struct job, task)->runs++;
}

static void fire_job(struct loop_timer *timer, uint64_t now) {
    (void)now;
    list_entry(timer, struct job, timer)->fires++;
}

static void tasks_timers_and_descriptors_have_their_turn_while_a_watch_is_looked_at(void **state) {
    struct job job = {.task.run = run_job};
    struct thing looked_at, other;

    loop_set_busy_poll(*state, CLOCK_SECOND);
    loop_timer_init(&job.timer, fire_job);
    list_init(&job.task.node);
    thing_open(&looked_at, *state, on_look);
    thing_open(&other, *state, NULL);
    looked_at.to_find = INT32_MAX;
    poke(&looked_at);
    await(&looked_at.looks, 1);
    for (int i = 1; i <= 100; i++) {
        loop_post(*state, &job.task);
        loop_timer_set(*state, &job.timer, clock_now());
        poke(&other);
        await(&job.runs, i);
        await(&job.fires, i);
        await(&other.events, i);
    }
    looked_at.to_find = 0;
    thing_close(&looked_at);
    thing_close(&other);
    loop_unpost_sync(*state, &job.task);
    loop_timer_cancel_sync(*state, &job.timer);
}

#define WITH_LOOP(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_LOOP(a_watch_is_looked_at_after_its_event_until_the_last_time),
        WITH_LOOP(what_the_last_look_finds_is_not_the_last_look),
        WITH_LOOP(what_a_look_finds_keeps_the_watch_looked_at),
        WITH_LOOP(who_looked_in_vain_does_not_look_the_next_times),
        WITH_LOOP(a_watch_may_end_in_a_look),
        WITH_LOOP(a_removed_watch_is_not_looked_at),
        WITH_LOOP(of_many_watches_each_has_its_last_look),
        WITH_LOOP(a_loop_without_busy_polling_waits_once_for_each_event),
        WITH_LOOP(a_loop_that_polls_stays_awake_and_then_sleeps),
        WITH_LOOP(tasks_timers_and_descriptors_have_their_turn_while_a_watch_is_looked_at),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

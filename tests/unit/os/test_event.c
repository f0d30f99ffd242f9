/* test_event.c - who waits sees the event, and may destroy it at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "os/event.h"
#include "os/thread.h"

static void an_event_is_unset_until_it_is_set(void **state) {
    struct event event;

    (void)state;
    event_init(&event);
    assert_false(event_is_set(&event));
    assert_false(event_wait(&event, clock_now()));
    event_set(&event);
    assert_true(event_is_set(&event));
    event_set(&event);
    assert_true(event_wait(&event, 0)); /* a deadline that has passed doesn't hide it */
    assert_true(event_wait(&event, CLOCK_NEVER));
    event_destroy(&event);
}

static void waiting_gives_up_at_the_deadline(void **state) {
    struct event event;
    uint64_t deadline = clock_after(clock_now(), 20 * CLOCK_MILLISECOND);

    (void)state;
    event_init(&event);
    assert_false(event_wait(&event, deadline));
    assert_true(clock_now() >= deadline);
    event_destroy(&event);
}

static void *set(void *context) {
    event_set(context);
    return NULL;
}

struct crowd {
    struct event event;
    atomic_int waiting; /* or just about to */
};

static void *wait_for(void *context) {
    struct crowd *crowd = context;

    atomic_fetch_add(&crowd->waiting, 1);
    return event_wait(&crowd->event, clock_after(clock_now(), 20 * CLOCK_SECOND)) ? context : NULL;
}

static void all_who_wait_are_woken(void **state) {
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct crowd crowd;
        pthread_t threads[4];
        void *seen;

        event_init(&crowd.event);
        atomic_init(&crowd.waiting, 0);
        for (int i = 0; i < 4; i++)
            assert_int_equal(thread_start(&threads[i], "waiter", wait_for, &crowd), 0);
        while (atomic_load(&crowd.waiting) < 4)
            sched_yield();
        for (int i = 0; i < round; i++) /* from before they sleep to after */
            sched_yield();
        event_set(&crowd.event);
        for (int i = 0; i < 4; i++) {
            pthread_join(threads[i], &seen);
            assert_ptr_equal(seen, &crowd);
        }
        event_destroy(&crowd.event);
    }
}

/* The sanitizers see a setter that still touches it. */
static void who_has_seen_it_set_may_destroy_it(void **state) {
    (void)state;
    for (int i = 0; i < 300; i++) {
        struct event *event = malloc(sizeof(*event));
        pthread_t thread;

        assert_non_null(event);
        event_init(event);
        assert_int_equal(thread_start(&thread, "setter", set, event), 0);
        assert_true(event_wait(event, clock_after(clock_now(), 20 * CLOCK_SECOND)));
        event_destroy(event);
        free(event);
        pthread_join(thread, NULL);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_is_unset_until_it_is_set),
        cmocka_unit_test(waiting_gives_up_at_the_deadline),
        cmocka_unit_test(all_who_wait_are_woken),
        cmocka_unit_test(who_has_seen_it_set_may_destroy_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

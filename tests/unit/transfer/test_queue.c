/* test_queue.c - a queue loses no completion, gives each to one reaper, and is readable if and only if one waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "base/clock.h"
#include "os/thread.h"
#include "transfer/queue.h"

static int open_queue(void **state) {
    struct queue *queue = NULL;

    assert_int_equal(queue_new(&queue, NULL), MC_OK);
    assert_ptr_equal(queue_of(queue_object(queue)), queue);
    *state = queue;
    return 0;
}

static int drop_queue(void **state) {
    ref_drop(&queue_object(*state)->ref);
    return 0;
}

static void bind_and_push(struct queue *queue, struct queue_entry *entry, uint64_t batch) {
    list_init(&entry->node);
    entry->completion = (struct mc_completion){.batch = batch, .user_data = batch * 3, .failed = (uint32_t)batch};
    assert_int_equal(queue_bind(queue), MC_OK);
    queue_push(queue, entry);
}

static bool readable(struct queue *queue) {
    struct pollfd polled = {.fd = queue_fd(queue), .events = POLLIN};

    return poll(&polled, 1, 0) == 1;
}

static int64_t reap(struct queue *queue, struct mc_completion *completions, size_t capacity) {
    return queue_reap(queue, completions, capacity, sizeof(*completions), 0);
}

static void completions_come_oldest_first_in_groups(void **state) {
    struct queue *queue = *state;
    struct queue_entry entries[10];
    struct mc_completion taken[10];

    for (uint64_t i = 0; i < 10; i++)
        bind_and_push(queue, &entries[i], i);
    assert_int_equal(reap(queue, taken, 4), 4);
    assert_int_equal(reap(queue, taken + 4, 10), 6);
    for (uint64_t i = 0; i < 10; i++) {
        assert_int_equal(taken[i].batch, i);
        assert_int_equal(taken[i].user_data, i * 3);
        assert_int_equal(taken[i].failed, i);
        queue_unbind(queue, &entries[i]);
    }
    assert_int_equal(reap(queue, taken, 10), MC_ERR_PENDING);
}

static void the_descriptor_is_readable_while_a_completion_waits(void **state) {
    struct queue *queue = *state;
    struct queue_entry entries[3];
    struct mc_completion taken[3];

    assert_false(readable(queue));
    for (int round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < 3; i++)
            bind_and_push(queue, &entries[i], i);
        assert_true(readable(queue));
        assert_int_equal(reap(queue, taken, 2), 2);
        assert_true(readable(queue));
        assert_int_equal(reap(queue, taken, 2), 1);
        assert_false(readable(queue));
        for (int i = 0; i < 3; i++)
            queue_unbind(queue, &entries[i]);
        assert_false(readable(queue));
    }
}

static void a_batch_that_is_freed_before_it_is_reaped_leaves_the_queue(void **state) {
    struct queue *queue = *state;
    struct queue_entry one, two;
    struct mc_completion taken[2];

    bind_and_push(queue, &one, 1);
    bind_and_push(queue, &two, 2);
    queue_unbind(queue, &one);
    assert_true(readable(queue));
    assert_int_equal(reap(queue, taken, 2), 1);
    assert_int_equal(taken[0].batch, 2);
    queue_unbind(queue, &two);
    bind_and_push(queue, &one, 1);
    queue_unbind(queue, &one);
    assert_false(readable(queue));
    assert_int_equal(reap(queue, taken, 2), MC_ERR_PENDING);
}

static void completions_are_placed_by_stride_and_nothing_between_is_touched(void **state) {
    struct queue *queue = *state;
    struct queue_entry entries[3];
    struct {
        struct mc_completion completion;
        uint8_t more[24];
    } wide[3];

    memset(wide, 0xee, sizeof(wide));
    for (uint64_t i = 0; i < 3; i++)
        bind_and_push(queue, &entries[i], i + 5);
    assert_int_equal(queue_reap(queue, &wide[0].completion, 3, sizeof(wide[0]), 0), 3);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(wide[i].completion.batch, i + 5);
        for (int j = 0; j < 24; j++)
            assert_int_equal(wide[i].more[j], 0xee);
        queue_unbind(queue, &entries[i]);
    }
}

static void a_queue_with_batches_is_busy_and_a_closed_one_takes_none(void **state) {
    struct queue *queue = *state;
    struct queue_entry entry;
    struct mc_completion taken;

    bind_and_push(queue, &entry, 1);
    assert_int_equal(queue_close(queue), MC_ERR_BUSY);
    assert_int_equal(reap(queue, &taken, 1), 1);
    assert_int_equal(queue_close(queue), MC_ERR_BUSY);
    queue_unbind(queue, &entry);
    assert_int_equal(queue_close(queue), MC_OK);
    assert_int_equal(queue_bind(queue), MC_ERR_CLOSED);
    assert_int_equal(reap(queue, &taken, 1), MC_ERR_CLOSED);
}

static void a_bound_batch_keeps_its_queue(void **state) {
    struct queue *queue = *state;
    struct queue_entry entry;

    bind_and_push(queue, &entry, 1);
    ref_drop(&queue_object(queue)->ref);
    assert_true(readable(queue));
    ref_take(&queue_object(queue)->ref); /* for the teardown */
    queue_unbind(queue, &entry);
}

static void reaping_gives_up_at_its_deadline(void **state) {
    struct mc_completion taken;
    uint64_t deadline = clock_after(clock_now(), 20 * CLOCK_MILLISECOND);

    assert_int_equal(queue_reap(*state, &taken, 1, sizeof(taken), deadline), MC_ERR_PENDING);
    assert_true(clock_now() >= deadline);
}

static void *wait_for_one(void *context) {
    struct mc_completion taken;

    return (void *)(intptr_t)queue_reap(context, &taken, 1, sizeof(taken), CLOCK_NEVER);
}

static void closing_wakes_all_who_wait(void **state) {
    pthread_t threads[3];
    void *result;

    for (int i = 0; i < 3; i++)
        assert_int_equal(thread_start(&threads[i], "reaper", wait_for_one, *state), 0);
    assert_int_equal(queue_close(*state), MC_OK);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], &result);
        assert_int_equal((intptr_t)result, MC_ERR_CLOSED);
    }
}

#define PUSHED 6000

struct hammer {
    struct queue *queue;
    atomic_int left;
    atomic_uchar seen[PUSHED];
    struct queue_entry entries[PUSHED];
};

static void *reap_all(void *context) {
    struct hammer *hammer = context;

    while (hammer->left > 0) {
        struct mc_completion taken[7];
        int64_t count =
            queue_reap(hammer->queue, taken, 7, sizeof(taken[0]), clock_after(clock_now(), 5 * CLOCK_MILLISECOND));

        for (int64_t i = 0; i < count; i++) {
            hammer->seen[taken[i].batch]++;
            hammer->left--;
        }
    }
    return NULL;
}

struct part {
    struct hammer *hammer;
    uint64_t first;
};

static void *push_part(void *context) {
    struct part *part = context;

    for (uint64_t i = part->first; i < part->first + PUSHED / 3; i++)
        bind_and_push(part->hammer->queue, &part->hammer->entries[i], i);
    return NULL;
}

static void each_completion_goes_to_one_of_many_reapers(void **state) {
    static struct hammer hammer;
    struct part parts[3];
    pthread_t pushers[3], reapers[3];

    hammer.queue = *state;
    hammer.left = PUSHED;
    for (int i = 0; i < 3; i++) {
        parts[i] = (struct part){&hammer, (uint64_t)i * (PUSHED / 3)};
        assert_int_equal(thread_start(&reapers[i], "reaper", reap_all, &hammer), 0);
        assert_int_equal(thread_start(&pushers[i], "pusher", push_part, &parts[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(pushers[i], NULL);
        pthread_join(reapers[i], NULL);
    }
    for (int i = 0; i < PUSHED; i++) {
        assert_int_equal(hammer.seen[i], 1);
        queue_unbind(hammer.queue, &hammer.entries[i]);
    }
    assert_false(readable(hammer.queue));
}

#define test_of(function) cmocka_unit_test_setup_teardown(function, open_queue, drop_queue)

int main(void) {
    const struct CMUnitTest tests[] = {
        test_of(completions_come_oldest_first_in_groups),
        test_of(the_descriptor_is_readable_while_a_completion_waits),
        test_of(a_batch_that_is_freed_before_it_is_reaped_leaves_the_queue),
        test_of(completions_are_placed_by_stride_and_nothing_between_is_touched),
        test_of(a_queue_with_batches_is_busy_and_a_closed_one_takes_none),
        test_of(a_bound_batch_keeps_its_queue),
        test_of(reaping_gives_up_at_its_deadline),
        test_of(closing_wakes_all_who_wait),
        test_of(each_completion_goes_to_one_of_many_reapers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

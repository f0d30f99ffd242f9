/* test_races.c - several threads in one engine: one number for one name, one winner, and an end under running calls. */
#include "compat.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 4

struct crowd {
    const struct pair *pair;
    pthread_barrier_t start;
    uint64_t batch;
    int32_t segments[THREADS];
    atomic_int next;
    atomic_int good;
    atomic_int bad;
    atomic_bool stop;
};

static void run(struct crowd *crowd, void *(*work)(void *)) {
    pthread_t threads[THREADS];

    pthread_barrier_init(&crowd->start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, crowd), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    pthread_barrier_destroy(&crowd->start);
}

static void *open_one(void *context) {
    struct crowd *crowd = context;
    int mine = atomic_fetch_add(&crowd->next, 1);

    pthread_barrier_wait(&crowd->start);
    crowd->segments[mine] = (mine % 2 ? openSegmentNoCache : openSegment)(crowd->pair->here, crowd->pair->address);
    return NULL;
}

static void threads_that_open_one_name_get_one_number(void **state) {
    struct pair *pair = *state;

    for (int round = 0; round < 10; round++) {
        struct crowd crowd = {.pair = pair};

        assert_int_equal(closeSegment(pair->here, pair->segment), 0);
        run(&crowd, open_one);
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(crowd.segments[i], crowd.segments[0]);
        pair->segment = crowd.segments[0];
        for (int i = 1; i < THREADS; i++)
            assert_int_equal(closeSegment(pair->here, pair->segment), 0);
        assert_int_equal(moved(pair, request_at(pair, OPCODE_WRITE, 0, 64)), STATUS_COMPLETED);
    }
}

static void *free_it(void *context) {
    struct crowd *crowd = context;
    int result;

    pthread_barrier_wait(&crowd->start);
    result = freeBatchID(crowd->pair->here, crowd->batch);
    atomic_fetch_add(result == 0 ? &crowd->good : &crowd->bad, 1);
    return NULL;
}

static void of_threads_that_free_one_batch_one_does(void **state) {
    const struct pair *pair = *state;

    for (int round = 0; round < 50; round++) {
        struct crowd crowd = {.pair = pair, .batch = allocateBatchID(pair->here, 4)};

        run(&crowd, free_it);
        assert_int_equal(atomic_load(&crowd.good), 1);
        assert_int_equal(atomic_load(&crowd.bad), THREADS - 1);
    }
}

static void *submit_it(void *context) {
    struct crowd *crowd = context;
    size_t mine = (size_t)atomic_fetch_add(&crowd->next, 1);
    transfer_request_t request = request_at(crowd->pair, OPCODE_WRITE, mine * 4096, 4096);

    pthread_barrier_wait(&crowd->start);
    for (int i = 0; i < 16; i++) {
        int result = submitTransfer(crowd->pair->here, crowd->batch, &request, 1);

        atomic_fetch_add(result == 0 ? &crowd->good : &crowd->bad, result == 0 || result == 2 ? 1 : 1000);
    }
    return NULL;
}

static void threads_share_the_capacity_of_one_batch(void **state) {
    const struct pair *pair = *state;
    struct crowd crowd = {.pair = pair, .batch = allocateBatchID(pair->here, 40)};

    run(&crowd, submit_it);
    assert_int_equal(atomic_load(&crowd.good), 40);
    assert_int_equal(atomic_load(&crowd.bad), THREADS * 16 - 40);
    for (size_t i = 0; i < 40; i++)
        assert_int_equal(task_end(pair, crowd.batch, i, NULL), STATUS_COMPLETED);
    assert_int_equal(freeBatchID(pair->here, crowd.batch), 0);
}

static void *work_until_it_ends(void *context) {
    struct crowd *crowd = context;
    const struct pair *pair = crowd->pair;
    size_t mine = (size_t)atomic_fetch_add(&crowd->next, 1);
    transfer_request_t request = request_at(pair, OPCODE_WRITE, mine * 65536, 65536);

    pthread_barrier_wait(&crowd->start);
    while (!atomic_load(&crowd->stop)) {
        uint64_t batch = allocateBatchID(pair->here, 1);
        transfer_status_t status = {.status = STATUS_WAITING};
        notify_msg_t message = {.name = (char[]){"n"}, .msg = (char[]){"m"}};

        if (batch == INVALID_BATCH)
            break;
        if (submitTransfer(pair->here, batch, &request, 1) != 0)
            break;
        while (status.status == STATUS_WAITING && getTransferStatus(pair->here, batch, 0, &status) == 0)
            ;
        (void)freeBatchID(pair->here, batch);
        (void)genNotifyInEngine(pair->here, (uint64_t)pair->segment, message);
        (void)closeSegment(pair->here, openSegment(pair->here, pair->address));
        atomic_fetch_add(&crowd->good, 1);
    }
    return NULL;
}

static void an_engine_ends_under_calls_in_progress(void **state) {
    struct pair *pair = *state;
    struct crowd crowd = {.pair = pair};
    pthread_t threads[THREADS];
    transfer_engine_t engine = pair->here;

    pthread_barrier_init(&crowd.start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work_until_it_ends, &crowd), 0);
    while (atomic_load(&crowd.good) < 20)
        sched_yield();
    destroyTransferEngine(engine);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    pthread_barrier_destroy(&crowd.start);
    pair->here = NULL;
}

TESTS(race, PAIR_TEST(threads_that_open_one_name_get_one_number), PAIR_TEST(of_threads_that_free_one_batch_one_does),
      PAIR_TEST(threads_share_the_capacity_of_one_batch), PAIR_TEST(an_engine_ends_under_calls_in_progress));

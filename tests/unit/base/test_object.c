/* test_object.c - an id finds its object until it is withdrawn, and never again; and not in a child. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "base/object.h"

#define LIVE_MAX (1u << 20)

struct thing {
    struct object object;
    atomic_int destroyed;
};

static void thing_destroy(struct ref *self) {
    atomic_fetch_add(&((struct thing *)self)->destroyed, 1);
}

static void thing_init(struct thing *thing) {
    object_init(&thing->object, OBJECT_PEER, thing_destroy);
    atomic_init(&thing->destroyed, 0);
}

/* Takes the id away and drops the table's reference and the maker's. */
static void end(struct thing *thing, uint64_t id) {
    struct object *object = NULL;

    assert_int_equal(object_withdraw(id, OBJECT_PEER, &object), MC_OK);
    assert_ptr_equal(object, &thing->object);
    ref_drop(&object->ref);
    ref_drop(&thing->object.ref);
    assert_int_equal(atomic_load(&thing->destroyed), 1);
}

static void an_acquired_object_outlives_its_id(void **state) {
    struct object *object = NULL, *again = NULL;
    struct thing thing;
    uint64_t id = 0;

    (void)state;
    thing_init(&thing);
    assert_int_equal(object_publish(&thing.object, &id), MC_OK);
    ref_drop(&thing.object.ref);
    assert_int_equal(object_acquire(id, OBJECT_PEER, &object), MC_OK);
    assert_ptr_equal(object, &thing.object);
    assert_int_equal(object_withdraw(id, OBJECT_PEER, &again), MC_OK);
    ref_drop(&again->ref);
    assert_int_equal(atomic_load(&thing.destroyed), 0);
    ref_drop(&object->ref);
    assert_int_equal(atomic_load(&thing.destroyed), 1);
}

static void a_withdrawn_id_is_stale_for_ever(void **state) {
    enum { CYCLES = 100000 };
    uint64_t *ids = calloc(CYCLES, sizeof(*ids));
    struct object *object = NULL;
    struct thing thing;

    (void)state;
    assert_non_null(ids);
    for (size_t i = 0; i < CYCLES; i++) {
        thing_init(&thing);
        assert_int_equal(object_publish(&thing.object, &ids[i]), MC_OK);
        end(&thing, ids[i]);
    }
    thing_init(&thing);
    assert_int_equal(object_publish(&thing.object, &ids[0]), MC_OK);
    for (size_t i = 1; i < CYCLES; i++) {
        assert_int_equal(object_acquire(ids[i], OBJECT_PEER, &object), MC_ERR_INVALID_HANDLE);
        assert_int_equal(object_withdraw(ids[i], OBJECT_PEER, &object), MC_ERR_INVALID_HANDLE);
    }
    assert_null(object);
    end(&thing, ids[0]);
    free(ids);
}

static void invented_ids_find_nothing(void **state) {
    struct object *object = NULL;
    struct thing thing;
    uint64_t id = 0;

    (void)state;
    thing_init(&thing);
    assert_int_equal(object_publish(&thing.object, &id), MC_OK);
    const uint64_t invented[] = {0,
                                 1,
                                 UINT64_MAX,
                                 id + 1,
                                 id + LIVE_MAX,
                                 id ^ UINT64_C(1) << 31,
                                 id + (UINT64_C(1) << 32),
                                 id + (UINT64_C(2) << 32),
                                 id - (UINT64_C(1) << 32),
                                 (uint64_t)(uintptr_t)&thing};
    for (size_t i = 0; i < sizeof(invented) / sizeof(invented[0]); i++) {
        assert_int_equal(object_acquire(invented[i], OBJECT_PEER, &object), MC_ERR_INVALID_HANDLE);
        assert_int_equal(object_withdraw(invented[i], OBJECT_PEER, &object), MC_ERR_INVALID_HANDLE);
    }
    assert_null(object);
    end(&thing, id);
}

static void an_id_of_another_kind_is_invalid_and_stays_alive(void **state) {
    struct object *object = NULL;
    struct thing thing;
    uint64_t id = 0;

    (void)state;
    thing_init(&thing);
    assert_int_equal(object_publish(&thing.object, &id), MC_OK);
    assert_int_equal(object_acquire(id, OBJECT_BATCH, &object), MC_ERR_INVALID_HANDLE);
    assert_int_equal(object_withdraw(id, OBJECT_BATCH, &object), MC_ERR_INVALID_HANDLE);
    assert_null(object);
    end(&thing, id);
}

struct race {
    pthread_barrier_t barrier;
    uint64_t id;
    atomic_int winners;
};

static void *race_to_withdraw(void *context) {
    struct race *race = context;
    struct object *object = NULL;

    pthread_barrier_wait(&race->barrier);
    /* In between, an acquire gives a whole object or none. */
    if (object_acquire(race->id, OBJECT_PEER, &object) == MC_OK)
        ref_drop(&object->ref);
    if (object_withdraw(race->id, OBJECT_PEER, &object) == MC_OK) {
        atomic_fetch_add(&race->winners, 1);
        ref_drop(&object->ref);
    }
    return NULL;
}

static void of_racing_withdrawals_one_gets_the_object(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        pthread_t threads[2];
        struct thing thing;
        struct race race;

        thing_init(&thing);
        assert_int_equal(object_publish(&thing.object, &race.id), MC_OK);
        ref_drop(&thing.object.ref);
        atomic_init(&race.winners, 0);
        pthread_barrier_init(&race.barrier, NULL, 2);
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, race_to_withdraw, &race), 0);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&race.barrier);
        assert_int_equal(atomic_load(&race.winners), 1);
        assert_int_equal(atomic_load(&thing.destroyed), 1);
    }
}

static void *publish_and_withdraw(void *context) {
    atomic_int *wrong = context;

    for (int i = 0; i < 2000; i++) {
        struct object *object = NULL;
        struct thing thing;
        uint64_t id = 0;

        thing_init(&thing);
        if (object_publish(&thing.object, &id) != MC_OK || object_acquire(id, OBJECT_PEER, &object) != MC_OK ||
            object != &thing.object || object_withdraw(id, OBJECT_PEER, &object) != MC_OK || object != &thing.object)
            atomic_fetch_add(wrong, 1);
    }
    return NULL;
}

static void threads_that_share_the_table_find_their_own_objects(void **state) {
    pthread_t threads[4];
    atomic_int wrong = 0;

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, publish_and_withdraw, &wrong), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&wrong), 0);
}

static void the_table_holds_two_to_the_twenty_objects_and_refuses_the_next(void **state) {
    uint64_t *ids = calloc(LIVE_MAX, sizeof(*ids));
    struct object *object = NULL;
    struct thing thing;
    uint64_t untouched = 42;

    (void)state;
    assert_non_null(ids);
    thing_init(&thing);
    for (size_t i = 0; i < LIVE_MAX; i++)
        if (object_publish(&thing.object, &ids[i]) != MC_OK)
            fail();
    assert_int_equal(object_publish(&thing.object, &untouched), MC_ERR_TOO_MANY);
    assert_int_equal(untouched, 42);
    assert_int_equal(atomic_load(&thing.object.ref.count), LIVE_MAX + 1);
    for (size_t i = 0; i < LIVE_MAX; i++) {
        if (object_withdraw(ids[i], OBJECT_PEER, &object) != MC_OK)
            fail();
        ref_drop(&object->ref);
    }
    assert_int_equal(object_publish(&thing.object, &ids[0]), MC_OK);
    end(&thing, ids[0]);
    free(ids);
}

/* 0, or the line that failed. */
static int check_in_child(uint64_t live, uint64_t stale, uint32_t process) {
    struct object *object = NULL;
    struct thing thing;
    uint64_t id = 0;

    if (object_process() != process + 1)
        return __LINE__;
    if (object_acquire(live, OBJECT_PEER, &object) != MC_ERR_FORKED)
        return __LINE__;
    if (object_withdraw(live, OBJECT_PEER, &object) != MC_ERR_FORKED)
        return __LINE__;
    if (object_acquire(live, OBJECT_BATCH, &object) != MC_ERR_INVALID_HANDLE)
        return __LINE__;
    if (object_acquire(stale, OBJECT_PEER, &object) != MC_ERR_INVALID_HANDLE || object != NULL)
        return __LINE__;
    thing_init(&thing);
    if (object_publish(&thing.object, &id) != MC_OK || object_acquire(id, OBJECT_PEER, &object) != MC_OK)
        return __LINE__;
    if (object != &thing.object || object_withdraw(id, OBJECT_PEER, &object) != MC_OK)
        return __LINE__;
    return 0;
}

static void a_childs_old_ids_are_forked_and_its_new_ones_work(void **state) {
    struct thing thing, gone;
    uint64_t id = 0, stale = 0;
    uint32_t process = object_process();
    int status = 0;
    pid_t child;

    (void)state;
    thing_init(&gone);
    assert_int_equal(object_publish(&gone.object, &stale), MC_OK);
    end(&gone, stale);
    thing_init(&thing);
    assert_int_equal(object_publish(&thing.object, &id), MC_OK);
    child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(check_in_child(id, stale, process) == 0 ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(object_process(), process);
    end(&thing, id);
}

static atomic_bool stop_hammering;

static void *hammer(void *context) {
    struct object *object = NULL;

    while (!atomic_load(&stop_hammering))
        (void)object_acquire(*(uint64_t *)context, OBJECT_BATCH, &object);
    return NULL;
}

static void the_table_is_free_in_a_child_of_a_busy_parent(void **state) {
    pthread_t threads[2];
    struct thing thing;
    uint64_t id = 0;
    uint32_t process = object_process();

    (void)state;
    thing_init(&thing);
    assert_int_equal(object_publish(&thing.object, &id), MC_OK);
    atomic_store(&stop_hammering, false);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, &id), 0);
    for (int i = 0; i < 50; i++) {
        int status = 0;
        pid_t child = fork();

        if (child == 0) {
            (void)alarm(10);
            _exit(check_in_child(id, 0, process) == 0 ? 0 : 1);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    atomic_store(&stop_hammering, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    end(&thing, id);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_acquired_object_outlives_its_id),
        cmocka_unit_test(a_withdrawn_id_is_stale_for_ever),
        cmocka_unit_test(invented_ids_find_nothing),
        cmocka_unit_test(an_id_of_another_kind_is_invalid_and_stays_alive),
        cmocka_unit_test(of_racing_withdrawals_one_gets_the_object),
        cmocka_unit_test(threads_that_share_the_table_find_their_own_objects),
        cmocka_unit_test(the_table_holds_two_to_the_twenty_objects_and_refuses_the_next),
        cmocka_unit_test(a_childs_old_ids_are_forked_and_its_new_ones_work),
        cmocka_unit_test(the_table_is_free_in_a_child_of_a_busy_parent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

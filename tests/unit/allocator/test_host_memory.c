/* test_host_memory.c - allocated memory is found by its addresses, and stays while somebody holds it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "allocator/host_memory.h"
#include "os/memfd.h"
#include "os/thread.h"

static uint64_t alloc(uint64_t size, uint64_t *ret_address) {
    uint64_t id = 0;
    void *address = NULL;

    assert_int_equal(host_memory_alloc(size, &id, &address, NULL), MC_OK);
    assert_true(id != 0);
    *ret_address = (uint64_t)(uintptr_t)address;
    return id;
}

static void memory_is_zero_writable_and_found_by_any_range_in_it(void **state) {
    uint64_t address, size = 3 * memfd_page_size();
    uint64_t id = alloc(size - 100, &address); /* whole pages all the same */
    struct host_memory *memory;

    (void)state;
    for (size_t i = 0; i < size - 100; i++)
        assert_int_equal(((uint8_t *)(uintptr_t)address)[i], 0);
    memset((void *)(uintptr_t)address, 0xab, size - 100);
    memory = host_memory_hold(address + 10, 20);
    assert_non_null(memory);
    assert_int_equal(host_memory_base(memory), address);
    assert_int_equal(host_memory_size(memory), size);
    host_memory_release(memory);
    assert_ptr_equal(host_memory_hold(address, size), memory);
    host_memory_release(memory);
    assert_null(host_memory_hold(address - 1, 2));
    assert_null(host_memory_hold(address, size + 1));
    assert_null(host_memory_hold(address + size - 1, 2));
    assert_null(host_memory_hold(address + 1, UINT64_MAX));
    assert_null(host_memory_hold(address + 1, UINT64_MAX - address));
    assert_int_equal(host_memory_free(id), MC_OK);
    assert_null(host_memory_hold(address, 1));
}

static void its_descriptor_is_the_same_memory_and_sealed(void **state) {
    uint64_t address, id = alloc(100, &address);
    struct host_memory *memory = host_memory_hold(address, 100);
    void *again;

    (void)state;
    assert_non_null(memory);
    assert_int_equal(ftruncate(host_memory_fd(memory), 0), -1);
    assert_int_equal(memfd_map(host_memory_fd(memory), 0, host_memory_size(memory), false, &again), 0);
    strcpy((char *)(uintptr_t)address, "seen by both");
    assert_string_equal((char *)again, "seen by both");
    memfd_unmap(again, host_memory_size(memory));
    host_memory_release(memory);
    assert_int_equal(host_memory_free(id), MC_OK);
}

static void held_memory_is_busy_until_the_last_hold_ends(void **state) {
    uint64_t address, id = alloc(100, &address);
    struct host_memory *memory = host_memory_hold(address, 1);

    (void)state;
    assert_ptr_equal(host_memory_hold(address, 1), memory);
    assert_int_equal(host_memory_free(id), MC_ERR_BUSY);
    host_memory_release(memory);
    assert_int_equal(host_memory_free(id), MC_ERR_BUSY);
    host_memory_release(memory);
    host_memory_release(NULL);
    assert_int_equal(host_memory_free(id), MC_OK);
}

static void a_freed_id_is_stale(void **state) {
    uint64_t address, id = alloc(100, &address);

    (void)state;
    assert_int_equal(host_memory_free(id), MC_OK);
    assert_int_equal(host_memory_free(id), MC_ERR_INVALID_HANDLE);
    assert_int_equal(host_memory_free(0), MC_ERR_INVALID_HANDLE);
    assert_int_equal(host_memory_free(UINT64_MAX), MC_ERR_INVALID_HANDLE);
}

static void sizes_that_cannot_be_are_refused_and_outputs_untouched(void **state) {
    static const uint64_t sizes[] = {0, UINT64_MAX, UINT64_MAX - 4095, (uint64_t)1 << 62};
    uint64_t id = 77;
    void *address = &id;

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct mc_error error = MC_ERROR_INIT;
        int32_t status = host_memory_alloc(sizes[i], &id, &address, &error);

        assert_int_equal(status, i == 0 ? MC_ERR_INVALID_ARGUMENT : MC_ERR_NO_MEMORY);
        assert_int_equal(error.code, status);
        assert_true(strlen(error.message) > 0);
        assert_int_equal(id, 77);
        assert_ptr_equal(address, &id);
    }
}

static void *free_it(void *context) {
    return (void *)(intptr_t)host_memory_free(*(uint64_t *)context);
}

static void of_racing_frees_one_frees(void **state) {
    (void)state;
    for (int round = 0; round < 50; round++) {
        uint64_t address, id = alloc(100, &address);
        pthread_t threads[3];
        int freed = 0;

        for (int i = 0; i < 3; i++)
            assert_int_equal(thread_start(&threads[i], "free", free_it, &id), 0);
        for (int i = 0; i < 3; i++) {
            void *status;

            pthread_join(threads[i], &status);
            freed += (intptr_t)status == MC_OK;
            assert_true((intptr_t)status == MC_OK || (intptr_t)status == MC_ERR_INVALID_HANDLE);
        }
        assert_int_equal(freed, 1);
    }
}

static void *alloc_and_hold(void *context) {
    (void)context;
    for (int i = 0; i < 200; i++) {
        uint64_t id;
        void *address;
        struct host_memory *memory;

        if (host_memory_alloc(5000, &id, &address, NULL) != MC_OK)
            abort();
        memory = host_memory_hold((uint64_t)(uintptr_t)address, 5000);
        if (memory == NULL || host_memory_free(id) != MC_ERR_BUSY)
            abort();
        host_memory_release(memory);
        if (host_memory_free(id) != MC_OK)
            abort();
    }
    return NULL;
}

static void threads_find_their_own_memory(void **state) {
    pthread_t threads[3];

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(thread_start(&threads[i], "alloc", alloc_and_hold, NULL), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zero_writable_and_found_by_any_range_in_it),
        cmocka_unit_test(its_descriptor_is_the_same_memory_and_sealed),
        cmocka_unit_test(held_memory_is_busy_until_the_last_hold_ends),
        cmocka_unit_test(a_freed_id_is_stale),
        cmocka_unit_test(sizes_that_cannot_be_are_refused_and_outputs_untouched),
        cmocka_unit_test(of_racing_frees_one_frees),
        cmocka_unit_test(threads_find_their_own_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

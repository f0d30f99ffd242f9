/* test_host_memory.c - allocated memory is found by its addresses, and stays while somebody holds it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

static void each_of_many_memories_is_found(void **state) {
    static uint64_t ids[300], addresses[300];
    uint64_t page = memfd_page_size();

    (void)state;
    for (size_t i = 0; i < 300; i++)
        ids[i] = alloc((1 + i % 3) * page, &addresses[i]);
    for (size_t i = 0; i < 300; i += 2)
        assert_int_equal(host_memory_free(ids[i]), MC_OK);
    for (size_t i = 0; i < 300; i++) {
        struct host_memory *memory = host_memory_hold(addresses[i], (1 + i % 3) * page);

        if (i % 2 == 0) {
            assert_null(memory);
            continue;
        }
        assert_non_null(memory);
        assert_int_equal(host_memory_base(memory), addresses[i]);
        assert_null(host_memory_hold(addresses[i], (1 + i % 3) * page + 1));
        assert_int_equal(host_memory_free(ids[i]), MC_ERR_BUSY);
        host_memory_release(memory);
    }
    for (size_t i = 1; i < 300; i += 2)
        assert_int_equal(host_memory_free(ids[i]), MC_OK);
}

/* ---- Pages of a kind ---- */

static void memory_on_a_node_is_there(void **state) {
    struct memfd_kind kind = {.bound = true, .node = 0};
    struct mc_error error = MC_ERROR_INIT;
    uint64_t id, size = 64 * memfd_page_size();
    void *address;
    int32_t status = host_memory_alloc_of(&kind, size, &id, &address, &error);

    (void)state;
    if (status == MC_ERR_NOT_SUPPORTED) {
        printf("# %s\n", error.message);
        skip();
    }
    assert_int_equal(status, MC_OK);
    for (uint64_t at = 0; at < size; at += memfd_page_size()) {
        int node = -1;

        assert_int_equal(syscall(SYS_get_mempolicy, &node, NULL, 0ul, (char *)address + at, MPOL_F_NODE | MPOL_F_ADDR),
                         0);
        assert_int_equal(node, 0);
    }
    assert_int_equal(host_memory_free(id), MC_OK);
}

static void a_node_that_is_not_there_is_refused(void **state) {
    static const uint32_t nodes[] = {63, 1023, 1024, UINT32_MAX};
    bool has_huge = memfd_huge_page_size() != 0;

    (void)state;
    for (size_t i = 0; i < 4 * sizeof(nodes) / sizeof(nodes[0]); i++) {
        struct memfd_kind kind = {.bound = true, .node = nodes[i / 4], .huge = i % 2 == 1 && has_huge};
        struct mc_error error = MC_ERROR_INIT;
        uint64_t id = 77, size = i / 2 % 2 == 0 ? 4096 : (uint64_t)1 << 50; /* also more than there is of any pages */
        void *address = &id;
        int32_t status = host_memory_alloc_of(&kind, size, &id, &address, &error);

        if (status == MC_ERR_NOT_SUPPORTED) {
            printf("# %s\n", error.message);
            skip();
        }
        assert_int_equal(status, MC_ERR_INVALID_ARGUMENT);
        assert_int_equal(error.code, status);
        assert_non_null(strstr(error.message, "NUMA"));
        assert_int_equal(id, 77);
        assert_ptr_equal(address, &id);
    }
}

static void more_huge_pages_than_there_are_is_an_error_with_words(void **state) {
    struct memfd_kind kind = {.huge = true};
    struct mc_error error = MC_ERROR_INIT;
    uint64_t id = 77, size = (memfd_huge_pages_free() + 100000) * memfd_huge_page_size();
    void *address = &id;
    int32_t status;

    (void)state;
    if (memfd_huge_page_size() == 0) {
        printf("# this system has no huge pages\n");
        skip();
    }
    status = host_memory_alloc_of(&kind, size, &id, &address, &error);
    if (status == MC_ERR_NOT_SUPPORTED) {
        printf("# %s\n", error.message);
        skip();
    }
    assert_int_equal(status, MC_ERR_NO_MEMORY);
    assert_non_null(strstr(error.message, "/proc/sys/vm/nr_hugepages"));
    assert_int_equal(id, 77);
    assert_ptr_equal(address, &id);
}

static bool set_huge_pages(unsigned long long pages) {
    FILE *file = fopen("/proc/sys/vm/nr_hugepages", "we");
    bool written = file != NULL && fprintf(file, "%llu\n", pages) > 0;

    return file != NULL && fclose(file) == 0 && written;
}

/* Sees to two free huge pages, or says why there are none; `*ret_before` is what there was, if it has been changed. */
static bool have_huge_pages(unsigned long long *ret_before) {
    FILE *file;
    unsigned long long before;

    *ret_before = ULLONG_MAX;
    if (memfd_huge_pages_free() >= 2)
        return true;
    file = fopen("/proc/sys/vm/nr_hugepages", "re");
    if (file == NULL)
        return false;
    if (fscanf(file, "%llu", &before) == 1 && set_huge_pages(before + 2))
        *ret_before = before;
    (void)fclose(file);
    return memfd_huge_pages_free() >= 2;
}

static void check_huge_memory(void) {
    struct memfd_kind kind = {.huge = true};
    size_t page = memfd_huge_page_size();
    struct host_memory *memory;
    struct stat info;
    uint64_t id;
    void *address, *again;

    assert_int_equal(host_memory_alloc_of(&kind, page + 1, &id, &address, NULL), MC_OK);
    assert_int_equal((uintptr_t)address % page, 0);
    memory = host_memory_hold((uint64_t)(uintptr_t)address, 2 * page);
    assert_non_null(memory);
    assert_int_equal(host_memory_size(memory), 2 * page);
    assert_int_equal(fstat(host_memory_fd(memory), &info), 0);
    assert_int_equal(info.st_blocks * 512, 2 * page); /* there, and not only promised */
    assert_int_equal(ftruncate(host_memory_fd(memory), 0), -1);
    assert_int_equal(memfd_map(host_memory_fd(memory), 0, memfd_page_size(), true, &again), -1);
    assert_int_equal(memfd_map(host_memory_fd(memory), 0, 2 * page, true, &again), 0);
    strcpy((char *)address + page, "seen by both");
    assert_string_equal((char *)again + page, "seen by both");
    memfd_unmap(again, 2 * page);
    /* Pages that have been given back may not come again: whoever would map such memory could fault. */
    assert_int_equal(fallocate(host_memory_fd(memory), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)page), 0);
    assert_int_equal(memfd_map(host_memory_fd(memory), 0, 2 * page, true, &again), -1);
    host_memory_release(memory);
    assert_int_equal(host_memory_free(id), MC_OK);
}

struct reservation {
    int root;                  /* locked: others may run this test, too */
    unsigned long long before; /* what to go back to; ULLONG_MAX: nothing was changed */
    bool enough;
};

static int reserve(void **state) {
    static struct reservation reservation;

    reservation.root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(reservation.root >= 0);
    assert_int_equal(flock(reservation.root, LOCK_EX), 0);
    reservation.enough = have_huge_pages(&reservation.before);
    *state = &reservation;
    return 0;
}

static int give_up_reservation(void **state) {
    const struct reservation *reservation = *state;

    if (reservation->before != ULLONG_MAX)
        assert_true(set_huge_pages(reservation->before));
    (void)close(reservation->root);
    return 0;
}

static void huge_pages_are_whole_sealed_and_mapped_by_others(void **state) {
    const struct reservation *reservation = *state;

    if (!reservation->enough) {
        printf("# no two huge pages can be reserved here\n");
        skip();
    }
    check_huge_memory();
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
        cmocka_unit_test(each_of_many_memories_is_found),
        cmocka_unit_test(memory_on_a_node_is_there),
        cmocka_unit_test(a_node_that_is_not_there_is_refused),
        cmocka_unit_test(more_huge_pages_than_there_are_is_an_error_with_words),
        cmocka_unit_test_setup_teardown(huge_pages_are_whole_sealed_and_mapped_by_others, reserve, give_up_reservation),
        cmocka_unit_test(threads_find_their_own_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

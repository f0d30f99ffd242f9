/* test_memfd.c - sealed memory is shared, and no descriptor that could make a reader fault is mapped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "os/fork.h"
#include "os/memfd.h"

#define PAGES 4
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

struct memory {
    int fd;
    char *address;
    size_t size;
};

static int make_memory(void **state) {
    static struct memory memory;
    void *address = NULL;

    memory.size = PAGES * memfd_page_size();
    assert_int_equal(memfd_make("test", memory.size, &memory.fd, &address), 0);
    memory.address = address;
    *state = &memory;
    return 0;
}

static int drop_memory(void **state) {
    struct memory *memory = *state;

    memfd_unmap(memory->address, memory->size);
    fork_close(memory->fd);
    return 0;
}

static void memory_is_zeroed_faulted_in_private_to_its_user_and_sealed(void **state) {
    struct memory *memory = *state;
    unsigned char present[PAGES];
    struct stat info;

    assert_int_equal(fcntl(memory->fd, F_GET_SEALS) & SEALS, SEALS);
    assert_int_equal(fstat(memory->fd, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(info.st_size, memory->size);
    assert_int_equal(info.st_blocks * 512, memory->size);
    assert_int_equal(mincore(memory->address, memory->size, present), 0);
    for (size_t i = 0; i < PAGES; i++)
        assert_int_equal(present[i] & 1, 1);
    for (size_t i = 0; i < memory->size; i++)
        if (memory->address[i] != 0)
            fail();
    assert_true((fcntl(memory->fd, F_GETFD) & FD_CLOEXEC) != 0);
    assert_int_equal(ftruncate(memory->fd, 0), -1);
    assert_int_equal(ftruncate(memory->fd, (off_t)memory->size * 2), -1);
}

static void two_mappings_share_the_bytes(void **state) {
    struct memory *memory = *state;
    void *all = NULL, *part = NULL;

    assert_int_equal(memfd_map(memory->fd, 0, memory->size, true, &all), 0);
    assert_int_equal(memfd_map(memory->fd, memfd_page_size(), memfd_page_size(), false, &part), 0);
    ((char *)all)[memfd_page_size()] = 'x';
    assert_int_equal(memory->address[memfd_page_size()], 'x');
    assert_int_equal(*(char *)part, 'x');
    memfd_unmap(all, memory->size);
    memfd_unmap(part, memfd_page_size());
    memfd_unmap(NULL, 0);
}

static void ranges_beyond_the_memory_or_off_a_page_are_refused(void **state) {
    struct memory *memory = *state;
    size_t page = memfd_page_size();
    const struct {
        size_t offset;
        size_t size;
        int reason;
    } table[] = {
        {0, memory->size + 1, EBADF},
        {0, memory->size + page, EBADF},
        {page, memory->size, EBADF},
        {memory->size, page, EBADF},
        {memory->size * 2, page, EBADF},
        {0, SIZE_MAX, EINVAL},
        {SIZE_MAX - page + 1, page, EBADF},
        {0, INT64_MAX, EBADF},
        {0, 0, EINVAL},
        {1, page, EINVAL},
    };
    void *address = NULL;

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        assert_int_equal(memfd_map(memory->fd, table[i].offset, table[i].size, false, &address), -1);
        assert_int_equal(errno, table[i].reason);
    }
    assert_null(address);
}

static void a_descriptor_without_each_of_the_seals_is_refused(void **state) {
    static const int seals[] = {0, F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW, F_SEAL_SHRINK | F_SEAL_SEAL,
                                F_SEAL_GROW | F_SEAL_SEAL};
    size_t page = memfd_page_size();
    void *address = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(seals) / sizeof(seals[0]); i++) {
        int fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, (off_t)page), 0);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals[i]), 0);
        assert_int_equal(memfd_map(fd, 0, page, false, &address), -1);
        assert_int_equal(errno, EBADF);
        (void)close(fd);
    }
    assert_null(address);
}

static void what_is_no_memfd_is_refused(void **state) {
    char name[] = "/tmp/mooncake-test-memfd-XXXXXX";
    int file = mkstemp(name), ends[2];
    void *address = NULL;

    (void)state;
    assert_true(file >= 0);
    (void)unlink(name);
    assert_int_equal(ftruncate(file, 1 << 20), 0);
    assert_int_equal(pipe(ends), 0);
    const int fds[] = {file, ends[0], -1};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        assert_int_equal(memfd_map(fds[i], 0, memfd_page_size(), false, &address), -1);
        assert_int_equal(errno, EBADF);
    }
    (void)close(file);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void a_read_only_descriptor_cant_be_mapped_writable(void **state) {
    struct memory *memory = *state;
    int copy = memfd_read_only(memory->fd);
    void *address = NULL;

    assert_true(copy >= 0);
    assert_true((fcntl(copy, F_GETFD) & FD_CLOEXEC) != 0);
    assert_int_equal(memfd_map(copy, 0, memory->size, true, &address), -1);
    assert_int_equal(errno, EACCES);
    assert_int_equal(memfd_map(copy, 0, memory->size, false, &address), 0);
    memory->address[5] = 'x';
    assert_int_equal(((char *)address)[5], 'x');
    assert_int_equal(mprotect(address, memory->size, PROT_READ | PROT_WRITE), -1);
    memfd_unmap(address, memory->size);
    fork_close(copy);
}

static void a_child_keeps_own_memory_but_neither_descriptors_nor_mappings_of_others(void **state) {
    struct memory *memory = *state;
    unsigned char present[PAGES];
    void *mapped = NULL;
    int status = 0;
    pid_t child;

    assert_int_equal(memfd_map(memory->fd, 0, memory->size, true, &mapped), 0);
    memory->address[0] = 'x';
    child = fork();
    if (child == 0) {
        if (memory->address[0] != 'x' || fcntl(memory->fd, F_GETFD) != -1)
            _exit(1);
        _exit(mincore(mapped, memory->size, present) == -1 && errno == ENOMEM ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    memfd_unmap(mapped, memory->size);
}

static void a_sparse_file_of_a_peer_is_mapped_without_taking_memory(void **state) {
    size_t size = (size_t)1 << 30;
    int fd = memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *address = NULL;
    struct stat info;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, SEALS), 0);
    assert_int_equal(memfd_map(fd, 0, size, true, &address), 0);
    assert_int_equal(fstat(fd, &info), 0);
    assert_int_equal(info.st_blocks, 0);
    memfd_unmap(address, size);
    (void)close(fd);
}

static void sizes_round_up_to_whole_pages(void **state) {
    size_t page = memfd_page_size();

    (void)state;
    assert_int_equal(memfd_round(0), 0);
    assert_int_equal(memfd_round(1), page);
    assert_int_equal(memfd_round(page), page);
    assert_int_equal(memfd_round(page + 1), 2 * page);
    assert_int_equal(memfd_round(SIZE_MAX), 0);
    assert_int_equal(memfd_round(SIZE_MAX - page + 1), SIZE_MAX - page + 1);
}

static void sizes_that_no_memory_has_are_refused(void **state) {
    size_t page = memfd_page_size();
    void *address = NULL;
    int fd = -42;

    (void)state;
    assert_int_equal(memfd_make("test", 0, &fd, &address), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(memfd_make("test", page + 1, &fd, &address), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(memfd_make("test", (size_t)1 << 50, &fd, &address), -1);
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(memfd_make("test", SIZE_MAX - page + 1, &fd, &address), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(fd, -42);
    assert_null(address);
}

#define WITH_MEMORY(test) cmocka_unit_test_setup_teardown(test, make_memory, drop_memory)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_MEMORY(memory_is_zeroed_faulted_in_private_to_its_user_and_sealed),
        WITH_MEMORY(two_mappings_share_the_bytes),
        WITH_MEMORY(ranges_beyond_the_memory_or_off_a_page_are_refused),
        cmocka_unit_test(a_descriptor_without_each_of_the_seals_is_refused),
        cmocka_unit_test(what_is_no_memfd_is_refused),
        WITH_MEMORY(a_read_only_descriptor_cant_be_mapped_writable),
        WITH_MEMORY(a_child_keeps_own_memory_but_neither_descriptors_nor_mappings_of_others),
        cmocka_unit_test(a_sparse_file_of_a_peer_is_mapped_without_taking_memory),
        cmocka_unit_test(sizes_round_up_to_whole_pages),
        cmocka_unit_test(sizes_that_no_memory_has_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_file_memory.c - a part of a file as memory: which part, shared with the file, on the disk, and locked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "allocator/file_memory.h"
#include "os/memfd.h"

#define PAGES 8u

struct file {
    char path[64];
    int fd;
    uint64_t page;
};

static int set_up(void **state) {
    struct file *file = calloc(1, sizeof(*file));

    assert_non_null(file);
    strcpy(file->path, "/tmp/mooncake-file-XXXXXX");
    file->fd = mkstemp(file->path);
    file->page = memfd_page_size();
    assert_true(file->fd >= 0);
    assert_int_equal(ftruncate(file->fd, (off_t)(PAGES * file->page + 100)), 0);
    *state = file;
    return 0;
}

static int tear_down(void **state) {
    struct file *file = *state;

    close(file->fd);
    unlink(file->path);
    free(file);
    return 0;
}

static void what_is_written_is_in_the_file_at_its_offset(void **state) {
    const struct file *file = *state;
    struct file_memory memory;
    char word[6] = "";

    assert_int_equal(file_memory_map(file->path, 2 * file->page, 3 * file->page, &memory, NULL), MC_OK);
    assert_int_equal(memory.size, 3 * file->page);
    memcpy((char *)memory.address + 7, "hello", 5);
    assert_int_equal(pread(file->fd, word, 5, (off_t)(2 * file->page + 7)), 5);
    assert_string_equal(word, "hello");
    file_memory_unmap(&memory);
    assert_int_equal(memory.fd, -1);
    file_memory_unmap(&memory); /* no effect */
}

static void no_size_is_all_that_there_is_in_whole_pages_with_its_place_on_the_disk(void **state) {
    const struct file *file = *state;
    struct file_memory memory;
    struct stat before, after;

    assert_int_equal(fstat(file->fd, &before), 0);
    assert_int_equal(file_memory_map(file->path, file->page, 0, &memory, NULL), MC_OK);
    assert_int_equal(memory.size, (PAGES - 1) * file->page);
    assert_int_equal(fstat(file->fd, &after), 0);
    assert_int_equal(after.st_size, before.st_size);
    assert_true((uint64_t)(after.st_blocks - before.st_blocks) * 512 >= memory.size);
    file_memory_unmap(&memory);
}

static void overlapping_parts_are_refused_until_the_first_is_unmapped(void **state) {
    const struct file *file = *state;
    struct mc_error error = MC_ERROR_INIT;
    struct file_memory first, second;

    assert_int_equal(file_memory_map(file->path, 0, 2 * file->page, &first, NULL), MC_OK);
    assert_int_equal(file_memory_map(file->path, file->page, 2 * file->page, &second, &error), MC_ERR_BUSY);
    assert_non_null(strstr(error.message, "mounted by another"));
    assert_int_equal(file_memory_map(file->path, 2 * file->page, file->page, &second, NULL), MC_OK);
    file_memory_unmap(&second);
    file_memory_unmap(&first);
    assert_int_equal(file_memory_map(file->path, file->page, 2 * file->page, &second, NULL), MC_OK);
    file_memory_unmap(&second);
}

/* Its lock ends with the mapping, whoever has the descriptor. */
static void a_forked_child_does_not_hold_the_lock(void **state) {
    const struct file *file = *state;
    struct file_memory memory, again;
    int pipes[2], status;
    pid_t pid;

    assert_int_equal(file_memory_map(file->path, 0, file->page, &memory, NULL), MC_OK);
    assert_int_equal(pipe(pipes), 0);
    pid = fork();
    if (pid == 0) {
        char byte;

        close(pipes[1]);
        _exit(read(pipes[0], &byte, 1) == 0 ? 0 : 1);
    }
    file_memory_unmap(&memory);
    assert_int_equal(file_memory_map(file->path, 0, file->page, &again, NULL), MC_OK);
    file_memory_unmap(&again);
    close(pipes[1]);
    close(pipes[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

static void parts_that_are_not_there_are_refused(void **state) {
    const struct file *file = *state;
    struct file_memory memory;

    assert_int_equal(file_memory_map(file->path, 0, PAGES * file->page + 101, &memory, NULL), MC_ERR_INVALID_ARGUMENT);
    assert_int_equal(file_memory_map(file->path, PAGES * file->page, 100, &memory, NULL), MC_ERR_INVALID_ARGUMENT);
    assert_int_equal(file_memory_map(file->path, 1, file->page, &memory, NULL), MC_ERR_INVALID_ARGUMENT);
    assert_int_equal(file_memory_map(file->path, UINT64_MAX - file->page + 1, 0, &memory, NULL),
                     MC_ERR_INVALID_ARGUMENT);
    assert_int_equal(file_memory_map(file->path, file->page, UINT64_MAX, &memory, NULL), MC_ERR_INVALID_ARGUMENT);
    assert_int_equal(file_memory_map("/dev/zero", 0, file->page, &memory, NULL), MC_ERR_INVALID_ARGUMENT);
    assert_int_equal(file_memory_map("/tmp", 0, file->page, &memory, NULL), MC_ERR_INVALID_ARGUMENT);
    assert_int_equal(file_memory_map("/nowhere/at/all", 0, file->page, &memory, NULL), MC_ERR_SYSTEM);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_is_in_the_file_at_its_offset, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_size_is_all_that_there_is_in_whole_pages_with_its_place_on_the_disk, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(overlapping_parts_are_refused_until_the_first_is_unmapped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_forked_child_does_not_hold_the_lock, set_up, tear_down),
        cmocka_unit_test_setup_teardown(parts_that_are_not_there_are_refused, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("allocator-file_memory", tests, NULL, NULL);
}

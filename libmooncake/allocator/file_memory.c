/* allocator/file_memory.c - a part of a file as memory.
 *
 * Owns: its descriptor and mapping. The lock on the range is one of the open file (F_OFD_SETLK): it holds against other
 * processes and against other mounts of this one, and ends with the descriptor. Where a file system has none, nothing is
 * locked.
 */
#include "allocator/file_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/status.h"
#include "os/fork.h"
#include "os/memfd.h"

static int32_t failed(const char *path, int reason, struct mc_error *error) {
    return status_set(error, MC_ERR_SYSTEM, reason, "%s: %s", path, strerror(reason));
}

/* The part that is meant, in whole pages, or why there is none. */
static int32_t measure(const char *path, int fd, uint64_t offset, uint64_t *size, struct mc_error *error) {
    uint64_t page = memfd_page_size();
    struct stat status;

    if (fstat(fd, &status) != 0)
        return failed(path, errno, error);
    if (!S_ISREG(status.st_mode))
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "%s is no regular file", path);
    if (offset % page != 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "offset %llu is no multiple of %llu, a page",
                          (unsigned long long)offset, (unsigned long long)page);
    if (*size == 0 && offset < (uint64_t)status.st_size)
        *size = (uint64_t)status.st_size - offset;
    if (!checked_within(offset, *size, 0, (uint64_t)status.st_size))
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "%s has %llu bytes, fewer than %llu at %llu", path,
                          (unsigned long long)status.st_size, (unsigned long long)*size, (unsigned long long)offset);
    *size -= *size % page;
    if (*size == 0)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "%s has less than a page at %llu", path,
                          (unsigned long long)offset);
    return MC_OK;
}

static int32_t lock(const char *path, int fd, uint64_t offset, uint64_t size, struct mc_error *error) {
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = (off_t)size};

    if (fcntl(fd, F_OFD_SETLK, &range) != 0 && (errno == EAGAIN || errno == EACCES))
        return status_set(error, MC_ERR_BUSY, 0, "%s: that part of it is mounted by another", path);
    return MC_OK;
}

/* A hole in the file would cost its reader or writer the process, were the disk full then. */
static int32_t fill(const char *path, int fd, uint64_t offset, uint64_t size, struct mc_error *error) {
    int result;

    do {
        result = fallocate(fd, 0, (off_t)offset, (off_t)size);
    } while (result != 0 && errno == EINTR);
    if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        return status_set(error, errno == ENOSPC ? MC_ERR_NO_SPACE : MC_ERR_SYSTEM, errno, "%s: %s", path,
                          strerror(errno));
    return MC_OK;
}

static int open_file(const char *path) {
    int fd;

    fork_pause();
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    fork_close_in_child_paused(fd);
    fork_resume();
    return fd;
}

int32_t file_memory_map(const char *path, uint64_t offset, uint64_t size, struct file_memory *ret_memory,
                        struct mc_error *error) {
    struct file_memory memory = {.fd = open_file(path), .size = size};
    int32_t status;

    if (memory.fd < 0 && errno == EISDIR)
        return status_set(error, MC_ERR_INVALID_ARGUMENT, 0, "%s is no regular file", path);
    if (memory.fd < 0)
        return failed(path, errno, error);
    status = measure(path, memory.fd, offset, &memory.size, error);
    if (status == MC_OK)
        status = lock(path, memory.fd, offset, memory.size, error);
    if (status == MC_OK)
        status = fill(path, memory.fd, offset, memory.size, error);
    if (status == MC_OK) {
        memory.address = mmap(NULL, memory.size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd, (off_t)offset);
        if (memory.address == MAP_FAILED)
            status = failed(path, errno, error);
    }
    if (status != MC_OK) {
        fork_close(memory.fd);
        return status;
    }
    *ret_memory = memory;
    return MC_OK;
}

void file_memory_unmap(struct file_memory *memory) {
    struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

    if (memory->fd < 0)
        return;
    (void)munmap(memory->address, memory->size);
    (void)fcntl(memory->fd, F_OFD_SETLK, &all); /* a child that was just forked may have the descriptor still */
    fork_close(memory->fd);
    memory->fd = -1;
}

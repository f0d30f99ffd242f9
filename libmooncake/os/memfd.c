/* os/memfd.c - makes and maps sealed shared memory.
 *
 * Owns nothing; descriptors and mappings are the caller's. Any thread.
 *
 * Invariant: memory mapped here can't shrink, so that an access never faults, whatever the other process does.
 */
#include "os/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/checked.h"
#include "os/fork.h"

#define TOUCHED_AT_ONCE (16u << 20)
#define NEEDED_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

size_t memfd_page_size(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

size_t memfd_round(size_t size) {
    size_t page = memfd_page_size();

    return size > SIZE_MAX - (page - 1) ? 0 : (size + page - 1) / page * page;
}

/* Would `size` more bytes drive the machine out of memory? The kernel promises shared memory without counting, and
 * kills somebody later. True when the kernel doesn't say. */
static bool fits_in_memory(size_t size) {
    uint64_t available = 0, swap = 0, value;
    bool known = false;
    char line[128];
    FILE *info = fopen("/proc/meminfo", "re");

    if (info == NULL)
        return true;
    while (fgets(line, sizeof(line), info) != NULL) {
        if (sscanf(line, "MemAvailable: %" SCNu64, &value) == 1) {
            available = value;
            known = true;
        } else if (sscanf(line, "SwapFree: %" SCNu64, &value) == 1) {
            swap = value;
        }
    }
    (void)fclose(info);
    return !known || size / 1024 <= available + swap;
}

/* A new memfd that nobody can execute, and nobody but its owner can open again. -1 with errno. */
static int create(const char *name) {
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL) /* Linux before 6.3 */
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        if (errno == EINVAL || errno == ENOSYS)
            errno = EOPNOTSUPP;
        return -1;
    }
    if (fchmod(fd, 0600) < 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

int memfd_fault_in(int fd, void *mapping, size_t offset, size_t size) {
    char *address = (char *)mapping + offset;
    int result;

    do
        result = madvise(address, size, MADV_POPULATE_WRITE);
    while (result < 0 && errno == EINTR);
    if (result < 0 && errno == EINVAL) { /* Linux before 5.14 */
        do
            result = fallocate(fd, 0, (off_t)offset, (off_t)size);
        while (result < 0 && errno == EINTR);
        for (size_t at = 0; result == 0 && at < size; at += memfd_page_size())
            (void)__atomic_fetch_or(address + at, 0, __ATOMIC_RELAXED);
    }
    if (result < 0 && (errno == EFAULT || errno == ENOSPC))
        errno = ENOMEM;
    return result;
}

/* The pages come with it, or when they are first touched. */
static int make(const char *name, size_t size, bool pages, int *ret_fd, void **ret_address) {
    void *address = MAP_FAILED;
    int fd, saved;

    if (size == 0 || size % memfd_page_size() != 0 || size > INT64_MAX) {
        errno = EINVAL;
        return -1;
    }
    if (!fits_in_memory(size)) {
        errno = ENOMEM;
        return -1;
    }
    fork_pause();
    fd = create(name);
    fork_close_in_child_paused(fd);
    fork_resume();
    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)size) < 0)
        goto fail;
    address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED || (pages && memfd_fault_in(fd, address, 0, size) < 0))
        goto fail;
    if (fcntl(fd, F_ADD_SEALS, NEEDED_SEALS) < 0) {
        errno = EOPNOTSUPP;
        goto fail;
    }
    *ret_fd = fd;
    *ret_address = address;
    return 0;

fail:
    saved = errno;
    if (address != MAP_FAILED)
        (void)munmap(address, size);
    fork_close(fd);
    errno = saved;
    return -1;
}

int memfd_make(const char *name, size_t size, int *ret_fd, void **ret_address) {
    return make(name, size, true, ret_fd, ret_address);
}

int memfd_reserve(const char *name, size_t size, int *ret_fd, void **ret_address) {
    return make(name, size, false, ret_fd, ret_address);
}

/* Is it a memfd of ordinary pages (huge ones can run out), sealed, with this range in it? */
static bool is_sound(int fd, size_t offset, size_t size, struct stat *ret_info) {
    int seals = fcntl(fd, F_GET_SEALS);
    struct statfs system;

    return seals >= 0 && (seals & NEEDED_SEALS) == NEEDED_SEALS && fstatfs(fd, &system) == 0 &&
           system.f_type == TMPFS_MAGIC && fstat(fd, ret_info) == 0 &&
           checked_within(offset, size, 0, (uint64_t)ret_info->st_size);
}

int memfd_map(int fd, size_t offset, size_t size, bool writable, void **ret_address) {
    int protection = PROT_READ | (writable ? PROT_WRITE : 0);
    struct stat info;
    void *address;
    int saved = 0;

    if (size == 0 || offset % memfd_page_size() != 0 || size > INT64_MAX) {
        errno = EINVAL;
        return -1;
    }
    if (!is_sound(fd, offset, size, &info)) {
        errno = EBADF;
        return -1;
    }
    fork_pause();
    address = mmap(NULL, size, protection, MAP_SHARED, fd, (off_t)offset);
    if (address != MAP_FAILED && madvise(address, size, MADV_DONTFORK) < 0) {
        saved = errno;
        (void)munmap(address, size);
        address = MAP_FAILED;
        errno = saved;
    }
    fork_resume();
    if (address == MAP_FAILED)
        return -1;
    /* Page tables now rather than at the first copy; but never the pages of a file that only claims to be large, and of
     * a large one only in the background, by memfd_touch. */
    if (size <= TOUCHED_AT_ONCE && (uint64_t)info.st_blocks * 512 >= (uint64_t)info.st_size)
        (void)madvise(address, size, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
    *ret_address = address;
    return 0;
}

void memfd_touch(void *address, size_t size) {
    (void)madvise(address, size, MADV_POPULATE_WRITE);
}

void memfd_unmap(void *address, size_t size) {
    int saved = errno;

    if (address != NULL)
        (void)munmap(address, size);
    errno = saved;
}

int memfd_read_only(int fd) {
    char path[32];
    int copy;

    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    fork_pause();
    copy = open(path, O_RDONLY | O_CLOEXEC);
    fork_close_in_child_paused(copy);
    fork_resume();
    return copy;
}

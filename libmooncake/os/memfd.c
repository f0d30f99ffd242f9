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
#include <linux/mempolicy.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/checked.h"
#include "os/fork.h"

#define TOUCHED_AT_ONCE (16u << 20)
#define NODES 1024u /* that a kernel can be built for */
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
    return memfd_round_to(size, memfd_page_size());
}

size_t memfd_round_to(size_t size, size_t page) {
    return size > SIZE_MAX - (page - 1) ? 0 : (size + page - 1) / page * page;
}

/* Adds up the values, in KiB but for counts, of the lines of a meminfo file that have one of the names; false if none
 * has, or there is no such file. The lines of a node's file begin with "Node 0 ". */
static bool read_meminfo(const char *path, const char *const *names, size_t count, uint64_t *ret_sum) {
    FILE *info = fopen(path, "re");
    bool known = false;
    char line[256];

    if (info == NULL)
        return false;
    *ret_sum = 0;
    while (fgets(line, sizeof(line), info) != NULL) {
        const char *name = line;
        uint64_t value;

        if (strncmp(name, "Node ", 5) == 0)
            name += 5 + strspn(name + 5, "0123456789 ");
        for (size_t i = 0; i < count; i++) {
            size_t length = strlen(names[i]);

            if (strncmp(name, names[i], length) == 0 && name[length] == ':' &&
                sscanf(name + length + 1, "%" SCNu64, &value) == 1 && checked_add(*ret_sum, value, ret_sum))
                known = true;
        }
    }
    (void)fclose(info);
    return known;
}

static uint64_t meminfo(const char *name) {
    uint64_t value;

    return read_meminfo("/proc/meminfo", &name, 1, &value) ? value : 0;
}

size_t memfd_huge_page_size(void) {
    uint64_t size = meminfo("Hugepagesize");

    return size > SIZE_MAX / 1024 ? 0 : (size_t)size * 1024;
}

uint64_t memfd_huge_pages_free(void) {
    return meminfo("HugePages_Free");
}

/* Would `size` more bytes drive the machine, or the node, out of memory? The kernel promises shared memory without
 * counting, and kills somebody later. True when the kernel doesn't say. Huge pages are counted by the kernel. */
static bool fits_in_memory(const struct memfd_kind *kind, size_t size) {
    static const char *const all[] = {"MemAvailable", "SwapFree"};
    static const char *const of_node[] = {"MemFree", "Active(file)", "Inactive(file)"}; /* a node has no MemAvailable */
    char path[64];
    uint64_t available;

    if (kind->huge)
        return true;
    if (read_meminfo("/proc/meminfo", all, 2, &available) && size / 1024 > available)
        return false;
    (void)snprintf(path, sizeof(path), "/sys/devices/system/node/node%" PRIu32 "/meminfo", kind->node);
    return !kind->bound || !read_meminfo(path, of_node, 3, &available) || size / 1024 <= available;
}

/* Pages that come from now on come from the node. */
static int bind_to(uint32_t node, void *address, size_t size) {
    unsigned long mask[NODES / (8 * sizeof(unsigned long))] = {0};

    if (node >= NODES) {
        errno = ENODEV;
        return -1;
    }
    mask[node / (8 * sizeof(mask[0]))] = 1ul << node % (8 * sizeof(mask[0]));
    if (syscall(SYS_mbind, address, size, MPOL_BIND, mask, (unsigned long)NODES + 1, 0u) == 0)
        return 0;
    if (errno == ENOSYS && node == 0) /* a kernel for machines that have only one */
        return 0;
    if (errno == EINVAL || errno == ENOSYS)
        errno = ENODEV;
    return -1;
}

/* Can pages come from the node at all? */
static int try_node(uint32_t node) {
    size_t size = memfd_page_size();
    void *page = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int result;

    if (page == MAP_FAILED)
        return -1;
    result = bind_to(node, page, size);
    memfd_unmap(page, size);
    return result;
}

/* A new memfd that nobody can execute, and nobody but its owner can open again. -1 with errno. */
static int create(const char *name, unsigned flags) {
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | flags);

    if (fd < 0 && errno == EINVAL) /* Linux before 6.3 */
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    if (fd < 0) {
        if (errno == EINVAL || errno == ENOSYS || errno == ENODEV)
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

/* The pages come with it, or when they are first touched. Mapping reserves huge ones, but on no certain node: they are
 * there when they have been faulted in, which is an error and no signal if they can't be. */
static int make(const struct memfd_kind *kind, const char *name, size_t size, bool pages, int *ret_fd,
                void **ret_address) {
    size_t page = kind->huge ? memfd_huge_page_size() : memfd_page_size();
    void *address = MAP_FAILED;
    int fd, saved;

    if (page == 0) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (size == 0 || size % page != 0 || size > INT64_MAX) {
        errno = EINVAL;
        return -1;
    }
    /* Before anything is taken: with too little left, that would be what is said of a node that isn't there. */
    if (kind->bound && try_node(kind->node) < 0)
        return -1;
    if (!fits_in_memory(kind, size)) {
        errno = ENOMEM;
        return -1;
    }
    fork_pause();
    fd = create(name, kind->huge ? MFD_HUGETLB : 0);
    fork_close_in_child_paused(fd);
    fork_resume();
    if (fd < 0)
        return -1;
    if (ftruncate(fd, (off_t)size) < 0)
        goto fail;
    address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED || (kind->bound && bind_to(kind->node, address, size) < 0) ||
        (pages && memfd_fault_in(fd, address, 0, size) < 0))
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
    return make(&(struct memfd_kind){0}, name, size, true, ret_fd, ret_address);
}

int memfd_make_of(const struct memfd_kind *kind, const char *name, size_t size, int *ret_fd, void **ret_address) {
    return make(kind, name, size, true, ret_fd, ret_address);
}

int memfd_reserve(const char *name, size_t size, int *ret_fd, void **ret_address) {
    return make(&(struct memfd_kind){0}, name, size, false, ret_fd, ret_address);
}

/* Is it a memfd, sealed, with this range in it? Huge pages can run out, so they must be there already; and they are
 * mapped and unmapped as whole ones only. */
static bool is_sound(int fd, size_t offset, size_t size, struct stat *ret_info) {
    int seals = fcntl(fd, F_GET_SEALS);
    struct statfs system;

    if (seals < 0 || (seals & NEEDED_SEALS) != NEEDED_SEALS || fstatfs(fd, &system) != 0 || fstat(fd, ret_info) != 0 ||
        !checked_within(offset, size, 0, (uint64_t)ret_info->st_size))
        return false;
    if (system.f_type == TMPFS_MAGIC)
        return true;
    return system.f_type == HUGETLBFS_MAGIC && system.f_bsize > 0 && size % (size_t)system.f_bsize == 0 &&
           offset % (size_t)system.f_bsize == 0 && ret_info->st_blocks >= ret_info->st_size / 512;
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

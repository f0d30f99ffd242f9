/* os/memfd.h - anonymous shared memory whose size is sealed, so that no holder of the descriptor can make another
 * fault. */
#ifndef MC_OS_MEMFD_H
#define MC_OS_MEMFD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes `size` bytes (a multiple of the page size) with seals SHRINK, GROW and SEAL, maps them and faults them in.
 * -1 with errno: ENOMEM (more than the machine has free, too), EOPNOTSUPP where memory can't be sealed. The descriptor
 * is closed in forked children, the mapping stays there; close it with fork_close. */
int memfd_make(const char *name, size_t size, int *ret_fd, void **ret_address);

/* The same without pages: they come when they are first touched, or by memfd_fault_in. */
int memfd_reserve(const char *name, size_t size, int *ret_fd, void **ret_address);

/* Which pages; all zero is ordinary ones, on any node. */
struct memfd_kind {
    bool huge;  /* the system's huge pages, of memfd_huge_page_size */
    bool bound; /* to `node` of the machine's memory */
    uint32_t node;
};

/* As memfd_make, with pages of a kind; `size` is a multiple of their size. Also -1 with ENODEV: there is no such node
 * (or it has no memory), EPERM: pages can't be bound here, EOPNOTSUPP: there are no huge pages. With too few of them
 * reserved, it is ENOMEM. */
int memfd_make_of(const struct memfd_kind *kind, const char *name, size_t size, int *ret_fd, void **ret_address);

/* Gives [offset, offset + size) of the whole mapping of `fd` its pages now, so that being out of memory is an error here
 * and not a signal later; what is there stays as it is. -1 with errno. */
int memfd_fault_in(int fd, void *mapping, size_t offset, size_t size);

/* Maps `size` bytes at `offset` of a descriptor that came from another process, after checking that it is a memfd that
 * has those seals and that size; never inherited by children (MADV_DONTFORK). Of huge pages, a whole one: then `size`
 * is a multiple of their size. -1 with errno (EBADF: not sealed, the range is not within it, or huge pages are missing). */
int memfd_map(int fd, size_t offset, size_t size, bool writable, void **ret_address);

/* Makes the page tables of part of a writable mapping, so that no copy has to; pages that aren't there yet come as well. */
void memfd_touch(void *address, size_t size);

void memfd_unmap(void *address, size_t size);

/* The same memory by a new descriptor that can only be read, for fork_close; -1 with errno. */
int memfd_read_only(int fd);

size_t memfd_page_size(void);

/* Of the huge pages that memfd_make_of takes; 0 if the system has none. */
size_t memfd_huge_page_size(void);

/* Huge pages that nobody has taken yet, 0 if that is unknown. */
uint64_t memfd_huge_pages_free(void);

/* `size` rounded up to whole pages, or to a multiple of another size than 0; 0 if that overflows. */
size_t memfd_round(size_t size);
size_t memfd_round_to(size_t size, size_t page);

#endif

/* os/memfd.h - anonymous shared memory whose size is sealed, so that no holder of the descriptor can make another
 * fault. */
#ifndef MC_OS_MEMFD_H
#define MC_OS_MEMFD_H

#include <stdbool.h>
#include <stddef.h>

/* Makes `size` bytes (a multiple of the page size) with seals SHRINK, GROW and SEAL, maps them and faults them in.
 * -1 with errno: ENOMEM (more than the machine has free, too), EOPNOTSUPP where memory can't be sealed. The descriptor
 * is closed in forked children, the mapping stays there; close it with fork_close. */
int memfd_make(const char *name, size_t size, int *ret_fd, void **ret_address);

/* The same without pages: they come when they are first touched, or by memfd_fault_in. */
int memfd_reserve(const char *name, size_t size, int *ret_fd, void **ret_address);

/* Gives [offset, offset + size) of the whole mapping of `fd` its pages now, so that being out of memory is an error here
 * and not a signal later; what is there stays as it is. -1 with errno. */
int memfd_fault_in(int fd, void *mapping, size_t offset, size_t size);

/* Maps `size` bytes at `offset` of a descriptor that came from another process, after checking that it is a memfd that
 * has those seals and that size; never inherited by children (MADV_DONTFORK). -1 with errno (EBADF: not sealed, or
 * the range is not within it). */
int memfd_map(int fd, size_t offset, size_t size, bool writable, void **ret_address);

/* Makes the page tables of part of a writable mapping, so that no copy has to; pages that aren't there yet come as well. */
void memfd_touch(void *address, size_t size);

void memfd_unmap(void *address, size_t size);

/* The same memory by a new descriptor that can only be read, for fork_close; -1 with errno. */
int memfd_read_only(int fd);

size_t memfd_page_size(void);

/* `size` rounded up to whole pages; 0 if that overflows. */
size_t memfd_round(size_t size);

#endif

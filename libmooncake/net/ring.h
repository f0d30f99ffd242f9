/* net/ring.h - a stream of bytes to another process of this host, through two rings in shared memory.
 *
 * Each direction has a ring, with one writer and one reader. Who looks at the memory needs no system call; who doesn't
 * any more says so there, and is woken by a byte on a UNIX socket, the bell, whose end also tells that the other side
 * has gone.
 *
 * Owns: the mapping and this side's end of the bell. Not thread-safe; the other side is another process, and nothing
 * that it writes is trusted: positions are checked, bytes are copied out once.
 */
#ifndef MC_NET_RING_H
#define MC_NET_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define RING_BYTES 65536u /* that one direction holds; a power of two */

enum ring_side { RING_HOST = 0, RING_GUEST = 1 };

struct ring;

/* What both sides map. */
size_t ring_memory_size(void);

/* Makes new memory, its rings empty and both sides asleep, and a bell; this is the host's side. The descriptors of the
 * memory and of the guest's end of the bell are for the guest, and fork_close. NULL with errno. */
struct ring *ring_make(int *ret_memory_fd, int *ret_bell_fd);

/* Maps a host's memory as its guest. Takes over the bell, also on failure; the memory's descriptor stays the caller's.
 * NULL with errno (EBADF: not what it should be). */
struct ring *ring_map(int memory_fd, int bell_fd);

/* Closes the bell and gives the mapping back. NULL is fine; returns NULL. */
struct ring *ring_close(struct ring *ring);

/* A side of memory that is the caller's, ring_memory_size() bytes. Takes over the bell. NULL: out of memory. */
struct ring *ring_on(void *memory, enum ring_side side, int bell_fd);

/* This side's end of the bell. */
int ring_bell(const struct ring *ring);

/* As stream_*. */
int64_t ring_send(struct ring *ring, const struct iovec *parts, int count);
int64_t ring_receive(struct ring *ring, const struct iovec *parts, int count);
bool ring_peek(struct ring *ring, bool receiving, bool sending);
bool ring_sleep(struct ring *ring, bool receiving, bool sending);
void ring_heed(struct ring *ring);

#endif

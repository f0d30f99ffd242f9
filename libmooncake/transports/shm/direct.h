/* transports/shm/direct.h - another process's ordinary memory, by process_vm_readv and process_vm_writev. */
#ifndef MC_TRANSPORTS_SHM_DIRECT_H
#define MC_TRANSPORTS_SHM_DIRECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "transports/shm/page.h"
#include "transports/transport.h"

struct shm_direct {
    int pid;
    int pidfd;
    int socket;                     /* the guest's */
    _Atomic uint64_t looked;        /* when the peer was seen alive last */
    _Atomic(const char *) obstacle; /* why there is no such path; NULL: there is one */
    char words[TRANSPORT_REASON_MAX];
};

/* Finds the process at the other end of the UNIX socket, and whether its memory may be read: the proof that the page
 * names must be there. What it finds is in `obstacle`; it doesn't fail. The socket stays the caller's. */
void shm_direct_open(struct shm_direct *direct, int socket, const struct shm_page *page);
void shm_direct_close(struct shm_direct *direct);

/* Why there is no such path, in words; NULL if there is. Any thread. */
static inline const char *shm_direct_obstacle(const struct shm_direct *direct) {
    return atomic_load(&direct->obstacle);
}

/* Can the first and the last byte of that range be read? */
bool shm_direct_probe(struct shm_direct *direct, uint64_t address, uint64_t length);

/* Copies by one call, and stores how many bytes, which is more than 0 and maybe not all. MC_ERR_NOT_REGISTERED if the
 * first part isn't mapped in the peer, or not here; MC_ERR_CONNECTION_LOST if the peer is gone: bytes may have been copied,
 * from or to who knows where; MC_ERR_NOT_SUPPORTED if it is forbidden now; MC_ERR_NO_MEMORY, MC_ERR_SYSTEM. */
int32_t shm_direct_move(struct shm_direct *direct, bool write, const struct iovec *local, size_t local_count,
                        const struct iovec *remote, size_t remote_count, uint64_t *ret_moved);

/* The same until all of one range is moved. What is moved of it on failure is stored as well. */
int32_t shm_direct_move_all(struct shm_direct *direct, bool write, uint8_t *local, uint64_t remote, uint64_t length,
                            uint64_t *ret_moved);

#endif

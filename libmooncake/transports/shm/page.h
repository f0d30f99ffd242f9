/* transports/shm/page.h - what an engine and its peers on the same host share, and what they say to each other.
 *
 * Region page: one memfd per engine (the host), which its peers (guests) map read-only. Each slot describes one region
 * that can be mapped; `key` says whether it is open, and never repeats. Counter page: one memfd per guest, which that
 * guest alone writes: for each slot, how many copies are under way.
 *
 * A guest copies so: add one to the slot's counter; look at the key; if it is the one expected, copy; take one off.
 * The host ends a region so: set the key to CLOSING; wait until that slot's counter is zero in every guest's page, or
 * the guest is gone. Both first steps are sequentially consistent, so one of the two sees the other.
 */
#ifndef MC_TRANSPORTS_SHM_PAGE_H
#define MC_TRANSPORTS_SHM_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

#define SHM_SLOTS 4096u
#define SHM_MAGIC 0x31706d6873636d00ull /* "\0mcshmp1" */

/* key = generation * 4 + state */
enum shm_state { SHM_FREE = 0, SHM_OPEN = 1, SHM_CLOSING = 2, SHM_STATES = 4 };

struct shm_slot {
    _Atomic uint64_t key;
    _Atomic uint64_t base; /* virtual address in the host */
    _Atomic uint64_t length;
    _Atomic uint64_t memory_offset; /* of `base` in its memfd */
    _Atomic uint64_t memory_size;   /* of the whole memfd */
    _Atomic uint64_t access;        /* MC_REMOTE_* */
    uint64_t reserved[2];
};

struct shm_page {
    uint64_t magic;
    _Atomic uint64_t changes; /* grows with each region that is opened or closed */
    uint64_t reserved[6];
    struct shm_slot slots[SHM_SLOTS];
};

struct shm_counters {
    _Atomic uint32_t copies[SHM_SLOTS];
};

_Static_assert(sizeof(struct shm_slot) == 64, "a slot is a cache line");
_Static_assert(sizeof(struct shm_page) == 64 + 64 * SHM_SLOTS, "the page has no holes");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "atomics are shared between processes");

/* Packets on the UNIX socket. The guest's first is HELLO, answered by WELCOME with the two pages' descriptors (region
 * page, then counters); then any number of MAP, each answered by MAPPED with the memory's descriptor when its status is
 * MC_OK. */
enum shm_kind { SHM_HELLO = 1, SHM_WELCOME, SHM_MAP, SHM_MAPPED };

struct shm_packet {
    uint32_t kind;
    int32_t status;
    uint8_t token[16]; /* HELLO: the invitation's token. WELCOME: its answer */
    uint64_t key;      /* MAP, MAPPED */
    uint32_t slot;
    uint32_t reserved;
};

_Static_assert(sizeof(struct shm_packet) == 40, "the packet has no holes");

#endif

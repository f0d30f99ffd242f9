/* transports/shm/page.h - what an engine and its peers on the same host share, and what they say to each other.
 *
 * Region page: one memfd per engine (the host), which its peers (guests) map read-only. Each slot describes one region;
 * `key` says whether it is open, and never repeats. A ring says which slots have changed last, so that guests needn't
 * read them all. Counter page: one memfd per guest, which that guest alone writes: for each slot, how many copies are
 * under way. Both are sparse: what no region has used takes no memory.
 *
 * A guest copies so: add one to the slot's counter; look at the key; if it is the one expected, copy; take one off.
 * The host ends a region so: set the key to CLOSING; wait until that slot's counter is zero in every guest's page, or
 * the guest is gone. Both first steps are sequentially consistent, so one of the two sees the other.
 *
 * Memory of mc_memory_alloc is mapped by guests; all other is ordinary memory, which they reach by process_vm_readv and
 * process_vm_writev if the kernel lets them: then the proof lies at its address in the host.
 */
#ifndef MC_TRANSPORTS_SHM_PAGE_H
#define MC_TRANSPORTS_SHM_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

#define SHM_SLOTS 131072u
#define SHM_LOG 4096u                   /* a power of two */
#define SHM_MAGIC 0x32706d6873636d00ull /* "\0mcshmp2" */

/* key = generation * 4 + state */
enum shm_state { SHM_FREE = 0, SHM_OPEN = 1, SHM_CLOSING = 2, SHM_STATES = 4 };

struct shm_slot {
    _Atomic uint64_t key;
    _Atomic uint64_t base; /* virtual address in the host */
    _Atomic uint64_t length;
    _Atomic uint64_t memory;        /* which memfd of the host, never the same number for two; 0: ordinary memory */
    _Atomic uint64_t memory_offset; /* of `base` in its memfd */
    _Atomic uint64_t memory_size;   /* of the whole memfd */
    _Atomic uint64_t access;        /* MC_REMOTE_* */
    uint64_t reserved;
};

struct shm_page {
    uint64_t magic;
    _Atomic uint64_t changes;    /* how often a slot was opened or closed */
    _Atomic uint32_t slots_used; /* none was, from here on */
    uint32_t reserved0;
    uint64_t proof_address; /* where `proof` lies in the host's memory */
    uint8_t proof[16];
    uint64_t reserved[2];
    _Atomic uint32_t log[SHM_LOG]; /* change n, counted from 0, was at slot log[n % SHM_LOG], until n + SHM_LOG */
    struct shm_slot slots[SHM_SLOTS];
};

struct shm_counters {
    _Atomic uint32_t copies[SHM_SLOTS];
};

_Static_assert(sizeof(struct shm_slot) == 64, "a slot is a cache line");
_Static_assert(sizeof(struct shm_page) == 64 + 4 * SHM_LOG + 64 * SHM_SLOTS, "the page has no holes");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "atomics are shared between processes");

/* Packets on the UNIX socket. The guest's first is HELLO, answered by WELCOME with the two pages' descriptors (region
 * page, then counters); then any number of MAP, each answered by MAPPED with the memory's descriptor when its status is
 * MC_OK. RING, at most once, is answered by RINGED, with the descriptors of a ring (net/ring.h: the memory, then the guest's
 * end of the bell) when its status is MC_OK. */
enum shm_kind { SHM_HELLO = 1, SHM_WELCOME, SHM_MAP, SHM_MAPPED, SHM_RING, SHM_RINGED };

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

/* net/ring.c - a stream of bytes through two rings in shared memory.
 *
 * Memory: a page of words, then the bytes that go to the host, then those that go to the guest. Positions count bytes
 * from 0 for ever; a ring's byte n lies at n % RING_BYTES. Each side keeps its own two positions to itself, writes them
 * to the memory for the other, and reads the other's from there: a difference above RING_BYTES is a broken protocol,
 * everything else is right enough to touch nothing but the ring.
 *
 * Sleeping: who is about to sleep sets its word, and looks once more; who has moved a position looks at the other's
 * word, with a full fence between the two on both sides, so one of them sees the other. Whoever finds the word set takes
 * it down and rings. A bell too many is harmless.
 */
#include "net/ring.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "os/fork.h"
#include "os/memfd.h"
#include "os/socket.h"

#define WORDS_SIZE 4096u
#define LINE 128 /* processors fetch cache lines by twos */

/* One direction's words, each written by one side. */
struct way {
    _Alignas(LINE) _Atomic uint64_t tail; /* written up to here. By the writer */
    _Atomic uint32_t writer_waits;        /* for place; set by the writer, taken down by either */
    _Alignas(LINE) _Atomic uint64_t head; /* read up to here. By the reader */
    _Atomic uint32_t reader_sleeps;       /* set by the reader, taken down by either */
};

struct words {
    struct way ways[2]; /* by the side that reads: RING_HOST, RING_GUEST */
};

_Static_assert(sizeof(struct words) <= WORDS_SIZE, "the words fit in front of the bytes");
_Static_assert(offsetof(struct way, writer_waits) == 8 && offsetof(struct way, head) == LINE &&
                   offsetof(struct way, reader_sleeps) == LINE + 8 && sizeof(struct way) == (size_t)2 * LINE,
               "the other side may be of another build");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "atomics are shared between processes");

struct ring {
    struct way *in, *out;
    uint8_t *in_bytes, *out_bytes;
    uint64_t head;      /* of in */
    uint64_t tail;      /* of out */
    uint64_t seen_head; /* of out, when last looked; never nonsense */
    bool asleep;        /* the word may be set */
    bool ended;         /* the bell is broken */
    int bell;
    void *mapping; /* NULL: the memory is somebody else's */
};

size_t ring_memory_size(void) {
    return memfd_round(WORDS_SIZE + (size_t)2 * RING_BYTES);
}

struct ring *ring_on(void *memory, enum ring_side side, int bell_fd) {
    struct ring *ring = calloc(1, sizeof(*ring));
    enum ring_side other = side == RING_HOST ? RING_GUEST : RING_HOST;
    struct words *words = memory;
    uint8_t *bytes = (uint8_t *)memory + WORDS_SIZE;

    if (ring == NULL) {
        socket_close(bell_fd);
        return NULL;
    }
    ring->in = &words->ways[side];
    ring->out = &words->ways[other];
    ring->in_bytes = bytes + (size_t)side * RING_BYTES;
    ring->out_bytes = bytes + (size_t)other * RING_BYTES;
    ring->bell = bell_fd;
    ring->asleep = true;
    atomic_store(&ring->in->reader_sleeps, 1);
    return ring;
}

struct ring *ring_make(int *ret_memory_fd, int *ret_bell_fd) {
    struct ring *ring = NULL;
    int memory_fd, bells[2];
    void *memory;

    if (memfd_make("mooncake-ring", ring_memory_size(), &memory_fd, &memory) != 0)
        return NULL;
    if (socket_unix_pair(bells) == 0) {
        ring = ring_on(memory, RING_HOST, bells[0]);
        if (ring == NULL)
            socket_close(bells[1]);
    }
    if (ring == NULL) {
        memfd_unmap(memory, ring_memory_size());
        fork_close(memory_fd);
        return NULL;
    }
    ring->mapping = memory;
    atomic_store(&ring->out->reader_sleeps, 1); /* until the guest is there */
    *ret_memory_fd = memory_fd;
    *ret_bell_fd = bells[1];
    return ring;
}

struct ring *ring_map(int memory_fd, int bell_fd) {
    struct ring *ring;
    void *memory;

    if (memfd_map(memory_fd, 0, ring_memory_size(), true, &memory) != 0) {
        socket_close(bell_fd);
        return NULL;
    }
    ring = ring_on(memory, RING_GUEST, bell_fd);
    if (ring == NULL)
        memfd_unmap(memory, ring_memory_size());
    else
        ring->mapping = memory;
    return ring;
}

struct ring *ring_close(struct ring *ring) {
    if (ring == NULL)
        return NULL;
    socket_close(ring->bell);
    if (ring->mapping != NULL)
        memfd_unmap(ring->mapping, ring_memory_size());
    free(ring);
    return NULL;
}

int ring_bell(const struct ring *ring) {
    return ring->bell;
}

/* A full socket is as good: the byte that it needs is in it. A broken one is found by who reads it. */
static void wake(const struct ring *ring, _Atomic uint32_t *word) {
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(word, memory_order_relaxed) != 0 && atomic_exchange(word, 0) != 0)
        (void)send(ring->bell, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ---- Positions: all there is to check ---- */

/* Bytes that can be read; -1 if the other side's position is nonsense. */
static int64_t readable(const struct ring *ring) {
    uint64_t count = atomic_load_explicit(&ring->in->tail, memory_order_acquire) - ring->head;

    return count <= RING_BYTES ? (int64_t)count : -1;
}

/* Bytes that can be written; likewise. */
static int64_t writable(struct ring *ring) {
    uint64_t head = atomic_load_explicit(&ring->out->head, memory_order_acquire);

    if (ring->tail - head > RING_BYTES)
        return -1;
    ring->seen_head = head;
    return (int64_t)(RING_BYTES - (ring->tail - head));
}

/* ---- Bytes ---- */

static void copy_in(struct ring *ring, const uint8_t *from, size_t length) {
    size_t at = ring->tail % RING_BYTES;
    size_t first = length < RING_BYTES - at ? length : RING_BYTES - at;

    memcpy(ring->out_bytes + at, from, first);
    if (length > first)
        memcpy(ring->out_bytes, from + first, length - first);
    ring->tail += length;
}

static void copy_out(struct ring *ring, uint8_t *to, size_t length) {
    size_t at = ring->head % RING_BYTES;
    size_t first = length < RING_BYTES - at ? length : RING_BYTES - at;

    memcpy(to, ring->in_bytes + at, first);
    if (length > first)
        memcpy(to + first, ring->in_bytes, length - first);
    ring->head += length;
}

/* Place to write; when there is less than wanted, the other side is asked to say when there is more. -1: nonsense. */
static int64_t find_place(struct ring *ring, size_t wanted) {
    int64_t place = (int64_t)(RING_BYTES - (ring->tail - ring->seen_head));

    if ((uint64_t)place < wanted)
        place = writable(ring);
    if (place < 0 || (uint64_t)place >= wanted)
        return place;
    atomic_store(&ring->out->writer_waits, 1);
    atomic_thread_fence(memory_order_seq_cst);
    return writable(ring);
}

int64_t ring_send(struct ring *ring, const struct iovec *parts, int count) {
    size_t wanted = 0, left;
    int64_t place;

    if (ring->ended) {
        errno = ECONNRESET;
        return -1;
    }
    for (int i = 0; i < count; i++)
        wanted += parts[i].iov_len;
    place = find_place(ring, wanted);
    if (place <= 0) {
        errno = place < 0 ? EPROTO : EAGAIN;
        return -1;
    }
    left = (size_t)place < wanted ? (size_t)place : wanted;
    wanted = left;
    for (int i = 0; i < count && left > 0; i++) {
        size_t length = parts[i].iov_len < left ? parts[i].iov_len : left;

        if (length > 0)
            copy_in(ring, parts[i].iov_base, length);
        left -= length;
    }
    atomic_store_explicit(&ring->out->tail, ring->tail, memory_order_release);
    wake(ring, &ring->out->reader_sleeps);
    return (int64_t)wanted;
}

int64_t ring_receive(struct ring *ring, const struct iovec *parts, int count) {
    int64_t there = readable(ring);
    size_t left = (size_t)there, got = 0;

    if (ring->asleep) {
        ring->asleep = false;
        atomic_store_explicit(&ring->in->reader_sleeps, 0, memory_order_relaxed);
    }
    if (there == 0 && ring->ended)
        return 0;
    if (there <= 0) {
        errno = there < 0 ? EPROTO : EAGAIN;
        return -1;
    }
    for (int i = 0; i < count && left > 0; i++) {
        size_t length = parts[i].iov_len < left ? parts[i].iov_len : left;

        if (length > 0)
            copy_out(ring, parts[i].iov_base, length);
        left -= length;
        got += length;
    }
    atomic_store_explicit(&ring->in->head, ring->head, memory_order_release);
    wake(ring, &ring->in->writer_waits);
    return (int64_t)got;
}

/* ---- Sleeping ---- */

/* The end and nonsense are something, too: whoever moves bytes next finds them. */
bool ring_peek(struct ring *ring, bool receiving, bool sending) {
    return (receiving && (ring->ended || readable(ring) != 0)) || (sending && (ring->ended || writable(ring) != 0));
}

bool ring_sleep(struct ring *ring, bool receiving, bool sending) {
    if (receiving) {
        ring->asleep = true;
        atomic_store(&ring->in->reader_sleeps, 1);
    }
    if (sending)
        atomic_store(&ring->out->writer_waits, 1);
    atomic_thread_fence(memory_order_seq_cst);
    return !ring_peek(ring, receiving, sending);
}

/* One call: who rings on and on mustn't keep this thread. What is left makes the descriptor readable again. */
void ring_heed(struct ring *ring) {
    uint8_t rung[1024];
    ssize_t got;

    do
        got = recv(ring->bell, rung, sizeof(rung), MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK))
        ring->ended = true;
}

/* peer.h - the other end of a connection, played by the test itself with blocking calls.
 *
 * All calls give up after PEER_PATIENCE, so that a failing test ends. They return false or -1 instead of asserting, so
 * that a helper thread may use them too.
 */
#ifndef MC_TEST_PEER_H
#define MC_TEST_PEER_H

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mooncake/error.h>

#include "base/clock.h"
#include "os/address.h"
#include "os/loop.h"
#include "os/socket.h"
#include "os/thread.h"
#include "wire/frame.h"
#include "wire/preface.h"

#define PEER_PATIENCE (20 * CLOCK_SECOND)

/* ---- A counter that threads wait on ---- */

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int count;
};

static inline void gate_init(struct gate *gate) {
    pthread_mutex_init(&gate->lock, NULL);
    thread_cond_init(&gate->changed);
    gate->count = 0;
}

static inline void gate_destroy(struct gate *gate) {
    pthread_cond_destroy(&gate->changed);
    pthread_mutex_destroy(&gate->lock);
}

static inline void gate_step(struct gate *gate) {
    pthread_mutex_lock(&gate->lock);
    gate->count++;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

static inline int gate_count(struct gate *gate) {
    int count;

    pthread_mutex_lock(&gate->lock);
    count = gate->count;
    pthread_mutex_unlock(&gate->lock);
    return count;
}

static inline void gate_await(struct gate *gate, int count) {
    uint64_t deadline = clock_after(clock_now(), PEER_PATIENCE);

    pthread_mutex_lock(&gate->lock);
    while (gate->count < count)
        if (thread_cond_wait(&gate->changed, &gate->lock, deadline) == ETIMEDOUT)
            abort(); /* which shows where, in each thread */
    pthread_mutex_unlock(&gate->lock);
}

/* ---- The loop's thread ---- */

static inline void nothing(void *context) {
    (void)context;
}

/* Returns when the loop has seen everything that was ready before. */
static inline void loop_flush(struct loop *loop) {
    loop_run(loop, nothing, NULL);
    loop_run(loop, nothing, NULL);
}

/* ---- Bytes ---- */

/* Blocking with a time-out, and without a delay where it is TCP. */
static inline void peer_patience(int fd) {
    struct timeval patience = {.tv_sec = PEER_PATIENCE / CLOCK_SECOND};
    int on = 1;

    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

static inline bool peer_send(int fd, const void *bytes, size_t length) {
    const uint8_t *next = bytes;

    while (length > 0) {
        ssize_t sent = send(fd, next, length, MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        next += sent;
        length -= (size_t)sent;
    }
    return true;
}

static inline bool peer_receive(int fd, void *bytes, size_t length) {
    uint8_t *next = bytes;

    while (length > 0) {
        ssize_t got = recv(fd, next, length, 0);

        if (got <= 0)
            return false;
        next += got;
        length -= (size_t)got;
    }
    return true;
}

/* Takes whatever still comes, up to the end of the stream. False if it doesn't end. */
static inline bool peer_ended(int fd) {
    uint8_t bytes[4096];
    ssize_t got;

    while ((got = recv(fd, bytes, sizeof(bytes), 0)) > 0)
        continue;
    return got == 0 || errno == ECONNRESET;
}

/* ---- Frames ---- */

static inline bool peer_send_frame(int fd, const struct frame *frame, const void *payload) {
    uint8_t header[FRAME_SIZE];

    frame_pack(frame, header);
    return peer_send(fd, header, sizeof(header)) && peer_send(fd, payload, frame->payload);
}

/* The payload must fit into `capacity`. */
static inline bool peer_receive_frame(int fd, struct frame *ret_frame, void *payload, size_t capacity) {
    uint8_t header[FRAME_SIZE];

    return peer_receive(fd, header, sizeof(header)) && frame_unpack(header, ret_frame) == MC_OK &&
           ret_frame->payload <= capacity && peer_receive(fd, payload, ret_frame->payload);
}

/* A reply to `request` with `status`. */
static inline struct frame peer_reply(const struct frame *request, int32_t status) {
    return (struct frame){.type = request->type | FRAME_REPLY, .id = request->id, .status = status};
}

/* ---- Prefaces, without a key ---- */

static inline bool peer_greet_as_client(int fd, const uint8_t incarnation[16], const uint8_t expected[16],
                                        int32_t *ret_status) {
    struct preface_hello hello = {.version_min = PREFACE_VERSION_MIN, .version_max = PREFACE_VERSION_MAX};
    struct preface_proof proof = {.status = MC_OK};
    uint8_t bytes[PREFACE_HELLO_SIZE];

    memcpy(hello.incarnation, incarnation, 16);
    if (expected != NULL)
        memcpy(hello.expected, expected, 16);
    preface_pack_hello(&hello, bytes);
    if (!peer_send(fd, bytes, PREFACE_HELLO_SIZE) || !peer_receive(fd, bytes, PREFACE_HELLO_SIZE))
        return false;
    preface_pack_proof(&proof, bytes);
    if (!peer_send(fd, bytes, PREFACE_PROOF_SIZE) || !peer_receive(fd, bytes, PREFACE_PROOF_SIZE) ||
        preface_unpack_proof(bytes, &proof) != MC_OK)
        return false;
    *ret_status = proof.status;
    return true;
}

static inline bool peer_greet_as_server(int fd, const uint8_t incarnation[16], int32_t status) {
    struct preface_hello hello = {.version_min = PREFACE_VERSION_MIN, .version_max = PREFACE_VERSION_MAX};
    struct preface_proof proof = {.status = status, .version = PREFACE_VERSION_MAX};
    uint8_t bytes[PREFACE_HELLO_SIZE];

    memcpy(hello.incarnation, incarnation, 16);
    if (!peer_receive(fd, bytes, PREFACE_HELLO_SIZE))
        return false;
    preface_pack_hello(&hello, bytes);
    if (!peer_send(fd, bytes, PREFACE_HELLO_SIZE) || !peer_receive(fd, bytes, PREFACE_PROOF_SIZE))
        return false;
    preface_pack_proof(&proof, bytes);
    return peer_send(fd, bytes, PREFACE_PROOF_SIZE);
}

/* ---- Loopback ---- */

static inline struct address peer_loopback(void) {
    struct address address;
    size_t count = 0;

    if (address_resolve("127.0.0.1", 0, &address, 1, &count, NULL) != MC_OK)
        abort();
    return address;
}

/* A blocking listener on a free port. */
static inline int peer_listen(struct address *ret_bound) {
    struct address any = peer_loopback();
    int fd = -1;

    if (socket_listen(&any, 16, &fd, ret_bound, NULL) != MC_OK)
        abort();
    peer_patience(fd);
    return fd;
}

static inline int peer_accept(int listener) {
    int fd = accept(listener, NULL, NULL);

    if (fd >= 0)
        peer_patience(fd);
    return fd;
}

static inline int peer_connect(const struct address *address) {
    int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (const struct sockaddr *)&address->storage, address->length) != 0)
        abort();
    peer_patience(fd);
    return fd;
}

#endif

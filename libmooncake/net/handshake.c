/* net/handshake.c - HELLO, HELLO, PROOF, ACCEPT.
 *
 * The client proves first, so a stranger never gets a proof of the server's to try keys on.
 */
#include "net/handshake.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

static const uint8_t anyone[16];

/* Packs this end's HELLO and puts it into the queue. */
static int32_t say_hello(struct handshake *handshake, const uint8_t *expected) {
    uint8_t *mine = handshake->role == AUTH_CLIENT ? handshake->client : handshake->server;
    struct preface_hello hello = {
        .version_min = PREFACE_VERSION_MIN,
        .version_max = PREFACE_VERSION_MAX,
        .flags = handshake->self->auth != NULL ? PREFACE_FLAG_KEY : 0,
    };
    int32_t status = auth_random(hello.nonce, sizeof(hello.nonce));

    if (status != MC_OK)
        return status;
    memcpy(hello.incarnation, handshake->self->incarnation, sizeof(hello.incarnation));
    if (expected != NULL)
        memcpy(hello.expected, expected, sizeof(hello.expected));
    preface_pack_hello(&hello, mine);
    memcpy(handshake->out + handshake->out_end, mine, PREFACE_HELLO_SIZE);
    handshake->out_end += PREFACE_HELLO_SIZE;
    return MC_OK;
}

/* Puts this end's PROOF or ACCEPT into the queue; without the proof where the other end is refused. */
static int32_t say_proof(struct handshake *handshake) {
    struct preface_proof proof = {.status = handshake->verdict, .version = handshake->version};
    int32_t status = MC_OK;

    if (handshake->verdict == MC_OK)
        status = auth_prove(handshake->self->auth, handshake->role, handshake->client, handshake->server, proof.proof);
    if (status != MC_OK)
        return status;
    if (handshake->role == AUTH_CLIENT)
        proof.version = 0;
    preface_pack_proof(&proof, handshake->out + handshake->out_end);
    handshake->out_end += PREFACE_PROOF_SIZE;
    return MC_OK;
}

int32_t handshake_begin(struct handshake *handshake, const struct identity *self, enum auth_role role,
                        const uint8_t expected[16]) {
    memset(handshake, 0, sizeof(*handshake));
    handshake->self = self;
    handshake->role = role;
    handshake->phase = HANDSHAKE_HELLO;
    if (role == AUTH_CLIENT)
        return say_hello(handshake, expected);
    return MC_OK;
}

void handshake_refuse(struct handshake *handshake, int32_t status) {
    handshake->verdict = status;
}

static bool has_key(const struct handshake *handshake) {
    return handshake->self->auth != NULL;
}

/* The client has the server's HELLO: answers with its proof. */
static int32_t answer_hello(struct handshake *handshake) {
    /* A connection to a free local port can meet itself. */
    if (memcmp(handshake->client, handshake->server, PREFACE_HELLO_SIZE) == 0)
        return MC_ERR_UNREACHABLE;
    if (has_key(handshake) != ((handshake->other.flags & PREFACE_FLAG_KEY) != 0))
        return MC_ERR_AUTHENTICATION;
    return say_proof(handshake);
}

/* The server has the client's proof: answers with its verdict, which tells strangers nothing but that they are. */
static int32_t answer_proof(struct handshake *handshake) {
    struct preface_proof proof;
    int32_t status = preface_unpack_proof(handshake->proof, &proof);
    bool expected = memcmp(handshake->other.expected, anyone, sizeof(anyone)) == 0 ||
                    memcmp(handshake->other.expected, handshake->self->incarnation, sizeof(anyone)) == 0;

    if (status != MC_OK)
        return status;
    if (!auth_check(handshake->self->auth, AUTH_CLIENT, handshake->client, handshake->server, proof.proof))
        handshake->verdict = MC_ERR_AUTHENTICATION;
    else if (handshake->verdict == MC_OK && handshake->version == 0)
        handshake->verdict = MC_ERR_VERSION;
    else if (handshake->verdict == MC_OK && !expected)
        handshake->verdict = MC_ERR_STALE_PEER;
    return say_proof(handshake);
}

/* The client has the server's verdict. */
static int32_t judge_accept(struct handshake *handshake) {
    struct preface_proof accept;
    int32_t status = preface_unpack_proof(handshake->proof, &accept);

    if (status != MC_OK)
        return status;
    if (accept.status > 0)
        return MC_ERR_PROTOCOL;
    if (accept.status != MC_OK)
        return accept.status;
    if (!auth_check(handshake->self->auth, AUTH_SERVER, handshake->client, handshake->server, accept.proof))
        return MC_ERR_AUTHENTICATION;
    return accept.version == handshake->version ? MC_OK : MC_ERR_VERSION;
}

/* A message is complete. */
static int32_t digest(struct handshake *handshake) {
    int32_t status;

    if (handshake->phase == HANDSHAKE_PROOF) {
        handshake->phase = HANDSHAKE_DONE;
        return handshake->role == AUTH_SERVER ? answer_proof(handshake) : judge_accept(handshake);
    }
    handshake->phase = HANDSHAKE_PROOF;
    status =
        preface_unpack_hello(handshake->role == AUTH_SERVER ? handshake->client : handshake->server, &handshake->other);
    if (status != MC_OK)
        return status;
    handshake->version =
        preface_choose(&(struct preface_hello){.version_min = PREFACE_VERSION_MIN, .version_max = PREFACE_VERSION_MAX},
                       &handshake->other);
    return handshake->role == AUTH_SERVER ? say_hello(handshake, NULL) : answer_hello(handshake);
}

static int32_t send_out(struct handshake *handshake, int fd) {
    while (handshake_sending(handshake)) {
        ssize_t sent = send(fd, handshake->out + handshake->out_start, handshake->out_end - handshake->out_start,
                            MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? MC_ERR_PENDING : MC_ERR_CONNECTION_LOST;
        handshake->out_start += (uint32_t)sent;
    }
    handshake->out_start = handshake->out_end = 0;
    return MC_OK;
}

/* Receives into the message that is due; MC_OK when it is complete. */
static int32_t receive_in(struct handshake *handshake, int fd) {
    uint8_t *message = handshake->proof;
    uint32_t size = PREFACE_PROOF_SIZE;

    if (handshake->phase == HANDSHAKE_HELLO) {
        message = handshake->role == AUTH_SERVER ? handshake->client : handshake->server;
        size = PREFACE_HELLO_SIZE;
    }
    while (handshake->in < size) {
        ssize_t got = recv(fd, message + handshake->in, size - handshake->in, MSG_DONTWAIT);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return MC_ERR_PENDING;
        if (got <= 0)
            return MC_ERR_CONNECTION_LOST;
        handshake->in += (uint32_t)got;
    }
    handshake->in = 0;
    return MC_OK;
}

int32_t handshake_step(struct handshake *handshake, int fd) {
    int32_t status = send_out(handshake, fd);

    while (status == MC_OK && handshake->phase != HANDSHAKE_DONE) {
        status = receive_in(handshake, fd);
        if (status == MC_OK)
            status = digest(handshake);
        if (status == MC_OK)
            status = send_out(handshake, fd);
    }
    return status != MC_OK ? status : handshake->verdict;
}

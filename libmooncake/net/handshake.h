/* net/handshake.h - the preface of a connection (wire/preface.h), driven step by step over a non-blocking socket.
 *
 * Belongs to one lane or session and is guarded by its lock or thread. Nothing is received beyond the preface.
 */
#ifndef MC_NET_HANDSHAKE_H
#define MC_NET_HANDSHAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "net/auth.h"
#include "wire/preface.h"

/* What an end of a connection is and wants; lives longer than its handshakes. */
struct identity {
    const struct auth *auth; /* NULL: no key */
    uint8_t incarnation[16];
};

struct handshake {
    const struct identity *self;
    enum auth_role role;
    enum { HANDSHAKE_HELLO, HANDSHAKE_PROOF, HANDSHAKE_DONE } phase; /* what is received next */
    int32_t verdict;                                                 /* server: what its ACCEPT says */
    uint16_t version;                                                /* agreed, when done */
    uint32_t in;                                                     /* bytes of the current message that have come */
    uint32_t out_start;                                              /* out[out_start, out_end) is to be sent */
    uint32_t out_end;
    struct preface_hello other;
    uint8_t client[PREFACE_HELLO_SIZE]; /* both HELLOs, as sent */
    uint8_t server[PREFACE_HELLO_SIZE];
    uint8_t proof[PREFACE_PROOF_SIZE];
    uint8_t out[PREFACE_HELLO_SIZE + PREFACE_PROOF_SIZE];
};

/* Begins; `expected` (client: the incarnation that must answer) may be NULL. MC_ERR_SYSTEM (no random numbers). */
int32_t handshake_begin(struct handshake *handshake, const struct identity *self, enum auth_role role,
                        const uint8_t expected[16]);

/* Sends and receives what it can. MC_OK when done and sent, MC_ERR_PENDING while there is more to wait for, else the
 * reason why the connection must be closed: MC_ERR_AUTHENTICATION, MC_ERR_VERSION, MC_ERR_STALE_PEER, MC_ERR_PROTOCOL,
 * MC_ERR_CONNECTION_LOST, MC_ERR_TOO_MANY. */
int32_t handshake_step(struct handshake *handshake, int fd);

/* Server, before the first step: the ACCEPT will say `status` to whoever has the key. */
void handshake_refuse(struct handshake *handshake, int32_t status);

static inline bool handshake_sending(const struct handshake *handshake) {
    return handshake->out_start < handshake->out_end;
}

#endif

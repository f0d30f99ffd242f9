/* transports/shm/invitations.h - tokens that a host has given and that haven't been shown yet. One thread at a time. */
#ifndef MC_TRANSPORTS_SHM_INVITATIONS_H
#define MC_TRANSPORTS_SHM_INVITATIONS_H

#include <stdbool.h>
#include <stdint.h>

#define SHM_INVITATIONS 1024u
#define SHM_INVITATION_TIME (10 * CLOCK_SECOND)

/* A client, which is an incarnation, has at most one: it can take nobody else's place. */
struct shm_invitation {
    uint8_t client[16];
    uint8_t token[16];
    uint8_t answer[16];
    uint64_t ends; /* 0: not given, or used */
};

struct shm_invitations {
    struct shm_invitation places[SHM_INVITATIONS];
};

/* Gives the client one, with a random token and answer, in place of the one that it has. MC_ERR_TOO_MANY while all
 * places are others', MC_ERR_SYSTEM without random numbers. */
int32_t shm_invitations_give(struct shm_invitations *invitations, const uint8_t client[16], uint64_t now,
                             uint8_t ret_token[16], uint8_t ret_answer[16]);

/* Uses the invitation with that token up, and stores whose it was. False if there is none, or no more. */
bool shm_invitations_redeem(struct shm_invitations *invitations, const uint8_t token[16], uint64_t now,
                            uint8_t ret_client[16], uint8_t ret_answer[16]);

#endif

/* transports/shm/invitations.c - tokens that a host has given and that haven't been shown yet.
 *
 * Owns nothing but the table, which is the host's. No thread of its own, no lock, no I/O.
 *
 * Invariant: of the places that haven't ended, no two have the same client.
 */
#include "transports/shm/invitations.h"

#include <stddef.h>
#include <string.h>

#include <mooncake/error.h>

#include "base/clock.h"
#include "net/auth.h"

/* The client's own place, else one that is free; NULL while there is none. */
static struct shm_invitation *place_for(struct shm_invitations *invitations, const uint8_t client[16], uint64_t now) {
    struct shm_invitation *unused = NULL;

    for (uint32_t i = 0; i < SHM_INVITATIONS; i++) {
        struct shm_invitation *place = &invitations->places[i];

        if (place->ends <= now)
            unused = place;
        else if (memcmp(place->client, client, 16) == 0)
            return place;
    }
    return unused;
}

int32_t shm_invitations_give(struct shm_invitations *invitations, const uint8_t client[16], uint64_t now,
                             uint8_t ret_token[16], uint8_t ret_answer[16]) {
    struct shm_invitation *place = place_for(invitations, client, now);
    struct shm_invitation given = {.ends = clock_after(now, SHM_INVITATION_TIME)};

    if (place == NULL)
        return MC_ERR_TOO_MANY;
    if (auth_random(given.token, 16) != MC_OK || auth_random(given.answer, 16) != MC_OK)
        return MC_ERR_SYSTEM;
    memcpy(given.client, client, 16);
    *place = given;
    memcpy(ret_token, given.token, 16);
    memcpy(ret_answer, given.answer, 16);
    return MC_OK;
}

bool shm_invitations_redeem(struct shm_invitations *invitations, const uint8_t token[16], uint64_t now,
                            uint8_t ret_client[16], uint8_t ret_answer[16]) {
    for (uint32_t i = 0; i < SHM_INVITATIONS; i++) {
        struct shm_invitation *place = &invitations->places[i];

        if (place->ends > now && memcmp(place->token, token, 16) == 0) {
            memcpy(ret_client, place->client, 16);
            memcpy(ret_answer, place->answer, 16);
            memset(place, 0, sizeof(*place));
            return true;
        }
    }
    return false;
}

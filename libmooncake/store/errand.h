/* store/errand.h - a request on its way to the master or an owner, for which nobody waits in person.
 *
 * An errand is embedded in its owner, who keeps it and the request until `done` was called, and then calls errand_end
 * from where no lock is held.
 */
#ifndef MC_STORE_ERRAND_H
#define MC_STORE_ERRAND_H

#include <stdint.h>

#include "base/list.h"
#include "base/ref.h"
#include "net/channel.h"
#include "net/server.h"
#include "wire/outbox.h"

/* Bytes that any answer takes. */
#define ANSWER_MAX (1u << 20)

struct errand {
    struct list node;       /* its owner's */
    struct letter *request; /* the owner's */
    /* Set before done: the answer's letter, the owner's to free, or NULL where there is none and status says why. */
    struct letter *answer;
    int32_t status;
    /* Called once, from any thread, maybe within errand_go, and maybe under a lock of who carries it: may only note it.
     */
    void (*done)(struct errand *errand);
    struct ref *hold; /* what keeps the channel; NULL in this process */
    uint64_t sent;    /* when */
    /* errand.c's. */
    struct carrier *carrier;
};

/* Sends it over the channel, which `hold` keeps. */
void errand_go(struct errand *errand, struct channel *channel, struct ref *hold);

/* It never left. Calls done. */
void errand_fail(struct errand *errand, int32_t status);

/* Ends one on its way over a channel; on return done was called. */
void errand_cancel(struct errand *errand, int32_t status);

void errand_end(struct errand *errand);

/* The same with waiting, driven by the caller. The answer's letter is the caller's to free. */
int32_t errand_call(struct channel *channel, const struct letter *request, uint64_t deadline,
                    struct letter **ret_answer);

/* The other side: puts an answer's letter (NULL: it is over) into the reply; the reply's status. */
int32_t errand_reply(struct exchange *exchange, const struct letter *letter);

#endif

/* net/clients.h - how many connections of each client incarnation a server has, and who is told when the last has gone.
 *
 * Owns one entry for each client that is there. A client is counted once for each of its sessions past the preface, and
 * once for each other way in that a transport keeps for it.
 *
 * Threads: joining, leaving and watching on the loop's thread; counting on any, `lock` guards the table. `lost` is
 * called without it, and may call back.
 */
#ifndef MC_NET_CLIENTS_H
#define MC_NET_CLIENTS_H

#include <pthread.h>
#include <stdint.h>

#include "base/list.h"

#define CLIENTS_BUCKETS 256u

struct clients {
    pthread_mutex_t lock;
    struct list buckets[CLIENTS_BUCKETS]; /* by the first byte of an incarnation, which is random */
    void (*lost)(void *context, const uint8_t incarnation[16]);
    void *context;
};

void clients_init(struct clients *clients);
void clients_destroy(struct clients *clients);

/* From now on `lost` is called whenever the count of a client has fallen to zero; NULL: nobody is. */
void clients_watch(struct clients *clients, void (*lost)(void *context, const uint8_t incarnation[16]), void *context);

/* One more. MC_ERR_NO_MEMORY. */
int32_t clients_join(struct clients *clients, const uint8_t incarnation[16]);

/* One less, of those that joined. */
void clients_leave(struct clients *clients, const uint8_t incarnation[16]);

uint32_t clients_count(struct clients *clients, const uint8_t incarnation[16]);

#endif

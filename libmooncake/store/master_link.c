/* store/master_link.c - the way to the master.
 *
 * `lock` guards `current`: the connection to one incarnation of the master, counted by those who use it. When that
 * incarnation is gone, a chore connects to the next one.
 */
#include "store/master_link.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/ref.h"
#include "base/status.h"
#include "base/text.h"
#include "net/channel.h"

#define LANES 2u
#define RETRY (100 * CLOCK_MILLISECOND)

struct connection_to_master {
    struct ref ref;
    struct channel *channel;
};

struct master_link {
    struct master_service *inside; /* or else: */
    struct engine *engine;
    struct chores *chores;
    char address[ADDRESS_TEXT_MAX];
    pthread_mutex_t lock;
    struct connection_to_master *current; /* NULL: none */
    uint64_t retry_at;                    /* not before */
    bool closed;
    struct chore connect;
};

static void connection_destroy(struct ref *ref) {
    struct connection_to_master *connection = list_entry(ref, struct connection_to_master, ref);

    channel_close(connection->channel);
    free(connection);
}

static int32_t connect_to(struct master_link *link, uint64_t timeout, struct connection_to_master **ret_connection,
                          struct mc_error *error) {
    const struct channel_options options = {
        .loop = link->engine->loop,
        .self = &link->engine->identity,
        .connect_timeout = timeout,
        .lanes = LANES,
    };
    struct connection_to_master *connection = calloc(1, sizeof(*connection));
    int32_t status;

    if (connection == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    ref_init(&connection->ref, connection_destroy);
    status = channel_new(link->address, &options, &connection->channel, error);
    if (status == MC_OK)
        status = channel_greet(connection->channel, error);
    if (status != MC_OK) {
        ref_drop(&connection->ref);
        return status;
    }
    engine_speed_up(link->engine, connection->channel);
    *ret_connection = connection;
    return MC_OK;
}

static void connect_again(struct chore *chore) {
    struct master_link *link = list_entry(chore, struct master_link, connect);
    struct connection_to_master *connection = NULL;
    int32_t status;

    pthread_mutex_lock(&link->lock);
    status = link->closed || link->current != NULL || clock_now() < link->retry_at ? MC_ERR_BUSY : MC_OK;
    pthread_mutex_unlock(&link->lock);
    if (status != MC_OK || connect_to(link, CLOCK_SECOND, &connection, NULL) != MC_OK)
        connection = NULL;
    pthread_mutex_lock(&link->lock);
    if (connection == NULL && status == MC_OK)
        link->retry_at = clock_after(clock_now(), RETRY);
    if (connection != NULL && !link->closed) {
        link->current = connection;
        connection = NULL;
    }
    pthread_mutex_unlock(&link->lock);
    if (connection != NULL)
        ref_drop(&connection->ref);
}

/* The connection with a reference, or NULL: then one is being made. */
static struct connection_to_master *take_connection(struct master_link *link) {
    struct connection_to_master *connection;
    bool connect;

    pthread_mutex_lock(&link->lock);
    connection = link->current;
    if (connection != NULL)
        ref_take(&connection->ref);
    connect = connection == NULL && !link->closed && clock_now() >= link->retry_at;
    pthread_mutex_unlock(&link->lock);
    if (connect)
        chores_post(link->chores, &link->connect);
    return connection;
}

/* That incarnation of the master is gone. */
static void lose(struct master_link *link, struct connection_to_master *connection) {
    bool mine;

    pthread_mutex_lock(&link->lock);
    mine = link->current == connection;
    if (mine)
        link->current = NULL;
    pthread_mutex_unlock(&link->lock);
    if (mine) {
        ref_drop(&connection->ref);
        chores_post(link->chores, &link->connect);
    }
}

int32_t master_link_call(struct master_link *link, const struct letter *request, uint64_t deadline,
                         struct letter **ret_answer) {
    struct connection_to_master *connection;
    int32_t status;

    if (link->inside != NULL)
        return master_service_call(link->inside, request, deadline, ret_answer);
    connection = take_connection(link);
    if (connection == NULL)
        return MC_ERR_UNREACHABLE;
    status = errand_call(connection->channel, request, deadline, ret_answer);
    if (status == MC_ERR_STALE_PEER)
        lose(link, connection);
    ref_drop(&connection->ref);
    return status;
}

void master_link_begin(struct master_link *link, struct errand *errand) {
    struct connection_to_master *connection;

    if (link->inside != NULL) {
        master_service_begin(link->inside, errand);
        return;
    }
    connection = take_connection(link);
    if (connection == NULL) {
        errand_fail(errand, MC_ERR_UNREACHABLE);
        return;
    }
    errand_go(errand, connection->channel, &connection->ref);
    ref_drop(&connection->ref);
}

void master_link_end(struct master_link *link, struct errand *errand) {
    if (errand->status == MC_ERR_STALE_PEER && errand->hold != NULL)
        lose(link, list_entry(errand->hold, struct connection_to_master, ref));
    errand_end(errand);
}

/* ---- Opening and closing ---- */

static struct master_link *link_new(void) {
    struct master_link *link = calloc(1, sizeof(*link));

    if (link == NULL)
        return NULL;
    pthread_mutex_init(&link->lock, NULL);
    chore_init(&link->connect, connect_again);
    return link;
}

int32_t master_link_inside(struct master_service *service, struct master_link **ret_link) {
    struct master_link *link = link_new();

    if (link == NULL)
        return MC_ERR_NO_MEMORY;
    link->inside = service;
    *ret_link = link;
    return MC_OK;
}

int32_t master_link_open(struct engine *engine, struct chores *chores, const char *address, uint64_t deadline,
                         struct master_link **ret_link, struct mc_error *error) {
    struct master_link *link = link_new();
    uint64_t now = clock_now();
    int32_t status = MC_OK;

    if (link == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "out of memory");
    link->engine = engine;
    link->chores = chores;
    if (strlen(address) >= sizeof(link->address))
        status =
            status_set(error, MC_ERR_ADDRESS, 0, "the master's address is longer than %d bytes", ADDRESS_TEXT_MAX - 1);
    else
        text_copy(link->address, sizeof(link->address), address);
    if (status == MC_OK)
        status = connect_to(link, deadline > now ? deadline - now : 1, &link->current, error);
    if (status != MC_OK) {
        master_link_close(link);
        return status;
    }
    *ret_link = link;
    return MC_OK;
}

bool master_link_is_inside(const struct master_link *link) {
    return link->inside != NULL;
}

void master_link_interrupt(struct master_link *link) {
    struct connection_to_master *connection;

    if (link->inside != NULL) {
        master_service_interrupt(link->inside);
        return;
    }
    pthread_mutex_lock(&link->lock);
    connection = link->current;
    if (connection != NULL)
        ref_take(&connection->ref);
    pthread_mutex_unlock(&link->lock);
    if (connection == NULL)
        return;
    channel_break(connection->channel, MC_ERR_CLOSED);
    ref_drop(&connection->ref);
}

void master_link_break(struct master_link *link) {
    struct connection_to_master *connection;

    if (link->inside != NULL) {
        master_service_shut(link->inside);
        return;
    }
    pthread_mutex_lock(&link->lock);
    link->closed = true;
    connection = link->current;
    link->current = NULL;
    pthread_mutex_unlock(&link->lock);
    if (connection == NULL)
        return;
    channel_break(connection->channel, MC_ERR_CLOSED);
    ref_drop(&connection->ref);
}

struct master_link *master_link_close(struct master_link *link) {
    if (link == NULL)
        return NULL;
    if (link->current != NULL)
        ref_drop(&link->current->ref);
    pthread_mutex_destroy(&link->lock);
    free(link);
    return NULL;
}

/* store/chores.c - a queue of work and the threads that do it, in the order of posting. */
#include "store/chores.h"

#include <pthread.h>
#include <stdlib.h>

#include <mooncake/error.h>

#include "base/clock.h"
#include "os/thread.h"

struct chores {
    pthread_mutex_t lock;
    pthread_cond_t posted;
    struct list queue;
    bool stopping;
    uint32_t threads;
    pthread_t thread[];
};

static void *work(void *context) {
    struct chores *chores = context;

    pthread_mutex_lock(&chores->lock);
    for (;;) {
        struct chore *chore;

        while (list_empty(&chores->queue) && !chores->stopping)
            thread_cond_wait(&chores->posted, &chores->lock, CLOCK_NEVER);
        if (chores->stopping)
            break;
        chore = list_entry(chores->queue.next, struct chore, node);
        list_remove(&chore->node);
        chore->queued = false;
        pthread_mutex_unlock(&chores->lock);
        chore->run(chore);
        pthread_mutex_lock(&chores->lock);
    }
    pthread_mutex_unlock(&chores->lock);
    return NULL;
}

int32_t chores_start(const char *name, uint32_t threads, struct chores **ret_chores) {
    struct chores *chores = calloc(1, sizeof(*chores) + threads * sizeof(chores->thread[0]));

    if (chores == NULL)
        return MC_ERR_NO_MEMORY;
    pthread_mutex_init(&chores->lock, NULL);
    thread_cond_init(&chores->posted);
    list_init(&chores->queue);
    while (chores->threads < threads && thread_start(&chores->thread[chores->threads], name, work, chores) == 0)
        chores->threads++;
    if (chores->threads < threads) {
        chores_free(chores);
        return MC_ERR_SYSTEM;
    }
    *ret_chores = chores;
    return MC_OK;
}

void chores_stop(struct chores *chores) {
    struct list *node, *after;

    if (chores == NULL)
        return;
    pthread_mutex_lock(&chores->lock);
    chores->stopping = true;
    pthread_cond_broadcast(&chores->posted);
    pthread_mutex_unlock(&chores->lock);
    while (chores->threads > 0)
        pthread_join(chores->thread[--chores->threads], NULL);
    list_each (node, after, &chores->queue) {
        list_remove(node);
        list_entry(node, struct chore, node)->queued = false;
    }
}

struct chores *chores_free(struct chores *chores) {
    if (chores == NULL)
        return NULL;
    chores_stop(chores);
    pthread_cond_destroy(&chores->posted);
    pthread_mutex_destroy(&chores->lock);
    free(chores);
    return NULL;
}

void chores_post(struct chores *chores, struct chore *chore) {
    pthread_mutex_lock(&chores->lock);
    if (!chore->queued && !chores->stopping) {
        chore->queued = true;
        list_append(&chores->queue, &chore->node);
        pthread_cond_signal(&chores->posted);
    }
    pthread_mutex_unlock(&chores->lock);
}

void chores_withdraw(struct chores *chores, struct chore *chore) {
    pthread_mutex_lock(&chores->lock);
    list_remove(&chore->node);
    chore->queued = false;
    pthread_mutex_unlock(&chores->lock);
}

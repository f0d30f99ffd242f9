/* os/fork.c - the fork handlers of the process: locks that are held over it, descriptors that the child closes.
 *
 * Owns: the list of locks and the set of descriptors, both process-wide.
 *
 * Threads: any. Before a fork the locks are taken in this order: `holds_lock`, the held ones (last registered first),
 * `descriptors_lock`, which any holder of another lock may take. The log's lock, registered when the library was
 * loaded, comes after all of them.
 *
 * Invariant: bit fd of `descriptors` is set while the descriptor is to be closed in children.
 */
#include "os/fork.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HOLDS_MAX 32

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t holds_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t *holds[HOLDS_MAX];
static size_t hold_count;

static pthread_mutex_t descriptors_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t *descriptors;
static size_t word_count;

static void before_fork(void) {
    pthread_mutex_lock(&holds_lock);
    for (size_t i = hold_count; i > 0; i--)
        pthread_mutex_lock(holds[i - 1]);
    pthread_mutex_lock(&descriptors_lock);
}

static void after_fork(void) {
    pthread_mutex_unlock(&descriptors_lock);
    for (size_t i = 0; i < hold_count; i++)
        pthread_mutex_unlock(holds[i]);
    pthread_mutex_unlock(&holds_lock);
}

static void after_fork_in_child(void) {
    for (size_t word = 0; word < word_count; word++) {
        for (; descriptors[word] != 0; descriptors[word] &= descriptors[word] - 1)
            (void)close((int)(word * 64) + __builtin_ctzll(descriptors[word]));
    }
    after_fork();
}

static void install(void) {
    (void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

void fork_hold(pthread_mutex_t *lock) {
    (void)pthread_once(&once, install);
    pthread_mutex_lock(&holds_lock);
    if (hold_count < HOLDS_MAX)
        holds[hold_count++] = lock;
    pthread_mutex_unlock(&holds_lock);
}

void fork_pause(void) {
    (void)pthread_once(&once, install);
    pthread_mutex_lock(&descriptors_lock);
}

void fork_resume(void) {
    pthread_mutex_unlock(&descriptors_lock);
}

/* Makes room for the descriptor's bit. Without memory for it the descriptor stays open in children, which close-on-exec
 * then bounds. Call with the lock held. */
static void make_room(size_t word) {
    size_t count = word_count == 0 ? 16 : word_count;
    uint64_t *words;

    while (count <= word)
        count *= 2;
    words = realloc(descriptors, count * sizeof(*words));
    if (words == NULL)
        return;
    memset(words + word_count, 0, (count - word_count) * sizeof(*words));
    descriptors = words;
    word_count = count;
}

void fork_close_in_child_paused(int fd) {
    size_t word = (size_t)fd / 64;

    if (fd < 0)
        return;
    if (word >= word_count)
        make_room(word);
    if (word < word_count)
        descriptors[word] |= UINT64_C(1) << fd % 64;
}

void fork_close_in_child(int fd) {
    fork_pause();
    fork_close_in_child_paused(fd);
    fork_resume();
}

/* Call with the lock held. */
static void forget(int fd) {
    if (fd >= 0 && (size_t)fd / 64 < word_count)
        descriptors[(size_t)fd / 64] &= ~(UINT64_C(1) << fd % 64);
}

void fork_forget(int fd) {
    fork_pause();
    forget(fd);
    fork_resume();
}

void fork_close(int fd) {
    int saved = errno;

    if (fd < 0)
        return;
    fork_pause();
    forget(fd);
    (void)close(fd);
    fork_resume();
    errno = saved;
}

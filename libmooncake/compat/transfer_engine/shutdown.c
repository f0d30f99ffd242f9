/* compat/transfer_engine/shutdown.c - ends engines when the process ends.
 *
 * Owns the numbers of the engines that are to be ended; those of engines that are gone are used again. A process that a
 * signal kills runs nothing of this: its program decides what signals do, and a library that took them would break it.
 *
 * Threads: any; `lock` guards the numbers.
 */
#include <stdlib.h>

#include "compat/transfer_engine/inside.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t *numbers;
static size_t count;
static bool registered;

/* A number given out once is never given out again, so that it doesn't matter how old it is. */
static void end_all(void) {
    if (pthread_mutex_trylock(&lock) != 0)
        return; /* a thread that is being ended has it, or one that the parent of a fork had */
    for (size_t i = 0; i < count; i++)
        (void)engine_end(numbers[i]);
    free(numbers);
    numbers = NULL;
    count = 0;
    pthread_mutex_unlock(&lock);
}

static bool is_there(uint64_t number) {
    struct token_object *object = token_acquire(number, TOKEN_ENGINE);

    if (object != NULL)
        token_drop(object);
    return object != NULL;
}

/* With the lock held. */
static bool remember(uint64_t number) {
    uint64_t *grown;
    size_t place = 0;

    while (place < count && numbers[place] != number && is_there(numbers[place]))
        place++;
    if (place == count) {
        grown = realloc(numbers, (count + 1) * sizeof(*numbers));
        if (grown == NULL)
            return false;
        numbers = grown;
        count++;
    }
    numbers[place] = number;
    return true;
}

bool shutdown_watch(uint64_t number) {
    bool done;

    pthread_mutex_lock(&lock);
    done = (registered || atexit(end_all) == 0) && remember(number);
    registered = registered || done;
    pthread_mutex_unlock(&lock);
    return done;
}

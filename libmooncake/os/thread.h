/* os/thread.h - threads that the host program doesn't notice: all signals blocked, a name of their own. */
#ifndef MC_OS_THREAD_H
#define MC_OS_THREAD_H

#include <pthread.h>
#include <stdint.h>

/* Starts run(context) with all signals blocked under `name` (at most 15 bytes). 0 or an errno. */
int thread_start(pthread_t *ret_thread, const char *name, void *(*run)(void *context), void *context);

/* A condition variable on the monotonic clock. */
void thread_cond_init(pthread_cond_t *cond);

/* Waits until signalled or `deadline` (clock_now's time; CLOCK_NEVER: no limit). 0 or ETIMEDOUT. */
int thread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline);

#endif

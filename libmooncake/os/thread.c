/* os/thread.c - starts threads, and waits on the monotonic clock. Owns nothing; any thread. */
#include "os/thread.h"

#include <signal.h>
#include <time.h>

#include "base/clock.h"

int thread_start(pthread_t *ret_thread, const char *name, void *(*run)(void *context), void *context) {
    sigset_t all, former;
    pthread_t thread;
    int error;

    /* The new thread inherits the mask, so that it never runs with a signal open. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &former);
    error = pthread_create(&thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &former, NULL);
    if (error != 0)
        return error;
    (void)pthread_setname_np(thread, name);
    *ret_thread = thread;
    return 0;
}

void thread_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

int thread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline) {
    struct timespec until;

    if (deadline == CLOCK_NEVER)
        return pthread_cond_wait(cond, lock);
    until.tv_sec = (time_t)(deadline / CLOCK_SECOND);
    until.tv_nsec = (long)(deadline % CLOCK_SECOND);
    return pthread_cond_timedwait(cond, lock, &until);
}

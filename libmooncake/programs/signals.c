/* programs/signals.c - takes SIGTERM and SIGINT by waiting. Owns the process's handling of them; the main thread. */
#include "programs/signals.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "base/clock.h"

static void the_signals(sigset_t *ret_set) {
    sigemptyset(ret_set);
    sigaddset(ret_set, SIGTERM);
    sigaddset(ret_set, SIGINT);
}

void signals_block(void) {
    sigset_t set;

    the_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
}

bool signals_wait(uint64_t timeout) {
    uint64_t deadline = clock_after(clock_now(), timeout);
    sigset_t set;

    the_signals(&set);
    for (;;) {
        uint64_t now = clock_now();
        uint64_t left = deadline > now ? deadline - now : 0;
        struct timespec wait = {.tv_sec = (time_t)(left / CLOCK_SECOND), .tv_nsec = (long)(left % CLOCK_SECOND)};

        if (sigtimedwait(&set, NULL, timeout == CLOCK_NEVER ? NULL : &wait) > 0)
            return true;
        if (errno != EINTR)
            return false;
    }
}

void signals_release(void) {
    sigset_t set;

    /* Whoever started the program may have had them ignored. */
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    the_signals(&set);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

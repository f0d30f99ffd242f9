/* tests/bench/work.c - times rounds of work in one or more threads. */
#include "work.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define THREADS_MAX 16

struct worker {
    const struct subject *subject;
    struct work work;
    pthread_barrier_t *start;
    double begun, ended;
};

void work_fail(const char *file, int line, const char *what, const char *why) {
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, what, why != NULL ? why : strerror(errno));
    exit(1);
}

double work_seconds(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void run(const struct subject *subject, const struct work *work) {
    for (uint64_t i = 0; i < work->calls; i++)
        subject->call(subject, work, i);
}

static void *run_worker(void *argument) {
    struct worker *worker = argument;

    pthread_barrier_wait(worker->start);
    worker->begun = work_seconds();
    run(worker->subject, &worker->work);
    worker->ended = work_seconds();
    return NULL;
}

static double time_threads(const struct subject *subject, const struct work *work) {
    struct worker workers[THREADS_MAX];
    pthread_t ids[THREADS_MAX];
    pthread_barrier_t start;
    unsigned threads = work->threads;
    double begun, ended;

    CHECK_SYSTEM(threads <= THREADS_MAX && pthread_barrier_init(&start, NULL, threads) == 0);
    for (unsigned i = 0; i < threads; i++) {
        workers[i] = (struct worker){.subject = subject, .work = *work, .start = &start};
        workers[i].work.span = work->span / threads;
        workers[i].work.base = i * workers[i].work.span;
        CHECK_SYSTEM(pthread_create(&ids[i], NULL, run_worker, &workers[i]) == 0);
    }
    for (unsigned i = 0; i < threads; i++)
        CHECK_SYSTEM(pthread_join(ids[i], NULL) == 0);
    pthread_barrier_destroy(&start);
    begun = workers[0].begun;
    ended = workers[0].ended;
    for (unsigned i = 1; i < threads; i++) {
        begun = workers[i].begun < begun ? workers[i].begun : begun;
        ended = workers[i].ended > ended ? workers[i].ended : ended;
    }
    return ended - begun;
}

double work_time(const struct subject *subject, const struct work *work) {
    double begun;

    if (subject->prepare != NULL)
        subject->prepare(subject, work);
    if (work->threads > 1)
        return time_threads(subject, work);
    begun = work_seconds();
    run(subject, work);
    return work_seconds() - begun;
}

void work_time_each(const struct subject *subject, const struct work *work, double *ret_each) {
    if (subject->prepare != NULL)
        subject->prepare(subject, work);
    for (uint64_t i = 0; i < work->calls; i++) {
        double begun = work_seconds();

        subject->call(subject, work, i);
        ret_each[i] = work_seconds() - begun;
    }
}

void work_size_name(uint64_t size, char name[32]) {
    if (size >= 1u << 20)
        snprintf(name, 32, "%lluMiB", (unsigned long long)(size >> 20));
    else if (size >= 1u << 10)
        snprintf(name, 32, "%lluKiB", (unsigned long long)(size >> 10));
    else
        snprintf(name, 32, "%lluB", (unsigned long long)size);
}

static int by_value(const void *a, const void *b) {
    double one = *(const double *)a, other = *(const double *)b;

    return one < other ? -1 : one > other;
}

double work_median(double *values, size_t count) {
    qsort(values, count, sizeof(*values), by_value);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

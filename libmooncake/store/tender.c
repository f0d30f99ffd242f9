/* store/tender.c - a core's steps and letters on the engine's loop.
 *
 * An errand is in `active` from its sending until its answer was given to the core; `done` may come from any thread, and
 * only moves it into `finished` as well.
 */
#include "store/tender.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"

#define PATIENCE (10 * CLOCK_SECOND) /* with one that has no answer */
#define LOOK_AGAIN CLOCK_SECOND

struct job {
    struct errand errand;
    struct list finished; /* alone until done */
    struct tender *tender;
};

static void job_done(struct errand *errand) {
    struct job *job = list_entry(errand, struct job, errand);
    struct tender *tender = job->tender;

    pthread_mutex_lock(&tender->lock);
    list_append(&tender->finished, &job->finished);
    pthread_mutex_unlock(&tender->lock);
    loop_post(tender->engine->loop, &tender->task);
}

static struct job *take_finished(struct tender *tender) {
    struct job *job = NULL;

    pthread_mutex_lock(&tender->lock);
    if (!list_empty(&tender->finished)) {
        job = list_entry(tender->finished.next, struct job, finished);
        list_remove(&job->finished);
    }
    pthread_mutex_unlock(&tender->lock);
    return job;
}

static void job_free(struct job *job) {
    list_remove(&job->errand.node);
    free(job->errand.answer);
    free(job->errand.request);
    free(job);
}

/* Gives the core all answers that have come. */
static void bring_answers(struct tender *tender, uint64_t now) {
    struct job *job;

    while ((job = take_finished(tender)) != NULL) {
        tender->ops->answered(tender->context, now, &job->errand);
        job_free(job);
    }
}

/* Ends those whose other end says nothing. */
static void lose_patience(struct tender *tender, uint64_t now, uint64_t patience) {
    struct list *node, *after;

    list_each (node, after, &tender->active) {
        struct errand *errand = list_entry(node, struct errand, node);

        if (now >= clock_after(errand->sent, patience))
            errand_cancel(errand, MC_ERR_TIMEOUT);
    }
}

static void send_letter(struct tender *tender, uint64_t now, struct letter *letter) {
    struct job *job = calloc(1, sizeof(*job));

    if (job == NULL) {
        free(letter); /* lost, like any letter may be */
        return;
    }
    job->tender = tender;
    job->errand.request = letter;
    job->errand.done = job_done;
    job->errand.sent = now;
    list_init(&job->finished);
    list_append(&tender->active, &job->errand.node);
    tender->ops->send(tender->context, &job->errand);
}

static void run(struct tender *tender) {
    uint64_t now = clock_now();
    struct letter *letter;
    struct outbox out;
    uint64_t wake;

    bring_answers(tender, now);
    if (tender->stopping)
        return;
    outbox_init(&out);
    atomic_store(&tender->armed, CLOCK_NEVER); /* who is due from now on posts again */
    wake = tender->ops->step(tender->context, now, &out);
    while ((letter = outbox_take(&out)) != NULL)
        send_letter(tender, now, letter);
    if (!list_empty(&tender->active)) {
        lose_patience(tender, now, PATIENCE);
        if (wake > clock_after(now, LOOK_AGAIN))
            wake = clock_after(now, LOOK_AGAIN);
    }
    atomic_store(&tender->armed, wake);
    loop_timer_set(tender->engine->loop, &tender->timer, wake);
}

static void on_task(struct loop_task *task) {
    run(list_entry(task, struct tender, task));
}

static void on_timer(struct loop_timer *timer, uint64_t now) {
    (void)now;
    run(list_entry(timer, struct tender, timer));
}

void tender_start(struct tender *tender, struct engine *engine, const struct tender_ops *ops, void *context) {
    *tender = (struct tender){.ops = ops, .context = context, .engine = engine};
    pthread_mutex_init(&tender->lock, NULL);
    list_init(&tender->finished);
    list_init(&tender->active);
    list_init(&tender->task.node);
    tender->task.run = on_task;
    loop_timer_init(&tender->timer, on_timer);
    tender_kick(tender);
}

void tender_kick(struct tender *tender) {
    loop_post(tender->engine->loop, &tender->task);
}

void tender_wake(struct tender *tender, uint64_t when) {
    uint64_t armed = atomic_load_explicit(&tender->armed, memory_order_relaxed);

    /* Whoever lowers it posts; the others know that somebody has. */
    while (when < armed)
        if (atomic_compare_exchange_weak(&tender->armed, &armed, when)) {
            tender_kick(tender);
            return;
        }
}

static void stop(void *context) {
    struct tender *tender = context;

    tender->stopping = true;
    lose_patience(tender, CLOCK_NEVER, 0);
    bring_answers(tender, clock_now());
}

void tender_stop(struct tender *tender) {
    loop_run(tender->engine->loop, stop, tender);
    loop_timer_cancel_sync(tender->engine->loop, &tender->timer);
    loop_unpost_sync(tender->engine->loop, &tender->task);
    pthread_mutex_destroy(&tender->lock);
}

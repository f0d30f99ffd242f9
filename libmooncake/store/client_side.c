/* store/client_side.c - a client at work: the letters of operations, and of what goes on behind the scenes. */
#include "store/client_side.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"
#include "net/auth.h"
#include "os/thread.h"
#include "store/reach.h"

#define ATTACH_TIME (2 * CLOCK_SECOND)      /* that reaching one owner may take; closing waits for it, too */
#define HEALTHY (3 * CLOCK_SECOND)          /* since the master's last answer */
#define LOSE_TIME (200 * CLOCK_MILLISECOND) /* for operations to let go of a segment that was unmounted */
#define LETTERS_AT_ONCE 64u
#define LETTER_TIME (10 * CLOCK_SECOND) /* that one letter may wait for its answer, before it is sent again … */
#define OWNER_TIME CLOCK_SECOND         /* … from an owner, who answers at once or is asked later */

/* ---- Operations ---- */

static bool is_master(const struct message_id *to) {
    static const struct message_id none;

    return message_id_equal(to, &none);
}

/* What the fate of a letter tells of the master's health. With the lock held. */
static void note_heard(struct client_side *side, const struct letter *letter, int32_t status) {
    if (!is_master(&letter->to))
        return;
    if (status == MC_OK)
        side->heard = clock_now();
    else if (status == MC_ERR_UNREACHABLE || status == MC_ERR_CONNECTION_LOST || status == MC_ERR_STALE_PEER)
        side->heard = 0;
}

/* The letters of one stage that go to other processes, all on their way at once. */
struct parcel {
    struct errand errand;
    struct round *round;
};

struct round {
    atomic_size_t left;
    struct event done;
};

static void parcel_done(struct errand *errand) {
    struct round *round = list_entry(errand, struct parcel, errand)->round;

    if (atomic_fetch_sub(&round->left, 1) == 1)
        event_set(&round->done);
}

/* Brings the core the answer to a letter of `op` (NULL: of its own), or that there is none. */
static void bring_answer(struct client_side *side, struct client_op *op, const struct letter *letter, int32_t status,
                         const struct letter *answer) {
    pthread_mutex_lock(&side->lock);
    note_heard(side, letter, status);
    client_answer(side->core, clock_now(), op, letter->tag, status, (uint16_t)(letter->type + 1),
                  answer != NULL ? answer->body : NULL, answer != NULL ? answer->length : 0);
    if (op == NULL)
        pthread_cond_broadcast(&side->changed);
    pthread_mutex_unlock(&side->lock);
}

/* An owner that didn't answer an operation in its time is out of reach: others are asked meanwhile. */
static void give_answer(struct client_side *side, struct client_op *op, const struct letter *letter, int32_t status,
                        const struct letter *answer) {
    bool too_late = status == MC_ERR_TIMEOUT && !is_master(&letter->to);

    bring_answer(side, op, letter, too_late ? MC_ERR_UNREACHABLE : status, answer);
}

static uint64_t letter_deadline(const struct client_op *op, bool to_master) {
    uint64_t latest = clock_after(clock_now(), to_master ? LETTER_TIME : OWNER_TIME);

    return latest < op->deadline ? latest : op->deadline;
}

/* One letter, and its answer, driven by this thread. */
static void carry_one(struct client_side *side, struct client_op *op, struct letter *letter) {
    struct attachment *attachment;
    struct letter *answer = NULL;
    int32_t status = MC_ERR_UNREACHABLE;

    if (is_master(&letter->to)) {
        status = master_link_call(side->link, letter, letter_deadline(op, true), &answer);
    } else if ((attachment = reach_take(side, &letter->to)) != NULL) {
        status = attachment_call(attachment, letter, letter_deadline(op, false), &answer);
        ref_drop(&attachment->ref);
    }
    give_answer(side, op, letter, status, answer);
    free(answer);
    free(letter);
}

static void send_errand(void *context, struct errand *errand);
static void end_errand(struct client_side *side, struct errand *errand);

/* Waits for all answers; for those of owners less long. */
static void await_round(struct round *round, const struct client_op *op, struct parcel *parcels, size_t count) {
    uint64_t owners = letter_deadline(op, false), all = letter_deadline(op, true);

    if (!event_wait(&round->done, owners))
        for (size_t i = 0; i < count; i++)
            if (!is_master(&parcels[i].errand.request->to))
                errand_cancel(&parcels[i].errand, MC_ERR_TIMEOUT);
    if (!event_wait(&round->done, all))
        for (size_t i = 0; i < count; i++)
            errand_cancel(&parcels[i].errand, MC_ERR_TIMEOUT);
    event_wait(&round->done, CLOCK_NEVER);
}

/* Several letters at once, on the loop; the round trips of one. */
static void carry_round(struct client_side *side, struct client_op *op, struct parcel *parcels, size_t count) {
    struct round round;

    atomic_init(&round.left, count);
    event_init(&round.done);
    for (size_t i = 0; i < count; i++) {
        parcels[i].round = &round;
        parcels[i].errand.done = parcel_done;
        send_errand(side, &parcels[i].errand);
    }
    await_round(&round, op, parcels, count);
    event_destroy(&round.done);
    for (size_t i = 0; i < count; i++) {
        struct errand *errand = &parcels[i].errand;

        give_answer(side, op, errand->request, errand->status, errand->answer);
        end_errand(side, errand);
        free(errand->answer);
        free(errand->request);
    }
}

/* Does the letter leave this process? What doesn't is answered at once, or (by the master inside) can't be cancelled. */
static bool leaves(struct client_side *side, const struct letter *letter) {
    struct attachment *attachment;
    bool own;

    if (is_master(&letter->to))
        return !master_link_is_inside(side->link);
    attachment = reach_take(side, &letter->to);
    own = attachment != NULL && attachment->own != NULL;
    if (attachment != NULL)
        ref_drop(&attachment->ref);
    return !own;
}

/* Sends all letters, and gives the core their answers. */
static void carry_all(struct client_side *side, struct client_op *op, struct outbox *out) {
    struct parcel parcels[LETTERS_AT_ONCE];
    struct letter *letter;

    while (!list_empty(&out->letters)) {
        size_t count = 0;

        while (count < LETTERS_AT_ONCE && (letter = outbox_take(out)) != NULL) {
            if (leaves(side, letter))
                parcels[count++] = (struct parcel){.errand = {.request = letter}};
            else
                carry_one(side, op, letter);
        }
        if (count == 1)
            carry_one(side, op, parcels[0].errand.request);
        else if (count > 1)
            carry_round(side, op, parcels, count);
    }
}

enum client_need client_side_run(struct client_side *side, struct client_op *op) {
    char address[MESSAGE_ADDRESS_MAX];
    struct message_id id = {0};
    enum client_need need;
    struct outbox out;

    outbox_init(&out);
    for (;;) {
        uint64_t now = clock_now();
        uint64_t wake;
        bool closing;

        pthread_mutex_lock(&side->lock);
        closing = side->closing;
        need = closing ? CLIENT_DONE : client_next(side->core, now, op, &out);
        if (need == CLIENT_ATTACH) {
            id = op->attach->id;
            text_copy(address, sizeof(address), op->attach->address);
        }
        if (need == CLIENT_WAIT && op->wake > now && list_empty(&out.letters))
            thread_cond_wait(&side->changed, &side->lock, op->wake);
        wake = client_wake(side->core);
        pthread_mutex_unlock(&side->lock);
        tender_wake(&side->tender, wake);
        carry_all(side, op, &out); /* letters come with any need, and go first */
        if (closing || need == CLIENT_DONE || need == CLIENT_WRITE || need == CLIENT_READ)
            return need;
        if (need == CLIENT_ATTACH)
            reach_attach(side, &id, address,
                         clock_after(now, ATTACH_TIME) < op->deadline ? clock_after(now, ATTACH_TIME) : op->deadline);
    }
}

/* Keeps the segment; false if that are too many. */
static bool hold(struct client_side_hits *hits, struct attachment *attachment) {
    for (uint32_t i = 0; i < hits->held_count; i++)
        if (hits->held[i] == attachment)
            return true;
    if (hits->held_count == CLIENT_SIDE_HELD)
        return false;
    ref_take(&attachment->ref);
    hits->held[hits->held_count++] = attachment;
    return true;
}

void client_side_find(struct client_side *side, const struct client_item *items, size_t count,
                      struct client_side_hits *hits) {
    uint64_t now = clock_now(), wake;

    hits->held_count = 0;
    pthread_mutex_lock(&side->lock);
    for (size_t i = 0; i < count; i++)
        if (side->closing ||
            !client_find(side->core, now, &items[i].hash, items[i].key_length, items[i].length, &hits->hits[i]) ||
            !hold(hits, hits->hits[i].segment->user))
            hits->hits[i].segment = NULL;
    wake = client_wake(side->core);
    pthread_mutex_unlock(&side->lock);
    tender_wake(&side->tender, wake);
}

void client_side_let_go(struct client_side_hits *hits) {
    for (uint32_t i = 0; i < hits->held_count; i++)
        ref_drop(&hits->held[i]->ref);
}

void client_side_begin(struct client_side *side, struct client_op *op, enum client_kind kind, struct client_item *items,
                       size_t count, const struct client_put_options *options, uint64_t deadline) {
    pthread_mutex_lock(&side->lock);
    client_begin(side->core, clock_now(), op, kind, items, count, options, deadline);
    pthread_mutex_unlock(&side->lock);
}

void client_side_give_back(struct client_side *side, struct client_item *item) {
    uint64_t wake;

    pthread_mutex_lock(&side->lock);
    client_item_give_back(side->core, clock_now(), item);
    wake = client_wake(side->core);
    pthread_mutex_unlock(&side->lock);
    tender_wake(&side->tender, wake);
}

/* What was waited for when the client was closed. Final results stay. */
static int32_t closed_status(int32_t status) {
    bool passing = status == MC_ERR_PENDING || status == MC_ERR_NO_SPACE || status == MC_ERR_GUARD_MISMATCH ||
                   status == MC_ERR_GONE || status_retryable(status);

    return passing ? MC_ERR_CLOSED : status;
}

void client_side_end(struct client_side *side, struct client_op *op) {
    uint64_t now = clock_now(), wake;
    bool cut = op->unfinished > 0; /* which only closing does */

    pthread_mutex_lock(&side->lock);
    client_end(side->core, now, op);
    if (cut) {
        op->status = closed_status(op->status);
        for (size_t i = 0; i < op->count; i++)
            op->items[i].status = closed_status(op->items[i].status);
    }
    wake = client_wake(side->core);
    pthread_mutex_unlock(&side->lock);
    tender_wake(&side->tender, wake);
}

/* ---- Behind the scenes. On the loop's thread. ---- */

static uint64_t step(void *context, uint64_t now, struct outbox *out) {
    struct client_side *side = context;
    uint64_t wake;

    pthread_mutex_lock(&side->lock);
    client_step(side->core, now, out);
    wake = client_wake(side->core);
    pthread_mutex_unlock(&side->lock);
    reach_drop(side);
    return wake;
}

static void end_errand(struct client_side *side, struct errand *errand) {
    if (is_master(&errand->request->to))
        master_link_end(side->link, errand);
    else
        errand_end(errand);
}

static void send_errand(void *context, struct errand *errand) {
    struct client_side *side = context;
    struct attachment *attachment;

    if (is_master(&errand->request->to)) {
        master_link_begin(side->link, errand);
        return;
    }
    attachment = reach_take(side, &errand->request->to);
    if (attachment == NULL) {
        errand_fail(errand, MC_ERR_UNREACHABLE);
        return;
    }
    attachment_begin(attachment, errand);
    ref_drop(&attachment->ref);
}

static void answered(void *context, uint64_t now, struct errand *errand) {
    struct client_side *side = context;

    (void)now;
    end_errand(side, errand);
    bring_answer(side, NULL, errand->request, errand->status, errand->answer);
}

static const struct tender_ops tender_ops = {step, send_errand, answered};

/* ---- Opening and closing ---- */

int32_t client_side_open(struct client_side *side, const struct client_side_options *options) {
    struct client_options core = {
        .timing = options->timing,
        .stock_bytes = options->stock_bytes,
        .cached = options->cached,
        .detach = reach_detach,
        .context = side,
    };
    int32_t status = auth_random(&core.seed, sizeof(core.seed));

    memcpy(core.id.bytes, options->engine->identity.incarnation, sizeof(core.id.bytes));
    *side = (struct client_side){
        .attacher = {.engine = options->engine, .owners = options->owners, .client = core.id},
        .link = options->link,
        .chores = options->chores,
    };
    chore_init(&side->touch, reach_touch);
    if (status == MC_OK)
        status = client_new(&core, &side->core);
    if (status != MC_OK)
        return status;
    pthread_mutex_init(&side->lock, NULL);
    thread_cond_init(&side->changed);
    list_init(&side->dropped);
    list_init(&side->attaching);
    tender_start(&side->tender, options->engine, &tender_ops, side);
    return MC_OK;
}

bool client_side_await(struct client_side *side, uint64_t deadline) {
    bool known;

    pthread_mutex_lock(&side->lock);
    while (client_epoch(side->core) == 0 && clock_now() < deadline)
        thread_cond_wait(&side->changed, &side->lock, deadline);
    known = client_epoch(side->core) != 0;
    pthread_mutex_unlock(&side->lock);
    return known;
}

bool client_side_healthy(struct client_side *side) {
    bool healthy;

    pthread_mutex_lock(&side->lock);
    healthy = client_epoch(side->core) != 0 && side->heard != 0 && clock_now() < clock_after(side->heard, HEALTHY);
    pthread_mutex_unlock(&side->lock);
    return healthy;
}

/* With the lock held. */
static bool is_attached(struct client_side *side, const struct message_id *id) {
    const struct client_segment *segment = client_segment_of(side->core, id);

    return segment != NULL && segment->user != NULL;
}

void client_side_lose(struct client_side *side, const struct message_id *segment) {
    uint64_t deadline = clock_after(clock_now(), LOSE_TIME);

    pthread_mutex_lock(&side->lock);
    client_lose(side->core, clock_now(), segment);
    while (is_attached(side, segment) && clock_now() < deadline) {
        client_lose(side->core, clock_now(), segment);
        thread_cond_wait(&side->changed, &side->lock, clock_after(clock_now(), CLOCK_MILLISECOND));
    }
    pthread_mutex_unlock(&side->lock);
    if (engine_enter(side->attacher.engine) == MC_OK) {
        reach_drop(side);
        engine_leave(side->attacher.engine);
    }
    tender_kick(&side->tender);
}

void client_side_look_again(struct client_side *side) {
    pthread_mutex_lock(&side->lock);
    client_look_again(side->core);
    pthread_mutex_unlock(&side->lock);
}

void client_side_stop(struct client_side *side) {
    struct client_segment *segment = NULL;

    pthread_mutex_lock(&side->lock);
    side->closing = true;
    pthread_cond_broadcast(&side->changed);
    while ((segment = client_segments(side->core, segment)) != NULL) {
        struct attachment *attachment = segment->user;

        /* Lane locks lie below this one: what ends here notes it only. */
        if (attachment != NULL && attachment->peer != NULL)
            channel_break(attachment->peer->channel, MC_ERR_CLOSED);
    }
    pthread_mutex_unlock(&side->lock);
    master_link_interrupt(side->link);
}

void client_side_retire(struct client_side *side, uint64_t deadline) {
    pthread_mutex_lock(&side->lock);
    client_retire(side->core, clock_now());
    pthread_mutex_unlock(&side->lock);
    tender_kick(&side->tender);
    pthread_mutex_lock(&side->lock);
    while (!client_quiet(side->core) && clock_now() < deadline)
        thread_cond_wait(&side->changed, &side->lock, deadline);
    pthread_mutex_unlock(&side->lock);
}

void client_side_close(struct client_side *side) {
    tender_stop(&side->tender);
    pthread_mutex_lock(&side->lock);
    side->core = client_free(side->core);
    pthread_mutex_unlock(&side->lock);
    reach_drop(side);
    pthread_cond_destroy(&side->changed);
    pthread_mutex_destroy(&side->lock);
}

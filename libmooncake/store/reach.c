/* store/reach.c - the segments that a client reaches: attached once, mapped where a path maps, touched behind the scenes.
 *
 * A segment's `user` is an attachment, with one reference of the core's. Whoever uses one outside the lock takes a
 * reference of its own, or is an operation's read or write, which the core counts.
 */
#include "store/reach.h"

#include "base/clock.h"
#include "os/memfd.h"
#include "os/thread.h"

#define TOUCH_PIECE (16u << 20)

void reach_detach(void *context, struct client_segment *segment) {
    struct client_side *side = context;
    struct attachment *attachment = segment->user;

    segment->user = NULL;
    if (attachment != NULL)
        list_append(&side->dropped, &attachment->dropped);
}

void reach_drop(struct client_side *side) {
    struct list list;

    list_init(&list);
    pthread_mutex_lock(&side->lock);
    while (!list_empty(&side->dropped)) {
        struct list *node = side->dropped.next;

        list_remove(node);
        list_append(&list, node);
    }
    pthread_mutex_unlock(&side->lock);
    while (!list_empty(&list)) {
        struct list *node = list.next;

        list_remove(node);
        ref_drop(&list_entry(node, struct attachment, dropped)->ref);
    }
}

struct attachment *reach_take(struct client_side *side, const struct message_id *id) {
    struct attachment *attachment = NULL;
    struct client_segment *segment;

    pthread_mutex_lock(&side->lock);
    segment = client_segment_of(side->core, id);
    if (segment != NULL && segment->user != NULL) {
        attachment = segment->user;
        ref_take(&attachment->ref);
    }
    pthread_mutex_unlock(&side->lock);
    return attachment;
}

/* A segment that a thread is attaching; on its stack. */
struct attaching {
    struct list node;
    const struct message_id *id;
};

static bool is_attaching(struct client_side *side, const struct message_id *id) {
    struct list *node, *after;

    list_each (node, after, &side->attaching)
        if (message_id_equal(list_entry(node, struct attaching, node)->id, id))
            return true;
    return false;
}

/* Becomes the one who is attaching this segment; false if another thread is until `deadline`, or the store closes. */
static bool begin_attaching(struct client_side *side, struct attaching *attaching, uint64_t deadline) {
    bool mine;

    pthread_mutex_lock(&side->lock);
    while (!side->closing && is_attaching(side, attaching->id) &&
           thread_cond_wait(&side->changed, &side->lock, deadline) == 0)
        continue;
    mine = !side->closing && !is_attaching(side, attaching->id);
    if (mine)
        list_append(&side->attaching, &attaching->node);
    pthread_mutex_unlock(&side->lock);
    return mine;
}

/* A segment keeps its attachment as long as it is known: threads use it without the lock. */
void reach_attach(struct client_side *side, const struct message_id *id, const char *address, uint64_t deadline) {
    struct attaching attaching = {.id = id};
    struct attachment *attachment;
    struct client_segment *segment;
    int32_t status;

    if (!begin_attaching(side, &attaching, deadline))
        return;
    attachment = reach_take(side, id);
    if (attachment != NULL)
        status = attachment_probe(attachment, &side->attacher, id, deadline);
    else
        status = attachment_open(&side->attacher, id, address, deadline, &attachment);
    pthread_mutex_lock(&side->lock);
    segment = client_segment_of(side->core, id); /* it may have gone meanwhile */
    if (segment != NULL && (status != MC_OK || segment->size > attachment->size)) {
        client_unreachable(side->core, clock_now(), segment);
    } else if (segment != NULL) {
        if (segment->user == NULL) {
            ref_take(&attachment->ref);
            segment->user = attachment;
            segment->memory = attachment->memory;
            segment->pins = attachment->pins;
            segment->local = attachment->own != NULL;
        }
        client_attached(side->core, clock_now(), segment);
    }
    list_remove(&attaching.node);
    pthread_cond_broadcast(&side->changed);
    pthread_mutex_unlock(&side->lock);
    if (attachment != NULL)
        ref_drop(&attachment->ref);
    chores_post(side->chores, &side->touch);
}

/* With a reference: one whose page tables aren't all made, or NULL. */
static struct attachment *take_untouched(struct client_side *side) {
    struct attachment *attachment = NULL;
    struct client_segment *segment = NULL;

    pthread_mutex_lock(&side->lock);
    while (attachment == NULL && !side->closing && (segment = client_segments(side->core, segment)) != NULL) {
        struct attachment *one = segment->user;

        if (one != NULL && one->peer != NULL && one->memory != NULL && one->touched < one->size)
            attachment = one;
    }
    if (attachment != NULL)
        ref_take(&attachment->ref);
    pthread_mutex_unlock(&side->lock);
    return attachment;
}

void reach_touch(struct chore *chore) {
    struct client_side *side = list_entry(chore, struct client_side, touch);
    struct attachment *attachment;

    if (engine_enter(side->attacher.engine) != MC_OK)
        return;
    attachment = take_untouched(side);
    if (attachment != NULL) {
        uint64_t left = attachment->size - attachment->touched;
        uint64_t piece = left < TOUCH_PIECE ? left : TOUCH_PIECE;

        memfd_touch(attachment->memory + attachment->touched, piece);
        attachment->touched += piece;
        ref_drop(&attachment->ref);
        chores_post(side->chores, chore);
    }
    engine_leave(side->attacher.engine);
}

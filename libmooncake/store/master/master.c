/* store/master/master.c - leadership, the way of a request, and what is due.
 *
 * Owns the struct master. Nothing is decided, and nothing answered, but while the master leads (rule 12): each run of a
 * request looks at that, also when the request has waited.
 */
#include "store/master/inside.h"

#include <stdlib.h>

#include "base/clock.h"
#include "wire/frame.h"
#include "wire/mistake.h"

#define TOMBSTONES_PER_STEP 1024u
#define PINS_PER_STEP 1024u
#define NEW_OWNERS_VERSION (UINT64_C(1) << 32)
#define EPOCH_MAX (UINT64_C(1) << 62) /* heard of: there must be a higher one to lead with */

int32_t master_new(const struct master_options *options, struct master **ret_master) {
    const struct policy_ops *policy = policy_find(options->policy == NULL ? POLICY_DEFAULT : options->policy);
    struct master *master;

    if (policy == NULL || options->high_watermark > 1000 || options->eviction > 1000)
        return MC_ERR_INVALID_ARGUMENT;
    master = calloc(1, sizeof(*master));
    if (master == NULL)
        return MC_ERR_NO_MEMORY;
    master->options = *options;
    master->policy = policy;
    list_init(&master->members);
    list_init(&master->gone);
    list_init(&master->draining);
    list_init(&master->callable);
    list_init(&master->guest_list);
    list_init(&master->young);
    list_init(&master->waiting);
    list_init(&master->tombstones);
    list_init(&master->pins);
    list_init(&master->ready);
    index_init(master);
    *ret_master = master;
    return MC_OK;
}

/* Forgets the epoch. Requests that wait stay: they will be told. */
static void forget(struct master *master) {
    park_wake_all(master);
    member_clear(master);
    list_init(&master->tombstones);
    index_clear(master);
    index_init(master);
    guest_clear(master);
    master->floors_stale = true;
    master->counts = (struct master_count){
        .waiting = master->counts.waiting, .evicted = master->counts.evicted, .total = master->counts.total};
    master->epoch = 0;
    master->serving = false;
}

struct master *master_free(struct master *master) {
    if (master == NULL)
        return NULL;
    forget(master);
    while (!list_empty(&master->ready))
        park_free(master, list_entry(master->ready.next, struct parked, place));
    table_clear(&master->tags);
    items_clear(&master->floors);
    items_clear(&master->places);
    items_clear(&master->locations);
    items_clear(&master->list);
    items_clear(&master->stamp);
    free(master);
    return NULL;
}

static bool add_first(struct master *master, uint64_t now, const struct message_id *id) {
    struct member *member = member_find(master, id);

    if (member != NULL)
        return true;
    member = member_new(master, now, id);
    if (member == NULL)
        return false;
    member->first = true;
    master->unannounced++;
    return true;
}

void master_lead(struct master *master, uint64_t now, uint64_t epoch, uint64_t until, const struct message_id *members,
                 size_t count, bool grace) {
    master->until = until;
    master->lapsed = false;
    if (epoch == master->epoch)
        return;
    forget(master);
    master->unannounced = 0;
    master->counter = 0;
    master->sequence = 0;
    master->owners_version = epoch * NEW_OWNERS_VERSION;
    for (size_t n = 0; n < count; n++)
        if (!add_first(master, now, &members[n])) {
            forget(master); /* without all of them it would serve too early */
            return;
        }
    master->epoch = epoch;
    master->had_members = count > 0;
    master->grace_end = count > 0 || grace ? clock_after(now, master->options.timing.grace) : now;
    master->graves = true;
    master->serving = MISTAKE(SERVES_TOO_EARLY);
    master_look_around(master, now);
}

void master_step_down(struct master *master) {
    forget(master);
}

uint64_t master_epoch(const struct master *master) {
    return master->epoch;
}

bool master_leads(const struct master *master, uint64_t now) {
    return master->epoch != 0 &&
           (now < master->until || master->until == CLOCK_NEVER || MISTAKE(LEADERSHIP_NOT_CHECKED));
}

bool master_serves(const struct master *master, uint64_t now) {
    return master_leads(master, now) && master->serving;
}

uint64_t master_higher_epoch(const struct master *master) {
    return master->higher > master->epoch ? master->higher : 0;
}

int32_t master_heard(struct master *master, uint64_t epoch) {
    if (epoch > master->epoch && epoch >= EPOCH_MAX)
        return MC_ERR_PROTOCOL;
    if (epoch > master->higher)
        master->higher = epoch;
    return epoch > master->epoch ? MC_ERR_UNAVAILABLE : MC_OK;
}

/* Rule 14. It serves when the first members have announced, or are gone, or after the grace time. Tombstones are needed
 * for as long as something may be announced, or published again, that is older than them. */
void master_look_around(struct master *master, uint64_t now) {
    bool grace_over = now >= master->grace_end;

    if (master->epoch == 0)
        return;
    if (grace_over || (master->unannounced == 0 && master->had_members))
        master->serving = true;
    if (grace_over && master->unannounced == 0 && master->counts.doubts == 0)
        master->graves = false;
}

struct version master_next_version(struct master *master) {
    master->sequence++;
    return (struct version){.epoch = master->epoch, .counter = ++master->counter};
}

/* ---- Answers ---- */

void items_reuse(struct items *items) {
    items->length = 0;
    items->count = 0;
    items->full = false;
}

static void add_floors(struct items *floors, const struct list *members) {
    struct list *node, *after;

    list_each (node, after, members) {
        const struct member *member = list_entry(node, struct member, all);
        struct message_floor floor = {.segment = member->id, .sequence = member->floor};

        if (member->floor > 0)
            items_add_floor(floors, &floor);
    }
}

bool master_stamp(struct master *master, const struct call *call, struct message_bytes *ret_stamp) {
    uint64_t left = master->until == CLOCK_NEVER ? CLOCK_NEVER : master->until - call->now;
    uint64_t lease = master->options.timing.lease;
    struct message_stamp stamp = {.epoch = master->epoch,
                                  .lease = left < lease && !MISTAKE(LEADERSHIP_NOT_CHECKED) ? left : lease,
                                  .sequence = master->sequence,
                                  .settled = guest_settled(call->guest)};
    int64_t size;
    uint8_t *bytes;

    if (master->floors_stale) {
        items_reuse(&master->floors);
        add_floors(&master->floors, &master->members);
        add_floors(&master->floors, &master->gone);
        master->floors_stale = master->floors.full;
    }
    stamp.floors = items_bytes(&master->floors);
    size = message_pack_stamp(&stamp, NULL, 0);
    items_reuse(&master->stamp);
    bytes = master->floors.full || size < 0 ? NULL : items_add(&master->stamp, (uint32_t)size);
    if (bytes == NULL)
        return false;
    message_pack_stamp(&stamp, bytes, (size_t)size);
    *ret_stamp = (struct message_bytes){.data = bytes, .length = (uint32_t)size};
    return true;
}

int32_t master_sent(const struct letter *letter, const struct items *list) {
    if (letter != NULL)
        return MC_OK;
    return list != NULL && (list->full || list->length > FRAME_MESSAGE_MAX / 2) ? MC_ERR_TOO_LARGE : MC_ERR_NO_MEMORY;
}

/* ---- Requests ---- */

int32_t master_enter(struct master *master, struct call *call, const struct message_id *client, uint64_t epoch) {
    int32_t status = master_heard(master, epoch);

    if (status != MC_OK)
        return status;
    if (!master->serving)
        return MC_ERR_UNAVAILABLE;
    call->guest = guest_obtain(master, client);
    return call->guest == NULL ? MC_ERR_NO_MEMORY : MC_OK;
}

static int32_t handle(struct master *master, struct call *call) {
    if (!master_leads(master, call->now))
        return MC_ERR_UNAVAILABLE;
    switch (call->type) {
    case MESSAGE_PUBLISH:
        return master_publish(master, call);
    case MESSAGE_LOOKUP:
        return master_lookup(master, call);
    case MESSAGE_PROBE:
        return master_probe(master, call);
    case MESSAGE_REMOVE:
        return master_remove(master, call);
    case MESSAGE_LIST:
        return master_list(master, call);
    case MESSAGE_BEAT:
        return master_beat(master, call);
    case MESSAGE_MOUNT:
        return master_mount(master, call);
    case MESSAGE_POLL:
        return master_poll(master, call);
    case MESSAGE_UNMOUNT:
        return master_unmount(master, call);
    default:
        return MC_ERR_PROTOCOL;
    }
}

void call_run(struct master *master, struct call *call) {
    int32_t status;

    master->running = call;
    status = handle(master, call);
    master->running = NULL;
    if (status == CALL_WAITS)
        park_keep(master, call);
    else if (status != MC_OK)
        outbox_refuse(call->out, call->type, call->tag, status);
    if (call->blocker != NULL) {
        call->blocker->uses--;
        entry_settle(master, call->blocker);
    }
    park_free(master, call->kept);
}

/* What a call has made possible. */
static void conclude(struct master *master, uint64_t now, struct outbox *out) {
    park_run(master, now, out);
    member_call(master, now, out);
}

void master_request(struct master *master, uint64_t now, uint64_t tag, uint16_t type, const uint8_t *body,
                    size_t length, struct outbox *out) {
    struct call call = {.now = now, .tag = tag, .type = type, .body = body, .length = length, .out = out};

    if (length > FRAME_MESSAGE_MAX) {
        outbox_refuse(out, type, tag, MC_ERR_PROTOCOL);
        return;
    }
    if (master_leads(master, now))
        master_look_around(master, now);
    call_run(master, &call);
    conclude(master, now, out);
}

void master_forget(struct master *master, uint64_t tag) {
    struct list *node, *after;

    park_forget(master, tag);
    list_each (node, after, &master->members) {
        struct member *member = list_entry(node, struct member, all);

        if (member->polling && member->poll_tag == tag) {
            member->polling = false;
            list_remove(&member->callable);
        }
    }
}

/* ---- Time ---- */

/* Leadership has run out: whoever waits is told, once. */
static void lapse(struct master *master) {
    struct list *node, *after;

    if (master->lapsed)
        return;
    master->lapsed = true;
    park_wake_all(master);
    list_each (node, after, &master->members)
        member_callable(master, list_entry(node, struct member, all));
}

void master_step(struct master *master, uint64_t now, struct outbox *out) {
    if (!master_leads(master, now)) {
        lapse(master);
    } else {
        master_look_around(master, now);
        kill_step(master, now);
        member_step(master, now);
        record_end_pins(master, now, PINS_PER_STEP);
        if (!master->graves)
            index_forget_tombstones(master, TOMBSTONES_PER_STEP);
        if (master->serving)
            evict_step(master, now);
    }
    conclude(master, now, out);
}

static uint64_t earlier(uint64_t one, uint64_t other) {
    return one < other ? one : other;
}

static uint64_t first_due(const struct list *queue, uint64_t wait) {
    return list_empty(queue) ? CLOCK_NEVER : clock_after(list_entry(queue->next, struct claim, due)->since, wait);
}

uint64_t master_wake(const struct master *master) {
    const struct store_timing *timing = &master->options.timing;
    uint64_t wake = CLOCK_NEVER;

    if (!list_empty(&master->ready) || !list_empty(&master->callable))
        return 0;
    if (master->epoch == 0 || master->lapsed)
        return wake;
    if (!master->graves && !list_empty(&master->tombstones))
        return 0;
    wake = earlier(member_wake(master), MISTAKE(LEADERSHIP_NOT_CHECKED) ? CLOCK_NEVER : master->until);
    wake = earlier(wake, first_due(&master->young, timing->kill_wait));
    wake = earlier(wake, first_due(&master->waiting, timing->lease));
    if (!master->serving || (master->graves && master->unannounced == 0 && master->counts.doubts == 0))
        wake = earlier(wake, master->grace_end);
    if (!list_empty(&master->pins))
        wake = earlier(
            wake, clock_after(list_entry(master->pins.next, struct record, pin)->pinned, master->options.soft_pin_ttl));
    return wake;
}

/* ---- Members, counts ---- */

void master_expel(struct master *master, uint64_t now, const struct message_id *segment) {
    struct member *member = member_find(master, segment);

    if (member != NULL)
        member_expel(master, now, member);
}

size_t master_members(const struct master *master, struct message_id *members, size_t capacity) {
    struct list *node, *after;
    size_t count = 0;

    list_each (node, after, &master->members) {
        if (count < capacity)
            members[count] = list_entry(node, struct member, all)->id;
        count++;
    }
    return count;
}

struct master_count master_count(const struct master *master) {
    struct master_count count = master->counts;

    count.members = master->member_count;
    return count;
}

/* store/attachment.c - reaching a segment. */
#include "store/attachment.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/object.h"

static void destroy(struct ref *ref) {
    struct attachment *attachment = list_entry(ref, struct attachment, ref);
    struct object *object;

    for (size_t i = 0; i < 2; i++)
        if (attachment->holds[i] != NULL)
            ref_drop(attachment->holds[i]);
    if (attachment->peer_id != 0 && object_withdraw(attachment->peer_id, OBJECT_PEER, &object) == MC_OK)
        ref_drop(&object->ref);
    if (attachment->peer != NULL)
        ref_drop(&attachment->peer->object.ref);
    if (attachment->own_memory != NULL)
        ref_drop(&attachment->own_memory->ref);
    if (attachment->own != NULL)
        owner_service_drop(attachment->own);
    pthread_mutex_destroy(&attachment->lock);
    free(attachment);
}

/* Maps what the owner has told, where a path maps. */
static void map(struct attachment *attachment, const struct message_attached *told) {
    const uint32_t access = MC_REMOTE_READ | MC_REMOTE_WRITE;
    void *memory, *pins;

    if (peer_map(attachment->peer, told->base, told->size, access, &memory, &attachment->holds[0]) != MC_OK)
        return;
    attachment->memory = memory;
    if (told->pins != 0 && told->pin_cells == PIN_CELLS &&
        peer_map(attachment->peer, told->pins, sizeof(struct pin_table), access, &pins, &attachment->holds[1]) == MC_OK)
        attachment->pins = pins;
}

/* The same of this process's own segment. */
static int32_t map_own(struct attachment *attachment, const struct message_attached *told) {
    struct segment_memory *memory = attachment->own_memory;
    uint64_t pins = (uint64_t)(uintptr_t)memory->pins;

    attachment->memory = memory->base;
    if (told->pins != 0 && told->pin_cells == PIN_CELLS &&
        checked_within(told->pins, sizeof(struct pin_table), pins, memory->pin_tables * sizeof(struct pin_table)))
        attachment->pins = &memory->pins[(told->pins - pins) / sizeof(struct pin_table)];
    return MC_OK;
}

static int32_t ask(struct attachment *attachment, const struct attacher *attacher, const struct message_id *segment,
                   uint64_t deadline, struct letter **ret_answer) {
    const char *address = attacher->engine->address;
    struct message_attach attach = {
        .client = attacher->client,
        .address = {.data = (const uint8_t *)address, .length = (uint32_t)strlen(address)},
        .segment = *segment,
    };
    struct letter *request;
    struct outbox out;
    int32_t status;

    outbox_init(&out);
    request = outbox_attach(&out, 0, &attach);
    status = request == NULL ? MC_ERR_NO_MEMORY : attachment_call(attachment, request, deadline, ret_answer);
    outbox_clear(&out);
    return status;
}

/* What the owner tells of the segment. */
static int32_t learn(struct attachment *attachment, const struct attacher *attacher, const struct message_id *segment,
                     uint64_t deadline, struct message_attached *ret_told) {
    struct letter *answer;
    uint64_t end;
    int32_t status = ask(attachment, attacher, segment, deadline, &answer);

    if (status != MC_OK)
        return status;
    status = message_unpack_attached(answer->body, answer->length, ret_told);
    if (status == MC_OK && !message_id_equal(&ret_told->segment, segment))
        status = MC_ERR_SEGMENT_NOT_FOUND;
    if (status == MC_OK &&
        (ret_told->size == 0 || ret_told->base % 8 != 0 || !checked_add(ret_told->base, ret_told->size, &end)))
        status = MC_ERR_PROTOCOL;
    free(answer);
    return status;
}

int32_t attachment_probe(struct attachment *attachment, const struct attacher *attacher,
                         const struct message_id *segment, uint64_t deadline) {
    struct message_attached told;

    return learn(attachment, attacher, segment, deadline, &told);
}

static int32_t attach(struct attachment *attachment, const struct attacher *attacher, const struct message_id *segment,
                      uint64_t deadline) {
    struct message_attached told;
    int32_t status = learn(attachment, attacher, segment, deadline, &told);

    if (status == MC_OK) {
        attachment->base = told.base;
        attachment->size = told.size;
        if (attachment->own != NULL)
            status = map_own(attachment, &told);
        else
            map(attachment, &told);
    }
    return status;
}

int32_t attachment_open(const struct attacher *attacher, const struct message_id *segment, const char *address,
                        uint64_t deadline, struct attachment **ret_attachment) {
    struct attachment *attachment = calloc(1, sizeof(*attachment));
    uint64_t now = clock_now();
    int32_t status = MC_OK;

    if (attachment == NULL)
        return MC_ERR_NO_MEMORY;
    ref_init(&attachment->ref, destroy);
    pthread_mutex_init(&attachment->lock, NULL);
    list_init(&attachment->dropped);
    if (strcmp(address, attacher->engine->address) == 0) {
        attachment->own = owners_find(attacher->owners, segment);
        if (attachment->own != NULL)
            attachment->own_memory = owner_service_take_memory(attachment->own);
        status = attachment->own_memory != NULL ? MC_OK : MC_ERR_SEGMENT_NOT_FOUND;
    } else {
        status = deadline <= now ? MC_ERR_TIMEOUT
                                 : peer_open(attacher->engine, address, deadline - now, &attachment->peer, NULL);
        if (status == MC_OK)
            status = object_publish(&attachment->peer->object, &attachment->peer_id);
    }
    if (status == MC_OK)
        status = attach(attachment, attacher, segment, deadline);
    if (status != MC_OK) {
        ref_drop(&attachment->ref);
        return status;
    }
    *ret_attachment = attachment;
    return MC_OK;
}

int attachment_take_cell(struct attachment *attachment) {
    int cell = -1;

    if (attachment->pins == NULL)
        return -1;
    pthread_mutex_lock(&attachment->lock);
    for (size_t i = 0; i < PIN_CELLS / 64 && cell < 0; i++) {
        if (attachment->pinned[i] != UINT64_MAX) {
            int bit = __builtin_ctzll(~attachment->pinned[i]);

            attachment->pinned[i] |= 1ull << bit;
            cell = (int)i * 64 + bit;
        }
    }
    pthread_mutex_unlock(&attachment->lock);
    return cell;
}

void attachment_give_cell(struct attachment *attachment, int cell) {
    atomic_store_explicit(&attachment->pins->cells[cell], 0, memory_order_release);
    pthread_mutex_lock(&attachment->lock);
    attachment->pinned[cell / 64] &= ~(1ull << (cell % 64));
    pthread_mutex_unlock(&attachment->lock);
}

int32_t attachment_call(struct attachment *attachment, const struct letter *request, uint64_t deadline,
                        struct letter **ret_answer) {
    if (attachment->own != NULL)
        return owner_service_call(attachment->own, request->type, request->body, request->length, ret_answer);
    return errand_call(attachment->peer->channel, request, deadline, ret_answer);
}

void attachment_begin(struct attachment *attachment, struct errand *errand) {
    if (attachment->own != NULL) {
        const struct letter *request = errand->request;

        errand->status =
            owner_service_call(attachment->own, request->type, request->body, request->length, &errand->answer);
        errand->done(errand);
    } else {
        errand_go(errand, attachment->peer->channel, &attachment->ref);
    }
}

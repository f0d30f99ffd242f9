/* store/view.c - objects on loan. */
#include "store/view.h"

#include <stdatomic.h>
#include <stdlib.h>

/* ---- The engine ---- */

static void engine_destroy(struct ref *ref) {
    struct store_engine *shared = list_entry(ref, struct store_engine, ref);

    engine_unuse(shared->engine);
    if (shared->own)
        (void)engine_close(shared->engine);
    ref_drop(&shared->engine->object.ref);
    free(shared);
}

int32_t store_engine_new(struct engine *engine, bool own, uint64_t view_bytes, struct store_engine **ret_engine) {
    struct store_engine *shared = calloc(1, sizeof(*shared));
    int32_t status;

    if (shared == NULL)
        return MC_ERR_NO_MEMORY;
    status = engine_use(engine);
    if (status != MC_OK) {
        free(shared);
        return status;
    }
    ref_init(&shared->ref, engine_destroy);
    ref_take(&engine->object.ref);
    shared->engine = engine;
    shared->own = own;
    shared->view_bytes = view_bytes;
    *ret_engine = shared;
    return MC_OK;
}

/* ---- Views ---- */

struct view *view_of(struct object *object) {
    return list_entry(object, struct view, object);
}

static void destroy(struct ref *ref) {
    struct view *view = list_entry(ref, struct view, object.ref);
    struct engine *engine = view->engine->engine;

    if (view->attachment != NULL) {
        attachment_give_cell(view->attachment, view->cell);
        if (engine_enter(engine) == MC_OK) {
            ref_drop(&view->attachment->ref);
            engine_leave(engine);
        }
    }
    free(view->copy);
    atomic_fetch_sub(&view->engine->viewed, view->length);
    ref_drop(&view->engine->ref);
    free(view);
}

static bool count_in(struct store_engine *engine, uint64_t length) {
    uint64_t viewed = atomic_load(&engine->viewed);

    do
        if (length > engine->view_bytes || viewed > engine->view_bytes - length)
            return false;
    while (!atomic_compare_exchange_weak(&engine->viewed, &viewed, viewed + length));
    return true;
}

static int32_t view_new(struct store_engine *engine, uint64_t length, struct view **ret_view) {
    struct view *view = calloc(1, sizeof(*view));

    if (view == NULL)
        return MC_ERR_NO_MEMORY;
    if (!count_in(engine, length)) {
        free(view);
        return MC_ERR_TOO_MANY;
    }
    object_init(&view->object, OBJECT_VIEW, destroy);
    ref_take(&engine->ref);
    view->engine = engine;
    view->length = length;
    *ret_view = view;
    return MC_OK;
}

int32_t view_pin(struct store_engine *engine, const struct client_read *read, bool verify, struct view **ret_view) {
    struct attachment *attachment = read->segment->user;
    const struct client_item *item = read->item;
    const struct slot *slot;
    struct view *view;
    int cell = attachment->memory != NULL ? attachment_take_cell(attachment) : -1;
    int32_t status;

    if (cell < 0)
        return MC_ERR_NOT_SUPPORTED;
    status = view_new(engine, read->length, &view);
    if (status != MC_OK) {
        attachment_give_cell(attachment, cell);
        return status;
    }
    ref_take(&attachment->ref);
    view->attachment = attachment;
    view->cell = cell;
    view->data = attachment->memory + read->place.offset;
    slot = slot_at(attachment->memory, &read->place);
    /* The pin first, then the look (rule 10): the owner does it the other way round. */
    atomic_store(&attachment->pins->cells[cell], read->place.generation);
    atomic_thread_fence(memory_order_seq_cst);
    if (!slot_look(slot, read->place.generation, &item->hash, read->length))
        status = MC_ERR_GUARD_MISMATCH;
    else if (verify &&
             slot_checksum(view->data, view->length, item->key, item->key_length) != slot_description(slot).crc)
        status = MC_ERR_CHECKSUM_MISMATCH;
    if (status != MC_OK)
        ref_drop(&view->object.ref);
    else
        *ret_view = view;
    return status;
}

int32_t view_copy(struct store_engine *engine, uint64_t length, struct view **ret_view) {
    struct view *view;
    int32_t status = view_new(engine, length, &view);

    if (status != MC_OK)
        return status;
    view->copy = malloc(length > 0 ? length : 1);
    view->data = view->copy;
    if (view->copy == NULL) {
        ref_drop(&view->object.ref);
        return MC_ERR_NO_MEMORY;
    }
    *ret_view = view;
    return MC_OK;
}

/* compat/transfer_engine/notifications.c - notifications as pairs of strings. Owns nothing; any thread.
 *
 * Those of other programs may have bytes of any value: a string ends at its first NUL.
 */
#include <stdlib.h>
#include <string.h>

#include "compat/words.h"

#include "compat/transfer_engine/inside.h"

#define DRAINED_MAX 65536u /* at a time, so that a busy sender can't keep a call */
#define ROOM_FIRST 16u

static void free_strings(notify_msg_t *list, size_t count) {
    for (size_t i = 0; i < count; i++) {
        free(list[i].name);
        free(list[i].msg);
    }
}

/* Copies one to list[*count]. False if memory is short. */
static bool keep(notify_msg_t *list, size_t *count, const struct mc_notification *note) {
    notify_msg_t copy = {strdup(note->name), strdup(note->message)};

    if (copy.name == NULL || copy.msg == NULL) {
        free_strings(&copy, 1);
        return false;
    }
    list[(*count)++] = copy;
    return true;
}

/* Doubles a full array, before anything is taken that would have no place. False if memory is short. */
static bool make_room(notify_msg_t **list, size_t count, size_t *room) {
    size_t wanted = *room == 0 ? ROOM_FIRST : *room * 2;
    notify_msg_t *grown;

    if (count < *room)
        return true;
    grown = realloc(*list, wanted * sizeof(*grown));
    if (grown == NULL)
        return false;
    *list = grown;
    *room = wanted;
    return true;
}

static notify_msg_t *drain(struct engine *engine, size_t *ret_count) {
    notify_msg_t *list = NULL;
    size_t count = 0, room = 0;
    struct mc_notification *note;

    while (count < DRAINED_MAX && make_room(&list, count, &room) &&
           mc_engine_receive(engine->engine, 0, &note) == MC_OK) {
        if (!keep(list, &count, note))
            words_warn("getNotifsFromEngine: a notification is lost: out of memory");
        mc_notification_free(note);
    }
    if (count == 0) {
        free(list);
        list = NULL;
    }
    *ret_count = count;
    return list;
}

notify_msg_t *getNotifsFromEngine(transfer_engine_t handle, int *n) {
    struct engine *engine = engine_enter(handle, __func__);
    notify_msg_t *list = NULL;
    size_t count = 0;

    if (n == NULL)
        (void)result_say(__func__, MC_ERR_INVALID_ARGUMENT, NULL);
    else if (engine != NULL)
        list = drain(engine, &count);
    if (n != NULL)
        *n = (int)count;
    if (engine != NULL)
        engine_leave(engine);
    return list;
}

int freeNotifsMsgBuf(notify_msg_t *list, int n) {
    if (n < 0 || (list == NULL && n > 0))
        return result_say(__func__, MC_ERR_INVALID_ARGUMENT, NULL);
    free_strings(list, (size_t)n);
    free(list);
    return 0;
}

int genNotifyInEngine(transfer_engine_t handle, uint64_t target, notify_msg_t notify) {
    struct engine *engine = engine_enter(handle, __func__);
    struct mc_error error = MC_ERROR_INIT;
    uint64_t peer = 0;
    int32_t status;

    if (engine == NULL)
        return result_of(MC_ERR_INVALID_HANDLE);
    if (notify.name == NULL || notify.msg == NULL || target > INT32_MAX)
        status = MC_ERR_INVALID_ARGUMENT;
    else
        status = segment_peer(engine, (int32_t)target, &peer, &error);
    if (status == MC_OK)
        status = mc_peer_notify(peer, notify.name, strlen(notify.name), notify.msg, strlen(notify.msg), 0, &error);
    engine_leave(engine);
    return status == MC_OK ? 0 : result_say(__func__, status, &error);
}

/* store/copy.c - the bytes of objects. Owns nothing. */
#include "store/copy.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "store/attachment.h"
#include "transfer/batch.h"

#define GUARDS_TRIED 3 /* a slot changes from RESERVED to LIVE once; once more for a look at the wrong moment */

/* ---- Transfers ---- */

/* A batch of requests that grows. */
struct load {
    struct mc_request *requests;
    size_t count;
    size_t capacity;
    bool short_of_memory;
};

static void load_add(struct load *load, const struct attachment *attachment, uint32_t opcode, void *local,
                     uint64_t offset, uint64_t length, const struct message_place *place, enum slot_state state) {
    if (load->count == load->capacity) {
        size_t capacity = load->capacity == 0 ? 8 : load->capacity * 2;
        struct mc_request *grown = realloc(load->requests, capacity * sizeof(*grown));

        if (grown == NULL) {
            load->short_of_memory = true;
            return;
        }
        load->requests = grown;
        load->capacity = capacity;
    }
    load->requests[load->count++] = (struct mc_request){
        .peer = attachment->peer_id,
        .opcode = opcode,
        .flags = MC_REQUEST_GUARD,
        .local = local,
        .remote = attachment->base + offset,
        .length = length,
        .guard_address = attachment->base + place->slot,
        .guard_value = slot_word(place->generation, state),
    };
}

/* Carries the requests out; each one's status to statuses[]. */
static void load_move(struct engine *engine, struct load *load, uint64_t deadline, int32_t *statuses) {
    uint64_t now = clock_now();
    const struct batch_options options = {
        .timeout = deadline > now ? deadline - now : 1,
        .attended = true,
        .unregistered = true,
    };
    struct batch *batch;
    int32_t status = load->short_of_memory ? MC_ERR_NO_MEMORY
                                           : batch_prepare(engine, load->requests, load->count,
                                                           sizeof(load->requests[0]), &options, &batch, NULL);

    for (size_t i = 0; i < load->count; i++)
        statuses[i] = status;
    if (status != MC_OK)
        return;
    batch_begin(batch, 0);
    (void)batch_wait(batch, deadline);
    if (!batch_is_done(batch))
        batch_stop(batch, MC_ERR_TIMEOUT);
    for (size_t i = 0; i < load->count; i++) {
        struct mc_request_status one;

        batch_status(batch, i, &one);
        statuses[i] = one.state == MC_STATE_COMPLETED ? MC_OK : one.status;
    }
    batch_retire(batch);
}

/* ---- Writing ---- */

static void write_mapped(struct client_write *write, uint8_t *memory) {
    const struct client_item *item = write->item;
    uint8_t *extent = memory + write->place.offset;

    write->description.crc = crc32c(slot_copy_summed(extent, item->value, item->length), item->key, item->key_length);
    slot_copy(extent + item->length, item->key, item->key_length);
    slot_describe(slot_at(memory, &write->place), &write->description);
    atomic_thread_fence(memory_order_release);
    write->status = MC_OK;
}

#define TRANSFERS_A_WRITE 3u

static void load_write(struct load *load, struct client_write *write, const struct attachment *attachment) {
    const struct client_item *item = write->item;
    void *value = (void *)(uintptr_t)item->value, *key = (void *)(uintptr_t)item->key;

    write->description.crc = slot_checksum(item->value, item->length, item->key, item->key_length);
    load_add(load, attachment, MC_WRITE, value, write->place.offset, item->length, &write->place, SLOT_RESERVED);
    load_add(load, attachment, MC_WRITE, key, write->place.offset + item->length, item->key_length, &write->place,
             SLOT_RESERVED);
    load_add(load, attachment, MC_WRITE, &write->description, write->place.slot + offsetof(struct slot, described),
             sizeof(write->description), &write->place, SLOT_RESERVED);
}

void copy_writes(struct engine *engine, struct client_write *writes, size_t count, uint64_t deadline) {
    struct load load = {0};
    int32_t *statuses;
    size_t next = 0;

    for (size_t i = 0; i < count; i++) {
        struct attachment *attachment = writes[i].segment->user;

        if (attachment->memory != NULL)
            write_mapped(&writes[i], attachment->memory);
        else
            load_write(&load, &writes[i], attachment);
    }
    statuses = load.count > 0 ? calloc(load.count, sizeof(*statuses)) : NULL;
    if (statuses != NULL)
        load_move(engine, &load, deadline, statuses);
    for (size_t i = 0; i < count && load.count > 0; i++) {
        if (((struct attachment *)writes[i].segment->user)->memory != NULL)
            continue;
        writes[i].status = statuses == NULL || load.short_of_memory ? MC_ERR_NO_MEMORY : MC_OK;
        for (size_t j = 0; j < TRANSFERS_A_WRITE && writes[i].status == MC_OK; j++)
            writes[i].status = statuses[next + j];
        next += TRANSFERS_A_WRITE;
    }
    free(statuses);
    free(load.requests);
}

/* ---- Reading ---- */

/* Was what was copied the object that was wanted? */
static int32_t check_description(const struct client_read *read, const struct slot_description *described) {
    const struct client_item *item = read->item;

    if (!key_hash_equal(&described->hash, &item->hash) || described->length != read->length ||
        described->key_length != item->key_length)
        return MC_ERR_GUARD_MISMATCH;
    return MC_OK;
}

static int32_t check_bytes(const struct client_read *read, const void *buffer, uint32_t crc) {
    return slot_checksum(buffer, read->length, read->item->key, read->item->key_length) == crc
               ? MC_OK
               : MC_ERR_CHECKSUM_MISMATCH;
}

int32_t copy_from_slot(const struct client_item *item, uint8_t *memory, const struct message_place *place,
                       uint64_t length, void *buffer, bool verify) {
    const struct slot *slot = slot_at(memory, place);
    const uint8_t *value = memory + place->offset;
    uint32_t wanted, crc = 0;

    if (!slot_look(slot, place->generation, &item->hash, length))
        return MC_ERR_GUARD_MISMATCH;
    wanted = slot_description(slot).crc;
    if (verify)
        crc = crc32c(slot_copy_summed(buffer, value, length), item->key, item->key_length);
    else
        slot_copy(buffer, value, length);
    if (!slot_look_again(slot, place->generation))
        return MC_ERR_GUARD_MISMATCH;
    return verify && crc != wanted ? MC_ERR_CHECKSUM_MISMATCH : MC_OK;
}

/* A read by transfers. */
struct remote_read {
    struct copy_target *target;
    struct slot slot; /* as it was read */
    enum slot_state state;
    bool again;
};

#define TRANSFERS_A_READ 2u

/* What became of a read whose transfers have ended. */
static int32_t judge(struct remote_read *remote, const int32_t statuses[TRANSFERS_A_READ]) {
    const struct client_read *read = remote->target->read;
    uint64_t word = remote->slot.word;
    int32_t status = statuses[0] != MC_OK ? statuses[0] : statuses[1];
    struct slot_description described;

    remote->again = false;
    if (status == MC_ERR_GUARD_MISMATCH) {
        /* RESERVED where LIVE was expected, or it has just been promoted? */
        if (remote->state == SLOT_LIVE && word != slot_word(read->place.generation, SLOT_LIVE))
            remote->state = SLOT_RESERVED;
        else
            remote->state = SLOT_LIVE;
        remote->again = word == 0 || slot_word_readable(word, read->place.generation);
        return status;
    }
    if (status != MC_OK)
        return status;
    described = slot_description(&remote->slot);
    status = check_description(read, &described);
    return status == MC_OK ? check_bytes(read, remote->target->buffer, described.crc) : status;
}

/* Transfers all that are to be read (again). Returns how many want another try. */
static size_t read_round(struct engine *engine, struct remote_read *remotes, size_t count, uint64_t deadline) {
    struct load load = {0};
    int32_t *statuses;
    size_t next = 0, again = 0;

    for (size_t i = 0; i < count; i++) {
        const struct client_read *read = remotes[i].target->read;

        if (!remotes[i].again)
            continue;
        load_add(&load, read->segment->user, MC_READ, &remotes[i].slot, read->place.slot, sizeof(struct slot),
                 &read->place, remotes[i].state);
        load_add(&load, read->segment->user, MC_READ, remotes[i].target->buffer, read->place.offset, read->length,
                 &read->place, remotes[i].state);
    }
    statuses = calloc(load.count > 0 ? load.count : 1, sizeof(*statuses));
    if (statuses != NULL)
        load_move(engine, &load, deadline, statuses);
    for (size_t i = 0; i < count; i++) {
        if (!remotes[i].again)
            continue;
        if (statuses == NULL || load.short_of_memory) {
            remotes[i].again = false;
            remotes[i].target->read->status = MC_ERR_NO_MEMORY;
        } else {
            remotes[i].target->read->status = judge(&remotes[i], statuses + next);
        }
        next += TRANSFERS_A_READ;
        again += remotes[i].again;
    }
    free(statuses);
    free(load.requests);
    return again;
}

void copy_reads(struct engine *engine, struct copy_target *targets, size_t count, bool verify, uint64_t deadline) {
    struct remote_read *remotes = NULL;
    size_t far = 0;

    for (size_t i = 0; i < count; i++) {
        struct client_read *read = targets[i].read;
        struct attachment *attachment = read->segment->user;

        if (attachment->memory != NULL)
            read->status =
                copy_from_slot(read->item, attachment->memory, &read->place, read->length, targets[i].buffer, verify);
        else
            far++;
    }
    if (far == 0)
        return;
    remotes = calloc(far, sizeof(*remotes));
    far = 0;
    for (size_t i = 0; i < count; i++) {
        if (((struct attachment *)targets[i].read->segment->user)->memory != NULL)
            continue;
        targets[i].read->status = MC_ERR_NO_MEMORY;
        if (remotes != NULL)
            remotes[far++] = (struct remote_read){.target = &targets[i], .state = SLOT_LIVE, .again = true};
    }
    for (int round = 0; round < GUARDS_TRIED && remotes != NULL; round++)
        if (read_round(engine, remotes, far, deadline) == 0)
            break;
    free(remotes);
}

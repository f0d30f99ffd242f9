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

/* ---- Pieces ---- */

/* The part of a value of `length` bytes that piece i is for, of which `*done` bytes were had; false: there is none. */
static bool next_part(const struct copy_memory *memory, uint32_t i, uint64_t length, uint64_t *done,
                      struct mc_piece *ret_part) {
    const struct mc_piece *piece = &memory->pieces[i];

    *ret_part = *piece;
    if (!memory->ranges) {
        ret_part->offset = *done;
        if (ret_part->length > length - *done)
            ret_part->length = length - *done;
    }
    *done += ret_part->length;
    return ret_part->length > 0;
}

/* Do all ranges lie within the value? */
static bool within(const struct copy_memory *memory, uint64_t length) {
    for (uint32_t i = 0; memory->ranges && i < memory->count; i++)
        if (memory->pieces[i].offset > length || memory->pieces[i].length > length - memory->pieces[i].offset)
            return false;
    return true;
}

static void load_add_parts(struct load *load, const struct attachment *attachment, uint32_t opcode,
                           const struct copy_memory *memory, uint64_t length, const struct message_place *place,
                           enum slot_state state) {
    uint64_t done = 0;
    struct mc_piece part;

    for (uint32_t i = 0; i < memory->count; i++)
        if (next_part(memory, i, length, &done, &part))
            load_add(load, attachment, opcode, part.address, place->offset + part.offset, part.length, place, state);
}

/* The first failure among the transfers of one object. */
static int32_t outcome(const int32_t *statuses, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (statuses[i] != MC_OK)
            return statuses[i];
    return MC_OK;
}

/* ---- Writing ---- */

/* Copies what the source has to the extent; its CRC32C, which makes sense for a whole value. */
static uint32_t write_parts(const struct copy_source *source, uint8_t *segment) {
    uint8_t *extent = segment + source->write->place.offset;
    uint64_t done = 0;
    uint32_t crc = source->sum;
    struct mc_piece part;

    for (uint32_t i = 0; i < source->memory.count; i++)
        if (next_part(&source->memory, i, source->write->item->length, &done, &part))
            crc = slot_copy_summed(crc, extent + part.offset, part.address, part.length);
    return crc;
}

static void complete(const struct copy_source *source, uint8_t *segment, uint32_t crc) {
    struct client_write *write = source->write;
    const struct client_item *item = write->item;

    write->description.crc = crc32c(crc, item->key, item->key_length);
    slot_copy(segment + write->place.offset + item->length, item->key, item->key_length);
    slot_describe(slot_at(segment, &write->place), &write->description);
}

static uint32_t checksum(const struct copy_memory *memory, uint32_t crc, uint64_t length,
                         const struct client_item *item) {
    uint64_t done = 0;
    struct mc_piece part;

    for (uint32_t i = 0; i < memory->count; i++)
        if (next_part(memory, i, length, &done, &part))
            crc = crc32c(crc, part.address, part.length);
    return crc32c(crc, item->key, item->key_length);
}

static void load_completion(struct load *load, const struct copy_source *source, const struct attachment *attachment) {
    struct client_write *write = source->write;
    const struct client_item *item = write->item;
    void *key = (void *)(uintptr_t)item->key;

    write->description.crc = checksum(&source->memory, source->sum, item->length, item);
    load_add(load, attachment, MC_WRITE, key, write->place.offset + item->length, item->key_length, &write->place,
             SLOT_RESERVED);
    load_add(load, attachment, MC_WRITE, &write->description, write->place.slot + offsetof(struct slot, described),
             sizeof(write->description), &write->place, SLOT_RESERVED);
}

static const struct attachment *far_attachment(const struct client_segment *segment) {
    const struct attachment *attachment = segment->user;

    return attachment->memory == NULL ? attachment : NULL;
}

/* Writes by transfers: all requests in one batch, those of a write behind each other. */
static void write_far(struct engine *engine, const struct copy_source *sources, size_t count, bool whole,
                      uint64_t deadline) {
    struct load load = {0};
    size_t *ends = calloc(count, sizeof(*ends)), first = 0; /* the requests of write i end before ends[i] */
    int32_t *statuses;

    for (size_t i = 0; i < count && ends != NULL; i++) {
        const struct client_write *write = sources[i].write;
        const struct attachment *attachment = far_attachment(write->segment);

        if (attachment != NULL)
            load_add_parts(&load, attachment, MC_WRITE, &sources[i].memory, write->item->length, &write->place,
                           SLOT_RESERVED);
        if (attachment != NULL && whole)
            load_completion(&load, &sources[i], attachment);
        ends[i] = load.count;
    }
    statuses = calloc(load.count > 0 ? load.count : 1, sizeof(*statuses));
    if (statuses != NULL && ends != NULL && load.count > 0)
        load_move(engine, &load, deadline, statuses);
    for (size_t i = 0; i < count; i++) {
        if (far_attachment(sources[i].write->segment) == NULL)
            continue;
        sources[i].write->status = statuses == NULL || ends == NULL || load.short_of_memory
                                       ? MC_ERR_NO_MEMORY
                                       : outcome(&statuses[first], ends[i] - first);
        first = ends != NULL ? ends[i] : 0;
    }
    free(ends);
    free(statuses);
    free(load.requests);
}

static void write_all(struct engine *engine, const struct copy_source *sources, size_t count, bool whole,
                      uint64_t deadline) {
    bool far = false;

    for (size_t i = 0; i < count; i++) {
        struct attachment *attachment = sources[i].write->segment->user;
        uint32_t crc;

        if (attachment->memory == NULL) {
            far = true;
            continue;
        }
        crc = write_parts(&sources[i], attachment->memory);
        if (whole)
            complete(&sources[i], attachment->memory, crc);
        sources[i].write->status = MC_OK;
    }
    atomic_thread_fence(memory_order_release);
    if (far)
        write_far(engine, sources, count, whole, deadline);
}

void copy_writes(struct engine *engine, const struct copy_source *sources, size_t count, uint64_t deadline) {
    write_all(engine, sources, count, true, deadline);
}

void copy_parts(struct engine *engine, const struct copy_source *sources, size_t count, uint64_t deadline) {
    write_all(engine, sources, count, false, deadline);
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

/* A part of an object can't be compared with a checksum of the whole. */
static int32_t check_bytes(const struct copy_target *target, uint32_t crc) {
    if (target->memory.ranges)
        return within(&target->memory, target->read->length) ? MC_OK : MC_ERR_INVALID_ARGUMENT;
    return checksum(&target->memory, 0, target->read->length, target->read->item) == crc ? MC_OK
                                                                                         : MC_ERR_CHECKSUM_MISMATCH;
}

int32_t copy_from_slot(const struct client_item *item, uint8_t *memory, const struct message_place *place,
                       uint64_t length, const struct copy_memory *to, bool verify) {
    const struct slot *slot = slot_at(memory, place);
    const uint8_t *value = memory + place->offset;
    bool summed = verify && !to->ranges;
    uint32_t wanted, crc = 0;
    uint64_t done = 0;
    struct mc_piece part;

    if (!slot_look(slot, place->generation, &item->hash, length))
        return MC_ERR_GUARD_MISMATCH;
    if (!within(to, length))
        return MC_ERR_INVALID_ARGUMENT;
    wanted = slot_description(slot).crc;
    for (uint32_t i = 0; i < to->count; i++) {
        if (!next_part(to, i, length, &done, &part))
            continue;
        if (summed)
            crc = slot_copy_summed(crc, part.address, value + part.offset, part.length);
        else
            slot_copy(part.address, value + part.offset, part.length);
    }
    if (summed)
        crc = crc32c(crc, item->key, item->key_length);
    if (!slot_look_again(slot, place->generation))
        return MC_ERR_GUARD_MISMATCH;
    return summed && crc != wanted ? MC_ERR_CHECKSUM_MISMATCH : MC_OK;
}

/* A read by transfers. */
struct remote_read {
    struct copy_target *target;
    struct slot slot; /* as it was read */
    enum slot_state state;
    bool again;
    size_t first; /* of its transfers … */
    size_t count; /* … and how many */
};

/* What became of a read whose transfers have ended. */
static int32_t judge(struct remote_read *remote, const int32_t *statuses) {
    const struct client_read *read = remote->target->read;
    uint64_t word = remote->slot.word;
    int32_t status = outcome(&statuses[remote->first], remote->count);
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
    return status == MC_OK ? check_bytes(remote->target, described.crc) : status;
}

/* The transfers of one read: its slot, and what is wanted of the object. */
static void load_read(struct load *load, struct remote_read *remote) {
    const struct client_read *read = remote->target->read;

    remote->first = load->count;
    load_add(load, read->segment->user, MC_READ, &remote->slot, read->place.slot, sizeof(struct slot), &read->place,
             remote->state);
    if (within(&remote->target->memory, read->length))
        load_add_parts(load, read->segment->user, MC_READ, &remote->target->memory, read->length, &read->place,
                       remote->state);
    remote->count = load->count - remote->first;
}

/* Transfers all that are to be read (again). Returns how many want another try. */
static size_t read_round(struct engine *engine, struct remote_read *remotes, size_t count, uint64_t deadline) {
    struct load load = {0};
    int32_t *statuses;
    size_t again = 0;

    for (size_t i = 0; i < count; i++)
        if (remotes[i].again)
            load_read(&load, &remotes[i]);
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
            remotes[i].target->read->status = judge(&remotes[i], statuses);
        }
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
                copy_from_slot(read->item, attachment->memory, &read->place, read->length, &targets[i].memory, verify);
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

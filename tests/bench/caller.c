/* tests/bench/caller.c - blocking calls of the engine. */
#include "caller.h"

static void fill(const struct caller *caller, const struct work *work, uint64_t offset, struct mc_request *requests) {
    for (uint32_t i = 0; i < work->items; i++, offset += work->size)
        requests[i] = (struct mc_request){
            .peer = caller->peer,
            .opcode = work->opcode,
            .flags = caller->request_flags,
            .local = caller->local + offset,
            .remote = caller->remote + offset,
            .length = work->size,
        };
}

/* As mc_engine_transfer, but that the statuses are looked at. */
static int32_t submit_and_wait(struct caller *caller, const struct mc_request *requests, uint32_t count) {
    struct mc_batch_options options = {.struct_size = sizeof(options), .flags = MC_BATCH_DRIVEN};
    struct mc_request_status status;
    uint64_t batch;
    int32_t result = mc_batch_submit(caller->engine, requests, count, sizeof(*requests), &options, &batch, NULL);

    if (result != MC_OK)
        return result;
    result = mc_batch_wait(batch, UINT64_MAX);
    CHECK(mc_batch_status(batch, count - 1, &status, 1, sizeof(status)));
    caller->checksum = status.checksum;
    CHECK(mc_batch_free(batch));
    return result;
}

void caller_call(const struct subject *subject, const struct work *work, uint64_t index) {
    struct caller *caller = subject->context;
    uint64_t offset = work_offset(work, index), remote = caller->remote + offset;
    struct mc_request requests[BATCH_MAX];
    void *local = caller->local + offset;

    if (work->items > 1 || caller->request_flags != 0)
        fill(caller, work, offset, requests);
    if (caller->request_flags != 0)
        CHECK(submit_and_wait(caller, requests, work->items));
    else if (work->items > 1)
        CHECK(mc_engine_transfer(caller->engine, requests, work->items, sizeof(requests[0]), 0, NULL));
    else if (work->opcode == MC_READ)
        CHECK(mc_peer_read(caller->peer, local, remote, work->size, 0, NULL));
    else
        CHECK(mc_peer_write(caller->peer, local, remote, work->size, 0, NULL));
}

const char *caller_trouble(struct caller *caller) {
    struct work work = {.opcode = MC_WRITE, .items = 1, .threads = 1, .size = 1, .span = SPAN, .calls = 1};
    struct mc_request request;
    int32_t status;

    fill(caller, &work, 0, &request);
    status = submit_and_wait(caller, &request, 1);
    return status == MC_OK ? NULL : mc_status_name(status);
}

void caller_start(struct caller *caller, const struct caller_options *options, const struct target *target,
                  unsigned char *local) {
    struct mc_engine_options engine = {
        .struct_size = sizeof(engine),
        .protocol = options->protocol,
        .lanes = options->lanes,
        .flags = options->engine_flags,
        .busy_poll_us = options->busy_poll_us,
    };

    *caller = (struct caller){
        .request_flags = options->request_flags,
        .local = local,
        .remote = options->ordinary ? (uint64_t)(uintptr_t)target->ordinary : target->address,
    };
    CHECK(mc_engine_open(&engine, &caller->engine, NULL));
    CHECK(mc_engine_register(caller->engine, local, SPAN, NULL, 0, NULL));
    CHECK(mc_peer_open(caller->engine, options->busy_poll_us > 0 ? target->busy_engine : target->engine, &caller->peer,
                       NULL));
}

void caller_stop(struct caller *caller) {
    CHECK(mc_peer_close(caller->peer));
    CHECK(mc_engine_unregister(caller->engine, caller->local, NULL));
    CHECK(mc_engine_close(caller->engine));
}

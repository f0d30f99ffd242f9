/* fixture.c - see compat.h. */
#include "compat.h"

#include <time.h>

#define PATIENCE 30 /* seconds for what should take milliseconds */

__attribute__((no_sanitize("thread"), noinline)) void write_over(volatile uint8_t *memory, size_t size, uint8_t step,
                                                                 uint8_t first) {
    for (size_t i = 0; i < size; i++)
        memory[i] = (uint8_t)(i * step + first);
}

transfer_engine_t engine_new(const char *name) {
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", name, "", 0, 1);

    assert_non_null(engine);
    return engine;
}

void engine_address(transfer_engine_t engine, char text[ADDRESS_TEXT]) {
    assert_int_equal(getLocalIpAndPort(engine, text, ADDRESS_TEXT), 0);
}

static uint8_t *memory_new(transfer_engine_t engine) {
    uint8_t *memory = aligned_alloc(4096, MIB);

    assert_non_null(memory);
    for (size_t i = 0; i < MIB; i++)
        memory[i] = (uint8_t)(i * 31 >> 3);
    assert_int_equal(registerLocalMemory(engine, memory, MIB, "*", 1), 0);
    return memory;
}

int pair_open(void **state) {
    struct pair *pair = calloc(1, sizeof(*pair));

    assert_non_null(pair);
    pair->here = engine_new("127.0.0.1");
    pair->there = engine_new("127.0.0.1");
    engine_address(pair->there, pair->address);
    pair->near = memory_new(pair->here);
    pair->far = memory_new(pair->there);
    pair->segment = openSegment(pair->here, pair->address);
    assert_true(pair->segment >= 1);
    *state = pair;
    return 0;
}

int pair_close(void **state) {
    struct pair *pair = *state;

    destroyTransferEngine(pair->here);
    destroyTransferEngine(pair->there);
    free(pair->near);
    free(pair->far);
    free(pair);
    return 0;
}

transfer_request_t request_at(const struct pair *pair, int opcode, size_t offset, size_t length) {
    return (transfer_request_t){.opcode = opcode,
                                .source = pair->near + offset,
                                .target_id = pair->segment,
                                .target_offset = (uint64_t)(uintptr_t)(pair->far + offset),
                                .length = length};
}

int task_end(const struct pair *pair, uint64_t batch, size_t task, uint64_t *ret_bytes) {
    transfer_status_t status = {.status = STATUS_WAITING};
    time_t end = time(NULL) + PATIENCE;

    while (status.status == STATUS_WAITING || status.status == STATUS_PENDING) {
        assert_int_equal(getTransferStatus(pair->here, batch, task, &status), 0);
        assert_true(time(NULL) < end);
    }
    if (ret_bytes != NULL)
        *ret_bytes = status.transferred_bytes;
    return status.status;
}

int moved(const struct pair *pair, transfer_request_t request) {
    uint64_t batch = allocateBatchID(pair->here, 1);
    int state;

    assert_true(batch != INVALID_BATCH);
    assert_int_equal(submitTransfer(pair->here, batch, &request, 1), 0);
    state = task_end(pair, batch, 0, NULL);
    assert_int_equal(freeBatchID(pair->here, batch), 0);
    return state;
}

/* test_memory.c - registration answers as programs of the reference expect it, and its rights are kept. */
#include "compat.h"

static void overlaps_are_refused_also_the_same_range_again(void **state) {
    const struct pair *pair = *state;

    assert_int_equal(registerLocalMemory(pair->here, pair->near, MIB, "*", 1), -7);
    assert_int_equal(registerLocalMemory(pair->here, pair->near, 4096, "*", 1), -7);
    assert_int_equal(registerLocalMemory(pair->here, pair->near + 4096, 4096, "*", 1), -7);
    assert_int_equal(unregisterLocalMemory(pair->here, pair->near), 0);
    assert_int_equal(unregisterLocalMemory(pair->here, pair->near), -3);
    assert_int_equal(registerLocalMemory(pair->here, pair->near, MIB / 2, "cpu:0", 1), 0);
    assert_int_equal(registerLocalMemory(pair->here, pair->near + MIB / 2, MIB / 2, NULL, 1), 0);
    assert_int_equal(unregisterLocalMemory(pair->here, pair->near + MIB / 2), 0);
    assert_int_equal(unregisterLocalMemory(pair->here, pair->near), 0);
}

static void what_cannot_be_registered_is_a_negative_code(void **state) {
    const struct pair *pair = *state;
    uint8_t byte;

    assert_int_equal(registerLocalMemory(pair->here, &byte, 0, "*", 1), -1);
    assert_int_equal(registerLocalMemory(pair->here, NULL, 4096, "*", 1), -1);
    assert_int_equal(registerLocalMemory(pair->here, (void *)(UINTPTR_MAX - 4095), 8192, "*", 1), -1);
    assert_int_equal(registerLocalMemory(pair->here, (void *)4096, 4096, "*", 1), -1); /* not mapped */
    assert_int_equal(registerLocalMemory(pair->here, &byte, 1, "cuda:0", 1), -6);
    assert_int_equal(unregisterLocalMemory(pair->here, &byte), -3);
    assert_int_equal(unregisterLocalMemory(pair->here, NULL), -3);
    assert_int_equal(registerLocalMemory(pair->here, &byte, 1, "", 1), 0); /* what failed left nothing behind */
    assert_int_equal(unregisterLocalMemory(pair->here, &byte), 0);
}

static void memory_that_is_not_remotely_accessible_is_for_the_local_end_only(void **state) {
    const struct pair *pair = *state;

    assert_int_equal(unregisterLocalMemory(pair->there, pair->far), 0);
    assert_int_equal(registerLocalMemory(pair->there, pair->far, MIB, "*", 0), 0);
    memset(pair->far, 1, 4096);
    memset(pair->near, 2, 4096);
    assert_int_equal(moved(pair, request_at(pair, OPCODE_READ, 0, 4096)), STATUS_FAILED);
    assert_int_equal(moved(pair, request_at(pair, OPCODE_WRITE, 0, 4096)), STATUS_FAILED);
    assert_int_equal(pair->far[0], 1);
    assert_int_equal(pair->near[0], 2);
    assert_int_equal(unregisterLocalMemory(pair->here, pair->near), 0);
    assert_int_equal(registerLocalMemory(pair->here, pair->near, MIB, "*", 0), 0);
    assert_int_equal(unregisterLocalMemory(pair->there, pair->far), 0);
    assert_int_equal(registerLocalMemory(pair->there, pair->far, MIB, "*", 1), 0);
    assert_int_equal(moved(pair, request_at(pair, OPCODE_WRITE, 0, 4096)), STATUS_COMPLETED);
    assert_int_equal(pair->far[0], 2);
}

static void unregistered_memory_is_reached_no_more(void **state) {
    const struct pair *pair = *state;

    assert_int_equal(moved(pair, request_at(pair, OPCODE_WRITE, 0, 4096)), STATUS_COMPLETED);
    assert_int_equal(unregisterLocalMemory(pair->there, pair->far), 0);
    assert_int_equal(moved(pair, request_at(pair, OPCODE_WRITE, 0, 4096)), STATUS_FAILED);
    assert_int_equal(registerLocalMemory(pair->there, pair->far, MIB, "*", 1), 0);
    assert_int_equal(moved(pair, request_at(pair, OPCODE_WRITE, 0, 4096)), STATUS_COMPLETED);
}

static void lists_are_registered_all_or_none(void **state) {
    const struct pair *pair = *state;
    static uint8_t memory[4][4096];
    buffer_entry_t list[4] = {{memory[0], 4096}, {memory[1], 4096}, {memory[2], 0}, {memory[3], 4096}};
    void *addresses[5] = {memory[0], memory[1], memory[0], memory[2], memory[3]};

    assert_int_equal(registerLocalMemoryBatch(pair->here, list, 4, "*"), -1);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(unregisterLocalMemory(pair->here, memory[i]), -3);
    list[2].length = 4096;
    assert_int_equal(registerLocalMemoryBatch(pair->here, list, 4, "*"), 0);
    assert_int_equal(registerLocalMemoryBatch(pair->here, list, 4, "*"), -7);
    assert_int_equal(unregisterLocalMemoryBatch(pair->here, addresses, 5), -3); /* one of them twice */
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(unregisterLocalMemory(pair->here, memory[i]), -3); /* the others all the same */
    assert_int_equal(registerLocalMemoryBatch(pair->here, NULL, 0, "*"), 0);
    assert_int_equal(unregisterLocalMemoryBatch(pair->here, NULL, 0), 0);
    assert_int_equal(registerLocalMemoryBatch(pair->here, NULL, 1, "*"), -1);
    assert_int_equal(unregisterLocalMemoryBatch(pair->here, NULL, 1), -1);
}

static void lists_are_reached_by_peers(void **state) {
    const struct pair *pair = *state;
    static uint8_t memory[2][4096];
    buffer_entry_t list[2] = {{memory[0], 4096}, {memory[1], 4096}};
    transfer_request_t request = request_at(pair, OPCODE_WRITE, 0, 4096);

    memset(pair->near, 9, 4096);
    assert_int_equal(registerLocalMemoryBatch(pair->there, list, 2, "cpu:0"), 0);
    request.target_offset = (uint64_t)(uintptr_t)memory[1];
    assert_int_equal(moved(pair, request), STATUS_COMPLETED);
    assert_memory_equal(memory[1], pair->near, 4096);
}

TESTS(memory, PAIR_TEST(overlaps_are_refused_also_the_same_range_again),
      PAIR_TEST(what_cannot_be_registered_is_a_negative_code),
      PAIR_TEST(memory_that_is_not_remotely_accessible_is_for_the_local_end_only),
      PAIR_TEST(unregistered_memory_is_reached_no_more), PAIR_TEST(lists_are_registered_all_or_none),
      PAIR_TEST(lists_are_reached_by_peers));

/* test_bytes.c - what is transferred is exact, and nothing beside it changes. */
#include "contract.h"

#include <semaphore.h>
#include <stdio.h>

#define MARGIN ((size_t)4096)

struct ends {
    uint8_t *near, *far;
    uint8_t *before; /* of the destination */
};

static void transfer_exactly(const struct pair *pair, const struct ends *ends, uint32_t opcode, size_t length,
                             size_t near_offset, size_t far_offset) {
    uint8_t *local = ends->near + near_offset, *remote = ends->far + far_offset;
    uint8_t *to = opcode == MC_READ ? local : remote, *from = opcode == MC_READ ? remote : local;
    uint64_t source;

    fill(from, length, length + near_offset);
    source = hash(from, length);
    fill(to - MARGIN, length + 2 * MARGIN, length + far_offset + opcode + 77);
    memcpy(ends->before, to - MARGIN, length + 2 * MARGIN);
    if (opcode == MC_READ)
        OK(mc_peer_read(pair->peer, local, (uint64_t)(uintptr_t)remote, length, 0, contract_error()));
    else
        OK(mc_peer_write(pair->peer, local, (uint64_t)(uintptr_t)remote, length, 0, contract_error()));
    assert_same(to, from, length);
    assert_true(hash(from, length) == source);
    assert_same(to - MARGIN, ends->before, MARGIN);
    assert_same(to + length, ends->before + MARGIN + length, MARGIN);
}

static void all_sizes(const struct pair *pair, const struct ends *ends) {
    static const size_t edges[] = {
        1, 2, 8, 64, 512, 4096, 1 << 16, 1 << 18, (1 << 18) * 3, (size_t)1 << 20, 5 << 20, (size_t)8 << 20};
    static const size_t offsets[][2] = {{0, 0}, {1, 0}, {0, 3}, {7, 13}, {9, 9}};

    for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++)
        for (size_t length = edges[i] - 1; length <= edges[i] + 1; length++)
            for (size_t j = 0; j<sizeof(offsets) / sizeof(offsets[0]); j += edges[i]> MIB ? 3 : 1)
                for (uint32_t opcode = MC_READ; opcode <= MC_WRITE; opcode++)
                    transfer_exactly(pair, ends, opcode, length, MARGIN + offsets[j][0], MARGIN + offsets[j][1]);
}

/* Fault 16. */
static void every_size_is_exact_between_memory_of_mc_memory_alloc(void **state) {
    const struct pair *pair = *state;
    struct ends ends = {pair->near, pair->far, malloc(SPAN)};

    all_sizes(pair, &ends);
    free(ends.before);
}

/* Fault 16. */
static void every_size_is_exact_between_malloced_memory(void **state) {
    const struct pair *pair = *state;
    struct ends ends = {malloc(SPAN), malloc(SPAN), malloc(SPAN)};

    assert_true(ends.near != NULL && ends.far != NULL && ends.before != NULL);
    OK(mc_engine_register(pair->here, ends.near, SPAN, NULL, RIGHTS, contract_error()));
    OK(mc_engine_register(pair->there, ends.far, SPAN, NULL, RIGHTS, contract_error()));
    all_sizes(pair, &ends);
    OK(mc_engine_unregister(pair->here, ends.near, contract_error()));
    OK(mc_engine_unregister(pair->there, ends.far, contract_error()));
    free(ends.near);
    free(ends.far);
    free(ends.before);
}

/* Memory of these pages on both sides; false where there are too few. */
static bool moves_as_any_other(const struct pair *pair, uint32_t flags) {
    struct mc_memory_options options = {.struct_size = sizeof(options), .flags = flags};
    uint64_t ids[2];
    void *memory[2];
    struct ends ends;
    int32_t status = mc_memory_alloc(3 * MIB, &options, &ids[0], &memory[0], contract_error());

    if (status == MC_OK) {
        status = mc_memory_alloc(3 * MIB, &options, &ids[1], &memory[1], contract_error());
        if (status != MC_OK)
            OK(mc_memory_free(ids[0]));
    }
    if (status == MC_ERR_NO_MEMORY || status == MC_ERR_NOT_SUPPORTED) {
        printf("# flags %u: %s\n", flags, mc_status_text(status));
        return false;
    }
    OK(status);
    ends = (struct ends){memory[0], memory[1], malloc(SPAN)};
    assert_non_null(ends.before);
    OK(mc_engine_register(pair->here, memory[0], 3 * MIB, NULL, RIGHTS, contract_error()));
    OK(mc_engine_register(pair->there, memory[1], 3 * MIB, NULL, RIGHTS, contract_error()));
    for (uint32_t opcode = MC_READ; opcode <= MC_WRITE; opcode++) {
        transfer_exactly(pair, &ends, opcode, 2 * MIB + 1, MARGIN, MARGIN + 3);
        transfer_exactly(pair, &ends, opcode, 100, 2 * MIB - 50, MARGIN);
    }
    OK(mc_engine_unregister(pair->here, memory[0], contract_error()));
    OK(mc_engine_unregister(pair->there, memory[1], contract_error()));
    for (size_t i = 0; i < 2; i++)
        OK(mc_memory_free(ids[i]));
    free(ends.before);
    return true;
}

static void memory_of_a_node_is_moved_as_any_other(void **state) {
    if (!moves_as_any_other(*state, MC_MEMORY_NUMA))
        skip();
}

static void memory_of_huge_pages_is_moved_as_any_other(void **state) {
    if (!moves_as_any_other(*state, MC_MEMORY_HUGE))
        skip();
}

/* Fault 16. */
static void a_transfer_of_no_bytes_completes_wherever_it_points(void **state) {
    const struct pair *pair = *state;

    OK(mc_peer_read(pair->peer, pair->near, (uint64_t)(uintptr_t)pair->far, 0, 0, contract_error()));
    OK(mc_peer_write(pair->peer, NULL, 0, 0, 0, contract_error()));
}

/* ---- A WRITE that is reported complete is there ---- */

#define WRITE_SIZE ((size_t)2400000)
#define WRITE_SLOTS 4

struct told {
    sem_t free_slots;
    size_t writes;
};

struct note {
    uint64_t slot;
    uint64_t hash;
};

static void *hash_what_is_told(void *context) {
    struct worker *worker = context;
    struct told *told = worker->context;

    for (size_t i = 0; i < told->writes; i++) {
        struct mc_notification *got = NULL;
        struct note note;

        EXPECT(worker, mc_engine_receive(worker->pair->there, 30 * SECOND, &got) == MC_OK);
        if (got == NULL)
            break;
        EXPECT(worker, got->message_length == sizeof(note));
        memcpy(&note, got->message, sizeof(note));
        EXPECT(worker, hash(worker->pair->far + note.slot * WRITE_SIZE, WRITE_SIZE) == note.hash);
        mc_notification_free(got);
        sem_post(&told->free_slots);
    }
    return NULL;
}

/* Fault 4. */
static void a_write_is_reported_complete_only_when_the_target_has_it(void **state) {
    struct pair *pair = *state;
    struct told told = {.writes = contract_scaled(400)};
    struct worker worker = {.pair = pair, .context = &told};

    sem_init(&told.free_slots, 0, WRITE_SLOTS);
    worker_start(&worker, hash_what_is_told);
    for (size_t i = 0; i < told.writes; i++) {
        struct note note = {.slot = i % WRITE_SLOTS};
        size_t offset = note.slot * WRITE_SIZE;

        sem_wait(&told.free_slots);
        fill(pair->near + offset, WRITE_SIZE, i);
        note.hash = hash(pair->near + offset, WRITE_SIZE);
        OK(mc_peer_write(pair->peer, pair->near + offset, (uint64_t)(uintptr_t)pair->far + offset, WRITE_SIZE, 0,
                         contract_error()));
        OK(mc_peer_notify(pair->peer, "written", 7, &note, sizeof(note), 10 * SECOND, contract_error()));
    }
    worker_join(&worker);
    sem_destroy(&told.free_slots);
}

/* ---- Many threads ---- */

static void *write_and_read_back(void *context) {
    struct worker *worker = context;
    const struct pair *pair = worker->pair;
    const size_t share = MIB;
    uint8_t *source = pair->near + worker->index * share, *back = malloc(share);
    uint64_t seed = worker->index;

    EXPECT(worker, back != NULL && mc_engine_register(pair->here, back, share, NULL, 0, NULL) == MC_OK);
    for (size_t i = 0; i < contract_scaled(100) && worker->failed_line == 0; i++) {
        size_t length = (size_t)(random_next(&seed) % (i % 4 == 0 ? share : 5000)) + 1;
        size_t offset = (size_t)(random_next(&seed) % (share - length + 1));
        uint64_t remote = (uint64_t)(uintptr_t)pair->far + worker->index * share + offset;

        fill(source, length, seed);
        memset(back, 0, length);
        EXPECT(worker, mc_peer_write(pair->peer, source, remote, length, 0, NULL) == MC_OK);
        EXPECT(worker, mc_peer_read(pair->peer, back, remote, length, 0, NULL) == MC_OK);
        EXPECT(worker, memcmp(source, back, length) == 0);
    }
    EXPECT(worker, mc_engine_unregister(pair->here, back, NULL) == MC_OK);
    free(back);
    return NULL;
}

static void eight_threads_that_block_on_one_peer_move_exact_bytes(void **state) {
    contract_run(*state, 8, write_and_read_back, NULL);
}

static const struct CMUnitTest tests[] = {
    CONTRACT_TEST(every_size_is_exact_between_memory_of_mc_memory_alloc),
    CONTRACT_TEST(every_size_is_exact_between_malloced_memory),
    CONTRACT_TEST(memory_of_a_node_is_moved_as_any_other),
    CONTRACT_TEST(memory_of_huge_pages_is_moved_as_any_other),
    CONTRACT_TEST(a_transfer_of_no_bytes_completes_wherever_it_points),
    CONTRACT_TEST(a_write_is_reported_complete_only_when_the_target_has_it),
    CONTRACT_TEST(eight_threads_that_block_on_one_peer_move_exact_bytes),
};

CONTRACT_PART(contract_bytes, tests);

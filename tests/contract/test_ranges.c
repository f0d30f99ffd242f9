/* test_ranges.c - what a peer may not reach fails with its reason, changes nothing, and costs no connection. */
#include "contract.h"

#include <stdio.h>

struct refusal {
    const char *what;
    uint64_t remote;
    uint64_t length;
    int32_t read;
    int32_t write;
};

static void is_refused(const struct pair *pair, const struct refusal *refusal, uint32_t opcode) {
    struct mc_request wanted = request(pair, opcode, 0, 0, refusal->length);
    int32_t status = opcode == MC_READ ? refusal->read : refusal->write;
    struct mc_request_status got;
    uint64_t batch;

    fill(pair->near, refusal->length, opcode + 100); /* never what is there already */
    wanted.remote = refusal->remote;
    batch = submit(pair, &wanted, 1, 0);
    if (mc_batch_wait(batch, MC_FOREVER) != status)
        print_error("%s, opcode %u\n", refusal->what, opcode);
    IS(status, mc_batch_wait(batch, 0));
    got = status_of(batch, 0);
    IS(status, got.status);
    assert_int_equal(got.state, status == MC_OK ? MC_STATE_COMPLETED : MC_STATE_FAILED);
    assert_int_equal(got.bytes, status == MC_OK ? refusal->length : 0);
    assert_int_equal(got.flags, 0); /* nothing was written, for certain */
    OK(mc_batch_free(batch));
    /* The connection goes on. */
    OK(mc_peer_write(pair->peer, pair->near, (uint64_t)(uintptr_t)pair->far, 64, 0, contract_error()));
    OK(mc_peer_probe(pair->peer, SECOND, contract_error()));
}

static void all_are_refused(const struct pair *pair, const struct refusal *refusals, size_t count) {
    for (size_t i = 0; i < count; i++) {
        is_refused(pair, &refusals[i], MC_READ);
        is_refused(pair, &refusals[i], MC_WRITE);
    }
}

#define NOT MC_ERR_NOT_REGISTERED
#define DENIED MC_ERR_ACCESS_DENIED

static void out_of_registered_memory(const struct pair *pair, uint8_t *whole, size_t part) {
    uint64_t at = (uint64_t)(uintptr_t)whole;
    const struct refusal refusals[] = {
        {"below the first region", at + 8, 16, NOT, NOT},
        {"straddling the first byte", at + part - 1, 2, NOT, NOT},
        {"straddling from far below", at, 2 * part, NOT, NOT},
        {"the neighbours together", at + 2 * part - 8, 16, NOT, NOT},
        {"straddling the last byte", at + 3 * part - 1, 2, NOT, NOT},
        {"all and one more", at + 2 * part, part + 1, NOT, NOT},
        {"above the last region", at + 3 * part, 16, NOT, NOT},
        {"the null page", 0, 16, NOT, NOT},
        {"the end of the address space", UINT64_MAX - 16, 16, NOT, NOT},
        {"a big one at the end of the address space", UINT64_MAX - 8 * MIB, 8 * MIB, NOT, NOT},
        {"a pointer with the top bit", at | UINT64_C(1) << 63, 16, NOT, NOT},
    };

    /* Two regions that touch, in the middle of four parts. */
    OK(mc_engine_register(pair->there, whole + part, part, NULL, RIGHTS, contract_error()));
    OK(mc_engine_register(pair->there, whole + 2 * part, part, NULL, RIGHTS, contract_error()));
    fill(whole, 4 * part, 1);
    {
        uint64_t before = hash(whole, 4 * part);

        all_are_refused(pair, refusals, sizeof(refusals) / sizeof(refusals[0]));
        assert_true(hash(whole, 4 * part) == before);
    }
    OK(mc_engine_unregister(pair->there, whole + part, contract_error()));
    OK(mc_engine_unregister(pair->there, whole + 2 * part, contract_error()));
}

/* Fault 5. */
static void ranges_outside_registered_memory_fail_and_change_nothing(void **state) {
    const struct pair *pair = *state;
    const size_t part = 3 * 4096;
    uint64_t memory;
    void *shared;
    uint8_t *private = malloc(4 * part);

    assert_non_null(private);
    OK(mc_memory_alloc(4 * part, NULL, &memory, &shared, contract_error()));
    out_of_registered_memory(pair, shared, part);
    out_of_registered_memory(pair, private, part);
    OK(mc_memory_free(memory));
    free(private);
}

/* Fault 5. */
static void a_range_that_wraps_around_is_refused_at_submission(void **state) {
    const struct pair *pair = *state;
    const struct {
        uint64_t remote, length;
    } wrapping[] = {
        {UINT64_MAX, 2}, {UINT64_MAX - 15, 17}, {(uint64_t)(uintptr_t)pair->far, UINT64_MAX}, {8, UINT64_MAX}};

    for (size_t i = 0; i < sizeof(wrapping) / sizeof(wrapping[0]); i++)
        for (uint32_t opcode = MC_READ; opcode <= MC_WRITE; opcode++) {
            struct mc_request wanted = request(pair, opcode, 0, 0, wrapping[i].length);
            struct mc_error *error = contract_error();
            uint64_t batch = 42;

            wanted.remote = wrapping[i].remote;
            IS(MC_ERR_INVALID_ARGUMENT, mc_batch_submit(pair->here, &wanted, 1, sizeof(wanted), NULL, &batch, error));
            assert_int_equal(batch, 42);
            assert_true(error->message[0] != '\0');
        }
}

static void rights_that_were_not_given_are_denied(void **state) {
    const struct pair *pair = *state;
    static const struct {
        uint32_t access;
        int32_t read, write;
    } rights[] = {
        {0, DENIED, DENIED},
        {MC_REMOTE_READ, MC_OK, DENIED},
        {MC_REMOTE_WRITE, DENIED, MC_OK},
        {RIGHTS, MC_OK, MC_OK},
    };
    uint64_t memory;
    void *shared, *private = malloc(8192);

    assert_non_null(private);
    OK(mc_memory_alloc(8192, NULL, &memory, &shared, contract_error()));
    for (size_t i = 0; i < 2 * sizeof(rights) / sizeof(rights[0]); i++) {
        void *where = i % 2 == 0 ? shared : private;
        struct refusal refusal = {"rights", (uint64_t)(uintptr_t)where + 5, 4000, rights[i / 2].read,
                                  rights[i / 2].write};
        uint64_t before;

        fill(where, 8192, i);
        before = hash(where, 8192);
        OK(mc_engine_register(pair->there, where, 8192, NULL, rights[i / 2].access, contract_error()));
        all_are_refused(pair, &refusal, 1);
        assert_true((hash(where, 8192) == before) == (refusal.write != MC_OK));
        OK(mc_engine_unregister(pair->there, where, contract_error()));
    }
    OK(mc_memory_free(memory));
    free(private);
}

static void a_local_range_that_is_not_registered_is_refused_at_submission(void **state) {
    const struct pair *pair = *state;
    uint8_t stack[64] = {0};
    void *locals[] = {stack, NULL, pair->near - 8, pair->near + SPAN - 8}; /* straddling, whatever lies beside */
    uint64_t batch = 42;

    for (size_t i = 0; i < sizeof(locals) / sizeof(locals[0]); i++) {
        struct mc_request wanted = request(pair, MC_READ, 0, 0, 16);
        struct mc_error *error = contract_error();

        wanted.local = locals[i];
        IS(MC_ERR_NOT_REGISTERED, mc_batch_submit(pair->here, &wanted, 1, sizeof(wanted), NULL, &batch, error));
        assert_true(error->message[0] != '\0');
        assert_int_equal(batch, 42);
    }
}

static void an_engine_restricted_to_shm_says_what_it_can_not_reach(void **state) {
    const struct pair *pair = *state;
    const struct mc_engine_options options = {.struct_size = sizeof(options), .protocol = "shm"};
    mc_engine *restricted;
    uint64_t peer;
    void *private = calloc(1, 4096);
    struct mc_error *error;

    assert_non_null(private);
    OK(mc_engine_open(&options, &restricted, contract_error()));
    if (contract_is("tcp")) { /* `there` has no shm */
        OK(mc_engine_close(restricted));
        free(private);
        return;
    }
    peer = contract_peer(restricted, pair->there);
    OK(mc_engine_register(restricted, pair->near, SPAN, NULL, RIGHTS, contract_error()));
    OK(mc_engine_register(pair->there, private, 4096, NULL, MC_REMOTE_READ, contract_error()));
    OK(mc_peer_write(peer, pair->near, (uint64_t)(uintptr_t)pair->far, 4096, 0, contract_error()));
    error = contract_error();
    IS(MC_ERR_NOT_SUPPORTED, mc_peer_write(peer, pair->near, (uint64_t)(uintptr_t) private, 4096, 0, error));
    assert_true(error->message[0] != '\0');
    OK(mc_engine_unregister(pair->there, private, contract_error()));
    OK(mc_engine_close(restricted));
    free(private);
}

static const struct CMUnitTest tests[] = {
    CONTRACT_TEST(ranges_outside_registered_memory_fail_and_change_nothing),
    CONTRACT_TEST(a_range_that_wraps_around_is_refused_at_submission),
    CONTRACT_TEST(rights_that_were_not_given_are_denied),
    CONTRACT_TEST(a_local_range_that_is_not_registered_is_refused_at_submission),
    CONTRACT_TEST(an_engine_restricted_to_shm_says_what_it_can_not_reach),
};

CONTRACT_PART(contract_ranges, tests);

/* test_registration.c - counted registrations, one answer to overlaps, and refusals in words. */
#include "contract.h"

#include <sys/mman.h>
#include <unistd.h>

static int32_t read_from(const struct pair *pair, const void *remote) {
    return mc_peer_read(pair->peer, pair->near, (uint64_t)(uintptr_t)remote, 8, 0, contract_error());
}

static void a_region_is_reachable_until_its_last_registration_ends(void **state) {
    const struct pair *pair = *state;
    uint8_t *bytes = calloc(1, 4096);

    assert_non_null(bytes);
    for (int i = 0; i < 3; i++)
        OK(mc_engine_register(pair->there, bytes, 4096, "cpu:0", MC_REMOTE_READ, contract_error()));
    for (int i = 0; i < 3; i++) {
        OK(read_from(pair, bytes));
        OK(mc_engine_unregister(pair->there, bytes, contract_error()));
    }
    IS(MC_ERR_NOT_REGISTERED, read_from(pair, bytes));
    IS(MC_ERR_NOT_REGISTERED, mc_engine_unregister(pair->there, bytes, contract_error()));
    free(bytes);
}

/* Fault 9. */
static void memory_registered_after_the_peer_was_opened_is_reachable(void **state) {
    const struct pair *pair = *state;

    for (int i = 0; i < 50; i++) {
        uint64_t memory;
        void *bytes;

        /* Most likely the same address each time: what was mapped of its predecessor may not be used. */
        OK(mc_memory_alloc(MIB, NULL, &memory, &bytes, contract_error()));
        OK(mc_engine_register(pair->there, bytes, MIB, NULL, RIGHTS, contract_error()));
        fill(bytes, MIB, (uint64_t)i);
        OK(mc_peer_read(pair->peer, pair->near, (uint64_t)(uintptr_t)bytes, MIB, 0, contract_error()));
        assert_same(pair->near, bytes, MIB);
        fill(pair->near, MIB, (uint64_t)i + 1000);
        OK(mc_peer_write(pair->peer, pair->near, (uint64_t)(uintptr_t)bytes, MIB, 0, contract_error()));
        assert_same(pair->near, bytes, MIB);
        OK(mc_engine_unregister(pair->there, bytes, contract_error()));
        IS(MC_ERR_NOT_REGISTERED, read_from(pair, bytes));
        OK(mc_memory_free(memory));
    }
}

static void overlaps_are_refused_in_every_geometry_and_change_nothing(void **state) {
    const struct pair *pair = *state;
    uint64_t memory;
    void *shared;
    uint8_t *middle;

    OK(mc_memory_alloc(12288, NULL, &memory, &shared, contract_error()));
    middle = (uint8_t *)shared + 4096;
    OK(mc_engine_register(pair->there, middle, 4096, NULL, MC_REMOTE_READ, contract_error()));
    {
        const struct {
            uint8_t *address;
            uint64_t length;
            const char *location;
            uint32_t access;
        } overlaps[] = {
            {middle, 4096, NULL, RIGHTS},
            {middle, 4096, NULL, 0},
            {middle, 4096, "cpu:0", MC_REMOTE_READ},
            {middle, 4095, NULL, MC_REMOTE_READ},
            {middle, 4097, NULL, MC_REMOTE_READ},
            {middle, 1, NULL, MC_REMOTE_READ},
            {middle + 1, 4095, NULL, MC_REMOTE_READ},
            {middle + 4095, 1, NULL, MC_REMOTE_READ},
            {middle + 4095, 100, NULL, MC_REMOTE_READ},
            {middle + 1, 100, NULL, MC_REMOTE_READ},
            {middle - 1, 2, NULL, MC_REMOTE_READ},
            {middle - 1, 4097, NULL, MC_REMOTE_READ},
            {middle - 1, 4098, NULL, MC_REMOTE_READ},
            {middle - 4096, 12288, NULL, MC_REMOTE_READ},
        };

        for (size_t i = 0; i < sizeof(overlaps) / sizeof(overlaps[0]); i++) {
            struct mc_error *error = contract_error();

            IS(MC_ERR_OVERLAP, mc_engine_register(pair->there, overlaps[i].address, overlaps[i].length,
                                                  overlaps[i].location, overlaps[i].access, error));
            assert_true(error->message[0] != '\0');
            OK(read_from(pair, middle));
            IS(MC_ERR_ACCESS_DENIED,
               mc_peer_write(pair->peer, pair->near, (uint64_t)(uintptr_t)middle, 8, 0, contract_error()));
        }
    }
    /* Neighbours that touch do not overlap. */
    OK(mc_engine_register(pair->there, middle - 4096, 4096, NULL, RIGHTS, contract_error()));
    OK(mc_engine_register(pair->there, middle + 4096, 4096, NULL, RIGHTS, contract_error()));
    OK(mc_engine_unregister(pair->there, middle, contract_error()));
    IS(MC_ERR_NOT_REGISTERED, read_from(pair, middle));
    OK(read_from(pair, middle - 8));
    OK(read_from(pair, middle + 4096));
    OK(mc_engine_unregister(pair->there, middle - 4096, contract_error()));
    OK(mc_engine_unregister(pair->there, middle + 4096, contract_error()));
    OK(mc_memory_free(memory));
}

static void only_the_begin_of_a_region_unregisters_it(void **state) {
    const struct pair *pair = *state;

    IS(MC_ERR_NOT_REGISTERED, mc_engine_unregister(pair->there, pair->far + 1, contract_error()));
    IS(MC_ERR_NOT_REGISTERED, mc_engine_unregister(pair->there, pair->far - 1, contract_error()));
    IS(MC_ERR_NOT_REGISTERED, mc_engine_unregister(pair->there, pair->far + SPAN - 1, contract_error()));
    IS(MC_ERR_NOT_REGISTERED, mc_engine_unregister(pair->there, NULL, contract_error()));
    OK(read_from(pair, pair->far));
}

/* Fault 14. */
static void ranges_that_are_no_memory_are_refused(void **state) {
    const struct pair *pair = *state;
    uint8_t *pages = mmap(NULL, 12288, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(pages, MAP_FAILED);
    assert_int_equal(munmap(pages + 4096, 4096), 0);
    {
        const struct {
            void *address;
            uint64_t length;
        } ranges[] = {
            {NULL, 4096},
            {pages, 0},
            {pages + 4096, 4096},
            {pages, 4097},
            {pages, 12288},
            {pages + 4095, 2},
            {pages, UINT64_MAX},
            {pages, UINT64_MAX - (uint64_t)(uintptr_t)pages},
            {(void *)(uintptr_t)UINT64_MAX, 1},
            {(void *)(uintptr_t)(UINT64_MAX - 4095), 4096},
            {(void *)(uintptr_t)8, UINT64_MAX - 8},
            {(void *)(uintptr_t)(UINT64_C(1) << 63), 4096},
        };

        for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
            struct mc_error *error = contract_error();

            IS(MC_ERR_INVALID_ARGUMENT,
               mc_engine_register(pair->here, ranges[i].address, ranges[i].length, NULL, RIGHTS, error));
            assert_true(error->message[0] != '\0');
        }
    }
    assert_int_equal(munmap(pages, 4096), 0);
    assert_int_equal(munmap(pages + 8192, 4096), 0);
}

/* Fault 14. */
static void host_locations_are_taken_and_device_locations_refused_with_words(void **state) {
    static const char *const good[] = {NULL, "*", "cpu:0", "cpu:1", "cpu:63"};
    static const char *const bad[] = {"cuda:0", "npu:0",    "hip:1", "cpu",    "cpu:",
                                      "cpu:x",  "cpu:-1",   "",      "cpu:0x", " cpu:0",
                                      "CPU:0",  "gpu:%s%n", "**",    "cpu:1 ", "cpu:999999999999999999999"};
    const struct pair *pair = *state;
    void *bytes = calloc(1, 4096);

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        OK(mc_engine_register(pair->here, bytes, 4096, good[i], RIGHTS, contract_error()));
        OK(mc_engine_unregister(pair->here, bytes, contract_error()));
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct mc_error *error = contract_error();

        IS(MC_ERR_NOT_SUPPORTED, mc_engine_register(pair->here, bytes, 4096, bad[i], RIGHTS, error));
        assert_non_null(strstr(error->message, bad[i]));
    }
    /* A pointer of a device is not mapped here, whatever location is claimed. */
    IS(MC_ERR_INVALID_ARGUMENT,
       mc_engine_register(pair->here, (void *)(uintptr_t)0x7f0000000000, 4096, "cpu:0", RIGHTS, contract_error()));
    free(bytes);
}

static void memory_is_not_freed_while_it_is_registered(void **state) {
    const struct pair *pair = *state;
    uint64_t memory, none = 42;
    void *bytes, *nowhere = &none;
    struct mc_error *error = contract_error();

    OK(mc_memory_alloc(100, NULL, &memory, &bytes, contract_error()));
    assert_int_equal((uintptr_t)bytes % (uintptr_t)sysconf(_SC_PAGESIZE), 0);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(((uint8_t *)bytes)[i], 0);
    OK(mc_engine_register(pair->there, (uint8_t *)bytes + 10, 20, NULL, RIGHTS, contract_error()));
    OK(mc_engine_register(pair->here, (uint8_t *)bytes + 50, 20, NULL, RIGHTS, contract_error()));
    IS(MC_ERR_BUSY, mc_memory_free(memory));
    OK(mc_engine_unregister(pair->there, (uint8_t *)bytes + 10, contract_error()));
    IS(MC_ERR_BUSY, mc_memory_free(memory));
    OK(mc_engine_unregister(pair->here, (uint8_t *)bytes + 50, contract_error()));
    OK(mc_memory_free(memory));
    IS(MC_ERR_INVALID_HANDLE, mc_memory_free(memory));
    IS(MC_ERR_INVALID_ARGUMENT, mc_memory_alloc(0, NULL, &none, &nowhere, error));
    assert_true(error->message[0] != '\0');
    error = contract_error();
    IS(MC_ERR_NO_MEMORY, mc_memory_alloc(UINT64_MAX, NULL, &none, &nowhere, error));
    assert_true(error->message[0] != '\0');
    IS(MC_ERR_NO_MEMORY, mc_memory_alloc(UINT64_C(1) << 62, NULL, &none, &nowhere, contract_error()));
    assert_true(none == 42 && nowhere == &none);
}

static void closing_the_engine_frees_the_memory_that_it_had_registered(void **state) {
    mc_engine *engine = contract_engine();
    uint64_t memory;
    void *bytes;

    (void)state;
    OK(mc_memory_alloc(MIB, NULL, &memory, &bytes, contract_error()));
    OK(mc_engine_register(engine, bytes, MIB, NULL, RIGHTS, contract_error()));
    OK(mc_engine_close(engine));
    memset(bytes, 1, MIB);
    OK(mc_memory_free(memory));
}

static const struct CMUnitTest tests[] = {
    CONTRACT_TEST(a_region_is_reachable_until_its_last_registration_ends),
    CONTRACT_TEST(memory_registered_after_the_peer_was_opened_is_reachable),
    CONTRACT_TEST(overlaps_are_refused_in_every_geometry_and_change_nothing),
    CONTRACT_TEST(only_the_begin_of_a_region_unregisters_it),
    CONTRACT_TEST(ranges_that_are_no_memory_are_refused),
    CONTRACT_TEST(host_locations_are_taken_and_device_locations_refused_with_words),
    CONTRACT_TEST(memory_is_not_freed_while_it_is_registered),
    CONTRACT_TEST(closing_the_engine_frees_the_memory_that_it_had_registered),
};

CONTRACT_PART(contract_registration, tests);

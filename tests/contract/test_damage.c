/* test_damage.c - a network that splits, cuts, delays and flips what it carries (a proxy): what is reported complete is
 * exact, everything else fails in words of its own, and the next request is served.
 *
 * A request here has 64 bytes of header and, as a WRITE, its payload behind them; an answer the same as a READ's.
 */
#include "contract.h"

#include "proxy.h"

#define HEADER ((size_t)64)
#define SMALL ((size_t)100)
#define MARGIN ((size_t)64) /* around the bytes that are transferred */
#define HELLO ((size_t)96)
#define PROOF ((size_t)64)
#define PATIENCE (20 * SECOND)

struct wire {
    struct pair pair; /* `here` reaches `there` through the proxy, by one lane */
    struct proxy *proxy;
};

static void wire_engine(struct wire *wire, uint32_t flags) {
    const struct mc_engine_options options = {
        .struct_size = sizeof(options), .flags = flags, .protocol = "tcp", .lanes = 1};

    OK(mc_engine_open(&options, &wire->pair.here, contract_error()));
    OK(mc_engine_register(wire->pair.here, wire->pair.near, SPAN, NULL, RIGHTS, contract_error()));
}

static int32_t wire_peer(struct wire *wire) {
    return mc_peer_open(wire->pair.here, proxy_address(wire->proxy), &wire->pair.peer, contract_error());
}

static void wire_proxy(struct wire *wire, const struct pair *pair) {
    char address[ADDRESS_TEXT];

    contract_address(pair->there, address);
    wire->pair = *pair;
    wire->proxy = proxy_start(address);
}

static void wire_open(struct wire *wire, const struct pair *pair, uint32_t flags) {
    wire_proxy(wire, pair);
    wire_engine(wire, flags);
    OK(wire_peer(wire));
}

static void wire_close(struct wire *wire) {
    OK(mc_engine_close(wire->pair.here));
    proxy_stop(wire->proxy);
}

/* Asks until the connection is there again. */
static void wire_mend(const struct wire *wire) {
    uint64_t deadline = now_ns() + PATIENCE;
    int32_t status;

    proxy_calm(wire->proxy);
    do
        status = mc_peer_probe(wire->pair.peer, PATIENCE, contract_error());
    while (status != MC_OK && now_ns() < deadline);
    OK(status);
}

static size_t bytes_of(uint32_t opcode, int direction, size_t length) {
    return HEADER + ((opcode == MC_WRITE) == (direction == PROXY_REQUESTS) ? length : 0);
}

struct outcome {
    int32_t status;
    uint32_t flags;
    uint8_t *to, *from; /* within MARGIN on either side */
};

/* One transfer of new bytes over old ones. */
static struct outcome transfer(const struct wire *wire, uint32_t opcode, size_t length, uint64_t seed) {
    const struct pair *pair = &wire->pair;
    const struct mc_request wanted = request(pair, opcode, MARGIN, MARGIN, length);
    uint64_t batch;
    struct outcome outcome;

    fill(pair->near, length + 2 * MARGIN, 2 * seed);
    fill(pair->far, length + 2 * MARGIN, 2 * seed + 1);
    batch = submit(pair, &wanted, 1, PATIENCE);
    (void)mc_batch_wait(batch, MC_FOREVER);
    outcome.status = status_of(batch, 0).status;
    outcome.flags = status_of(batch, 0).flags;
    outcome.to = opcode == MC_READ ? pair->near + MARGIN : pair->far + MARGIN;
    outcome.from = opcode == MC_READ ? pair->far + MARGIN : pair->near + MARGIN;
    OK(mc_batch_free(batch));
    return outcome;
}

static void assert_margins(const struct outcome *outcome, uint32_t opcode, size_t length, uint64_t seed) {
    uint8_t *before = malloc(length + 2 * MARGIN);

    assert_non_null(before);
    fill(before, length + 2 * MARGIN, 2 * seed + (opcode == MC_WRITE));
    assert_same(outcome->to - MARGIN, before, MARGIN);
    assert_same(outcome->to + length, before + MARGIN + length, MARGIN);
    free(before);
}

/* ---- Flipped bits ---- */

static bool is_caught(int32_t status) {
    return status == MC_ERR_CHECKSUM_MISMATCH || status == MC_ERR_CONNECTION_LOST || status == MC_ERR_PROTOCOL;
}

static void every_flipped_bit_is_caught(const struct wire *wire, uint32_t opcode, int direction) {
    uint64_t seed = 7 + opcode;

    for (size_t at = 0; at < bytes_of(opcode, direction, SMALL); at++) {
        struct outcome outcome;

        proxy_flip(wire->proxy, direction, at, (uint8_t)(1u << random_next(&seed) % 8));
        outcome = transfer(wire, opcode, SMALL, at);
        if (!is_caught(outcome.status))
            fail_msg("byte %zu of direction %d, opcode %u: %s", at, direction, opcode, mc_status_name(outcome.status));
        /* A header with a wrong checksum ends the connection; the payload's costs nothing but the request. */
        assert_true(at < HEADER ? outcome.status != MC_ERR_CHECKSUM_MISMATCH
                                : outcome.status == MC_ERR_CHECKSUM_MISMATCH);
        assert_margins(&outcome, opcode, SMALL, at);
        wire_mend(wire);
        outcome = transfer(wire, opcode, SMALL, at);
        OK(outcome.status);
        assert_same(outcome.to, outcome.from, SMALL);
    }
}

/* Fault 17. */
static void a_flipped_bit_is_caught_wherever_it_is_with_checksums_on(void **state) {
    struct wire wire;

    wire_open(&wire, *state, MC_ENGINE_CHECKSUM);
    for (uint32_t opcode = MC_READ; opcode <= MC_WRITE; opcode++)
        for (int direction = PROXY_REQUESTS; direction <= PROXY_REPLIES; direction++)
            every_flipped_bit_is_caught(&wire, opcode, direction);
    wire_close(&wire);
}

static void bits_flipped_anywhere_in_large_transfers_are_caught(void **state) {
    struct wire wire;
    uint64_t seed = 5;

    wire_open(&wire, *state, MC_ENGINE_CHECKSUM);
    for (size_t i = 0; i < contract_scaled(40); i++) {
        uint32_t opcode = i % 2 == 0 ? MC_READ : MC_WRITE;
        size_t length = 3 * MIB + (size_t)(random_next(&seed) % MIB);
        struct outcome outcome;

        proxy_flip(wire.proxy, opcode == MC_WRITE ? PROXY_REQUESTS : PROXY_REPLIES, random_next(&seed) % length,
                   (uint8_t)(1u << random_next(&seed) % 8));
        outcome = transfer(&wire, opcode, length, i);
        assert_true(is_caught(outcome.status));
        assert_margins(&outcome, opcode, length, i);
        wire_mend(&wire);
        outcome = transfer(&wire, opcode, length, i);
        OK(outcome.status);
        assert_same(outcome.to, outcome.from, length);
    }
    wire_close(&wire);
}

/* So the flips are real; and headers have their checksum always. */
static void without_checksums_a_flip_in_a_payload_passes_and_one_in_a_header_does_not(void **state) {
    struct wire wire;

    wire_open(&wire, *state, 0);
    for (uint32_t opcode = MC_READ; opcode <= MC_WRITE; opcode++) {
        int direction = opcode == MC_WRITE ? PROXY_REQUESTS : PROXY_REPLIES;
        struct outcome outcome;

        proxy_flip(wire.proxy, direction, HEADER + 10, 4);
        outcome = transfer(&wire, opcode, SMALL, 1);
        OK(outcome.status);
        outcome.to[10] ^= 4;
        assert_same(outcome.to, outcome.from, SMALL);
        for (size_t at = 0; at < HEADER; at++) {
            proxy_flip(wire.proxy, at % 2 == 0 ? direction : 1 - direction, at, 128);
            outcome = transfer(&wire, opcode, SMALL, 1);
            assert_int_not_equal(outcome.status, MC_OK);
            wire_mend(&wire);
        }
    }
    wire_close(&wire);
}

/* Fault 17. */
static void a_preface_with_a_flipped_bit_is_refused_and_the_next_is_taken(void **state) {
    struct wire wire;
    uint64_t seed = 3;

    wire_proxy(&wire, *state);
    for (size_t at = 0; at < HELLO + PROOF; at++)
        for (int direction = PROXY_REQUESTS; direction <= PROXY_REPLIES; direction++) {
            uint64_t deadline = now_ns() + PATIENCE;
            int32_t status;

            wire_engine(&wire, 0);
            proxy_flip(wire.proxy, direction, at, (uint8_t)(1u << random_next(&seed) % 8));
            if (wire_peer(&wire) == MC_OK)
                fail_msg("byte %zu of direction %d passed", at, direction);
            proxy_calm(wire.proxy);
            do
                status = wire_peer(&wire);
            while (status != MC_OK && now_ns() < deadline);
            OK(status);
            OK(mc_engine_close(wire.pair.here));
        }
    proxy_stop(wire.proxy);
}

/* ---- Splits and delays ---- */

static int32_t tell(const struct wire *wire, const void *message, size_t length) {
    return mc_peer_notify(wire->pair.peer, "name", 4, message, length, PATIENCE, contract_error());
}

static void assert_told(const struct wire *wire, const void *message, size_t length) {
    struct mc_notification *got = NULL;

    OK(mc_engine_receive(wire->pair.there, PATIENCE, &got));
    assert_int_equal(got->message_length, length);
    assert_same(got->message, message, length);
    mc_notification_free(got);
}

/* Fault 17. */
static void a_stream_that_is_split_at_any_byte_is_the_same_stream(void **state) {
    struct wire wire;

    wire_open(&wire, *state, MC_ENGINE_CHECKSUM);
    for (uint32_t opcode = MC_READ; opcode <= MC_WRITE; opcode++)
        for (int direction = PROXY_REQUESTS; direction <= PROXY_REPLIES; direction++)
            for (size_t at = 1; at <= bytes_of(opcode, direction, SMALL); at++) {
                struct outcome outcome;

                proxy_split(wire.proxy, direction, at);
                outcome = transfer(&wire, opcode, SMALL, at);
                OK(outcome.status);
                assert_same(outcome.to, outcome.from, SMALL);
                assert_margins(&outcome, opcode, SMALL, at);
            }
    for (size_t at = 1; at < HEADER + SMALL; at++) {
        proxy_split(wire.proxy, PROXY_REQUESTS, at);
        OK(tell(&wire, wire.pair.near, SMALL));
        assert_told(&wire, wire.pair.near, SMALL);
    }
    wire_close(&wire);
}

static void a_preface_that_is_split_at_any_byte_is_the_same_preface(void **state) {
    struct wire wire;

    wire_proxy(&wire, *state);
    for (size_t at = 1; at < HELLO + PROOF; at++)
        for (int direction = PROXY_REQUESTS; direction <= PROXY_REPLIES; direction++) {
            wire_engine(&wire, 0);
            proxy_split(wire.proxy, direction, at);
            OK(wire_peer(&wire));
            OK(mc_engine_close(wire.pair.here));
        }
    proxy_stop(wire.proxy);
}

static void a_stream_that_comes_byte_by_byte_or_late_is_the_same_stream(void **state) {
    static const struct {
        size_t piece, length;
        uint64_t delay;
    } ways[] = {{1, 5000, 0}, {3, 20000, 0}, {63, 100000, 0}, {65, 100000, 0}, {0, 300000, 3 * MILLISECOND}};
    struct wire wire;

    wire_open(&wire, *state, MC_ENGINE_CHECKSUM);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        proxy_piece(wire.proxy, ways[i].piece);
        proxy_delay(wire.proxy, ways[i].delay);
        for (uint32_t opcode = MC_READ; opcode <= MC_WRITE; opcode++) {
            struct outcome outcome = transfer(&wire, opcode, ways[i].length, i);

            OK(outcome.status);
            assert_same(outcome.to, outcome.from, ways[i].length);
            assert_margins(&outcome, opcode, ways[i].length, i);
        }
        OK(tell(&wire, wire.pair.near, 1000));
        assert_told(&wire, wire.pair.near, 1000);
    }
    wire_close(&wire);
}

/* ---- Cuts ---- */

/* How many bytes from `from` on are the same. What had been sent when the connection was cut may just be arriving. */
RACY static size_t same_until(const volatile uint8_t *one, const uint8_t *other, size_t from, size_t length) {
    while (from < length && one[from] == other[from])
        from++;
    return from;
}

/* A transfer that ends with its connection has changed a first part of its bytes at most. */
static void assert_first_part(const struct outcome *outcome, uint32_t opcode, size_t length, uint64_t seed) {
    uint8_t *before = malloc(length + 2 * MARGIN);
    size_t changed, end;

    assert_non_null(before);
    fill(before, length + 2 * MARGIN, 2 * seed + (opcode == MC_WRITE));
    changed = same_until(outcome->to, outcome->from, 0, length);
    end = same_until(outcome->to, before + MARGIN, changed, length);
    if (end < length)
        fail_msg("byte %zu is neither old nor part of what came", end);
    free(before);
}

/* Fault 4. */
static void a_transfer_that_is_cut_at_any_byte_is_complete_or_fails(void **state) {
    const size_t step = contract_scaled(10) == 10 ? 1 : 7;
    struct wire wire;

    wire_open(&wire, *state, 0);
    for (uint32_t opcode = MC_READ; opcode <= MC_WRITE; opcode++)
        for (int direction = PROXY_REQUESTS; direction <= PROXY_REPLIES; direction++)
            for (size_t at = 0; at <= bytes_of(opcode, direction, SMALL); at += step) {
                bool all = direction == PROXY_REPLIES && at == bytes_of(opcode, direction, SMALL);
                struct outcome outcome;

                proxy_cut_at(wire.proxy, direction, at);
                outcome = transfer(&wire, opcode, SMALL, at);
                IS(all ? MC_OK : MC_ERR_CONNECTION_LOST, outcome.status);
                assert_int_equal(outcome.flags, all || opcode == MC_READ ? 0 : MC_STATUS_INDETERMINATE);
                wire_mend(&wire); /* whatever was on its way is there, or has gone with its connection */
                if (all)
                    assert_same(outcome.to, outcome.from, SMALL);
                else
                    assert_first_part(&outcome, opcode, SMALL, at);
                assert_margins(&outcome, opcode, SMALL, at);
            }
    wire_close(&wire);
}

/* Fault 4. */
static void a_write_whose_connections_are_cut_at_random_is_never_told_torn(void **state) {
    const size_t length = 2400000;
    struct wire wire;
    uint64_t seed = 11;
    size_t told = 0, cut = 0;

    wire_open(&wire, *state, 0);
    for (size_t i = 0; i < contract_scaled(100); i++) {
        struct outcome outcome;

        proxy_cut_at(wire.proxy, random_next(&seed) % 4 == 0 ? PROXY_REPLIES : PROXY_REQUESTS,
                     random_next(&seed) % (2 * length));
        outcome = transfer(&wire, MC_WRITE, length, i);
        if (outcome.status == MC_OK) {
            assert_same(outcome.to, outcome.from, length);
            told++;
        } else {
            IS(MC_ERR_CONNECTION_LOST, outcome.status);
            assert_int_equal(outcome.flags, MC_STATUS_INDETERMINATE);
            cut++;
        }
        assert_margins(&outcome, MC_WRITE, length, i);
        wire_mend(&wire);
    }
    assert_true(told > 0 && cut > 0);
    wire_close(&wire);
}

static const struct CMUnitTest tests[] = {
    CONTRACT_TEST(a_flipped_bit_is_caught_wherever_it_is_with_checksums_on),
    CONTRACT_TEST(bits_flipped_anywhere_in_large_transfers_are_caught),
    CONTRACT_TEST(without_checksums_a_flip_in_a_payload_passes_and_one_in_a_header_does_not),
    CONTRACT_TEST(a_preface_with_a_flipped_bit_is_refused_and_the_next_is_taken),
    CONTRACT_TEST(a_stream_that_is_split_at_any_byte_is_the_same_stream),
    CONTRACT_TEST(a_preface_that_is_split_at_any_byte_is_the_same_preface),
    CONTRACT_TEST(a_stream_that_comes_byte_by_byte_or_late_is_the_same_stream),
    CONTRACT_TEST(a_transfer_that_is_cut_at_any_byte_is_complete_or_fails),
    CONTRACT_TEST(a_write_whose_connections_are_cut_at_random_is_never_told_torn),
};

CONTRACT_PART(contract_damage, tests);

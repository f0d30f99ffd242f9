/* test_engine.c - what an engine offers to whatever is built on it: its loop, a peer's memory as one's own, when a guarded
 * transfer has ended, which clients are there, and proof that one is gone.
 *
 * Another process's engine is this program again, with the argument "host".
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <mooncake/error.h>
#include <mooncake/transfer.h>

#include "../net/peer.h"
#include "api/handles.h"
#include "transfer/engine.h"
#include "transfer/peer.h"
#include "transports/guard.h"

#define ALL (MC_REMOTE_READ | MC_REMOTE_WRITE)
#define SIZE (8u << 20)

/* ---- Engines ---- */

struct station {
    mc_engine *handle;
    struct engine *engine; /* entered */
    uint64_t memory_id;
    uint8_t *memory; /* SIZE bytes, registered */
    char address[ADDRESS_TEXT_MAX];
};

static struct station open_station(const char *protocol, const char *listen, const char *key_file, uint32_t access) {
    const struct mc_engine_options options = {
        .struct_size = sizeof(options), .protocol = protocol, .listen = listen, .key_file = key_file};
    struct station station = {0};
    void *memory;

    assert_int_equal(mc_engine_open(&options, &station.handle, NULL), MC_OK);
    assert_int_equal(engine_call_begin(station.handle, &station.engine, NULL), MC_OK);
    assert_true(mc_engine_address(station.handle, station.address, sizeof(station.address)) > 0);
    assert_int_equal(mc_memory_alloc(SIZE, NULL, &station.memory_id, &memory, NULL), MC_OK);
    station.memory = memory;
    assert_int_equal(mc_engine_register(station.handle, memory, SIZE, NULL, access, NULL), MC_OK);
    return station;
}

static void close_station(struct station *station) {
    engine_call_end(station->engine);
    assert_int_equal(mc_engine_close(station->handle), MC_OK);
    assert_int_equal(mc_memory_free(station->memory_id), MC_OK);
}

/* ---- Another process ---- */

struct card {
    char address[ADDRESS_TEXT_MAX];
    uint8_t incarnation[16];
    uint64_t memory;
};

struct process {
    pid_t id;
    int input; /* whose end is its end */
    struct card card;
};

/* What it does. */
static int be_the_host(void) {
    struct station station = open_station(NULL, NULL, NULL, ALL);
    struct card card = {.memory = (uint64_t)(uintptr_t)station.memory};
    char byte;

    memset(station.memory, 0x5a, SIZE);
    memcpy(card.address, station.address, sizeof(card.address));
    memcpy(card.incarnation, station.engine->identity.incarnation, 16);
    if (write(STDOUT_FILENO, &card, sizeof(card)) != sizeof(card))
        return 1;
    return read(STDIN_FILENO, &byte, 1) == 0 ? 0 : 1;
}

static struct process start_process(void) {
    struct process process;
    int in[2], out[2];

    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    process.id = fork();
    if (process.id == 0) {
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        for (int i = 0; i < 2; i++) {
            close(in[i]);
            close(out[i]);
        }
        execl("/proc/self/exe", "test-transfer-engine", "host", NULL);
        _exit(1);
    }
    assert_true(process.id > 0);
    close(in[0]);
    close(out[1]);
    process.input = in[1];
    assert_int_equal(read(out[0], &process.card, sizeof(process.card)), sizeof(process.card));
    close(out[0]);
    return process;
}

static void kill_process(struct process *process) {
    int status;

    assert_int_equal(kill(process->id, SIGKILL), 0);
    assert_int_equal(waitpid(process->id, &status, 0), process->id);
    close(process->input);
}

/* ---- The loop ---- */

struct visit {
    struct engine *engine;
    int runs;
};

static void run_again(void *context) {
    struct visit *visit = context;

    if (!loop_on_thread(visit->engine->loop))
        abort();
    if (visit->runs++ == 0)
        loop_run(visit->engine->loop, run_again, visit);
}

static void a_function_runs_on_the_loops_thread_and_has_run_on_return(void **state) {
    struct station station = open_station(NULL, NULL, NULL, ALL);
    struct visit visit = {.engine = station.engine};

    (void)state;
    loop_run(station.engine->loop, run_again, &visit);
    assert_int_equal(visit.runs, 2);
    close_station(&station);
}

/* ---- A peer's memory ---- */

static void mapped_memory_outlives_its_process_its_peer_and_both_engines(void **state) {
    struct process process = start_process();
    struct station station = open_station(NULL, NULL, NULL, ALL);
    struct ref *hold;
    struct peer *peer;
    void *memory;
    uint8_t *bytes;

    (void)state;
    assert_int_equal(peer_open(station.engine, process.card.address, CLOCK_SECOND, &peer, NULL), MC_OK);
    assert_int_equal(peer_map(peer, process.card.memory + 4096, SIZE - 4096, ALL, &memory, &hold), MC_OK);
    bytes = memory;
    assert_int_equal(bytes[0], 0x5a);
    assert_int_equal(bytes[SIZE - 4097], 0x5a);
    bytes[7] = 1;
    kill_process(&process);
    assert_int_equal(bytes[SIZE - 4097], 0x5a);
    bytes[9] = 2;
    ref_drop(&peer->object.ref);
    close_station(&station);
    assert_int_equal(bytes[7] + bytes[9], 3);
    bytes[SIZE - 4097] = 3;
    ref_drop(hold);
}

static void what_is_written_through_a_mapping_is_the_peers_own(void **state) {
    struct station host = open_station(NULL, NULL, NULL, ALL), guest = open_station(NULL, NULL, NULL, ALL);
    struct ref *hold;
    struct peer *peer;
    void *memory;

    (void)state;
    assert_int_equal(peer_open(guest.engine, host.address, CLOCK_SECOND, &peer, NULL), MC_OK);
    assert_int_equal(peer_map(peer, (uint64_t)(uintptr_t)host.memory + 64, 64, ALL, &memory, &hold), MC_OK);
    assert_ptr_not_equal(memory, host.memory + 64);
    memcpy(memory, "through", 8);
    assert_string_equal((char *)host.memory + 64, "through");
    /* A mapping doesn't keep the peer's region. */
    assert_int_equal(mc_engine_unregister(host.handle, host.memory, NULL), MC_OK);
    ref_drop(hold);
    ref_drop(&peer->object.ref);
    close_station(&host);
    close_station(&guest);
}

static void an_engine_maps_its_own_memory_as_it_is(void **state) {
    struct station station = open_station(NULL, NULL, NULL, ALL);
    struct ref *hold;
    struct peer *peer;
    void *memory;

    (void)state;
    assert_int_equal(peer_open(station.engine, station.address, CLOCK_SECOND, &peer, NULL), MC_OK);
    assert_int_equal(peer_map(peer, (uint64_t)(uintptr_t)station.memory + 8, 8, ALL, &memory, &hold), MC_OK);
    assert_ptr_equal(memory, station.memory + 8);
    ref_drop(&peer->object.ref);
    ref_drop(hold);
    close_station(&station);
}

static void assert_not_mapped(struct peer *peer, uint64_t address, uint64_t length, uint32_t access) {
    struct ref *hold = NULL;
    void *memory = NULL;

    assert_int_equal(peer_map(peer, address, length, access, &memory, &hold), MC_ERR_NOT_SUPPORTED);
    assert_null(memory);
    assert_null(hold);
}

static void only_registered_ranges_with_their_rights_are_mapped_and_by_no_network(void **state) {
    struct station host = open_station(NULL, NULL, NULL, MC_REMOTE_READ);
    struct station stations[3] = {host, open_station(NULL, NULL, NULL, ALL), open_station("tcp", NULL, NULL, ALL)};
    uint64_t base = (uint64_t)(uintptr_t)host.memory;

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct ref *hold;
        struct peer *peer;
        void *memory;

        assert_int_equal(peer_open(stations[i].engine, host.address, CLOCK_SECOND, &peer, NULL), MC_OK);
        assert_not_mapped(peer, base, 8, ALL);
        assert_not_mapped(peer, base + SIZE - 8, 16, MC_REMOTE_READ);
        assert_not_mapped(peer, base - 8, 16, MC_REMOTE_READ);
        assert_not_mapped(peer, 4096, 8, MC_REMOTE_READ);
        assert_not_mapped(peer, base + 8, UINT64_MAX - 4, MC_REMOTE_READ);
        if (i < 2) {
            assert_int_equal(peer_map(peer, base, SIZE, MC_REMOTE_READ, &memory, &hold), MC_OK);
            ref_drop(hold);
        } else {
            assert_not_mapped(peer, base, 8, MC_REMOTE_READ);
        }
        ref_drop(&peer->object.ref);
    }
    for (int i = 0; i < 3; i++)
        close_station(&stations[i]);
}

/* ---- What is in flight ---- */

#define GUARD 64u /* the offset of the guard's word */
#define DATA 4096u

struct talk {
    struct station station;
    int fd;
};

static int greet(const struct station *station, uint8_t id) {
    uint8_t incarnation[16] = {id};
    struct address_text parts;
    struct address address;
    size_t count = 0;
    int32_t status = 1;
    int fd;

    assert_int_equal(address_parse(station->address, &parts, NULL), MC_OK);
    assert_int_equal(address_resolve(parts.host, (uint16_t)parts.port, &address, 1, &count, NULL), MC_OK);
    fd = peer_connect(&address);
    assert_true(peer_greet_as_client(fd, incarnation, NULL, &status));
    assert_int_equal(status, MC_OK);
    return fd;
}

static void open_talk(struct talk *talk) {
    talk->station = open_station(NULL, NULL, NULL, ALL);
    talk->station.memory[GUARD] = 42;
    talk->fd = greet(&talk->station, 9);
}

static void flush_loop(struct talk *talk) {
    loop_flush(talk->station.engine->loop);
}

static bool in_flight(struct talk *talk) {
    return engine_in_flight(talk->station.engine, talk->station.memory + GUARD);
}

static void await_flight(struct talk *talk, bool wanted) {
    uint64_t deadline = clock_after(clock_now(), PEER_PATIENCE);

    while (in_flight(talk) != wanted) {
        assert_true(clock_now() < deadline);
        sched_yield();
    }
}

static struct frame guarded(struct talk *talk, uint16_t type, uint64_t length, uint64_t value) {
    return (struct frame){.type = type,
                          .flags = FRAME_FLAG_GUARD,
                          .address = (uint64_t)(uintptr_t)talk->station.memory + DATA,
                          .length = length,
                          .guard_address = (uint64_t)(uintptr_t)talk->station.memory + GUARD,
                          .guard_value = value,
                          .payload = type == FRAME_WRITE ? (uint32_t)length : 0};
}

/* Sends a guarded WRITE up to the middle of its payload. */
static void begin_write(struct talk *talk, uint64_t value) {
    static uint8_t half[50000];
    struct frame frame = guarded(talk, FRAME_WRITE, sizeof(half) * 2, value);
    uint8_t header[FRAME_SIZE];

    frame_pack(&frame, header);
    assert_true(peer_send(talk->fd, header, sizeof(header)));
    assert_true(peer_send(talk->fd, half, sizeof(half)));
}

static void end_write(struct talk *talk, int32_t status) {
    static uint8_t half[50000];
    struct frame reply;

    assert_true(peer_send(talk->fd, half, sizeof(half)));
    assert_true(peer_receive_frame(talk->fd, &reply, NULL, 0));
    assert_int_equal(reply.status, status);
}

static void a_write_is_in_flight_from_its_header_to_its_last_byte(void **state) {
    struct talk talk;

    (void)state;
    open_talk(&talk);
    assert_false(in_flight(&talk));
    begin_write(&talk, 42);
    await_flight(&talk, true);
    end_write(&talk, MC_OK);
    assert_false(in_flight(&talk));
    begin_write(&talk, 42);
    await_flight(&talk, true);
    close(talk.fd); /* its client goes in the middle */
    await_flight(&talk, false);
    close_station(&talk.station);
}

static void a_write_that_found_another_value_is_not_in_flight(void **state) {
    struct talk talk;

    (void)state;
    open_talk(&talk);
    begin_write(&talk, 41);
    flush_loop(&talk);
    assert_false(in_flight(&talk));
    end_write(&talk, MC_ERR_GUARD_MISMATCH);
    assert_false(in_flight(&talk));
    close(talk.fd);
    close_station(&talk.station);
}

static void a_read_is_in_flight_until_its_bytes_have_left_and_the_guard_was_seen_again(void **state) {
    enum { LENGTH = SIZE - DATA };
    uint8_t *place = malloc(LENGTH);
    struct talk talk;
    struct frame request, reply;

    (void)state;
    assert_non_null(place);
    open_talk(&talk);
    request = guarded(&talk, FRAME_READ, LENGTH, 42);
    assert_true(peer_send_frame(talk.fd, &request, NULL));
    await_flight(&talk, true);
    flush_loop(&talk);
    assert_true(in_flight(&talk)); /* more than the kernel takes */
    assert_true(peer_receive_frame(talk.fd, &reply, place, LENGTH));
    assert_int_equal(reply.flags, FRAME_FLAG_MORE);
    assert_true(peer_receive_frame(talk.fd, &reply, NULL, 0));
    assert_int_equal(reply.status, MC_OK);
    assert_false(in_flight(&talk));
    close(talk.fd);
    close_station(&talk.station);
    free(place);
}

/* ---- The pattern: change the word, ask, reclaim ---- */

#define WRITE_SIZE (3 * TRANSPORT_PIECE)

struct hammer {
    struct station *client, *owner;
    _Atomic uint64_t generation; /* the word's value, as it was handed out last */
    atomic_bool stop;
    atomic_int written;
};

static uint64_t *word_of(const struct hammer *hammer) {
    return (uint64_t *)(void *)(hammer->owner->memory + GUARD);
}

static void *write_guarded(void *context) {
    struct hammer *hammer = context;
    uint8_t *local = hammer->client->memory;
    uint64_t peer;

    if (mc_peer_open(hammer->client->handle, hammer->owner->address, &peer, NULL) != MC_OK)
        abort();
    memset(local, 0xee, WRITE_SIZE);
    while (!hammer->stop) {
        const struct mc_request request = {.peer = peer,
                                           .opcode = MC_WRITE,
                                           .flags = MC_REQUEST_GUARD,
                                           .local = local,
                                           .remote = (uint64_t)(uintptr_t)hammer->owner->memory + DATA,
                                           .length = WRITE_SIZE,
                                           .guard_address = (uint64_t)(uintptr_t)word_of(hammer),
                                           .guard_value = hammer->generation};
        int32_t status = mc_engine_transfer(hammer->client->handle, &request, 1, sizeof(request), 0, NULL);

        if (status != MC_OK && status != MC_ERR_GUARD_MISMATCH)
            abort();
        hammer->written += status == MC_OK;
    }
    mc_peer_close(peer);
    return NULL;
}

static void assert_nobody_writes_what_is_reclaimed(struct station *client, struct station *owner) {
    struct hammer hammer = {.client = client, .owner = owner, .generation = 1};
    uint8_t *data = owner->memory + DATA;
    pthread_t thread;

    __atomic_store_n(word_of(&hammer), 1, __ATOMIC_SEQ_CST);
    assert_int_equal(thread_start(&thread, "writer", write_guarded, &hammer), 0);
    for (uint64_t round = 2; round < 200; round++) {
        uint64_t deadline = clock_after(clock_now(), PEER_PATIENCE);
        int before = hammer.written;

        while (hammer.written == before && round % 8 == 0) {
            assert_true(clock_now() < deadline);
            sched_yield();
        }
        __atomic_store_n(word_of(&hammer), 0, __ATOMIC_SEQ_CST);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        while (engine_in_flight(owner->engine, word_of(&hammer))) {
            assert_true(clock_now() < deadline);
            sched_yield();
        }
        memset(data, 0, WRITE_SIZE);
        for (int i = 0; i < 20; i++)
            sched_yield();
        for (size_t i = 0; i < WRITE_SIZE; i += 512)
            assert_int_equal(data[i], 0);
        __atomic_store_n(word_of(&hammer), round, __ATOMIC_SEQ_CST);
        hammer.generation = round;
    }
    hammer.stop = true;
    pthread_join(thread, NULL);
    assert_true(hammer.written > 0);
}

static void nobody_writes_what_is_reclaimed_over(const char *protocol) {
    struct station owner = open_station(NULL, NULL, NULL, ALL), client = open_station(protocol, NULL, NULL, ALL);

    assert_nobody_writes_what_is_reclaimed(&client, &owner);
    close_station(&client);
    close_station(&owner);
}

static void nobody_writes_what_is_reclaimed_when_nothing_is_in_flight_by_tcp(void **state) {
    (void)state;
    nobody_writes_what_is_reclaimed_over("tcp");
}

static void nobody_writes_what_is_reclaimed_when_nothing_is_in_flight_by_shm(void **state) {
    (void)state;
    nobody_writes_what_is_reclaimed_over("shm");
}

/* ---- Clients ---- */

struct watch {
    struct gate lost;
    uint8_t last[16];
};

static void lost(void *context, const uint8_t incarnation[16]) {
    struct watch *watch = context;

    memcpy(watch->last, incarnation, 16);
    gate_step(&watch->lost);
}

static void a_client_is_lost_once_when_its_connections_of_all_kinds_have_ended(void **state) {
    struct station owner = open_station(NULL, NULL, NULL, ALL), client = open_station(NULL, NULL, NULL, ALL);
    const uint8_t *who = client.engine->identity.incarnation;
    struct watch watch;
    struct peer *peer;

    (void)state;
    gate_init(&watch.lost);
    engine_watch_clients(owner.engine, lost, &watch);
    for (int round = 1; round <= 20; round++) {
        assert_int_equal(engine_client_count(owner.engine, who), 0);
        assert_int_equal(peer_open(client.engine, owner.address, CLOCK_SECOND, &peer, NULL), MC_OK);
        assert_int_equal(engine_client_count(owner.engine, who), 3); /* a lane, a guest, and a ring */
        channel_break(peer->channel, MC_ERR_CONNECTION_LOST);
        assert_int_equal(gate_count(&watch.lost), round - 1);
        ref_drop(&peer->object.ref);
        gate_await(&watch.lost, round);
        assert_int_equal(gate_count(&watch.lost), round);
        assert_memory_equal(watch.last, who, 16);
    }
    assert_int_equal(peer_open(client.engine, owner.address, CLOCK_SECOND, &peer, NULL), MC_OK);
    engine_watch_clients(owner.engine, NULL, NULL);
    ref_drop(&peer->object.ref);
    while (engine_client_count(owner.engine, who) > 0)
        sched_yield();
    assert_int_equal(gate_count(&watch.lost), 20);
    /* Nor does an engine that closes tell. */
    engine_watch_clients(owner.engine, lost, &watch);
    assert_int_equal(peer_open(client.engine, owner.address, CLOCK_SECOND, &peer, NULL), MC_OK);
    close_station(&owner);
    assert_int_equal(gate_count(&watch.lost), 20);
    ref_drop(&peer->object.ref);
    close_station(&client);
    gate_destroy(&watch.lost);
}

/* ---- Proof ---- */

#define TIMEOUT (10 * CLOCK_SECOND)

static void a_process_is_gone_when_it_was_killed_and_not_while_it_is_stopped(void **state) {
    struct process process = start_process();
    struct station station = open_station(NULL, NULL, NULL, ALL);
    const struct card *card = &process.card;

    (void)state;
    assert_false(engine_prove_gone(station.engine, card->address, card->incarnation, TIMEOUT));
    assert_int_equal(kill(process.id, SIGSTOP), 0);
    assert_false(engine_prove_gone(station.engine, card->address, card->incarnation, 200 * CLOCK_MILLISECOND));
    assert_int_equal(kill(process.id, SIGCONT), 0);
    assert_false(engine_prove_gone(station.engine, card->address, card->incarnation, TIMEOUT));
    kill_process(&process);
    assert_true(engine_prove_gone(station.engine, card->address, card->incarnation, TIMEOUT));
    close_station(&station);
}

static void an_engine_in_its_place_proves_that_one_is_gone(void **state) {
    struct process process = start_process();
    struct station asking = open_station(NULL, NULL, NULL, ALL), heir;
    const struct card *card = &process.card;
    struct watch watch;

    (void)state;
    gate_init(&watch.lost);
    kill_process(&process);
    heir = open_station(NULL, card->address, NULL, ALL);
    engine_watch_clients(heir.engine, lost, &watch);
    assert_true(engine_prove_gone(asking.engine, card->address, card->incarnation, TIMEOUT));
    assert_false(engine_prove_gone(asking.engine, card->address, heir.engine->identity.incarnation, TIMEOUT));
    /* Whoever asks so is no client. */
    loop_flush(heir.engine->loop);
    assert_int_equal(engine_client_count(heir.engine, asking.engine->identity.incarnation), 0);
    assert_int_equal(gate_count(&watch.lost), 0);
    close_station(&heir);
    close_station(&asking);
    gate_destroy(&watch.lost);
}

static void what_cannot_be_told_proves_nothing(void **state) {
    char path[] = "/tmp/mooncake-key-XXXXXX";
    static const char *const addresses[] = {
        "", "nowhere", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:99999", "a:b:c", "no-such-name.invalid:80"};
    static const uint8_t someone[16] = {1};
    struct station asking = open_station(NULL, NULL, NULL, ALL), keyed;
    struct address bound;
    char text[ADDRESS_TEXT_MAX];
    int fd = mkstemp(path), listener = peer_listen(&bound);

    (void)state;
    for (size_t i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++)
        assert_false(engine_prove_gone(asking.engine, addresses[i], someone, TIMEOUT));
    /* A listener that says nothing. */
    address_format(&bound, text);
    assert_false(engine_prove_gone(asking.engine, text, someone, 100 * CLOCK_MILLISECOND));
    socket_close(listener);
    assert_true(engine_prove_gone(asking.engine, text, someone, TIMEOUT));
    /* An engine with a key. */
    assert_int_equal(write(fd, "0123456789abcdef", 16), 16);
    close(fd);
    keyed = open_station(NULL, NULL, path, ALL);
    unlink(path);
    assert_false(engine_prove_gone(asking.engine, keyed.address, someone, TIMEOUT));
    assert_false(engine_prove_gone(keyed.engine, asking.address, someone, TIMEOUT));
    close_station(&keyed);
    close_station(&asking);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_function_runs_on_the_loops_thread_and_has_run_on_return),
        cmocka_unit_test(mapped_memory_outlives_its_process_its_peer_and_both_engines),
        cmocka_unit_test(what_is_written_through_a_mapping_is_the_peers_own),
        cmocka_unit_test(an_engine_maps_its_own_memory_as_it_is),
        cmocka_unit_test(only_registered_ranges_with_their_rights_are_mapped_and_by_no_network),
        cmocka_unit_test(a_write_is_in_flight_from_its_header_to_its_last_byte),
        cmocka_unit_test(a_write_that_found_another_value_is_not_in_flight),
        cmocka_unit_test(a_read_is_in_flight_until_its_bytes_have_left_and_the_guard_was_seen_again),
        cmocka_unit_test(nobody_writes_what_is_reclaimed_when_nothing_is_in_flight_by_tcp),
        cmocka_unit_test(nobody_writes_what_is_reclaimed_when_nothing_is_in_flight_by_shm),
        cmocka_unit_test(a_client_is_lost_once_when_its_connections_of_all_kinds_have_ended),
        cmocka_unit_test(a_process_is_gone_when_it_was_killed_and_not_while_it_is_stopped),
        cmocka_unit_test(an_engine_in_its_place_proves_that_one_is_gone),
        cmocka_unit_test(what_cannot_be_told_proves_nothing),
    };

    if (argc == 2 && strcmp(argv[1], "host") == 0)
        return be_the_host();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_channel_ring.c - calls go through a ring as they do over a connection; when it is lost they end, and later ones take
 * the other lanes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "net/channel.h"
#include "net/ring.h"
#include "net/server.h"
#include "os/fork.h"
#include "os/memfd.h"
#include "peer.h"

#define ECHO 100 /* message numbers */
#define SILENT 102
#define LATER 104
#define TOO_MANY 6000    /* more than a server keeps of one client at a time */
#define LARGE (1u << 20) /* as large as a message may be, and larger than a ring */

/* The channel's address leads nowhere: what is answered has come through the ring. */
struct world {
    struct loop *loops[2]; /* the server's, the channel's */
    struct identity selves[2];
    struct server *server;
    struct service echo, silent, later;
    struct exchange *kept[TOO_MANY]; /* those of `later`, on the server's loop */
    size_t kept_count;
    atomic_int answered;
    struct channel *channel;
    struct ring *ring; /* the host's side, while it is going to the server */
    int32_t adopted;
    uint8_t *memory; /* of the ring */
};

/* A call and what became of it. */
struct wish {
    struct channel_call call;
    struct gate done;
    int32_t status;
    uint8_t reply[64];
};

static void wish_done(struct channel_call *call, int32_t status) {
    struct wish *wish = list_entry(call, struct wish, call);

    wish->status = status;
    gate_step(&wish->done);
}

static void wish_begin(struct world *world, struct wish *wish, uint16_t type, const void *body, uint32_t length) {
    memset(wish, 0, sizeof(*wish));
    gate_init(&wish->done);
    wish->call.done = wish_done;
    channel_begin(world->channel, &wish->call, type, body, length, wish->reply, sizeof(wish->reply));
}

static void assert_ended(struct wish *wish, int32_t status) {
    gate_await(&wish->done, 1);
    assert_int_equal(gate_count(&wish->done), 1);
    assert_int_equal(wish->status, status);
    gate_destroy(&wish->done);
}

static void begin(struct exchange *exchange) {
    exchange_take_body(exchange);
}

static int32_t echo(struct exchange *exchange) {
    uint32_t length = exchange->request.payload;
    uint8_t *copy = malloc(length + 1), *reply;

    if (copy == NULL)
        return MC_ERR_NO_MEMORY;
    if (length > 0)
        memcpy(copy, exchange->body, length);
    reply = exchange_reply_body(exchange, length);
    if (reply != NULL && length > 0)
        memcpy(reply, copy, length);
    free(copy);
    return MC_OK;
}

static int32_t say_nothing(struct exchange *exchange) {
    (void)exchange;
    return MC_ERR_PENDING;
}

static int32_t keep(struct exchange *exchange) {
    struct world *world = exchange->service->context;

    world->kept[world->kept_count++] = exchange;
    return MC_ERR_PENDING;
}

static void answer_kept(void *context) {
    struct world *world = context;

    while (world->kept_count > 0) {
        exchange_finish(world->kept[--world->kept_count], MC_OK);
        world->answered++;
    }
}

static void adopt(void *context) {
    struct world *world = context;

    world->adopted = server_adopt(world->server, world->selves[1].incarnation, world->ring);
}

/* A ring of the server; the guest's side goes to the channel, or comes back where that has one. */
static struct ring *give_ring(struct world *world) {
    int memory_fd, bell;
    struct ring *guest;
    void *memory;

    world->ring = ring_make(&memory_fd, &bell);
    assert_non_null(world->ring);
    assert_int_equal(memfd_map(memory_fd, 0, ring_memory_size(), true, &memory), 0);
    guest = ring_map(memory_fd, bell);
    assert_non_null(guest);
    fork_close(memory_fd);
    loop_run(world->loops[0], adopt, world);
    if (world->memory != NULL)
        memfd_unmap(world->memory, ring_memory_size());
    world->memory = memory;
    return guest;
}

static int open_world(void **state) {
    struct world *world = calloc(1, sizeof(*world));
    struct server_options server_options;
    struct channel_options channel_options;

    assert_non_null(world);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(loop_start(&world->loops[i]), MC_OK);
        memset(world->selves[i].incarnation, i + 1, 16);
    }
    server_options = (struct server_options){
        .loop = world->loops[0], .self = &world->selves[0], .sessions = 10, .rings = 2, .backlog = 10};
    assert_int_equal(server_open(&server_options, &world->server), MC_OK);
    world->echo = (struct service){.type = FRAME_CALL + ECHO, .begin = begin, .serve = echo};
    world->silent = (struct service){.type = FRAME_CALL + SILENT, .begin = begin, .serve = say_nothing};
    assert_int_equal(server_add(world->server, &world->echo), MC_OK);
    world->later = (struct service){.type = FRAME_CALL + LATER, .context = world, .begin = begin, .serve = keep};
    assert_int_equal(server_add(world->server, &world->silent), MC_OK);
    assert_int_equal(server_add(world->server, &world->later), MC_OK);
    channel_options = (struct channel_options){
        .loop = world->loops[1], .self = &world->selves[1], .connect_timeout = CLOCK_SECOND, .lanes = 1};
    assert_int_equal(channel_new("127.0.0.1:1", &channel_options, &world->channel, NULL), MC_OK);
    assert_false(channel_has_ring(world->channel));
    channel_adopt(world->channel, give_ring(world));
    assert_int_equal(world->adopted, MC_OK);
    *state = world;
    return 0;
}

static void close_server(void *context) {
    struct world *world = context;

    world->server = server_close(world->server);
}

static int close_world(void **state) {
    struct world *world = *state;

    channel_close(world->channel);
    loop_run(world->loops[0], close_server, world);
    for (int i = 0; i < 2; i++)
        loop_stop(world->loops[i]);
    memfd_unmap(world->memory, ring_memory_size());
    free(world);
    return 0;
}

static int32_t call(struct world *world, uint16_t type, const void *body, uint32_t length, uint64_t time, void *reply) {
    uint32_t got = 0;
    int32_t status =
        channel_call(world->channel, type, body, length, clock_after(clock_now(), time), reply, length, &got);

    if (status == MC_OK && got != length)
        abort();
    return status;
}

/* Calls go through it, and do so after pauses, too, when both sides sleep. */
static void assert_works(struct world *world) {
    static const struct timespec pause = {.tv_nsec = 2000000};

    for (int i = 0; i < 100; i++) {
        char reply[8];

        assert_int_equal(call(world, ECHO, "abcdefg", 8, PEER_PATIENCE, reply), MC_OK);
        assert_string_equal(reply, "abcdefg");
        if (i % 10 == 0)
            nanosleep(&pause, NULL);
    }
    assert_true(channel_has_ring(world->channel));
}

static void calls_go_through_the_ring(void **state) {
    assert_works(*state);
}

static uint32_t client_count(struct world *world) {
    return clients_count(server_clients(world->server), world->selves[1].incarnation);
}

static void a_ring_is_one_of_its_client_s_connections(void **state) {
    struct world *world = *state;

    assert_int_equal(client_count(world), 1);
    channel_break(world->channel, MC_ERR_CLOSED);
    for (uint64_t end = clock_after(clock_now(), PEER_PATIENCE); client_count(world) > 0;)
        assert_true(clock_now() < end);
}

static void a_server_gives_no_more_rings_than_it_may(void **state) {
    struct world *world = *state;
    struct ring *second = give_ring(world), *third;

    assert_int_equal(world->adopted, MC_OK);
    third = give_ring(world);
    assert_int_equal(world->adopted, MC_ERR_TOO_MANY);
    ring_close(world->ring);
    ring_close(second);
    ring_close(third);
    assert_works(world);
}

static void messages_that_are_larger_than_the_ring_go_through_it(void **state) {
    struct world *world = *state;
    uint8_t *body = malloc(LARGE), *reply = malloc(LARGE);

    assert_non_null(body);
    assert_non_null(reply);
    for (size_t i = 0; i < LARGE; i++)
        body[i] = (uint8_t)(i * 7 + (i >> 9));
    for (int i = 0; i < 5; i++) {
        memset(reply, 0, LARGE);
        assert_int_equal(call(world, ECHO, body, LARGE, PEER_PATIENCE, reply), MC_OK);
        assert_memory_equal(reply, body, LARGE);
    }
    free(body);
    free(reply);
}

static void calls_that_nobody_waits_for_end_too(void **state) {
    struct world *world = *state;
    static struct wish wishes[300];

    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 300; i++)
            wish_begin(world, &wishes[i], ECHO, &wishes[i], 40);
        for (int i = 0; i < 300; i++)
            assert_ended(&wishes[i], MC_OK);
    }
    assert_true(channel_has_ring(world->channel));
}

static void a_server_that_keeps_as_much_as_it_may_goes_on_when_it_has_answered(void **state) {
    struct world *world = *state;
    struct wish *wishes = calloc(TOO_MANY, sizeof(*wishes));
    uint64_t end = clock_after(clock_now(), PEER_PATIENCE);

    assert_non_null(wishes);
    for (int i = 0; i < TOO_MANY; i++)
        wish_begin(world, &wishes[i], LATER, "later", 5);
    while (world->answered < TOO_MANY) {
        assert_true(clock_now() < end);
        loop_run(world->loops[0], answer_kept, world);
    }
    for (int i = 0; i < TOO_MANY; i++)
        assert_ended(&wishes[i], MC_OK);
    free(wishes);
    assert_works(world);
}

static void a_call_that_isn_t_answered_ends_at_its_deadline(void **state) {
    struct world *world = *state;

    assert_int_equal(call(world, SILENT, NULL, 0, 50 * CLOCK_MILLISECOND, NULL), MC_ERR_TIMEOUT);
    assert_works(world);
}

/* ---- Loss ---- */

/* Everything in flight ends with `status`, and later calls take the lane, which leads nowhere. */
static void assert_lost(struct world *world, struct wish *wish, int32_t status) {
    assert_ended(wish, status);
    assert_false(channel_has_ring(world->channel));
    assert_int_equal(call(world, ECHO, NULL, 0, PEER_PATIENCE, NULL), MC_ERR_UNREACHABLE);
}

static void a_server_that_closes_ends_the_calls(void **state) {
    struct world *world = *state;
    struct wish wish;

    wish_begin(world, &wish, SILENT, NULL, 0);
    loop_run(world->loops[0], close_server, world);
    assert_lost(world, &wish, MC_ERR_CONNECTION_LOST);
}

struct closer {
    struct world *world;
    pthread_t thread;
};

static void *close_soon(void *context) {
    static const struct timespec pause = {.tv_nsec = 20000000};
    struct closer *closer = context;

    nanosleep(&pause, NULL);
    loop_run(closer->world->loops[0], close_server, closer->world);
    return NULL;
}

static void a_caller_that_waits_sees_the_other_side_go(void **state) {
    struct world *world = *state;
    struct closer closer = {.world = world};

    assert_int_equal(pthread_create(&closer.thread, NULL, close_soon, &closer), 0);
    assert_int_equal(call(world, SILENT, NULL, 0, PEER_PATIENCE, NULL), MC_ERR_CONNECTION_LOST);
    assert_int_equal(pthread_join(closer.thread, NULL), 0);
    assert_false(channel_has_ring(world->channel));
}

static void set_words(struct world *world, uint64_t value) {
    for (size_t at = 0; at < 4096; at += sizeof(value)) {
        _Atomic uint64_t *word = (void *)(world->memory + at);

        atomic_store(word, value);
    }
}

/* Each side writes its own positions over it, so it is written until it was read. */
static void nonsense_in_the_memory_ends_the_ring_at_both_ends(void **state) {
    struct world *world = *state;
    uint64_t end = clock_after(clock_now(), PEER_PATIENCE);
    static struct wish wish;

    wish_begin(world, &wish, SILENT, NULL, 0);
    while (channel_has_ring(world->channel)) {
        assert_true(clock_now() < end);
        set_words(world, UINT64_MAX / 2);
        (void)call(world, ECHO, NULL, 0, CLOCK_SECOND, NULL);
    }
    gate_await(&wish.done, 1);
    gate_destroy(&wish.done);
    while (client_count(world) > 0)
        assert_true(clock_now() < end);
}

/* ---- Races ---- */

struct caller {
    struct world *world;
    pthread_t thread;
    unsigned seed;
    int failed;
};

static void *call_often(void *context) {
    struct caller *caller = context;

    for (int i = 0; i < 300; i++) {
        uint8_t body[3000], reply[3000];
        uint32_t length = (uint32_t)rand_r(&caller->seed) % sizeof(body);
        struct wish wish;

        memset(body, i, sizeof(body));
        if (i % 3 == 0) {
            wish_begin(caller->world, &wish, ECHO, body, length);
            if (i % 2 == 0)
                channel_cancel(&wish.call, MC_ERR_CANCELLED);
        }
        if (call(caller->world, ECHO, body, length, PEER_PATIENCE, reply) != MC_OK || memcmp(body, reply, length) != 0)
            caller->failed++;
        if (i % 3 == 0) {
            gate_await(&wish.done, 1);
            gate_destroy(&wish.done);
        }
    }
    return NULL;
}

static void threads_share_a_ring(void **state) {
    struct world *world = *state;
    struct caller callers[4];

    for (unsigned i = 0; i < 4; i++) {
        callers[i] = (struct caller){.world = world, .seed = i};
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call_often, &callers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
        assert_int_equal(callers[i].failed, 0);
    }
    assert_works(world);
}

#define test_of(function) cmocka_unit_test_setup_teardown(function, open_world, close_world)

int main(void) {
    const struct CMUnitTest tests[] = {
        test_of(calls_go_through_the_ring),
        test_of(a_ring_is_one_of_its_client_s_connections),
        test_of(a_server_gives_no_more_rings_than_it_may),
        test_of(messages_that_are_larger_than_the_ring_go_through_it),
        test_of(calls_that_nobody_waits_for_end_too),
        test_of(a_server_that_keeps_as_much_as_it_may_goes_on_when_it_has_answered),
        test_of(a_call_that_isn_t_answered_ends_at_its_deadline),
        test_of(a_server_that_closes_ends_the_calls),
        test_of(a_caller_that_waits_sees_the_other_side_go),
        test_of(nonsense_in_the_memory_ends_the_ring_at_both_ends),
        test_of(threads_share_a_ring),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_channel.c - calls that go on by themselves end exactly once, with what came or with what they were cancelled for,
 * and nothing touches them afterwards.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <mooncake/error.h>

#include "net/channel.h"
#include "net/server.h"
#include "peer.h"
#include "wire/message.h"

#define ECHO 100 /* message numbers */
#define SILENT 102
#define BODY 64

struct world {
    struct loop *loops[2]; /* the server's, the channel's */
    struct identity selves[2];
    struct server *server;
    struct service echo, silent;
    struct channel *channel;
};

/* A call and what became of it. */
struct wish {
    struct channel_call call;
    atomic_int ends;
    int32_t status;
    struct gate done;
    uint8_t reply[BODY];
};

static void wish_done(struct channel_call *call, int32_t status) {
    struct wish *wish = list_entry(call, struct wish, call);

    wish->status = status;
    wish->ends++;
    gate_step(&wish->done);
}

static void wish_init(struct wish *wish) {
    memset(wish, 0, sizeof(*wish));
    gate_init(&wish->done);
    wish->call.done = wish_done;
}

static void begin(struct exchange *exchange) {
    exchange_take_body(exchange);
}

static int32_t echo(struct exchange *exchange) {
    uint8_t copy[BODY];
    uint32_t length = exchange->request.payload < BODY ? exchange->request.payload : BODY;

    memcpy(copy, exchange->body != NULL ? exchange->body : copy, length);
    memcpy(exchange_reply_body(exchange, length), copy, length);
    return MC_OK;
}

static int32_t say_nothing(struct exchange *exchange) {
    (void)exchange;
    return MC_ERR_PENDING;
}

static int open_world(void **state) {
    struct world *world = calloc(1, sizeof(*world));
    struct address any = peer_loopback(), bound;
    struct server_options server_options;
    struct channel_options channel_options;
    char text[ADDRESS_TEXT_MAX];

    assert_non_null(world);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(loop_start(&world->loops[i]), MC_OK);
        memset(world->selves[i].incarnation, i + 1, 16);
    }
    server_options =
        (struct server_options){.loop = world->loops[0], .self = &world->selves[0], .sessions = 10, .backlog = 10};
    assert_int_equal(server_open(&server_options, &world->server), MC_OK);
    world->echo = (struct service){.type = FRAME_CALL + ECHO, .begin = begin, .serve = echo};
    world->silent = (struct service){.type = FRAME_CALL + SILENT, .begin = begin, .serve = say_nothing};
    assert_int_equal(server_add(world->server, &world->echo), MC_OK);
    assert_int_equal(server_add(world->server, &world->silent), MC_OK);
    assert_int_equal(server_listen(world->server, &any, &bound, NULL), MC_OK);
    address_format(&bound, text);
    channel_options = (struct channel_options){
        .loop = world->loops[1], .self = &world->selves[1], .connect_timeout = PEER_PATIENCE, .lanes = 2};
    assert_int_equal(channel_new(text, &channel_options, &world->channel, NULL), MC_OK);
    assert_int_equal(channel_greet(world->channel, NULL), MC_OK);
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
    free(world);
    return 0;
}

static void assert_ended(struct wish *wish, int32_t status) {
    gate_await(&wish->done, 1);
    assert_int_equal(wish->ends, 1);
    assert_int_equal(wish->status, status);
    gate_destroy(&wish->done);
}

static void many_calls_go_on_at_a_time_and_each_gets_its_reply(void **state) {
    struct world *world = *state;
    static struct wish wishes[500];
    char bodies[500][BODY];

    for (int i = 0; i < 500; i++) {
        wish_init(&wishes[i]);
        snprintf(bodies[i], BODY, "call %d", i);
        channel_begin(world->channel, &wishes[i].call, ECHO, bodies[i], BODY, wishes[i].reply, BODY);
    }
    for (int i = 0; i < 500; i++) {
        assert_ended(&wishes[i], MC_OK);
        assert_int_equal(wishes[i].call.reply_length, BODY);
        assert_string_equal((char *)wishes[i].reply, bodies[i]);
    }
}

static void a_reply_is_cut_where_its_place_ends(void **state) {
    struct world *world = *state;
    struct wish wish;

    wish_init(&wish);
    channel_begin(world->channel, &wish.call, ECHO, "abcdefgh", 8, wish.reply, 3);
    assert_ended(&wish, MC_OK);
    assert_int_equal(wish.call.reply_length, 3);
    assert_memory_equal(wish.reply, "abc\0", 4);
}

static void a_refusal_is_the_calls_status(void **state) {
    struct world *world = *state;
    struct wish wish;

    wish_init(&wish);
    channel_begin(world->channel, &wish.call, 998, NULL, 0, wish.reply, BODY);
    assert_ended(&wish, MC_ERR_NOT_SUPPORTED);
    assert_int_equal(wish.call.reply_length, 0);
}

static void a_cancelled_call_has_ended_on_return(void **state) {
    struct world *world = *state;
    struct wish wish;

    wish_init(&wish);
    channel_begin(world->channel, &wish.call, SILENT, "x", 1, wish.reply, BODY);
    channel_cancel(&wish.call, MC_ERR_TIMEOUT);
    assert_int_equal(wish.ends, 1);
    channel_cancel(&wish.call, MC_ERR_CANCELLED);
    assert_ended(&wish, MC_ERR_TIMEOUT);
}

static void what_ends_the_channels_connections_ends_the_calls(void **state) {
    struct world *world = *state;
    struct wish wishes[3];

    for (int i = 0; i < 3; i++) {
        wish_init(&wishes[i]);
        channel_begin(world->channel, &wishes[i].call, SILENT, NULL, 0, NULL, 0);
    }
    channel_break(world->channel, MC_ERR_CONNECTION_LOST);
    for (int i = 0; i < 2; i++)
        assert_ended(&wishes[i], MC_ERR_CONNECTION_LOST);
    assert_ended(&wishes[2], MC_ERR_CONNECTION_LOST);
    loop_run(world->loops[0], close_server, world);
    wish_init(&wishes[0]);
    channel_begin(world->channel, &wishes[0].call, ECHO, NULL, 0, NULL, 0);
    gate_await(&wishes[0].done, 1);
    assert_int_not_equal(wishes[0].status, MC_OK);
    assert_ended(&wishes[0], wishes[0].status);
}

static void a_call_goes_on_while_others_are_waited_for(void **state) {
    struct world *world = *state;
    static struct wish wishes[100];

    for (int i = 0; i < 100; i++) {
        wish_init(&wishes[i]);
        channel_begin(world->channel, &wishes[i].call, ECHO, "later", 5, wishes[i].reply, BODY);
        assert_int_equal(channel_call(world->channel, ECHO, "now", 3, CLOCK_NEVER, NULL, 0, NULL), MC_OK);
    }
    for (int i = 0; i < 100; i++)
        assert_ended(&wishes[i], MC_OK);
}

/* ---- A race ---- */

#define ROUNDS 1500

struct racer {
    struct world *world;
    int number;
    int won[2]; /* completed, cancelled */
};

static void *begin_and_cancel(void *context) {
    struct racer *racer = context;

    for (int i = 0; i < ROUNDS; i++) {
        struct wish *wish = malloc(sizeof(*wish)); /* so that whoever touches it later is found out */

        if (wish == NULL)
            abort();
        wish_init(wish);
        channel_begin(racer->world->channel, &wish->call, ECHO, "race", 4, wish->reply, BODY);
        for (volatile int pause = 0; pause < (i * 7 + racer->number) % 20000; pause++)
            continue;
        channel_cancel(&wish->call, MC_ERR_CANCELLED);
        if (wish->ends != 1 || (wish->status != MC_OK && wish->status != MC_ERR_CANCELLED) ||
            (wish->status == MC_OK && memcmp(wish->reply, "race", 4) != 0))
            abort();
        racer->won[wish->status != MC_OK]++;
        gate_await(&wish->done, 1);
        gate_destroy(&wish->done);
        free(wish);
    }
    return NULL;
}

static void whichever_comes_first_of_reply_and_cancel_ends_a_call_once(void **state) {
    struct racer racers[3];
    pthread_t threads[3];

    for (int i = 0; i < 3; i++) {
        racers[i] = (struct racer){.world = *state, .number = i};
        assert_int_equal(thread_start(&threads[i], "racer", begin_and_cancel, &racers[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(racers[i].won[0] + racers[i].won[1], ROUNDS);
    }
}

#define test_of(function) cmocka_unit_test_setup_teardown(function, open_world, close_world)

int main(void) {
    const struct CMUnitTest tests[] = {
        test_of(many_calls_go_on_at_a_time_and_each_gets_its_reply),
        test_of(a_reply_is_cut_where_its_place_ends),
        test_of(a_refusal_is_the_calls_status),
        test_of(a_cancelled_call_has_ended_on_return),
        test_of(what_ends_the_channels_connections_ends_the_calls),
        test_of(a_call_goes_on_while_others_are_waited_for),
        test_of(whichever_comes_first_of_reply_and_cancel_ends_a_call_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

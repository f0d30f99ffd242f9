/* test_shm_guest.c - a guest whose host is slow, crowded or silent: played by the test, answer by answer.
 *
 * The host is a server with an INVITE of its own and a UNIX listener; a thread does there what its script says.
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

#include "../net/peer.h"
#include "os/fork.h"
#include "os/memfd.h"
#include "transports/shm/guest.h"
#include "transports/shm/page.h"
#include "wire/message.h"

#define REGIONS 2
#define SIZE 4096u
#define BASE 0x10000u /* of the first region; the others follow */
#define PATIENT (20 * CLOCK_SECOND)

struct stage {
    struct loop *loops[2]; /* the server's, the guest's */
    struct identity selves[2];
    struct server *server;
    struct service invite;
    struct transport_host host;
    struct channel *channel;
    char name[64];
    char refusing_name[64]; /* its queue is full */
    int listener, refusing, waiting;
    int32_t invitations[8]; /* the statuses of the first INVITEs */
    atomic_int invited;
    int crowded;         /* so many invitations lead to the full queue */
    int slammed;         /* so many guests are shown out at once */
    bool silent;         /* no WELCOME */
    atomic_int maps;     /* MAP packets that have come */
    struct gate answers; /* how many of them may be answered */
    atomic_bool over;
    pthread_t thread;
    int page_fd, page_read_only, memory_fd;
    struct shm_page *page;
    uint8_t *memory;
};

static void begin_invite(struct exchange *exchange) {
    (void)exchange;
}

static int32_t serve_invite(struct exchange *exchange) {
    struct stage *stage = exchange->service->context;
    int number = atomic_fetch_add(&stage->invited, 1);
    int32_t status = number < 8 ? stage->invitations[number] : MC_OK;
    const char *name = stage->name;
    struct message_invitation message;
    uint8_t *body;
    int64_t size;

    if (status == MC_OK && stage->crowded > 0) {
        stage->crowded--;
        name = stage->refusing_name;
    }
    message = (struct message_invitation){.name = {(const uint8_t *)name, (uint32_t)strlen(name)}};
    size = message_pack_invitation(&message, NULL, 0);
    body = status == MC_OK ? exchange_reply_body(exchange, (uint32_t)size) : NULL;
    if (body != NULL)
        message_pack_invitation(&message, body, (size_t)size);
    return status;
}

/* Serves one guest to its end. */
static void attend(struct stage *stage, int fd) {
    struct shm_packet packet;

    while (recv(fd, &packet, sizeof(packet), 0) == sizeof(packet)) {
        struct shm_packet reply = {.kind = SHM_MAPPED, .slot = packet.slot, .key = packet.key};
        int fds[2] = {stage->memory_fd, -1};
        size_t count = 1;
        void *counters;

        if (packet.kind == SHM_HELLO) {
            if (stage->silent)
                continue;
            reply = (struct shm_packet){.kind = SHM_WELCOME};
            fds[0] = stage->page_read_only;
            if (memfd_make("counters", memfd_round(sizeof(struct shm_counters)), &fds[1], &counters) != 0)
                abort();
            memfd_unmap(counters, memfd_round(sizeof(struct shm_counters)));
            count = 2;
        } else {
            gate_await(&stage->answers, atomic_fetch_add(&stage->maps, 1) + 1);
        }
        if (socket_send_fds(fd, &reply, sizeof(reply), fds, count) < 0 && !stage->over)
            abort();
        fork_close(fds[1]);
    }
}

static void *keep_the_door(void *context) {
    struct stage *stage = context;
    int fd;

    while ((fd = accept(stage->listener, NULL, NULL)) >= 0 && !stage->over) {
        peer_patience(fd);
        if (stage->slammed > 0)
            stage->slammed--;
        else
            attend(stage, fd);
        close(fd);
    }
    close(fd);
    return NULL;
}

static int32_t open_guest(struct stage *stage, struct shm_guest **ret_guest, char reason[TRANSPORT_REASON_MAX]) {
    reason[0] = '\0';
    return shm_guest_open(&stage->host, stage->channel, ret_guest, reason);
}

static void make_memory(struct stage *stage) {
    void *address;

    assert_int_equal(memfd_make("regions", memfd_round(sizeof(struct shm_page)), &stage->page_fd, &address), 0);
    stage->page = address;
    stage->page_read_only = memfd_read_only(stage->page_fd);
    assert_int_equal(memfd_make("memory", REGIONS * SIZE, &stage->memory_fd, &address), 0);
    stage->memory = address;
    stage->page->magic = SHM_MAGIC;
    for (uint32_t i = 0; i < REGIONS; i++) {
        stage->page->slots[i].base = BASE + i * SIZE;
        stage->page->slots[i].length = SIZE;
        stage->page->slots[i].memory = 1 + i; /* as if of two memories, so that each is asked for */
        stage->page->slots[i].memory_offset = i * SIZE;
        stage->page->slots[i].memory_size = REGIONS * SIZE;
        stage->page->slots[i].access = MC_REMOTE_READ | MC_REMOTE_WRITE;
        stage->page->slots[i].key = SHM_STATES + SHM_OPEN;
        stage->page->log[i] = i;
    }
    stage->page->slots_used = REGIONS;
    stage->page->changes = REGIONS;
}

/* A listener whose queue is full. */
static void make_a_crowd(struct stage *stage) {
    snprintf(stage->refusing_name, sizeof(stage->refusing_name), "mooncake-test-full-%d", getpid());
    stage->refusing = socket_unix_listen(stage->refusing_name, 0);
    assert_true(stage->refusing >= 0);
    stage->waiting = socket_unix_connect(stage->refusing_name);
    assert_true(stage->waiting >= 0);
}

static int open_stage(void **state) {
    struct stage *stage = calloc(1, sizeof(*stage));
    struct address any = peer_loopback(), bound;
    struct server_options server_options;
    struct channel_options channel_options;
    char text[ADDRESS_TEXT_MAX];

    assert_non_null(stage);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(loop_start(&stage->loops[i]), MC_OK);
        memset(stage->selves[i].incarnation, i + 1, 16);
    }
    gate_init(&stage->answers);
    make_memory(stage);
    make_a_crowd(stage);
    snprintf(stage->name, sizeof(stage->name), "mooncake-test-%d", getpid());
    stage->listener = socket_unix_listen(stage->name, 10);
    assert_true(stage->listener >= 0);
    peer_patience(stage->listener);
    server_options =
        (struct server_options){.loop = stage->loops[0], .self = &stage->selves[0], .sessions = 10, .backlog = 10};
    assert_int_equal(server_open(&server_options, &stage->server), MC_OK);
    stage->invite = (struct service){
        .type = FRAME_CALL + MESSAGE_INVITE, .context = stage, .begin = begin_invite, .serve = serve_invite};
    server_add(stage->server, &stage->invite);
    assert_int_equal(server_listen(stage->server, &any, &bound, NULL), MC_OK);
    address_format(&bound, text);
    channel_options = (struct channel_options){
        .loop = stage->loops[1], .self = &stage->selves[1], .connect_timeout = PATIENT, .lanes = 1};
    assert_int_equal(channel_new(text, &channel_options, &stage->channel, NULL), MC_OK);
    assert_int_equal(channel_greet(stage->channel, NULL), MC_OK);
    stage->host =
        (struct transport_host){.loop = stage->loops[1], .self = &stage->selves[1], .connect_timeout = PATIENT};
    assert_int_equal(thread_start(&stage->thread, "door", keep_the_door, stage), 0);
    *state = stage;
    return 0;
}

static void close_server(void *context) {
    struct stage *stage = context;

    stage->server = server_close(stage->server);
}

/* Guests are closed before. */
static int close_stage(void **state) {
    struct stage *stage = *state;

    stage->over = true;
    shutdown(stage->listener, SHUT_RDWR);
    pthread_join(stage->thread, NULL);
    channel_close(stage->channel);
    loop_run(stage->loops[0], close_server, stage);
    for (int i = 0; i < 2; i++)
        loop_stop(stage->loops[i]);
    socket_close(stage->listener);
    socket_close(stage->refusing);
    socket_close(stage->waiting);
    memfd_unmap(stage->page, memfd_round(sizeof(struct shm_page)));
    memfd_unmap(stage->memory, REGIONS * SIZE);
    fork_close(stage->page_fd);
    fork_close(stage->page_read_only);
    fork_close(stage->memory_fd);
    gate_destroy(&stage->answers);
    free(stage);
    return 0;
}

/* ---- Getting in ---- */

static void a_guest_tries_again_while_others_are_in_the_way(void **state) {
    struct stage *stage = *state;
    char reason[TRANSPORT_REASON_MAX];
    struct shm_guest *guest;

    stage->invitations[0] = stage->invitations[1] = MC_ERR_TOO_MANY;
    stage->crowded = 2;
    stage->slammed = 2;
    assert_int_equal(open_guest(stage, &guest, reason), MC_OK);
    assert_string_equal(reason, "");
    assert_int_equal(stage->invited, 7);
    shm_guest_close(guest);
}

static void what_does_not_pass_is_told_at_once(void **state) {
    struct stage *stage = *state;
    char reason[TRANSPORT_REASON_MAX];
    struct shm_guest *guest;

    stage->invitations[0] = MC_ERR_NOT_SUPPORTED;
    stage->invitations[1] = MC_ERR_BUSY;
    assert_int_equal(open_guest(stage, &guest, reason), MC_ERR_NOT_SUPPORTED);
    assert_non_null(strstr(reason, "not supported"));
    assert_int_equal(open_guest(stage, &guest, reason), MC_ERR_NOT_SUPPORTED);
    assert_non_null(strstr(reason, "as many guests as it can"));
    stage->crowded = 1;
    strcpy(stage->refusing_name, "mooncake-test-nobody");
    assert_int_equal(open_guest(stage, &guest, reason), MC_ERR_NOT_SUPPORTED);
    assert_non_null(strstr(reason, "another host"));
    assert_int_equal(stage->invited, 3);
}

static void a_full_queue_is_not_another_host(void **state) {
    struct stage *stage = *state;
    char reason[TRANSPORT_REASON_MAX];
    struct shm_guest *guest;

    stage->crowded = 1000000;
    stage->host.connect_timeout = CLOCK_SECOND / 5;
    assert_int_equal(open_guest(stage, &guest, reason), MC_ERR_NOT_SUPPORTED);
    assert_non_null(strstr(reason, "too many wait there"));
    assert_true(stage->invited > 1);
}

/* The deadline is stated: what connecting may take. */
static void a_host_that_is_silent_takes_no_longer_than_connecting_may(void **state) {
    struct stage *stage = *state;
    uint64_t begun = clock_now();
    char reason[TRANSPORT_REASON_MAX];
    struct shm_guest *guest;

    stage->silent = true;
    stage->host.connect_timeout = CLOCK_SECOND / 10;
    assert_int_equal(open_guest(stage, &guest, reason), MC_ERR_NOT_SUPPORTED);
    assert_non_null(strstr(reason, "doesn't answer"));
    assert_true(clock_now() - begun >= CLOCK_SECOND / 10);
    assert_true(clock_now() - begun < CLOCK_SECOND);
}

/* ---- A host that is late ---- */

static struct slice slice_of(uint32_t region, uint8_t local[8]) {
    return (struct slice){.local = local, .remote = BASE + region * SIZE, .length = 8, .opcode = MC_READ};
}

static bool reached(struct shm_guest *guest, uint32_t region) {
    uint8_t local[8];
    struct slice slice = slice_of(region, local);

    return shm_guest_reach(guest, &slice);
}

/* For what is answered: in 200 ms, or on a machine with other things to do by one of the next looks. */
static bool reached_soon(struct shm_guest *guest, uint32_t region) {
    uint64_t deadline = clock_after(clock_now(), PEER_PATIENCE);

    while (!reached(guest, region)) {
        if (clock_now() >= deadline)
            return false;
        sched_yield();
    }
    return true;
}

static void assert_copied(struct shm_guest *guest, uint32_t region) {
    uint8_t local[8];
    struct slice slice = slice_of(region, local);

    assert_int_equal(shm_guest_step(guest, &slice), MC_OK);
}

static void a_late_answer_is_waited_for_once_and_taken_when_it_comes(void **state) {
    struct stage *stage = *state;
    char reason[TRANSPORT_REASON_MAX];
    struct shm_guest *guest;

    assert_int_equal(open_guest(stage, &guest, reason), MC_OK);
    gate_step(&stage->answers);
    assert_true(reached_soon(guest, 0));
    assert_null(shm_guest_trouble(guest));
    assert_false(reached(guest, 1));
    assert_non_null(strstr(shm_guest_trouble(guest), "doesn't answer"));
    for (int i = 0; i < 100; i++) { /* each waiting for it would take too long for the test */
        assert_false(reached(guest, 1));
        assert_true(reached(guest, 0));
        assert_copied(guest, 0);
    }
    assert_int_equal(stage->maps, 2);
    gate_step(&stage->answers);
    assert_true(reached_soon(guest, 1));
    assert_null(shm_guest_trouble(guest));
    assert_int_equal(stage->maps, 2);
    assert_copied(guest, 1);
    shm_guest_close(guest);
}

struct asker {
    struct shm_guest *guest;
    bool reached;
};

static void *ask_for_the_second(void *context) {
    struct asker *asker = context;

    asker->reached = reached_soon(asker->guest, 1);
    return NULL;
}

static void nobody_who_copies_waits_for_one_who_asks(void **state) {
    struct stage *stage = *state;
    char reason[TRANSPORT_REASON_MAX];
    struct asker asker;
    pthread_t thread;

    assert_int_equal(open_guest(stage, &asker.guest, reason), MC_OK);
    gate_step(&stage->answers);
    assert_true(reached_soon(asker.guest, 0));
    assert_int_equal(thread_start(&thread, "asker", ask_for_the_second, &asker), 0);
    while (stage->maps < 2)
        sched_yield();
    /* The answer leaves only when these are through; it is in time unless they have waited for it. */
    assert_true(reached(asker.guest, 0));
    assert_copied(asker.guest, 0);
    gate_step(&stage->answers);
    pthread_join(thread, NULL);
    assert_true(asker.reached);
    shm_guest_close(asker.guest);
}

static void two_who_ask_at_once_both_get_it(void **state) {
    struct stage *stage = *state;
    char reason[TRANSPORT_REASON_MAX];
    struct asker askers[2];
    struct shm_guest *guest;
    pthread_t threads[2];

    assert_int_equal(open_guest(stage, &guest, reason), MC_OK);
    for (int i = 0; i < 3; i++)
        gate_step(&stage->answers);
    for (int i = 0; i < 2; i++) {
        askers[i].guest = guest;
        assert_int_equal(thread_start(&threads[i], "asker", ask_for_the_second, &askers[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_true(askers[i].reached);
    }
    assert_int_equal(stage->maps, 1);
    shm_guest_close(guest);
}

static void a_guest_may_leave_with_an_answer_owed(void **state) {
    struct stage *stage = *state;
    char reason[TRANSPORT_REASON_MAX];
    struct shm_guest *guest;

    assert_int_equal(open_guest(stage, &guest, reason), MC_OK);
    assert_false(reached(guest, 0));
    stage->over = true;
    gate_step(&stage->answers);
    shm_guest_close(guest);
}

#define test_of(function) cmocka_unit_test_setup_teardown(function, open_stage, close_stage)

int main(void) {
    const struct CMUnitTest tests[] = {
        test_of(a_guest_tries_again_while_others_are_in_the_way),
        test_of(what_does_not_pass_is_told_at_once),
        test_of(a_full_queue_is_not_another_host),
        test_of(a_host_that_is_silent_takes_no_longer_than_connecting_may),
        test_of(a_late_answer_is_waited_for_once_and_taken_when_it_comes),
        test_of(nobody_who_copies_waits_for_one_who_asks),
        test_of(two_who_ask_at_once_both_get_it),
        test_of(a_guest_may_leave_with_an_answer_owed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* programs/bench_initiator.c - finds its target's memory, and runs all combinations against it. The main thread. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "programs/bench_case.h"
#include "programs/signals.h"

#define ANSWER_TIME (5 * CLOCK_SECOND)

/* ---- The target's memory ---- */

/* "ADDRESS SIZE SEED". */
static bool read_answer(const char *text, struct bench_place *place) {
    unsigned long long address, size, seed;
    int length = 0;

    if (sscanf(text, "%llx %llu %llu%n", &address, &size, &seed, &length) != 3 || text[length] != '\0')
        return false;
    place->remote = address;
    place->size = size < place->size ? size : place->size;
    place->seed = seed;
    return true;
}

static int32_t wait_for_answer(struct bench_place *place, struct mc_error *error) {
    uint64_t deadline = clock_after(clock_now(), ANSWER_TIME);

    for (;;) {
        uint64_t now = clock_now();
        struct mc_notification *note;
        bool known;

        if (mc_engine_receive(place->end->engine, deadline > now ? deadline - now : 0, &note) != MC_OK)
            return status_set(error, MC_ERR_TIMEOUT, 0,
                              "%s: no answer: it is no target of this program, or doesn't reach us at our address "
                              "(--local_server_name)",
                              place->plan->segment);
        known = strcmp(note->name, BENCH_BUFFER) == 0 && read_answer(note->message, place);
        mc_notification_free(note);
        if (known)
            return MC_OK;
    }
}

static int32_t find_target(struct bench_place *place, struct mc_error *error) {
    int32_t status = mc_peer_open(place->end->engine, place->plan->segment, &place->peer, error);

    if (status == MC_OK)
        status = mc_peer_notify(place->peer, BENCH_HELLO, strlen(BENCH_HELLO), NULL, 0, ANSWER_TIME, error);
    return status == MC_OK ? wait_for_answer(place, error) : status;
}

/* ---- Our own address ---- */

/* Where nothing else was asked for: the address of this host from which packets to the target go, so that the target
 * finds the way back. Left as it is where the target's host isn't known. */
static void listen_towards(struct bench_plan *plan) {
    struct address address = {.length = sizeof(address.storage)};
    struct address_text parts;
    char text[ADDRESS_TEXT_MAX];
    size_t count;
    int fd;

    if (plan->listen_given || address_parse(plan->segment, &parts, NULL) != MC_OK || parts.port <= 0 ||
        address_resolve(parts.host, (uint16_t)parts.port, &address, 1, &count, NULL) != MC_OK)
        return;
    fd = socket(address.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (connect(fd, (struct sockaddr *)&address.storage, address.length) == 0 &&
        getsockname(fd, (struct sockaddr *)&address.storage, &address.length) == 0) {
        address_format(&address, text);
        if (address_parse(text, &parts, NULL) == MC_OK)
            address_join(parts.host, 0, plan->listen);
    }
    close(fd);
}

/* ---- Combinations ---- */

/* The exit status of one. */
static int run_case(const struct bench_place *place, const struct bench_case *what, bool *ret_ended) {
    struct bench_result *result = malloc(sizeof(*result));
    struct mc_error error = MC_ERROR_INIT;
    int status = 1;

    if (result == NULL || bench_case_run(place, what, result, ret_ended, &error) != MC_OK) {
        fprintf(stderr, "%s: %s\n", place->plan->program, result == NULL ? "out of memory" : error.message);
        *ret_ended = true;
    } else {
        bench_report(place->plan, what, result);
        status = result->failures > 0 || result->wrong > 0;
    }
    free(result);
    return status;
}

static int run_all(const struct bench_place *place) {
    const struct bench_plan *plan = place->plan;
    size_t count = plan->operations.count * plan->blocks.count * plan->batches.count * plan->threads.count;
    bool ended = false;
    int status = 0;

    bench_report_begin(plan);
    for (size_t i = 0; i < count && !ended; i++) {
        size_t left = i;
        struct bench_case what;

        what.threads = plan->threads.values[left % plan->threads.count];
        left /= plan->threads.count;
        what.batch = plan->batches.values[left % plan->batches.count];
        left /= plan->batches.count;
        what.block = plan->blocks.values[left % plan->blocks.count];
        left /= plan->blocks.count;
        what.operation = (enum bench_operation)plan->operations.values[left];
        if (run_case(place, &what, &ended) != 0)
            status = 1;
    }
    return status;
}

int bench_initiator(struct bench_plan *plan, pid_t target) {
    struct mc_error error = MC_ERROR_INIT;
    struct bench_end end;
    struct bench_place place = {.plan = plan, .end = &end, .target = target, .size = plan->buffer_size};
    int32_t found;
    int status = 1;

    listen_towards(plan);
    found = bench_end_open(plan, 0, &end, &error);
    if (found == MC_OK)
        found = find_target(&place, &error);
    if (found == MC_OK)
        status = run_all(&place);
    else
        fprintf(stderr, "%s: %s\n", plan->program, error.message);
    signals_release();
    bench_end_close(&end);
    return status;
}

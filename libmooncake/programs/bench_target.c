/* programs/bench_target.c - the engine and the memory of either end, and the end that only lends them. The main thread.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "programs/bench_data.h"
#include "programs/bench_end.h"
#include "programs/signals.h"

#define PAGE 4096u
#define GLANCE (100 * CLOCK_MILLISECOND) /* until who waits for notifications looks for signals */
#define ANSWER_TIME (5 * CLOCK_SECOND)

/* Memory as malloc has it, faulted in. */
static int32_t open_ordinary(struct bench_end *end, struct mc_error *error) {
    end->buffer = aligned_alloc(PAGE, (end->size + PAGE - 1) / PAGE * PAGE);
    if (end->buffer == NULL)
        return status_set(error, MC_ERR_NO_MEMORY, 0, "no memory for a buffer of %" PRIu64 " bytes", end->size);
    memset(end->buffer, 0, end->size);
    return MC_OK;
}

static int32_t open_mapped(struct bench_end *end, struct mc_error *error) {
    void *address = NULL;
    int32_t status = mc_memory_alloc(end->size, NULL, &end->memory, &address, error);

    end->buffer = address;
    return status;
}

int32_t bench_end_open(const struct bench_plan *plan, uint32_t rights, struct bench_end *end, struct mc_error *error) {
    int32_t status;

    *end = (struct bench_end){.size = plan->buffer_size};
    status = mc_engine_open(&plan->engine, &end->engine, error);
    if (status == MC_OK)
        status = plan->ordinary ? open_ordinary(end, error) : open_mapped(end, error);
    if (status == MC_OK)
        status = mc_engine_register(end->engine, end->buffer, end->size, NULL, rights, error);
    return status;
}

void bench_end_close(struct bench_end *end) {
    if (end->engine != NULL)
        (void)mc_engine_close(end->engine);
    if (end->memory != 0)
        (void)mc_memory_free(end->memory);
    else
        free(end->buffer);
    *end = (struct bench_end){0};
}

/* Tells an initiator what it has to know. */
static int32_t answer(const struct bench_plan *plan, const struct bench_end *end, const char *sender,
                      struct mc_error *error) {
    char text[80];
    uint64_t peer;
    int32_t status = mc_peer_open(end->engine, sender, &peer, error);

    if (status != MC_OK)
        return status;
    (void)snprintf(text, sizeof(text), "%" PRIxPTR " %" PRIu64 " %" PRIu64, (uintptr_t)end->buffer, end->size,
                   plan->seed);
    status = mc_peer_notify(peer, BENCH_BUFFER, strlen(BENCH_BUFFER), text, strlen(text), ANSWER_TIME, error);
    (void)mc_peer_close(peer);
    return status;
}

static void serve(const struct bench_plan *plan, const struct bench_end *end) {
    struct mc_error error = MC_ERROR_INIT;
    struct mc_notification *note;

    while (!signals_wait(0)) {
        if (mc_engine_receive(end->engine, GLANCE, &note) != MC_OK)
            continue;
        if (strcmp(note->name, BENCH_HELLO) == 0 && answer(plan, end, note->sender, &error) != MC_OK)
            fprintf(stderr, "%s: warning: an initiator isn't reached: %s\n", plan->program, error.message);
        mc_notification_free(note);
    }
}

int bench_target(const struct bench_plan *plan, FILE *out) {
    char address[ADDRESS_TEXT_MAX] = "";
    struct mc_error error = MC_ERROR_INIT;
    struct bench_end end;
    int status = 0;

    if (bench_end_open(plan, MC_REMOTE_READ | MC_REMOTE_WRITE, &end, &error) == MC_OK) {
        bench_fill(end.buffer, end.size / 2, plan->seed, 0);
        (void)mc_engine_address(end.engine, address, sizeof(address));
        fprintf(out, "%s %s target at %s lends %" PRIu64 " bytes at 0x%" PRIxPTR "\n", plan->program, MOONCAKE_VERSION,
                address, end.size, (uintptr_t)end.buffer);
        fflush(out);
        serve(plan, &end);
        signals_release();
    } else {
        fprintf(stderr, "%s: %s\n", plan->program, error.message);
        status = 1;
    }
    bench_end_close(&end);
    return status;
}

/* transfer/direct.c - one request in the calling thread.
 *
 * The clock is read only when a first piece has left something to move: most requests are one piece.
 */
#include "transfer/direct.h"

#include <string.h>

#include "base/clock.h"
#include "transfer/request.h"

static void nobody_else(struct request *request, int32_t status) {
    (void)request;
    (void)status;
}

/* Why the transfer may not go on; MC_OK if it may. */
static int32_t look(const struct engine *engine, uint64_t deadline) {
    if (engine_is_closing(engine))
        return MC_ERR_CANCELLED;
    return clock_now() >= deadline ? MC_ERR_TIMEOUT : MC_OK;
}

static int32_t move(struct request *request, uint64_t timeout) {
    int32_t status = request_step(request), stop = MC_OK;
    uint64_t deadline = status == MC_ERR_PENDING ? clock_after(clock_now(), timeout) : 0;

    while (status == MC_ERR_PENDING && stop == MC_OK) {
        stop = look(request->peer->engine, deadline);
        if (stop == MC_OK)
            status = request_step(request);
    }
    return stop != MC_OK ? stop : status;
}

bool direct_run(struct peer *peer, const struct mc_request *wanted, uint64_t timeout, int32_t *ret_status,
                struct mc_error *error) {
    struct request request;
    struct slice slice;
    int32_t status;
    bool mine;

    memset(&request, 0, sizeof(request));
    request.ended = nobody_else;
    status = request_prepare_for(&request, peer, wanted, 0, true, error);
    mine = status != MC_OK || request.slice_count == 0 || request_steps(&request);
    if (status == MC_OK && mine && request.slice_count > 0) {
        memset(&slice, 0, sizeof(slice));
        request_cut(&request, &slice);
        request.start = metrics_begin(request.link->metrics, wanted->opcode, wanted->length);
        status = move(&request, timeout);
        request_stepped(&request, status);
        if (status != MC_OK)
            request_explain(&request, 0, error);
    }
    request_release(&request);
    *ret_status = status;
    return mine;
}

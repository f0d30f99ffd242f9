/* transports/tcp/target.c - the target's side of READ and WRITE frames, on the loop's thread.
 *
 * The range is pinned in the registry from the header to the last byte, so it can't be unregistered under the transfer,
 * and nothing outside registered memory with the right is ever read or written.
 *
 * Invariant: while an exchange has its pin, its guard is counted as in flight.
 */
#include "transports/tcp/target.h"

static struct tcp_target *target_of(const struct exchange *exchange) {
    return exchange->service->context;
}

static const struct transport_host *host_of(const struct exchange *exchange) {
    return target_of(exchange)->host;
}

static bool is_guarded(const struct exchange *exchange) {
    return (exchange->request.flags & FRAME_FLAG_GUARD) != 0;
}

static int32_t check_guard(struct exchange *exchange) {
    if (!is_guarded(exchange))
        return MC_OK;
    return guard_check(host_of(exchange), exchange->request.guard_address, exchange->request.guard_value);
}

static void give_back(struct exchange *exchange) {
    const struct transport_host *host = host_of(exchange);

    if (exchange->pin == NULL)
        return;
    if (is_guarded(exchange))
        guard_leave(&target_of(exchange)->guards, exchange->request.guard_address);
    host->unpin(host->context, exchange->pin);
    exchange->pin = NULL;
}

static void pin_range(struct exchange *exchange, uint32_t access) {
    const struct transport_host *host = host_of(exchange);

    exchange->status =
        host->pin(host->context, exchange->request.address, exchange->request.length, access, &exchange->pin);
    if (exchange->status != MC_OK)
        return;
    if (is_guarded(exchange))
        guard_enter(&target_of(exchange)->guards, exchange->request.guard_address);
    exchange->status = check_guard(exchange);
    if (exchange->status != MC_OK)
        give_back(exchange); /* whatever the client still sends, and when it reads the answer */
}

static void begin_write(struct exchange *exchange) {
    if (exchange->request.payload != exchange->request.length) {
        exchange->status = MC_ERR_INVALID_ARGUMENT;
        return;
    }
    pin_range(exchange, MC_REMOTE_WRITE);
    if (exchange->status == MC_OK)
        exchange->sink = (struct sink){
            .bytes = (uint8_t *)(uintptr_t)exchange->request.address,
            .length = exchange->request.payload,
            .sum = (exchange->request.flags & FRAME_FLAG_CHECKSUM) != 0 ? &exchange->sum : NULL,
        };
}

static int32_t serve_write(struct exchange *exchange) {
    const struct frame *request = &exchange->request;
    int32_t status = check_guard(exchange);

    if (status == MC_OK && (request->flags & FRAME_FLAG_CHECKSUM) != 0 && request->payload > 0 &&
        exchange->sum != request->payload_crc)
        status = MC_ERR_CHECKSUM_MISMATCH;
    give_back(exchange); /* it is applied: whether the client reads the answer is no matter of the region's */
    return status;
}

static void begin_read(struct exchange *exchange) {
    if (exchange->request.length > FRAME_PAYLOAD_MAX || exchange->request.payload != 0) {
        exchange->status = MC_ERR_INVALID_ARGUMENT;
        return;
    }
    pin_range(exchange, MC_REMOTE_READ);
}

static int32_t serve_read(struct exchange *exchange) {
    const struct frame *request = &exchange->request;

    exchange->reply_payload = (const void *)(uintptr_t)request->address;
    exchange->reply.payload = (uint32_t)request->length;
    if ((request->flags & FRAME_FLAG_GUARD) != 0)
        exchange->reply.flags |= FRAME_FLAG_MORE;
    if ((request->flags & FRAME_FLAG_CHECKSUM) != 0)
        exchange->reply.flags |= FRAME_FLAG_CHECKSUM;
    return MC_OK;
}

static int32_t look_again(struct exchange *exchange) {
    int32_t status = check_guard(exchange);

    give_back(exchange);
    return status;
}

void tcp_target_serve(struct tcp_target *target, const struct transport_host *host) {
    target->host = host;
    target->read = (struct service){
        .type = FRAME_READ,
        .flags = FRAME_FLAG_GUARD | FRAME_FLAG_CHECKSUM,
        .context = target,
        .begin = begin_read,
        .serve = serve_read,
        .more = look_again,
        .ended = give_back,
    };
    target->write = (struct service){
        .type = FRAME_WRITE,
        .flags = FRAME_FLAG_GUARD | FRAME_FLAG_CHECKSUM,
        .context = target,
        .begin = begin_write,
        .serve = serve_write,
        .ended = give_back,
    };
    server_add(host->server, &target->read);
    server_add(host->server, &target->write);
}

/* store/errand.c - requests over a channel, whose answers come back as letters. */
#include "store/errand.h"

#include <stdlib.h>
#include <string.h>

/* An errand under way. */
struct carrier {
    struct channel_call call;
    struct errand *errand;
    struct letter *answer;
};

/* A letter with room for any answer; NULL if memory is short. */
static struct letter *answer_new(const struct letter *request) {
    struct letter *letter = malloc(sizeof(*letter) + ANSWER_MAX);

    if (letter != NULL)
        *letter = (struct letter){.tag = request->tag, .type = (uint16_t)(request->type + 1)};
    return letter;
}

void errand_fail(struct errand *errand, int32_t status) {
    errand->answer = NULL;
    errand->status = status;
    errand->done(errand);
}

static void carried(struct channel_call *call, int32_t status) {
    struct carrier *carrier = list_entry(call, struct carrier, call);
    struct errand *errand = carrier->errand;

    errand->status = status;
    errand->answer = NULL;
    if (status == MC_OK) {
        carrier->answer->length = call->reply_length;
        errand->answer = carrier->answer;
        carrier->answer = NULL;
    }
    errand->done(errand);
}

void errand_go(struct errand *errand, struct channel *channel, struct ref *hold) {
    struct carrier *carrier = calloc(1, sizeof(*carrier));
    const struct letter *request = errand->request;

    if (carrier != NULL)
        carrier->answer = answer_new(request);
    if (carrier == NULL || carrier->answer == NULL) {
        free(carrier);
        errand_fail(errand, MC_ERR_NO_MEMORY);
        return;
    }
    ref_take(hold);
    errand->hold = hold;
    carrier->errand = errand;
    carrier->call.done = carried;
    errand->carrier = carrier;
    channel_begin(channel, &carrier->call, request->type, request->body, request->length, carrier->answer->body,
                  ANSWER_MAX);
}

void errand_cancel(struct errand *errand, int32_t status) {
    if (errand->carrier != NULL)
        channel_cancel(&errand->carrier->call, status);
}

void errand_end(struct errand *errand) {
    struct carrier *carrier = errand->carrier;

    errand->carrier = NULL;
    if (errand->hold != NULL)
        ref_drop(errand->hold);
    errand->hold = NULL;
    if (carrier != NULL)
        free(carrier->answer);
    free(carrier);
}

int32_t errand_call(struct channel *channel, const struct letter *request, uint64_t deadline,
                    struct letter **ret_answer) {
    struct letter *answer = answer_new(request);
    uint32_t length = 0;
    int32_t status;

    if (answer == NULL)
        return MC_ERR_NO_MEMORY;
    status = channel_call(channel, request->type, request->body, request->length, deadline, answer->body, ANSWER_MAX,
                          &length);
    if (status != MC_OK) {
        free(answer);
        return status;
    }
    answer->length = length;
    *ret_answer = answer;
    return MC_OK;
}

int32_t errand_reply(struct exchange *exchange, const struct letter *letter) {
    uint8_t *body;

    if (letter == NULL)
        return MC_ERR_CLOSED;
    if (letter->status != MC_OK)
        return letter->status;
    body = exchange_reply_body(exchange, letter->length);
    if (body == NULL)
        return MC_ERR_NO_MEMORY;
    if (letter->length > 0)
        memcpy(body, letter->body, letter->length);
    return MC_OK;
}

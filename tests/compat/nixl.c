/* nixl.c - the calls of NIXL's plugin for the reference's transfer engine, in its order, between two processes.
 *
 *   nixl target                 prints ADDRESS REMOTE, and ends when it was told that all is written and read
 *   nixl initiator ADDRESS REMOTE
 *
 * Valid as C99 and C++11. Status 0 if all of it works.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <transfer_engine_c.h>

#define SIZE (1 << 20)
#define PIECES 64
#define CHECK(condition)                                                     \
    do {                                                                     \
        if (!(condition)) {                                                  \
            fprintf(stderr, "line %d: %s is false\n", __LINE__, #condition); \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

static char buffer[SIZE];

static transfer_engine_t begin(char *address, size_t size) {
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);

    CHECK(engine != NULL);
    CHECK(getLocalIpAndPort(engine, address, size) == 0);
    CHECK(registerLocalMemory(engine, buffer, SIZE, "*", 1) == 0);
    return engine;
}

/* Waits until it was told these, in this order and no more. */
static void wait_for(transfer_engine_t engine, const char *const *messages, int wanted) {
    int found = 0;

    while (found < wanted) {
        int count = 0;
        notify_msg_t *list = getNotifsFromEngine(engine, &count);

        for (int i = 0; i < count; i++) {
            CHECK(found < wanted);
            CHECK(strcmp(list[i].name, "agent") == 0);
            CHECK(strcmp(list[i].msg, messages[found++]) == 0);
        }
        CHECK(freeNotifsMsgBuf(list, count) == 0);
    }
}

static int target(void) {
    static const char *const messages[] = {"written", "read"};
    char address[64];
    transfer_engine_t engine = begin(address, sizeof(address));

    printf("%s %llu\n", address, (unsigned long long)(uintptr_t)buffer);
    fflush(stdout);
    wait_for(engine, messages, 2);
    for (int i = 0; i < SIZE; i++)
        CHECK(buffer[i] == (char)(i * 31 >> 4));
    CHECK(unregisterLocalMemory(engine, buffer) == 0);
    destroyTransferEngine(engine);
    return 0;
}

static void move(transfer_engine_t engine, int32_t segment, int opcode, uint64_t remote, const char *message) {
    batch_id_t batch = allocateBatchID(engine, 1024);
    transfer_request_t requests[PIECES];
    notify_msg_t notify;
    char name[] = "agent", text[16];

    CHECK(batch != INVALID_BATCH);
    snprintf(text, sizeof(text), "%s", message);
    for (int i = 0; i < PIECES; i++) {
        requests[i].opcode = opcode;
        requests[i].source = buffer + i * (SIZE / PIECES);
        requests[i].target_id = segment;
        requests[i].target_offset = remote + (uint64_t)i * (SIZE / PIECES);
        requests[i].length = SIZE / PIECES;
    }
    notify.name = name;
    notify.msg = text;
    if (opcode == OPCODE_WRITE)
        CHECK(submitTransferWithNotify(engine, batch, requests, PIECES, notify) == 0);
    else
        CHECK(submitTransfer(engine, batch, requests, PIECES) == 0);
    for (size_t i = 0; i < PIECES; i++) {
        transfer_status_t status = {STATUS_WAITING, 0};

        while (status.status == STATUS_WAITING || status.status == STATUS_PENDING)
            CHECK(getTransferStatus(engine, batch, i, &status) == 0);
        CHECK(status.status == STATUS_COMPLETED);
        CHECK(status.transferred_bytes == SIZE / PIECES);
    }
    CHECK(freeBatchID(engine, batch) == 0);
    if (opcode == OPCODE_READ)
        CHECK(genNotifyInEngine(engine, (uint64_t)segment, notify) == 0);
}

static int initiator(const char *peer, uint64_t remote) {
    char address[64];
    transfer_engine_t engine = begin(address, sizeof(address));
    int32_t segment = openSegment(engine, peer);

    CHECK(segment >= 0);
    for (int i = 0; i < SIZE; i++)
        buffer[i] = (char)(i * 31 >> 4);
    move(engine, segment, OPCODE_WRITE, remote, "written");
    memset(buffer, 0, SIZE);
    move(engine, segment, OPCODE_READ, remote, "read");
    for (int i = 0; i < SIZE; i++)
        CHECK(buffer[i] == (char)(i * 31 >> 4));
    CHECK(unregisterLocalMemory(engine, buffer) == 0);
    destroyTransferEngine(engine);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "target") == 0)
        return target();
    if (argc == 4 && strcmp(argv[1], "initiator") == 0)
        return initiator(argv[2], strtoull(argv[3], NULL, 10));
    return 2;
}

/* transfer_engine_c.c - transfer.c in the C interface of kvcache-ai/Mooncake, for programs that have it already. The two
 * understand each other.
 *
 *   gcc transfer_engine_c.c -o transfer_engine_c $(pkg-config --cflags --libs transfer_engine)   (not installed for
 *                                       good: see the README for PKG_CONFIG_PATH and -Wl,-rpath)
 *   ./transfer_engine_c serve                    lends a buffer, prints ADDRESS REMOTE, and waits
 *   ./transfer_engine_c write ADDRESS REMOTE     in another terminal: fills it
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <transfer_engine_c.h>

#define SIZE (1u << 20)
#define PIECES 16u

/* Failures are negative numbers, or positive ones of calls on batches. The library says on stderr what was wrong. */
static void check(int result, const char *what) {
    if (result == 0)
        return;
    fprintf(stderr, "%s: error %d\n", what, result);
    exit(1);
}

/* Between two looks: nothing in this interface waits. */
static void pause_a_little(void) {
    const struct timespec little = {0, 100000};

    nanosleep(&little, NULL);
}

static void serve(transfer_engine_t engine, const char *buffer) {
    char address[64];
    notify_msg_t *notes;
    int count;

    check(getLocalIpAndPort(engine, address, sizeof(address)), "address");
    printf("%s 0x%llx\n", address, (unsigned long long)(uintptr_t)buffer);
    fflush(stdout);
    while ((notes = getNotifsFromEngine(engine, &count)) == NULL)
        pause_a_little();
    printf("%s: %s bytes: %.100s\n", notes[0].name, notes[0].msg, buffer);
    check(freeNotifsMsgBuf(notes, count), "free notifications");
}

static void write_to(transfer_engine_t engine, char *buffer, const char *address, uint64_t remote) {
    transfer_request_t requests[PIECES];
    char name[] = "written", message[16];
    notify_msg_t notify = {name, message};
    int32_t segment = openSegment(engine, address);
    batch_id_t batch = allocateBatchID(engine, PIECES);

    if (segment < 0)
        check(segment, "open segment");
    strcpy(buffer, "hello from the old C");
    snprintf(message, sizeof(message), "%u", SIZE);
    for (uint32_t i = 0; i < PIECES; i++)
        requests[i] = (transfer_request_t){OPCODE_WRITE, buffer + i * (SIZE / PIECES), segment,
                                           remote + i * (SIZE / PIECES), SIZE / PIECES};
    /* The peer is told when all pieces are there. */
    check(submitTransferWithNotify(engine, batch, requests, PIECES, notify), "submit");
    for (uint32_t i = 0; i < PIECES; i++) {
        transfer_status_t status;

        do {
            check(getTransferStatus(engine, batch, i, &status), "status");
        } while (status.status == STATUS_WAITING || status.status == STATUS_PENDING);
        check(status.status == STATUS_COMPLETED ? 0 : status.status, "transfer");
    }
    check(freeBatchID(engine, batch), "free batch");
    check(closeSegment(engine, segment), "close segment");
}

int main(int argc, char **argv) {
    int serving = argc == 2 && strcmp(argv[1], "serve") == 0;
    transfer_engine_t engine;
    char *buffer;

    if (!serving && !(argc == 4 && strcmp(argv[1], "write") == 0)) {
        fprintf(stderr, "usage: %s serve | write ADDRESS REMOTE\n", argv[0]);
        return 2;
    }
    engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1); /* any free port */
    buffer = calloc(1, SIZE);
    if (engine == NULL || buffer == NULL)
        check(1, "create");
    /* The writer's own end needs no rights for others. */
    check(registerLocalMemory(engine, buffer, SIZE, "*", serving), "register");
    if (serving)
        serve(engine, buffer);
    else
        write_to(engine, buffer, argv[2], strtoull(argv[3], NULL, 0));
    check(unregisterLocalMemory(engine, buffer), "unregister");
    destroyTransferEngine(engine);
    free(buffer);
    return 0;
}

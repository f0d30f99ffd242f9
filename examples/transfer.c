/* transfer.c - moves a buffer into another process.
 *
 *   gcc transfer.c -o transfer $(pkg-config --cflags --libs mooncake)   (not installed for good: see the README for
 *                                       PKG_CONFIG_PATH and -Wl,-rpath)
 *   ./transfer serve                    lends a buffer, prints ADDRESS REMOTE, and waits
 *   ./transfer write ADDRESS REMOTE     in another terminal: fills it
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mooncake/mooncake.h>

#define SIZE (1u << 20)

static struct mc_error error = MC_ERROR_INIT; /* where the library puts its words */

/* Every call returns a negative status on failure. */
static void check(int64_t status, const char *what) {
    if (status >= 0)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, mc_status_name((int32_t)status),
            error.code == status ? error.message : mc_status_text((int32_t)status));
    exit(1);
}

static void serve(mc_engine *engine, char *buffer) {
    struct mc_notification *note;
    char address[MC_ADDRESS_MAX];

    check(mc_engine_address(engine, address, sizeof(address)), "address");
    printf("%s 0x%llx\n", address, (unsigned long long)(uintptr_t)buffer);
    fflush(stdout);
    /* The write needs nothing from this process. It hears of it only because the other one tells it. */
    check(mc_engine_receive(engine, MC_FOREVER, &note), "receive");
    printf("%s: %s bytes: %.100s\n", note->name, note->message, buffer);
    mc_notification_free(note);
}

static void write_to(mc_engine *engine, char *buffer, const char *address, uint64_t remote) {
    const uint64_t second = 1000000000;
    char text[1024];
    uint64_t peer;

    strcpy(buffer, "hello from C");
    check(mc_peer_open(engine, address, &peer, &error), "open peer");
    check(mc_peer_write(peer, buffer, remote, SIZE, 0, &error), "write"); /* 0: the default deadline */
    snprintf(text, sizeof(text), "%u", SIZE);
    check(mc_peer_notify(peer, "written", 7, text, strlen(text), 5 * second, &error), "notify");
    check(mc_peer_explain(peer, text, sizeof(text)), "explain");
    printf("paths: %s\n", text);
    check(mc_peer_close(peer), "close peer");
}

int main(int argc, char **argv) {
    int serving = argc == 2 && strcmp(argv[1], "serve") == 0;
    mc_engine *engine;
    uint64_t memory;
    void *buffer;

    if (!serving && !(argc == 4 && strcmp(argv[1], "write") == 0)) {
        fprintf(stderr, "usage: %s serve | write ADDRESS REMOTE\n", argv[0]);
        return 2;
    }
    check(mc_engine_open(NULL, &engine, &error), "open engine");
    check(mc_memory_alloc(SIZE, NULL, &memory, &buffer, &error), "allocate");
    /* Both ends of a transfer are registered. The writer's own end needs no rights for others. */
    check(mc_engine_register(engine, buffer, SIZE, NULL, serving ? MC_REMOTE_WRITE : 0, &error), "register");
    if (serving)
        serve(engine, buffer);
    else
        write_to(engine, buffer, argv[2], strtoull(argv[3], NULL, 0));
    check(mc_engine_unregister(engine, buffer, &error), "unregister");
    check(mc_engine_close(engine), "close engine");
    check(mc_memory_free(memory), "free");
    return 0;
}

/* tests/bench/bench_scale.c - one engine with many peers, and with many regions.
 *
 *   bench_scale [--quick]
 *
 * peers: a process of its own, the guest, opens 1,000 engines (to which one peer each would be another process; here
 * they share one, so what a process costs by itself isn't in the figures), and each writes to the one engine of
 * the hub. Then the hub opens all of them as peers and writes to each. Memory is what becomes resident meanwhile, and
 * includes shared memory. regions: registers 100,000 of them, in ascending and in random order.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "footprint.h"
#include "work.h"

#define PEERS_MAX 1000u
#define REGIONS_MAX 100000u
#define ITEM 4u /* so that the memory which all share is one page */

struct guest {
    mc_engine *engine;
    uint64_t peer;
    char address[MC_ADDRESS_MAX];
};

static unsigned char *make_memory(uint64_t size) {
    uint64_t memory;
    void *address;

    CHECK(mc_memory_alloc(size, NULL, &memory, &address, NULL));
    return address;
}

static mc_engine *open_engine(const char *protocol, unsigned char *memory, uint64_t size) {
    struct mc_engine_options options = {.struct_size = sizeof(options), .protocol = protocol, .lanes = 2};
    mc_engine *engine;

    CHECK(mc_engine_open(&options, &engine, NULL));
    CHECK(mc_engine_register(engine, memory, size, NULL, MC_REMOTE_READ | MC_REMOTE_WRITE, NULL));
    return engine;
}

static uint64_t resident(pid_t process) {
    struct footprint found = footprint_of(process);

    return found.private_bytes + found.shared_bytes;
}

/* ---- Peers ---- */

static void tell(int control, const void *bytes, size_t length) {
    CHECK_SYSTEM(send(control, bytes, length, MSG_NOSIGNAL) == (ssize_t)length);
}

static void hear(int control, void *bytes, size_t length) {
    CHECK_SYSTEM(recv(control, bytes, length, MSG_WAITALL) == (ssize_t)length);
}

/* What the hub says of itself. */
struct hub {
    char address[MC_ADDRESS_MAX];
    uint64_t memory;
};

static _Noreturn void run_guests(int control, const char *protocol, unsigned count) {
    static struct guest guests[PEERS_MAX];
    unsigned char *memory = make_memory((uint64_t)PEERS_MAX * ITEM);
    uint64_t base = (uint64_t)(uintptr_t)memory;
    struct hub hub;

    hear(control, &hub, sizeof(hub));
    memset(memory, 1, (size_t)PEERS_MAX * ITEM);
    for (unsigned i = 0; i < count; i++) {
        guests[i].engine = open_engine(protocol, memory, (uint64_t)PEERS_MAX * ITEM);
        CHECK_SYSTEM(mc_engine_address(guests[i].engine, guests[i].address, sizeof(guests[i].address)) > 0);
    }
    tell(control, &base, sizeof(base));
    hear(control, &base, 1);
    for (unsigned i = 0; i < count; i++) {
        CHECK(mc_peer_open(guests[i].engine, hub.address, &guests[i].peer, NULL));
        CHECK(mc_peer_write(guests[i].peer, memory + i * ITEM, hub.memory + i * ITEM, ITEM, 0, NULL));
    }
    tell(control, &base, 1);
    for (unsigned i = 0; i < count; i++)
        tell(control, guests[i].address, sizeof(guests[i].address));
    hear(control, &base, 1);
    _exit(0);
}

static void print(const char *protocol, const char *what, double value) {
    printf("scale.%s.%s %.4g\n", protocol, what, value);
    fflush(stdout);
}

/* The hub opens all guests and writes to each. */
static void open_guests(const char *protocol, mc_engine *engine, int control, unsigned char *memory, uint64_t remote,
                        unsigned count) {
    static char addresses[PEERS_MAX][MC_ADDRESS_MAX];
    uint64_t peer, before;
    double begun;

    for (unsigned i = 0; i < count; i++)
        hear(control, addresses[i], sizeof(addresses[i]));
    before = resident(getpid());
    begun = work_seconds();
    for (unsigned i = 0; i < count; i++) {
        CHECK(mc_peer_open(engine, addresses[i], &peer, NULL));
        CHECK(mc_peer_write(peer, memory + i * ITEM, remote + i * ITEM, ITEM, 0, NULL));
    }
    print(protocol, "peers_opened.us_each", (work_seconds() - begun) * 1e6 / count);
    print(protocol, "peers_opened.bytes_each", (double)(resident(getpid()) - before) / count);
}

static void measure_peers(const char *protocol, unsigned count) {
    unsigned char *memory;
    struct hub hub = {0};
    uint64_t remote, mine, theirs;
    mc_engine *engine;
    int pair[2];
    double begun;
    pid_t guest;

    CHECK_SYSTEM(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    guest = fork();
    CHECK_SYSTEM(guest >= 0);
    if (guest == 0)
        run_guests(pair[1], protocol, count);
    close(pair[1]);
    memory = make_memory((uint64_t)PEERS_MAX * ITEM);
    memset(memory, 0, (size_t)PEERS_MAX * ITEM);
    engine = open_engine(protocol, memory, (uint64_t)PEERS_MAX * ITEM);
    CHECK_SYSTEM(mc_engine_address(engine, hub.address, sizeof(hub.address)) > 0);
    hub.memory = (uint64_t)(uintptr_t)memory;
    tell(pair[0], &hub, sizeof(hub));
    hear(pair[0], &remote, sizeof(remote));
    mine = resident(getpid());
    theirs = resident(guest);
    begun = work_seconds();
    tell(pair[0], "", 1);
    hear(pair[0], &(char){0}, 1);
    print(protocol, "peers.us_each", (work_seconds() - begun) * 1e6 / count);
    print(protocol, "peers.hub_bytes_each", (double)(resident(getpid()) - mine) / count);
    print(protocol, "peers.guest_bytes_each", (double)(resident(guest) - theirs) / count);
    for (unsigned i = 0; i < count; i++)
        if (memory[i * ITEM] != 1 || memory[i * ITEM + ITEM - 1] != 1)
            work_fail(__FILE__, __LINE__, "peers", "what a guest wrote did not arrive");
    open_guests(protocol, engine, pair[0], memory, remote, count);
    tell(pair[0], "", 1);
    CHECK_SYSTEM(waitpid(guest, NULL, 0) == guest);
    close(pair[0]);
    CHECK(mc_engine_close(engine));
}

/* ---- Regions ---- */

static void measure_regions(const char *protocol, unsigned char *memory, bool shuffled, uint32_t count) {
    struct mc_engine_options options = {.struct_size = sizeof(options), .protocol = protocol};
    uint32_t *order = malloc(count * sizeof(*order));
    mc_engine *engine;
    double begun, seconds;

    CHECK_SYSTEM(order != NULL);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t other = shuffled ? (uint32_t)random() % (i + 1) : i;

        order[i] = order[other];
        order[other] = i;
    }
    CHECK(mc_engine_open(&options, &engine, NULL));
    begun = work_seconds();
    for (uint32_t i = 0; i < count; i++)
        CHECK(mc_engine_register(engine, memory + (size_t)order[i] * 64, 64, NULL, MC_REMOTE_READ, NULL));
    seconds = work_seconds() - begun;
    print(protocol, shuffled ? "regions_shuffled.seconds" : "regions.seconds", seconds);
    begun = work_seconds();
    for (uint32_t i = 0; i < count; i++)
        CHECK(mc_engine_unregister(engine, memory + (size_t)order[i] * 64, NULL));
    seconds = work_seconds() - begun;
    print(protocol, shuffled ? "regions_shuffled.unregister_seconds" : "regions.unregister_seconds", seconds);
    CHECK(mc_engine_close(engine));
    free(order);
}

int main(int argc, char **argv) {
    static const char *const protocols[] = {"tcp", "shm"};
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    struct rlimit files;
    unsigned char *memory;

    CHECK_SYSTEM(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = files.rlim_max;
    CHECK_SYSTEM(setrlimit(RLIMIT_NOFILE, &files) == 0);
    for (size_t i = 0; i < 2; i++)
        measure_peers(protocols[i], quick ? 10 : PEERS_MAX);
    memory = make_memory((uint64_t)REGIONS_MAX * 64);
    for (size_t i = 0; i < 2; i++)
        for (int shuffled = 0; shuffled < 2; shuffled++)
            measure_regions(protocols[i], memory, shuffled != 0, quick ? 1000 : REGIONS_MAX);
    return 0;
}

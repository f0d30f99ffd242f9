/* both.c - libmooncake.so and libtransfer_engine.so in one process: an engine of each, which are peers. Status 0. */
#include <stdio.h>
#include <string.h>

#include <mooncake/mooncake.h>
#include <transfer_engine_c.h>

#define CHECK(condition)                                                     \
    do {                                                                     \
        if (!(condition)) {                                                  \
            fprintf(stderr, "line %d: %s is false\n", __LINE__, #condition); \
            return 1;                                                        \
        }                                                                    \
    } while (0)

int main(void) {
    static char here[4096], there[4096];
    transfer_engine_t old = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
    mc_engine *engine;
    uint64_t peer;
    char address[64];

    CHECK(old != NULL);
    CHECK(registerLocalMemory(old, there, sizeof(there), "*", 1) == 0);
    CHECK(getLocalIpAndPort(old, address, sizeof(address)) == 0);
    CHECK(mc_engine_open(NULL, &engine, NULL) == MC_OK);
    CHECK(mc_engine_register(engine, here, sizeof(here), NULL, 0, NULL) == MC_OK);
    CHECK(mc_peer_open(engine, address, &peer, NULL) == MC_OK);
    memset(here, 5, sizeof(here));
    CHECK(mc_peer_write(peer, here, (uint64_t)(uintptr_t)there, sizeof(here), 0, NULL) == MC_OK);
    CHECK(memcmp(here, there, sizeof(here)) == 0);
    /* The handles of one are none of the other. */
    CHECK(mc_engine_close((mc_engine *)old) == MC_ERR_INVALID_HANDLE);
    CHECK(getLocalIpAndPort(engine, address, sizeof(address)) == -1);
    CHECK(mc_engine_close(engine) == MC_OK);
    destroyTransferEngine(old);
    return 0;
}

/* consumer.c - what a user's first program does; valid as C99 and as C++11. Status 0 if all of it works. */
#include <stdio.h>
#include <string.h>

#include <mooncake/mooncake.h>

#define CHECK(condition)                                            \
    do {                                                            \
        if (!(condition)) {                                         \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
            return 1;                                               \
        }                                                           \
    } while (0)

int main(void) {
    struct mc_error error;
    mc_engine *engine = NULL;
    uint64_t memory = 0, peer = 0;
    void *address = NULL;
    char *bytes, text[256];

    memset(&error, 0, sizeof error);
    error.struct_size = sizeof error;

    CHECK(mc_api_version() == MC_API_VERSION);
    CHECK(strcmp(mc_status_name(MC_ERR_BUSY), "MC_ERR_BUSY") == 0);
    CHECK(mc_capabilities(text, sizeof text) > 0);

    CHECK(mc_engine_open(NULL, &engine, &error) == MC_OK);
    CHECK(mc_memory_alloc(8192, NULL, &memory, &address, &error) == MC_OK);
    CHECK(mc_engine_register(engine, address, 8192, NULL, MC_REMOTE_READ | MC_REMOTE_WRITE, &error) == MC_OK);
    CHECK(mc_engine_address(engine, text, sizeof text) > 0);
    CHECK(mc_peer_open(engine, text, &peer, &error) == MC_OK);

    bytes = (char *)address;
    memset(bytes, 42, 4096);
    CHECK(mc_peer_write(peer, bytes, (uint64_t)(uintptr_t)(bytes + 4096), 4096, MC_FOREVER, &error) == MC_OK);
    CHECK(memcmp(bytes, bytes + 4096, 4096) == 0);

    CHECK(mc_peer_close(peer) == MC_OK);
    CHECK(mc_engine_unregister(engine, address, &error) == MC_OK);
    CHECK(mc_engine_close(engine) == MC_OK);
    CHECK(mc_memory_free(memory) == MC_OK);
    puts(mc_version());
    return 0;
}

/* store.c - shares objects with other processes through a store.
 *
 *   gcc store.c -o store $(pkg-config --cflags --libs mooncake)   (not installed for good: see the README for
 *                                       PKG_CONFIG_PATH and -Wl,-rpath)
 *   ./store own MASTER                  lends memory to the pool, puts an object, and waits
 *   ./store read MASTER                 in another terminal: reads it, where it is
 *   ./store alone                       all in one process: no master, no network
 *
 * MASTER is where mooncake_master listens, 127.0.0.1:50051 if nothing else was said.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mooncake/mooncake.h>

#define SIZE (1u << 20)
#define BLOCK 4096u

static struct mc_error error = MC_ERROR_INIT; /* where the library puts its words */

/* Every call returns a negative status on failure. */
static int64_t check(int64_t status, const char *what) {
    if (status >= 0)
        return status;
    fprintf(stderr, "%s: %s: %s\n", what, mc_status_name((int32_t)status),
            error.code == status ? error.message : mc_status_text((int32_t)status));
    exit(1);
}

static void put(mc_store *store) {
    static char value[SIZE], blocks[2][BLOCK];
    struct mc_keys keys = {.bytes = "block 0block 1", .lengths = (uint32_t[]){7, 7}, .count = 2};
    struct mc_put_options options = {.struct_size = sizeof(options), .flags = MC_PUT_UPSERT};
    int32_t statuses[2];

    strcpy(value, "hello from C");
    memset(blocks[0], '0', BLOCK);
    memset(blocks[1], '1', BLOCK);
    /* mc_store_put would leave an older object alone; this takes its place, and nobody reads the old one any more. */
    check(mc_store_upsert(store, "greeting", 8, value, SIZE, NULL, &error), "upsert");
    /* A batch costs the round trips of a single call. */
    check(mc_store_put_batch(store, &keys, (const void *[]){blocks[0], blocks[1]}, (uint64_t[]){BLOCK, BLOCK}, &options,
                             statuses, &error),
          "put batch");
}

static void read_back(mc_store *store) {
    static char blocks[3][BLOCK];
    struct mc_keys keys = {.bytes = "block 0block 1block 2", .lengths = (uint32_t[]){7, 7, 7}, .count = 3};
    int64_t lengths[3];
    const void *data;
    uint64_t view;
    /* The owner's memory itself if it is on this host; else a copy. */
    int64_t length = check(mc_store_view(store, "greeting", 8, 0, &view, &data, &error), "view");

    printf("%lld bytes: %.100s\n", (long long)length, (const char *)data);
    check(mc_view_release(view), "release");
    mc_store_get_batch(store, &keys, (void *[]){blocks[0], blocks[1], blocks[2]}, (uint64_t[]){BLOCK, BLOCK, BLOCK}, 0,
                       lengths, NULL);
    for (int i = 0; i < 3; i++) /* a missing one is no failure of the others */
        printf("block %d: %s\n", i, lengths[i] < 0 ? mc_status_text((int32_t)lengths[i]) : "there");
}

int main(int argc, char **argv) {
    int owns = argc == 3 && strcmp(argv[1], "own") == 0;
    int reads = argc == 3 && strcmp(argv[1], "read") == 0;
    int alone = argc == 2 && strcmp(argv[1], "alone") == 0;
    struct mc_store_options options = {.struct_size = sizeof(options)};
    mc_store *store;

    if (!owns && !reads && !alone) {
        fprintf(stderr, "usage: %s own MASTER | read MASTER | alone\n", argv[0]);
        return 2;
    }
    options.flags = alone ? MC_STORE_EMBEDDED : 0;
    options.master = alone ? NULL : argv[2];
    options.segment_size = reads ? 0 : 64u << 20;
    check(mc_store_open(&options, &store, &error), "open store");
    if (!reads)
        put(store);
    if (owns) {
        puts("ready");
        fflush(stdout);
        getchar(); /* Enter: the memory, with what it holds, leaves the pool */
    } else {
        read_back(store);
    }
    check(mc_store_close(store), "close store");
    return 0;
}

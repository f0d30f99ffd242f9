/* store_counts.c - for test_store_counts.py: reads known locations in another process's segment between two marks, so
 * that strace can count the system calls of the reading thread.
 *
 *     store_counts MASTER CALLS BATCH
 *
 * A mark is getppid(), which nothing else here calls.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mooncake/mooncake.h>

#define KEYS 32
#define SIZE 65536

static void check(int64_t status, const char *what, const struct mc_error *error) {
    if (status >= 0)
        return;
    fprintf(stderr, "%s: %s\n", what, error->message);
    exit(1);
}

int main(int argc, char **argv) {
    struct mc_error error = MC_ERROR_INIT;
    struct mc_store_options options = {.struct_size = sizeof(options), .master = argv[1]};
    static unsigned char value[SIZE], copies[KEYS][SIZE];
    char names[KEYS][8], blob[KEYS * 8];
    uint32_t lengths[KEYS];
    uint64_t capacities[KEYS];
    int64_t found[KEYS];
    void *buffers[KEYS];
    struct mc_keys keys = {.bytes = blob, .lengths = lengths, .count = KEYS};
    size_t used = 0;
    mc_store *store;
    int calls = argc == 4 ? atoi(argv[2]) : 0, batches = argc == 4 ? atoi(argv[3]) : 0;

    check(mc_store_open(&options, &store, &error), "open", &error);
    for (int i = 0; i < KEYS; i++) {
        int length = snprintf(names[i], sizeof(names[i]), "key%02d", i);

        memset(value, i + 1, SIZE);
        memset(copies[i], 0, SIZE);
        check(mc_store_put(store, names[i], (size_t)length, value, SIZE, NULL, &error), "put", &error);
        memcpy(blob + used, names[i], (size_t)length);
        used += (size_t)length;
        lengths[i] = (uint32_t)length;
        capacities[i] = SIZE;
        buffers[i] = copies[i];
    }
    check(mc_store_get_batch(store, &keys, buffers, capacities, 0, found, &error), "get", &error);
    usleep(300000); /* page tables are made by then, and what was put is settled */
    (void)getppid();
    for (int i = 0; i < calls; i++)
        check(mc_store_get(store, names[i % KEYS], lengths[i % KEYS], copies[i % KEYS], SIZE, 0, &error), "get",
              &error);
    for (int i = 0; i < batches; i++)
        check(mc_store_get_batch(store, &keys, buffers, capacities, 0, found, &error), "get", &error);
    (void)getppid();
    for (int i = 0; i < KEYS; i++)
        if (copies[i][0] != i + 1 || copies[i][SIZE - 1] != i + 1)
            return 2;
    return mc_store_close(store) == MC_OK ? 0 : 3;
}

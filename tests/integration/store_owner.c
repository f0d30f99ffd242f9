/* store_owner.c - for tests: a store with the master inside and a segment; prints its address, and stays until its
 * input ends. */
#include <stdio.h>

#include <mooncake/mooncake.h>

int main(void) {
    struct mc_error error = MC_ERROR_INIT;
    struct mc_store_options options = {
        .struct_size = sizeof(options), .flags = MC_STORE_EMBEDDED, .segment_size = 64u << 20};
    char address[MC_ADDRESS_MAX];
    mc_store *store;

    if (mc_store_open(&options, &store, &error) != MC_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    mc_store_address(store, address, sizeof(address));
    puts(address);
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    return mc_store_close(store) == MC_OK ? 0 : 1;
}

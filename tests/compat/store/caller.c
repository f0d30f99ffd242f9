/* caller.c - a program as the reference's documentation shows them; C99 and C++11. */
#include <stdio.h>
#include <string.h>

#include <store_c.h>

#define CHECK(condition)                                                     \
    do {                                                                     \
        if (!(condition)) {                                                  \
            fprintf(stderr, "line %d: %s is false\n", __LINE__, #condition); \
            return 1;                                                        \
        }                                                                    \
    } while (0)

int main(int argc, char **argv) {
    static char value[4096], back[4096];
    mooncake_replicate_config_t config = {1, 0, 1, NULL, 0};
    mooncake_store_t store = mooncake_store_create();

    CHECK(store != NULL);
    CHECK(mooncake_store_setup(store, "127.0.0.1", "P2PHANDSHAKE", argc > 2 ? 64u << 20 : 0, 16u << 20, "tcp", "",
                               argc > 1 ? argv[1] : "") == 0);
    memset(value, 7, sizeof(value));
    CHECK(mooncake_store_register_buffer(store, back, sizeof(back)) == 0);
    CHECK(mooncake_store_put(store, "caller", value, sizeof(value), &config) == 0);
    CHECK(mooncake_store_get_into(store, "caller", back, sizeof(back)) == (int64_t)sizeof(back));
    CHECK(memcmp(value, back, sizeof(value)) == 0);
    CHECK(mooncake_store_unregister_buffer(store, back) == 0);
    CHECK(mooncake_store_remove(store, "caller", 0) == 0);
    mooncake_store_destroy(store);
    return 0;
}

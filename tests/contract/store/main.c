/* main.c - runs all parts of the store's contract on one path, as one group: main PATH ACTOR [TEST-PATTERN]. */
#include "store_contract.h"

static const struct contract_part *const parts[] = {
    &store_values, &store_views,   &store_batches,   &store_pieces, &store_puts,     &store_tenants,
    &store_lists,  &store_pools,   &store_replicas,  &store_races,  &store_segments, &store_damage,
    &store_async,  &store_closing, &store_arguments, &store_trips,
};

#ifdef CONTRACT_THREAD_SANITIZED
/* It notes what a send reads after it has noted the send itself, and so finds races with whoever got the answer. */
const char *__tsan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void) {
    return "intercept_send=0";
}
#endif

static bool is_path(const char *word) {
    return strcmp(word, "embedded") == 0 || strcmp(word, "host") == 0 || strcmp(word, "tcp") == 0;
}

int main(int argc, char **argv) {
    static struct CMUnitTest tests[256];
    size_t count = 0;

    if (argc < 3 || !is_path(argv[1])) {
        fprintf(stderr, "usage: %s embedded|host|tcp ACTOR [test pattern]\n", argv[0]);
        return 2;
    }
    contract_path = argv[1];
    actor_program = argv[2];
    unsetenv("MOONCAKE_MASTER");
    if (argc > 3)
        cmocka_set_test_filter(argv[3]);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (count + parts[i]->count > sizeof(tests) / sizeof(tests[0]))
            return 2;
        memcpy(tests + count, parts[i]->tests, parts[i]->count * sizeof(tests[0]));
        count += parts[i]->count;
    }
    return _cmocka_run_group_tests(contract_path, tests, count, store_open_shared, store_close_shared);
}

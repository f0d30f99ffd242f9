/* main.c - runs all parts of the contract on one path, as one group: main PATH [TEST-PATTERN]. */
#include "contract.h"

#include <stdio.h>

static const struct contract_part *const parts[] = {
    &contract_bytes,         &contract_ranges,  &contract_guards,       &contract_batches,
    &contract_queues,        &contract_cancels, &contract_registration, &contract_registration_races,
    &contract_notifications, &contract_notices, &contract_closing,      &contract_handles,
    &contract_arguments,     &contract_forks,   &contract_stalls,       &contract_damage,
    &contract_random_ends,
};

#ifdef CONTRACT_THREAD_SANITIZED
/* It notes what a send reads after it has noted the send itself, and so finds races with whoever got the answer. */
const char *__tsan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void) {
    return "intercept_send=0";
}
#endif

int main(int argc, char **argv) {
    static struct CMUnitTest tests[256];
    size_t count = 0;

    if (argc < 2 || (strcmp(argv[1], "self") != 0 && strcmp(argv[1], "shm") != 0 &&
                     strcmp(argv[1], "process_vm") != 0 && strcmp(argv[1], "tcp") != 0)) {
        fprintf(stderr, "usage: %s self|shm|process_vm|tcp [test pattern]\n", argv[0]);
        return 2;
    }
    contract_path = argv[1];
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if ((parts[i] == &contract_stalls || parts[i] == &contract_damage) && !contract_is("tcp"))
            continue;
        if (count + parts[i]->count > sizeof(tests) / sizeof(tests[0]))
            return 2;
        memcpy(tests + count, parts[i]->tests, parts[i]->count * sizeof(tests[0]));
        count += parts[i]->count;
    }
    return _cmocka_run_group_tests(contract_path, tests, count, NULL, NULL);
}

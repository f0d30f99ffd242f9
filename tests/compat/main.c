/* main.c - runs all groups as one. */
#include "compat.h"

static size_t append(struct CMUnitTest *all, size_t count, const struct CMUnitTest *tests, size_t more) {
    memcpy(all + count, tests, more * sizeof(*all));
    return count + more;
}

int main(void) {
    static struct CMUnitTest all[128];
    size_t count = 0;

    count = append(all, count, engine_tests, engine_test_count);
    count = append(all, count, segment_tests, segment_test_count);
    count = append(all, count, memory_tests, memory_test_count);
    count = append(all, count, batch_tests, batch_test_count);
    count = append(all, count, notification_tests, notification_test_count);
    count = append(all, count, race_tests, race_test_count);
    return _cmocka_run_group_tests("transfer_engine_c", all, count, NULL, NULL);
}

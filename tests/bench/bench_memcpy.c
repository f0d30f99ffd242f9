/* tests/bench/bench_memcpy.c - prints the seconds that a memcpy of 4 KiB takes between two memories, a walk through 256
 * MiB of both: the median of calls that are timed one by one. For what is measured from Python.
 */
#include <stdio.h>
#include <sys/mman.h>

#include "raw_copy.h"

#define CALLS 20000

static unsigned char *make_memory(void) {
    void *memory = mmap(NULL, SPAN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    CHECK_SYSTEM(memory != MAP_FAILED);
    return memory;
}

int main(void) {
    static double each[CALLS];
    struct copier copier = {make_memory(), make_memory(), 0};
    const struct subject subject = {raw_memcpy_call, NULL, &copier};
    const struct work work = {.opcode = 1, .items = 1, .threads = 1, .size = 4096, .span = SPAN, .calls = CALLS};

    work_time_each(&subject, &work, each);
    printf("%.4g\n", work_median(each, CALLS));
    return 0;
}

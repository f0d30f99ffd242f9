/* tests/bench/raw_copy.h - what copying can do without any engine: memcpy, a bare loop of streaming stores, process_vm.
 *
 * Subjects over a struct copier. The streaming loop uses the widest stores of the processor (AVX-512, AVX2, SSE2), which
 * go past the caches; elsewhere it is memcpy, and raw_streams is false.
 */
#ifndef MC_BENCH_RAW_COPY_H
#define MC_BENCH_RAW_COPY_H

#include <stdbool.h>
#include <sys/types.h>

#include "work.h"

struct copier {
    unsigned char *local;
    unsigned char *remote; /* mapped here; for process_vm an address of the other process */
    pid_t process;         /* the other one */
};

bool raw_streams(void);

void raw_memcpy_call(const struct subject *subject, const struct work *work, uint64_t index);
void raw_stream_call(const struct subject *subject, const struct work *work, uint64_t index);

/* One system call for each call, with an element for each item. */
void raw_vm_call(const struct subject *subject, const struct work *work, uint64_t index);

#endif

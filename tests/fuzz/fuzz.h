/* fuzz.h - what a fuzz target is: a function over any bytes, which aborts when a promise of the code under test is broken.
 *
 * Built twice: with replay.c, which feeds it the committed corpus in every test run, and with libFuzzer (option `fuzzing`).
 */
#ifndef MC_FUZZ_H
#define MC_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define REQUIRE(promise) \
    do {                 \
        if (!(promise))  \
            abort();     \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif

/* base/crc32c.c - CRC-32C by carry-less products (base/copy_x86.c), by the processor's instruction, three streams at a
 * time, or by table, eight bytes at once.
 *
 * Owns: constant tables, made once at the first call.
 *
 * Threads: any.
 *
 * The instruction has a latency of three cycles and can start each cycle. So three neighbouring blocks are summed side
 * by side, and joined: the sum of a block is moved past the next one by a table for "as many zero bytes as a block
 * has".
 */
#include "base/crc32c.h"

#include <endian.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "base/copy_variants.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#define POLYNOMIAL 0x82f63b78u /* reflected */
#define LONG_BLOCK 8192u
#define SHORT_BLOCK 256u
#define FOLD_LEAST 1024u /* bytes that are worth a fold */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool hardware;
static crc32c_fold *fold; /* NULL: none */
static uint32_t slices[8][256];

static uint64_t load64(const uint8_t *bytes) {
    uint64_t word;

    memcpy(&word, bytes, sizeof(word));
    return word;
}

static void make_slices(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;

        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        slices[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            slices[k][i] = slices[k - 1][i] >> 8 ^ slices[0][slices[k - 1][i] & 0xff];
}

/* The sums in this file are without the inversions at begin and end, but for the two public functions. */
static uint32_t sum_by_table(uint32_t crc, const uint8_t *bytes, size_t length) {
    for (; length >= 8; bytes += 8, length -= 8) {
        uint64_t word = le64toh(load64(bytes)) ^ crc;

        crc = slices[7][word & 0xff] ^ slices[6][word >> 8 & 0xff] ^ slices[5][word >> 16 & 0xff] ^
              slices[4][word >> 24 & 0xff] ^ slices[3][word >> 32 & 0xff] ^ slices[2][word >> 40 & 0xff] ^
              slices[1][word >> 48 & 0xff] ^ slices[0][word >> 56];
    }
    for (; length > 0; bytes++, length--)
        crc = crc >> 8 ^ slices[0][(crc ^ *bytes) & 0xff];
    return crc;
}

#if defined(__x86_64__) || defined(__aarch64__)

#if defined(__x86_64__)
#define INSTRUCTION __attribute__((target("sse4.2")))

INSTRUCTION static inline uint32_t step8(uint32_t crc, uint64_t word) {
    return (uint32_t)__builtin_ia32_crc32di(crc, word);
}

INSTRUCTION static inline uint32_t step1(uint32_t crc, uint8_t byte) {
    return __builtin_ia32_crc32qi(crc, byte);
}

static bool have_instruction(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") != 0;
}
#else
#define INSTRUCTION

static inline uint32_t step8(uint32_t crc, uint64_t word) {
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(htole64(word)));
    return crc;
}

static inline uint32_t step1(uint32_t crc, uint8_t byte) {
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)byte));
    return crc;
}

static bool have_instruction(void) {
    return (getauxval(AT_HWCAP) & 1ul << 7) != 0; /* HWCAP_CRC32 */
}
#endif

/* shift[k][b]: what byte k of a sum, being b, is after as many zero bytes as a block has. */
struct shift {
    uint32_t by[4][256];
};

static struct shift past_long;
static struct shift past_short;

INSTRUCTION static void make_shift(struct shift *shift, size_t block) {
    for (uint32_t k = 0; k < 4; k++) {
        for (uint32_t bit = 0; bit < 8; bit++) {
            uint32_t crc = 1u << (8 * k + bit);

            for (size_t i = 0; i < block; i += 8)
                crc = step8(crc, 0);
            shift->by[k][1u << bit] = crc;
        }
        for (uint32_t b = 1; b < 256; b++)
            shift->by[k][b] = shift->by[k][b & (b - 1)] ^ shift->by[k][b & (~b + 1)];
    }
}

static inline uint32_t apply(const struct shift *shift, uint32_t crc) {
    return shift->by[0][crc & 0xff] ^ shift->by[1][crc >> 8 & 0xff] ^ shift->by[2][crc >> 16 & 0xff] ^
           shift->by[3][crc >> 24];
}

INSTRUCTION static inline uint32_t sum_three(uint32_t crc, const uint8_t *bytes, size_t block,
                                             const struct shift *past) {
    uint32_t second = 0;
    uint32_t third = 0;

    for (size_t i = 0; i < block; i += 8) {
        crc = step8(crc, load64(bytes + i));
        second = step8(second, load64(bytes + block + i));
        third = step8(third, load64(bytes + 2 * block + i));
    }
    return apply(past, apply(past, crc) ^ second) ^ third;
}

INSTRUCTION static uint32_t sum_by_instruction(uint32_t crc, const uint8_t *bytes, size_t length) {
    for (; length >= 3 * LONG_BLOCK; bytes += 3 * LONG_BLOCK, length -= 3 * LONG_BLOCK)
        crc = sum_three(crc, bytes, LONG_BLOCK, &past_long);
    for (; length >= 3 * SHORT_BLOCK; bytes += 3 * SHORT_BLOCK, length -= 3 * SHORT_BLOCK)
        crc = sum_three(crc, bytes, SHORT_BLOCK, &past_short);
    for (; length >= 8; bytes += 8, length -= 8)
        crc = step8(crc, load64(bytes));
    for (; length > 0; bytes++, length--)
        crc = step1(crc, *bytes);
    return crc;
}

static void prepare(void) {
    make_slices();
#if defined(__x86_64__)
    fold = crc32c_x86_fold();
#endif
    hardware = have_instruction();
    if (hardware) {
        make_shift(&past_long, LONG_BLOCK);
        make_shift(&past_short, SHORT_BLOCK);
    }
}

#else

static uint32_t sum_by_instruction(uint32_t crc, const uint8_t *bytes, size_t length) {
    return sum_by_table(crc, bytes, length);
}

static void prepare(void) {
    make_slices();
}

#endif

uint32_t crc32c(uint32_t crc, const void *bytes, size_t length) {
    (void)pthread_once(&once, prepare);
    if (fold != NULL && length >= FOLD_LEAST) {
        size_t folded = length / CRC32C_FOLD_BLOCK * CRC32C_FOLD_BLOCK;

        crc = fold(crc, bytes, folded);
        bytes = (const uint8_t *)bytes + folded;
        length -= folded;
    }
    return ~(hardware ? sum_by_instruction(~crc, bytes, length) : sum_by_table(~crc, bytes, length));
}

uint32_t crc32c_power(unsigned exponent) {
    uint32_t power = 0x80000000u; /* 1, reflected */

    for (; exponent > 0; exponent--)
        power = power >> 1 ^ (power & 1 ? POLYNOMIAL : 0);
    return power;
}

uint32_t crc32c_table(uint32_t crc, const void *bytes, size_t length) {
    (void)pthread_once(&once, prepare);
    return ~sum_by_table(~crc, bytes, length);
}

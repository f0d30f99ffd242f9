/* base/copy_fold.h - a sum, or a copy that is summed in the same pass, in registers of one width; included by base/copy_x86.c
 * once for each width, with these defined (V is a register, K the two factors):
 *
 *   FOLD_NAME, FOLD_TARGET, FOLD_VECTOR   the function, what the processor has to have, the type of a register
 *   FOLD_LOAD(p), FOLD_STORE(p, V), FOLD_STREAM(p, V)
 *   FOLD_FACTORS(pair), FOLD_FIRST(crc), FOLD_XOR(V, V), FOLD_MULTIPLY(V, K, halves)
 *
 * A CRC is the remainder of the bytes as one long polynomial. So a register may be multiplied by "as many zero bits as
 * there are to the register's next place", and added to what is there: four registers run over the bytes, and the bytes
 * in them at the end have the sum of the whole. A register's 64-bit halves are multiplied by remainders of 32 bits, so
 * that the product fits.
 */
#define FOLD_SIZE sizeof(FOLD_VECTOR)
#define FOLD_BLOCK (4 * FOLD_SIZE)
#define FOLD(sum, bytes) \
    FOLD_XOR((bytes), FOLD_XOR(FOLD_MULTIPLY((sum), factors, 0x00), FOLD_MULTIPLY((sum), factors, 0x11)))
#define FOLD_PUT(p, v) (fold == FOLD_TO_MEMORY ? FOLD_STREAM((p), (v)) : FOLD_STORE((p), (v)))
#define FOLD_PUT4(at, a, b, c, d)                 \
    do {                                          \
        if (fold == FOLD_ALONE)                   \
            break;                                \
        FOLD_PUT(to + (at), (a));                 \
        FOLD_PUT(to + (at) + FOLD_SIZE, (b));     \
        FOLD_PUT(to + (at) + 2 * FOLD_SIZE, (c)); \
        FOLD_PUT(to + (at) + 3 * FOLD_SIZE, (d)); \
    } while (0)

/* `length` is a multiple of FOLD_BLOCK, and not 0; for FOLD_TO_MEMORY `to` is at the begin of a line. Each byte is loaded
 * once: what is summed is what is stored. (Four names and no array: gcc neither unrolls loops over the four by itself,
 * nor keeps an array in registers.) */
FOLD_TARGET static inline uint32_t FOLD_NAME(uint32_t crc, uint8_t *to, const uint8_t *from, size_t length,
                                             const uint32_t pair[2], enum fold fold) {
    const FOLD_VECTOR factors = FOLD_FACTORS(pair);
    FOLD_VECTOR sum_a = FOLD_LOAD(from), sum_b = FOLD_LOAD(from + FOLD_SIZE);
    FOLD_VECTOR sum_c = FOLD_LOAD(from + 2 * FOLD_SIZE), sum_d = FOLD_LOAD(from + 3 * FOLD_SIZE);
    FOLD_VECTOR rest[4];

    FOLD_PUT4(0, sum_a, sum_b, sum_c, sum_d);
    sum_a = FOLD_XOR(sum_a, FOLD_FIRST(~crc));
    for (size_t at = FOLD_BLOCK; at < length; at += FOLD_BLOCK) {
        FOLD_VECTOR a = FOLD_LOAD(from + at), b = FOLD_LOAD(from + at + FOLD_SIZE);
        FOLD_VECTOR c = FOLD_LOAD(from + at + 2 * FOLD_SIZE), d = FOLD_LOAD(from + at + 3 * FOLD_SIZE);

        for (size_t line = 0; line < FOLD_BLOCK; line += COPY_LINE)
            fetch_ahead(from + at + line);
        FOLD_PUT4(at, a, b, c, d);
        sum_a = FOLD(sum_a, a);
        sum_b = FOLD(sum_b, b);
        sum_c = FOLD(sum_c, c);
        sum_d = FOLD(sum_d, d);
    }
    rest[0] = sum_a;
    rest[1] = sum_b;
    rest[2] = sum_c;
    rest[3] = sum_d;
    return crc32c(UINT32_MAX, rest, sizeof(rest)); /* begun with nothing: what came before is in the bytes */
}

#undef FOLD_SIZE
#undef FOLD_BLOCK
#undef FOLD
#undef FOLD_PUT
#undef FOLD_PUT4

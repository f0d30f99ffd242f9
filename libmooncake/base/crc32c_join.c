/* base/crc32c_join.c - sums are polynomials over two elements, and a byte more behind them is a multiplication by x^8.
 *
 * Bit-reflected: the highest bit of a word is the coefficient of x^0.
 */
#include "base/crc32c_join.h"

#define POLYNOMIAL 0x82f63b78u
#define ONE ((uint32_t)1 << 31)
#define X8 ((uint32_t)1 << 23)

static uint32_t times(uint32_t a, uint32_t b) {
    uint32_t product = 0;

    for (uint32_t bit = ONE; bit != 0; bit >>= 1) {
        if ((a & bit) != 0)
            product ^= b;
        b = (b & 1) != 0 ? b >> 1 ^ POLYNOMIAL : b >> 1;
    }
    return product;
}

uint32_t crc32c_join(uint32_t first, uint32_t second, uint64_t length) {
    uint32_t power = X8, shift = ONE;

    for (; length > 0; length /= 2) {
        if (length % 2 == 1)
            shift = times(shift, power);
        power = times(power, power);
    }
    return times(shift, first) ^ second;
}
